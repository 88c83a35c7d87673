//! Conditions of rules, redirects and rewrites, as keys of their tables.

use lowroad_config::PathExpression;

use super::settings::RequestCondition;
use crate::document::ConfigTable;
use crate::look_ahead::SplitExpression;
use crate::toml_values::quoted;

/// Conditions that must hold together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConditionKeys {
    /// Keys with the values that must hold.
    required: Vec<RequestCondition>,
    /// Tables that must not hold.
    exceptions: Vec<String>,
}

impl ConditionKeys {
    /// The condition that an expression of nginx finds a match in a variable; `None` if it has no equal.
    pub fn from_match(variable: &str, regex: &str) -> Option<ConditionKeys> {
        let split = SplitExpression::parse(regex)?;
        let mut texts = std::iter::once(&split.expression).chain(&split.exceptions);
        if !texts.all(|it| PathExpression::parse(it).is_ok()) {
            return None;
        }
        let mut keys = ConditionKeys::default();
        keys.require(
            "variable",
            quoted(&format!("{variable}=~{}", split.expression)),
        );
        for exception in &split.exceptions {
            keys.except(variable_table(variable, exception));
        }
        Some(keys)
    }

    /// The opposite; `None` if it has no equal.
    pub fn negated(&self) -> Option<ConditionKeys> {
        let mut keys = ConditionKeys::default();
        match (&self.required[..], &self.exceptions[..]) {
            // Tables in `not` have no exceptions.
            ([it], []) => keys.except(format!("{{ {} = {} }}", it.key, it.value)),
            _ => return None,
        }
        Some(keys)
    }

    /// Adds a condition.
    pub fn require(&mut self, key: &str, value: String) {
        self.required.push(RequestCondition {
            key: key.to_string(),
            value,
        });
    }

    /// Adds a table of conditions that must not hold.
    pub fn except(&mut self, table: String) {
        if !self.exceptions.contains(&table) {
            self.exceptions.push(table);
        }
    }

    /// Adds the condition that an expression finds no match in the path.
    pub fn except_path(&mut self, expression: &str) {
        self.except(variable_table("$path", expression));
    }

    /// Adds all conditions of another list.
    pub fn extend(&mut self, other: &ConditionKeys) {
        self.required.extend(other.required.iter().cloned());
        for table in &other.exceptions {
            self.except(table.clone());
        }
    }

    /// Whether there are no conditions.
    pub fn is_empty(&self) -> bool {
        self.required.is_empty() && self.exceptions.is_empty()
    }

    /// Adds the keys to a table.
    pub fn write(&self, mut table: ConfigTable) -> ConfigTable {
        let mut names: Vec<&str> = Vec::new();
        for RequestCondition { key, .. } in &self.required {
            if names.contains(&key.as_str()) {
                continue;
            }
            names.push(key);
            let values = self.required.iter().filter(|it| it.key == *key);
            let values: Vec<&str> = values.map(|it| it.value.as_str()).collect();
            table = table.key(key, one_or_array(&values));
        }
        let exceptions: Vec<&str> = self.exceptions.iter().map(String::as_str).collect();
        match exceptions.is_empty() {
            true => table,
            false => table.key("not", one_or_array(&exceptions)),
        }
    }
}

/// The table of the condition that an expression finds a match in a variable.
pub fn variable_table(variable: &str, expression: &str) -> String {
    format!(
        "{{ variable = {} }}",
        quoted(&format!("{variable}=~{expression}"))
    )
}

fn one_or_array(values: &[&str]) -> String {
    match values {
        [value] => (*value).to_string(),
        _ => format!("[{}]", values.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_aheads_of_conditions_are_exceptions() {
        let mut keys = ConditionKeys::from_match("$path", "^/(?!a)b").expect("a condition");
        keys.except_path("^/c");
        keys.require("variable", quoted("$host=x"));
        let mut document = crate::document::ConfigDocument::default();
        document.push(keys.write(ConfigTable::new("[t]")));
        let expected = "[t]\nvariable = [\"$path=~^/b\", \"$host=x\"]\n\
                        not = [{ variable = \"$path=~^/(?:a)\" }, { variable = \"$path=~^/c\" }]\n";
        assert_eq!(document.to_text(), expected);
        assert_eq!(ConditionKeys::from_match("$path", "(?<=a)b"), None);
    }
}
