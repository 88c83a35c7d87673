//! Comparisons of `if` as conditions of rules, redirects and rewrites.

use crate::nginx::include::flat;
use crate::nginx::settings::RequestCondition;
use crate::nginx::tree::Directive;
use crate::toml_values::{list, quoted};

/// A block that only refuses the request.
pub struct BlockRefusal {
    /// The status that clients get.
    pub status: u16,
    /// The differences from nginx; empty if there are none.
    pub difference: String,
}

/// The refusal of a block that does nothing else.
pub fn refusal(directive: &Directive) -> Option<BlockRefusal> {
    let children = flat(directive.children());
    let mut actions = children.iter().filter(|it| it.name != "break");
    let (Some(action), None) = (actions.next(), actions.next()) else {
        return None;
    };
    let nginx_status = refused_status(action)?;
    let status = match nginx_status {
        // These statuses need fields that only their modules can derive.
        401 | 407 | 426 | 499 => 403,
        status => status,
    };
    let mut differences = Vec::new();
    if status != nginx_status {
        differences.push(format!("clients get {status} instead of {nginx_status}"));
    }
    if action.args.len() > 1 {
        differences.push("the text of the response is an error page".to_string());
    }
    Some(BlockRefusal {
        status,
        difference: differences.join("; "),
    })
}

/// Whether a block refuses the request, possibly besides other actions.
pub fn is_refusing(directive: &Directive) -> bool {
    let children = flat(directive.children());
    children.iter().any(|it| refused_status(it).is_some())
}

/// The status of `return` with an error, with or without a text.
fn refused_status(action: &Directive) -> Option<u16> {
    let status: u16 = action.arg(0).parse().ok()?;
    (action.name == "return" && status >= 400).then_some(status)
}

/// The condition of a comparison such as `$http_user_agent ~* bot`, `$cookie_session = ""` or
/// `$remote_addr != 10.0.0.1`.
pub fn request_condition(operand: &str, rest: &str) -> Option<RequestCondition> {
    let comparison = Comparison::parse(rest);
    let Comparison {
        operator,
        value,
        is_negated,
    } = comparison;
    if operand == "$remote_addr" {
        let addresses = list(&[value.to_string()]);
        return (operator == "=").then(|| condition("addresses", &addresses, is_negated));
    }
    if operand == "$request_method" {
        let methods = methods(operator, value)?;
        return Some(condition("methods", &list(&methods), is_negated));
    }
    let (key, name) = named(operand)?;
    let separator = if key == "header" { ": " } else { "=" };
    let (value, is_negated) = match (operator, value) {
        // An empty variable is one that the request does not have.
        ("=", "") => ("~.".to_string(), !is_negated),
        // A variable alone holds if it is not empty.
        ("", "") => ("~.".to_string(), is_negated),
        _ => (comparison.value()?, is_negated),
    };
    let text = quoted(&format!("{name}{separator}{value}"));
    Some(condition(key, &text, is_negated))
}

/// The condition of a comparison of a map. `variable` is the map in the notation of Lowroad.
pub fn map_condition(variable: &str, rest: &str) -> Option<RequestCondition> {
    let comparison = Comparison::parse(rest);
    let is_negated = comparison.is_negated;
    let (value, is_negated) = match (comparison.operator, comparison.value) {
        // nginx takes an empty text and 0 for false.
        ("", "") => ("~^([^0]|..)".to_string(), is_negated),
        // The condition of a variable is not empty, so its absence is the negation.
        ("=", "") => ("~.".to_string(), !is_negated),
        _ => (comparison.value()?, is_negated),
    };
    let text = quoted(&format!("{variable}={value}"));
    Some(condition("variable", &text, is_negated))
}

/// The part of a condition after its operand.
#[derive(Clone, Copy)]
struct Comparison<'t> {
    /// `=`, `~` or `~*`, without the mark of negation.
    operator: &'t str,
    value: &'t str,
    is_negated: bool,
}

impl Comparison<'_> {
    fn parse(rest: &str) -> Comparison<'_> {
        let (operator, value) = rest.split_once(' ').unwrap_or((rest, ""));
        Comparison {
            operator: operator.trim_start_matches('!'),
            value: value.trim().trim_matches(['"', '\'']),
            is_negated: operator.starts_with('!'),
        }
    }

    /// The value in the notation of conditions.
    fn value(&self) -> Option<String> {
        match self.operator {
            // A value that begins with a tilde would be an expression, and one with a variable another comparison.
            "=" if self.value.starts_with('~') || self.value.contains('$') => None,
            "=" => Some(self.value.to_string()),
            "~" => Some(format!("~{}", self.value)),
            "~*" => Some(format!("~(?i){}", self.value)),
            _ => None,
        }
    }
}

fn condition(key: &str, value: &str, is_negated: bool) -> RequestCondition {
    let (key, value) = match is_negated {
        true => ("not".to_string(), format!("{{ {key} = {value} }}")),
        false => (key.to_string(), value.to_string()),
    };
    RequestCondition { key, value }
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
            let found = request_condition(operand, rest).expect(operand);
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
                request_condition(operand, rest).is_none(),
                "{operand} {rest}"
            );
        }
    }
}
