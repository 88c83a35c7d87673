//! TLS without sockets: converts received bytes to the application's bytes, and the application's bytes to bytes to
//! send.
//!
//! The crate does no I/O on sockets and does not read the system's clock: the caller passes the received bytes and sets
//! the time (`TlsClock`). `rustls` implements the protocol, with the cryptography of `aws-lc-rs` ([`provider`]). Only
//! the module `session` uses the unbuffered interface of `rustls`.
//!
//! | | |
//! |---|---|
//! | `TlsAcceptor`, `TlsServer` | the TLS settings of a listener; one connection to a client |
//! | `ClientConnector`, `TlsClient`, `ServerTrust` | the settings of a client; one connection to a server; the servers that a client accepts |
//! | `TlsFailure`, `TlsFault` | the reasons for which a connection fails |
//! | [`certificates`] | certificates by name, read from files and checked |
//! | `TicketService` | stateless resumption by session tickets, shared by processes |
//! | [`TicketFile`] | stores the ticket keys across restarts |
//! | [`authority`] | a certificate authority for development |
//! | [`quic`] | handshakes of QUIC, without records |
//! | [`ktls`] | keys and options for kernel TLS |

#![forbid(unsafe_code)]

pub mod authority;
mod byte_queue;
pub mod certificates;
mod client;
mod clock;
mod decryption;
mod der;
mod established;
mod failure;
mod first_bytes;
mod identity;
mod key_log;
mod key_update;
pub mod ktls;
mod provider;
pub mod quic;
mod records;
mod server;
mod server_trust;
mod session;
mod ticket_file;
mod ticket_keys;
mod tickets;
pub mod x509;

pub use client::{ClientConnector, TlsClient, is_server_name};
pub use clock::TlsClock;
pub use failure::{TlsFailure, TlsFault};
pub use first_bytes::{FirstBytes, classify};
pub use identity::ClientCertificate;
pub use key_log::KeyLog;
pub use provider::provider;
pub use records::{FULL_LEN, SMALL_LEN};
pub use server::{ClientVerification, MinimumVersion, TlsAcceptor, TlsServer, TlsServerSettings};
pub use server_trust::{ServerTrust, system_pem};
pub use session::{PeerClose, RECORD_OVERHEAD_MAX, ReceiveProgress};
pub use ticket_file::TicketFile;
pub use ticket_keys::{PERIOD_S_MAX, TicketKeys};
pub use tickets::TicketService;
