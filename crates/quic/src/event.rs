//! Events of connections, and the datagrams that go in and out.

use std::net::{IpAddr, SocketAddr};

use bytes::{Bytes, BytesMut};
use quinn_proto::{ConnectionError, EcnCodepoint, Transmit};

/// Identifies a connection of an endpoint. A key is reused after `QuicEvent::Over`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionKey(pub u32);

/// The ECN bits of an IP header (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnBits(pub u8);

impl EcnBits {
    pub(crate) fn codepoint(self) -> Option<EcnCodepoint> {
        EcnCodepoint::from_bits(self.0)
    }

    pub(crate) fn from_codepoint(codepoint: Option<EcnCodepoint>) -> EcnBits {
        EcnBits(codepoint.map_or(0, |codepoint| codepoint as u8))
    }
}

/// A received datagram.
#[derive(Debug)]
pub struct IncomingDatagram {
    /// The sender.
    pub from: SocketAddr,
    /// The address that received it, if known.
    pub local_ip: Option<IpAddr>,
    /// The ECN bits.
    pub ecn: EcnBits,
    /// The payload.
    pub bytes: BytesMut,
}

/// Datagrams to one receiver, contiguous in a buffer: one system call with segmentation offload (GSO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutgoingTrain {
    /// The receiver.
    pub to: SocketAddr,
    /// The local address to send from, if it matters.
    pub local_ip: Option<IpAddr>,
    /// The ECN bits.
    pub ecn: EcnBits,
    /// The bytes of all datagrams.
    pub len: usize,
    /// The bytes of each datagram but the last.
    pub segment_len: usize,
}

impl OutgoingTrain {
    pub(crate) fn new(transmit: &Transmit) -> OutgoingTrain {
        OutgoingTrain {
            to: transmit.destination,
            local_ip: transmit.src_ip,
            ecn: EcnBits::from_codepoint(transmit.ecn),
            len: transmit.size,
            segment_len: transmit.segment_size.unwrap_or(transmit.size),
        }
    }
}

/// An event of a connection. The first one is `Opened`, the last one `Over`. A connection of a server whose handshake
/// fails has none, one of a client only `Over`.
#[derive(Debug)]
pub enum QuicEvent {
    /// The handshake is complete.
    Opened,
    /// Bytes of a stream in their order.
    Bytes {
        /// The identifier of the stream.
        stream: u64,
        /// The bytes; empty only at the end.
        bytes: Bytes,
        /// The stream ends after them.
        is_end: bool,
    },
    /// The peer has reset a stream.
    Reset {
        /// The identifier of the stream.
        stream: u64,
        /// The error code.
        code: u64,
    },
    /// The peer does not read a stream any more.
    Stopped {
        /// The identifier of the stream.
        stream: u64,
        /// The error code.
        code: u64,
    },
    /// A stream without window can be written again.
    Writable {
        /// The identifier of the stream.
        stream: u64,
    },
    /// The connection has ended. Its last datagrams are still to be emitted.
    Over(CloseReason),
}

/// The reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// `QuicEndpoint::close`.
    Local,
    /// The peer's application closed the connection, with this code (RFC 9114 §8.1 for HTTP/3).
    PeerApplication(u64),
    /// The peer's QUIC closed the connection, with this code (RFC 9000 §20.1).
    PeerTransport(u64),
    /// The peer violated QUIC; it was told this code.
    Fault(u64),
    /// No packets for the idle timeout.
    Timeout,
    /// The peer has lost the connection's state (stateless reset).
    StatelessReset,
}

impl CloseReason {
    pub(crate) fn new(error: &ConnectionError) -> CloseReason {
        match error {
            ConnectionError::ApplicationClosed(close) => {
                CloseReason::PeerApplication(close.error_code.into_inner())
            }
            ConnectionError::ConnectionClosed(close) => {
                CloseReason::PeerTransport(close.error_code.into())
            }
            ConnectionError::TransportError(error) => CloseReason::Fault(error.code.into()),
            ConnectionError::TimedOut => CloseReason::Timeout,
            ConnectionError::Reset => CloseReason::StatelessReset,
            ConnectionError::LocallyClosed
            | ConnectionError::CidsExhausted
            | ConnectionError::VersionMismatch => CloseReason::Local,
        }
    }
}

/// The stream is closed, or has never been open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuicStreamClosed;
