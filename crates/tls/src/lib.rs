//! TLS without sockets: converts the bytes of the wire to the application's bytes, and back.
//!
//! The crate does no input or output and reads no clock of the system: the caller passes the received bytes and sets
//! the time (`TlsClock`). `rustls` implements the protocol, with the primitives of `aws-lc-rs` ([`provider`]). Only the
//! module `session` uses its (unbuffered) interface.
//!
//! | | |
//! |---|---|
//! | `TlsAcceptor`, `TlsServer` | the TLS settings of a listener; one connection to a client |
//! | `ClientConnector`, `TlsClient`, `ServerTrust` | the settings of a client; one connection to a server; the servers that are accepted |
//! | `TlsFailure`, `TlsFault` | the reason of a connection's end, by side |
//! | [`certificates`] | certificates by name, read from files and checked |
//! | `TicketService` | stateless resumption by session tickets, shared by processes |
//! | [`TicketFile`] | keeps the ticket keys over restarts |
//! | [`authority`] | a certificate authority for development |
//! | [`ktls`] | keys and options for kernel TLS |

#![forbid(unsafe_code)]

pub mod authority;
pub mod certificates;
mod client;
mod clock;
mod decryption;
mod der;
mod failure;
mod identity;
mod key_log;
mod key_update;
pub mod ktls;
mod first_bytes;
mod byte_queue;
mod provider;
mod records;
mod server;
mod session;
mod established;
mod ticket_file;
mod ticket_keys;
mod tickets;
mod server_trust;
pub mod x509;

pub use client::{TlsClient, ClientConnector, is_server_name};
pub use clock::TlsClock;
pub use failure::{TlsFailure, TlsFault};
pub use identity::ClientCertificate;
pub use key_log::KeyLog;
pub use first_bytes::{FirstBytes, opening};
pub use provider::provider;
pub use records::{FULL_LEN, SMALL_LEN};
pub use server::{TlsAcceptor, ClientVerification, TlsServer, TlsServerSettings, MinimumVersion};
pub use session::{PeerClose, ReceiveProgress, RECORD_OVERHEAD_MAX};
pub use ticket_file::TicketFile;
pub use ticket_keys::{PERIOD_S_MAX, TicketKeys};
pub use tickets::TicketService;
pub use server_trust::{ServerTrust, system_pem};
