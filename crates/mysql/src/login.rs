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

/// The account, and the session that is wanted.
#[derive(Clone, Debug, Default)]
pub struct Login {
    /// The user's name.
    pub user: String,
    /// The password; empty for none.
    pub password: String,
    /// The database that statements mean when they name none; empty for none.
    pub database: String,
    /// The session refuses to write (`SET SESSION TRANSACTION READ ONLY`).
    pub read_only: bool,
    /// Milliseconds after which the server ends a statement by itself; 0: never.
    pub statement_timeout_ms: u32,
    /// `caching_sha2_password` (MySQL 8) wants the whole password of a user it has not seen for a while, and
    /// `sha256_password` always. TLS protects it. On a connection without TLS the password is sent with this setting only,
    /// encrypted with the key that the server says is its own: an attacker between the two can then take the
    /// server's place and learn the password. Without it such a login is an error.
    pub trusts_key: bool,
    /// Whether the connection goes on over TLS; see [`Event::StartTls`](crate::Event).
    pub tls: TlsPolicy,
    /// The session's character set; empty for utf8mb4.
    pub charset: String,
    /// The session's collation; empty for that of the character set.
    pub collation: String,
    /// The session's time zone; empty for UTC.
    pub time_zone: String,
}

/// How much a server may make the client do. Each is counted by the [`Error`](crate::Error) that names it.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one packet, and so of one row and of one statement; at most 16 MiB - 2.
    pub packet_len_max: usize,
    /// Columns of a result.
    pub column_count_max: usize,
    /// Rows of a result.
    pub row_count_max: u32,
    /// Statements that are kept prepared; at least 1.
    pub statement_count_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            packet_len_max: 1 << 20,
            column_count_max: 256,
            row_count_max: 10_000,
            statement_count_max: 32,
        }
    }
}
