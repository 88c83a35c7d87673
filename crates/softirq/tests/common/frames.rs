//! Frames with TCP segments for tests: built from a description, and parsed with all checksums verified. Has no state
//! of connections.

use lowroad_testkit::net::frame;
use lowroad_testkit::net::{CLIENT, SERVER};
use lowroad_wire::width::sequence;

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

/// The server's port in all tests.
pub const PORT: u16 = 80;

const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The MAC address of the loopback device, the ingress device of test runs. TC ignores frames for other addresses.
const SERVER_MAC: [u8; 6] = [0; 6];

/// A segment from the client.
#[derive(Clone, Debug, Default)]
pub struct SentSegment {
    /// Whether the segment is sent over IPv6.
    pub is_v6: bool,
    /// The client's port.
    pub port: u16,
    /// TCP flags.
    pub flags: u8,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// The window field of the header.
    pub window: u16,
    /// TCP options, a multiple of four bytes.
    pub options: Vec<u8>,
    /// Data.
    pub payload: Vec<u8>,
    /// Makes the TCP checksum wrong.
    pub bad_sum: bool,
    /// Makes the checksum of the IPv4 header wrong.
    pub bad_header_sum: bool,
    /// Marks the packet as a fragment with more fragments to follow: in the IPv4 header, or by a fragment header of
    /// IPv6.
    pub is_fragment: bool,
    /// Options of the IPv4 header, without padding.
    pub ip_options: Vec<u8>,
    /// IPv6 extension headers: type, and the bytes after the first one.
    pub extensions: Vec<(u8, Vec<u8>)>,
    /// Ends the packet after this number of bytes of TCP.
    pub tcp_len_max: Option<usize>,
    /// Uses an address of another machine as the destination.
    pub is_for_other_machine: bool,
    /// Uses an address of the server as the source.
    pub is_from_server_address: bool,
    /// Uses the broadcast address as the destination MAC.
    pub is_broadcast: bool,
}

impl SentSegment {
    /// The frame, padded to 60 bytes as on the wire.
    pub fn frame(&self) -> Vec<u8> {
        let mut tcp = Vec::with_capacity(60 + self.payload.len());
        tcp.extend(self.port.to_be_bytes());
        tcp.extend(PORT.to_be_bytes());
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        tcp.push(u8::try_from((20 + self.options.len()) / 4).expect("fits") << 4);
        tcp.push(self.flags);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(&self.options);
        tcp.extend(&self.payload);
        let packet_len = self.tcp_len_max.unwrap_or(tcp.len());
        let (addresses, mut ip) = match self.is_v6 {
            true => self.v6(packet_len),
            false => self.v4(packet_len),
        };
        let len = sequence(tcp.len());
        let sum = !folded(sum(&addresses) + 6 + len + sum(&tcp)) ^ u16::from(self.bad_sum);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let to = if self.is_broadcast {
            [0xff; 6]
        } else {
            SERVER_MAC
        };
        let mut frame = [to, CLIENT_MAC].concat();
        frame.extend(if self.is_v6 { [0x86, 0xdd] } else { [8, 0] });
        frame.append(&mut ip);
        frame.extend(&tcp[..packet_len]);
        frame.resize(frame.len().max(60), 0);
        frame
    }

    /// The frame with the same segment from the server to the client. It has no padding, since that is added later.
    pub fn reversed(&self) -> Vec<u8> {
        let mut frame = self.frame();
        let address_len = if self.is_v6 { 16 } else { 4 };
        let addresses_at = if self.is_v6 { 22 } else { 26 };
        let ports_at = addresses_at + 2 * address_len;
        // Swapping addresses and ports leaves all checksums valid.
        frame[..12].rotate_left(6);
        frame[addresses_at..ports_at].rotate_left(address_len);
        frame[ports_at..ports_at + 4].rotate_left(2);
        frame.truncate(ports_at + 20 + self.options.len() + self.payload.len());
        frame
    }

    fn v4(&self, tcp_len: usize) -> (Vec<u8>, Vec<u8>) {
        let client = if self.is_from_server_address {
            SERVER.0
        } else {
            CLIENT.0
        };
        let mut addresses = [client.octets(), SERVER.0.octets()].concat();
        addresses[7] ^= u8::from(self.is_for_other_machine) << 4;
        let mut options = self.ip_options.clone();
        options.resize(options.len().next_multiple_of(4), 0);
        let head_len = 20 + options.len();
        let mut ip = vec![0x40 | u8::try_from(head_len / 4).expect("fits"), 0];
        ip.extend(
            u16::try_from(head_len + tcp_len)
                .expect("fits")
                .to_be_bytes(),
        );
        ip.extend([
            0x12,
            0x34,
            if self.is_fragment { 0x20 } else { 0x40 },
            0,
            64,
            6,
            0,
            0,
        ]);
        ip.extend(&addresses);
        ip.extend(options);
        let check = !folded(sum(&ip)) ^ u16::from(self.bad_header_sum);
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        (addresses, ip)
    }

