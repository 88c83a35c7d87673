//! The server's first packet (handshake version 10) and the reply to it. Negotiates capabilities; independent of
//! passwords.

use alloc::string::String;
use alloc::vec::Vec;

use crate::auth::AuthPlugin;
use crate::error::MySqlError;
use crate::login::LoginRequest;
use crate::packet;
use crate::packet_reader::PacketReader;

/// Bits of the capabilities.
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

/// MariaDB's extension: the columns of a prepared statement are not sent again while they are unchanged.
const CACHE_METADATA: u32 = 1 << 4;

/// utf8mb4_unicode_ci
const COLLATION: u8 = 224;

/// A server's greeting.
pub struct ServerGreeting {
    /// The server's capabilities.
    capabilities: u32,
    /// MariaDB's extended capabilities.
    extensions: u32,
    /// MariaDB, not MySQL.
    pub is_mariadb: bool,
    /// The salt of the password proof.
    pub salt: [u8; 20],
    /// The default authentication method.
    pub plugin: AuthPlugin,
}

/// Capabilities that both sides have.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionCapabilities {
    /// Lists of columns are not followed by an EOF packet.
    pub deprecates_eof: bool,
    /// The columns of a prepared statement are not sent again while they are unchanged.
    pub caches_columns: bool,
}

/// Parses the greeting.
///
/// # Errors
/// It is malformed, or the server is too old.
pub fn read(payload: &[u8]) -> Result<ServerGreeting, MySqlError> {
    let mut from = PacketReader(payload);
    if from.u8()? != 10 {
        return Err(MySqlError::Unsupported(
            "the database server does not use protocol version 10",
        ));
    }
    let version = from.until_zero();
    // The connection id.
    from.bytes(4)?;
    let mut salt = [0; 20];
    // The salt is in two parts around the capabilities, for old clients that know only the first.
    salt[..8].copy_from_slice(&from.array::<8>()?);
    from.u8()?;
    let low = from.u16()?;
    from.bytes(3)?;
    let capabilities = u32::from(low) | u32::from(from.u16()?) << 16;
    let salt_len = from.u8()?;
    from.bytes(6)?;
    let extensions = from.u32()?;
    let required = PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH;
    // 21 bytes: the salt and its final zero.
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
        // In MySQL's greeting these bytes are reserved.
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

    /// The capabilities that both sides have.
    pub fn dialect(&self) -> SessionCapabilities {
        SessionCapabilities {
            deprecates_eof: self.capabilities & DEPRECATE_EOF != 0,
            caches_columns: self.extensions & CACHE_METADATA != 0,
        }
    }

    /// Writes the payload of the TLS request, which equals the beginning of the reply.
    pub fn tls_request(&self, login: &LoginRequest, to: &mut Vec<u8>) {
        self.head(login, true, to);
    }

    /// Writes the reply's payload; `auth_response` is the password in the form of `plugin`, and `is_tls` whether TLS has begun.
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
            // Without the length-encoded form proofs are at most 255 bytes long.
            to.push(auth_response.len() as u8);
        }
        to.extend_from_slice(auth_response);
        if capabilities & CONNECT_WITH_DB != 0 {
            write_zero_terminated(to, &login.database);
        }
        write_zero_terminated(to, plugin.name());
    }

    /// Writes capabilities, the longest packet and the collation. Returns the capabilities.
    fn head(&self, login: &LoginRequest, is_tls: bool, to: &mut Vec<u8>) -> u32 {
        // Multiple results are needed for procedures, PREPARED_MULTI_RESULTS for those in prepared statements.
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
        // With the flag and an empty name, servers would report an unknown database.
        if login.database.is_empty() {
            requested &= !CONNECT_WITH_DB;
        }
        // Without the first bit, MariaDB reads its extended capabilities from the bytes that follow.
        if self.extensions & CACHE_METADATA == 0 {
            requested |= CLIENT_MYSQL;
        }
        // A client may only set bits that the server has.
        let capabilities = requested & (self.capabilities | CLIENT_MYSQL);
        to.extend_from_slice(&capabilities.to_le_bytes());
        to.extend_from_slice(&(packet::LEN_END as u32).to_le_bytes());
        to.push(COLLATION);
        to.extend_from_slice(&[0; 19]);
        to.extend_from_slice(&(self.extensions & CACHE_METADATA).to_le_bytes());
        capabilities
    }
}

fn write_zero_terminated(to: &mut Vec<u8>, text: &str) {
    // A zero byte would end the field early and shift the following ones.
    to.extend(text.bytes().filter(|&byte| byte != 0));
    to.push(0);
}

/// A setting, or its default if it is empty.
fn or_default<'t>(text: &'t str, default: &'t str) -> &'t str {
    if text.is_empty() { default } else { text }
}

/// `NAMES … COLLATE …`
fn names(login: &LoginRequest) -> String {
    let charset = or_default(&login.charset, "utf8mb4");
    let default = match charset {
        "utf8mb4" => "utf8mb4_unicode_ci",
        // An empty text leaves the choice to the server.
        _ => "",
    };
    match or_default(&login.collation, default) {
        "" => alloc::format!("NAMES {charset}"),
        collation => alloc::format!("NAMES {charset} COLLATE {collation}"),
    }
}

/// The statements that set the session variables that pages rely on, equal for all servers.
pub fn settings(login: &LoginRequest, is_mariadb: bool) -> Vec<String> {
    let mut all = alloc::vec![alloc::format!(
        // `||` concatenates as in the other databases; times are in UTC by default.
        "SET sql_mode=(SELECT CONCAT(@@sql_mode, ',PIPES_AS_CONCAT,NO_ENGINE_SUBSTITUTION')),time_zone='{}',{}",
        or_default(&login.time_zone, "+00:00"),
        names(login),
    )];
    let timeout_ms = login.statement_timeout_ms;
    // MariaDB's limit is in seconds with a fraction, MySQL's in milliseconds.
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
