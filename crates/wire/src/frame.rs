//! Parses Ethernet frames into TCP segments. Only plain frames are accepted: no VLAN tags, no fragments, no IP options
//! or extension headers.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum::InternetChecksum;
use crate::options::TcpTimestamps;
use crate::width::sequence;

/// FIN.
pub const FIN: u8 = 0x01;
/// SYN.
pub const SYN: u8 = 0x02;
/// RST.
pub const RST: u8 = 0x04;
/// PSH.
pub const PSH: u8 = 0x08;
/// ACK.
pub const ACK: u8 = 0x10;
/// URG.
pub const URG: u8 = 0x20;

/// The length of the Ethernet header.
pub const ETHERNET_LEN: usize = 14;
/// The length of an IPv4 header without options.
pub const IPV4_LEN: usize = 20;
/// The length of an IPv6 header.
pub const IPV6_LEN: usize = 40;
/// The length of a TCP header without options.
pub const TCP_LEN: usize = 20;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// The protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;

/// Identifies a connection by its addresses and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FourTuple {
    /// The client's address.
    pub client: IpAddr,
    /// The address of this host.
    pub local: IpAddr,
    /// The client's port.
    pub client_port: u16,
    /// The port of this host.
    pub local_port: u16,
}

/// A TCP segment in its frame.
#[derive(Clone, Copy, Debug)]
pub struct SegmentView<'f> {
    /// The connection.
    pub tuple: FourTuple,
    /// The client's MAC address.
    pub client_mac: [u8; 6],
    /// The MAC address of this host.
    pub local_mac: [u8; 6],
    /// The sequence number of the first byte.
    pub seq: u32,
    /// The acknowledgement number: the next byte that the client expects.
    pub ack: u32,
    /// TCP flags.
    pub flags: u8,
    /// The window field, not scaled.
    pub window: u16,
    /// TCP options.
    pub options: &'f [u8],
    /// The data.
    pub payload: &'f [u8],
    /// TCP header and data, for the checksum.
    tcp: &'f [u8],
    /// The headers before TCP.
    heads: &'f [u8],
}

/// Why a frame is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameRejection {
    /// The frame is not TCP over IP.
    Other,
    /// The packet is a fragment, has IP options, or has inconsistent lengths.
    NotPlain,
}

impl<'f> SegmentView<'f> {
    /// Parses Ethernet, IP and TCP.
    ///
    /// # Errors
    /// `FrameRejection`: the kernel has to handle the frame, which need not be malformed.
    pub fn parse(frame: &'f [u8]) -> Result<SegmentView<'f>, FrameRejection> {
        let (ethernet, packet) = frame
            .split_first_chunk::<ETHERNET_LEN>()
            .ok_or(FrameRejection::Other)?;
        let ((client, local, tcp), tcp_at) = match [ethernet[12], ethernet[13]] {
            ETHERTYPE_IPV4 => (ipv4(packet)?, ETHERNET_LEN + IPV4_LEN),
            ETHERTYPE_IPV6 => (ipv6(packet)?, ETHERNET_LEN + IPV6_LEN),
            _ => return Err(FrameRejection::Other),
        };
        let head: &[u8; TCP_LEN] = tcp.first_chunk().ok_or(FrameRejection::NotPlain)?;
        // The data offset counts 32-bit words.
        let payload_at = usize::from(head[12] >> 4) * 4;
        let options = tcp
            .get(TCP_LEN..payload_at)
            .ok_or(FrameRejection::NotPlain)?;
        let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let word = |at: usize| u32::from(half(at)) << 16 | u32::from(half(at + 2));
        let mac = |at: usize| core::array::from_fn(|i| ethernet[at + i]);
        Ok(SegmentView {
            tuple: FourTuple {
                client,
                local,
                client_port: half(0),
                local_port: half(2),
            },
            client_mac: mac(6),
            local_mac: mac(0),
            seq: word(4),
            ack: word(8),
            flags: head[13],
            window: half(14),
            options,
            payload: tcp.get(payload_at..).unwrap_or_default(),
            tcp,
            heads: frame.split_at(tcp_at).0,
        })
    }

    /// Whether the checksum of the IPv4 header is correct. IPv6 headers have none.
    #[must_use]
    pub fn has_valid_header_checksum(&self) -> bool {
        let header = &self.heads[ETHERNET_LEN..];
        !self.tuple.local.is_ipv4() || InternetChecksum::default().bytes(header).checksum() == 0
    }

    /// Whether the TCP checksum is correct.
    #[must_use]
    pub fn has_valid_checksum(&self) -> bool {
        u16::try_from(self.tcp.len())
            .is_ok_and(|len| pseudo_header(&self.tuple, len).bytes(self.tcp).checksum() == 0)
    }

    /// Whether the destination MAC is a group address, which TCP never uses (RFC 9293 §3.9.2.3).
    #[must_use]
    pub fn is_to_group(&self) -> bool {
        // The lowest bit of the first byte marks group addresses (IEEE 802).
        self.local_mac[0] & 1 != 0
    }

    /// The sequence number after the data.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.seq.wrapping_add(len_of(self.payload))
    }

