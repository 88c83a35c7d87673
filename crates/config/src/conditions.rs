//! Reads conditions on requests. Rules, redirects, rewrites and routes have the same keys, which are read here.

mod week_time;

use lowroad_variables::TemplateScope;

use crate::class::{addresses, list};
use crate::reader::{ConfigSection, ConfigValue};
use crate::rules::{is_field_value, is_literal_name, is_token};
use crate::value::InvalidValue;
use crate::{
    ClientShare, HashBy, NamedCondition, PathExpression, RequestConditions, SiteName,
    ValueCondition, VariableCondition, origin,
};

#[cfg(test)]
mod tests;

/// The methods that the server knows. They are case-sensitive (RFC 9110 §9.1), so a name in another case is a mistake.
const KNOWN: [&str; 10] = [
    "GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH", "PURGE", "CONNECT", "TRACE",
];
/// The number of methods at the start of `KNOWN` that handlers can receive; the server itself handles the rest.
const FOR_PROGRAMS: usize = 8;
/// The longest method that the server accepts.
const METHOD_LEN_MAX: usize = 30;
/// The longest text of a condition on a field, cookie or argument, in bytes.
const CONDITION_LEN_MAX: usize = 1024;

/// Reads the conditions among the keys of a table.
pub(crate) fn conditions(section: &ConfigSection<'_>) -> RequestConditions {
    let mut conditions = without_exceptions(section);
    if let Some(item) = section.item("not") {
        // Nothing would be excepted, as without the key.
        if item.is_empty_array() {
            item.report(
                "the list is empty",
                "at least one table; or leave the key out",
            );
        }
        conditions.exceptions = item.one_or_many().iter().filter_map(exception).collect();
    }
    conditions
}

/// Reads a table of `not`. It cannot contain another `not`.
pub(crate) fn exception(item: &ConfigValue<'_>) -> Option<RequestConditions> {
    let section = item.section()?;
    // Nothing would remain for which the other conditions could hold.
    if section.is_empty() {
        item.report("the table is empty", "at least one condition");
    }
    let conditions = without_exceptions(&section);
    section.finish();
    Some(conditions)
}

fn without_exceptions(section: &ConfigSection<'_>) -> RequestConditions {
    RequestConditions {
        methods: list(section, "methods", |item| item.read(method)),
        addresses: addresses(section, "addresses"),
        headers: list(section, "header", |item| named(item, &FIELD)),
        cookies: list(section, "cookie", |item| named(item, &COOKIE)),
        arguments: list(section, "argument", |item| named(item, &ARGUMENT)),
        variables: list(section, "variable", variable),
        hosts: list(section, "host", |item| item.read(host)),
        is_https: section
            .item("scheme")
            .and_then(|item| item.choice(&[("http", false), ("https", true)])),
        has_certificate: section
            .item("client_certificate")
            .and_then(|item| boolean(&item)),
        times: list(section, "time", |item| item.read(week_time::parse)),
        file: section.item("file_exists").and_then(|item| item.path()),
        share: section.item("share").and_then(|item| item.read(share)),
        exceptions: Vec::new(),
    }
}

/// Reads a share of clients: `10%`, or `10% cookie:NAME`.
fn share(text: &str) -> Result<ClientShare, InvalidValue> {
    let (percent, by) = match text.split_once(' ') {
        Some((percent, key)) => (percent, client_key(key.trim())),
        None => (text, Some(HashBy::Address)),
    };
    let digits = percent.strip_suffix('%').unwrap_or_default();
    // `parse` would also accept a sign.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let percent = digits
        .parse()
        .ok()
        .filter(|it| is_number && (1..100).contains(it));
    percent
        .zip(by)
        .map(|(percent, by)| ClientShare { percent, by })
        .ok_or(InvalidValue {
            expected: "a share of the clients",
            allowed: "\"10%\" by address, \"10% cookie:NAME\", \"10% header:NAME\"; 1 to 99",
        })
}

