//! Readers of names, paths, counts and free-form settings for several sections, and checks for duplicate and undefined
//! names.

use std::ops::RangeInclusive;

use lowroad_variables::{Template, TemplateScope};

use crate::reader::{ConfigSection, ConfigSource, ConfigValue, KeyPosition};
use crate::secret::SecretReading;

pub(crate) const HOUR_MS: u64 = 3_600_000;
pub(crate) const DAY_MS: u64 = 24 * HOUR_MS;

/// The longest accepted name.
const NAME_LEN_MAX: usize = 64;

/// Reads a name that routes and commands refer to.
pub(crate) fn name(item: &ConfigValue<'_>) -> Option<String> {
    let text = item.value_text().filter(|text| is_name(text));
    if text.is_none() {
        item.refuse(
            "a name",
            "1 to 64 letters, digits, - _ and ., not - or . in front",
        );
    }
    text.map(str::to_string)
}

/// Whether a text is a name.
pub(crate) fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=NAME_LEN_MAX).contains(&text.len())
        && text.bytes().all(plain)
        // A leading `-` would look like an option on the command line, a leading `.` like a hidden file.
        && !text.starts_with(['-', '.'])
}

/// Reads a text with variables.
pub(crate) fn template(item: &ConfigValue<'_>, scope: TemplateScope) -> Option<Template> {
    let Some(text) = item.value_text() else {
        item.refuse("a text", "a string");
        return None;
    };
    let report = |error: lowroad_variables::TemplateError| {
        item.report_at(error.offset, error.message, error.allowed);
    };
    item.parse_template(text, scope).map_err(report).ok()
}

/// A module's settings: any keys, with strings, numbers and booleans.
pub(crate) fn settings(section: ConfigSection<'_>) -> Vec<(String, String)> {
    let entries = section.entries().filter_map(|(key, position, item)| {
        if key.is_empty() || key.chars().any(char::is_control) {
            section.report_at(
                &position,
                format!("{key:?} is not the name of a setting"),
                "a name without control characters",
            );
            return None;
        }
        Some((key.to_string(), plain_value(&item)?))
    });
    entries.collect()
}

/// Reads environment variables with constant values.
pub(crate) fn environment(section: ConfigSection<'_>) -> Vec<(String, String)> {
    environment_by(section, plain_value)
}

/// Reads the environment variables that a program gets in addition to those of the request.
pub(crate) fn environment_templates(
    section: ConfigSection<'_>,
    scope: TemplateScope,
) -> Vec<(String, Template)> {
    environment_by(section, |item| {
        let plain = plain_value(item)?;
        match item.value_text() {
            Some(_) => template(item, scope),
            // Numbers and booleans have no variables.
            None => Some(Template::literal(&plain)),
        }
    })
}

fn environment_by<T>(
    section: ConfigSection<'_>,
    read: impl Fn(&ConfigValue<'_>) -> Option<T>,
) -> Vec<(String, T)> {
    let entries = section.entries().filter_map(|(key, position, item)| {
        let problem = match key {
            _ if !is_variable(key) => "is not the name of a variable",
            // Programs rely on these variables to describe the current request, so the configuration must not replace
            // them.
            _ if is_from_request(key) => "describes the request",
            _ => return Some((key.to_string(), read(&item)?)),
        };
        section.report_at(
            &position,
            format!("{key:?} {problem}"),
            "letters, digits and _, no digit in front, none of RFC 3875 section 4.1, no HTTP_…",
        );
        None
    });
    entries.collect()
}

/// Reports duplicate names. Empty names are skipped: they stand for invalid names, which were reported.
pub(crate) fn check_unique<'n>(
    source: &ConfigSource<'_>,
    array: &str,
    names: impl Iterator<Item = (&'n str, &'n KeyPosition)>,
) {
    let mut seen: Vec<&str> = Vec::new();
    for (name, position) in names {
        let previous = seen.iter().position(|other| *other == name);
        // An empty name was reported as invalid by its reader.
        if let Some(other) = previous.filter(|_| !name.is_empty()) {
            source.report(
                position,
                format!("{name:?} is already {array}[{other}]"),
                "each name once",
            );
        }
        seen.push(name);
    }
}