    /// Whether ACK is set, but not SYN or RST, as in all segments of an established connection except resets.
    #[must_use]
    pub fn is_plain_ack(&self) -> bool {
        self.flags & (SYN | ACK | RST) == ACK
    }

    /// Builds a frame with another segment of the same client: ports, window and timestamps are the same.
    pub fn build_frame(&self, seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let options = TcpTimestamps::read(self.options).map(TcpTimestamps::write);
        let options = options.as_ref().map_or([].as_slice(), |option| option);
        let header_len = TCP_LEN + options.len();
        let tcp_len = u16::try_from(header_len + payload.len()).expect("within a packet");
        let words = u8::try_from(header_len / 4).expect("short");
        let mut frame = self.heads.to_vec();
        if self.tuple.local.is_ipv4() {
            let ip = &mut frame[ETHERNET_LEN..];
            ip[2..4].copy_from_slice(&(tcp_len + 20).to_be_bytes());
            // The checksum field counts as 0 in its own computation.
            ip[10..12].fill(0);
            let checksum = InternetChecksum::default().bytes(ip).checksum();
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            frame[ETHERNET_LEN + 4..][..2].copy_from_slice(&tcp_len.to_be_bytes());
        }
        let mut tcp = self.tcp[..TCP_LEN].to_vec();
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        tcp[12..14].copy_from_slice(&[words << 4, flags]);
        // The rest is checksum and urgent pointer.
        tcp[16..].fill(0);
        tcp.extend(options);
        tcp.extend(payload);
        let checksum = pseudo_header(&self.tuple, tcp_len).bytes(&tcp).checksum();
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(tcp);
        frame
    }

    /// The segment with only the first `len` bytes of its data.
    #[must_use]
    pub fn truncated(mut self, len: usize) -> SegmentView<'f> {
        self.payload = self.payload.get(..len).unwrap_or(self.payload);
        self
    }
}

/// The length of bytes in sequence numbers.
pub fn len_of(bytes: &[u8]) -> u32 {
    sequence(bytes.len())
}

/// The pseudo-header of the TCP checksum (RFC 9293 §3.1, RFC 8200 §8.1). The order of the addresses does not affect
/// the sum.
pub fn pseudo_header(tuple: &FourTuple, tcp_len: u16) -> InternetChecksum {
    [tuple.client, tuple.local]
        .iter()
        .fold(InternetChecksum::default(), |sum, address| match address {
            IpAddr::V4(address) => sum.bytes(&address.octets()),
            IpAddr::V6(address) => sum.bytes(&address.octets()),
        })
        .word(u16::from(PROTOCOL_TCP))
        .word(tcp_len)
}

type PacketParts<'f> = (IpAddr, IpAddr, &'f [u8]);

fn ipv4(packet: &[u8]) -> Result<PacketParts<'_>, FrameRejection> {
    let (head, _) = packet
        .split_first_chunk::<IPV4_LEN>()
        .ok_or(FrameRejection::Other)?;
    if head[9] != PROTOCOL_TCP {
        return Err(FrameRejection::Other);
    }
    // A fragment has "more fragments" set, or an offset; "don't fragment" is allowed.
    let is_fragment = head[6] & 0x3f != 0 || head[7] != 0;
    // Short frames are padded after the packet, so the length in the IP header is used.
    let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let tcp = packet.get(IPV4_LEN..len).ok_or(FrameRejection::NotPlain)?;
    // 0x45 means version 4 and a header of five words, so no options.
    if head[0] != 0x45 || is_fragment {
        return Err(FrameRejection::NotPlain);
    }
    let address = |at: usize| {
        IpAddr::V4(Ipv4Addr::new(
            head[at],
            head[at + 1],
            head[at + 2],
            head[at + 3],
        ))
    };
    Ok((address(12), address(16), tcp))
}

fn ipv6(packet: &[u8]) -> Result<PacketParts<'_>, FrameRejection> {
    let (head, rest) = packet
        .split_first_chunk::<IPV6_LEN>()
        .ok_or(FrameRejection::Other)?;
    let address = |at: usize| Ipv6Addr::from(core::array::from_fn::<u8, 16, _>(|i| head[at + i]));
    let (client, local) = (address(8), address(24));
    // IPv4-mapped addresses must not appear on the wire (RFC 4942 §2.2).
    if head[6] != PROTOCOL_TCP || client.to_ipv4_mapped().is_some() {
        return Err(FrameRejection::Other);
    }
    let len = usize::from(u16::from_be_bytes([head[4], head[5]]));
    // Short frames are padded after the packet, so the length in the IPv6 header is used.
    let tcp = rest.get(..len).ok_or(FrameRejection::NotPlain)?;
    Ok((IpAddr::V6(client), IpAddr::V6(local), tcp))
}
