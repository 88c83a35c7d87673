//! Why a driver gives no answer.

/// Why a driver gives nothing.
#[derive(Debug)]
pub(super) enum Trouble {
    /// What sqlx says.
    Driver(sqlx::Error),
    /// The answer of MariaDB or MySQL: its number, and its reason.
    Refused { code: u16, message: String },
    /// The failure of our client of theirs.
    Client(lowroad_mysql::Error),
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

impl std::fmt::Display for Trouble {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Driver(error) => error.fmt(to),
            Trouble::Client(error) => error.fmt(to),
            Trouble::TooManyRows => to.write_str("there are too many rows"),
            Trouble::TooLong(_) => to.write_str("the rows are too long"),
            Trouble::Refused { message: it, .. }
            | Trouble::Lost(it)
            | Trouble::Unfit(it)
            | Trouble::Unknown(it) => to.write_str(it),
        }
    }
}

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Trouble {
        Trouble::Driver(error)
    }
}

impl Trouble {
    pub(super) fn lost(reason: impl std::fmt::Display) -> Trouble {
        Trouble::Lost(reason.to_string())
    }

    /// Whether the connection can be used no more: only what the database itself said leaves it as
    /// it should be.
    pub(super) fn breaks_connection(&self) -> bool {
        match self {
            Trouble::Driver(sqlx::Error::Database(error)) => is_goodbye(error.as_ref()),
            Trouble::Refused { code, .. } => GOODBYES.contains(code),
            Trouble::Driver(_)
            | Trouble::Client(_)
            | Trouble::Lost(_)
            | Trouble::TooManyRows
            | Trouble::TooLong(_)
            | Trouble::Unknown(_) => true,
            Trouble::Unfit(_) => false,
        }
    }

    /// Whether the connection was lost, perhaps long before it was used.
    pub(super) fn is_lost(&self) -> bool {
        match self {
            Trouble::Driver(sqlx::Error::Database(error)) => is_goodbye(error.as_ref()),
            Trouble::Driver(sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed) => true,
            Trouble::Refused { code, .. } => GOODBYES.contains(code),
            // A goodbye that came while nobody asked looks like a wrong answer.
            Trouble::Client(
                lowroad_mysql::Error::Dismissed | lowroad_mysql::Error::Protocol(_),
            ) => true,
            Trouble::Lost(_) => true,
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
