//! Reads the keys of a route that change the request for an origin: `strip_prefix`, `add_prefix`, `restore_prefix` and
//! `[site.route.request]`.

use lowroad_variables::{Template, TemplateScope};

use crate::named;
use crate::reader::{ConfigSection, ConfigValue};
use crate::route::common_captures;
use crate::rules::{self, field_lines, field_template, has_valid_escapes, names_of};
use crate::value::InvalidValue;
use crate::{PathPattern, PathPrefixes, RequestRule};

/// Fields of requests that the server manages, since they frame the message, describe the connection, or belong to the
/// cache. In lower case and alphabetical order.
const MANAGED: [&str; 19] = [
    "connection",
    "content-length",
    "expect",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "max-forwards",
    "proxy-connection",
    "range",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// Reads the prefixes of each pattern of a route to an origin; `url_path` is the path in the URL of the origin.
pub(crate) fn prefixes(
    section: &ConfigSection<'_>,
    patterns: &[PathPattern],
    url_path: Option<&str>,
) -> Vec<PathPrefixes> {
    let strip_item = section.item("strip_prefix");
    let strip = strip_item.as_ref().and_then(|item| {
        let strip = item.read(prefix)?;
        for pattern in patterns {
            check_front(item, &strip, pattern)?;
        }
        Some(strip)
    });
    let add = match url_path {
        Some(path) => {
            section.only_with("add_prefix", "an origin without a path in its URL");
            Some(path.to_string())
        }
        None => section
            .item("add_prefix")
            .and_then(|item| item.read(encoded_prefix)),
    };
    let restores = match strip_item.is_some() || add.is_some() {
        true => section.flag("restore_prefix", true),
        false => {
            section.only_with(
                "restore_prefix",
                "strip_prefix, add_prefix or a path in origin",
            );
            true
        }
    };
    let add = add.unwrap_or_default();
    let prefixes = patterns.iter().map(|pattern| PathPrefixes {
        // The path of the URL replaces the part of the path that is equal for all requests of the route.
        strip: match (&strip, url_path) {
            (Some(strip), _) => strip.clone(),
            (None, Some(_)) => replaced_front(pattern),
            (None, None) => String::new(),
        },
        add: match url_path.is_some() && is_literal(pattern) {
            // The whole path is replaced, so a slash at the end of the URL is meant.
            true => add.clone(),
            // The rest of the path begins with a slash.
            false => add.trim_end_matches('/').to_string(),
        },
        restores,
    });
    prefixes.collect()
}

/// The part of the paths that the path of an origin's URL replaces: all of a literal pattern; otherwise the text before
/// the first wildcard, up to its last slash.
fn replaced_front(pattern: &PathPattern) -> String {
    let front = pattern.front();
    match is_literal(pattern) {
        true => front.to_string(),
        false => front
            .rsplit_once('/')
            .map_or("", |(front, _)| front)
            .to_string(),
    }
}

fn is_literal(pattern: &PathPattern) -> bool {
    pattern.is_absolute() && pattern.front() == pattern.to_string()
}

/// Checks that all paths of a pattern have a prefix, which ends before a slash or at the end.
fn check_front(item: &ConfigValue<'_>, strip: &str, pattern: &PathPattern) -> Option<()> {
    let rest = pattern.front().strip_prefix(strip);
    let is_front =
        rest.is_some_and(|rest| rest.starts_with('/') || rest.is_empty() && is_literal(pattern));
    if !is_front {
        let message = format!("the paths of {pattern} do not all begin with {strip}/");
        item.report(message, "the front of the pattern, up to a slash");
    }
    is_front.then_some(())
}

/// Reads a prefix of decoded paths; a slash at its end is ignored.
fn prefix(text: &str) -> Result<String, InvalidValue> {
    let trimmed = text.strip_suffix('/').unwrap_or(text);
    let is_clean = |segment: &str| !matches!(segment, "" | "." | "..");
    // The prefix is compared with decoded paths, so an escape would never match.
    let is_prefix = trimmed
        .strip_prefix('/')
        .is_some_and(|rest| rest.split('/').all(is_clean))
        && !trimmed.contains(['*', '\\', '%'])
        && !trimmed.chars().any(char::is_control);
    is_prefix.then(|| trimmed.to_string()).ok_or(InvalidValue {
        expected: "a prefix of paths",
        allowed: "/PATH, decoded, without empty segments, . and ..",
    })
}

/// Reads a percent-encoded prefix.
fn encoded_prefix(text: &str) -> Result<String, InvalidValue> {
    is_encoded_path(text)
        .then(|| text.to_string())
        .ok_or(InvalidValue {
            expected: "a prefix of paths",
            allowed: "/PATH in visible ASCII, percent-encoded, without empty segments, . and ..",
        })
}

/// Whether a text is a percent-encoded path in normal form, other than `/`.
pub(crate) fn is_encoded_path(text: &str) -> bool {
    let trimmed = text.strip_suffix('/').unwrap_or(text);
    let is_clean = |segment: &str| !matches!(segment, "" | "." | "..");
    trimmed
        .strip_prefix('/')
        .is_some_and(|rest| rest.split('/').all(is_clean))
        && text.bytes().all(|byte| byte.is_ascii_graphic())
        && !text.contains(['?', '#', '\\'])
        && has_valid_escapes(text)
}

/// Reads `[site.route.request]`.
pub(crate) fn request_rule(section: ConfigSection<'_>, patterns: &[PathPattern]) -> RequestRule {
    let scope = TemplateScope::fields(common_captures(patterns));
    let lines = |key: &'static str| {
        let read = |item: &ConfigValue<'_>| secret_or_template(item, scope);
        let section = section.section(key);
        section.map_or_else(Vec::new, |section| field_lines(section, can_change, read))
    };
    let (set, append) = (lines("set"), lines("append"));
    let remove = section.item("remove");
    let remove = remove.map_or_else(Vec::new, |item| rules::remove(item, can_change));
    // Tables have no order, so two operations on one field would have no clear result.
    rules::report_duplicates(
        &section,
        [
            names_of(&set),
            names_of(&append),
            remove.iter().cloned().collect(),
        ],
        "one of set, append and remove for each field",
    );
    let host = section.item("host").and_then(|item| host(&item));
    section.finish();
    RequestRule {
        host,
        set,
        append,
        remove,
    }
}

