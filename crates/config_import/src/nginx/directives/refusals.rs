//! `if` with `return 4xx` as a rule with a condition, and refusals in place of conditions that rules do not have.

use crate::nginx::include::flat;
use crate::nginx::settings::ConditionalRefusal;
use crate::nginx::tree::Directive;
use crate::nginx::values::{list, quoted};

/// The status of the block if all that it does is to refuse the request.
pub fn refusing_status(directive: &Directive) -> Option<u16> {
    let children = flat(directive.children());
    let mut actions = children.iter().filter(|it| it.name != "break");
    let (Some(action), None) = (actions.next(), actions.next()) else {
        return None;
    };
    let status: u16 = action.arg(0).parse().ok()?;
    let is_refusal = action.name == "return" && action.args.len() == 1 && status >= 400;
    is_refusal.then_some(status)
}

/// The refusal for a condition such as `$http_user_agent ~* bot`, `$cookie_session = ""` or `$remote_addr != 10.0.0.1`.
pub fn conditional_refusal(operand: &str, rest: &str, status: u16) -> Option<ConditionalRefusal> {
    let (operator, value) = rest.split_once(' ').unwrap_or((rest, ""));
    let value = value.trim().trim_matches(['"', '\'']);
    let is_negated = operator.starts_with('!');
    let operator = operator.trim_start_matches('!');
    if operand == "$remote_addr" {
        let addresses = list(&[value.to_string()]);
        return (operator == "=").then(|| refusal("addresses", &addresses, is_negated, status));
    }
    if operand == "$request_method" {
        let methods = methods(operator, value)?;
        return Some(refusal("methods", &list(&methods), is_negated, status));
    }
    let (key, name) = named(operand)?;
    let separator = if key == "header" { ": " } else { "=" };
    let (value, is_negated) = match (operator, value) {
        // An empty variable is one that the request does not have.
        ("=", "") => ("~.".to_string(), !is_negated),
        // A variable alone holds if it is not empty.
        ("", "") => ("~.".to_string(), is_negated),
        ("=", value) => (value.to_string(), is_negated),
        ("~", regex) => (format!("~{regex}"), is_negated),
        ("~*", regex) => (format!("~(?i){regex}"), is_negated),
        _ => return None,
    };
    let condition = quoted(&format!("{name}{separator}{value}"));
    Some(refusal(key, &condition, is_negated, status))
}

fn refusal(key: &str, value: &str, is_negated: bool, status: u16) -> ConditionalRefusal {
    // These statuses need fields that only their modules can derive.
    let status = if matches!(status, 401 | 407 | 426 | 499) {
        403
    } else {
        status
    };
    let (key, value) = match is_negated {
        true => ("not".to_string(), format!("{{ {key} = {value} }}")),
        false => (key.to_string(), value.to_string()),
    };
    ConditionalRefusal { key, value, status }
}

/// The methods of `= GET` and `~ ^(GET|POST)$`.
fn methods(operator: &str, value: &str) -> Option<Vec<String>> {
    let inner = match operator {
        "=" => value,
        "~" | "~*" => {
            let anchored = value.strip_prefix('^')?.strip_suffix('$')?;
            anchored
                .trim_start_matches("(?:")
                .trim_start_matches('(')
                .trim_end_matches(')')
        }
        _ => return None,
    };
    let names: Vec<String> = inner.split('|').map(str::to_ascii_uppercase).collect();
    let is_name =
        |name: &String| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic());
    names.iter().all(is_name).then_some(names)
}

/// The condition key and the name of a variable of the request.
fn named(operand: &str) -> Option<(&'static str, String)> {
    if let Some(name) = operand.strip_prefix("$http_") {
        let words = name.split('_').map(|word| {
            let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
            first.to_ascii_uppercase() + rest
        });
        return Some(("header", words.collect::<Vec<_>>().join("-")));
    }
    let prefixes = [("$cookie_", "cookie"), ("$arg_", "argument")];
    prefixes.into_iter().find_map(|(prefix, key)| {
        let name = operand.strip_prefix(prefix)?;
        Some((key, name.to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_requests_become_conditions_of_rules() {
        for (operand, rest, key, value) in [
            (
                "$http_user_agent",
                "~* (bot|crawl)",
                "header",
                "\"User-Agent: ~(?i)(bot|crawl)\"",
            ),
            (
                "$http_user_agent",
                "= \"\"",
                "not",
                "{ header = \"User-Agent: ~.\" }",
            ),
            (
                "$cookie_session",
                "= \"\"",
                "not",
                "{ cookie = \"session=~.\" }",
            ),
            ("$cookie_session", "", "cookie", "\"session=~.\""),
            ("$arg_debug", "= 1", "argument", "\"debug=1\""),
            (
                "$remote_addr",
                "!= 10.0.0.1",
                "not",
                "{ addresses = \"10.0.0.1\" }",
            ),
            (
                "$request_method",
                "!~ ^(GET|POST)$",
                "not",
                "{ methods = [\"GET\", \"POST\"] }",
            ),
            ("$request_method", "= TRACK", "methods", "\"TRACK\""),
        ] {
            let found = conditional_refusal(operand, rest, 403).expect(operand);
            assert_eq!(
                (&*found.key, &*found.value),
                (key, value),
                "{operand} {rest}"
            );
        }
        for (operand, rest) in [
            ("$slow", "= 1"),
            ("$remote_addr", "~ ^10"),
            ("$request_method", "~ POST"),
        ] {
            assert!(
                conditional_refusal(operand, rest, 403).is_none(),
                "{operand} {rest}"
            );
        }
    }
}
