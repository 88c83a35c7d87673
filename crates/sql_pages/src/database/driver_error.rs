//! Errors of database drivers, and whether the connection can be used afterwards.

/// The error of a call, or of opening a connection.
#[derive(Debug)]
pub(super) enum DriverError {
    /// An error of sqlx.
    Sqlx(sqlx::Error),
    /// An error packet of MariaDB or MySQL: its number and message.
    ServerError { code: u16, message: String },
    /// An error of Lowroad's client for MariaDB and MySQL.
    Client(lowroad_mysql::MySqlError),
    /// The connection could not be opened, or was lost.
    Lost(String),
    /// The answer has more rows than permitted.
    TooManyRows,
    /// The rows take more than this number of bytes, which remained of the page's memory limit.
    TooLong(usize),
    /// A value does not fit the type of its parameter.
    ParameterMismatch(String),
    /// A column has a type that is not supported.
    UnsupportedColumn(String),
}

impl std::fmt::Display for DriverError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DriverError::Sqlx(error) => error.fmt(to),
            DriverError::Client(error) => error.fmt(to),
            DriverError::TooManyRows => to.write_str("too many rows"),
            DriverError::TooLong(_) => to.write_str("the rows are too long"),
            DriverError::ServerError { message: it, .. }
            | DriverError::Lost(it)
            | DriverError::ParameterMismatch(it)
            | DriverError::UnsupportedColumn(it) => to.write_str(it),
        }
    }
}

impl From<sqlx::Error> for DriverError {
    fn from(error: sqlx::Error) -> DriverError {
        DriverError::Sqlx(error)
    }
}

impl DriverError {
    pub(super) fn lost(reason: impl std::fmt::Display) -> DriverError {
        DriverError::Lost(reason.to_string())
    }

    /// Whether the connection is unusable afterwards. The state of the protocol is known only after an error that the
    /// database itself reported.
    pub(super) fn breaks_connection(&self) -> bool {
        match self {
            DriverError::Sqlx(sqlx::Error::Database(error)) => is_disconnect(error.as_ref()),
            DriverError::ServerError { code, .. } => DISCONNECT_CODES.contains(code),
            DriverError::Sqlx(_)
            | DriverError::Client(_)
            | DriverError::Lost(_)
            | DriverError::TooManyRows
            | DriverError::TooLong(_)
            | DriverError::UnsupportedColumn(_) => true,
            // This error is detected before anything is sent.
            DriverError::ParameterMismatch(_) => false,
        }
    }

    /// Whether the connection was lost, possibly while it was idle.
    pub(super) fn is_lost(&self) -> bool {
        match self {
            DriverError::Sqlx(sqlx::Error::Database(error)) => is_disconnect(error.as_ref()),
            DriverError::Sqlx(sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed) => true,
            DriverError::ServerError { code, .. } => DISCONNECT_CODES.contains(code),
            // If the server has closed an idle connection, its message looks like a reply out of order.
            DriverError::Client(
                lowroad_mysql::MySqlError::SessionClosed | lowroad_mysql::MySqlError::Protocol(_),
            ) => true,
            DriverError::Lost(_) => true,
            _ => false,
        }
    }
}

/// Error numbers with which MariaDB and MySQL close a connection.
pub(super) const DISCONNECT_CODES: [u16; 3] = [1053, 1927, 4031];

/// Whether the error closes the connection: PostgreSQL's codes for that begin with 57P.
pub(super) fn is_disconnect(error: &dyn sqlx::error::DatabaseError) -> bool {
    let code = error.code().unwrap_or_default();
    code.starts_with("57P")
}
