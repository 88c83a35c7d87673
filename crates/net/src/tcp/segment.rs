//! A received TCP segment (RFC 9293 §3.1).

use crate::bytes::{be16, be32};

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;

/// The length of a header without options.
pub(crate) const HEADER_LEN: usize = 20;

/// A four-tuple without the local address: remote address, remote port, local port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionKey(pub u64);

impl ConnectionKey {
    pub(crate) fn new(remote: u32, remote_port: u16, port: u16) -> ConnectionKey {
        ConnectionKey(u64::from(remote) << 32 | u64::from(remote_port) << 16 | u64::from(port))
    }

    /// The remote address.
    pub(crate) fn remote(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The remote port.
    pub(crate) fn remote_port(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The local port.
    pub(crate) fn port(self) -> u16 {
        self.0 as u16
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpSegment<'f> {
    /// The connection's key.
    pub key: ConnectionKey,
    /// The source MAC of the frame.
    pub mac: [u8; 6],
    /// The sequence number.
    pub seq: u32,
    /// The acknowledgement number.
    pub ack: u32,
    pub flags: u8,
    /// The window, unscaled.
    pub window: u16,
    pub options: &'f [u8],
    pub payload: &'f [u8],
}

impl<'f> TcpSegment<'f> {
    /// Parses the payload of an IP packet. `None`: inconsistent lengths.
    #[inline(always)]
    pub(crate) fn parse(remote: u32, mac: [u8; 6], tcp: &'f [u8]) -> Option<TcpSegment<'f>> {
        let (head, rest) = tcp.split_first_chunk::<HEADER_LEN>()?;
        let options_len = (usize::from(head[12] >> 4) * 4).checked_sub(HEADER_LEN)?;
        let (options, payload) = rest.split_at_checked(options_len)?;
        Some(TcpSegment {
            key: ConnectionKey::new(remote, be16(head, 0), be16(head, 2)),
            mac,
            seq: be32(head, 4),
            ack: be32(head, 8),
            flags: head[13],
            window: be16(head, 14),
            options,
            payload,
        })
    }

    /// The number of sequence numbers that the segment occupies, including SYN and FIN.
    pub(crate) fn len(&self) -> u32 {
        crate::bytes::len32(self.payload.len())
            + u32::from(self.flags & SYN != 0)
            + u32::from(self.flags & FIN != 0)
    }
}
