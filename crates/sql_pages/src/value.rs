//! Conversion of values between templates and databases. Uses minijinja's values; independent of statements and
//! drivers.

use std::sync::Arc;

use lowroad_page::Value as Cell;
use minijinja::value::{Value, ValueKind};

use super::table::{self, Table};

/// A value for a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Param {
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

impl Param {
    /// Converts a template's value to a parameter.
    ///
    /// # Errors
    /// The fault of the value.
    pub fn of(value: &Value) -> Result<Param, String> {
        match value.kind() {
            ValueKind::Undefined => Err("is undefined; is its name spelt right?".into()),
            ValueKind::None => Ok(Param::Null),
            ValueKind::Bool => Ok(Param::Bool(value.is_true())),
            ValueKind::Number => number(value),
            ValueKind::String => Ok(Param::Text(value.as_str().unwrap_or_default().to_string())),
            ValueKind::Bytes => Ok(Param::Blob(value.as_bytes().unwrap_or_default().to_vec())),
            other => Err(format!("is a {other}; only single values can be given")),
        }
    }

    /// The type's name for messages; never the content, which is the visitor's.
    pub fn kind(&self) -> &'static str {
        match self {
            Param::Null => "NULL",
            Param::Bool(_) => "a truth value",
            Param::Int(_) => "a whole number",
            Param::Float(_) => "a number",
            Param::Text(_) => "a text",
            Param::Blob(_) => "bytes",
        }
    }
}

fn number(value: &Value) -> Result<Param, String> {
    if value.is_integer() {
        let int = i64::try_from(value.clone()).map(Param::Int);
        return int.map_err(|_| "is a number of more than 64 bits".into());
    }
    let float = f64::try_from(value.clone()).map(Param::Float);
    float.map_err(|error| format!("is no number: {error}"))
}

/// The result of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows inserted, changed or deleted.
    pub count: u64,
    /// The database's id of the last new row; `None` if it reports none.
    pub id: Option<i64>,
}

impl Done {
    /// The result as a template's value: `.count` and `.id`.
    pub fn value(self) -> Value {
        let mut table = Table::default();
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
            (Value::from(()), Param::Null),
            (Value::from(true), Param::Bool(true)),
            (Value::from(-7), Param::Int(-7)),
            (Value::from(0.5), Param::Float(0.5)),
            (Value::from("a'b"), Param::Text("a'b".into())),
            (Value::from_bytes(vec![0, 255]), Param::Blob(vec![0, 255])),
        ];
        for (value, param) in params {
            assert_eq!(Param::of(&value), Ok(param));
        }
    }

    #[test]
    fn others_are_refused_with_a_reason() {
        assert!(
            Param::of(&Value::UNDEFINED)
                .unwrap_err()
                .contains("undefined")
        );
        assert!(
            Param::of(&Value::from(vec![1]))
                .unwrap_err()
                .contains("sequence")
        );
        assert!(
            Param::of(&Value::from(u64::MAX))
                .unwrap_err()
                .contains("64 bits")
        );
    }
}
