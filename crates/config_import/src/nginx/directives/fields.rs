//! Response fields: `add_header` and `expires`.

use super::proxy::NO_VARIABLE;
use super::{Handling, Handling::Translate, TableLine};
use crate::nginx::level::Level;
use crate::nginx::settings::AddedField;
use crate::nginx::tree::Directive;
use crate::nginx::values::seconds;
use crate::report::DirectiveOutcome;

/// Directives of response fields.
pub const TABLE: &[TableLine] = &[
    ("add_header", Translate(add_header)),
    ("more_set_headers", Translate(more_set_headers)),
    (
        "more_clear_headers",
        Handling::ByHand("`remove` of [[site.header]]"),
    ),
    ("expires", Translate(expires)),
    (
        "add_trailer",
        Handling::ByHand("send trailers in the application"),
    ),
];

fn add_header(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    if level.begins_array("add_header") {
        level.settings.fields.clear();
    }
    add_field(level, directive.arg(0), directive.arg(1))
}

fn more_set_headers(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    match directive.arg(0).split_once(':') {
        Some((name, value)) => add_field(level, name.trim(), value.trim()),
        None => DirectiveOutcome::ByHand("`remove` of [[site.header]]".to_string()),
    }
}

fn add_field(level: &mut Level<'_>, name: &str, value: &str) -> DirectiveOutcome {
    // A value may continue on further lines of the file.
    let value = level
        .substitute(value)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let lower = name.to_ascii_lowercase();
    if let Some(reason) = managed(&lower, &value) {
        return DirectiveOutcome::NotNeeded(reason.to_string());
    }
    if value.is_empty() {
        return DirectiveOutcome::NotNeeded("an empty value adds no field".to_string());
    }
    if lower == "content-type" {
        return DirectiveOutcome::ByHand(
            "set the media type by extension: [site.types]".to_string(),
        );
    }
    // The lifetime of a stored response is the same for all clients.
    if value.contains('$') && matches!(&*lower, "cache-control" | "expires") {
        return DirectiveOutcome::ByHand("set the lifetime in the application".to_string());
    }
    let Some(value) = level.request_text(&value) else {
        return DirectiveOutcome::ByHand(NO_VARIABLE.to_string());
    };
    let value = value.to_string();
    let fields = &mut level.settings.fields;
    // Cache-Control may be put together from several directives.
    match fields
        .iter_mut()
        .find(|field| field.name.eq_ignore_ascii_case(name))
    {
        Some(field) if field.value != value => field.value = format!("{}, {value}", field.value),
        Some(_) => {}
        None => fields.push(AddedField {
            name: name.to_string(),
            value,
        }),
    }
    DirectiveOutcome::translated()
}

/// The reason why a field isn't set by the configuration.
fn managed(name: &str, value: &str) -> Option<&'static str> {
    match name {
        "vary" => Some("Vary is managed by the server"),
        "x-cache-status" | "x-cache" | "x-proxy-cache" | "x-fastcgi-cache" | "cf-cache-status"
            if value.starts_with('$') =>
        {
            Some("Cache-Status (RFC 9211) is sent")
        }
        "alt-svc" if value.contains("h3") => Some("the server announces HTTP/3 itself"),
        "accept-ranges" | "date" | "last-modified" | "etag" | "connection" => {
            Some("the server manages this field")
        }
        _ => None,
    }
}

fn expires(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let settings = &mut level.settings;
    // A block's own `expires` ends an inherited one, also if it is `off` or not understood.
    settings.expires = None;
    settings.expires_map = None;
    let text = match directive.arg(0) {
        // max-age can't count from Last-Modified, so the time counts from the response.
        "modified" => directive.arg(1),
        text => text,
    };
    let value = match text {
        "off" => return DirectiveOutcome::translated(),
        "max" => "max-age=315360000".to_string(),
        "epoch" => "no-cache".to_string(),
        text if text.starts_with('$') => {
            settings.expires_map = Some(text.trim_start_matches('$').to_string());
            return DirectiveOutcome::translated();
        }
        text if text.starts_with('-') => "no-cache".to_string(),
        text => match seconds(text.trim_start_matches('+')) {
            Some(seconds) => format!("max-age={seconds}"),
            None => {
                return DirectiveOutcome::ByHand("Cache-Control has no time of day".to_string());
            }
        },
    };
    settings.expires = Some(value);
    DirectiveOutcome::Translated("Cache-Control without Expires".to_string())
}
