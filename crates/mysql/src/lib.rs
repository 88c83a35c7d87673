//! A sans-I/O client of MariaDB and MySQL: the MySQL client/server protocol with prepared statements, as bytes in,
//! bytes out and events. Has no socket, clock, thread or random source, and is independent of its callers.
//!
//! ```text
//! Client::new ──input: greeting──► output: login ──input: ok──► output: settings ──input: ok──► Event::Ready
//!           └──Event::StartTls, TLS handshake, tls_started──► output: login …
//! execute ──► output ──input──► Event::Columns, (Event::Value…, Event::RowEnd)…, Event::Done
//!                          └──► Event::Failed: the connection stays usable
//! ```
//!
//! One statement is in progress at a time. A server's fault is reported as `MySqlError`, after which the connection
//! must be closed and replaced, with a new `MySqlClient`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod auth;
mod client;
mod column;
mod data_fault;
mod date_time;
mod error;
mod event;
mod greeting;
mod login;
mod packet;
mod packet_reader;
mod password_encryption;
mod request;
mod row;
mod statements;

pub use client::MySqlClient;
pub use column::{ColumnInfo, ColumnType};
pub use data_fault::DataFault;
pub use error::{MySqlError, StatementRefusal};
pub use event::{MySqlEvent, ServerFailure, SqlValue};
pub use login::{LoginRequest, MySqlLimits, TlsPolicy};
