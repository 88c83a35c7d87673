//! Hashes for consistent hashing of keys and members, equal in every process. Clients that choose keys can provoke
//! collisions; bounded loads limit the effect.

/// The hash of a key or name.
pub fn hash_of(bytes: &[u8]) -> u64 {
    let fnv = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // The high bits of FNV-1a hardly depend on the last bytes, in which names often differ.
    mix(fnv)
}

/// Mixes the bits of a number (the finalizer of SplitMix64).
pub fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
