//! Reads the conditions of a route other than its path: methods, hosts, header fields and cookies.

use crate::RouteConditions;
use crate::reader::{ConfigSection, ConfigValue};
use crate::rules::{is_field_value, is_literal_name, is_token};
use crate::value::InvalidValue;

/// The methods that the server knows. They are case-sensitive (RFC 9110 §9.1), so a name in another case is a mistake.
const KNOWN: [&str; 10] = [
    "GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH", "PURGE", "CONNECT", "TRACE",
];
/// The number of methods at the start of `KNOWN` that handlers can receive; the server itself handles the rest.
const FOR_PROGRAMS: usize = 8;
/// The longest method that the server accepts.
const METHOD_LEN_MAX: usize = 30;

/// The conditions of a route.
pub(crate) fn conditions(section: &ConfigSection<'_>) -> RouteConditions {
    let items_of = |key| {
        section
            .item(key)
            .map(ConfigValue::one_or_many)
            .unwrap_or_default()
    };
    let methods = items_of("methods");
    let methods = methods.iter().filter_map(|item| item.read(method));
    RouteConditions {
        methods: methods.collect(),
        headers: items_of("header")
            .iter()
            .filter_map(|it| it.read(header))
            .collect(),
        cookies: items_of("cookie")
            .iter()
            .filter_map(|it| it.read(cookie))
            .collect(),
    }
}

/// A method that handlers can receive (RFC 9110 §9.1).
pub(crate) fn method(text: &str) -> Result<String, InvalidValue> {
    let is_method = match KNOWN
        .iter()
        .position(|known| known.eq_ignore_ascii_case(text))
    {
        // `get` is a typing error, not an extension method: methods are case-sensitive.
        Some(index) => index < FOR_PROGRAMS && KNOWN.contains(&text),
        None => is_token(text) && text.len() <= METHOD_LEN_MAX,
    };
    is_method.then(|| text.to_string()).ok_or(InvalidValue {
        expected: "a method for programs",
        allowed: "\"GET\", \"POST\", \"PROPFIND\" or another, as it is sent",
    })
}

fn header(text: &str) -> Result<(String, Option<String>), InvalidValue> {
    named(text, ':', is_literal_name).ok_or(InvalidValue {
        expected: "a condition of a field",
        allowed: "NAME, or NAME: VALUE, with letters, digits and !#$%&'+-.^_`|~ in the name",
    })
}

fn cookie(text: &str) -> Result<(String, Option<String>), InvalidValue> {
    named(text, '=', is_cookie_name).ok_or(InvalidValue {
        expected: "a condition of a cookie",
        allowed: "NAME, or NAME=VALUE; one * at the end of the name for all names that begin so",
    })
}

fn is_cookie_name(name: &str) -> bool {
    // `*` alone stands for any cookie.
    let prefix = name.strip_suffix('*').unwrap_or(name);
    prefix.is_empty() && name == "*" || is_literal_name(prefix)
}

fn named(
    text: &str,
    sign: char,
    is_name: impl Fn(&str) -> bool,
) -> Option<(String, Option<String>)> {
    let (name, value) = match text.split_once(sign) {
        // Whitespace around a field's value is not part of it (RFC 9110 §5.5).
        Some((name, value)) => (name, Some(value.trim().to_string())),
        None => (text, None),
    };
    let is_value = |value: &String| is_field_value(value);
    (is_name(name) && value.as_ref().is_none_or(is_value)).then(|| (name.to_string(), value))
}
