//! RSA-OAEP encryption (RFC 8017 §7.1.1, with SHA-1 and no label) with a server's public key: the only part of RSA that
//! `caching_sha2_password` needs, at a hundredth of the size of a full library. The message is masked with random
//! bytes, so that timing reveals nothing about the password.

use alloc::vec;
use alloc::vec::Vec;

use sha1::{Digest, Sha1};

use crate::error::MySqlError;

/// The length of a SHA-1 digest in bytes.
const DIGEST_LEN: usize = 20;

/// The maximum length of the PEM text in bytes; a 4,096-bit key takes 800.
const PEM_LEN_MAX: usize = 1_024;

const NO_KEY: MySqlError = MySqlError::Protocol("its public key is malformed");

/// An RSA public key; the modulus is big-endian.
struct LoginKey {
    modulus: Vec<u8>,
    exponent: u32,
}

/// Encrypts a message with a public key. `random` must not be used for anything else.
///
/// # Errors
/// The key does not have 1,024 to 4,096 bits, or is too short for the message.
pub fn rsa_oaep_encrypt(
    message: &[u8],
    key_pem: &[u8],
    random: &[u8; DIGEST_LEN],
) -> Result<Vec<u8>, MySqlError> {
    let key = key(key_pem).ok_or(NO_KEY)?;
    let len = key.modulus.len();
    // In addition to the message, OAEP needs two digests and two bytes.
    let padding = (len - 2 * DIGEST_LEN - 2).checked_sub(message.len());
    let padding = padding.ok_or(MySqlError::Protocol(
        "its public key is too short for the password",
    ))?;
    // The OAEP block consists of 0, the seed, the digest of the empty label, zeroes, 1, and the message.
    let mut block = vec![0];
    block.extend_from_slice(random);
    block.extend_from_slice(&Sha1::digest([]));
    block.resize(block.len() + padding, 0);
    block.push(1);
    block.extend_from_slice(message);
    // The seed masks the data; then the masked data mask the seed (RFC 8017 §7.1.1, step 2).
    let (seed, data) = block[1..].split_at_mut(DIGEST_LEN);
    mask(data, seed);
    mask(seed, data);
    Ok(power(&block, &key))
}

/// MGF1: masks `data` with the mask generated from `seed`.
fn mask(data: &mut [u8], seed: &[u8]) {
    for (count, part) in (0_u32..).zip(data.chunks_mut(DIGEST_LEN)) {
        let digest = Sha1::new()
            .chain_update(seed)
            .chain_update(count.to_be_bytes());
        part.iter_mut()
            .zip(digest.finalize())
            .for_each(|(byte, mask)| *byte ^= mask);
    }
}

/// Parses PEM with an RSA public key (`-----BEGIN PUBLIC KEY-----`; RFC 7468, RFC 3279 §2.3.1).
fn key(pem: &[u8]) -> Option<LoginKey> {
    let text = core::str::from_utf8(pem.get(..pem.len().min(PEM_LEN_MAX))?).ok()?;
    let body = text
        .split_once("-----BEGIN PUBLIC KEY-----")?
        .1
        .split_once("-----END")?
        .0;
    let der = base64(body)?;
    let (info, _) = element(&der, 0x30)?;
    let (_algorithm, info) = element(info, 0x30)?;
    let (bits, _) = element(info, 0x03)?;
    // The first byte of a BIT STRING is the number of unused bits.
    let (numbers, _) = element(bits.strip_prefix(&[0])?, 0x30)?;
    let (modulus, numbers) = element(numbers, 0x02)?;
    let (exponent, _) = element(numbers, 0x02)?;
    let modulus = trimmed(modulus);
    let exponent = trimmed(exponent);
    let exponent = exponent.iter().try_fold(0_u32, |number, &byte| {
        number.checked_mul(256)?.checked_add(u32::from(byte))
    })?;
    // These limits bound the computation, which grows with both numbers; servers use 2,048 bits and 65,537.
    let is_supported = (128..=512).contains(&modulus.len()) && exponent <= 65_537;
    // An RSA modulus is odd; with an even modulus, the reduction below would give no meaningful result.
    (is_supported && modulus.last()? % 2 == 1).then(|| LoginKey {
        modulus: modulus.into(),
        exponent,
    })
}

fn trimmed(number: &[u8]) -> &[u8] {
    let zeroes = number.iter().take_while(|&&byte| byte == 0).count();
    &number[zeroes..]
}

/// Splits off the first DER element, which must have this tag: returns its content, and the bytes after it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[actual_tag, first], rest) = der.split_first_chunk::<2>()?;
    // DER lengths up to 127 are a single byte; longer lengths are preceded by their number of bytes.
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => rest
            .split_first()
            .map(|(&len, rest)| (usize::from(len), rest))?,
        0x82 => {
            let (len, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*len)), rest)
        }
        _ => return None,
    };
    (actual_tag == tag).then_some(())?;
    rest.split_at_checked(len)
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut bit_count) = (Vec::new(), 0_u32, 0);
    for byte in text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=')
    {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(digit);
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            bytes.push((bits >> bit_count) as u8);
        }
    }
    Some(bytes)
}

