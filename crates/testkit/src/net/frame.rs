//! Parses Ethernet frames with TCP, verifies checksums, and edits the options of SYNs like a middlebox. All functions
//! are pure.
//!
//! RFC 9293 section 3.1 (options), RFC 1071 and RFC 1624 (checksums).

use std::ops::Range;

const ETHERNET_LEN: usize = 14;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_ICMPV6: u8 = 58;
const IPV6_LEN: usize = 40;
const TCP_LEN_MIN: usize = 20;
const TCP_CHECKSUM_AT: usize = 16;
const TCP_FLAGS_AT: usize = 13;
const FLAG_SYN: u8 = 0x02;
const FLAG_RST: u8 = 0x04;

const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_MSS: u8 = 2;
const OPTION_WINDOW_SCALE: u8 = 3;
const OPTION_SACK_PERMITTED: u8 = 4;
const OPTION_TIMESTAMPS: u8 = 8;

/// A middlebox's edits of the options of SYNs and SYN-ACKs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SynEdits {
    /// Reduces a larger MSS to this value (MSS clamping).
    pub mss_max: Option<u16>,
    /// Removes timestamps.
    pub no_timestamps: bool,
    /// Removes SACK-permitted.
    pub no_sack: bool,
    /// Removes the window scale.
    pub no_window_scale: bool,
}

impl SynEdits {
    /// Removes timestamps, SACK-permitted and window scale, like a very old or very strict middlebox.
    pub fn strip_all() -> SynEdits {
        SynEdits {
            mss_max: None,
            no_timestamps: true,
            no_sack: true,
            no_window_scale: true,
        }
    }

    fn strips(&self, kind: u8) -> bool {
        match kind {
            OPTION_TIMESTAMPS => self.no_timestamps,
            OPTION_SACK_PERMITTED => self.no_sack,
            OPTION_WINDOW_SCALE => self.no_window_scale,
            _ => false,
        }
    }
}

/// The TCP segment of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameSegment {
    /// The TCP header and data, without the frame's padding.
    tcp: Range<usize>,
    /// The options.
    options: Range<usize>,
    /// Source and destination address.
    addresses: Range<usize>,
    /// The IPv4 header, which has a separate checksum.
    ipv4_head: Option<Range<usize>>,
    syn: bool,
    /// Whether the segment has RST set.
    pub rst: bool,
}

/// Whether a frame belongs to address resolution (ARP, neighbour discovery, multicast listener reports). Such frames
/// are never mangled, as the tests are about TCP.
pub fn resolves_addresses(frame: &[u8]) -> bool {
    match ethertype(frame) {
        Some(ETHERTYPE_ARP) => true,
        Some(ETHERTYPE_IPV6) => {
            let packet = &frame[ETHERNET_LEN..];
            let next = packet.get(6).copied();
            // Multicast listener reports have a hop-by-hop header (0) first.
            let kind = packet.get(IPV6_LEN).copied();
            next == Some(0) || next == Some(PROTOCOL_ICMPV6) && matches!(kind, Some(130..=143))
        }
        _ => false,
    }
}

/// Finds the TCP segment; `None` for other, malformed or fragmented packets.
pub fn segment(frame: &[u8]) -> Option<FrameSegment> {
    let (tcp, addresses, ipv4_head) = match ethertype(frame)? {
        ETHERTYPE_IPV4 => ipv4(frame)?,
        ETHERTYPE_IPV6 => ipv6(frame)?,
        _ => return None,
    };
    // The data offset, in units of 32 bits.
    let head_len = usize::from(frame.get(tcp.start + 12)? >> 4) * 4;
    if head_len < TCP_LEN_MIN || head_len > tcp.len() {
        return None;
    }
    Some(FrameSegment {
        options: tcp.start + TCP_LEN_MIN..tcp.start + head_len,
        syn: frame[tcp.start + TCP_FLAGS_AT] & FLAG_SYN != 0,
        rst: frame[tcp.start + TCP_FLAGS_AT] & FLAG_RST != 0,
        tcp,
        addresses,
        ipv4_head,
    })
}

/// Whether the checksums of the segment and of its IPv4 header are correct.
pub fn checksums_hold(frame: &[u8], segment: &FrameSegment) -> bool {
    let tcp = &frame[segment.tcp.clone()];
    let tcp_len = u16::try_from(tcp.len()).unwrap_or(0);
    let pseudo_header =
        sum(&frame[segment.addresses.clone()]) + u32::from(PROTOCOL_TCP) + u32::from(tcp_len);
    let head_holds = match &segment.ipv4_head {
        // A correct checksum makes the one's complement sum 0xffff (RFC 1071).
        Some(head) => fold(sum(&frame[head.clone()])) == 0xffff,
        None => true,
    };
    head_holds && fold(pseudo_header + sum(tcp)) == 0xffff
}

