//! The client as a state machine: the expected packet, and its handling. Has no socket and no clock: the caller
//! enforces timeouts by closing the connection.

mod login;
mod result;

use alloc::string::String;
use alloc::vec::Vec;

use crate::auth::AuthPlugin;
use crate::error::{MySqlError, StatementRefusal};
use crate::event::{MySqlEvent, ServerFailure, SqlValue};
use crate::greeting::{ServerGreeting, SessionCapabilities};
use crate::login::{LoginRequest, MySqlLimits};
use crate::packet::{self, FirstPacket};
use crate::packet_reader::PacketReader;
use crate::request;
use crate::statements::StatementTable;

/// A buffer larger than this is freed when it is empty.
const KEPT_LEN_MAX: usize = 64 << 10;

/// "No data supplied for parameters in prepared statement", from the range of errors that clients generate.
const VALUES_DO_NOT_FIT: u16 = 2031;

/// The packet expected from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientState {
    /// The greeting.
    Greeting,
    /// None before the TLS handshake.
    Tls,
    /// The result of the login, or a further request for it.
    Login,
    /// The server's public key.
    Key,
    /// The result of a session setting.
    Setting,
    /// None: a statement may be executed.
    Idle,
    /// The prepared statement's id, and the numbers of its parameters and columns.
    Prepared,
    /// The parameters of the statement being prepared: `remaining` packets, then `columns` columns.
    Parameters { remaining: usize, columns: usize },
    /// The result of a statement without rows.
    Command,
    /// A result's number of columns, or the end of a statement without rows.
    Result,
    /// The columns of a result, or of the statement being prepared.
    Columns {
        at: usize,
        count: usize,
        is_prepared: bool,
    },
    /// Rows, or their end.
    Rows,
    /// None: the connection has ended.
    Ended,
}

/// The client's side of a connection to a database server.
pub struct MySqlClient {
    login: LoginRequest,
    limits: MySqlLimits,
    random: [u8; 32],
    state: ClientState,
    /// The greeting, until it is answered.
    greeting: Option<ServerGreeting>,
    is_tls: bool,
    dialect: SessionCapabilities,
    plugin: AuthPlugin,
    salt: [u8; 20],
    /// Statements that set up the session, in reverse order.
    settings: Vec<String>,
    /// The sequence number of the next packet in either direction.
    sequence: u8,
    /// The beginning of an incomplete packet.
    partial: Vec<u8>,
    out: Vec<u8>,
    /// The number of bytes of `out` that were sent.
    sent: usize,
    statements: StatementTable,
    /// The index of the executing statement.
    current: usize,
    row_count: u32,
    /// The text of the statement being prepared, the execute packet to send afterwards, and its number of values.
    waiting: (String, Vec<u8>, usize),
}

impl MySqlClient {
    /// A client for a new connection. `random` must be used for this connection only.
    pub fn new(login: LoginRequest, limits: MySqlLimits, random: [u8; 32]) -> MySqlClient {
        MySqlClient {
            statements: StatementTable::new(limits.statement_count_max),
            login,
            limits,
            random,
            state: ClientState::Greeting,
            greeting: None,
            is_tls: false,
            dialect: SessionCapabilities::default(),
            plugin: AuthPlugin::Native,
            salt: [0; 20],
            settings: Vec::new(),
            sequence: 0,
            partial: Vec::new(),
            out: Vec::new(),
            sent: 0,
            current: 0,
            row_count: 0,
            waiting: (String::new(), Vec::new(), 0),
        }
    }

    /// Whether a statement may be executed.
    pub fn is_idle(&self) -> bool {
        self.state == ClientState::Idle
    }

    /// The bytes to send.
    pub fn output(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    /// Reports that the first `len` bytes of [`output`](Client::output) were sent.
    pub fn sent(&mut self, len: usize) {
        self.sent = (self.sent + len).min(self.out.len());
        if self.sent == self.out.len() {
            self.sent = 0;
            self.out.clear();
            // One large statement must not occupy memory for the life of the connection.
            if self.out.capacity() > KEPT_LEN_MAX {
                self.out = Vec::new();
            }
        }
    }

    /// Processes bytes from the server, in pieces of any size, and reports events. Of the input it buffers at most the
    /// beginning of one packet.
    ///
    /// # Errors
    /// The connection must be closed; the statement in progress has failed.
    pub fn input(
        &mut self,
        bytes: &[u8],
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        if self.state == ClientState::Ended {
            return Err(MySqlError::Ended);
        }
        let outcome = self.consume(bytes, events);
        // After an error the packet boundaries or the state are unknown, so no further input can be trusted.
        if outcome.is_err() {
            self.close();
        }
        outcome
    }

    /// Ends the connection: no more input or output.
    fn close(&mut self) {
        self.state = ClientState::Ended;
        self.partial = Vec::new();
        self.out = Vec::new();
        self.sent = 0;
    }

    /// Executes a statement, and prepares it first if necessary; the values are for its `?`. It ends with
    /// `MySqlEvent::Done` or `MySqlEvent::Failed`.
    ///
    /// # Errors
    /// The statement was not started.
    pub fn execute<'v>(
        &mut self,
        statement: &str,
        values: impl ExactSizeIterator<Item = SqlValue<'v>>,
    ) -> Result<(), StatementRefusal> {
        if self.state != ClientState::Idle {
            return Err(StatementRefusal::Busy);
        }
        let len_max = self.limits.packet_len_max;
        let count = values.len();
        let index = self.statements.find(statement);
        // The parameter count was reported when the statement was prepared.
        if let Some((at, existing)) = index.and_then(|at| Some((at, self.statements.at(at)?)))
            && existing.value_count == count
        {
            self.current = at;
            if !request::execute(&mut self.out, existing.id, values, len_max) {
                return Err(StatementRefusal::TooLong);
            }
            self.expect(ClientState::Result);
            return Ok(());
        }
        // A known statement with the wrong number of values is prepared again; the reply to that reports the mismatch.
        let (text, packet, waiting_count) = &mut self.waiting;
        packet.clear();
        // The text has a command byte before it, and a packet of the longest length would need a continuation.
        if statement.len() >= len_max.min(packet::LEN_END - 1)
            || !request::execute(packet, 0, values, len_max)
        {
            return Err(StatementRefusal::TooLong);
        }
        text.clear();
        text.push_str(statement);
        // The execute packet is kept with id 0; `set_id` fills it in when the reply arrives.
        *waiting_count = count;
        request::prepare(&mut self.out, statement);
        self.expect(ClientState::Prepared);
        Ok(())
    }

