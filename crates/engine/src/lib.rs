//! Workers: each a thread with an event loop, its connections and its timers.
//!
//! A request from top to bottom: [`worker`] waits, and lets the connection act to which something happened; `accepting`
//! made it. `exchange` receives bytes and gives them to the connection's protocol through the doors in `protocol`; the
//! rooms `h1` and `h2` read requests from them; `exchange` asks the [`Service`] for responses; the rooms frame these, and
//! `transmit` sends them. What connections share (driver, service, output buffers, timers) is the worker's `context`.
//! Below them a [`Driver`] does the input and output: [`epoll`] on a real machine, the crate `engine_sim` in virtual time
//! with faults. Nothing here knows sites, files' names or HTTP semantics beyond where a request begins and ends.

#![deny(unsafe_code)]

mod accepting;
#[allow(unsafe_code)] // hands out slices of one mapping; the extents prove them disjoint
pub mod arena;
pub mod background;
pub mod bell;
mod bodies;
mod body;
pub mod buffer;
mod closing;
mod connection;
mod context;
pub mod counters;
pub mod datagram_socket;
pub mod datagrams;
mod deadlines;
pub mod driver;
pub mod epoll;
mod exchange;
pub mod file;
pub mod file_watch;
pub mod growing;
mod h1;
mod h2;
pub mod helpers;
mod incoming;
mod input;
mod interim;
mod introduction;
pub mod kernel_tls;
pub mod layer;
pub mod listener;
pub mod local;
pub mod mailbox;
mod message;
pub mod network;
pub mod offload;
pub mod outgoing;
mod pace;
pub mod pass_through;
mod protocol;
pub mod response;
mod secure;
mod sending;
pub mod service;
pub mod settings;
pub mod stream;
mod stream_body;
#[allow(unsafe_code)]
// the few system calls that have no safe wrapper; each block says why it is sound
mod sys;
pub mod tap;
pub mod tasks;
pub mod timers;
mod transmit;
mod transmit_file;
mod transport;
pub mod tunnel;
mod underway;
pub mod worker;

pub use body::Part;
pub use driver::{Driver, ListenerId, Token};
pub use interim::Interim;
pub use local::Local;
pub use lowroad_http::protocol::StreamId;
pub use response::{Built, Head, Response, Unsent};
pub use service::{Answer, Exchange, ExchangeId, Service};
pub use sys::{forget_variable, keep_descriptors};
pub use tunnel::Tunnel;
