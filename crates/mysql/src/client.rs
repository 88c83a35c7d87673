//! The client as a state machine: which packet it expects, and how it handles it. The client has no socket and no
//! clock: to enforce timeouts, the caller closes the connection.

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

/// The maximum capacity of a buffer that is kept while empty; a larger one is freed.
const BUFFER_LEN_MAX: usize = 64 << 10;

/// CR_PARAMS_NOT_BOUND, an error number of the range that clients use: "No data supplied for parameters in prepared
/// statement".
const CR_PARAMS_NOT_BOUND: u16 = 2031;

/// The packet that the client expects from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientState {
    /// The greeting.
    Greeting,
    /// No packet is expected until the TLS handshake is complete.
    Tls,
    /// The result of the login, or a further authentication request.
    Login,
    /// The server's public key.
    Key,
    /// The result of a statement that sets session variables.
    Setting,
    /// No packet is expected: the client is ready to execute a statement.
    Idle,
    /// The id of a prepared statement, and the numbers of its parameters and columns.
    Prepared,
    /// The parameter definitions of a statement that is being prepared: `remaining` packets, then `columns` column
    /// definitions.
    Parameters { remaining: usize, columns: usize },
    /// The result of a statement without rows.
    Command,
    /// The number of columns in a result, or the end of a statement without rows.
    Result,
    /// The column definitions of a result, or of a statement that is being prepared.
    Columns {
        at: usize,
        count: usize,
        is_prepared: bool,
    },
    /// A row, or the end of the rows.
    Rows,
    /// No packet is expected: the connection has ended.
    Ended,
}

/// The client side of a connection to a MariaDB or MySQL server.
pub struct MySqlClient {
    login: LoginRequest,
    limits: MySqlLimits,
    random: [u8; 32],
    state: ClientState,
    /// The greeting, which is kept during the TLS handshake, until it is answered.
    greeting: Option<ServerGreeting>,
    is_tls: bool,
    capabilities: SessionCapabilities,
    plugin: AuthPlugin,
    salt: [u8; 20],
    /// The remaining statements that set session variables, in reverse order.
    settings: Vec<String>,
    /// The sequence number of the next packet in either direction.
    sequence: u8,
    /// The start of an incomplete packet.
    partial: Vec<u8>,
    out: Vec<u8>,
    /// The number of bytes of `out` that have been sent.
    sent: usize,
    statements: StatementTable,
    /// The index, in `statements`, of the statement that is being executed.
    current: usize,
    row_count: u32,
    /// While a statement is being prepared: its text, the execute packet to be sent afterwards, and the number of its
    /// values.
    pending_execute: (String, Vec<u8>, usize),
}

impl MySqlClient {
    /// Creates a client for a new connection. `random` must not be used for another connection.
    pub fn new(login: LoginRequest, limits: MySqlLimits, random: [u8; 32]) -> MySqlClient {
        MySqlClient {
            statements: StatementTable::new(limits.statement_count_max),
            login,
            limits,
            random,
            state: ClientState::Greeting,
            greeting: None,
            is_tls: false,
            capabilities: SessionCapabilities::default(),
            plugin: AuthPlugin::Native,
            salt: [0; 20],
            settings: Vec::new(),
            sequence: 0,
            partial: Vec::new(),
            out: Vec::new(),
            sent: 0,
            current: 0,
            row_count: 0,
            pending_execute: (String::new(), Vec::new(), 0),
        }
    }

    /// Whether the client is ready to execute a statement.
    pub fn is_idle(&self) -> bool {
        self.state == ClientState::Idle
    }

    /// The bytes to be sent.
    pub fn output(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    /// Reports that the first `len` bytes of [`output`](MySqlClient::output) have been sent.
    pub fn sent(&mut self, len: usize) {
        self.sent = (self.sent + len).min(self.out.len());
        if self.sent == self.out.len() {
            self.sent = 0;
            self.out.clear();
            // After one large statement, the buffer must not occupy memory for the rest of the connection.
            if self.out.capacity() > BUFFER_LEN_MAX {
                self.out = Vec::new();
            }
        }
    }

    /// Processes bytes from the server, split at any position, and reports events. Buffers at most the start of one
    /// packet.
    ///
    /// # Errors
    /// The connection must be closed; a statement in progress has failed.
    pub fn input(
        &mut self,
        bytes: &[u8],
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        if self.state == ClientState::Ended {
            return Err(MySqlError::Ended);
        }
        let outcome = self.consume(bytes, events);
        // After an error, the packet boundaries or the state are unknown, so no further input can be processed.
        if outcome.is_err() {
            self.close();
        }
        outcome
    }

    /// Ends the connection: no further input or output.
    fn close(&mut self) {
        self.state = ClientState::Ended;
        self.partial = Vec::new();
        self.out = Vec::new();
        self.sent = 0;
    }

    /// Executes a statement; prepares it first if necessary. `values` replace the `?` of the statement. The last event
    /// is `MySqlEvent::Done` or `MySqlEvent::Failed`.
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
        // The number of parameters is known from preparing the statement.
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
        // If the number of values is wrong, a known statement is prepared again; the mismatch is reported when the
        // reply arrives.
        let (text, packet, waiting_count) = &mut self.pending_execute;
        packet.clear();
        // The text is preceded by a command byte, and a packet of the maximum length would need a continuation.
        if statement.len() >= len_max.min(packet::CONTINUED_LEN - 1)
            || !request::execute(packet, 0, values, len_max)
        {
            return Err(StatementRefusal::TooLong);
        }
        text.clear();
        text.push_str(statement);
        // The execute packet is stored with id 0; `set_id` sets the id when the reply arrives.
        *waiting_count = count;
        request::prepare(&mut self.out, statement);
        self.expect(ClientState::Prepared);
        Ok(())
    }

