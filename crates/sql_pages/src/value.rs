//! Converts values between templates and databases. This module is independent of statements and drivers.

use std::sync::Arc;

use lowroad_page::PageValue as Cell;
use minijinja::value::{Value, ValueKind};

use super::table::{self, RowTable};

/// The value of a statement's parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum SqlParam {
    /// NULL
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

impl SqlParam {
    /// Converts a template value to a parameter.
    ///
    /// # Errors
    /// The reason that the value cannot be a parameter.
    pub fn from_value(value: &Value) -> Result<SqlParam, String> {
        match value.kind() {
            // An undefined value is more likely a typo than a NULL.
            ValueKind::Undefined => Err("is undefined; check the spelling of its name".into()),
            ValueKind::None => Ok(SqlParam::Null),
            ValueKind::Bool => Ok(SqlParam::Bool(value.is_true())),
            ValueKind::Number => number(value),
            ValueKind::String => Ok(SqlParam::Text(
                value.as_str().unwrap_or_default().to_string(),
            )),
            ValueKind::Bytes => Ok(SqlParam::Blob(
                value.as_bytes().unwrap_or_default().to_vec(),
            )),
            other => Err(format!("is a {other}; only single values can be passed")),
        }
    }

    /// The name of the type for messages, which must not contain the value, since it is client data.
    pub fn kind(&self) -> &'static str {
        match self {
            SqlParam::Null => "NULL",
            SqlParam::Bool(_) => "a boolean",
            SqlParam::Int(_) => "a whole number",
            SqlParam::Float(_) => "a number",
            SqlParam::Text(_) => "a text",
            SqlParam::Blob(_) => "bytes",
        }
    }
}

fn number(value: &Value) -> Result<SqlParam, String> {
    // Integers are tried first: a float would lose digits beyond 2^53.
    if value.is_integer() {
        let int = i64::try_from(value.clone()).map(SqlParam::Int);
        return int.map_err(|_| "exceeds 64 bits".into());
    }
    let float = f64::try_from(value.clone()).map(SqlParam::Float);
    float.map_err(|error| format!("is not a number: {error}"))
}

/// The result of a statement that writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatementResult {
    /// The number of rows inserted, changed or deleted.
    pub count: u64,
    /// The id of the last inserted row; `None` if the database reports none.
    pub id: Option<i64>,
}

impl StatementResult {
    /// The result as a template value with `.count` and `.id`.
    pub fn value(self) -> Value {
        let mut table = RowTable::default();
        table.begin(["count", "id"].into_iter());
        table.push(Cell::UInt(self.count));
        table.push(self.id.map_or(Cell::Null, Cell::Int));
        table.end_row();
        table::first_row(Arc::new(table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalar_values_become_parameters() {
        let params = [
            (Value::from(()), SqlParam::Null),
            (Value::from(true), SqlParam::Bool(true)),
            (Value::from(-7), SqlParam::Int(-7)),
            (Value::from(0.5), SqlParam::Float(0.5)),
            (Value::from("a'b"), SqlParam::Text("a'b".into())),
            (
                Value::from_bytes(vec![0, 255]),
                SqlParam::Blob(vec![0, 255]),
            ),
        ];
        for (value, param) in params {
            assert_eq!(SqlParam::from_value(&value), Ok(param));
        }
    }

    #[test]
    fn unsupported_values_are_refused_with_a_reason() {
        assert!(
            SqlParam::from_value(&Value::UNDEFINED)
                .unwrap_err()
                .contains("undefined")
        );
        assert!(
            SqlParam::from_value(&Value::from(vec![1]))
                .unwrap_err()
                .contains("sequence")
        );
        assert!(
            SqlParam::from_value(&Value::from(u64::MAX))
                .unwrap_err()
                .contains("64 bits")
        );
    }
}
