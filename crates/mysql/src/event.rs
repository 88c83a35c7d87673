//! The client's events, and the values in them.

use crate::column::ColumnInfo;

/// A value of a row or for a `?`. Dates, times and decimals are text in MariaDB's format.
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
    /// Bytes; also text of a binary collation, which the protocol does not distinguish.
    Bytes(&'v [u8]),
}

/// An event. The values of a row are reported one by one, so that no row is buffered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MySqlEvent<'e> {
    /// The connection switches to TLS: send the output, do the handshake, and call
    /// `MySqlClient::tls_started`. From then on the input and output are the bytes inside TLS.
    StartTls,
    /// The login is complete: statements may be executed.
    Ready,
    /// A result begins. A procedure may have several.
    Columns(&'e [ColumnInfo]),
    /// The next value of the row; one for each column.
    Value(SqlValue<'e>),
    /// The row is complete.
    RowEnd,
    /// The statement succeeded.
    Done {
        /// Rows that were written; 0 for a result.
        affected: u64,
        /// The id generated for the last new row, or 0.
        last_id: u64,
    },
    /// The statement or the login has failed. Rows received before are void.
    Failed(ServerFailure<'e>),
}

/// A failure reported by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerFailure<'e> {
    /// The server's error number, such as 1146; 2031 is this client's: the values do not fit the statement.
    pub code: u16,
    /// SQLSTATE, such as `42S02`.
    pub state: &'e str,
    /// A text for people, without invalid UTF-8.
    pub message: &'e str,
}