fn client_key(text: &str) -> Option<HashBy> {
    match origin::hash_by(text).ok()? {
        // The same client requests many URLs.
        HashBy::Url => None,
        key => Some(key),
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

fn host(text: &str) -> Result<SiteName, InvalidValue> {
    match SiteName::parse(text) {
        // `_` would stand for all hosts, as a missing key does.
        Ok(SiteName::Default) => Err(InvalidValue {
            expected: "a host name",
            allowed: "example.com, *.example.com (one or more labels in front), or an address",
        }),
        name => name,
    }
}

/// Reads a boolean.
pub(crate) fn boolean(item: &ConfigValue<'_>) -> Option<bool> {
    let value = item.value_bool();
    if value.is_none() {
        item.refuse("a boolean", "true or false");
    }
    value
}

/// The syntax of a condition on a field, cookie or argument.
struct NamedSyntax {
    separator: char,
    is_name: fn(&str) -> bool,
    refusal: InvalidValue,
}

const FIELD: NamedSyntax = NamedSyntax {
    separator: ':',
    is_name: is_literal_name,
    refusal: InvalidValue {
        expected: "a condition of a field",
        allowed: "NAME, NAME: VALUE or NAME: ~EXPRESSION, with letters, digits and !#$%&'+-.^_`|~ in the name",
    },
};

const COOKIE: NamedSyntax = NamedSyntax {
    separator: '=',
    is_name: is_cookie_name,
    refusal: InvalidValue {
        expected: "a condition of a cookie",
        allowed: "NAME, NAME=VALUE or NAME=~EXPRESSION; one * at the end of the name for all names that begin so",
    },
};

const ARGUMENT: NamedSyntax = NamedSyntax {
    separator: '=',
    is_name: is_argument_name,
    refusal: InvalidValue {
        expected: "a condition of an argument",
        allowed: "NAME, NAME=VALUE or NAME=~EXPRESSION, as in the query but decoded",
    },
};

fn is_cookie_name(name: &str) -> bool {
    // `*` alone stands for any cookie.
    let prefix = name.strip_suffix('*').unwrap_or(name);
    prefix.is_empty() && name == "*" || is_literal_name(prefix)
}

fn is_argument_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|it: char| it.is_control() || it == '&')
}

fn named(item: &ConfigValue<'_>, syntax: &NamedSyntax) -> Option<NamedCondition> {
    let text = item.text()?;
    let (name, value) = match text.split_once(syntax.separator) {
        // Whitespace around a field's value is not part of it (RFC 9110 §5.5).
        Some((name, value)) => (name, Some(value.trim())),
        None => (text, None),
    };
    let is_valid = text.len() <= CONDITION_LEN_MAX
        && (syntax.is_name)(name)
        && value.is_none_or(|value| !value.contains(char::is_control));
    let condition = match value {
        _ if !is_valid => None,
        None => Some(ValueCondition::Any),
        Some(value) => match value.strip_prefix('~') {
            Some(expression) => return matching(item, name, expression),
            None => is_field_value(value).then(|| ValueCondition::Exact(value.to_string())),
        },
    };
    if condition.is_none() {
        item.refuse(syntax.refusal.expected, syntax.refusal.allowed);
    }
    Some(NamedCondition {
        name: name.to_string(),
        value: condition?,
    })
}

/// Reads a condition on a variable: `$NAME`, `$NAME=VALUE` or `$NAME=~EXPRESSION`; there may be text around the variable.
fn variable(item: &ConfigValue<'_>) -> Option<VariableCondition> {
    let text = item.text()?;
    let (name, expected) = match text.split_once('=') {
        Some((name, expected)) => (name, Some(expected)),
        None => (text, None),
    };
    let report = |error: lowroad_variables::TemplateError| {
        item.report_at(error.offset, error.message, error.allowed);
    };
    let template = item.parse_template(name, TemplateScope::condition());
    let template = template.map_err(report).ok()?;
    if text.len() > CONDITION_LEN_MAX || template.constant().is_some() {
        item.refuse(
            "a condition of a variable",
            "$NAME, $NAME=VALUE or $NAME=~EXPRESSION with at least one variable before =",
        );
        return None;
    }
    let value = match expected.map(|it| (it, it.strip_prefix('~'))) {
        None => ValueCondition::Any,
        Some((_, Some(expression))) => matching(item, name, expression)?.value,
        Some((expected, None)) => ValueCondition::Exact(expected.to_string()),
    };
    Some(VariableCondition {
        text: template,
        value,
    })
}

fn matching(item: &ConfigValue<'_>, name: &str, expression: &str) -> Option<NamedCondition> {
    match PathExpression::parse(expression) {
        Ok(compiled) => Some(NamedCondition {
            name: name.to_string(),
            value: ValueCondition::Matches(compiled),
        }),
        Err(error) => {
            let message = format!("{} is not a regular expression: {error}", item.to_display());
            item.report(
                message,
                "the syntax of Rust's crate regex after ~: ~(?i)bot|crawler",
            );
            None
        }
    }
}
