//! Events of connections, which the engine defines, and the datagrams that go in and out.

use std::net::{IpAddr, SocketAddr};

use bytes::BytesMut;
pub use lowroad_engine::quic_transport::{CloseReason, ConnectionKey, QuicEvent, QuicStreamClosed};
use quinn_proto::{ConnectionError, EcnCodepoint, Transmit};

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

/// The reason for the end of a connection.
/// The TLS alert in the peer's close, if it is one (RFC 9001 §4.8).
pub(crate) fn received_alert(error: &ConnectionError) -> Option<u8> {
    let ConnectionError::ConnectionClosed(close) = error else {
        return None;
    };
    let code = u64::from(close.error_code).checked_sub(0x100)?;
    u8::try_from(code).ok()
}

pub(crate) fn close_reason(error: &ConnectionError) -> CloseReason {
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
