//! QUIC without I/O: the connections of one worker, over `quinn-proto`. Datagrams and the time are arguments; the caller
//! receives, sends and waits.
//!
//! The identifiers of streams are those of RFC 9000 §2.1, so that `lowroad_http::h3` can be used on top.
//!
//! | | |
//! |---|---|
//! | [`QuicEndpoint`], [`QuicEvent`] | the connections, and their events |
//! | [`QuicEndpointConfig`], [`QuicSettings`], [`QuicKeys`] | the configuration |
//! | [`QuicLimits`], [`Admission`], [`QuicCounters`] | limits of connections and handshakes, Retry |
//! | [`SteeringTable`], [`steering::classic`] | the worker that a datagram belongs to |
//! | [`WorkerTransport`] | the QUIC of a worker of the engine |
//! | [`null_cipher`] | no cryptography, for simulations |
//!
//! Read RFC 9000, RFC 9001 (TLS) and RFC 9002 (loss, congestion).

#![forbid(unsafe_code)]

mod accept;
mod admission;
mod client;
mod config;
mod connection;
mod connection_ids;
mod due_heap;
mod endpoint;
mod event;
mod keys;
pub mod null_cipher;
mod receive_window;
mod settings;
pub mod steering;
mod stream_calls;
mod tls_session;
mod tokens;
mod worker_transport;

pub use lowroad_engine::datagram_relay::ProcessWorker;

pub use self::admission::{Admission, ConnectionAttempt, QuicCounters, QuicLimits};
pub use self::client::QuicClientCipher;
pub use self::config::{QuicCipher, QuicEndpointConfig};
pub use self::connection_ids::{CONNECTION_ID_LEN, ConnectionIdKey, WORKERS_MAX};
pub use self::endpoint::QuicEndpoint;
pub use self::event::{
    CloseReason, ConnectionKey, EcnBits, IncomingDatagram, OutgoingTrain, QuicEvent,
    QuicStreamClosed,
};
pub use self::keys::{QuicKeys, random_bytes};
pub use self::settings::QuicSettings;
pub use self::steering::{QuicRoute, SteeringTable};
pub use self::tokens::UsedTokens;
pub use self::worker_transport::WorkerTransport;
