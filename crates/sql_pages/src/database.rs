//! Databases: what a page asks for, the connections that are kept, and what went wrong.
//!
//! Knows the drivers, time and limits; neither templates nor requests. Connections are kept
//! here and not in sqlx's pool, since that sends a ping each time a connection comes back: half of
//! all that a database would get from us.

mod address;
mod moment;
mod mysql;
mod pem;
mod pool;
mod postgres;
mod session;
mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use lowroad_http::status::Status;
use lowroad_mysql::DataFault;
use minijinja::Value;

use self::address::DatabaseAddress;
use self::pool::Pool;
use super::budget;
use super::statement::{self, Effect};
use super::table::{self, Table};
use super::value::{Done, Param};

pub use self::session::Session;

/// Statements that a connection keeps prepared.
const STATEMENTS_MAX: usize = 256;

/// All databases, by their names.
#[derive(Default)]
pub struct Databases(Vec<Arc<Database>>);

/// A database, with its connections. None is made before it is needed.
pub struct Database {
    /// What the configuration calls it.
    pub name: String,
    timeout: Duration,
    rows_max: usize,
    pool: Pool,
}

/// What a page asks a database.
#[derive(Clone)]
pub struct Call {
    /// Whom.
    pub database: Arc<Database>,
    /// The statement, with `?` for parameters.
    pub sql: Arc<str>,
    /// One for each `?`.
    pub params: Vec<Param>,
    /// What it wants to hear.
    pub want: Want,
    /// How it is made.
    pub mode: Mode,
    /// Bytes of its rows.
    pub len_max: usize,
}

/// How a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As it is: it only reads, so that it may be made again after a failure.
    Read,
    /// Where the database refuses to write; again after a failure too.
    ReadGuarded,
    /// As part of what is kept when the page ends well.
    Write,
}

impl Mode {
    /// The mode for a statement; none if it writes, which a page must not in answer to a method
    /// that promises to change nothing. `safe` = that is its method.
    pub fn of(sql: &str, want: Want, safe: bool) -> Option<Mode> {
        match (statement::effect(sql), safe) {
            (Effect::Reads, _) if want != Want::Done => Some(Mode::Read),
            (Effect::Unsure, true) if want != Want::Done => Some(Mode::ReadGuarded),
            (_, true) => None,
            (_, false) => Some(Mode::Write),
        }
    }
}

/// What a page wants to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// All rows.
    Rows,
    /// The first row, or none.
    Row,
    /// How many rows it wrote.
    Done,
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

impl Call {
    /// Whether it only reads, so that it may be made again after a failure.
    pub fn reads(&self) -> bool {
        self.mode != Mode::Write
    }
}

/// What a database answers.
pub enum Answer {
    /// The rows of what reads.
    Rows(Arc<Table>),
    /// What was written.
    Done(Done),
}

impl Answer {
    /// As a template's value.
    pub fn value(self, want: Want) -> Value {
        match (self, want) {
            (Answer::Rows(table), Want::Row) => table::first_row(table),
            (Answer::Rows(table), _) => table::rows(table),
            (Answer::Done(done), _) => done.value(),
        }
    }

    /// Bytes that it takes.
    pub fn len(&self) -> usize {
        match self {
            Answer::Rows(table) => table.len(),
            Answer::Done(_) => 0,
        }
    }
}

/// The rows of an answer as they come.
struct Rows<'c> {
    call: &'c Call,
    table: Table,
}

impl<'c> Rows<'c> {
    fn of(call: &'c Call) -> Rows<'c> {
        Rows {
            call,
            table: Table::default(),
        }
    }

    /// A row comes, with columns of these names: those of the first are all rows'.
    fn begin_row<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        if self.table.row_count() == 0 {
            self.table.begin(names);
        }
    }

    /// A row has come whole.
    fn end_row(&mut self) -> Result<(), Trouble> {
        if self.table.row_count() == self.call.database.rows_max {
            return Err(Trouble::TooManyRows);
        }
        self.table.end_row();
        match self.table.len() > self.call.len_max {
            true => Err(Trouble::TooLong(self.call.len_max)),
            false => Ok(()),
        }
    }

    fn answer(self) -> Answer {
        Answer::Rows(Arc::new(self.table))
    }
}

/// Why a driver gives nothing.
#[derive(Debug)]
enum Trouble {
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
    fn lost(reason: impl std::fmt::Display) -> Trouble {
        Trouble::Lost(reason.to_string())
    }

    /// Whether the connection can be used no more: only what the database itself said leaves it as
    /// it should be.
    fn breaks_connection(&self) -> bool {
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
    fn is_lost(&self) -> bool {
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
const GOODBYES: [u16; 3] = [1053, 1927, 4031];

/// Numbers of their messages that a statement took too long: MariaDB's, MySQL's.
const SLOW: [u16; 2] = [1969, 3024];

/// A message with which a database ends a connection: PostgreSQL's are of class 57P.
fn is_goodbye(error: &dyn sqlx::error::DatabaseError) -> bool {
    let code = error.code().unwrap_or_default();
    code.starts_with("57P")
}

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
