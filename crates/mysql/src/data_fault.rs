//! Classifies errors of statements that are caused by the data and not by the statement.

/// An error caused by the data of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataFault {
    /// A value that its column rejects: too long, out of range, missing, malformed, or violating a CHECK.
    Invalid,
    /// A value that conflicts with existing rows: a duplicate key, or a reference that is missing or in use.
    Conflict,
}

impl DataFault {
    /// Classifies an error number of MariaDB or MySQL; `None` if the data are not the cause ("MariaDB Error Codes", and
    /// MySQL's "Server Error Message Reference").
    #[must_use]
    pub const fn from_number(number: u16) -> Option<DataFault> {
        Some(match number {
            // ER_DUP_ENTRY, ER_NO_REFERENCED_ROW, ER_ROW_IS_REFERENCED, the variants of both with the constraint's
            // name, ER_DUP_ENTRY_WITH_KEY_NAME
            1062 | 1216 | 1217 | 1451 | 1452 | 1586 => DataFault::Conflict,
            // ER_BAD_NULL_ERROR, ER_WARN_DATA_OUT_OF_RANGE, WARN_DATA_TRUNCATED, ER_TRUNCATED_WRONG_VALUE,
            // ER_TRUNCATED_WRONG_VALUE_FOR_FIELD, ER_DATA_TOO_LONG, ER_WRONG_VALUE_FOR_TYPE, ER_DATA_OUT_OF_RANGE,
            // ER_CHECK_CONSTRAINT_VIOLATED, ER_CONSTRAINT_FAILED
            1048 | 1264 | 1265 | 1292 | 1366 | 1406 | 1411 | 1690 | 3819 | 4025 => {
                DataFault::Invalid
            }
            _ => return None,
        })
    }
}
