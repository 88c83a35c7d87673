//! MariaDB and MySQL without TLS: our own client on a socket, which costs a fraction of sqlx's driver for each row. Knows
//! which servers it can't be used with; those are left to `mysql`.

use std::path::PathBuf;
use std::time::Duration;

use lowroad_mysql::{Client, Error, Event, Kind, Limits, Login, Refused, Value};
use lowroad_page::Value as Cell;
use sqlx::ConnectOptions;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::moment;
use super::{Answer, Call, Rows, STATEMENTS_MAX, Trouble, Want};
use crate::table::Table;
use crate::value::{Done, Param};

/// What is read at once: a server writes 16 KiB at a time.
const READ_LEN: usize = 16 << 10;

/// What a statement, a row and a value may be at most: what fits into one packet.
const LIMITS: Limits = Limits {
    packet_len_max: (16 << 20) - 2,
    column_count_max: 4_096,
    row_count_max: u32::MAX,
    statement_count_max: STATEMENTS_MAX,
};

/// A server, and who asks there.
pub struct PlainAddress {
    place: Place,
    login: Login,
}

enum Place {
    Socket(PathBuf),
    Host(String, u16),
}

/// A connection.
pub struct PlainLink {
    stream: Box<dyn Stream>,
    client: Client,
    buffer: Box<[u8]>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

impl PlainAddress {
    /// The address, if nothing in it needs the other driver: certificates, a character set.
    pub fn of(url: &str, options: &MySqlConnectOptions) -> Option<PlainAddress> {
        let (_, settings) = url.split_once('?').unwrap_or_default();
        let names = settings
            .split('&')
            .map(|pair| pair.split('=').next().unwrap_or_default());
        let mode = options.get_ssl_mode();
        let is_plain = matches!(mode, MySqlSslMode::Disabled | MySqlSslMode::Preferred);
        if !is_plain || !{ names }.all(|name| ["", "socket", "ssl-mode", "sslmode"].contains(&name))
        {
            return None;
        }
        let place = match options.get_socket() {
            Some(path) => Place::Socket(path.clone()),
            None => Place::Host(options.get_host().to_owned(), options.get_port()),
        };
        let url = options.to_url_lossy();
        let password = percent_encoding::percent_decode_str(url.password().unwrap_or_default());
        let login = Login {
            user: options.get_username().to_owned(),
            password: password.decode_utf8().ok()?.into_owned(),
            database: options.get_database().unwrap_or_default().to_owned(),
            // As sqlx does it.
            trusts_key: true,
            // What goes through a socket does not leave the machine.
            yields_to_tls: matches!((mode, &place), (MySqlSslMode::Preferred, Place::Host(..))),
            ..Login::default()
        };
        Some(PlainAddress { place, login })
    }

    /// Makes a connection on which statements end by themselves in time; none where the server wants TLS or a login
    /// that only the other driver can do.
    ///
    /// # Errors
    /// The server is not there, or refuses.
    pub async fn connect(&self, timeout: Duration) -> Result<Option<PlainLink>, Trouble> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(Trouble::lost)?;
        let mut link = PlainLink {
            stream: self.stream().await.map_err(Trouble::lost)?,
            client: Client::new(self.login.clone(), LIMITS, random),
            buffer: vec![0; READ_LEN].into(),
        };
        match link.talk(&mut Heard::default()).await {
            Ok(_) => {}
            Err(Trouble::Client(Error::OffersTls | Error::Unsupported(_))) => return Ok(None),
            Err(trouble) => return Err(trouble),
        }
        let mariadb = format!("SET SESSION max_statement_time = {}", timeout.as_secs_f64());
        if link.run(&mariadb).await.is_err() {
            let mysql = format!("SET SESSION max_execution_time = {}", timeout.as_millis());
            // One that knows neither is still held to the limit from our side.
            let _ = link.run(&mysql).await;
        }
        Ok(Some(link))
    }

    async fn stream(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match &self.place {
            Place::Socket(path) => Box::new(UnixStream::connect(path).await?),
            Place::Host(host, port) => {
                let host = host.trim_matches(['[', ']']);
                let stream = TcpStream::connect((host, *port)).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        })
    }
}

impl PlainLink {
    /// Makes a call.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn call(&mut self, call: &Call) -> Result<Answer, Trouble> {
        self.client
            .execute(&call.sql, call.params.iter().map(value))?;
        let mut heard = Heard {
            rows: (call.want != Want::Done).then(|| Rows::of(call)),
            ..Heard::default()
        };
        let done = self.talk(&mut heard).await?;
        Ok(heard.rows.map_or(Answer::Done(done), Rows::answer))
    }

    /// Runs a statement without parameters and rows.
    ///
    /// # Errors
    /// It is not done.
    pub async fn run(&mut self, sql: &str) -> Result<(), Trouble> {
        self.client.command(sql)?;
        self.talk(&mut Heard::default()).await.map(drop)
    }

    /// Sends what is to be sent and takes what comes, until nothing is under way any more.
    async fn talk(&mut self, heard: &mut Heard<'_>) -> Result<Done, Trouble> {
        loop {
            while !self.client.output().is_empty() {
                let len = self.stream.write(self.client.output()).await;
                self.client.sent(len.map_err(Trouble::lost)?);
            }
            let len = self.stream.read(&mut self.buffer).await;
            let len = len.map_err(Trouble::lost)?;
            if len == 0 {
                return Err(Trouble::lost(
                    "the database server has closed the connection",
                ));
            }
            let taken = self
                .client
                .input(&self.buffer[..len], &mut |event| heard.hear(event));
            if let Some(trouble) = heard.trouble.take() {
                return Err(trouble);
            }
            taken?;
            if let Some(done) = heard.done {
                return Ok(done);
            }
        }
    }
}

/// What was heard of the answer to a statement, or to a login.
#[derive(Default)]
struct Heard<'c> {
    /// Where rows go; without it they are of no use.
    rows: Option<Rows<'c>>,
    kinds: Vec<Kind>,
    /// The column of the next value.
    column: usize,
    /// A further result of a procedure, of which only the first counts.
    is_further: bool,
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
