//! A TCP segment as it came (RFC 9293 §3.1). It knows no connections.

use crate::bytes::{be16, be32};

/// FIN.
pub(crate) const FIN: u8 = 0x01;
/// SYN.
pub(crate) const SYN: u8 = 0x02;
/// RST.
pub(crate) const RST: u8 = 0x04;
/// PSH.
pub(crate) const PSH: u8 = 0x08;
/// ACK.
pub(crate) const ACK: u8 = 0x10;

/// A header without options.
pub(crate) const HEADER_LEN: usize = 20;

/// Who talks to whom, but for our address: theirs, their port, our port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(pub u64);

impl Key {
    /// Of its parts.
    pub(crate) fn new(remote: u32, remote_port: u16, port: u16) -> Key {
        Key(u64::from(remote) << 32 | u64::from(remote_port) << 16 | u64::from(port))
    }

    /// Their address.
    pub(crate) fn remote(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Their port.
    pub(crate) fn remote_port(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Our port.
    pub(crate) fn port(self) -> u16 {
        self.0 as u16
    }
}

/// A segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'f> {
    /// Whose.
    pub key: Key,
    /// The MAC it came from.
    pub mac: [u8; 6],
    /// Its first number.
    pub seq: u32,
    /// Our number that is expected next.
    pub ack: u32,
    /// Flags.
    pub flags: u8,
    /// Not scaled.
    pub window: u16,
    /// Options.
    pub options: &'f [u8],
    /// Data.
    pub payload: &'f [u8],
}

impl<'f> Segment<'f> {
    /// Reads what is behind the IP header. `None`: lengths do not fit together.
    #[inline(always)]
    pub(crate) fn parse(remote: u32, mac: [u8; 6], tcp: &'f [u8]) -> Option<Segment<'f>> {
        let (head, rest) = tcp.split_first_chunk::<HEADER_LEN>()?;
        let options_len = (usize::from(head[12] >> 4) * 4).checked_sub(HEADER_LEN)?;
        let (options, payload) = rest.split_at_checked(options_len)?;
        Some(Segment {
            key: Key::new(remote, be16(head, 0), be16(head, 2)),
            mac,
            seq: be32(head, 4),
            ack: be32(head, 8),
            flags: head[13],
            window: be16(head, 14),
            options,
            payload,
        })
    }

    /// Numbers that it takes.
    pub(crate) fn len(&self) -> u32 {
        crate::bytes::len32(self.payload.len())
            + u32::from(self.flags & SYN != 0)
            + u32::from(self.flags & FIN != 0)
    }
}
