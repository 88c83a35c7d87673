//! Databases: the calls of pages, the connection pools, and failures.
//!
//! Uses the drivers, time and limits; independent of templates and requests. Connections are pooled here and not by
//! sqlx, which sends a ping each time a connection is returned: half of all messages that the database would get.

mod address;
mod answer;
mod call;
mod date_time;
mod mysql;
mod pem;
mod pool;
mod postgres;
mod session;
mod sqlite;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use lowroad_http::status::StatusCode;
use lowroad_mysql::DataFault;

use self::address::DatabaseAddress;
use self::pool::DatabasePool;
use self::trouble::{DriverError, GOODBYES, is_goodbye};
use super::budget;
use super::statement::SqlDialect;

pub use self::answer::DatabaseAnswer;
pub use self::call::{CallMode, DatabaseCall, ResultShape};
pub use self::session::PageSession;

/// All databases, by their names.
#[derive(Default)]
pub struct DatabaseSet(Vec<Arc<PageDatabase>>);

/// A database with its connection pool. Connections are made on demand.
pub struct PageDatabase {
    /// Its name in the configuration.
    pub name: String,
    /// How long a call may take.
    pub timeout: Duration,
    /// How many rows an answer may have.
    pub rows_max: usize,
    /// The rules for its statements.
    pub dialect: SqlDialect,
    pool: DatabasePool,
}

/// The failure of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseFault {
    /// The response's status: 503 if the database cannot be reached, 504 if it is too slow, 400 if a value does not
    /// fit its parameter, 500 if the statement is wrong.
    pub status: StatusCode,
    /// The reason, for the operator.
    pub reason: String,
}

impl DatabaseFault {
    fn new(status: StatusCode, reason: impl Into<String>) -> DatabaseFault {
        DatabaseFault {
            status,
            reason: reason.into(),
        }
    }
}

impl DatabaseSet {
    /// The databases of a configuration.
    ///
    /// # Errors
    /// The database's name and the fault of its address.
    pub fn new(configs: &[lowroad_config::schema::DatabaseConfig]) -> Result<DatabaseSet, String> {
        configs
            .iter()
            .map(PageDatabase::new)
            .collect::<Result<_, _>>()
            .map(DatabaseSet)
    }

    /// The database with this name.
    pub fn find(&self, name: &str) -> Option<&Arc<PageDatabase>> {
        self.0.iter().find(|database| database.name == name)
    }
}

impl PageDatabase {
    fn new(config: &lowroad_config::schema::DatabaseConfig) -> Result<Arc<PageDatabase>, String> {
        let timeout = Duration::from_millis(config.timeout_ms);
        let address = DatabaseAddress::parse(&config.url, timeout)
            .map_err(|reason| format!("database {}: {reason}", config.name))?;
        Ok(Arc::new(PageDatabase {
            name: config.name.clone(),
            timeout,
            rows_max: config.rows_max,
            dialect: address.dialect(),
            pool: DatabasePool::new(address, config.connections_max as usize),
        }))
    }
}

/// Error numbers of statements that took too long: MariaDB's, MySQL's.
const SLOW: [u16; 2] = [1969, 3024];

/// Whether the statement took too long: PostgreSQL's 57014, SQLite's SQLITE_INTERRUPT.
fn is_slow(error: &dyn sqlx::error::DatabaseError) -> bool {
    error.code().as_deref() == Some("57014") || sqlite::code(error) == Some(9)
}

/// The status of a statement that the database refused: 400 and 409 if the visitor's data are at fault.
fn refusal_status(error: &dyn sqlx::error::DatabaseError) -> StatusCode {
    let fault = match sqlite::code(error) {
        Some(code) => sqlite::data_fault(code),
        None => postgres::data_fault(&error.code().unwrap_or_default()),
    };
    fault.map_or(StatusCode::INTERNAL_ERROR, data_status)
}

fn data_status(fault: DataFault) -> StatusCode {
    match fault {
        DataFault::Invalid => StatusCode::BAD_REQUEST,
        DataFault::Conflict => StatusCode::CONFLICT,
    }
}

/// Whether another connection holds a lock: SQLITE_BUSY.
fn is_busy(error: &dyn sqlx::error::DatabaseError) -> bool {
    // The low byte is the primary result code of an extended one.
    sqlite::code(error).is_some_and(|code| code & 255 == 5)
}

impl PageDatabase {
    /// The page's failure for a driver's error.
    fn fault(&self, driver_error: DriverError) -> DatabaseFault {
        let name = &self.name;
        match driver_error {
            DriverError::TooManyRows => DatabaseFault::new(
                StatusCode::INTERNAL_ERROR,
                format!(
                    "more than {} rows: add a LIMIT to the statement, or raise rows of database {name}",
                    self.rows_max
                ),
            ),
            DriverError::TooLong(len_max) => {
                budget::count();
                DatabaseFault::new(
                    StatusCode::INTERNAL_ERROR,
                    format!(
                        "{}; the rows alone are longer: add a LIMIT to the statement",
                        budget::reason(len_max)
                    ),
                )
            }
            DriverError::Unfit(reason) => DatabaseFault::new(StatusCode::BAD_REQUEST, reason),
            DriverError::Unknown(reason) => DatabaseFault::new(StatusCode::INTERNAL_ERROR, reason),
            DriverError::Driver(sqlx::Error::Database(error)) if is_slow(error.as_ref()) => {
                self.slow()
            }
            DriverError::Refused { code, .. } if SLOW.contains(&code) => self.slow(),
            DriverError::Refused { code, message } if GOODBYES.contains(&code) => {
                self.unreachable(message)
            }
            DriverError::Refused { code, message } => DatabaseFault::new(
                DataFault::from_number(code).map_or(StatusCode::INTERNAL_ERROR, data_status),
                format!("database {name} reports: {message}"),
            ),
            DriverError::Client(error) => self.unreachable(error),
            DriverError::Lost(reason) => self.unreachable(reason),
            DriverError::Driver(sqlx::Error::Database(error))
                if is_goodbye(error.as_ref()) || is_busy(error.as_ref()) =>
            {
                self.unreachable(error)
            }
            DriverError::Driver(sqlx::Error::Database(error)) => DatabaseFault::new(
                refusal_status(error.as_ref()),
                format!("database {name} reports: {}", error.message()),
            ),
            DriverError::Driver(error) => self.unreachable(error),
        }
    }

    fn slow(&self) -> DatabaseFault {
        DatabaseFault::new(
            StatusCode::GATEWAY_TIMEOUT,
            format!(
                "database {} took longer than its timeout of {} ms",
                self.name,
                self.timeout.as_millis()
            ),
        )
    }

    fn unreachable(&self, reason: impl std::fmt::Display) -> DatabaseFault {
        DatabaseFault::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("database {} can't be used: {reason}", self.name),
        )
    }
}
