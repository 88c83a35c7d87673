//! The settings of a connection: the account, TLS, the session's variables and the limits.

use alloc::string::String;

/// When a client uses TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsPolicy {
    /// Never.
    #[default]
    Never,
    /// If the server offers it.
    IfOffered,
    /// Always: a server without TLS is an error.
    Required,
}

/// The account, and the session's settings.
#[derive(Clone, Debug, Default)]
pub struct LoginRequest {
    /// The user's name.
    pub user: String,
    /// The password; empty for none.
    pub password: String,
    /// The default database of statements; empty for none.
    pub database: String,
    /// The session refuses to write (`SET SESSION TRANSACTION READ ONLY`).
    pub read_only: bool,
    /// Milliseconds after which the server aborts a statement; 0: never.
    pub statement_timeout_ms: u32,
    /// `caching_sha2_password` (MySQL 8) requires the whole password of a user that is not in the server's cache, and
    /// `sha256_password` always. TLS protects it. On a connection without TLS the password is sent with this setting
    /// only, encrypted with the key that the server sends: an active attacker can then impersonate the server and
    /// learn the password. Without this setting such a login is an error.
    pub trusts_key: bool,
    /// Whether the connection uses TLS; see `MySqlEvent::StartTls`.
    pub tls: TlsPolicy,
    /// The session's character set; empty for utf8mb4.
    pub charset: String,
    /// The session's collation; empty for that of the character set.
    pub collation: String,
    /// The session's time zone; empty for UTC.
    pub time_zone: String,
}

/// Limits on a server's input. Exceeding one is the `MySqlError` of its name.
#[derive(Clone, Copy, Debug)]
pub struct MySqlLimits {
    /// Bytes of a packet, and so of a row and of a statement; at most 16 MiB - 2.
    pub packet_len_max: usize,
    /// Columns of a result.
    pub column_count_max: usize,
    /// Rows of a result.
    pub row_count_max: u32,
    /// Cached prepared statements; at least 1.
    pub statement_count_max: usize,
}

impl Default for MySqlLimits {
    fn default() -> MySqlLimits {
        MySqlLimits {
            packet_len_max: 1 << 20,
            column_count_max: 256,
            row_count_max: 10_000,
            statement_count_max: 32,
        }
    }
}