    fn v6(&self, tcp_len: usize) -> (Vec<u8>, Vec<u8>) {
        let client = if self.is_from_server_address {
            SERVER.1
        } else {
            CLIENT.1
        };
        let mut addresses = [client.octets(), SERVER.1.octets()].concat();
        addresses[31] ^= u8::from(self.is_for_other_machine) << 4;
        let mut ip = vec![0x60, 0, 0, 0];
        let mut chain = self.extensions.clone();
        if self.is_fragment {
            // RFC 8200 §4.5
            chain.insert(0, (44, vec![0, 0, 1, 0, 0, 0, 7]));
        }
        let kinds = chain.iter().skip(1).map(|(kind, _)| *kind).chain([6]);
        let headers = chain.iter().zip(kinds);
        let extensions: Vec<u8> = headers
            .flat_map(|((_, bytes), next)| [&[next], &bytes[..]].concat())
            .collect();
        let payload_len = extensions.len() + tcp_len;
        ip.extend(u16::try_from(payload_len).expect("fits").to_be_bytes());
        ip.extend([chain.first().map_or(6, |(kind, _)| *kind), 64]);
        ip.extend(&addresses);
        ip.extend(extensions);
        (addresses, ip)
    }
}

/// A reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedSegment {
    /// TCP flags.
    pub flags: u8,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// The window field of the header.
    pub window: u16,
    /// TCP options.
    pub options: Vec<u8>,
    /// Data.
    pub payload: Vec<u8>,
}

/// Parses the reply to a segment of the client, and checks all rules that apply to any reply.
///
/// # Errors
/// If the reply violates a rule: a description.
pub fn receive(reply: &[u8], asked: &[u8]) -> Result<ReceivedSegment, String> {
    let found = frame::segment(reply).ok_or("no TCP segment")?;
    let check = |holds: bool, what: &str| if holds { Ok(()) } else { Err(what.to_owned()) };
    check(frame::checksums_hold(reply, &found), "a wrong checksum")?;
    check(
        reply[..6] == asked[6..12] && reply[6..12] == asked[..6],
        "wrong MACs",
    )?;
    check(reply[12..14] == asked[12..14], "another protocol")?;
    let is_v6 = reply[12] == 0x86;
    let (tcp_at, ip_end, addresses, len) = match is_v6 {
        true => (54, 54 + usize::from(be16(reply, 18)), 22, 16),
        false => (34, 14 + usize::from(be16(reply, 16)), 26, 4),
    };
    let (own, other) = (
        addresses..addresses + len,
        addresses + len..addresses + 2 * len,
    );
    check(
        reply[own.clone()] == asked[other.clone()] && reply[other] == asked[own],
        "wrong addresses",
    )?;
    let asked_at = tcp_at_of(asked);
    check(
        be16(reply, tcp_at) == be16(asked, asked_at + 2)
            && be16(reply, tcp_at + 2) == be16(asked, asked_at),
        "wrong ports",
    )?;
    // A reply is padded if the segment was padded.
    let least = if asked.len() < 60 { 0 } else { 60 };
    check(
        reply.len() == ip_end.max(least),
        "a frame longer or shorter than its packet",
    )?;
    check(reply[ip_end..].len() < 60, "padding")?;
    let ttl = if is_v6 { reply[21] } else { reply[22] };
    check(ttl == 64, "a TTL other than 64")?;
    let data_at = tcp_at + usize::from(reply[tcp_at + 12] >> 4) * 4;
    check(be16(reply, tcp_at + 18) == 0, "an urgent pointer")?;
    Ok(ReceivedSegment {
        flags: reply[tcp_at + 13],
        seq: be32(reply, tcp_at + 4),
        ack: be32(reply, tcp_at + 8),
        window: be16(reply, tcp_at + 14),
        options: checked_options(&reply[tcp_at + 20..data_at], reply[tcp_at + 13], asked)?,
        payload: reply[data_at..ip_end].to_vec(),
    })
}

/// Offset of the TCP header in a frame of [`SentSegment`].
fn tcp_at_of(frame: &[u8]) -> usize {
    match (frame[12], frame[20]) {
        (0x86, 6) => 54,
        // An IPv6 extension header of eight bytes.
        (0x86, _) => 62,
        _ => 14 + usize::from(frame[14] & 0xf) * 4,
    }
}

/// Checks the echoed timestamp. Returns the options with timestamp 1 and echo 0 instead of the real values.
fn checked_options(options: &[u8], flags: u8, asked: &[u8]) -> Result<Vec<u8>, String> {
    let mut checked = options.to_vec();
    let tcp_at = tcp_at_of(asked);
    let asked_end = tcp_at + usize::from(asked[tcp_at + 12] >> 4) * 4;
    let value = timestamps_at(&asked[tcp_at + 20..asked_end]).map(|at| tcp_at + 20 + at);
    let Some(at) = timestamps_at(options) else {
        return Ok(checked);
    };
    let value = value.map_or([0; 4].as_slice(), |at| &asked[at..at + 4]);
    let echo = &checked[at + 4..at + 8];
    // In a SYN, the timestamps have another offset than in other segments, so a challenge ACK can't echo them.
    let is_challenge = asked[tcp_at + 13] & SYN != 0 && flags & SYN == 0;
    if echo != value && !(is_challenge && echo == [0; 4]) {
        return Err(format!(
            "timestamps {options:02x?}, and not those of the segment"
        ));
    }
    checked[at..at + 8].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0]);
    Ok(checked)
}

/// Offset of the timestamp values in the options.
fn timestamps_at(options: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(kind) = options.get(at) {
        at += match kind {
            0 => return None,
            1 => 1,
            8 if options.len() >= at + 10 => return Some(at + 2),
            _ => usize::from(*options.get(at + 1)?).max(1),
        };
    }
    None
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn sum(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word).sum()
}

fn folded(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    u16::try_from((sum & 0xffff) + (sum >> 16)).expect("folded twice")
}
