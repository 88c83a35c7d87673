//! The segment that an ICMP error quotes. It knows no connections.

use crate::bytes::{be16, be32};
use crate::ipv4;
use crate::tcp::segment::Key;

const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;

/// What "fragmentation needed" says of a segment of ours.
#[derive(Clone, Copy)]
pub(crate) struct Quoted {
    /// Its source.
    pub from: u32,
    /// Of its connection.
    pub key: Key,
    pub seq: u32,
    /// What fits on the way.
    pub mtu: u16,
}

/// Reads such a message; `None`: it is another one, or not of TCP.
pub(crate) fn quoted(message: &[u8]) -> Option<Quoted> {
    let (icmp, quoted) = message.split_first_chunk::<8>()?;
    let head: &[u8; 20] = quoted.first_chunk()?;
    let tcp: &[u8; 8] = quoted.get(usize::from(head[0] & 15) * 4..)?.first_chunk()?;
    let is_it = icmp[..2] == [UNREACHABLE, FRAGMENTATION_NEEDED] && head[9] == ipv4::TCP;
    is_it.then_some(Quoted {
        from: be32(head, 12),
        key: Key::new(be32(head, 16), be16(tcp, 2), be16(tcp, 0)),
        seq: be32(tcp, 4),
        mtu: be16(icmp, 6),
    })
}
