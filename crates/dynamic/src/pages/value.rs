//! Values between templates and databases. Knows minijinja's values, but neither statements nor
//! drivers.

use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectRepr, Value, ValueKind};

/// A value for a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Param {
    /// NULL
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

impl Param {
    /// A template's value as a parameter.
    ///
    /// # Errors
    /// With what is wrong with it.
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

    /// What it is, for messages: never its content, which is the visitor's.
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

/// The names of a result's columns, in their order.
pub type Columns = Arc<[Box<str>]>;

/// A row of a result: `row.name`, or `row["name"]`; its pairs come in the order of the columns.
#[derive(Debug)]
pub struct Row {
    columns: Columns,
    cells: Box<[Value]>,
}

impl Row {
    /// A row as a template's value. There are as many cells as columns.
    pub fn value(columns: &Columns, cells: Vec<Value>) -> Value {
        Value::from_object(Row {
            columns: columns.clone(),
            cells: cells.into(),
        })
    }

    fn cell(&self, name: &str) -> Option<Value> {
        let at = self.columns.iter().position(|known| **known == *name)?;
        self.cells.get(at).cloned()
    }
}

/// Bytes of a row besides its cells.
const ROW_LEN: usize = 64;

/// Bytes that a row's cells take.
pub fn cells_len(cells: &[Value]) -> usize {
    let len = |cell: &Value| {
        let bytes = cell.as_bytes().map_or(0, <[u8]>::len);
        size_of::<Value>() + bytes
    };
    ROW_LEN + cells.iter().map(len).sum::<usize>()
}

/// Bytes that an answer of a database takes.
pub fn rows_len(answer: &Value) -> usize {
    let row_len = |row: &Value| {
        row.downcast_object_ref()
            .map_or(0, |row: &Row| cells_len(&row.cells))
    };
    match answer.kind() {
        ValueKind::Seq => answer
            .try_iter()
            .map_or(0, |rows| rows.map(|row| row_len(&row)).sum()),
        _ => row_len(answer),
    }
}

impl Object for Row {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.cell(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.cell(key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(
            self.columns
                .iter()
                .map(|name| Value::from(&**name))
                .collect(),
        )
    }
}

/// What a statement did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows that it wrote or took away.
    pub count: u64,
    /// The number that the database gave to the last new row; `None` where it does not say.
    pub id: Option<i64>,
}

impl Done {
    /// As a template's value: `.count` and `.id`.
    pub fn value(self) -> Value {
        let columns: Columns = Arc::new(["count".into(), "id".into()]);
        Row::value(
            &columns,
            vec![Value::from(self.count), Value::from(self.id)],
        )
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

    #[test]
    fn a_row_has_its_columns_in_order() {
        let columns: Columns = Arc::new(["b".into(), "a".into()]);
        let row = Row::value(&columns, vec![Value::from(1), Value::from("x")]);
        assert_eq!(row.get_attr("a").unwrap(), Value::from("x"));
        assert!(row.get_attr("c").unwrap().is_undefined());
        let names: Vec<String> = row.try_iter().unwrap().map(|n| n.to_string()).collect();
        assert_eq!(names, ["b", "a"]);
    }
}
