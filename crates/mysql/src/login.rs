//! The settings of a connection: account, TLS, session variables, and limits.

use alloc::string::String;

/// Whether a client uses TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsPolicy {
    /// TLS is never used.
    #[default]
    Never,
    /// TLS is used if the server offers it.
    IfOffered,
    /// TLS is always used: a server without TLS is an error.
    Required,
}

/// The account, and the settings of the session.
#[derive(Clone, Debug, Default)]
pub struct LoginRequest {
    /// The user's name.
    pub user: String,
    /// The password; empty if there is none.
    pub password: String,
    /// The default database; empty if there is none.
    pub database: String,
    /// Whether the server must reject writes in this session (`SET SESSION TRANSACTION READ ONLY`).
    pub read_only: bool,
    /// Time limit for statements, enforced by the server, in milliseconds; 0: none.
    pub statement_timeout_ms: u32,
    /// Whether the password may be sent without TLS, encrypted with a public key that the server sends: an active
    /// attacker impersonating the server can then learn the password. `sha256_password` always requires the full
    /// password; `caching_sha2_password` (MySQL 8) requires it for users that are not in the server's cache. Without
    /// TLS and without this setting, such a login is an error.
    pub trusts_key: bool,
    /// Whether the connection uses TLS; see `MySqlEvent::StartTls`.
    pub tls: TlsPolicy,
    /// The session's character set; empty for utf8mb4.
    pub charset: String,
    /// The session's collation; empty for the default collation of the character set.
    pub collation: String,
    /// The session's time zone; empty for UTC.
    pub time_zone: String,
}

/// Limits for the server's input. Exceeding a limit is an error: the `MySqlError` with the corresponding name.
#[derive(Clone, Copy, Debug)]
pub struct MySqlLimits {
    /// Maximum length of a packet in bytes, and thus of a row or statement; at most 16 MiB - 2.
    pub packet_len_max: usize,
    /// Maximum number of columns in a result.
    pub column_count_max: usize,
    /// Maximum number of rows in a result.
    pub row_count_max: u32,
    /// Maximum number of cached prepared statements; at least 1.
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
