//! A sans-I/O client for MariaDB and MySQL: the MySQL client/server protocol with prepared statements, as input bytes,
//! output bytes and events. The client has no socket, clock, thread or random generator.
//!
//! ```text
//! MySqlClient::new ──input: greeting──► output: login ──input: ok──► output: settings ──input: ok──► MySqlEvent::Ready
//!           └──MySqlEvent::StartTls, TLS handshake, tls_started──► output: login …
//! execute ──► output ──input──► MySqlEvent::Columns, (MySqlEvent::Value…, MySqlEvent::RowEnd)…, MySqlEvent::Done
//!                          └──► MySqlEvent::Failed: the connection remains usable
//! ```
//!
//! One statement is in progress at a time. An error of the server is returned as `MySqlError`; the caller must then
//! close the connection, and create a new `MySqlClient` for another connection.
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
