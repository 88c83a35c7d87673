//! The hash of a path; builder and reader must agree on it. The hash needs no secret: clients can't add entries to the
//! table, so the length of each probe sequence is fixed when the archive is built.

const KEY: u64 = 0x9e37_79b9_7f4a_7c15;

/// The first slot of the probe sequence of a path (to be reduced modulo the number of slots), and the mark in the
/// path's slot.
#[inline]
pub fn probe_start(path: &[u8]) -> (usize, u32) {
    let hash = hash(path);
    let low = (hash & 0xffff_ffff) as usize;
    (low, (hash >> 32) as u32) // both halves fit
}

fn hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut state = KEY ^ bytes.len() as u64;
    for word in words {
        state = mix(state ^ u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    mix(state ^ u64::from_le_bytes(last))
}

/// Multiplies, then combines both halves of the product, so that each bit of `word` affects the whole result.
fn mix(word: u64) -> u64 {
    let product = u128::from(word ^ KEY) * u128::from(KEY.rotate_left(17) | 1);
    (product >> 64) as u64 ^ product as u64 // its halves
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::format;

    #[test]
    fn similar_paths_have_different_hashes() {
        let paths = (0..10_000).map(|number| format!("/pictures/{number}.jpg"));
        let hashes: BTreeSet<u64> = paths.map(|path| hash(path.as_bytes())).collect();
        assert_eq!(hashes.len(), 10_000);
        let starts: BTreeSet<u64> = hashes.iter().map(|hash| hash & 0x7fff).collect();
        // Random values would occupy 26.3 % of 32,768 slots: 8,600.
        assert!(starts.len() > 8_400, "{}", starts.len());
        assert_ne!(hash(b"/a"), hash(b"/a\0"));
    }
}
