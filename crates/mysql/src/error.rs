//! What ends a connection, and what is not begun.

use core::fmt;

/// Why the connection must be closed. The server is at fault, or a limit of ours was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The server does not keep to the protocol; what it did.
    Protocol(&'static str),
    /// The server wants what this client can't do; what to do instead.
    Unsupported(&'static str),
    /// The server offers no TLS, which [`TlsPolicy::Required`](crate::TlsPolicy) wants.
    NoTls,
    /// The server refused the login or the session's settings; its reason came as an event.
    LoginRefused,
    /// A packet is longer than [`Limits::packet_len_max`](crate::Limits).
    PacketTooLong,
    /// A result has more columns than [`Limits::column_count_max`](crate::Limits).
    TooManyColumns,
    /// A result has more rows than [`Limits::row_count_max`](crate::Limits).
    TooManyRows,
    /// The server has ended the session: it shuts down, was told to, or nothing came for too long.
    Dismissed,
    /// There was an error before.
    Ended,
}

impl Error {
    /// Whether the response to a statement exceeds this client's limits, or has a form that it does not support: the
    /// fault of the statement or of a limit, and no sign that the server is unhealthy.
    pub fn is_of_answer(self) -> bool {
        match self {
            Error::PacketTooLong
            | Error::TooManyColumns
            | Error::TooManyRows
            | Error::Unsupported(_) => true,
            Error::Protocol(_)
            | Error::NoTls
            | Error::LoginRefused
            | Error::Dismissed
            | Error::Ended => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Error::Protocol(_) = self {
            to.write_str("the database server breaks the protocol: ")?;
        }
        to.write_str(match self {
            Error::Protocol(what) => what,
            Error::Unsupported(what) => what,
            Error::NoTls => "the database server offers no TLS",
            Error::LoginRefused => "the database server refuses the login",
            Error::PacketTooLong => "the database server sends a row that is too long",
            Error::TooManyColumns => "the database server sends too many columns",
            Error::TooManyRows => "the statement gives too many rows: write LIMIT",
            Error::Dismissed => "the database server has ended the session",
            Error::Ended => "the connection to the database server has ended",
        })
    }
}

impl core::error::Error for Error {}

/// Why a statement is not begun. The connection is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The login, or another statement, is on its way; or the connection has ended.
    Busy,
    /// Statement and values are longer than [`Limits::packet_len_max`](crate::Limits).
    TooLong,
}
