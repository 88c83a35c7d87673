//! Hashes of request keys, identical to those of the programs (`bpf/hash.h`), and the secrets of these hashes.

use std::io;

use lowroad_wire::width::lower;

use crate::layout::{HASHED_WORDS_MAX, hash_key};

/// Draws new secrets.
///
/// # Errors
/// If the system has no random numbers.
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
        // An odd factor makes the multiplication a permutation, so that no bits are lost.
        *word = u64::from(next()) << 32 | u64::from(next()) | 1;
    }
    Ok(key)
}

/// Fills the slice with random bytes.
pub(crate) fn fill(mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // getrandom(2) may return fewer bytes.
        let len = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())?;
        bytes = &mut bytes[len..];
    }
    Ok(())
}

/// The hash of a key, for the index and for events; `hash_of_key` in `bpf/request.h`.
#[must_use]
pub fn hash_key(key: &[u8], secret: &hash_key) -> u64 {
    let offset = HASHED_WORDS_MAX as usize * 2;
    // Keys have at most KEY_MAX bytes, and the programs hash no more.
    let len = lower(key.len() as u64);
    // The collision bound of NH holds for inputs of equal length only, so the length is hashed, too.
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

    /// Number of secrets, out of `secrets`, for which two keys collide in the lower or upper `bits` bits.
    fn collisions(one: &[u8], other: &[u8], secrets: usize, bits: u32) -> usize {
        let collides = |_: &usize| {
            let secret = random_key().expect("random numbers");
            let differs = hash_key(one, &secret) ^ hash_key(other, &secret);
            // The index uses the lower bits of the hash, its entries the upper half.
            differs << (64 - bits) == 0 || differs >> (64 - bits) == 0
        };
        (0..secrets).filter(collides).count()
    }

    #[test]
    fn keys_with_two_flipped_bits_collide_only_by_chance() {
        // Flips the same bit in two bytes of different words; the expected number by chance is 2 * 2000 / 256 = 16.
        for positions in [[11, 15], [15, 19], [11, 19], [7, 23], [24, 32], [3, 40]] {
            for bit in [0x40, 0x80, 1] {
                let mut other = KEY.to_vec();
                for position in positions {
                    other[position + 16] ^= bit;
                }
                let found = collisions(KEY, &other, 2000, 8);
                assert!(found < 45, "{found} of {positions:?} {bit:#x}");
            }
        }
    }

    #[test]
    fn length_and_each_single_bit_change_the_hash() {
        let longer = [KEY, b"\0"].concat();
        assert!(collisions(KEY, &longer, 1000, 32) == 0);
        for at in 0..KEY.len() * 8 {
            let mut other = KEY.to_vec();
            other[at / 8] ^= 1 << (at % 8);
            assert_eq!(collisions(KEY, &other, 20, 32), 0, "bit {at}");
        }
    }
}