    /// Executes a statement without preparing it, since some statements cannot be prepared. The statement must not
    /// return rows.
    ///
    /// # Errors
    /// The statement was not started.
    pub fn command(&mut self, statement: &str) -> Result<(), StatementRefusal> {
        if self.state != ClientState::Idle {
            return Err(StatementRefusal::Busy);
        }
        if statement.len() >= self.limits.packet_len_max.min(packet::CONTINUED_LEN - 1) {
            return Err(StatementRefusal::TooLong);
        }
        request::query(&mut self.out, statement);
        self.expect(ClientState::Command);
        Ok(())
    }

    /// Sets the state after a command was written.
    fn expect(&mut self, state: ClientState) {
        // Each command starts with sequence number 0; the first packet of the reply has number 1.
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
        // First, the packet that began in earlier input is completed.
        while !self.partial.is_empty() {
            let missing = packet::missing(&self.partial, len_max)?;
            if missing > 0 && rest.is_empty() {
                return Ok(());
            }
            let (part, after) = rest.split_at(missing.min(rest.len()));
            self.partial.extend_from_slice(part);
            rest = after;
            if packet::missing(&self.partial, len_max)? == 0 {
                // The buffer is taken out, since events borrow the packet while the client changes.
                let partial = core::mem::take(&mut self.partial);
                if let Some((packet, _)) = packet::first(&partial, len_max)? {
                    self.packet(&packet, events)?;
                }
                self.recycle_buffer(partial);
            }
        }
        // Complete packets are parsed in the caller's buffer, without a copy.
        while let Some((packet, after)) = packet::first(rest, len_max)? {
            rest = after;
            self.packet(&packet, events)?;
        }
        self.partial.extend_from_slice(rest);
        Ok(())
    }

    /// Reuses a buffer for the next packet that is split over several inputs.
    fn recycle_buffer(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= BUFFER_LEN_MAX {
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
            // A packet while no command is in progress means that the server is shutting down, or has closed an idle
            // session.
            return Err(MySqlError::SessionClosed);
        }
        // A gap in the sequence numbers shows that bytes were lost or injected.
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
            // If it were accepted, a packet that an attacker injects before the handshake would count as received
            // inside TLS.
            ClientState::Tls => Err(MySqlError::Protocol("a packet before the TLS handshake")),
            ClientState::Login => self.login(payload, events),
            ClientState::Key => self.key(payload, events),
            ClientState::Setting => self.setting(payload, events),
            ClientState::Idle | ClientState::Ended => Err(MySqlError::Ended),
        }
    }

    /// Reports that the statement has failed; the connection remains usable.
    fn failed(
        &mut self,
        payload: &[u8],
        events: &mut impl FnMut(MySqlEvent<'_>),
    ) -> Result<(), MySqlError> {
        // An ERR packet ends the command; the session and its prepared statements remain valid.
        failure(payload, events)?;
        self.state = ClientState::Idle;
        Ok(())
    }
}

/// Reports an ERR packet as an event.
fn failure(payload: &[u8], events: &mut impl FnMut(MySqlEvent<'_>)) -> Result<(), MySqlError> {
    let mut from = PacketReader(payload);
    from.u8()?;
    let code = from.u16()?;
    let mut state = &b"HY000"[..];
    // Before the login, ERR packets have no SQLSTATE.
    if from.0.first() == Some(&b'#') {
        from.u8()?;
        state = from.bytes(5)?;
    }
    // Messages may contain bytes in another character set.
    let message: String = from.0.utf8_chunks().map(|chunk| chunk.valid()).collect();
    events(MySqlEvent::Failed(ServerFailure {
        code,
        state: core::str::from_utf8(state).unwrap_or("HY000"),
        message: &message,
    }));
    Ok(())
}
