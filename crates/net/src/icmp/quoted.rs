//! The segment that an ICMP error quotes.

use crate::bytes::{be16, be32};
use crate::ipv4;
use crate::tcp::segment::ConnectionKey;

const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;

/// A "fragmentation needed" message about a sent segment.
#[derive(Clone, Copy)]
pub(crate) struct QuotedSegment {
    /// The segment's source address.
    pub from: u32,
    /// The segment's connection.
    pub key: ConnectionKey,
    pub seq: u32,
    /// The next hop's MTU.
    pub mtu: u16,
}

/// Parses such a message. `None` if the message has another type, or does not quote a TCP segment.
pub(crate) fn quoted(message: &[u8]) -> Option<QuotedSegment> {
    let (icmp, quoted) = message.split_first_chunk::<8>()?;
    let head: &[u8; 20] = quoted.first_chunk()?;
    let tcp: &[u8; 8] = quoted.get(usize::from(head[0] & 15) * 4..)?.first_chunk()?;
    let is_fragmentation_needed =
        icmp[..2] == [UNREACHABLE, FRAGMENTATION_NEEDED] && head[9] == ipv4::TCP;
    is_fragmentation_needed.then_some(QuotedSegment {
        from: be32(head, 12),
        key: ConnectionKey::new(be32(head, 16), be16(tcp, 2), be16(tcp, 0)),
        seq: be32(tcp, 4),
        mtu: be16(icmp, 6),
    })
}
