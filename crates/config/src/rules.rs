//! Reads the path rules of a site: `cache_control`, `redirect`, `rewrite` and `header`.
//!
//! Also checks the syntax of fields (RFC 9110 §5), and refuses changes to fields that the server manages.

use std::collections::BTreeSet;

use lowroad_variables::{Template, TemplatePart, TemplateScope, Variable};

use crate::conditions;
use crate::named;
use crate::reader::{ConfigSection, ConfigValue, KeyPosition};
use crate::redirect_loops;
use crate::route::common_captures;
use crate::{HeaderRule, PathExpression, PathSelector, PatternRule, RedirectConfig, RewriteConfig};

#[cfg(test)]
mod tests;

/// The largest number of captures, for rules with an invalid selector.
const CAPTURES_MAX: usize = 9;

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

pub(crate) fn cache_control(section: ConfigSection<'_>) -> Vec<PatternRule> {
    let patterns = section.required("pattern").and_then(ConfigValue::patterns);
    let value = section
        .required("value")
        .and_then(|item| field_value(&item));
    section.finish();
    let Some(value) = value else {
        return Vec::new();
    };
    let rule = |pattern| PatternRule {
        pattern,
        value: value.clone(),
    };
    patterns.unwrap_or_default().into_iter().map(rule).collect()
}

/// Reads a table of redirects; each also with the position of its destination.
pub(crate) fn redirect(section: ConfigSection<'_>) -> Vec<(RedirectConfig, KeyPosition)> {
    let from = paths(&section);
    let to_item = section.required("to");
    let scope = TemplateScope::url(captures(from.as_deref()));
    let to = to_item.as_ref().and_then(|item| destination(item, scope));
    let status = section
        .item("status")
        .map_or(Some(301), |item| redirect_status(&item));
    let conditions = conditions::conditions(&section);
    // `finish` precedes the check of loops, which needs a complete rule.
    section.finish();
    let (Some(from), Some(to), Some(status), Some(to_item)) = (from, to, status, to_item) else {
        return Vec::new();
    };
    let redirects = from.into_iter().map(|from| RedirectConfig {
        from,
        to: to.clone(),
        status,
        conditions: conditions.clone(),
    });
    let redirects: Vec<RedirectConfig> = redirects.collect();
    for redirect in &redirects {
        redirect_loops::check_own_path(redirect, &to_item);
    }
    let position = to_item.position;
    let marked = redirects.into_iter().map(|it| (it, position.clone()));
    marked.collect()
}

/// The captures that all of several selectors have.
fn captures(from: Option<&[PathSelector]>) -> usize {
    let counts = from.map(|from| from.iter().map(PathSelector::captures).min());
    counts.map_or(CAPTURES_MAX, Option::unwrap_or_default)
}

/// Reads a table of rewrites; each also with the position of the table.
pub(crate) fn rewrite(section: ConfigSection<'_>) -> Vec<(RewriteConfig, KeyPosition)> {
    let position = section.position.clone();
    let from = paths(&section);
    let to_item = section.required("to");
    let scope = TemplateScope::url(captures(from.as_deref()));
    let to = to_item
        .as_ref()
        .and_then(|item| rewrite_target(item, scope));
    let missing = section.flag("missing", false);
    let exists = section.flag("exists", false);
    let conditions = conditions::conditions(&section);
    section.finish();
    let (Some(from), Some(to)) = (from, to) else {
        return Vec::new();
    };
    let rewrites = from.into_iter().map(|from| RewriteConfig {
        from,
        to: to.clone(),
        missing,
        exists,
        conditions: conditions.clone(),
    });
    rewrites.map(|it| (it, position.clone())).collect()
}

