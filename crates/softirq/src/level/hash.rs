//! Hashes of keys, identical to those of the programs (`bpf/hash.h`), and their secrets.

use std::io;

use lowroad_wire::width::lower;

use crate::layout::{HASHED_WORDS_MAX, hash_key};

/// Draws new secrets.
///
/// # Errors
/// When the system has no random numbers.
pub fn random_key() -> io::Result<hash_key> {
    let mut key = hash_key::default();
    let mut bytes = [0; size_of::<hash_key>()];
    fill(&mut bytes)?;
    let mut words = bytes.chunks_exact(4).map(|four| four.try_into());
    let mut next = || u32::from_ne_bytes(words.next().and_then(Result::ok).expect("as many"));
    for word in key.words.iter_mut().chain(key.tuple.as_flattened_mut()) {
        *word = next();
    }
    for word in &mut key.mix {
        // Odd factors make the multiplication a permutation, so that no bits are lost.
        *word = u64::from(next()) << 32 | u64::from(next()) | 1;
    }
    Ok(key)
}

/// Fills the slice with random bytes.
pub(crate) fn fill(mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // The call may return fewer bytes.
        let len = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())?;
        bytes = &mut bytes[len..];
    }
    Ok(())
}

/// The hash of a key, for the index and for event reports; `hash_of_key` in `bpf/request.h`.
#[must_use]
pub fn hash_key(key: &[u8], secret: &hash_key) -> u64 {
    let offset = HASHED_WORDS_MAX as usize * 2;
    // Keys have KEY_MAX bytes at most, and the programs hash no more.
    let len = lower(key.len() as u64);
    // NH is proven for inputs of one length only, so the length is hashed, too.
    let mut sum = nh(len, 0, &secret.words[offset..]);
    for (chunk, secrets) in key.chunks(8).zip(secret.words.chunks_exact(2)) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let [a, b, c, d, e, f, g, h] = word;
        let (low, high) = ([a, b, c, d], [e, f, g, h]);
        let pair = nh(u32::from_le_bytes(low), u32::from_le_bytes(high), secrets);
        sum = sum.wrapping_add(pair);
    }
    for factor in secret.mix {
        sum = (sum ^ sum >> 32).wrapping_mul(factor);
    }
    sum ^ sum >> 32
}

fn nh(a: u32, b: u32, secrets: &[u32]) -> u64 {
    u64::from(a.wrapping_add(secrets[0])) * u64::from(b.wrapping_add(secrets[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"\0\0\x50\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01\x01/a/path/of/some/length?with=a&query=behind\x02host";

    /// Number of secrets out of `secrets` under which two keys collide in `1 << bits` slots.
    fn collisions(one: &[u8], other: &[u8], secrets: usize, bits: u32) -> usize {
        let collides = |_: &usize| {
            let secret = random_key().expect("random numbers");
            let differs = hash_key(one, &secret) ^ hash_key(other, &secret);
            // The index takes the lower bits, its entries the upper half.
            differs << (64 - bits) == 0 || differs >> (64 - bits) == 0
        };
        (0..secrets).filter(collides).count()
    }

    #[test]
    fn flipped_bits_collide_no_more_than_chance() {
        // Two of ten bits in different words; by chance 2 * 2000 / 256 = 16.
        for places in [[11, 15], [15, 19], [11, 19], [7, 23], [24, 32], [3, 40]] {
            for bit in [0x40, 0x80, 1] {
                let mut other = KEY.to_vec();
                for place in places {
                    other[place + 16] ^= bit;
                }
                let found = collisions(KEY, &other, 2000, 8);
                assert!(found < 45, "{found} of {places:?} {bit:#x}");
            }
        }
    }

    #[test]
    fn lengths_and_single_bits_make_another_hash() {
        let longer = [KEY, b"\0"].concat();
        assert!(collisions(KEY, &longer, 1000, 32) == 0);
        for at in 0..KEY.len() * 8 {
            let mut other = KEY.to_vec();
            other[at / 8] ^= 1 << (at % 8);
            assert_eq!(collisions(KEY, &other, 20, 32), 0, "bit {at}");
        }
    }
}
