//! Databases: what a page asks for, the connections that are kept, and what went wrong.
//!
//! Knows the drivers, time and limits; neither templates nor requests. Connections are kept
//! here and not in sqlx's pool, since that sends a ping each time a connection comes back: half of
//! all that a database would get from us.

mod address;
mod answer;
mod call;
mod moment;
mod mysql;
mod pem;
mod pool;
mod postgres;
mod session;
mod sqlite;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use lowroad_http::status::Status;
use lowroad_mysql::DataFault;

use self::address::DatabaseAddress;
use self::pool::Pool;
use self::trouble::{GOODBYES, Trouble, is_goodbye};
use super::budget;

pub use self::answer::Answer;
pub use self::call::{Call, Mode, Want};
pub use self::session::Session;

/// All databases, by their names.
#[derive(Default)]
pub struct Databases(Vec<Arc<Database>>);

/// A database, with its connections. None is made before it is needed.
pub struct Database {
    /// What the configuration calls it.
    pub name: String,
    /// How long a call may take.
    pub timeout: Duration,
    /// How many rows an answer may have.
    pub rows_max: usize,
    pool: Pool,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What the client is told: 503 when the database can't be reached, 504 when it is too slow,
    /// 400 when a value does not fit its parameter, 500 when the statement is wrong.
    pub status: Status,
    /// What the operator is told.
    pub reason: String,
}

impl Fault {
    fn new(status: Status, reason: impl Into<String>) -> Fault {
        Fault {
            status,
            reason: reason.into(),
        }
    }
}

impl Databases {
    /// The databases of a configuration.
    ///
    /// # Errors
    /// With the database's name and what is wrong with its address.
    pub fn new(configured: &[lowroad_config::schema::Database]) -> Result<Databases, String> {
        configured
            .iter()
            .map(Database::new)
            .collect::<Result<_, _>>()
            .map(Databases)
    }

    /// The database with this name.
    pub fn named(&self, name: &str) -> Option<&Arc<Database>> {
        self.0.iter().find(|database| database.name == name)
    }
}

impl Database {
    fn new(configured: &lowroad_config::schema::Database) -> Result<Arc<Database>, String> {
        let timeout = Duration::from_millis(configured.timeout_ms);
        let address = DatabaseAddress::parse(&configured.url, timeout)
            .map_err(|reason| format!("database {}: {reason}", configured.name))?;
        Ok(Arc::new(Database {
            name: configured.name.clone(),
            timeout,
            rows_max: configured.rows_max,
            pool: Pool::new(address, configured.connections_max as usize),
        }))
    }
}

/// Numbers of their messages that a statement took too long: MariaDB's, MySQL's.
const SLOW: [u16; 2] = [1969, 3024];

/// A message that the statement took too long: PostgreSQL's 57014, SQLite's SQLITE_INTERRUPT.
fn is_slow(error: &dyn sqlx::error::DatabaseError) -> bool {
    error.code().as_deref() == Some("57014") || sqlite::code(error) == Some(9)
}

/// The status of a statement that the database refused: 400 and 409 if a visitor's data are at fault.
fn refusal_status(error: &dyn sqlx::error::DatabaseError) -> Status {
    let fault = match sqlite::code(error) {
        Some(code) => sqlite::data_fault(code),
        None => postgres::data_fault(&error.code().unwrap_or_default()),
    };
    fault.map_or(Status::INTERNAL_ERROR, data_status)
}

fn data_status(fault: DataFault) -> Status {
    match fault {
        DataFault::Invalid => Status::BAD_REQUEST,
        DataFault::Conflict => Status::CONFLICT,
    }
}

/// A message that another connection was in the way: SQLITE_BUSY.
fn is_busy(error: &dyn sqlx::error::DatabaseError) -> bool {
    sqlite::code(error).is_some_and(|code| code & 255 == 5)
}

impl Database {
    /// What trouble means to the page.
    fn fault(&self, trouble: Trouble) -> Fault {
        let name = &self.name;
        match trouble {
            Trouble::TooManyRows => Fault::new(
                Status::INTERNAL_ERROR,
                format!(
                    "there are more than {} rows: put a LIMIT into the statement, or raise rows of database {name}",
                    self.rows_max
                ),
            ),
            Trouble::TooLong(len_max) => {
                budget::count();
                Fault::new(
                    Status::INTERNAL_ERROR,
                    format!(
                        "{}; the rows alone are longer: put a LIMIT into the statement",
                        budget::reason(len_max)
                    ),
                )
            }
            Trouble::Unfit(reason) => Fault::new(Status::BAD_REQUEST, reason),
            Trouble::Unknown(reason) => Fault::new(Status::INTERNAL_ERROR, reason),
            Trouble::Driver(sqlx::Error::Database(error)) if is_slow(error.as_ref()) => self.slow(),
            Trouble::Refused { code, .. } if SLOW.contains(&code) => self.slow(),
            Trouble::Refused { code, message } if GOODBYES.contains(&code) => {
                self.unreachable(message)
            }
            Trouble::Refused { code, message } => Fault::new(
                DataFault::from_number(code).map_or(Status::INTERNAL_ERROR, data_status),
                format!("database {name} says: {message}"),
            ),
            Trouble::Client(error) => self.unreachable(error),
            Trouble::Lost(reason) => self.unreachable(reason),
            Trouble::Driver(sqlx::Error::Database(error))
                if is_goodbye(error.as_ref()) || is_busy(error.as_ref()) =>
            {
                self.unreachable(error)
            }
            Trouble::Driver(sqlx::Error::Database(error)) => Fault::new(
                refusal_status(error.as_ref()),
                format!("database {name} says: {}", error.message()),
            ),
            Trouble::Driver(error) => self.unreachable(error),
        }
    }

    fn slow(&self) -> Fault {
        Fault::new(
            Status::GATEWAY_TIMEOUT,
            format!(
                "database {} took longer than its timeout of {} ms",
                self.name,
                self.timeout.as_millis()
            ),
        )
    }

    fn unreachable(&self, reason: impl std::fmt::Display) -> Fault {
        Fault::new(
            Status::SERVICE_UNAVAILABLE,
            format!("database {} can't be used: {reason}", self.name),
        )
    }
}
