//! Reads the rules of a site that go by pattern: `cache_control`, `redirect` and `header`.
//!
//! Here is also what HTTP allows in fields (RFC 9110 §5), and which of them are the server's own.

use crate::reader::{Item, Section};
use crate::{HeaderRule, Pattern, PatternRule, Redirect};

#[cfg(test)]
mod tests;

/// Fields that frame the message, describe the connection, or say something about the stored bytes
/// that only the server can know. Lower case, in alphabetical order.
const MANAGED: [&str; 17] = [
    "accept-ranges",
    "age",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "date",
    "etag",
    "keep-alive",
    "last-modified",
    "location",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
];

pub(crate) fn cache_control(section: Section<'_>) -> Option<PatternRule> {
    let pattern = section.required("pattern").and_then(|item| item.pattern());
    let value = section
        .required("value")
        .and_then(|item| field_value(&item));
    section.finish();
    Some(PatternRule {
        pattern: pattern?,
        value: value?,
    })
}

pub(crate) fn redirect(section: Section<'_>) -> Option<Redirect> {
    let from = section.required("from").and_then(|item| item.pattern());
    let to_item = section.required("to");
    let to = to_item.as_ref().and_then(destination);
    let status = section
        .item("status")
        .map_or(Some(301), |item| redirect_status(&item));
    section.finish();
    let redirect = Redirect {
        from: from?,
        to: to?,
        status: status?,
    };
    check_capture(&redirect, &to_item?);
    Some(redirect)
}

pub(crate) fn header(section: Section<'_>) -> Option<HeaderRule> {
    let pattern = match section.item("pattern") {
        Some(item) => item.pattern(),
        None => Some(Pattern::everything()),
    };
    let set = section.section("set").map_or_else(Vec::new, set);
    let remove = section
        .item("remove")
        .map_or_else(Vec::new, |item| remove(item, &set));
    if section.is_without("set") && section.is_without("remove") {
        section.report("the rule does nothing", "set, remove, or both");
    }
    section.finish();
    Some(HeaderRule {
        pattern: pattern?,
        set,
        remove,
    })
}

/// A token (RFC 9110 §5.6.2), which field names are.
pub(crate) fn is_token(text: &str) -> bool {
    let is_tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_tchar)
}

/// A field value that no recipient reads in another way: visible ASCII with spaces and tabs inside.
pub(crate) fn is_field_value(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ' || byte == b'\t';
    text.bytes().all(plain) && text.trim_matches([' ', '\t']) == text
}

fn field_value(item: &Item<'_>) -> Option<String> {
    let value = item.value_text().filter(|text| is_field_value(text));
    if value.is_none() {
        item.refuse(
            "a field value",
            "visible ASCII characters, with spaces and tabs between them",
        );
    }
    value.map(str::to_string)
}

/// Whether an operator may set or remove this field; reports it if not.
fn may_change(name: &str, report: impl Fn(String, &str)) -> bool {
    let lower = name.to_ascii_lowercase();
    if !is_token(name) {
        report(
            format!("{name:?} is not a field name"),
            "letters, digits and !#$%&'*+-.^_`|~",
        );
    } else if lower == "content-type" {
        report(
            "Content-Type follows from the file".to_string(),
            "site.types, by file name extension",
        );
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

fn set(section: Section<'_>) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for (name, at, item) in section.entries() {
        if !may_change(name, |what, allowed| section.report_at(&at, what, allowed)) {
            continue;
        }
        if fields
            .iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(name))
        {
            section.report_at(
                &at,
                format!("{name} is there twice"),
                "each field once, in any case",
            );
        }
        fields.extend(field_value(&item).map(|value| (name.to_string(), value)));
    }
    fields
}

fn remove(item: Item<'_>, set: &[(String, String)]) -> Vec<String> {
    let mut names = Vec::new();
    for item in item.one_or_many() {
        let Some(name) = item.text() else { continue };
        if !may_change(name, |what, allowed| item.report(what, allowed)) {
            continue;
        }
        if set
            .iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(name))
        {
            item.report(
                format!("{name} is set by the same rule"),
                "either set or remove; set replaces",
            );
        }
        names.push(name.to_ascii_lowercase());
    }
    names
}

fn redirect_status(item: &Item<'_>) -> Option<u16> {
    let status = item.read(crate::value::count)?;
    let allowed = [301, 302, 303, 307, 308];
    let found = allowed
        .into_iter()
        .find(|allowed| u64::from(*allowed) == status);
    if found.is_none() {
        item.refuse("a status of a redirect", "301, 302, 303, 307, 308");
    }
    found
}

/// The text of `to`: `$1` may not become a part of the scheme or the host.
fn destination(item: &Item<'_>) -> Option<String> {
    let text = item
        .value_text()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()));
    let safe = |text: &&str| match text.split_once("://") {
        Some(("http" | "https", rest)) => {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
            !authority.is_empty() && !authority.contains(['$', '@', '\\'])
        }
        _ => text.starts_with('/') && !text.starts_with("//") && !text.starts_with("/\\"),
    };
    let destination = text.filter(safe);
    if destination.is_none() {
        let allowed =
            "/PATH, http://HOST/PATH or https://HOST/PATH in visible ASCII; $1 only after the host";
        item.refuse("a destination", allowed);
    }
    destination.map(str::to_string)
}

/// `$1` must have something to stand for, and the way must not lead back to where it began.
fn check_capture(redirect: &Redirect, to: &Item<'_>) {
    if redirect.to.contains("$1") && !redirect.from.has_capture() {
        to.report(
            format!(
                "{} has $1, but {} does not end in a wildcard",
                to.shown(),
                redirect.from
            ),
            "a pattern that ends in * or **, or a destination without $1",
        );
    }
    let sample = redirect.to.replace("$1", "x");
    let path = sample.split(['?', '#']).next().unwrap_or_default();
    if path.starts_with('/') && redirect.from.matches(path.as_bytes()) {
        to.report(
            format!("{} is redirected by the same rule, without end", to.shown()),
            format!("a destination that {} does not match", redirect.from),
        );
    }
}
