//! Why a driver gives no answer.

/// Why a driver gives nothing.
#[derive(Debug)]
pub(super) enum DriverError {
    /// What sqlx says.
    Driver(sqlx::Error),
    /// The answer of MariaDB or MySQL: its number, and its reason.
    Refused { code: u16, message: String },
    /// The failure of our client of theirs.
    Client(lowroad_mysql::MySqlError),
    /// The connection is not there.
    Lost(String),
    /// There are more rows than allowed.
    TooManyRows,
    /// The rows are longer than so many bytes, which is what the page may take.
    TooLong(usize),
    /// A parameter does not fit.
    Unfit(String),
    /// A column has a type that is not known here.
    Unknown(String),
}

impl std::fmt::Display for DriverError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DriverError::Driver(error) => error.fmt(to),
            DriverError::Client(error) => error.fmt(to),
            DriverError::TooManyRows => to.write_str("there are too many rows"),
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

    /// Whether the connection can be used no more: only what the database itself said leaves it as
    /// it should be.
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
            DriverError::Unfit(_) => false,
        }
    }

    /// Whether the connection was lost, perhaps long before it was used.
    pub(super) fn is_lost(&self) -> bool {
        match self {
            DriverError::Driver(sqlx::Error::Database(error)) => is_goodbye(error.as_ref()),
            DriverError::Driver(sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed) => true,
            DriverError::Refused { code, .. } => GOODBYES.contains(code),
            // A goodbye that came while nobody asked looks like a wrong answer.
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
