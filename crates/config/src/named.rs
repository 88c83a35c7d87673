//! What several sections have in common: names, paths, counts, tables of settings, and that no name is given twice or
//! names nothing.

use std::ops::RangeInclusive;

use crate::reader::{At, Item, Section, Source};

pub(crate) const HOUR_MS: u64 = 3_600_000;
pub(crate) const DAY_MS: u64 = 24 * HOUR_MS;

/// A longer name is a mistake.
const NAME_LEN_MAX: usize = 64;

/// A name that routes and commands use.
pub(crate) fn name(item: &Item<'_>) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let text = item.value_text().filter(|text| {
        (1..=NAME_LEN_MAX).contains(&text.len())
            && text.bytes().all(plain)
            && !text.starts_with(['-', '.'])
    });
    if text.is_none() {
        item.refuse(
            "a name",
            "1 to 64 letters, digits, - _ and ., not - or . in front",
        );
    }
    text.map(str::to_string)
}

/// What a module is told: any keys, with texts, numbers and booleans.
pub(crate) fn settings(section: Section<'_>) -> Vec<(String, String)> {
    let entries = section.entries().filter_map(|(key, at, item)| {
        if key.is_empty() || key.chars().any(char::is_control) {
            section.report_at(
                &at,
                format!("{key:?} is not the name of a setting"),
                "a name without control characters",
            );
            return None;
        }
        Some((key.to_string(), plain_value(&item)?))
    });
    entries.collect()
}

/// What a program finds in its environment, besides what a request puts there.
pub(crate) fn environment(section: Section<'_>) -> Vec<(String, String)> {
    let entries = section.entries().filter_map(|(key, at, item)| {
        let problem = match key {
            _ if !is_variable(key) => "is not the name of a variable",
            _ if is_from_request(key) => "says something about the request",
            _ => return Some((key.to_string(), plain_value(&item)?)),
        };
        section.report_at(
            &at,
            format!("{key:?} {problem}"),
            "letters, digits and _, no digit in front, none of RFC 3875 section 4.1, no HTTP_…",
        );
        None
    });
    entries.collect()
}

/// Reports each name that was given before; names that are wrong by themselves are empty.
pub(crate) fn each_once<'n>(
    source: &Source<'_>,
    array: &str,
    names: impl Iterator<Item = (&'n str, &'n At)>,
) {
    let mut seen: Vec<&str> = Vec::new();
    for (name, at) in names {
        let before = seen.iter().position(|other| *other == name);
        if let Some(other) = before.filter(|_| !name.is_empty()) {
            source.report(
                at,
                format!("{name:?} is {array}[{other}] already"),
                "each name once",
            );
        }
        seen.push(name);
    }
}

/// Reports a name that names nothing.
pub(crate) fn check_known(source: &Source<'_>, array: &str, name: &str, at: &At, known: &[&str]) {
    if name.is_empty() || known.contains(&name) {
        return;
    }
    let allowed = match known {
        [] => format!("[[{array}]] with name = {name:?}"),
        known => known.join(", "),
    };
    source.report(at, format!("there is no {array} {name:?}"), allowed);
}

/// The name of an environment variable, as shells have it.
pub(crate) fn is_variable(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty()
        && name.bytes().all(plain)
        && !name.starts_with(|first: char| first.is_ascii_digit())
}

/// The variables of RFC 3875 §4.1, which only the request may set.
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

/// A text of any kind but for NUL, or what a number or a boolean looks like.
fn plain_value(item: &Item<'_>) -> Option<String> {
    let value = item.plain_text().filter(|text| !text.contains('\0'));
    if value.is_none() {
        item.refuse(
            "a plain value",
            "a string without NUL, a number, true or false",
        );
    }
    value
}

/// A path under the root as it stands in a request: decoded, absolute, without tricks.
pub(crate) fn absolute_path(item: &Item<'_>) -> Option<String> {
    let text = item.text()?;
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

/// The name of a file in a folder.
pub(crate) fn file_name(item: &Item<'_>) -> Option<String> {
    let text = item.text()?;
    if text.contains('/') || matches!(text, "." | "..") {
        item.refuse("a file name", "a name without /");
        return None;
    }
    Some(text.to_string())
}

/// A count with a range that fits `usize`.
pub(crate) fn count(
    section: &Section<'_>,
    key: &'static str,
    default: usize,
    range: RangeInclusive<u64>,
) -> usize {
    usize::try_from(section.count(key, default as u64, range)).unwrap_or(default)
}

/// A user or group of the system.
pub(crate) fn account(section: &Section<'_>, key: &'static str) -> Option<String> {
    section
        .item(key)
        .and_then(|item| item.text().map(str::to_string))
}
