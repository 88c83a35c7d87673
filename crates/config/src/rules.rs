//! Reads the path rules of a site: `cache_control`, `redirect`, `rewrite` and `header`.
//!
//! Also checks the syntax of fields (RFC 9110 §5), and refuses changes to fields that the server manages.

use std::collections::BTreeSet;

use crate::conditions;
use crate::paths::{TemplatePart, template_parts};
use crate::reader::{ConfigSection, ConfigValue};
use crate::{
    HeaderRule, PathExpression, PathPattern, PathSelector, PatternRule, RedirectConfig,
    RewriteConfig,
};

#[cfg(test)]
mod tests;

/// Fields that only the server may set, since they frame the message, describe the connection, or depend on the stored
/// bytes. In lower case and alphabetical order.
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

pub(crate) fn cache_control(section: ConfigSection<'_>) -> Option<PatternRule> {
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

pub(crate) fn redirect(section: ConfigSection<'_>) -> Option<RedirectConfig> {
    let from = paths(&section);
    let to_item = section.required("to");
    let to = to_item.as_ref().and_then(destination);
    let status = section
        .item("status")
        .map_or(Some(301), |item| redirect_status(&item));
    let conditions = conditions::conditions(&section);
    // `finish` precedes the checks of captures and loops, which need a complete rule.
    section.finish();
    let redirect = RedirectConfig {
        from: from?,
        to: to?,
        status: status?,
        conditions,
    };
    let to_item = to_item?;
    check_captures(&redirect.from, &redirect.to, &to_item);
    check_loop(&redirect, &to_item);
    Some(redirect)
}

pub(crate) fn rewrite(section: ConfigSection<'_>) -> Option<RewriteConfig> {
    let from = paths(&section);
    let to_item = section.required("to");
    let to = to_item.as_ref().and_then(rewrite_target);
    let missing = section.flag("missing", false);
    let conditions = conditions::conditions(&section);
    section.finish();
    let rewrite = RewriteConfig {
        from: from?,
        to: to?,
        missing,
        conditions,
    };
    check_captures(&rewrite.from, &rewrite.to, &to_item?);
    Some(rewrite)
}

/// Reads the path selection: a glob (`from`) or a regular expression (`regex`).
fn paths(section: &ConfigSection<'_>) -> Option<PathSelector> {
    match (section.item("from"), section.item("regex")) {
        (Some(item), None) => item.pattern().map(PathSelector::Pattern),
        (None, Some(item)) => match PathExpression::parse(item.text()?) {
            Ok(regex) => Some(PathSelector::Regex(regex)),
            Err(error) => {
                let message = format!("{} is not a regular expression: {error}", item.to_display());
                item.report(
                    message,
                    "the syntax of Rust's crate regex: ^/blog/([0-9]+)$",
                );
                None
            }
        },
        (None, None) => {
            section.report("from is missing", "from, or regex");
            None
        }
        (Some(_), Some(item)) => {
            item.report("from already selects the paths", "either from or regex");
            None
        }
    }
}

pub(crate) fn header(section: ConfigSection<'_>) -> Option<HeaderRule> {
    let pattern = match section.item("pattern") {
        Some(item) => item.pattern(),
        // Without a pattern, the rule applies to the whole site.
        None => Some(PathPattern::everything()),
    };
    let lines = |key: &'static str| section.section(key).map_or_else(Vec::new, field_lines);
    let (set, append, default) = (lines("set"), lines("append"), lines("default"));
    let remove = section.item("remove").map_or_else(Vec::new, remove);
    // An empty array counts as absent.
    if ["set", "append", "default", "remove"]
        .iter()
        .all(|key| section.is_absent_or_empty(key))
    {
        section.report("the rule does nothing", "set, append, default or remove");
    }
    let named = |lines: &[(String, String)]| -> BTreeSet<String> {
        // Field names are case-insensitive.
        let names = lines.iter().map(|(name, _)| name.to_ascii_lowercase());
        names.collect()
    };
    let removed = remove.iter().cloned().collect();
    let keys = [named(&set), named(&append), named(&default), removed];
    let mut names: Vec<String> = keys.into_iter().flatten().collect();
    names.sort_unstable();
    // The names are sorted, so that duplicates are adjacent.
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        let message = format!("the rule names {} twice", twice[0]);
        section.report(
            &message,
            "one of set, append, default and remove for each field",
        );
    }
    section.finish();
    Some(HeaderRule {
        pattern: pattern?,
        set,
        append,
        default,
        remove,
    })
}

/// Whether a text is a token (RFC 9110 §5.6.2), the syntax of field names.
pub(crate) fn is_token(text: &str) -> bool {
    let is_tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_tchar)
}

/// Whether a text is a field name to match literally. Tokens may contain `*`, but a `*` here would be meant as a
/// wildcard.
pub(crate) fn is_literal_name(text: &str) -> bool {
    is_token(text) && !text.contains('*')
}

/// Whether all recipients parse this field value alike: visible ASCII, with spaces and tabs only inside.
pub(crate) fn is_field_value(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ' || byte == b'\t';
    text.bytes().all(plain) && text.trim_matches([' ', '\t']) == text
}

fn field_value(item: &ConfigValue<'_>) -> Option<String> {
    let value = item.value_text().filter(|text| is_field_value(text));
    if value.is_none() {
        item.refuse(
            "a field value",
            "visible ASCII characters, with spaces and tabs between them",
        );
    }
    value.map(str::to_string)
}

