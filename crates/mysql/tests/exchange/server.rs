//! The server's side of the protocol, as bytes. This module is independent of the client.

use lowroad_mysql::{LoginRequest, MySqlClient, MySqlError, MySqlEvent, MySqlLimits};

pub const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
/// The end of rows, if the server sends no EOF packets.
pub const END: &[u8] = &[0xfe, 0, 0, 2, 0, 0, 0];
pub const EOF: &[u8] = &[0xfe, 0, 0, 2, 0];
pub const UNKNOWN_COLUMN: &[u8] = b"\xff\x1e\x04#42S22Unknown column 'x'";

/// The capabilities of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Lists end with an EOF packet.
    Old,
    /// MySQL 8: no EOF packets.
    New,
    /// MariaDB: no EOF packets, and known columns are omitted.
    Caching,
}

/// Encodes a packet.
pub fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_le_bytes()[..3].to_vec();
    bytes.push(sequence);
    bytes.extend_from_slice(payload);
    bytes
}

/// The payload of the greeting.
pub fn greeting(dialect: Dialect, plugin: &str) -> Vec<u8> {
    let is_mysql = u8::from(dialect != Dialect::Caching);
    let deprecates_eof = u8::from(dialect != Dialect::Old);
    let caches = u8::from(dialect == Dialect::Caching) << 4;
    let mut payload = b"\x0a8.0.40\0\x01\0\0\x0001234567\0".to_vec();
    payload.extend_from_slice(&[0xfe | is_mysql, 0xf7, 45, 2, 0, 0x28, deprecates_eof, 21]);
    payload.extend_from_slice(&[0, 0, 0, 0, 0, 0, caches, 0, 0, 0]);
    payload.extend_from_slice(b"890123456789\0");
    payload.extend_from_slice(plugin.as_bytes());
    payload.push(0);
    payload
}

/// A column definition with this name, type and flags.
pub fn column(name: &str, kind: u8, flags: u8) -> Vec<u8> {
    let mut payload = b"\x03def\x04test\x01t\x01t".to_vec();
    for _ in 0..2 {
        payload.push(name.len() as u8);
        payload.extend_from_slice(name.as_bytes());
    }
    payload.extend_from_slice(&[12, 224, 0, 255, 0, 0, 0, kind, flags, 0, 0, 0, 0]);
    payload
}

/// A client, and its events since they were last taken.
pub struct ClientHarness {
    pub client: MySqlClient,
    pub events: Vec<String>,
}

impl ClientHarness {
    pub fn new(login: LoginRequest, limits: MySqlLimits) -> ClientHarness {
        let client = MySqlClient::new(login, limits, [3; 32]);
        ClientHarness {
            client,
            events: Vec::new(),
        }
    }

    /// A client that has logged in.
    pub fn ready(dialect: Dialect, limits: MySqlLimits) -> ClientHarness {
        let mut harness = ClientHarness::new(LoginRequest::default(), limits);
        harness
            .receive_packet(0, &greeting(dialect, "mysql_native_password"))
            .expect("a greeting");
        harness.take_output();
        harness.receive_packet(2, OK).expect("a login");
        assert!(harness.take_output()[5..].starts_with(b"SET "));
        harness.receive_packet(1, OK).expect("a setting");
        assert_eq!(harness.take_events(), ["Ready"]);
        harness
    }

    /// Passes a packet from the server to the client.
    pub fn receive_packet(&mut self, sequence: u8, payload: &[u8]) -> Result<(), MySqlError> {
        self.input(&packet(sequence, payload))
    }

    /// Passes bytes from the server to the client.
    pub fn input(&mut self, bytes: &[u8]) -> Result<(), MySqlError> {
        let told = &mut self.events;
        self.client
            .input(bytes, &mut |event| told.push(name(event)))
    }

    /// The client's output since the last call.
    pub fn take_output(&mut self) -> Vec<u8> {
        let said = self.client.output().to_vec();
        self.client.sent(said.len());
        said
    }

    /// The client's events since the last call.
    pub fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }
}

/// A short text for an event.
fn name(event: MySqlEvent<'_>) -> String {
    match event {
        MySqlEvent::Columns(columns) => {
            let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            format!("Columns {}", names.join(" "))
        }
        MySqlEvent::Value(value) => format!("{value:?}"),
        MySqlEvent::Failed(failure) => format!(
            "Failed {} {} {}",
            failure.code, failure.state, failure.message
        ),
        MySqlEvent::Done { affected, last_id } => format!("Done {affected} {last_id}"),
        other => format!("{other:?}"),
    }
}
