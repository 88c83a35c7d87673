//! Verifies a password against a hash of any accepted scheme. The fast schemes (apr1, MD5, SHA-1) are those of old files
//! of Apache and nginx. A reader of the file can guess short passwords.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use sha1::Sha1;

/// The digits of crypt(3), in the order of their values.
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The longest salt of MD5 hashes, in bytes.
const MD5_SALT_LEN_MAX: usize = 8;
const MD5_ROUNDS: usize = 1000;

/// Whether the password is that of the hash.
pub fn verify(password: &[u8], hash: &str) -> bool {
    if let Some(digest) = hash.strip_prefix("{SHA}") {
        return is_equal(
            STANDARD.encode(Sha1::digest(password)).as_bytes(),
            digest.as_bytes(),
        );
    }
    for magic in ["$apr1$", "$1$"] {
        if let Some(rest) = hash.strip_prefix(magic) {
            return is_md5(password, magic, rest);
        }
    }
    if hash.starts_with("$5$") || hash.starts_with("$6$") {
        return is_sha_crypt(password, hash);
    }
    match hash.starts_with("$argon2") {
        true => is_argon2(password, hash),
        false => bcrypt::verify(password, hash).unwrap_or(false),
    }
}

fn is_argon2(password: &[u8], hash: &str) -> bool {
    use argon2::{Argon2, PasswordHash, PasswordVerifier};
    let hash = PasswordHash::new(hash);
    hash.is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok())
}

fn is_sha_crypt(password: &[u8], hash: &str) -> bool {
    use sha_crypt::{PasswordVerifier, ShaCrypt};
    ShaCrypt::default().verify_password(password, hash).is_ok()
}

fn is_md5(password: &[u8], magic: &str, rest: &str) -> bool {
    let Some((salt, digest)) = rest.split_once('$') else {
        return false;
    };
    // Longer salts are cut, as by Apache.
    let salt = salt.as_bytes();
    let salt = salt.get(..MD5_SALT_LEN_MAX).unwrap_or(salt);
    is_equal(
        &md5_crypt(password, magic.as_bytes(), salt),
        digest.as_bytes(),
    )
}

/// MD5-based crypt, of FreeBSD (`$1$`) and Apache (`$apr1$`): 22 digits.
fn md5_crypt(password: &[u8], magic: &[u8], salt: &[u8]) -> Vec<u8> {
    let digest = |parts: &[&[u8]]| -> [u8; 16] {
        let mut md5 = Md5::new();
        parts.iter().for_each(|part| md5.update(part));
        md5.finalize().into()
    };
    let inner = digest(&[password, salt, password]);
    let mut first = Md5::new();
    [password, magic, salt]
        .iter()
        .for_each(|part| first.update(part));
    for start in (0..password.len()).step_by(inner.len()) {
        first.update(&inner[..inner.len().min(password.len() - start)]);
    }
    // The bits of the length select NUL or the first byte, by a mistake of the first implementation.
    let mut bits = password.len();
    while bits > 0 {
        first.update(if bits & 1 == 1 { &[0] } else { &password[..1] });
        bits >>= 1;
    }
    let mut last: [u8; 16] = first.finalize().into();
    // The rounds only cost time: 1000 of them were slow in 1994.
    for round in 0..MD5_ROUNDS {
        let is_odd = round % 2 == 1;
        let (before, after) = match is_odd {
            true => (password, &last[..]),
            false => (&last[..], password),
        };
        let salt = if round % 3 != 0 { salt } else { &[] };
        let middle = if round % 7 != 0 { password } else { &[] };
        last = digest(&[before, salt, middle, after]);
    }
    md5_digits(&last)
}

/// The digest in the digits and the order of bytes of MD5-based crypt.
fn md5_digits(digest: &[u8; 16]) -> Vec<u8> {
    const ORDER: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];
    let mut out = Vec::with_capacity(22);
    let mut put = |mut value: u32, count: usize| {
        for _ in 0..count {
            out.push(DIGITS[(value & 63) as usize]);
            value >>= 6;
        }
    };
    for [high, middle, low] in ORDER {
        let [high, middle, low] = [high, middle, low].map(|index| u32::from(digest[index]));
        put(high << 16 | middle << 8 | low, 4);
    }
    put(u32::from(digest[11]), 2);
    out
}

/// Compares in a time that depends on the lengths only.
fn is_equal(left: &[u8], right: &[u8]) -> bool {
    // All bytes are compared: an early end would show how many are right.
    let differences = left.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b));
    left.len() == right.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_other_tools_are_verified() {
        // By htpasswd -m and -s, openssl passwd -1, -5 and -6.
        for hash in HASHES {
            assert!(verify(b"myPassword", hash), "{hash}");
            for wrong in ["", "mypassword", "myPassword ", "myPasswor"] {
                assert!(!verify(wrong.as_bytes(), hash), "{wrong:?} {hash}");
            }
        }
        assert!(!verify(b"", "$apr1$") && !verify(b"", "{SHA}") && !verify(b"", "$6$"));
    }

    const HASHES: [&str; 5] = [
        "$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/",
        "{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=",
        "$1$abcd$WS95xaG2uEyhd7AhWyBAi0",
        "$5$saltsalt$OJSxPe6LHaPuWqFjBl/xMCCyk7DWOlte4cPNgCdIbwD",
        "$6$saltsalt$REpTllT9/S/gg33eAxbXKSVehttBRbY4OJ0jTp669YREedbYCJp8tD90LctevwvdnnuZN0qTJQVuUqDzHImPf1",
    ];
}
