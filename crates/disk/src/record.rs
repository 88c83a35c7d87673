//! The format of a record in a segment: the head, and the offset of the body. Pure functions on bytes.
//!
//! ```text
//!  magic version 0  key_len meta_len  body_len  expires_ms  body_check  head_check  key  meta  (padding)  body
//!    4      2    2     4       4          8          8           8           8
//! ```
//!
//! Integers are little-endian. The head's checksum covers the whole head and is seeded with the store's random number
//! and the record's location, so that a record of another store or location is rejected. The head is written after the
//! body, so it can contain both checksums, and a record needs no trailer.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The alignment of records.
pub const UNIT: u64 = 64;
/// Bodies of at least this length begin at a page boundary, so that sendfile(2) sends whole pages. For shorter bodies
/// the padding would take too much space.
pub const PAGED_FROM: u64 = 64 * 1024;
/// The maximum length of key and metadata together.
pub const HEAD_LEN_MAX: usize = 1 << 20;
/// The maximum length of a body.
pub const BODY_LEN_MAX: u64 = (1 << 48) - 1;

const PAGE: u64 = 4096;
const MAGIC: [u8; 4] = *b"LRDO";
const VERSION: u16 = 1;
const FIXED_LEN: usize = 48;
const CHECK_AT: usize = 40;

/// The store and the location of a record, from which the seed of its checksums is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSeed {
    /// The random number of the store.
    pub store: u64,
    /// The segment's number.
    pub segment: u32,
    /// The offset in the segment in bytes.
    pub offset: u64,
}

impl RecordSeed {
    fn seed(self) -> u64 {
        // The seed includes the location, so that old bytes of another record are never accepted.
        self.store ^ u64::from(self.segment).rotate_left(32) ^ self.offset.rotate_left(7)
    }
}

/// The decoded head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead<'a> {
    pub key: &'a [u8],
    /// The caller's metadata.
    pub meta: &'a [u8],
    /// The length of the body in bytes.
    pub body_len: u64,
    /// The time after which the object is unusable, ms since 1970.
    pub expires_ms: u64,
    /// The checksum of the body.
    pub body_check: u64,
}

/// The reason why a head is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordDamage {
    /// The magic number is missing.
    Magic,
    /// The version is unknown.
    Version,
    /// The lengths of key and metadata do not add up to the length of the head.
    Lengths,
    /// The checksum is wrong.
    Checksum,
}

/// The length of a head with key and metadata.
pub fn head_len(key: &[u8], meta: &[u8]) -> usize {
    FIXED_LEN + key.len() + meta.len()
}

/// The offset of the body of a record at `offset`.
pub fn body_offset(offset: u64, head_len: u64, body_len: u64) -> u64 {
    let end = offset + head_len;
    match body_len >= PAGED_FROM {
        true => end.next_multiple_of(PAGE),
        false => end,
    }
}

/// The end of a record at `offset`, where the next may begin.
pub fn end(offset: u64, head_len: u64, body_len: u64) -> u64 {
    (body_offset(offset, head_len, body_len) + body_len).next_multiple_of(UNIT)
}

impl<'a> RecordHead<'a> {
    /// Appends the encoded head.
    pub fn encode(&self, origin: RecordSeed, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&(self.key.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.meta.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.body_len.to_le_bytes());
        out.extend_from_slice(&self.expires_ms.to_le_bytes());
        out.extend_from_slice(&self.body_check.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.meta);
        let check = xxh3_64_with_seed(&out[start..], origin.seed());
        out[start + CHECK_AT..start + FIXED_LEN].copy_from_slice(&check.to_le_bytes());
    }

    /// Decodes a head that fills `bytes`; clears its checksum field.
    ///
    /// # Errors
    /// The head is damaged.
    pub fn decode(bytes: &'a mut [u8], origin: RecordSeed) -> Result<RecordHead<'a>, RecordDamage> {
        if bytes.len() < FIXED_LEN || bytes[..4] != MAGIC {
            return Err(RecordDamage::Magic);
        }
        if bytes[4..6] != VERSION.to_le_bytes() {
            return Err(RecordDamage::Version);
        }
        let (key_len, meta_len) = (u32_at(bytes, 8) as usize, u32_at(bytes, 12) as usize);
        // The lengths are checked before the checksum, since damaged lengths must not lead beyond the buffer.
        if key_len.checked_add(meta_len) != Some(bytes.len() - FIXED_LEN) {
            return Err(RecordDamage::Lengths);
        }
        let check = u64_at(bytes, CHECK_AT);
        // The checksum was computed while its own field was zero.
        bytes[CHECK_AT..FIXED_LEN].fill(0);
        if xxh3_64_with_seed(bytes, origin.seed()) != check {
            return Err(RecordDamage::Checksum);
        }
        Ok(RecordHead {
            key: &bytes[FIXED_LEN..FIXED_LEN + key_len],
            meta: &bytes[FIXED_LEN + key_len..],
            body_len: u64_at(bytes, 16),
            expires_ms: u64_at(bytes, 24),
            body_check: u64_at(bytes, 32),
        })
    }
}

/// The little-endian integer at an offset, which must be within `bytes`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

/// The little-endian integer at an offset, which must be within `bytes`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: RecordSeed = RecordSeed {
        store: 7,
        segment: 3,
        offset: 128,
    };

    fn encoded() -> Vec<u8> {
        let head = RecordHead {
            key: b"example.org/a",
            meta: b"meta",
            body_len: 5,
            expires_ms: 9,
            body_check: 11,
        };
        let mut bytes = Vec::new();
        head.encode(ORIGIN, &mut bytes);
        bytes
    }

    #[test]
    fn record_head_round_trips() {
        let mut bytes = encoded();
        assert_eq!(bytes.len(), head_len(b"example.org/a", b"meta"));
        let head = RecordHead::decode(&mut bytes, ORIGIN).expect("whole");
        assert_eq!((head.key, head.meta), (&b"example.org/a"[..], &b"meta"[..]));
        assert_eq!(
            (head.body_len, head.expires_ms, head.body_check),
            (5, 9, 11)
        );
    }

    #[test]
    fn any_flipped_bit_is_detected() {
        let bytes = encoded();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let ignored = (6..8).contains(&(bit / 8)); // covered by the checksum, too
            assert!(
                RecordHead::decode(&mut damaged, ORIGIN).is_err(),
                "{bit} {ignored}"
            );
        }
    }

    #[test]
    fn head_of_another_location_or_store_is_rejected() {
        for other in [
            RecordSeed { store: 8, ..ORIGIN },
            RecordSeed {
                segment: 4,
                ..ORIGIN
            },
            RecordSeed {
                offset: 192,
                ..ORIGIN
            },
        ] {
            assert_eq!(
                RecordHead::decode(&mut encoded(), other),
                Err(RecordDamage::Checksum)
            );
        }
    }

    #[test]
    fn truncated_head_is_rejected() {
        let bytes = encoded();
        for len in 0..bytes.len() {
            assert!(RecordHead::decode(&mut bytes[..len].to_vec(), ORIGIN).is_err());
        }
    }

    #[test]
    fn long_bodies_are_page_aligned() {
        assert_eq!(body_offset(64, 100, 1000), 164);
        assert_eq!(body_offset(64, 100, PAGED_FROM), 4096);
        assert_eq!(end(64, 100, 1000), 1216);
    }
}
