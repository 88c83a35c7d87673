//! Reads the format of an access log.

use std::sync::Arc;

use lowroad_log::TextFormat;
use lowroad_log::format::{EscapeMode, FormatError, FormatErrorReason};
use lowroad_log::variable::NAMES;

use crate::AccessLogFormat;
use crate::reader::{ConfigSection, ConfigValue, nearest};

const ALLOWED: &str = "\"combined\", \"extended\", \"json\", \"binary\", or a text with variables: '$remote_addr \"$request\" $status'";

/// Reads `format`, `fields` and `escape`.
pub(super) fn format(section: &ConfigSection<'_>) -> AccessLogFormat {
    let item = section.item("format");
    let text = item.as_ref().and_then(|item| item.value_text());
    let escape = section.item("escape");
    let fields = section.item("fields");
    if let Some(fields) = fields.as_ref().filter(|_| text != Some("json")) {
        fields.report("has no effect here", "only with format = \"json\"");
    }
    let is_text = text.is_some_and(|text| text.contains('$'));
    if let Some(escape) = escape.as_ref().filter(|_| !is_text) {
        escape.report("has no effect here", "only with a format of variables");
    }
    let Some(item) = item else {
        return AccessLogFormat::default();
    };
    match text {
        Some("combined") => AccessLogFormat::Combined,
        Some("extended") => AccessLogFormat::Extended,
        Some("binary") => AccessLogFormat::Binary,
        Some("json") => fields.map_or(AccessLogFormat::Json, |fields| members(&fields)),
        Some(text) if is_text => {
            let modes = [("default", EscapeMode::Hex), ("json", EscapeMode::Json)];
            let mode = escape.and_then(|escape| escape.choice(&modes));
            parsed(TextFormat::parse(text, mode.unwrap_or_default()), |error| {
                item.report_at(error.offset, describe(error), allowed(error));
            })
        }
        _ => {
            item.refuse("a format", ALLOWED);
            AccessLogFormat::default()
        }
    }
}

/// Reads the members of a JSON object.
fn members(fields: &ConfigValue<'_>) -> AccessLogFormat {
    let items = fields.items().unwrap_or_default();
    let names: Option<Vec<&str>> = items.iter().map(ConfigValue::text).collect();
    let Some(names) = names else {
        return AccessLogFormat::Json;
    };
    parsed(TextFormat::json(names), |error| {
        let item = items.get(error.offset).unwrap_or(fields);
        item.report(describe(error), allowed(error));
    })
}

/// The parsed format; a mistake is reported.
fn parsed(
    result: Result<TextFormat, FormatError>,
    report: impl FnOnce(&FormatError),
) -> AccessLogFormat {
    match result {
        Ok(format) => AccessLogFormat::Text(Arc::new(format)),
        Err(error) => {
            report(&error);
            AccessLogFormat::default()
        }
    }
}

fn names() -> Vec<&'static str> {
    NAMES.iter().map(|(name, _)| *name).collect()
}

fn describe(error: &FormatError) -> String {
    let suggestion = match &error.reason {
        FormatErrorReason::UnknownVariable(name) => nearest(name, &names()),
        _ => None,
    };
    match suggestion {
        Some(name) => format!("{}; did you mean ${name}?", error.reason),
        None => error.reason.to_string(),
    }
}

/// The allowed variables, where they matter.
fn allowed(error: &FormatError) -> String {
    match error.reason {
        FormatErrorReason::UnknownVariable(_) => {
            let named = "http_NAME for a request field, sent_http_NAME for a response field, cookie_NAME, arg_NAME";
            format!("{named}, {}", names().join(", "))
        }
        _ => String::new(),
    }
}
