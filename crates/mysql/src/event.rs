//! What a client tells: events, and the values in them.

use crate::column::Column;

/// A value of a row or for a `?`. Dates, times and decimals are text as MariaDB prints them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'v> {
    /// NULL
    Null,
    /// A whole number of a signed type; truth values are 0 and 1.
    Int(i64),
    /// A whole number of an unsigned type, BIT or YEAR.
    UInt(u64),
    /// FLOAT or DOUBLE.
    Float(f64),
    /// Text in UTF-8.
    Text(&'v str),
    /// Bytes; also text of a binary collation, which the protocol does not tell apart.
    Bytes(&'v [u8]),
}

/// What has happened. The values of a row come one by one, so that no row has to be held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'e> {
    /// The server goes on over TLS: send the output, do the handshake, and call
    /// [`Client::tls_started`](crate::Client::tls_started). From then on all bytes of both sides are those inside TLS.
    StartTls,
    /// The login is done: statements may be executed.
    Ready,
    /// A result begins. A procedure may give several before it is done.
    Columns(&'e [Column]),
    /// The next value of the row; as many as there are columns.
    Value(Value<'e>),
    /// The row is whole.
    RowEnd,
    /// The statement has ended well.
    Done {
        /// Rows that were written; 0 for a result.
        affected: u64,
        /// The number given to the last new row, or 0.
        last_id: u64,
    },
    /// The statement, or the login, has failed. Rows that came before are void.
    Failed(Failure<'e>),
}

/// A failure as the server tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure<'e> {
    /// The server's number, such as 1146; 2031 is ours: the values do not fit the statement.
    pub code: u16,
    /// SQLSTATE, such as `42S02`.
    pub state: &'e str,
    /// For people; what is not UTF-8 in it is left out.
    pub message: &'e str,
}