/// Reads the path selection: globs (`from`) or a regular expression (`regex`).
fn paths(section: &ConfigSection<'_>) -> Option<Vec<PathSelector>> {
    match (section.item("from"), section.item("regex")) {
        (Some(item), None) => {
            let patterns = item.patterns()?.into_iter();
            Some(patterns.map(PathSelector::Pattern).collect())
        }
        (None, Some(item)) => match PathExpression::parse(item.text()?) {
            Ok(regex) => Some(vec![PathSelector::Regex(regex)]),
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

/// Reads a table of rules for fields, the one with this number.
pub(crate) fn header(table: usize, section: ConfigSection<'_>) -> Vec<HeaderRule> {
    let patterns = section.patterns_or_all();
    let scope = TemplateScope::fields(common_captures(patterns.as_deref().unwrap_or_default()));
    let templates = |key: &'static str| {
        let read = |item: &ConfigValue<'_>| field_template(item, scope);
        let section = section.section(key);
        section.map_or_else(Vec::new, |section| field_lines(section, can_change, read))
    };
    let (set, append) = (templates("set"), templates("append"));
    let default = section.section("default").map_or_else(Vec::new, |section| {
        field_lines(section, can_change, field_value)
    });
    set.iter().chain(&append).for_each(|(name, value)| {
        // The freshness lifetime of a stored response is that of its stored fields.
        let is_lifetime = ["cache-control", "expires"].contains(&&*name.to_ascii_lowercase());
        if is_lifetime && value.constant().is_none() {
            section.report(
                format!("{name} has a variable"),
                "a constant value, because a stored response has one lifetime for all clients",
            );
        }
    });
    let remove = section.item("remove");
    let remove = remove.map_or_else(Vec::new, |item| self::remove(item, can_change));
    let conditions = conditions::conditions(&section);
    if !conditions.is_empty() {
        report_unconditional(&section, &set, &append, &default, &remove);
    }
    // An empty array counts as absent.
    if ["set", "append", "default", "remove"]
        .iter()
        .all(|key| section.is_absent_or_empty(key))
    {
        section.report("the rule does nothing", "set, append, default or remove");
    }
    let removed = remove.iter().cloned().collect();
    report_duplicates(
        &section,
        [
            names_of(&set),
            names_of(&append),
            names_of(&default),
            removed,
        ],
        "one of set, append, default and remove for each field",
    );
    section.finish();
    let rule = |pattern| HeaderRule {
        pattern,
        table,
        conditions: conditions.clone(),
        set: set.clone(),
        append: append.clone(),
        default: default.clone(),
        remove: remove.clone(),
    };
    patterns.unwrap_or_default().into_iter().map(rule).collect()
}

/// Reports the parts of a rule that can't depend on conditions.
fn report_unconditional(
    section: &ConfigSection<'_>,
    set: &[(String, Template)],
    append: &[(String, Template)],
    default: &[(String, String)],
    remove: &[String],
) {
    // The rule applies when the response is sent; whether a stored one has the field is not looked up.
    if !default.is_empty() {
        section.report(
            "default is not possible with conditions",
            "set, append or remove",
        );
    }
    let names = set
        .iter()
        .chain(append)
        .map(|(name, _)| name.to_ascii_lowercase());
    let mut names = names.chain(remove.iter().cloned());
    let lifetime = names.find(|name| ["cache-control", "expires"].contains(&&**name));
    if let Some(name) = lifetime {
        section.report(
            format!("{name} is changed under a condition"),
            "no condition, because a stored response has one lifetime for all clients",
        );
    }
}

/// The names of fields, in lower case.
pub(crate) fn names_of<T>(lines: &[(String, T)]) -> BTreeSet<String> {
    let names = lines.iter().map(|(name, _)| name.to_ascii_lowercase());
    names.collect()
}

/// Reports a field that is listed under more than one key.
pub(crate) fn report_duplicates<const N: usize>(
    section: &ConfigSection<'_>,
    keys: [BTreeSet<String>; N],
    allowed: &str,
) {
    let mut names: Vec<String> = keys.into_iter().flatten().collect();
    names.sort_unstable();
    // The names are sorted, so that duplicates are adjacent.
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        section.report(format!("the rule names {} twice", twice[0]), allowed);
    }
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

pub(crate) fn field_value(item: &ConfigValue<'_>) -> Option<String> {
    let value = item.value_text().filter(|text| is_field_value(text));
    if value.is_none() {
        item.refuse(
            "a field value",
            "visible ASCII characters, with spaces and tabs between them",
        );
    }
    value.map(str::to_string)
}

/// Reads a field value with variables.
pub(crate) fn field_template(item: &ConfigValue<'_>, scope: TemplateScope) -> Option<Template> {
    field_value(item)?;
    named::template(item, scope)
}

/// Whether an operator may set or remove this field; if not, calls `report`.
pub(crate) fn can_change(name: &str, report: &dyn Fn(String, &str)) -> bool {
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

/// Whether a field may be changed; if not, calls the function that reports the problem.
pub(crate) type FieldCheck = fn(&str, &dyn Fn(String, &str)) -> bool;

pub(crate) fn field_lines<T>(
    section: ConfigSection<'_>,
    can_change: FieldCheck,
    read: impl Fn(&ConfigValue<'_>) -> Option<T>,
) -> Vec<(String, T)> {
    let mut fields: Vec<(String, T)> = Vec::new();
    for (name, position, item) in section.entries() {
        // Managed fields frame the message or follow from its content.
        if !can_change(name, &|message, allowed| {
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
        fields.extend(read(&item).map(|value| (name.to_string(), value)));
    }
    fields
}

pub(crate) fn remove(item: ConfigValue<'_>, can_change: FieldCheck) -> Vec<String> {
    let mut names = Vec::new();
    for item in item.one_or_many() {
        let Some(name) = item.text() else { continue };
        if !can_change(name, &|message, allowed| item.report(message, allowed)) {
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

/// Reads `to` of a redirect. Only the requested host can be a part of the host; any other variable there would be an
/// open redirect.
fn destination(item: &ConfigValue<'_>, scope: TemplateScope) -> Option<Template> {
    let template = named::template(item, scope)?;
    let is_valid = template
        .as_str()
        .bytes()
        .all(|byte| byte.is_ascii_graphic())
        && is_destination(&template);
    if !is_valid {
        let allowed = "/PATH, http://HOST/PATH or https://HOST/PATH in visible ASCII; in HOST no variable but $host and $authority";
        item.refuse("a destination", allowed);
    }
    is_valid.then_some(template)
}

/// Whether a template is a path, or a URL with a host that no client can choose beyond the requested one.
fn is_destination(template: &Template) -> bool {
    let mut parts = template.parts().iter();
    let first = match parts.next() {
        Some(TemplatePart::Text(text)) => text.as_str(),
        // The values of a map are URLs or paths.
        Some(TemplatePart::Variable(Variable::Map(_))) => return template.whole_map().is_some(),
        Some(TemplatePart::Variable(variable)) => return begins_path(variable),
        None => return false,
    };
    let mut rest = match first.split_once("://") {
        Some(("http" | "https", rest)) => rest,
        // `//host` and `/\\host` refer to another host (RFC 3986 §4.2).
        _ => {
            return first.starts_with('/') && !first.starts_with("//") && !first.starts_with("/\\");
        }
    };
    let mut has_host = false;
    loop {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        // Text before `@` is user information, which disguises the host; browsers treat `\` as `/`.
        if authority.contains(['@', '\\']) {
            return false;
        }
        has_host |= !authority.is_empty();
        if authority.len() < rest.len() {
            return has_host;
        }
        rest = match parts.next() {
            None => return has_host,
            Some(TemplatePart::Text(text)) => text,
            Some(TemplatePart::Variable(
                Variable::Host | Variable::Authority | Variable::Map(_),
            )) => {
                has_host = true;
                ""
            }
            Some(TemplatePart::Variable(variable)) => return has_host && begins_path(variable),
        };
    }
}

/// Whether a variable begins a path with its slash.
fn begins_path(variable: &Variable) -> bool {
    matches!(variable, Variable::Path | Variable::RequestUri)
}

/// Reads `to` of a rewrite: a path, optionally with a query.
fn rewrite_target(item: &ConfigValue<'_>, scope: TemplateScope) -> Option<Template> {
    let template = named::template(item, scope)?;
    let is_target = |text: &str| {
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
    // A variable is represented by a letter, or by a path.
    let is_valid = is_target(&sample(&template));
    if !is_valid {
        item.refuse(
            "a target",
            "/PATH or /PATH?QUERY in visible ASCII, percent-encoded, without . and .. and a fragment",
        );
    }
    is_valid.then_some(template)
}

/// A sample of the result of a template.
pub(crate) fn sample(template: &Template) -> String {
    // The values of a map may be whole paths.
    if template.whole_map().is_some() {
        return "/x".to_string();
    }
    let parts = template.parts().iter().map(|part| match part {
        TemplatePart::Text(text) => text.as_str(),
        TemplatePart::Variable(variable) if begins_path(variable) => "/x",
        TemplatePart::Variable(_) => "x",
    });
    parts.collect()
}

/// Whether each `%` begins a valid escape, of a byte other than NUL, slash and backslash.
pub(crate) fn has_valid_escapes(path: &str) -> bool {
    path.split('%').skip(1).all(|rest| {
        let digits = rest.get(..2).unwrap_or_default();
        // `from_str_radix` would accept a sign, so the digits are checked as well.
        let byte = u8::from_str_radix(digits, 16).ok();
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        // A decoded NUL, slash or backslash would change the meaning of the path.
        is_hex && byte.is_some_and(|byte| !matches!(byte, 0 | b'/' | b'\\'))
    })
}