/// Reads a field value with variables, or a secret. A value in the configuration itself is no secret: it may have
/// variables, and is shown.
fn secret_or_template(item: &ConfigValue<'_>, scope: TemplateScope) -> Option<Template> {
    if !item.is_table() {
        return field_template(item, scope);
    }
    let text = item.secret_reference()?;
    let is_valid = rules::is_field_value(text.expose());
    if !is_valid {
        // The secret is not quoted.
        item.report(
            "not the value of a field",
            "visible ASCII characters in one line, with spaces and tabs between them",
        );
    }
    is_valid.then(|| Template::secret(text.expose()))
}

/// Whether an operator may set or remove a field of requests; if not, calls `report`.
pub(crate) fn can_change(name: &str, report: &dyn Fn(String, &str)) -> bool {
    let lower = name.to_ascii_lowercase();
    if !rules::is_token(name) {
        report(
            format!("{name:?} is not a field name"),
            "letters, digits and !#$%&'*+-.^_`|~",
        );
    } else if lower == "host" {
        report("Host is not changed here".into(), "the key host");
    } else if MANAGED.contains(&lower.as_str()) {
        report(
            format!("{name} is managed by the server"),
            "any other field",
        );
    } else {
        return true;
    }
    false
}

/// Reads a host with variables.
fn host(item: &ConfigValue<'_>) -> Option<Template> {
    let template = named::template(item, TemplateScope::host())?;
    let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
    let texts = template.parts().iter().filter_map(|part| match part {
        lowroad_variables::TemplatePart::Text(text) => Some(text),
        lowroad_variables::TemplatePart::Variable(_) => None,
    });
    let is_host =
        !template.as_str().is_empty() && texts.flat_map(|text| text.bytes()).all(is_host_byte);
    if !is_host {
        item.refuse(
            "a host",
            "HOST or HOST:PORT, with $host or $authority perhaps",
        );
    }
    is_host.then_some(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managed_fields_are_lower_case_sorted_and_unique() {
        assert!(MANAGED.is_sorted_by(|a, b| a < b));
        assert!(
            MANAGED
                .iter()
                .all(|name| *name == name.to_ascii_lowercase())
        );
    }
}
