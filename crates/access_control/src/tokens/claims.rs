//! The claims of a token.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};

/// The claims. A name that occurs twice is an error: parsers disagree about the value that counts (RFC 7519 §4).
pub struct Claims(Map<String, Value>);

impl Claims {
    /// The value of a claim as text: that of a string, number or boolean, or of a list of them, joined by commas.
    pub fn text(&self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            Value::Array(values) => {
                let texts: Option<Vec<String>> = values.iter().map(scalar_text).collect();
                texts.map(|texts| texts.join(","))
            }
            value => scalar_text(value),
        }
    }

    /// Whether a claim is, or contains, this value. The values of `scope` are separated by spaces (RFC 8693 §4.2).
    pub fn has(&self, name: &str, expected: &str) -> bool {
        let is_expected = |value: &Value| scalar_text(value).as_deref() == Some(expected);
        match self.0.get(name) {
            Some(Value::Array(values)) => values.iter().any(is_expected),
            Some(Value::String(scopes)) if name == "scope" => {
                scopes == expected || scopes.split(' ').any(|scope| scope == expected)
            }
            Some(value) => is_expected(value),
            None => false,
        }
    }
}

fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        // Handlers would not agree on the text of these.
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whether a text can be the value of a field: it must not begin another line.
pub fn is_field_value(text: &str) -> bool {
    !text.contains(char::is_control) && text.trim_matches(' ') == text
}

impl<'de> Deserialize<'de> for Claims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Claims, D::Error> {
        deserializer.deserialize_map(ClaimsVisitor)
    }
}

struct ClaimsVisitor;

impl<'de> Visitor<'de> for ClaimsVisitor {
    type Value = Claims;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("claims")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Claims, A::Error> {
        let mut claims = Map::new();
        while let Some((name, value)) = access.next_entry::<String, Value>()? {
            // A plain map would keep the last value without an error.
            if claims.insert(name, value).is_some() {
                return Err(A::Error::custom("a claim occurs twice"));
            }
        }
        Ok(Claims(claims))
    }
}
