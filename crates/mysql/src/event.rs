//! The events that the client reports, and the values in them.

use crate::column::ColumnInfo;

/// A value in a row, or for a `?`. Dates, times and decimals are text in MariaDB's format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SqlValue<'v> {
    /// NULL
    Null,
    /// An integer of a signed type; booleans are 0 and 1.
    Int(i64),
    /// An integer of an unsigned type, BIT or YEAR.
    UInt(u64),
    /// FLOAT or DOUBLE.
    Float(f64),
    /// Text in UTF-8.
    Text(&'v str),
    /// Bytes, or text with a binary collation, which the protocol does not distinguish from bytes.
    Bytes(&'v [u8]),
}

/// An event. Values are reported one by one, so that rows are not buffered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MySqlEvent<'e> {
    /// The connection switches to TLS: the caller must send the output, do the handshake, and call
    /// `MySqlClient::tls_started`. From then on, input and output are the bytes inside TLS.
    StartTls,
    /// The login is complete: statements can be executed.
    Ready,
    /// A result begins. A procedure can have several results.
    Columns(&'e [ColumnInfo]),
    /// The next value of the current row; there is one per column.
    Value(SqlValue<'e>),
    /// The current row is complete.
    RowEnd,
    /// The statement succeeded.
    Done {
        /// The number of rows written; 0 for a statement with a result.
        affected: u64,
        /// The id generated for the last inserted row, or 0.
        last_id: u64,
    },
    /// The statement or the login has failed. Rows received before must be discarded.
    Failed(ServerFailure<'e>),
}

/// A failure reported by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerFailure<'e> {
    /// The server's error number, such as 1146. The number 2031 is set by this client: the number of values does not
    /// match the statement.
    pub code: u16,
    /// SQLSTATE, such as `42S02`.
    pub state: &'e str,
    /// A human-readable message; invalid UTF-8 is removed.
    pub message: &'e str,
}
