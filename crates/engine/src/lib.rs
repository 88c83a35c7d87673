//! Workers: each a thread with an event loop, its connections and its timers.
//!
//! A request from top to bottom: [`worker`] waits, and lets the connection act to which something happened; `accept`
//! made it. `exchange` receives bytes and gives them to the connection's protocol through the doors in `protocol`; the
//! rooms `h1` and `h2` read requests from them; `exchange` asks the [`HttpService`] for responses; the rooms frame these, and
//! `transmit` sends them. What connections share (driver, service, output buffers, timers) is the worker's `context`.
//! Below them a [`IoDriver`] does the input and output: [`epoll`] on a real machine, the crate `engine_sim` in virtual time
//! with faults. Nothing here knows sites, files' names or HTTP semantics beyond where a request begins and ends.

#![deny(unsafe_code)]

mod accept;
#[allow(unsafe_code)] // hands out slices of one mapping; the extents prove them disjoint
pub mod arena;
pub mod panic_policy;
pub mod event_count;
mod request_bodies;
mod response_body;
pub mod buffer;
mod connection_end;
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
pub mod shared_body;
mod h1;
mod h2;
pub mod helper_pool;
mod body_stream;
mod input;
mod interim_response;
mod proxy_protocol;
pub mod kernel_tls;
pub mod tls_session;
pub mod listener;
pub mod worker_handle;
pub mod mailbox;
mod message;
pub mod upstream_network;
pub mod offload;
pub mod upstream_socket;
mod client_pace;
pub mod pass_through;
mod protocol;
pub mod response;
mod tls_connection;
mod send_queue;
pub mod service;
pub mod settings;
pub mod stream;
mod stream_body;
#[allow(unsafe_code)]
// the few system calls that have no safe wrapper; each block says why it is sound
mod system_calls;
pub mod tap_device;
pub mod tasks;
pub mod timers;
mod transmit;
mod transmit_file;
mod transport;
pub mod tunnel;
mod stream_table;
pub mod worker;

pub use response_body::BodyPart;
pub use driver::{IoDriver, ListenerId, ConnectionToken};
pub use interim_response::InterimResponse;
pub use worker_handle::WorkerHandle;
pub use lowroad_http::protocol::StreamId;
pub use response::{PreparedResponse, HeadBuilder, ResponseWriter, DetachedResponse};
pub use service::{ServiceOutcome, Exchange, ExchangeId, HttpService};
pub use system_calls::{forget_variable, keep_descriptors};
pub use tunnel::ClientTunnel;
