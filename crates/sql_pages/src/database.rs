//! Databases: calls from pages, connection pools, and errors.
//!
//! This module is independent of templates and requests. Connections are pooled here and not by sqlx, which sends a
//! ping each time a connection is returned: that would be half of all messages to the database.

mod address;
mod answer;
mod call;
mod date_time;
mod driver_error;
mod mysql;
mod pem;
mod pool;
mod postgres;
mod session;
mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use lowroad_http::status::StatusCode;
use lowroad_mysql::DataFault;

use self::address::DatabaseAddress;
use self::driver_error::{DISCONNECT_CODES, DriverError, is_disconnect};
use self::pool::DatabasePool;
use super::budget;
use super::statement::SqlDialect;

pub use self::answer::DatabaseAnswer;
pub use self::call::{CallMode, DatabaseCall, ResultShape};
pub use self::session::PageSession;

/// All configured databases.
#[derive(Default)]
pub struct DatabaseSet(Vec<Arc<PageDatabase>>);

/// A database with its connection pool. Connections are opened on demand.
pub struct PageDatabase {
    /// The database's name in the configuration.
    pub name: String,
    /// Time limit for a call.
    pub timeout: Duration,
    /// The maximum number of rows in an answer.
    pub rows_max: usize,
    /// The SQL dialect of the database.
    pub dialect: SqlDialect,
    pool: DatabasePool,
}

/// The failure of a database call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseFault {
    /// The status of the response: 503 if the database is unavailable, 504 if it exceeds the time limit, 400 or 409 if
    /// it rejects the client's data, 500 if the statement is wrong.
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
    /// Creates the databases of a configuration; does not connect.
    ///
    /// # Errors
    /// The database's name, and the error in its address.
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

/// The error numbers for statements that exceed the time limit, of MariaDB and of MySQL.
const TIMEOUT_CODES: [u16; 2] = [1969, 3024];

/// Whether the statement exceeded the time limit: PostgreSQL's 57014, SQLite's SQLITE_INTERRUPT.
fn is_timeout(error: &dyn sqlx::error::DatabaseError) -> bool {
    error.code().as_deref() == Some("57014") || sqlite::code(error) == Some(9)
}

/// The status for a statement that the database rejected: 400 or 409 if the cause is the client's data.
fn rejection_status(error: &dyn sqlx::error::DatabaseError) -> StatusCode {
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

/// Whether another connection holds the lock: SQLITE_BUSY.
fn is_busy(error: &dyn sqlx::error::DatabaseError) -> bool {
    // The low byte of an extended result code is the primary code.
    sqlite::code(error).is_some_and(|code| code & 255 == 5)
}

impl PageDatabase {
    /// Converts a driver's error to the failure of the page.
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
                budget::count_over_memory();
                DatabaseFault::new(
                    StatusCode::INTERNAL_ERROR,
                    format!(
                        "{}; the rows alone are longer: add a LIMIT to the statement",
                        budget::over_memory_message(len_max)
                    ),
                )
            }
            DriverError::ParameterMismatch(reason) => {
                DatabaseFault::new(StatusCode::BAD_REQUEST, reason)
            }
            DriverError::UnsupportedColumn(reason) => {
                DatabaseFault::new(StatusCode::INTERNAL_ERROR, reason)
            }
            DriverError::Sqlx(sqlx::Error::Database(error)) if is_timeout(error.as_ref()) => {
                self.timeout_fault()
            }
            DriverError::ServerError { code, .. } if TIMEOUT_CODES.contains(&code) => {
                self.timeout_fault()
            }
            DriverError::ServerError { code, message } if DISCONNECT_CODES.contains(&code) => {
                self.unavailable_fault(message)
            }
            DriverError::ServerError { code, message } => DatabaseFault::new(
                DataFault::from_number(code).map_or(StatusCode::INTERNAL_ERROR, data_status),
                format!("database {name} reports: {message}"),
            ),
            DriverError::Client(error) => self.unavailable_fault(error),
            DriverError::Lost(reason) => self.unavailable_fault(reason),
            DriverError::Sqlx(sqlx::Error::Database(error))
                if is_disconnect(error.as_ref()) || is_busy(error.as_ref()) =>
            {
                self.unavailable_fault(error)
            }
            DriverError::Sqlx(sqlx::Error::Database(error)) => DatabaseFault::new(
                rejection_status(error.as_ref()),
                format!("database {name} reports: {}", error.message()),
            ),
            DriverError::Sqlx(error) => self.unavailable_fault(error),
        }
    }

    fn timeout_fault(&self) -> DatabaseFault {
        DatabaseFault::new(
            StatusCode::GATEWAY_TIMEOUT,
            format!(
                "database {} took longer than its timeout of {} ms",
                self.name,
                self.timeout.as_millis()
            ),
        )
    }

    fn unavailable_fault(&self, reason: impl std::fmt::Display) -> DatabaseFault {
        DatabaseFault::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("database {} can't be used: {reason}", self.name),
        )
    }
}
