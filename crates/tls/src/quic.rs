//! TLS for QUIC (RFC 9001): the handshake without records. QUIC carries the messages, and encrypts packets itself with
//! the keys of each level.
//!
//! `rustls` is dropped once the handshake is complete: an established connection keeps the secrets of the next key
//! update only. Early data (0-RTT) is accepted by acceptors that are made for it only.

mod key_update;
mod packet_keys;
mod session;

pub use key_update::{LazyPacketKey, NextPacketKeys};
pub use packet_keys::{initial_keys, retry_tag};
pub use rustls::quic::{DirectionalKeys, HeaderProtectionKey, Keys, PacketKey};
pub use session::{HandshakeSummary, QuicAlert, QuicTlsAcceptor, QuicTlsConnector, QuicTlsSession};

/// The application protocol of HTTP/3 (RFC 9114 §3.1).
const HTTP3: &[u8] = b"h3";
