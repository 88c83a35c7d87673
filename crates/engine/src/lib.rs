//! The engine: workers, each a thread with an event loop, its connections and its timers.
//!
//! The path of a request: [`worker`] waits for events and dispatches them to the connections that `accept` created.
//! `exchange` receives bytes and passes them to the connection's protocol through the methods in `protocol`; `h1` and
//! `h2` parse requests from them; `exchange` gets responses from the [`HttpService`]; `h1` and `h2` frame the
//! responses, and `transmit` sends them. State that connections share (driver, service, output buffers, timers) is the
//! worker's `context`. All input and output goes through an [`IoDriver`]: [`epoll`] on Linux, or the crate
//! `engine_sim`, a simulation in virtual time with faults. The engine knows no sites, no file names, and of HTTP only
//! the framing of messages.

#![deny(unsafe_code)]

mod accept;
#[allow(unsafe_code)] // hands out slices of one mapping; the extents prove them disjoint
pub mod arena;
pub mod authentication;
mod body_stream;
pub mod buffer;
mod client_pace;
mod connection;
mod connection_end;
mod context;
pub mod counters;
pub mod datagram_relay;
pub mod datagram_socket;
pub mod datagrams;
mod deadlines;
pub mod driver;
pub mod epoll;
pub mod event_count;
mod exchange;
pub mod file;
pub mod file_watch;
mod h1;
mod h2;
mod h3;
pub mod helper_pool;
mod input;
mod interim_response;
pub mod kernel_tls;
pub mod listener;
pub mod mailbox;
mod message;
mod multiplexed;
pub mod offload;
pub mod panic_policy;
pub mod pass_through;
mod protocol;
mod proxy_protocol;
pub mod quic_transport;
mod quic_worker;
pub mod recovery;
mod request_bodies;
pub mod request_id;
pub mod response;
mod response_body;
mod response_pace;
mod send_queue;
pub mod service;
pub mod settings;
pub mod shared_body;
pub mod stream;
mod stream_body;
mod stream_table;
#[allow(unsafe_code)]
// the few system calls without a safe wrapper; each block has its SAFETY reason
mod system_calls;
pub mod tap_device;
pub mod tasks;
pub mod timers;
mod tls_connection;
pub mod tls_session;
mod transmit;
mod transmit_file;
mod transport;
pub mod tunnel;
pub mod upstream_network;
pub mod upstream_socket;
pub mod upstream_tries;
pub mod worker;
pub mod worker_handle;

pub use driver::{ConnectionToken, IoDriver, ListenerId};
pub use interim_response::InterimResponse;
pub use lowroad_http::protocol::StreamId;
pub use response::{DetachedResponse, FieldChanges, HeadBuilder, PreparedResponse, ResponseWriter};
pub use response_body::BodyPart;
pub use response_pace::ResponseRate;
pub use service::{Exchange, ExchangeId, HttpService, ServiceOutcome};
pub use system_calls::{remove_env_variable, set_descriptors_cloexec};
pub use tunnel::ClientTunnel;
pub use worker_handle::WorkerHandle;
