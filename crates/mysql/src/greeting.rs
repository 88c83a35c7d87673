//! Parses the server's greeting (handshake version 10) and builds the reply. Negotiates capabilities. This module is
//! independent of passwords.

use alloc::string::String;
use alloc::vec::Vec;

use crate::auth::AuthPlugin;
use crate::error::MySqlError;
use crate::login::LoginRequest;
use crate::packet;
use crate::packet_reader::PacketReader;

/// Capability flags (CLIENT_…).
const CLIENT_MYSQL: u32 = 1;
const CONNECT_WITH_DB: u32 = 1 << 3;
const PROTOCOL_41: u32 = 1 << 9;
const TLS: u32 = 1 << 11;
const TRANSACTIONS: u32 = 1 << 13;
const SECURE_CONNECTION: u32 = 1 << 15;
const MULTI_RESULTS: u32 = 1 << 17;
const PREPARED_MULTI_RESULTS: u32 = 1 << 18;
const PLUGIN_AUTH: u32 = 1 << 19;
const PLUGIN_AUTH_LENENC: u32 = 1 << 21;
const DEPRECATE_EOF: u32 = 1 << 24;

/// MariaDB's extension CLIENT_CACHE_METADATA: the column definitions of a prepared statement are sent again only if
/// they have changed.
const CACHE_METADATA: u32 = 1 << 4;

/// utf8mb4_unicode_ci
const COLLATION: u8 = 224;

/// The server's greeting, the first packet of a connection.
pub struct ServerGreeting {
    /// The server's capabilities.
    capabilities: u32,
    /// MariaDB's extended capabilities.
    extensions: u32,
    /// Whether the server is MariaDB and not MySQL.
    pub is_mariadb: bool,
    /// The salt (challenge) of password authentication.
    pub salt: [u8; 20],
    /// The default authentication method.
    pub plugin: AuthPlugin,
}

/// Capabilities that both the client and the server support.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionCapabilities {
    /// Whether lists of columns are not followed by an EOF packet.
    pub deprecates_eof: bool,
    /// Whether the column definitions of a prepared statement are sent again only if they have changed.
    pub caches_columns: bool,
}

/// Parses the greeting.
///
/// # Errors
/// The greeting is malformed, or the server is too old.
pub fn read(payload: &[u8]) -> Result<ServerGreeting, MySqlError> {
    let mut from = PacketReader(payload);
    if from.u8()? != 10 {
        return Err(MySqlError::Unsupported(
            "the database server does not use protocol version 10",
        ));
    }
    let version = from.until_zero();
    // The connection id is skipped.
    from.bytes(4)?;
    let mut salt = [0; 20];
    // The salt is in two parts, before and after the capabilities, for old clients that know only the first part.
    salt[..8].copy_from_slice(&from.array::<8>()?);
    from.u8()?;
    let low = from.u16()?;
    from.bytes(3)?;
    let capabilities = u32::from(low) | u32::from(from.u16()?) << 16;
    let salt_len = from.u8()?;
    from.bytes(6)?;
    let extensions = from.u32()?;
    let required = PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH;
    // The 21 bytes are the salt and a terminating zero.
    if capabilities & required != required || salt_len < 21 {
        return Err(MySqlError::Unsupported(
            "the database server is too old: version 5.5 or later is required",
        ));
    }
    salt[8..].copy_from_slice(&from.array::<12>()?);
    from.bytes(usize::from(salt_len).saturating_sub(20))?;
    let is_mariadb = version.windows(7).any(|part| part == b"MariaDB");
    Ok(ServerGreeting {
        capabilities,
        // In MySQL's greeting, these bytes are reserved.
        extensions: if capabilities & CLIENT_MYSQL == 0 {
            extensions
        } else {
            0
        },
        is_mariadb,
        salt,
        plugin: AuthPlugin::from_name(from.until_zero()),
    })
}

impl ServerGreeting {
    /// Whether the server offers TLS.
    pub fn offers_tls(&self) -> bool {
        self.capabilities & TLS != 0
    }

    /// The capabilities that both the client and the server support.
    pub fn session_capabilities(&self) -> SessionCapabilities {
        SessionCapabilities {
            deprecates_eof: self.capabilities & DEPRECATE_EOF != 0,
            caches_columns: self.extensions & CACHE_METADATA != 0,
        }
    }

    /// Writes the payload of SSLRequest, which equals the start of the reply.
    pub fn tls_request(&self, login: &LoginRequest, to: &mut Vec<u8>) {
        self.head(login, true, to);
    }

