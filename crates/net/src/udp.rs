//! UDP (RFC 768), as far as DHCP needs it.

use crate::bytes::{be16, fold, write_be16};
use crate::ipv4::{self, Ipv4Packet};

/// Offset of the payload in a frame.
pub(crate) const PAYLOAD_AT: usize = 42;
const HEADER_LEN: usize = 8;

#[derive(Clone, Copy, Debug)]
pub(crate) struct UdpDatagram<'f> {
    pub from_port: u16,
    pub port: u16,
    pub payload: &'f [u8],
    /// Whether the checksum is correct or absent (0).
    pub has_right_sum: bool,
}

/// Parses a datagram.
pub(crate) fn parse<'f>(packet: &Ipv4Packet<'f>) -> Option<UdpDatagram<'f>> {
    let head: &[u8; HEADER_LEN] = packet.payload.first_chunk()?;
    let len = usize::from(be16(head, 4));
    // The length field may exclude bytes at the end of the packet.
    let datagram = packet.payload.get(..len)?;
    let trimmed = Ipv4Packet {
        payload: datagram,
        ..*packet
    };
    Some(UdpDatagram {
        from_port: be16(head, 0),
        port: be16(head, 2),
        payload: datagram.get(HEADER_LEN..)?,
        has_right_sum: be16(head, 6) == 0 || ipv4::has_right_sum(&trimmed),
    })
}

/// The addresses and ports of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatagramPath {
    pub mac: [u8; 6],
    pub to_mac: [u8; 6],
    pub from: u32,
    pub to: u32,
    pub from_port: u16,
    pub to_port: u16,
}

/// Writes the headers of a frame that already contains its payload.
pub(crate) fn wrap(frame: &mut [u8], path: &DatagramPath) {
    let len = frame.len() - PAYLOAD_AT + HEADER_LEN;
    frame[..6].copy_from_slice(&path.to_mac);
    frame[6..12].copy_from_slice(&path.mac);
    frame[12..14].copy_from_slice(&ipv4::ETHERTYPE);
    ipv4::header(&mut frame[14..], ipv4::UDP, len, path.from, path.to);
    let udp = &mut frame[34..];
    write_be16(udp, 0, path.from_port);
    write_be16(udp, 2, path.to_port);
    write_be16(udp, 4, len as u16);
    write_be16(udp, 6, 0);
    let pseudo = ipv4::pseudo_sum(ipv4::UDP, path.from, path.to) + len as u32;
    let sum = !fold(pseudo + u32::from(crate::payload_checksums::sum_of(udp)));
    // 0 means "no checksum", so a computed 0 is sent as 0xffff (RFC 768).
    write_be16(udp, 6, if sum == 0 { 0xffff } else { sum });
}
