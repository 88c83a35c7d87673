//! Conversion of values between templates and databases. Uses minijinja's values; independent of statements and
//! drivers.

use std::sync::Arc;

use lowroad_page::PageValue as Cell;
use minijinja::value::{Value, ValueKind};

use super::table::{self, RowTable};

/// A value for a parameter.
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
    /// Converts a template's value to a parameter.
    ///
    /// # Errors
    /// The fault of the value.
    pub fn from_value(value: &Value) -> Result<SqlParam, String> {
        match value.kind() {
            // An undefined value is more often a typing error than a NULL.
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

    /// The type's name for messages; never the content, which is the visitor's.
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
    // Integers first: a float would lose digits beyond 2^53.
    if value.is_integer() {
        let int = i64::try_from(value.clone()).map(SqlParam::Int);
        return int.map_err(|_| "exceeds 64 bits".into());
    }
    let float = f64::try_from(value.clone()).map(SqlParam::Float);
    float.map_err(|error| format!("is not a number: {error}"))
}

/// The result of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatementResult {
    /// Rows inserted, changed or deleted.
    pub count: u64,
    /// The database's id of the last new row; `None` if it reports none.
    pub id: Option<i64>,
}

impl StatementResult {
    /// The result as a template's value: `.count` and `.id`.
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
    fn single_values_become_parameters() {
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
    fn others_are_refused_with_a_reason() {
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
