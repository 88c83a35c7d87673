//! Writes the frame of a reply to a segment.

use alloc::vec::Vec;
use core::net::IpAddr;

use lowroad_wire::checksum::InternetChecksum;
use lowroad_wire::frame::{PROTOCOL_TCP, SegmentView, TCP_LEN, pseudo_header};

/// Shorter frames are padded, since not all drivers pad them.
const FRAME_LEN_MIN: usize = 60;
const HOP_LIMIT: u8 = 64;

/// A segment that is sent in reply to another.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelReply<'r> {
    /// The sequence number of the first byte.
    pub seq: u32,
    /// The acknowledgement number.
    pub ack: u32,
    /// TCP flags.
    pub flags: u8,
    /// The window field, already scaled.
    pub window: u16,
    /// TCP options: a multiple of four bytes, at most 40.
    pub options: &'r [u8],
    /// The data.
    pub payload: &'r [u8],
}

impl ModelReply<'_> {
    /// Writes the frame.
    ///
    /// # Panics
    /// Options or payload exceed the length of a packet.
    #[must_use]
    pub fn write(&self, to: &SegmentView<'_>) -> Vec<u8> {
        let tcp_len = TCP_LEN + self.options.len() + self.payload.len();
        let tcp_len = u16::try_from(tcp_len).expect("within a packet");
        let mut frame = Vec::with_capacity(FRAME_LEN_MIN.max(usize::from(tcp_len) + 54));
        frame.extend(to.client_mac);
        frame.extend(to.local_mac);
        self.write_ip(to, tcp_len, &mut frame);
        let tcp_at = frame.len();
        self.write_tcp(to, &mut frame);
        let checksum = pseudo_header(&to.tuple, tcp_len)
            .bytes(&frame[tcp_at..])
            .checksum();
        frame[tcp_at + 16..tcp_at + 18].copy_from_slice(&checksum.to_be_bytes());
        frame.resize(frame.len().max(FRAME_LEN_MIN), 0);
        frame
    }

    fn write_ip(&self, to: &SegmentView<'_>, tcp_len: u16, frame: &mut Vec<u8>) {
        match (to.tuple.local, to.tuple.client) {
            (IpAddr::V6(local), IpAddr::V6(client)) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend(tcp_len.to_be_bytes());
                frame.extend([PROTOCOL_TCP, HOP_LIMIT]);
                frame.extend(local.octets());
                frame.extend(client.octets());
            }
            (IpAddr::V4(local), IpAddr::V4(client)) => {
                let ip_at = frame.len() + 2;
                frame.extend([0x08, 0x00, 0x45, 0]);
                frame.extend((tcp_len + 20).to_be_bytes());
                // Routers may fragment the packet, as ICMP messages about path MTU are not processed here; so it needs
                // an identification.
                frame.extend(((self.seq ^ self.seq >> 16) & 0xffff).to_be_bytes()[2..].iter());
                frame.extend([0, 0, HOP_LIMIT, PROTOCOL_TCP, 0, 0]);
                frame.extend(local.octets());
                frame.extend(client.octets());
                let checksum = InternetChecksum::default()
                    .bytes(&frame[ip_at..])
                    .checksum();
                frame[ip_at + 10..ip_at + 12].copy_from_slice(&checksum.to_be_bytes());
            }
            _ => unreachable!("both addresses come from one packet"),
        }
    }

    fn write_tcp(&self, to: &SegmentView<'_>, frame: &mut Vec<u8>) {
        let words = u8::try_from((TCP_LEN + self.options.len()) / 4).expect("at most 40 bytes");
        frame.extend(to.tuple.local_port.to_be_bytes());
        frame.extend(to.tuple.client_port.to_be_bytes());
        frame.extend(self.seq.to_be_bytes());
        frame.extend(self.ack.to_be_bytes());
        frame.extend([words << 4, self.flags]);
        frame.extend(self.window.to_be_bytes());
        // The next four bytes are checksum and urgent pointer.
        frame.extend([0; 4]);
        frame.extend(self.options);
        frame.extend(self.payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use lowroad_wire::frame::{ACK, FourTuple, PSH};

    fn request_segment(client: IpAddr, local: IpAddr) -> SegmentView<'static> {
        // The shortest frame that `parse` accepts; its addresses are replaced below.
        let bytes: &'static [u8] = &[];
        let mut frame = alloc::vec![0u8; 54];
        frame[12] = 8;
        frame[14] = 0x45;
        frame[17] = 40;
        frame[23] = 6;
        frame[46] = 0x50;
        let leaked: &'static [u8] = frame.leak();
        let mut segment = SegmentView::parse(leaked).expect("a segment");
        segment.tuple = FourTuple {
            client,
            local,
            client_port: 5,
            local_port: 80,
        };
        segment.options = bytes;
        segment
    }

    #[test]
    fn written_reply_is_parsed_again() {
        let v4 = (
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
        );
        let v6 = (
            IpAddr::V6(Ipv6Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::new(1, 2, 3, 4, 5, 6, 7, 8)),
        );
        for (client, local) in [v4, v6] {
            let reply = ModelReply {
                seq: 7,
                ack: 9,
                flags: ACK | PSH,
                window: 100,
                options: &[1; 4],
                payload: b"odd",
            };
            let frame = reply.write(&request_segment(client, local));
            let read = SegmentView::parse(&frame).expect("a segment");
            assert!(read.has_valid_checksum() && !read.is_to_group());
            assert_eq!(
                (read.seq, read.ack, read.flags, read.window),
                (7, 9, ACK | PSH, 100)
            );
            assert_eq!(
                (read.options, read.payload),
                ([1; 4].as_slice(), b"odd".as_slice())
            );
            assert_eq!((read.tuple.client, read.tuple.local), (local, client));
            assert_eq!((read.tuple.client_port, read.tuple.local_port), (80, 5));
            assert_eq!(read.end(), 10);
            // Any prefix can be parsed without a panic.
            for len in 0..frame.len() {
                if let Ok(part) = SegmentView::parse(&frame[..len]) {
                    assert!(part.payload.len() <= 3);
                }
            }
            // The lowest bit of the first byte marks a group address.
            let mut group = frame.clone();
            group[0] |= 1;
            let read = SegmentView::parse(&group).expect("a segment");
            assert!(read.is_to_group());
        }
    }
}
