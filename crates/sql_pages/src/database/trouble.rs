//! Failures of drivers, and whether a connection survives them.

/// The failure of a call or a connection.
#[derive(Debug)]
pub(super) enum DriverError {
    /// An error of sqlx.
    Driver(sqlx::Error),
    /// An error packet of MariaDB or MySQL, with its number and reason.
    Refused { code: u16, message: String },
    /// A failure of Lowroad's client for MariaDB and MySQL.
    Client(lowroad_mysql::MySqlError),
    /// There is no connection, or it was lost.
    Lost(String),
    /// There are more rows than allowed.
    TooManyRows,
    /// The rows are longer than this number of bytes, which is the rest of the page's memory.
    TooLong(usize),
    /// A value does not fit its parameter.
    Unfit(String),
    /// A column has an unsupported type.
    Unknown(String),
}

impl std::fmt::Display for DriverError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DriverError::Driver(error) => error.fmt(to),
            DriverError::Client(error) => error.fmt(to),
            DriverError::TooManyRows => to.write_str("too many rows"),
            DriverError::TooLong(_) => to.write_str("the rows are too long"),
            DriverError::Refused { message: it, .. }
            | DriverError::Lost(it)
            | DriverError::Unfit(it)
            | DriverError::Unknown(it) => to.write_str(it),
        }
    }
}

impl From<sqlx::Error> for DriverError {
    fn from(error: sqlx::Error) -> DriverError {
        DriverError::Driver(error)
    }
}

impl DriverError {
    pub(super) fn lost(reason: impl std::fmt::Display) -> DriverError {
        DriverError::Lost(reason.to_string())
    }

    /// Whether the connection is unusable. Only after an error that the database itself reported is its protocol
    /// in a known state.
    pub(super) fn breaks_connection(&self) -> bool {
        match self {
            DriverError::Driver(sqlx::Error::Database(error)) => is_goodbye(error.as_ref()),
            DriverError::Refused { code, .. } => GOODBYES.contains(code),
            DriverError::Driver(_)
            | DriverError::Client(_)
            | DriverError::Lost(_)
            | DriverError::TooManyRows
            | DriverError::TooLong(_)
            | DriverError::Unknown(_) => true,
            // Found before any byte was sent.
            DriverError::Unfit(_) => false,
        }
    }

    /// Whether the connection was lost, perhaps while it was idle.
    pub(super) fn is_lost(&self) -> bool {
        match self {
            DriverError::Driver(sqlx::Error::Database(error)) => is_goodbye(error.as_ref()),
            DriverError::Driver(sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed) => true,
            DriverError::Refused { code, .. } => GOODBYES.contains(code),
            // A goodbye that arrived while the connection was idle looks like a reply out of order.
            DriverError::Client(
                lowroad_mysql::MySqlError::Dismissed | lowroad_mysql::MySqlError::Protocol(_),
            ) => true,
            DriverError::Lost(_) => true,
            _ => false,
        }
    }
}

/// Numbers of messages with which MariaDB and MySQL end a connection.
pub(super) const GOODBYES: [u16; 3] = [1053, 1927, 4031];

/// A message with which a database ends a connection: PostgreSQL's are of class 57P.
pub(super) fn is_goodbye(error: &dyn sqlx::error::DatabaseError) -> bool {
    let code = error.code().unwrap_or_default();
    code.starts_with("57P")
}
