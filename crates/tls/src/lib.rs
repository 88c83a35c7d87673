//! TLS: bytes of the wire in, bytes of the application out, and the other way round. It knows no socket, and no
//! clock of its own: whoever has both says what has come and what time it is ([`Clock`]).
//!
//! `rustls` lies behind this interface, with the primitives of `aws-lc-rs` ([`provider`]). Which of its interfaces is
//! used (the unbuffered one) is known to `session` and nobody else.
//!
//! | | |
//! |---|---|
//! | [`Acceptor`], [`Server`] | what a listener offers; one connection to a client |
//! | [`Connector`], [`Client`], [`Trust`] | what is offered to servers; one connection to a server; which are accepted |
//! | [`Failure`], [`Fault`] | why a connection ends, and whose fault it is |
//! | [`certificates`] | certificates by name, read from files and checked |
//! | [`Tickets`] | resumption without memory, shared by processes |
//! | [`TicketFile`] | keeps its keys over restarts |
//! | [`authority`] | a certificate authority for development |
//! | [`ktls`] | what the kernel wants to know to go on by itself |

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
mod opening;
mod pieces;
mod provider;
mod records;
mod server;
mod session;
mod settled;
mod ticket_file;
mod ticket_keys;
mod tickets;
mod trust;
pub mod x509;

pub use client::{Client, Connector, is_server_name};
pub use clock::Clock;
pub use failure::{Failure, Fault};
pub use identity::ClientCertificate;
pub use key_log::KeyLog;
pub use opening::{Opening, opening};
pub use provider::provider;
pub use records::{FULL_LEN, SMALL_LEN};
pub use server::{Acceptor, ClientCertificates, Server, Settings, Version};
pub use session::{Ended, Progress, RECORD_OVERHEAD_MAX};
pub use ticket_file::TicketFile;
pub use ticket_keys::{PERIOD_S_MAX, TicketKeys};
pub use tickets::Tickets;
pub use trust::{Trust, system_pem};
