//! A client with a socket, for tests with a real server.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use lowroad_mysql::{LoginRequest, MySqlClient, MySqlError, MySqlEvent, MySqlLimits, SqlValue};

/// An owned value.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedValue {
    Null,
    Int(i64),
    UInt(u64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
}

/// The result of a statement.
#[derive(Debug, Default, PartialEq)]
pub struct Answer {
    pub names: Vec<String>,
    pub rows: Vec<Vec<OwnedValue>>,
    pub affected: u64,
    pub last_id: u64,
    /// Error number, SQLSTATE and message.
    pub failed: Option<(u16, String, String)>,
    is_ended: bool,
    row: Vec<OwnedValue>,
}

/// A blocking connection.
pub struct Connection {
    pub client: MySqlClient,
    socket: UnixStream,
}

impl Connection {
    /// Connects, and waits until the session is ready.
    pub fn open(
        url: &str,
        login: LoginRequest,
        limits: MySqlLimits,
    ) -> Result<Connection, Box<(MySqlError, Answer)>> {
        let path = url.split_once("socket=").expect("a socket").1;
        let socket = UnixStream::connect(path).expect("a server");
        let client = MySqlClient::new(login, limits, [7; 32]);
        let mut connection = Connection { client, socket };
        let mut answer = Answer::default();
        match connection.wait(&mut answer) {
            Ok(()) => Ok(connection),
            Err(error) => Err(Box::new((error, answer))),
        }
    }

    /// Connects as root to the database `test`.
    pub fn root(url: &str) -> Connection {
        let login = LoginRequest {
            user: "root".into(),
            database: "test".into(),
            ..LoginRequest::default()
        };
        Connection::open(url, login, MySqlLimits::default()).unwrap_or_else(|it| panic!("{it:?}"))
    }

    /// Executes a statement, and returns its result.
    pub fn execute(
        &mut self,
        statement: &str,
        values: &[SqlValue<'_>],
    ) -> Result<Answer, MySqlError> {
        self.client
            .execute(statement, values.iter().copied())
            .expect("idle");
        let mut answer = Answer::default();
        self.wait(&mut answer).map(|()| answer)
    }

    /// The rows of a statement, which must succeed.
    pub fn rows(&mut self, statement: &str, values: &[SqlValue<'_>]) -> Vec<Vec<OwnedValue>> {
        let answer = self.execute(statement, values).expect("an answer");
        assert_eq!(answer.failed, None, "{statement}");
        answer.rows
    }

    fn wait(&mut self, answer: &mut Answer) -> Result<(), MySqlError> {
        let mut bytes = vec![0; 16 << 10];
        while !answer.is_ended {
            let output = self.client.output();
            self.socket
                .write_all(output)
                .map_err(|_| MySqlError::Ended)?;
            let len = output.len();
            self.client.sent(len);
            let len = self
                .socket
                .read(&mut bytes)
                .map_err(|_| MySqlError::Ended)?;
            if len == 0 {
                return Err(MySqlError::Ended);
            }
            self.client
                .input(&bytes[..len], &mut |event| answer.record_event(event))?;
        }
        Ok(())
    }
}

impl Answer {
    pub fn record_event(&mut self, event: MySqlEvent<'_>) {
        match event {
            MySqlEvent::StartTls => {}
            MySqlEvent::Ready => self.is_ended = true,
            MySqlEvent::Columns(columns) => {
                self.names = columns.iter().map(|column| column.name.clone()).collect()
            }
            MySqlEvent::Value(value) => self.row.push(to_owned_value(value)),
            MySqlEvent::RowEnd => self.rows.push(std::mem::take(&mut self.row)),
            MySqlEvent::Done { affected, last_id } => {
                (self.affected, self.last_id) = (affected, last_id);
                self.is_ended = true;
            }
            MySqlEvent::Failed(failure) => {
                self.failed = Some((failure.code, failure.state.into(), failure.message.into()));
                self.is_ended = true;
            }
        }
    }
}

fn to_owned_value(value: SqlValue<'_>) -> OwnedValue {
    match value {
        SqlValue::Null => OwnedValue::Null,
        SqlValue::Int(number) => OwnedValue::Int(number),
        SqlValue::UInt(number) => OwnedValue::UInt(number),
        SqlValue::Float(number) => OwnedValue::Float(number),
        SqlValue::Text(text) => OwnedValue::Text(text.into()),
        SqlValue::Bytes(bytes) => OwnedValue::Bytes(bytes.into()),
    }
}
