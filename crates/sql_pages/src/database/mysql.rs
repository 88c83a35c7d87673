//! Connections to MariaDB and MySQL by Lowroad's client, and the conversion of column values to template values.

mod address;
mod stream;

use std::time::Duration;

use lowroad_mysql::{Client, Error, Event, Kind, Limits, Refused, Value};
use lowroad_page::Value as Cell;

pub use self::address::MySqlAddress;
use self::stream::MySqlStream;
use super::answer::{Answer, Rows};
use super::call::{Call, STATEMENTS_MAX, Want};
use super::moment;
use super::trouble::Trouble;
use crate::table::Table;
use crate::value::{Done, Param};

/// The limits of a statement, a row and a value: they must fit into one packet.
const LIMITS: Limits = Limits {
    packet_len_max: (16 << 20) - 2,
    column_count_max: 4_096,
    row_count_max: u32::MAX,
    statement_count_max: STATEMENTS_MAX,
};

/// A connection.
pub struct MySqlLink {
    stream: MySqlStream,
    client: Client,
}

impl MySqlLink {
    /// Connects, and sets the server's time limit for statements.
    ///
    /// # Errors
    /// The server is unreachable, or refuses the login.
    pub async fn connect(address: &MySqlAddress, timeout: Duration) -> Result<MySqlLink, Trouble> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(Trouble::lost)?;
        let stream = MySqlStream::connect(address).await;
        let mut link = MySqlLink {
            stream: stream.map_err(Trouble::lost)?,
            client: Client::new(address.login.clone(), LIMITS, random),
        };
        let mut heard = Heard::default();
        link.finish(&mut heard).await?;
        if heard.starts_tls {
            link.send_output().await?;
            let connector = address.connector()?;
            link.stream.start_tls(&connector, &address.host).await?;
            link.client.tls_started()?;
            link.finish(&mut Heard::default()).await?;
        }
        let mariadb = format!("SET SESSION max_statement_time = {}", timeout.as_secs_f64());
        if link.run(&mariadb).await.is_err() {
            let mysql = format!("SET SESSION max_execution_time = {}", timeout.as_millis());
            // A server that knows neither variable is still bound by this side's time limit.
            let _ = link.run(&mysql).await;
        }
        Ok(link)
    }

    /// Makes a call.
    ///
    /// # Errors
    /// The call's failure.
    pub async fn call(&mut self, call: &Call) -> Result<Answer, Trouble> {
        self.client
            .execute(&call.sql, call.params.iter().map(value))?;
        let mut heard = Heard {
            rows: (call.want != Want::Done).then(|| Rows::of(call)),
            ..Heard::default()
        };
        let done = self.finish(&mut heard).await?;
        Ok(heard.rows.map_or(Answer::Done(done), Rows::answer))
    }

    /// Runs a statement without parameters and rows.
    ///
    /// # Errors
    /// The statement failed.
    pub async fn run(&mut self, sql: &str) -> Result<(), Trouble> {
        self.client.command(sql)?;
        self.finish(&mut Heard::default()).await.map(drop)
    }

    /// Exchanges bytes until the current command is complete.
    async fn finish(&mut self, heard: &mut Heard<'_>) -> Result<Done, Trouble> {
        loop {
            self.send_output().await?;
            let bytes = self.stream.receive().await?;
            let taken = self.client.input(bytes, &mut |event| heard.hear(event));
            if let Some(trouble) = heard.trouble.take() {
                return Err(trouble);
            }
            taken?;
            if let Some(done) = heard.done {
                return Ok(done);
            }
        }
    }

    async fn send_output(&mut self) -> Result<(), Trouble> {
        let output = self.client.output();
        let len = output.len();
        if len > 0 {
            self.stream.send(output).await?;
            self.client.sent(len);
        }
        Ok(())
    }
}

/// The received part of the reply to a statement or a login.
#[derive(Default)]
struct Heard<'c> {
    /// Collects rows; `None` if the caller discards them.
    rows: Option<Rows<'c>>,
    kinds: Vec<Kind>,
    /// The column of the next value.
    column: usize,
    /// A further result of a procedure; only the first one is used.
    is_further: bool,
    /// The connection switches to TLS now.
    starts_tls: bool,
    done: Option<Done>,
    trouble: Option<Trouble>,
}

impl Heard<'_> {
    #[inline]
    fn hear(&mut self, event: Event<'_>) {
        match (event, &mut self.rows) {
            (Event::Value(value), Some(rows)) if !self.is_further => {
                let kind = self.kinds.get(self.column).copied();
                self.column += 1;
                put(value, kind.unwrap_or(Kind::Null), &mut rows.table);
            }
            (Event::RowEnd, Some(rows)) if !self.is_further && self.trouble.is_none() => {
                self.column = 0;
                self.trouble = rows.end_row().err();
            }
            (Event::Columns(columns), Some(rows)) => {
                self.is_further = !self.kinds.is_empty();
                if !self.is_further {
                    let names = columns.iter().map(|column| column.name.as_str());
                    rows.table.begin(names);
                    self.kinds = columns.iter().map(|column| column.kind).collect();
                }
            }
            (Event::Done { affected, last_id }, _) => {
                let id = i64::try_from(last_id).ok().filter(|id| *id != 0);
                let count = affected;
                self.done = Some(Done { count, id });
            }
            (Event::StartTls, _) => {
                self.starts_tls = true;
                self.done = Some(Done::default());
            }
            (Event::Ready, _) => self.done = Some(Done::default()),
            (Event::Failed(failure), _) => {
                self.trouble = Some(Trouble::Refused {
                    code: failure.code,
                    message: failure.message.to_owned(),
                });
            }
            (Event::Columns(_) | Event::Value(_) | Event::RowEnd, _) => {}
        }
    }
}

#[inline]
fn put(value: Value<'_>, kind: Kind, to: &mut Table) {
    match (value, kind) {
        (Value::Text(it), Kind::Date | Kind::DateTime) => {
            to.push(moment::date(it).as_deref().map_or(Cell::Null, Cell::Text));
        }
        (Value::Text(it), Kind::Time) => to.push(Cell::Text(&moment::time(it))),
        (Value::Text(it), _) => to.push(Cell::Text(it)),
        (Value::Null, _) => to.push(Cell::Null),
        (Value::Int(it), _) => to.push(Cell::Int(it)),
        (Value::UInt(it), _) => to.push(Cell::UInt(it)),
        (Value::Float(it), _) => to.push(Cell::Float(it)),
        (Value::Bytes(it), _) => {
            to.push(std::str::from_utf8(it).map_or(Cell::Bytes(it), Cell::Text));
        }
    }
}

fn value(param: &Param) -> Value<'_> {
    match param {
        Param::Null => Value::Null,
        Param::Bool(it) => Value::Int((*it).into()),
        Param::Int(it) => Value::Int(*it),
        Param::Float(it) => Value::Float(*it),
        Param::Text(it) => Value::Text(it),
        Param::Blob(it) => Value::Bytes(it),
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Client(error)
    }
}

impl From<Refused> for Trouble {
    fn from(refused: Refused) -> Trouble {
        match refused {
            Refused::TooLong => Trouble::Unfit(format!(
                "the statement and its values are longer than {} bytes",
                LIMITS.packet_len_max
            )),
            Refused::Busy => Trouble::lost("a statement is under way"),
        }
    }
}
