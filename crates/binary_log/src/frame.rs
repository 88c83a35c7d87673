//! The header of a block. A file consists of blocks; each begins with a magic that appears nowhere else, so that a
//! reader finds the next block behind damage.
//!
//! ```text
//!  0 magic 4            8 payload length 4     24 first record 8     44 schema 4
//!  4 version 1         12 raw length 4         32 first time 8       48 dictionary 4
//!  5 kind 1            16 records 4            40 time span 4        52 checksum of the payload 4
//!  6 mask 1, 7 zero    20 session 4                                  56 checksum of the header 4
//! ```
//!
//! Numbers are little endian, checksums CRC-32. The payload is a zstd frame. A payload that contains the magic is
//! masked: combined by exclusive or with a pseudorandom sequence with the number `mask`. Clients choose a part of the
//! payload; without masks, their bytes could look like a block to a reader behind damage. The session, a random number,
//! is a part of the sequence's seed, so that a client can't choose bytes that contain the magic after masking.

use crate::limits::{BLOCK_RECORDS_MAX, PAYLOAD_LEN_MAX, RAW_LEN_MAX};

/// The first bytes of a block, and so of a file. No shorter prefix of it is also a suffix.
pub const MAGIC: [u8; 4] = [0x8B, b'L', b'R', 0];
/// The length of a block's header.
pub const HEADER_LEN: usize = 60;
/// The version of the format.
const VERSION: u8 = 1;
/// The fractional part of the golden ratio spreads the bits of a seed.
const MASK_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
/// The bytes that the header's checksum covers.
const CHECKED_LEN: usize = 56;

/// The content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// The description of columns (`schema`).
    Schema,
    /// Records with values to which blocks refer. Zstd uses the records' texts as its dictionary.
    Dictionary,
    /// Records.
    Records,
    /// A kind of a later version, which is skipped.
    Unknown(u8),
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The content.
    pub kind: BlockKind,
    /// The number of the pseudorandom sequence that masks the payload; 0: none.
    pub mask: u8,
    /// The length of the payload.
    pub payload_len: usize,
    /// The uncompressed length of the payload.
    pub raw_len: usize,
    /// The number of records.
    pub record_count: u32,
    /// A random number that identifies one run of the encoder.
    pub session: u32,
    /// The number of earlier records of this session, including dropped ones.
    pub first_record: u64,
    /// The time of the first record, ms since 1970.
    pub first_ms: u64,
    /// The time from the first record to the last, ms.
    pub span_ms: u32,
    /// The checksum of the schema's raw bytes.
    pub schema: u32,
    /// The checksum of the dictionary's raw bytes; 0: none.
    pub dictionary: u32,
    /// The checksum of the payload.
    pub payload_sum: u32,
}

impl BlockHeader {
    /// The header in a file.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(4, &[VERSION, self.kind.code(), self.mask]);
        put(8, &(self.payload_len as u32).to_le_bytes());
        put(12, &(self.raw_len as u32).to_le_bytes());
        put(16, &self.record_count.to_le_bytes());
        put(20, &self.session.to_le_bytes());
        put(24, &self.first_record.to_le_bytes());
        put(32, &self.first_ms.to_le_bytes());
        put(40, &self.span_ms.to_le_bytes());
        put(44, &self.schema.to_le_bytes());
        put(48, &self.dictionary.to_le_bytes());
        put(52, &self.payload_sum.to_le_bytes());
        let sum = crc32fast::hash(&out[..CHECKED_LEN]);
        out[CHECKED_LEN..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads a header. None if it is damaged, of another version, or claims more than the limits allow.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Option<BlockHeader> {
        let short =
            |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("4 bytes follow"));
        let long =
            |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("8 bytes follow"));
        let is_whole = short(CHECKED_LEN) == crc32fast::hash(&bytes[..CHECKED_LEN]);
        // A block of another version is skipped like damage: its header may have other fields.
        if !bytes.starts_with(&MAGIC) || !is_whole || bytes[4] != VERSION {
            return None;
        }
        let header = BlockHeader {
            kind: BlockKind::from_code(bytes[5]),
            mask: bytes[6],
            payload_len: short(8) as usize,
            raw_len: short(12) as usize,
            record_count: short(16),
            session: short(20),
            first_record: long(24),
            first_ms: long(32),
            span_ms: short(40),
            schema: short(44),
            dictionary: short(48),
            payload_sum: short(52),
        };
        // Checked before memory is allocated.
        let fits = header.payload_len <= PAYLOAD_LEN_MAX
            && header.raw_len <= RAW_LEN_MAX
            && header.record_count as usize <= BLOCK_RECORDS_MAX;
        fits.then_some(header)
    }

    /// The length of header and payload.
    pub fn block_len(&self) -> usize {
        HEADER_LEN + self.payload_len
    }

    /// The time of the last record, ms since 1970; a lower bound if the span is too long for its field.
    pub fn last_ms(&self) -> u64 {
        self.first_ms.saturating_add(self.span_ms.into())
    }
}

