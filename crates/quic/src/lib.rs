//! QUIC without I/O: the connections of one worker, over `quinn-proto`. Datagrams and the time are arguments; the caller
//! receives, sends and waits.
//!
//! The identifiers of streams are those of RFC 9000 §2.1, so that `lowroad_http::h3` can be used on top. Read RFC 9000,
//! RFC 9001 (TLS) and RFC 9002 (loss, congestion).

mod connection_ids;
mod endpoint;
pub mod null_cipher;

pub use self::connection_ids::SeededIds;
pub use self::endpoint::{
    ConnectionKey, IncomingDatagram, OutgoingTrain, QuicEndpoint, QuicEvent, StreamClosed,
};
pub use quinn_proto as proto;