/// Edits the options if the segment is a SYN; returns whether anything was changed. The checksum is updated
/// incrementally, so a wrong checksum stays wrong.
pub fn edit_syn(frame: &mut [u8], segment: &FrameSegment, edits: &SynEdits) -> bool {
    if !segment.syn {
        return false;
    }
    let mut changed = false;
    for (kind, range) in options(frame, segment.options.clone()) {
        let value = range.start + 2..range.end;
        // The option is replaced by NOPs, so that the header keeps its length.
        if edits.strips(kind) {
            let nops = vec![OPTION_NOP; range.len()];
            replace(frame, segment, range.start, &nops);
            changed = true;
        } else if let (OPTION_MSS, Some(max)) = (kind, edits.mss_max)
            && value.len() == 2
            && be16(frame, value.start).is_some_and(|mss| mss > max)
        {
            replace(frame, segment, value.start, &max.to_be_bytes());
            changed = true;
        }
    }
    changed
}

type FrameMatch = (Range<usize>, Range<usize>, Option<Range<usize>>);

fn ipv4(frame: &[u8]) -> Option<FrameMatch> {
    let start = ETHERNET_LEN;
    let head_len = usize::from(frame.get(start)? & 0x0f) * 4;
    let end = start + usize::from(be16(frame, start + 2)?);
    // "More fragments" or a fragment offset: the TCP header may be missing.
    let fragment = be16(frame, start + 6)? & 0x3fff != 0;
    let is_other_protocol = *frame.get(start + 9)? != PROTOCOL_TCP;
    let tcp = start + head_len;
    if head_len < 20 || fragment || is_other_protocol || end > frame.len() || tcp > end {
        return None;
    }
    Some((tcp..end, start + 12..start + 20, Some(start..tcp)))
}

fn ipv6(frame: &[u8]) -> Option<FrameMatch> {
    let start = ETHERNET_LEN;
    let tcp = start + IPV6_LEN;
    let end = tcp + usize::from(be16(frame, start + 4)?);
    // Extension headers are not parsed: the kernels in the tests send none with TCP.
    if *frame.get(start + 6)? != PROTOCOL_TCP || end > frame.len() {
        return None;
    }
    Some((tcp..end, start + 8..start + 40, None))
}

/// The kind of each option (except NOP and END), and its range including kind and length.
fn options(frame: &[u8], section: Range<usize>) -> Vec<(u8, Range<usize>)> {
    let mut found = Vec::new();
    let mut offset = section.start;
    while offset < section.end && frame[offset] != OPTION_END {
        if frame[offset] == OPTION_NOP {
            offset += 1;
            continue;
        }
        // A malformed length would loop for ever or leave the header.
        let len = frame.get(offset + 1).map_or(0, |len| usize::from(*len));
        if len < 2 || offset + len > section.end {
            break;
        }
        found.push((frame[offset], offset..offset + len));
        offset += len;
    }
    found
}

/// Overwrites bytes of the segment and updates its checksum: RFC 1624, equation 3, HC' = ~(~HC + ~m + m'), byte by
/// byte.
fn replace(frame: &mut [u8], segment: &FrameSegment, offset: usize, new: &[u8]) {
    let checksum_offset = segment.tcp.start + TCP_CHECKSUM_AT;
    let mut checksum = be16(frame, checksum_offset).expect("within the segment");
    for (position, new) in (offset..).zip(new) {
        // The position of the byte in its 16-bit word.
        let shift = if (position - segment.tcp.start).is_multiple_of(2) {
            8
        } else {
            0
        };
        let (before, after) = (
            u16::from(frame[position]) << shift,
            u16::from(*new) << shift,
        );
        checksum = !fold(u32::from(!checksum) + u32::from(!before) + u32::from(after));
        frame[position] = *new;
    }
    frame[checksum_offset..checksum_offset + 2].copy_from_slice(&checksum.to_be_bytes());
}

fn ethertype(frame: &[u8]) -> Option<u16> {
    be16(frame, 12)
}

fn be16(bytes: &[u8], offset: usize) -> Option<u16> {
    let two = bytes.get(offset..offset + 2)?;
    Some(u16::from_be_bytes(two.try_into().expect("two bytes")))
}

/// The sum of the 16-bit words. 64 KB do not overflow 32 bits.
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2).map(|word| match word {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        [high] => u32::from(*high) << 8,
        _ => 0,
    });
    words.sum()
}

fn fold(sum: u32) -> u16 {
    // Adding the carries can cause another carry.
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    u16::try_from(sum).expect("folded twice")
}

#[cfg(test)]
mod tests;