impl BlockKind {
    fn code(self) -> u8 {
        match self {
            BlockKind::Schema => 1,
            BlockKind::Dictionary => 2,
            BlockKind::Records => 3,
            BlockKind::Unknown(code) => code,
        }
    }

    fn from_code(code: u8) -> BlockKind {
        match code {
            1 => BlockKind::Schema,
            2 => BlockKind::Dictionary,
            3 => BlockKind::Records,
            code => BlockKind::Unknown(code),
        }
    }
}

/// Masks a payload with the first sequence that removes the magic from it, and stores the sequence's number in the
/// header.
pub fn mask_payload(header: &mut BlockHeader, payload: &mut [u8]) {
    let finder = memchr::memmem::Finder::new(&MAGIC);
    // By chance, one of about a hundred payloads of the maximum length contains the magic.
    while finder.find(payload).is_some() && header.mask < u8::MAX {
        // Removes the mask that did not help, and applies the next one.
        apply_mask(header, payload);
        header.mask += 1;
        apply_mask(header, payload);
    }
}

/// Masks a payload with the header's sequence. A second call restores the payload.
pub fn apply_mask(header: &BlockHeader, payload: &mut [u8]) {
    // Most payloads need no mask, and those of mask 0 are written as zstd made them.
    if header.mask == 0 {
        return;
    }
    // With `first_record` each block has another sequence, so one that was guessed helps with no other block.
    let seed = u64::from(header.session) << 32 | u64::from(header.mask);
    // Xorshift needs a state that is not 0.
    let mut state = (seed ^ header.first_record.rotate_left(16)).wrapping_mul(MASK_FACTOR) | 1;
    for chunk in payload.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        for (byte, mask) in chunk.iter_mut().zip(state.to_le_bytes()) {
            *byte ^= mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> BlockHeader {
        BlockHeader {
            kind: BlockKind::Records,
            mask: 0,
            payload_len: 1,
            raw_len: 2,
            record_count: 3,
            session: 4,
            first_record: 5,
            first_ms: 6,
            span_ms: 7,
            schema: 8,
            dictionary: 9,
            payload_sum: 10,
        }
    }

    #[test]
    fn decoded_header_equals_the_original_and_any_changed_bit_is_detected() {
        let bytes = header().encode();
        assert_eq!(BlockHeader::decode(&bytes), Some(header()));
        for bit in 0..8 * HEADER_LEN {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BlockHeader::decode(&changed), None, "bit {bit}");
        }
    }

    #[test]
    fn header_with_lengths_beyond_the_limits_is_refused() {
        for header in [
            BlockHeader {
                payload_len: PAYLOAD_LEN_MAX + 1,
                ..header()
            },
            BlockHeader {
                raw_len: RAW_LEN_MAX + 1,
                ..header()
            },
            BlockHeader {
                record_count: BLOCK_RECORDS_MAX as u32 + 1,
                ..header()
            },
        ] {
            assert_eq!(BlockHeader::decode(&header.encode()), None);
        }
    }

    #[test]
    fn masked_payload_does_not_contain_the_magic() {
        let text = [&b"a"[..], &MAGIC, b"b", &MAGIC, &MAGIC].concat();
        let (mut header, mut payload) = (header(), text.clone());
        mask_payload(&mut header, &mut payload);
        assert!(header.mask > 0);
        assert_eq!(memchr::memmem::find(&payload, &MAGIC), None);
        apply_mask(&header, &mut payload);
        assert_eq!(payload, text);
    }
}
