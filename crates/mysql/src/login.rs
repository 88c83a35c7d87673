//! What a client is told about its server: who it is there, and how far it goes.

use alloc::string::String;

/// Who asks, and where.
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
    /// `caching_sha2_password` (MySQL 8) wants the whole password of a user it has not seen for a while. With
    /// this it is sent, encrypted with the key that the server says is its own: somebody between the two can
    /// then take the server's place and learn the password. Without it such a login is an error.
    pub trusts_key: bool,
    /// A server that can do TLS is told nothing: this ends with [`Error::OffersTls`](crate::Error).
    pub yields_to_tls: bool,
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