    /// Executes a statement without preparing it, since some statements cannot be prepared. It must return no rows.
    ///
    /// # Errors
    /// The statement was not started.
    pub fn command(&mut self, statement: &str) -> Result<(), StatementRefusal> {
        if self.state != ClientState::Idle {
            return Err(StatementRefusal::Busy);
        }
        if statement.len() >= self.limits.packet_len_max.min(packet::LEN_END - 1) {
            return Err(StatementRefusal::TooLong);
        }
        request::query(&mut self.out, statement);
        self.expect(ClientState::Command);
        Ok(())
    }

    /// Enters the state after a command was written.
    fn expect(&mut self, state: ClientState) {
        // Each command starts a new sequence with 0; the reply's first packet has 1.
        self.sequence = 1;
        self.row_count = 0;
        self.state = state;
    }

    fn consume(
        &mut self,
        bytes: &[u8],
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        let len_max = self.limits.packet_len_max;
        let mut rest = bytes;
        // First completes the packet that the last input ended within.
        while !self.partial.is_empty() {
            let missing = packet::missing(&self.partial, len_max)?;
            if missing > 0 && rest.is_empty() {
                return Ok(());
            }
            let (part, after) = rest.split_at(missing.min(rest.len()));
            self.partial.extend_from_slice(part);
            rest = after;
            if packet::missing(&self.partial, len_max)? == 0 {
                // Taken out, since the events may borrow the packet while the client changes.
                let partial = core::mem::take(&mut self.partial);
                if let Some((packet, _)) = packet::first(&partial, len_max)? {
                    self.packet(&packet, events)?;
                }
                self.recycle_buffer(partial);
            }
        }
        // Whole packets are parsed from the caller's buffer without a copy.
        while let Some((packet, after)) = packet::first(rest, len_max)? {
            rest = after;
            self.packet(&packet, events)?;
        }
        self.partial.extend_from_slice(rest);
        Ok(())
    }

    /// Keeps a buffer for the next packet that arrives in pieces.
    fn recycle_buffer(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= KEPT_LEN_MAX {
            buffer.clear();
            self.partial = buffer;
        }
    }

    fn packet(
        &mut self,
        packet: &FirstPacket<'_>,
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        if self.state == ClientState::Idle {
            // Without a command in progress a packet means that the server shuts down, or has closed an idle session.
            return Err(MySqlError::Dismissed);
        }
        // A gap shows that bytes were lost or injected.
        if packet.sequence != self.sequence {
            return Err(MySqlError::Protocol("a packet has the wrong number"));
        }
        self.sequence = self.sequence.wrapping_add(1);
        let payload = packet.payload;
        match self.state {
            ClientState::Rows => self.row(payload, events),
            ClientState::Result => self.result(payload, events),
            ClientState::Command => self.command_done(payload, events),
            ClientState::Columns {
                at,
                count,
                is_prepared,
            } => self.column(payload, at, count, is_prepared, events),
            ClientState::Prepared => self.prepared(payload, events),
            ClientState::Parameters { remaining, columns } => {
                self.parameter(payload, remaining, columns, events)
            }
            ClientState::Greeting => self.greeting(payload, events),
            // An attacker could inject a packet before the handshake that would then count as received inside TLS.
            ClientState::Tls => Err(MySqlError::Protocol("a packet before the TLS handshake")),
            ClientState::Login => self.login(payload, events),
            ClientState::Key => self.key(payload, events),
            ClientState::Setting => self.setting(payload, events),
            ClientState::Idle | ClientState::Ended => Err(MySqlError::Ended),
        }
    }

    /// The statement has failed; the connection remains usable.
    fn failed(
        &mut self,
        payload: &[u8],
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        // An ERR packet ends the command; the session and its prepared statements stay valid.
        failure(payload, events)?;
        self.state = ClientState::Idle;
        Ok(())
    }
}

/// Reports an ERR packet.
fn failure(payload: &[u8], events: &mut impl FnMut(MySqlEvent<'_>)) -> Result<(), MySqlError> {
    let mut from = PacketReader(payload);
    from.u8()?;
    let code = from.u16()?;
    let mut state = &b"HY000"[..];
    // Before the login an ERR packet has no SQLSTATE.
    if from.0.first() == Some(&b'#') {
        from.u8()?;
        state = from.bytes(5)?;
    }
    // Messages may contain bytes of another character set.
    let message: String = from.0.utf8_chunks().map(|chunk| chunk.valid()).collect();
    events(MySqlEvent::Failed(ServerFailure {
        code,
        state: core::str::from_utf8(state).unwrap_or("HY000"),
        message: &message,
    }));
    Ok(())
}