/// `block` to the power of the exponent, modulo the modulus; the result has the length of the modulus.
fn power(block: &[u8], key: &LoginKey) -> Vec<u8> {
    let modulus = limbs(&key.modulus);
    let base = limbs(block);
    let mut result = vec![0; modulus.len()];
    result[0] = 1;
    // This is square-and-multiply. The exponent is public, so the time may depend on its bits.
    for bit in (0..u32::BITS - key.exponent.leading_zeros()).rev() {
        result = product(&result, &result, &modulus);
        if key.exponent >> bit & 1 == 1 {
            result = product(&result, &base, &modulus);
        }
    }
    let mut bytes: Vec<u8> = result.iter().flat_map(|limb| limb.to_le_bytes()).collect();
    bytes.truncate(key.modulus.len());
    bytes.reverse();
    bytes
}

/// Converts big-endian bytes to 64-bit limbs, the least significant one first.
fn limbs(bytes: &[u8]) -> Vec<u64> {
    let limb = |part: &[u8]| {
        part.iter()
            .fold(0, |limb, &byte| limb << 8 | u64::from(byte))
    };
    bytes.rchunks(8).map(limb).collect()
}

/// `left * right` modulo `modulus`, computed bit by bit. Both factors must be less than `modulus`.
fn product(left: &[u64], right: &[u64], modulus: &[u64]) -> Vec<u64> {
    let mut result = vec![0; modulus.len()];
    let mut addend = result.clone();
    for limb in left.iter().rev() {
        // This is double-and-add, reduced after each step, so that all values stay below the modulus.
        for bit in (0..64).rev() {
            addend.copy_from_slice(&result);
            add(&mut result, &addend, modulus);
            if limb >> bit & 1 == 1 {
                add(&mut result, right, modulus);
            }
        }
    }
    result
}

/// Adds modulo `modulus`. Both numbers must be less than `modulus`.
fn add(to: &mut [u64], number: &[u64], modulus: &[u64]) {
    let mut carry = false;
    for (limb, addend) in to.iter_mut().zip(number) {
        let (sum, first) = limb.overflowing_add(*addend);
        let (sum, second) = sum.overflowing_add(u64::from(carry));
        (*limb, carry) = (sum, first | second);
    }
    // Both operands are less than the modulus, so one subtraction suffices.
    if carry || to.iter().rev().ge(modulus.iter().rev()) {
        let mut borrow = false;
        for (limb, subtrahend) in to.iter_mut().zip(modulus) {
            let (rest, first) = limb.overflowing_sub(*subtrahend);
            let (rest, second) = rest.overflowing_sub(u64::from(borrow));
            (*limb, borrow) = (rest, first | second);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsa::pkcs8::{EncodePublicKey, LineEnding};
    use rsa::rand_core::{self, CryptoRng, RngCore};
    use rsa::{Oaep, RsaPrivateKey};

    /// A deterministic generator of random numbers.
    struct TestRng(u64);

    impl RngCore for TestRng {
        fn next_u32(&mut self) -> u32 {
            self.next_u64() as u32
        }
        fn next_u64(&mut self) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
        }
        fn fill_bytes(&mut self, to: &mut [u8]) {
            to.fill_with(|| self.next_u64() as u8);
        }
        fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), rand_core::Error> {
            self.fill_bytes(to);
            Ok(())
        }
    }

    impl CryptoRng for TestRng {}

    #[test]
    fn encrypted_message_is_decrypted_with_private_key() {
        let mut numbers = TestRng(11);
        for bits in [1_024, 1_031, 1_536] {
            let private = RsaPrivateKey::new(&mut numbers, bits).expect("a key");
            let pem = private
                .to_public_key()
                .to_public_key_pem(LineEnding::LF)
                .expect("PEM");
            for len in [0, 1, 7, 62] {
                let message = vec![0xa5; len];
                let mut random = [0; 20];
                numbers.fill_bytes(&mut random);
                let sealed = rsa_oaep_encrypt(&message, pem.as_bytes(), &random).expect("sealed");
                let open = private
                    .decrypt(Oaep::new::<Sha1>(), &sealed)
                    .expect("opened");
                assert_eq!(open, message, "{bits} bits");
            }
            let long = vec![1; bits / 8];
            assert!(rsa_oaep_encrypt(&long, pem.as_bytes(), &[0; 20]).is_err());
        }
    }

    #[test]
    fn corrupted_keys_cause_no_panic() {
        let mut numbers = TestRng(12);
        let private = RsaPrivateKey::new(&mut numbers, 1_024).expect("a key");
        let pem = private
            .to_public_key()
            .to_public_key_pem(LineEnding::LF)
            .expect("PEM");
        for _ in 0..300 {
            let mut changed = pem.clone().into_bytes();
            for _ in 0..=numbers.next_u32() % 3 {
                let at = 26 + numbers.next_u32() as usize % 40;
                changed[at] = b"A/+z90=\n"[numbers.next_u32() as usize % 8];
            }
            let _ = rsa_oaep_encrypt(b"geheim", &changed, &[5; 20]);
        }
        for key in [
            "",
            "-----BEGIN PUBLIC KEY-----",
            "-----BEGIN PUBLIC KEY-----\nMA==\n-----END",
        ] {
            assert!(rsa_oaep_encrypt(b"x", key.as_bytes(), &[0; 20]).is_err());
        }
    }
}
