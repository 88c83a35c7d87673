//! A client of MariaDB and MySQL as bytes in, bytes out and events: the MySQL client/server protocol with
//! prepared statements. Knows no socket, clock, thread or random source, and nothing of who asks.
//!
//! ```text
//! Client::new ──input: greeting──► output: login ──input: ok──► output: settings ──input: ok──► Event::Ready
//!           └──Event::StartTls, TLS handshake, tls_started──► output: login …
//! execute ──► output ──input──► Event::Columns, (Event::Value…, Event::RowEnd)…, Event::Done
//!                          └──► Event::Failed: the connection stays usable
//! ```
//!
//! One statement is on its way at a time. What is wrong with the server is an [`Error`], after which the
//! connection must be closed and made anew with a new [`Client`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod auth;
mod client;
mod column;
mod data_fault;
mod error;
mod event;
mod greeting;
mod login;
mod moment;
mod packet;
mod read;
mod request;
mod row;
mod seal;
mod statements;

pub use client::Client;
pub use column::{Column, Kind};
pub use data_fault::DataFault;
pub use error::{Error, Refused};
pub use event::{Event, Failure, Value};
pub use login::{Limits, Login, TlsPolicy};
