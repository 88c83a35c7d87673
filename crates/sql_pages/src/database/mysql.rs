//! Connections to MariaDB and MySQL, over Lowroad's own client (`lowroad_mysql`). Converts column values to template
//! values.

mod address;
mod stream;

use std::time::Duration;

use lowroad_mysql::{
    ColumnType, MySqlClient, MySqlError, MySqlEvent, MySqlLimits, SqlValue, StatementRefusal,
};
use lowroad_page::PageValue as Cell;

pub use self::address::MySqlAddress;
use self::stream::MySqlStream;
use super::answer::{AnswerRows, DatabaseAnswer};
use super::call::{DatabaseCall, PREPARED_STATEMENTS_MAX, ResultShape};
use super::date_time;
use super::driver_error::DriverError;
use crate::table::RowTable;
use crate::value::{SqlParam, StatementResult};

/// The client's limits. Statements, rows and values must each fit into one packet.
const LIMITS: MySqlLimits = MySqlLimits {
    packet_len_max: (16 << 20) - 2,
    column_count_max: 4_096,
    row_count_max: u32::MAX,
    statement_count_max: PREPARED_STATEMENTS_MAX,
};

/// A connection to MariaDB or MySQL.
pub struct MySqlLink {
    stream: MySqlStream,
    client: MySqlClient,
}

impl MySqlLink {
    /// Connects, logs in, and sets the server's time limit for statements.
    ///
    /// # Errors
    /// The server is unreachable, or rejects the login.
    pub async fn connect(
        address: &MySqlAddress,
        timeout: Duration,
    ) -> Result<MySqlLink, DriverError> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(DriverError::lost)?;
        let stream = MySqlStream::connect(address).await;
        let mut link = MySqlLink {
            stream: stream.map_err(DriverError::lost)?,
            client: MySqlClient::new(address.login.clone(), LIMITS, random),
        };
        let mut reply = StatementReply::default();
        link.finish(&mut reply).await?;
        // If TLS is used, it starts before the password is sent.
        if reply.starts_tls {
            link.send_output().await?;
            // Files are read for each connection, so that renewed certificates take effect.
            let connector = address.connector()?;
            link.stream.start_tls(&connector, &address.host).await?;
            link.client.tls_started()?;
            link.finish(&mut StatementReply::default()).await?;
        }
        let mariadb = format!("SET SESSION max_statement_time = {}", timeout.as_secs_f64());
        // MariaDB's variable is tried first; MySQL does not know it and returns an error.
        if link.run(&mariadb).await.is_err() {
            let mysql = format!("SET SESSION max_execution_time = {}", timeout.as_millis());
            // If the server knows neither variable, only the client-side time limit applies.
            let _ = link.run(&mysql).await;
        }
        Ok(link)
    }

    /// Executes a call.
    ///
    /// # Errors
    /// The failure of the call.
    pub async fn call(&mut self, call: &DatabaseCall) -> Result<DatabaseAnswer, DriverError> {
        self.client
            .execute(&call.sql, call.params.iter().map(value))?;
        let mut reply = StatementReply {
            rows: (call.shape != ResultShape::Done).then(|| AnswerRows::new(call)),
            ..StatementReply::default()
        };
        let result = self.finish(&mut reply).await?;
        Ok(reply
            .rows
            .map_or(DatabaseAnswer::Done(result), AnswerRows::answer))
    }

    /// Runs a statement without parameters that returns no rows.
    ///
    /// # Errors
    /// The failure of the statement.
    pub async fn run(&mut self, sql: &str) -> Result<(), DriverError> {
        self.client.command(sql)?;
        self.finish(&mut StatementReply::default()).await.map(drop)
    }

    /// Sends and receives until the current command is complete.
    async fn finish(
        &mut self,
        reply: &mut StatementReply<'_>,
    ) -> Result<StatementResult, DriverError> {
        loop {
            self.send_output().await?;
            let bytes = self.stream.receive().await?;
            // An error from the server is more useful than a protocol error that follows it.
            let consumed = self
                .client
                .input(bytes, &mut |event| reply.handle_event(event));
            if let Some(driver_error) = reply.driver_error.take() {
                return Err(driver_error);
            }
            consumed?;
            if let Some(result) = reply.result {
                return Ok(result);
            }
        }
    }

    async fn send_output(&mut self) -> Result<(), DriverError> {
        let output = self.client.output();
        let len = output.len();
        if len > 0 {
            self.stream.send(output).await?;
            self.client.sent(len);
        }
        Ok(())
    }
}