/// Reports a reference to an undefined name.
pub(crate) fn check_defined(
    source: &ConfigSource<'_>,
    array: &str,
    name: &str,
    key_position: &KeyPosition,
    defined: &[&str],
) {
    // An empty name was reported as invalid.
    if name.is_empty() || defined.contains(&name) {
        return;
    }
    let allowed = match defined {
        [] => format!("[[{array}]] with name = {name:?}"),
        names => names.join(", "),
    };
    source.report(
        key_position,
        format!("there is no {array} {name:?}"),
        allowed,
    );
}

/// Whether a text is a portable name of an environment variable: letters, digits and `_`, no digit in front.
pub(crate) fn is_variable(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty()
        && name.bytes().all(plain)
        && !name.starts_with(|first: char| first.is_ascii_digit())
}

/// Whether the request sets this variable (RFC 3875 §4.1).
fn is_from_request(name: &str) -> bool {
    const FROM_REQUEST: [&str; 17] = [
        "AUTH_TYPE",
        "CONTENT_LENGTH",
        "CONTENT_TYPE",
        "GATEWAY_INTERFACE",
        "PATH_INFO",
        "PATH_TRANSLATED",
        "QUERY_STRING",
        "REMOTE_ADDR",
        "REMOTE_HOST",
        "REMOTE_IDENT",
        "REMOTE_USER",
        "REQUEST_METHOD",
        "SCRIPT_NAME",
        "SERVER_NAME",
        "SERVER_PORT",
        "SERVER_PROTOCOL",
        "SERVER_SOFTWARE",
    ];
    FROM_REQUEST.contains(&name) || name.starts_with("HTTP_")
}

/// Reads a string without NUL, or a secret; numbers and booleans become text.
fn plain_value(item: &ConfigValue<'_>) -> Option<String> {
    match item.secret()? {
        SecretReading::Text(text) => return Some(text),
        SecretReading::Unread => return Some(String::new()),
        SecretReading::Plain => {}
    }
    // NUL ends strings in the environment and in C modules.
    let value = item.plain_text().filter(|text| !text.contains('\0'));
    if value.is_none() {
        item.refuse(
            "a plain value",
            "a string without NUL, a number, true, false, or a secret: { file = \"PATH\" }",
        );
    }
    value
}

/// Reads an absolute path in normal form, relative to the root: decoded, without empty and dot segments.
pub(crate) fn absolute_path(item: &ConfigValue<'_>) -> Option<String> {
    let text = item.text()?;
    // The path is compared with normalized request paths, so any other form would never match.
    let clean = |segment: &str| !matches!(segment, "" | "." | "..");
    if !text
        .strip_prefix('/')
        .is_some_and(|rest| rest.split('/').all(clean))
    {
        item.refuse(
            "a path under the root",
            "/PATH of a file, without empty segments, . and ..",
        );
        return None;
    }
    Some(text.to_string())
}

/// Reads a file name, without a folder.
pub(crate) fn file_name(item: &ConfigValue<'_>) -> Option<String> {
    let text = item.text()?;
    if text.contains('/') || matches!(text, "." | "..") {
        item.refuse("a file name", "a name without /");
        return None;
    }
    Some(text.to_string())
}

/// Reads a count; `range` must fit `usize`.
pub(crate) fn count(
    section: &ConfigSection<'_>,
    key: &'static str,
    default: usize,
    range: RangeInclusive<u64>,
) -> usize {
    usize::try_from(section.count(key, default as u64, range)).unwrap_or(default)
}

/// Reads the name of a system user or group.
pub(crate) fn account(section: &ConfigSection<'_>, key: &'static str) -> Option<String> {
    section
        .item(key)
        .and_then(|item| item.text().map(str::to_string))
}
