//! IPv4 headers (RFC 791).

use crate::bytes::{be16, be32, fold, write_be16, write_be32};

/// The EtherType of IPv4.
pub(crate) const ETHERTYPE: [u8; 2] = [8, 0];
/// Protocol number of ICMP.
pub(crate) const ICMP: u8 = 1;
/// Protocol number of TCP.
pub(crate) const TCP: u8 = 6;
/// Protocol number of UDP.
pub(crate) const UDP: u8 = 17;

const HEADER_LEN: usize = 20;
const TTL: u8 = 64;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ipv4Packet<'f> {
    pub from: u32,
    pub to: u32,
    pub protocol: u8,
    pub payload: &'f [u8],
}

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ipv4Error {
    Malformed,
    WrongSum,
    Fragment,
}

/// Parses a packet; bytes of the frame after it are padding.
#[inline(always)]
pub(crate) fn parse(bytes: &[u8]) -> Result<Ipv4Packet<'_>, Ipv4Error> {
    let head: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Ipv4Error::Malformed)?;
    let mut sum = sum_of(head);
    let mut header_len = HEADER_LEN;
    if head[0] != 0x45 {
        header_len = usize::from(head[0] & 15) * 4;
        if head[0] >> 4 != 4 {
            return Err(Ipv4Error::Malformed);
        }
        let options = bytes
            .get(HEADER_LEN..header_len)
            .ok_or(Ipv4Error::Malformed)?;
        sum += u32::from(crate::payload_checksums::sum_of(options));
    }
    if fold(sum) != 0xffff {
        return Err(Ipv4Error::WrongSum);
    }
    // The total length excludes the padding of short frames.
    let payload = bytes
        .get(header_len..usize::from(be16(head, 2)))
        .ok_or(Ipv4Error::Malformed)?;
    // The More Fragments flag is set, or the fragment offset is not 0.
    if be16(head, 6) & 0x3fff != 0 {
        return Err(Ipv4Error::Fragment);
    }
    Ok(Ipv4Packet {
        from: be32(head, 12),
        to: be32(head, 16),
        protocol: head[9],
        payload,
    })
}

fn sum_of(head: &[u8; HEADER_LEN]) -> u32 {
    let mut sum = 0u64;
    for at in [0, 4, 8, 12, 16] {
        sum += u64::from(be32(head, at));
    }
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    (sum >> 16) as u32 + (sum & 0xffff) as u32
}

/// Writes a header for a payload of `len` bytes.
pub(crate) fn header(head: &mut [u8], protocol: u8, len: usize, from: u32, to: u32) {
    let Some(head) = head.first_chunk_mut::<HEADER_LEN>() else {
        return;
    };
    // Don't Fragment is set, so the identification field isn't needed (RFC 6864 §4.1).
    *head = [
        0x45, 0, 0, 0, 0, 0, 0x40, 0, TTL, protocol, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    write_be16(head, 2, (HEADER_LEN + len) as u16);
    write_be32(head, 12, from);
    write_be32(head, 16, to);
    let sum = fold(sum_of(head));
    write_be16(head, 10, !sum);
}

/// The checksum of the pseudo header without the length (RFC 9293 §3.1).
pub(crate) fn pseudo_sum(protocol: u8, from: u32, to: u32) -> u32 {
    u32::from(protocol) + (from >> 16) + (from & 0xffff) + (to >> 16) + (to & 0xffff)
}

/// Whether the checksum of TCP or UDP is correct.
pub(crate) fn has_right_sum(packet: &Ipv4Packet<'_>) -> bool {
    let pseudo = pseudo_sum(packet.protocol, packet.from, packet.to);
    let sum = u32::from(crate::payload_checksums::sum_of(packet.payload));
    fold(pseudo + packet.payload.len() as u32 + sum) == 0xffff
}

/// Whether an address cannot belong to a host: "this network", loopback, multicast, or broadcast.
pub(crate) fn is_not_host(address: u32) -> bool {
    matches!(address >> 24, 0 | 127 | 224..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_header_parses_to_the_same_packet() {
        let mut bytes = [7; 30];
        header(&mut bytes, TCP, 8, 0x0a00_0001, 0x0a00_0002);
        let packet = parse(&bytes).expect("right");
        assert_eq!((packet.from, packet.to), (0x0a00_0001, 0x0a00_0002));
        assert_eq!((packet.protocol, packet.payload.len()), (TCP, 8));
        for bit in 0..160 {
            let mut wrong = bytes;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&wrong).is_err(), "{bit}");
        }
        assert_eq!(parse(&bytes[..27]).err(), Some(Ipv4Error::Malformed));
    }
}
