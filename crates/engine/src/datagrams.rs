//! Datagrams that a driver receives or sends: packet trains with their addresses and ECN bits.
//!
//! A packet train is the unit of segmentation offload (UDP GSO and GRO in udp(7)): datagrams of equal length, except
//! that the last may be shorter, to or from one peer. A single datagram is a train of one. Received and sent trains
//! have the same type, so a received train can be sent back unchanged.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

/// Maximum number of trains per receive.
pub const TRAINS_MAX: usize = 32;
/// Maximum length of a received train: the maximum length of an IP packet.
pub const TRAIN_LEN_MAX: usize = 64 * 1024;
/// Maximum number of datagrams in a train: `UDP_MAX_SEGMENTS` of the kernel.
pub const SEGMENTS_MAX: usize = 64;

/// The ECN codepoint of an IP packet (RFC 3168, section 5; RFC 9000, section 13.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// The transport does not use ECN.
    #[default]
    NotEct,
    /// ECN-capable, codepoint ECT(1).
    Ect1,
    /// ECN-capable, codepoint ECT(0).
    Ect0,
    /// Congestion experienced: a router has marked the packet.
    Ce,
}

impl Ecn {
    /// The codepoint in the low two bits of a traffic class.
    pub fn from_bits(traffic_class: u8) -> Ecn {
        match traffic_class & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// The codepoint as two bits.
    pub fn bits(self) -> u8 {
        self as u8
    }
}

/// A packet train: consecutive datagrams in a buffer, to or from one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatagramTrain {
    /// The peer's address. IPv4 addresses are never in the mapped form of IPv6.
    pub peer: SocketAddr,
    /// This host's address: the destination of received datagrams, the source of datagrams to send. If it is `None`,
    /// the kernel chooses the source.
    pub local: Option<IpAddr>,
    /// The ECN codepoint of each packet.
    pub ecn: Ecn,
    /// The length of each datagram; the last may be shorter.
    pub segment_len: usize,
    /// The range of the datagrams in the buffer. A train with an empty range is one empty datagram.
    pub range: Range<usize>,
}

impl DatagramTrain {
    /// The datagrams. `bytes` is the buffer that contains the train.
    pub fn segments<'b>(&self, bytes: &'b [u8]) -> impl Iterator<Item = &'b [u8]> {
        let bytes = &bytes[self.range.clone()];
        // An empty datagram is a datagram, but an empty slice has no chunks.
        let empty = bytes.is_empty().then_some(bytes);
        empty
            .into_iter()
            .chain(bytes.chunks(self.segment_len.max(1)))
    }

    /// The number of datagrams.
    pub fn count(&self) -> usize {
        self.range.len().div_ceil(self.segment_len.max(1)).max(1)
    }
}

/// Received trains, in a buffer that every receive reuses.
pub struct DatagramBatch {
    memory: Box<[u8]>,
    trains: Vec<DatagramTrain>,
}

impl Default for DatagramBatch {
    fn default() -> DatagramBatch {
        // The kernel allocates zeroed pages on first use, so unused pages take no memory.
        DatagramBatch {
            memory: vec![0; TRAINS_MAX * TRAIN_LEN_MAX].into(),
            trains: Vec::with_capacity(TRAINS_MAX),
        }
    }
}

impl DatagramBatch {
    /// The trains, in the order of their arrival.
    pub fn trains(&self) -> &[DatagramTrain] {
        &self.trains
    }

    /// The buffer that contains the trains.
    pub fn bytes(&self) -> &[u8] {
        &self.memory
    }

    /// Trains and buffer, for a protocol that decrypts in place or sends trains back.
    pub fn parts_mut(&mut self) -> (&mut [DatagramTrain], &mut [u8]) {
        (&mut self.trains, &mut self.memory)
    }

    /// Removes all trains: for drivers, before they receive.
    pub fn clear(&mut self) {
        self.trains.clear();
    }

    /// Whether there is room for another train.
    pub fn is_full(&self) -> bool {
        self.trains.len() >= TRAINS_MAX
    }

    /// Adds a train with a copy of its bytes: for drivers that don't receive from a kernel. The train's range is
    /// replaced.
    ///
    /// # Panics
    /// The batch is full, or the train is longer than [`TRAIN_LEN_MAX`].
    pub fn push(&mut self, train: DatagramTrain, bytes: &[u8]) {
        assert!(!self.is_full() && bytes.len() <= TRAIN_LEN_MAX);
        let start = self.trains.len() * TRAIN_LEN_MAX;
        let range = start..start + bytes.len();
        self.memory[range.clone()].copy_from_slice(bytes);
        self.trains.push(DatagramTrain { range, ..train });
    }

    /// The buffers of the batch, for a driver that receives in place.
    pub(crate) fn memory_and_trains(&mut self) -> (&mut [u8], &mut Vec<DatagramTrain>) {
        (&mut self.memory, &mut self.trains)
    }
}

/// Losses of a datagram socket on this host since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramDrops {
    /// Datagrams that found the receive buffer full.
    pub overflowed: u64,
    /// Received trains with truncated control messages or bytes, which can't be interpreted.
    pub truncated: u64,
    /// Sends that the system refused for another reason than a full buffer: too long for the interface, no route, a
    /// firewall.
    pub refused: u64,
    /// Trains that were sent as single datagrams, because the kernel refused to segment them. These are not losses.
    pub unsegmented: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train(segment_len: usize, range: Range<usize>) -> DatagramTrain {
        DatagramTrain {
            peer: ([127, 0, 0, 1], 1).into(),
            local: None,
            ecn: Ecn::NotEct,
            segment_len,
            range,
        }
    }

    #[test]
    fn train_is_split_at_segment_len_and_empty_train_is_one_datagram() {
        let bytes = b"abcdefgh";
        type Case = (usize, Range<usize>, &'static [&'static [u8]]);
        let cases: [Case; 6] = [
            (3, 0..8, &[b"abc", b"def", b"gh"]),
            (4, 0..8, &[b"abcd", b"efgh"]),
            (9, 2..8, &[b"cdefgh"]),
            (0, 3..3, &[b""]),
            (5, 3..3, &[b""]),
            (0, 6..8, &[b"g", b"h"]),
        ];
        for (segment_len, range, expected) in cases {
            let train = train(segment_len, range);
            assert_eq!(train.segments(bytes).collect::<Vec<_>>(), expected);
            assert_eq!(train.count(), expected.len());
        }
    }

    #[test]
    fn ecn_codepoints_match_rfc_3168() {
        for bits in 0..=255 {
            assert_eq!(Ecn::from_bits(bits).bits(), bits & 3);
        }
        assert_eq!(Ecn::Ect0.bits(), 2);
    }
}
