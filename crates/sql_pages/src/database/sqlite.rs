//! Calls to SQLite, which runs in this process. A progress handler enforces the time limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use lowroad_mysql::DataFault;
use lowroad_page::PageValue as Cell;
use sqlx::error::{BoxDynError, DatabaseError};
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteError, SqliteRow, SqliteValueRef,
};
use sqlx::{Arguments, Column, Connection, Decode, Executor, Row as _, Sqlite, TypeInfo, ValueRef};

use super::answer::{AnswerRows, DatabaseAnswer};
use super::call::{DatabaseCall, ResultShape};
use super::driver_error::DriverError;
use crate::table::RowTable;
use crate::value::{SqlParam, StatementResult};

/// The number of instructions of SQLite's virtual machine between two checks of the time.
const STEPS_PER_CHECK: i32 = 1_000;

/// A connection with the deadline of its current statement.
pub struct SqliteLink {
    link: SqliteConnection,
    timer: Arc<QueryTimer>,
}

struct QueryTimer {
    start: Instant,
    /// The deadline, in milliseconds after `start`.
    end_ms: AtomicU64,
}

impl QueryTimer {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn set_timeout(&self, time: Duration) {
        let time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.end_ms
            .store(self.now_ms().saturating_add(time_ms), Relaxed);
    }
}

impl SqliteLink {
    /// Opens the database file.
    pub async fn connect(options: &SqliteConnectOptions) -> Result<SqliteLink, sqlx::Error> {
        let mut link = SqliteConnection::connect_with(options).await?;
        let clock = Arc::new(QueryTimer {
            start: Instant::now(),
            end_ms: AtomicU64::new(u64::MAX),
        });
        // SQLite executes statements on a thread, so dropping the future does not end them; the progress handler does.
        let timer = clock.clone();
        // SQLite calls the handler every `STEPS_PER_CHECK` instructions; the result false interrupts the statement.
        link.lock_handle()
            .await?
            .set_progress_handler(STEPS_PER_CHECK, move || {
                timer.now_ms() < timer.end_ms.load(Relaxed)
            });
        Ok(SqliteLink { link, timer: clock })
    }

    /// Runs a statement without parameters that returns no rows.
    pub async fn run(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        // The deadline of an earlier call must not interrupt this statement.
        self.timer.end_ms.store(u64::MAX, Relaxed);
        self.link.execute(sql).await.map(drop)
    }

    /// Executes a call.
    pub async fn call(&mut self, call: &DatabaseCall) -> Result<DatabaseAnswer, DriverError> {
        self.timer.set_timeout(call.timeout);
        let mut arguments = SqliteArguments::default();
        for param in &call.params {
            add(&mut arguments, param).map_err(sqlx::Error::Encode)?;
        }
        let query = sqlx::query_with(&call.sql, arguments);
        if call.shape == ResultShape::Done {
            let result = query.execute(&mut self.link).await?;
            return Ok(DatabaseAnswer::Done(StatementResult {
                count: result.rows_affected(),
                // The id is also set after statements other than INSERT; the page must know whether it is meaningful.
                id: Some(result.last_insert_rowid()),
            }));
        }
        // Rows are streamed, so that those beyond the limit are not fetched.
        let mut stream = query.fetch(&mut self.link);
        let mut rows = AnswerRows::new(call);
        while let Some(row) = stream.try_next().await? {
            rows.begin_row(row.columns().iter().map(Column::name));
            push_row(&row, &mut rows.table)?;
            rows.end_row()?;
        }
        Ok(rows.answer())
    }
}

/// SQLite's extended result code.
pub fn code(error: &dyn DatabaseError) -> Option<i32> {
    error.try_downcast_ref::<SqliteError>()?;
    error.code()?.parse().ok()
}

/// The kind of data error that an extended result code reports (<https://www.sqlite.org/rescode.html>).
pub fn data_fault(code: i32) -> Option<DataFault> {
    Some(match code {
        // SQLITE_CONSTRAINT_FOREIGNKEY, _PRIMARYKEY, _UNIQUE, _ROWID
        787 | 1555 | 2067 | 2579 => DataFault::Conflict,
        // SQLITE_CONSTRAINT_CHECK, _NOTNULL, _DATATYPE, SQLITE_TOOBIG
        275 | 1299 | 3091 | 18 => DataFault::Invalid,
        _ => return None,
    })
}

fn add(arguments: &mut SqliteArguments<'_>, param: &SqlParam) -> Result<(), BoxDynError> {
    match param {
        SqlParam::Null => arguments.add(None::<i64>),
        SqlParam::Bool(value) => arguments.add(*value),
        SqlParam::Int(value) => arguments.add(*value),
        SqlParam::Float(value) => arguments.add(*value),
        SqlParam::Text(value) => arguments.add(value.clone()),
        SqlParam::Blob(value) => arguments.add(value.clone()),
    }
}

fn push_row(row: &SqliteRow, table: &mut RowTable) -> Result<(), DriverError> {
    for column in row.columns() {
        cell(row.try_get_raw(column.ordinal())?, table).map_err(|error| {
            DriverError::UnsupportedColumn(format!(
                "column {} can't be read: {error}",
                column.name()
            ))
        })?;
    }
    Ok(())
}

/// Appends a value. In SQLite, each value has its own type, independent of the column.
fn cell(raw: SqliteValueRef<'_>, table: &mut RowTable) -> Result<(), BoxDynError> {
    if raw.is_null() {
        table.push(Cell::Null);
        return Ok(());
    }
    let kind = raw.type_info().into_owned();
    table.push(match kind.name() {
        "INTEGER" => Cell::Int(<i64 as Decode<Sqlite>>::decode(raw)?),
        "REAL" => Cell::Float(<f64 as Decode<Sqlite>>::decode(raw)?),
        "BLOB" => Cell::Bytes(<&[u8] as Decode<Sqlite>>::decode(raw)?),
        _ => Cell::Text(<&str as Decode<Sqlite>>::decode(raw)?),
    });
    Ok(())
}
