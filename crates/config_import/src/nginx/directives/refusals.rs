//! Comparisons of `if` as conditions of rules, redirects and rewrites.

use lowroad_config::PathExpression;

use crate::nginx::condition_keys::ConditionKeys;
use crate::nginx::include::flat;
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
pub fn request_condition(operand: &str, rest: &str) -> Option<ConditionKeys> {
    let comparison = Comparison::parse(rest);
    if operand == "$host" {
        return host_condition(&comparison);
    }
    let variable = VARIABLES.iter().find(|(nginx, _)| *nginx == operand);
    if let Some((_, variable)) = variable {
        return variable_condition(variable, rest);
    }
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
    // The value of a condition on a field has no exceptions.
    if !comparison.is_expressible() {
        return None;
    }
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

/// Variables that conditions compare as texts, and their names in Lowroad.
const VARIABLES: [(&str, &str); 6] = [
    ("$uri", "$path"),
    ("$document_uri", "$path"),
    ("$request_uri", "$request_uri"),
    ("$args", "$query"),
    ("$query_string", "$query"),
    ("$scheme", "$scheme"),
];

/// The condition of a comparison of `$host`, which nginx has in lower case.
fn host_condition(comparison: &Comparison<'_>) -> Option<ConditionKeys> {
    let is_negated = comparison.is_negated;
    let Some(regex) = comparison.regex() else {
        let is_name = comparison.operator == "=" && !comparison.value.contains('$');
        let names = list(&[comparison.value.to_string()]);
        return is_name.then(|| condition("host", &names, is_negated));
    };
    let regex = format!("(?i){}", regex.trim_start_matches("(?i)"));
    let keys = ConditionKeys::from_match("$host", &regex)?;
    match is_negated {
        true => keys.negated(),
        false => Some(keys),
    }
}

/// The condition of a comparison of a variable, which is in the notation of Lowroad.
pub fn variable_condition(variable: &str, rest: &str) -> Option<ConditionKeys> {
    let comparison = Comparison::parse(rest);
    let is_negated = comparison.is_negated;
    if let Some(regex) = comparison.regex() {
        let keys = ConditionKeys::from_match(variable, &regex)?;
        return match is_negated {
            true => keys.negated(),
            false => Some(keys),
        };
    }
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
            _ => self.regex().map(|regex| format!("~{regex}")),
        }
    }

    /// The expression of `~` and `~*`.
    fn regex(&self) -> Option<String> {
        match self.operator {
            "~" => Some(self.value.to_string()),
            "~*" => Some(format!("(?i){}", self.value)),
            _ => None,
        }
    }

    /// Whether Lowroad has the expression, if it is one.
    fn is_expressible(&self) -> bool {
        self.regex()
            .is_none_or(|regex| PathExpression::parse(&regex).is_ok())
    }
}

fn condition(key: &str, value: &str, is_negated: bool) -> ConditionKeys {
    let mut keys = ConditionKeys::default();
    match is_negated {
        true => keys.except(format!("{{ {key} = {value} }}")),
        false => keys.require(key, value.to_string()),
    }
    keys
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
    use crate::document::{ConfigDocument, ConfigTable};

    #[test]
    fn conditions_of_requests_become_conditions_of_rules() {
        for (operand, rest, expected) in [
            (
                "$http_user_agent",
                "~* (bot|crawl)",
                "header = \"User-Agent: ~(?i)(bot|crawl)\"",
            ),
            (
                "$http_user_agent",
                "= \"\"",
                "not = { header = \"User-Agent: ~.\" }",
            ),
            (
                "$cookie_session",
                "= \"\"",
                "not = { cookie = \"session=~.\" }",
            ),
            ("$cookie_session", "", "cookie = \"session=~.\""),
            ("$arg_debug", "= 1", "argument = \"debug=1\""),
            (
                "$remote_addr",
                "!= 10.0.0.1",
                "not = { addresses = \"10.0.0.1\" }",
            ),
            (
                "$request_method",
                "!~ ^(GET|POST)$",
                "not = { methods = [\"GET\", \"POST\"] }",
            ),
            ("$request_method", "= TRACK", "methods = \"TRACK\""),
            ("$uri", "~ ^/a", "variable = \"$path=~^/a\""),
            (
                "$uri",
                "~* ^/(?!a)b",
                "variable = \"$path=~(?i)^/b\"\nnot = { variable = \"$path=~(?i)^/(?:a)\" }",
            ),
            (
                "$request_uri",
                "!~ ^/a",
                "not = { variable = \"$request_uri=~^/a\" }",
            ),
            ("$host", "= a.example", "host = \"a.example\""),
            ("$host", "!~ ^a", "not = { variable = \"$host=~(?i)^a\" }"),
        ] {
            let found = request_condition(operand, rest).expect(operand);
            let mut document = ConfigDocument::default();
            document.push(found.write(ConfigTable::new("[t]")));
            assert_eq!(
                document.to_text(),
                format!("[t]\n{expected}\n"),
                "{operand} {rest}"
            );
        }
        for (operand, rest) in [
            ("$slow", "= 1"),
            ("$remote_addr", "~ ^10"),
            ("$request_method", "~ POST"),
            ("$uri", "!~ ^/(?!a)"),
            ("$uri", "~ (?<=a)b"),
            ("$http_x", "~ ^(?!a)"),
        ] {
            assert!(
                request_condition(operand, rest).is_none(),
                "{operand} {rest}"
            );
        }
    }
}
