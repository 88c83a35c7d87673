//! The frames of a client that opens a connection and sends a request.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use lowroad_wire::SegmentView;
use lowroad_wire::checksum::InternetChecksum;

/// The TCP flag SYN.
pub(super) const SYN: u8 = 0x02;
/// The TCP flag PSH.
pub(super) const PSH: u8 = 0x08;
/// The TCP flag ACK.
pub(super) const ACK: u8 = 0x10;

/// Maximum payload of a segment without TCP options over IPv4 (MTU 1500).
pub(super) const PAYLOAD_MAX_V4: usize = 1460;
/// Maximum payload of a segment without TCP options over IPv6 (MTU 1500).
pub(super) const PAYLOAD_MAX_V6: usize = 1440;

/// Destination and source: the address of `lo`, and a locally administered address.
const MACS: [u8; 12] = [0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1];
const TCP: u8 = 6;
const WINDOW: u16 = 65_535;
const TTL: u8 = 64;

/// A segment.
pub(super) struct TrialSegment<'p> {
    /// The client's address.
    pub(super) from: SocketAddr,
    /// The server's address, of the same family.
    pub(super) to: SocketAddr,
    /// TCP flags.
    pub(super) flags: u8,
    /// Sequence number.
    pub(super) seq: u32,
    /// Acknowledgement number.
    pub(super) ack: u32,
    /// TCP options, padded to whole words.
    pub(super) options: &'p [u8],
    /// Data.
    pub(super) payload: &'p [u8],
}

impl TrialSegment<'_> {
    /// The frame with Ethernet, IP and TCP header.
    pub(super) fn frame(&self) -> Vec<u8> {
        let tcp = self.tcp();
        let mut frame = MACS.to_vec();
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut ip = [0u8; 20];
                ip[0] = 0x45;
                ip[2..4].copy_from_slice(&len_of(20 + tcp.len()).to_be_bytes());
                // Don't fragment.
                ip[6] = 0x40;
                ip[8..10].copy_from_slice(&[TTL, TCP]);
                ip[12..16].copy_from_slice(&from.octets());
                ip[16..20].copy_from_slice(&to.octets());
                let sum = InternetChecksum::default().bytes(&ip).checksum();
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend([8, 0]);
                frame.extend(ip);
            }
            (from, to) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend(len_of(tcp.len()).to_be_bytes());
                frame.extend([TCP, TTL]);
                frame.extend(as_v6(from).octets());
                frame.extend(as_v6(to).octets());
            }
        }
        frame.extend(tcp);
        frame
    }

    /// TCP header and payload, with the checksum.
    fn tcp(&self) -> Vec<u8> {
        let mut tcp = Vec::with_capacity(20 + self.options.len() + self.payload.len());
        tcp.extend(self.from.port().to_be_bytes());
        tcp.extend(self.to.port().to_be_bytes());
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        let words = len_of(20 + self.options.len()) / 4;
        tcp.extend((words << 12 | u16::from(self.flags)).to_be_bytes());
        tcp.extend(WINDOW.to_be_bytes());
        // The checksum, which is filled in below, and the urgent pointer.
        tcp.extend([0; 4]);
        tcp.extend(self.options);
        tcp.extend(self.payload);
        let sum = InternetChecksum::default()
            // The checksum treats IPv4-mapped addresses as IPv4.
            .bytes(&pseudo(self.from.ip()))
            .bytes(&pseudo(self.to.ip()))
            .word(u16::from(TCP))
            .word(len_of(tcp.len()))
            .bytes(&tcp)
            .checksum();
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        tcp
    }
}

/// The sequence number of a SYN-ACK; `None` for other replies.
pub(super) fn sequence_of(reply: &[u8]) -> Option<u32> {
    let reply = SegmentView::parse(reply).ok()?;
    (reply.flags & (SYN | ACK) == SYN | ACK).then_some(reply.seq)
}

/// The bytes of an address in the pseudo-header.
fn pseudo(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn len_of(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_parsed_back_to_the_same_fields() {
        for (from, to) in [
            ("198.51.100.1:4000", "192.0.2.1:80"),
            ("[2001:db8::2]:4000", "[2001:db8::1]:80"),
        ] {
            let address = |text: &str| text.parse::<SocketAddr>().expect(text);
            let frame = TrialSegment {
                from: address(from),
                to: address(to),
                flags: ACK | PSH,
                seq: 7,
                ack: 9,
                options: &[1, 1, 1, 0],
                payload: b"GET",
            }
            .frame();
            let read = SegmentView::parse(&frame).expect("a segment");
            assert_eq!(read.tuple.local, address(to).ip());
            assert_eq!(read.tuple.client_port, 4000);
            assert_eq!((read.seq, read.ack, read.payload), (7, 9, &b"GET"[..]));
        }
    }
}