    /// Writes the payload of the reply. `auth_response` belongs to `plugin`; `is_tls` tells whether TLS is in use.
    pub fn answer(
        &self,
        login: &LoginRequest,
        plugin: &AuthPlugin,
        auth_response: &[u8],
        is_tls: bool,
        to: &mut Vec<u8>,
    ) {
        let capabilities = self.head(login, is_tls, to);
        write_zero_terminated(to, &login.user);
        if capabilities & PLUGIN_AUTH_LENENC != 0 {
            packet::write_lenenc(to, auth_response.len());
        } else {
            // Without the length-encoded form, responses are at most 255 bytes long.
            to.push(auth_response.len() as u8);
        }
        to.extend_from_slice(auth_response);
        if capabilities & CONNECT_WITH_DB != 0 {
            write_zero_terminated(to, &login.database);
        }
        write_zero_terminated(to, plugin.name());
    }

    /// Writes the capabilities, the maximum packet length and the collation. Returns the capabilities.
    fn head(&self, login: &LoginRequest, is_tls: bool, to: &mut Vec<u8>) -> u32 {
        // MULTI_RESULTS is needed for procedures, PREPARED_MULTI_RESULTS for procedures in prepared statements.
        let mut requested = PROTOCOL_41
            | TRANSACTIONS
            | SECURE_CONNECTION
            | MULTI_RESULTS
            | PREPARED_MULTI_RESULTS
            | PLUGIN_AUTH
            | PLUGIN_AUTH_LENENC
            | DEPRECATE_EOF
            | CONNECT_WITH_DB;
        if is_tls {
            requested |= TLS;
        }
        // With this flag and an empty name, servers would report an unknown database.
        if login.database.is_empty() {
            requested &= !CONNECT_WITH_DB;
        }
        // If the first bit is not set, MariaDB reads its extended capabilities from the following bytes.
        if self.extensions & CACHE_METADATA == 0 {
            requested |= CLIENT_MYSQL;
        }
        // A client may set only flags that the server has set.
        let capabilities = requested & (self.capabilities | CLIENT_MYSQL);
        to.extend_from_slice(&capabilities.to_le_bytes());
        to.extend_from_slice(&(packet::CONTINUED_LEN as u32).to_le_bytes());
        to.push(COLLATION);
        to.extend_from_slice(&[0; 19]);
        to.extend_from_slice(&(self.extensions & CACHE_METADATA).to_le_bytes());
        capabilities
    }
}

fn write_zero_terminated(to: &mut Vec<u8>, text: &str) {
    // A zero byte would end the field early, and shift the following fields.
    to.extend(text.bytes().filter(|&byte| byte != 0));
    to.push(0);
}

/// `text`, or `default` if it is empty.
fn or_default<'t>(text: &'t str, default: &'t str) -> &'t str {
    if text.is_empty() { default } else { text }
}

/// The clause `NAMES … COLLATE …` of SET.
fn names(login: &LoginRequest) -> String {
    let charset = or_default(&login.charset, "utf8mb4");
    let default = match charset {
        "utf8mb4" => "utf8mb4_unicode_ci",
        // With an empty text, the server chooses the collation.
        _ => "",
    };
    match or_default(&login.collation, default) {
        "" => alloc::format!("NAMES {charset}"),
        collation => alloc::format!("NAMES {charset} COLLATE {collation}"),
    }
}

/// The statements that set the session variables which pages rely on, so that all servers behave alike.
pub fn settings(login: &LoginRequest, is_mariadb: bool) -> Vec<String> {
    let mut all = alloc::vec![alloc::format!(
        // `||` concatenates, as in other databases; the default time zone is UTC.
        "SET sql_mode=(SELECT CONCAT(@@sql_mode, ',PIPES_AS_CONCAT,NO_ENGINE_SUBSTITUTION')),time_zone='{}',{}",
        or_default(&login.time_zone, "+00:00"),
        names(login),
    )];
    let timeout_ms = login.statement_timeout_ms;
    // MariaDB's limit is in seconds with decimals, MySQL's in milliseconds.
    match (timeout_ms, is_mariadb) {
        (0, _) => {}
        (_, true) => all.push(alloc::format!(
            "SET SESSION max_statement_time={}.{:03}",
            timeout_ms / 1_000,
            timeout_ms % 1_000
        )),
        (_, false) => all.push(alloc::format!(
            "SET SESSION max_execution_time={timeout_ms}"
        )),
    }
    if login.read_only {
        all.push(String::from("SET SESSION TRANSACTION READ ONLY"));
    }
    all
}