/// Whether an operator may set or remove this field; if not, calls `report`.
fn can_change(name: &str, report: impl Fn(String, &str)) -> bool {
    let lower = name.to_ascii_lowercase();
    if !is_token(name) {
        report(
            format!("{name:?} is not a field name"),
            "letters, digits and !#$%&'*+-.^_`|~",
        );
    } else if lower == "content-type" {
        // Content-Type also decides on compression and sniffing, so it is configured by file type.
        report(
            "the server derives Content-Type from the file".to_string(),
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

pub(crate) fn field_lines(section: ConfigSection<'_>) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for (name, position, item) in section.entries() {
        // Managed fields frame the message or follow from its content.
        if !can_change(name, |message, allowed| {
            section.report_at(&position, message, allowed)
        }) {
            continue;
        }
        // TOML keys are case-sensitive, field names are not.
        if fields
            .iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(name))
        {
            section.report_at(
                &position,
                format!("{name} is listed twice"),
                "each field once, in any case",
            );
        }
        fields.extend(field_value(&item).map(|value| (name.to_string(), value)));
    }
    fields
}

fn remove(item: ConfigValue<'_>) -> Vec<String> {
    let mut names = Vec::new();
    for item in item.one_or_many() {
        let Some(name) = item.text() else { continue };
        if !can_change(name, |message, allowed| item.report(message, allowed)) {
            continue;
        }
        names.push(name.to_ascii_lowercase());
    }
    names
}

fn redirect_status(item: &ConfigValue<'_>) -> Option<u16> {
    let status = item.read(crate::value::count)?;
    // The statuses with a Location that is the target of a redirect (RFC 9110 §15.4); 300 and 304 are different.
    let allowed = [301, 302, 303, 307, 308];
    let found = allowed
        .into_iter()
        .find(|allowed| u64::from(*allowed) == status);
    if found.is_none() {
        item.refuse("a status of a redirect", "301, 302, 303, 307, 308");
    }
    found
}

/// Reads `to` of a redirect. Captures must not be part of the scheme or the host: that would be an open redirect.
fn destination(item: &ConfigValue<'_>) -> Option<String> {
    let text = item
        .value_text()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()));
    let safe = |text: &&str| match text.split_once("://") {
        Some(("http" | "https", rest)) => {
            // Text before `@` is user information, which disguises the host; browsers treat `\` as `/`.
            let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
            !authority.is_empty() && !authority.contains(['$', '@', '\\'])
        }
        // `//host` and `/\host` refer to another host (RFC 3986 §4.2).
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

/// Reads `to` of a rewrite: a path, optionally with a query.
fn rewrite_target(item: &ConfigValue<'_>) -> Option<String> {
    let is_target = |text: &&str| {
        // A rewritten target is resolved like a request target, so its path must be in normal form.
        let path = text.split('?').next().unwrap_or_default();
        let dots = |segment: &str| matches!(segment, "." | "..");
        text.bytes().all(|byte| byte.is_ascii_graphic())
            // A server never receives a fragment, and some programs treat `\` as a slash.
            && !text.contains(['#', '\\'])
            && path.starts_with('/')
            && !path.split('/').any(dots)
            && has_valid_escapes(path)
    };
    let target = item.value_text().filter(is_target);
    if target.is_none() {
        item.refuse(
            "a target",
            "/PATH or /PATH?QUERY in visible ASCII, percent-encoded, without . and .. and a fragment",
        );
    }
    target.map(str::to_string)
}

/// Whether each `%` begins a valid escape, of a byte other than NUL, slash and backslash.
fn has_valid_escapes(path: &str) -> bool {
    path.split('%').skip(1).all(|rest| {
        let digits = rest.get(..2).unwrap_or_default();
        // `from_str_radix` would accept a sign, so the digits are checked as well.
        let byte = u8::from_str_radix(digits, 16).ok();
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        // A decoded NUL, slash or backslash would change the meaning of the path.
        is_hex && byte.is_some_and(|byte| !matches!(byte, 0 | b'/' | b'\\'))
    })
}

/// Reports captures in `to` that the glob or expression does not provide.
fn check_captures(from: &PathSelector, to: &str, item: &ConfigValue<'_>) {
    let captures = from.captures();
    let mut numbers = template_parts(to)
        .into_iter()
        .filter_map(|part| match part {
            TemplatePart::Capture(number) => Some(number),
            TemplatePart::Text(_) | TemplatePart::Query => None,
        });
    let Some(number) = numbers.find(|number| *number > captures) else {
        return;
    };
    let displayed = item.to_display();
    match (from, number) {
        (PathSelector::Pattern(_), 1) => item.report(
            format!("{displayed} has $1, but {from} does not end in a wildcard"),
            "a pattern that ends in * or **, or a destination without $1",
        ),
        (PathSelector::Pattern(_), _) => item.report(
            format!("{displayed} has ${number}, but a pattern captures at most $1"),
            "regex in the place of from",
        ),
        (PathSelector::Regex(_), _) => item.report(
            format!("{displayed} has ${number}, but {from} has {captures} groups"),
            "a destination with no more than these",
        ),
    }
}

/// Reports a redirect with a destination that matches the same redirect: a loop.
fn check_loop(redirect: &RedirectConfig, to: &ConfigValue<'_>) {
    // A sample destination, with `x` in place of captures and the query.
    let sample = template_parts(&redirect.to)
        .into_iter()
        .map(|part| match part {
            TemplatePart::Text(text) => text,
            TemplatePart::Capture(_) | TemplatePart::Query => "x",
        });
    let sample: String = sample.collect();
    let path = sample.split(['?', '#']).next().unwrap_or_default();
    // Destinations on other hosts might lead back as well, but this cannot be checked here.
    if path.starts_with('/') && redirect.from.capture(path.as_bytes()).is_some() {
        to.report(
            format!(
                "{} is redirected by the same rule again, in an endless loop",
                to.to_display()
            ),
            format!("a destination that {} does not match", redirect.from),
        );
    }
}
