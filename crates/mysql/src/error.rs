//! Errors that end a connection, and errors that prevent a statement from starting.

use core::fmt;

/// The reason that the connection must be closed: an error of the server, or a limit of this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MySqlError {
    /// The server violated the protocol, as described.
    Protocol(&'static str),
    /// The server requires a feature that this client does not support; the text is a message with the remedy.
    Unsupported(&'static str),
    /// The server offers no TLS, which [`TlsPolicy::Required`](crate::TlsPolicy) requires.
    NoTls,
    /// The server rejected the login or the session variables; an event has reported its message.
    LoginRefused,
    /// A packet is longer than `MySqlLimits::packet_len_max`.
    PacketTooLong,
    /// A result has more columns than `MySqlLimits::column_count_max`.
    TooManyColumns,
    /// A result has more rows than `MySqlLimits::row_count_max`.
    TooManyRows,
    /// The server has ended the session: it is shutting down, has killed the session, or the session was idle for too
    /// long.
    SessionClosed,
    /// The connection had already ended.
    Ended,
}

impl MySqlError {
    /// Whether the response to a statement exceeds this client's limits or has an unsupported form. If so, the cause is
    /// the statement or a limit, and the server may be healthy.
    pub fn is_response_error(self) -> bool {
        match self {
            MySqlError::PacketTooLong
            | MySqlError::TooManyColumns
            | MySqlError::TooManyRows
            | MySqlError::Unsupported(_) => true,
            MySqlError::Protocol(_)
            | MySqlError::NoTls
            | MySqlError::LoginRefused
            | MySqlError::SessionClosed
            | MySqlError::Ended => false,
        }
    }
}

impl fmt::Display for MySqlError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let MySqlError::Protocol(_) = self {
            to.write_str("the database server violates the protocol: ")?;
        }
        to.write_str(match self {
            MySqlError::Protocol(detail) => detail,
            MySqlError::Unsupported(detail) => detail,
            MySqlError::NoTls => "the database server offers no TLS",
            MySqlError::LoginRefused => "the database server refused the login",
            MySqlError::PacketTooLong => "the database server sent a row that is too long",
            MySqlError::TooManyColumns => "the database server sent too many columns",
            MySqlError::TooManyRows => "the statement returns too many rows: write LIMIT",
            MySqlError::SessionClosed => "the database server closed the session",
            MySqlError::Ended => "the connection to the database server was closed",
        })
    }
}

impl core::error::Error for MySqlError {}

/// The reason that a statement was not started. The connection is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementRefusal {
    /// The login or another statement is in progress, or the connection has ended.
    Busy,
    /// The statement and its values are longer than `MySqlLimits::packet_len_max`.
    TooLong,
}
