//! Reads what a route wants of a request beside its path.

use crate::Conditions;
use crate::reader::{Item, Section};
use crate::rules::{is_field_value, is_token};
use crate::value::Refused;

/// Methods that programs may be asked with.
const METHODS: [(&str, &str); 7] = [
    ("GET", "GET"),
    ("HEAD", "HEAD"),
    ("OPTIONS", "OPTIONS"),
    ("POST", "POST"),
    ("PUT", "PUT"),
    ("DELETE", "DELETE"),
    ("PATCH", "PATCH"),
];

/// The conditions of a route.
pub(crate) fn conditions(section: &Section<'_>) -> Conditions {
    let all = |key| section.item(key).map(Item::one_or_many).unwrap_or_default();
    let methods = all("methods");
    let methods = methods.iter().filter_map(|item| item.choice(&METHODS));
    Conditions {
        methods: methods.map(str::to_string).collect(),
        headers: all("header")
            .iter()
            .filter_map(|it| it.read(header))
            .collect(),
        cookies: all("cookie")
            .iter()
            .filter_map(|it| it.read(cookie))
            .collect(),
    }
}

fn header(text: &str) -> Result<(String, Option<String>), Refused> {
    named(text, ':').ok_or(Refused {
        what: "a condition of a field",
        allowed: "NAME, or NAME: VALUE",
    })
}

fn cookie(text: &str) -> Result<(String, Option<String>), Refused> {
    named(text, '=').ok_or(Refused {
        what: "a condition of a cookie",
        allowed: "NAME, or NAME=VALUE",
    })
}

fn named(text: &str, sign: char) -> Option<(String, Option<String>)> {
    let (name, value) = match text.split_once(sign) {
        Some((name, value)) => (name, Some(value.trim().to_string())),
        None => (text, None),
    };
    let is_value = |value: &String| is_field_value(value);
    (is_token(name) && value.as_ref().is_none_or(is_value)).then(|| (name.to_string(), value))
}