/// The reply to a statement or login, as received so far.
#[derive(Default)]
struct StatementReply<'c> {
    /// Collects the rows; `None` if they are discarded.
    rows: Option<AnswerRows<'c>>,
    kinds: Vec<ColumnType>,
    /// The index of the next value's column.
    column: usize,
    /// Whether the server is sending a further result of a procedure; only the first result is used.
    is_further: bool,
    /// Whether the server has agreed to TLS, so that the handshake must start.
    starts_tls: bool,
    result: Option<StatementResult>,
    driver_error: Option<DriverError>,
}

impl StatementReply<'_> {
    #[inline]
    fn handle_event(&mut self, event: MySqlEvent<'_>) {
        match (event, &mut self.rows) {
            (MySqlEvent::Value(value), Some(rows)) if !self.is_further => {
                let kind = self.kinds.get(self.column).copied();
                self.column += 1;
                push_value(value, kind.unwrap_or(ColumnType::Null), &mut rows.table);
            }
            (MySqlEvent::RowEnd, Some(rows)) if !self.is_further && self.driver_error.is_none() => {
                // More rows can follow in the same input after a failure.
                self.column = 0;
                self.driver_error = rows.end_row().err();
            }
            (MySqlEvent::Columns(columns), Some(rows)) => {
                // A procedure can send several results.
                self.is_further = !self.kinds.is_empty();
                if !self.is_further {
                    let names = columns.iter().map(|column| column.name.as_str());
                    rows.table.begin(names);
                    self.kinds = columns.iter().map(|column| column.kind).collect();
                }
            }
            (MySqlEvent::Done { affected, last_id }, _) => {
                // 0 means that no AUTO_INCREMENT value was generated.
                let id = i64::try_from(last_id).ok().filter(|id| *id != 0);
                let count = affected;
                self.result = Some(StatementResult { count, id });
            }
            (MySqlEvent::StartTls, _) => {
                self.starts_tls = true;
                self.result = Some(StatementResult::default());
            }
            (MySqlEvent::Ready, _) => self.result = Some(StatementResult::default()),
            (MySqlEvent::Failed(failure), _) => {
                self.driver_error = Some(DriverError::ServerError {
                    code: failure.code,
                    message: failure.message.to_owned(),
                });
            }
            (MySqlEvent::Columns(_) | MySqlEvent::Value(_) | MySqlEvent::RowEnd, _) => {}
        }
    }
}

#[inline]
fn push_value(value: SqlValue<'_>, kind: ColumnType, table: &mut RowTable) {
    match (value, kind) {
        (SqlValue::Text(it), ColumnType::Date | ColumnType::DateTime) => {
            table.push(
                date_time::date(it)
                    .as_deref()
                    .map_or(Cell::Null, Cell::Text),
            );
        }
        (SqlValue::Text(it), ColumnType::Time) => table.push(Cell::Text(&date_time::time(it))),
        (SqlValue::Text(it), _) => table.push(Cell::Text(it)),
        (SqlValue::Null, _) => table.push(Cell::Null),
        (SqlValue::Int(it), _) => table.push(Cell::Int(it)),
        (SqlValue::UInt(it), _) => table.push(Cell::UInt(it)),
        (SqlValue::Float(it), _) => table.push(Cell::Float(it)),
        (SqlValue::Bytes(it), _) => {
            table.push(std::str::from_utf8(it).map_or(Cell::Bytes(it), Cell::Text));
        }
    }
}

fn value(param: &SqlParam) -> SqlValue<'_> {
    match param {
        SqlParam::Null => SqlValue::Null,
        SqlParam::Bool(it) => SqlValue::Int((*it).into()),
        SqlParam::Int(it) => SqlValue::Int(*it),
        SqlParam::Float(it) => SqlValue::Float(*it),
        SqlParam::Text(it) => SqlValue::Text(it),
        SqlParam::Blob(it) => SqlValue::Bytes(it),
    }
}

impl From<MySqlError> for DriverError {
    fn from(error: MySqlError) -> DriverError {
        DriverError::Client(error)
    }
}

impl From<StatementRefusal> for DriverError {
    fn from(refusal: StatementRefusal) -> DriverError {
        match refusal {
            StatementRefusal::TooLong => DriverError::ParameterMismatch(format!(
                "the statement and its values are longer than {} bytes",
                LIMITS.packet_len_max
            )),
            StatementRefusal::Busy => DriverError::lost("a statement is in progress"),
        }
    }
}
