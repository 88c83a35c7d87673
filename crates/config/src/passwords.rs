//! Parses password files as written by `htpasswd`, `openssl passwd` and argon2 tools: one `NAME:HASH` per line. No files
//! are opened and no passwords verified here.

use std::collections::HashMap;

/// The longest password file, in bytes.
pub const PASSWORD_FILE_LEN_MAX: u64 = 1 << 20;
/// The accepted costs of bcrypt: the time doubles with each step; a verification at cost 16 takes seconds.
const BCRYPT_COSTS: std::ops::RangeInclusive<u32> = 4..=16;
/// The maximum memory (in KiB) and number of passes of an accepted argon2 hash: verifications must not exhaust the
/// server.
const ARGON2_MEMORY_KIB_MAX: u32 = 1 << 18;
const ARGON2_PASSES_MAX: u32 = 16;
/// The maximum number of rounds of SHA-crypt.
const SHA_CRYPT_ROUNDS_MAX: u32 = 500_000;

/// Password hashes by user name.
pub type PasswordUsers = HashMap<String, String>;

/// Reads the text of a password file. Empty lines, and those that begin with `#`, are skipped.
///
/// # Errors
/// The number of the first unusable line, and the reason.
pub fn users(text: &str) -> Result<PasswordUsers, String> {
    let mut users = PasswordUsers::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line_error = |reason: &str| format!("line {}: {reason}", number + 1);
        let (name, hash) = line
            .split_once(':')
            .ok_or_else(|| line_error("not NAME:HASH"))?;
        // Refused are texts without a hash, and costs with which one verification would occupy a thread for long.
        if !is_hash(hash) && weak_scheme(hash).is_none() {
            return Err(line_error(
                "not a hash of bcrypt (htpasswd -B, cost 4 to 16), argon2 (up to 256 MiB and 16 passes), SHA-crypt (up to 500000 rounds), apr1, MD5 or SHA",
            ));
        }
        // With two entries for a user, the order of lines would decide which password is valid.
        if users.insert(name.into(), hash.into()).is_some() {
            return Err(line_error("this user is listed twice"));
        }
    }
    // An empty file would lock out all users.
    match users.is_empty() {
        true => Err("it contains no user".into()),
        false => Ok(users),
    }
}

fn is_hash(hash: &str) -> bool {
    let parts: Vec<&str> = hash.split('$').collect();
    match &parts[..] {
        // The last part consists of 22 characters of salt and 31 of digest.
        ["", "2a" | "2b" | "2y", cost, digest] => {
            let cost: Option<u32> = cost.parse().ok();
            digest.len() == 53 && cost.is_some_and(|cost| BCRYPT_COSTS.contains(&cost))
        }
        // Version 19 is that of RFC 9106; hashes of earlier versions are weaker.
        [
            "",
            "argon2i" | "argon2d" | "argon2id",
            "v=19",
            settings,
            _,
            _,
        ] => is_bounded(settings),
        ["", "5" | "6", salt, digest] => is_crypt_text(salt) && is_crypt_text(digest),
        ["", "5" | "6", rounds, salt, digest] => {
            let rounds = rounds.strip_prefix("rounds=");
            let rounds = rounds.and_then(|it| it.parse::<u32>().ok());
            rounds.is_some_and(|it| it <= SHA_CRYPT_ROUNDS_MAX)
                && is_crypt_text(salt)
                && is_crypt_text(digest)
        }
        _ => false,
    }
}

/// The scheme of a hash that is computed so fast that a reader of the file can guess most passwords; `None` if the hash
/// is of another scheme, or malformed.
pub fn weak_scheme(hash: &str) -> Option<&'static str> {
    if let Some(digest) = hash.strip_prefix("{SHA}") {
        // 20 bytes in base64.
        return (digest.len() == 28).then_some("SHA");
    }
    let parts: Vec<&str> = hash.split('$').collect();
    match &parts[..] {
        ["", scheme @ ("apr1" | "1"), salt, digest] => {
            let is_valid = is_crypt_text(salt) && is_crypt_text(digest) && digest.len() == 22;
            let name = if *scheme == "1" { "MD5" } else { "apr1" };
            is_valid.then_some(name)
        }
        _ => None,
    }
}

/// Whether a text consists of the digits of crypt(3).
fn is_crypt_text(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/');
    !text.is_empty() && text.bytes().all(is_digit)
}

/// Whether argon2 parameters such as `m=65536,t=3,p=4` are within the limits.
fn is_bounded(settings: &str) -> bool {
    let mut pairs = settings.split(',').map(|pair| pair.split_once('='));
    // An unknown parameter might have an unbounded cost.
    pairs.all(|pair| {
        let Some((key, Ok(value))) = pair.map(|(key, value)| (key, value.parse::<u32>())) else {
            return false;
        };
        match key {
            "m" => value <= ARGON2_MEMORY_KIB_MAX,
            "t" => value <= ARGON2_PASSES_MAX,
            "p" => value <= 64,
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BCRYPT: &str = "$2y$05$abcdefghijklmnopqrstuuabcdefghijklmnopqrstuvwxyz01234";
    const ARGON2: &str = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo";

    #[test]
    fn password_file_maps_users_to_hashes() {
        let read = users(&format!("# staff\n\nann:{BCRYPT}\n bob:{ARGON2}\n"));
        let read = read.expect("two");
        assert_eq!(
            (read["ann"].as_str(), read["bob"].as_str()),
            (BCRYPT, ARGON2)
        );
    }

    #[test]
    fn fast_hashes_of_old_files_are_weak() {
        for (hash, scheme) in [
            ("$apr1$lZL6V/ci$eIMz/iKDkbtys/uU7LEK00", Some("apr1")),
            ("$1$abcd$eIMz/iKDkbtys/uU7LEK00", Some("MD5")),
            ("{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", Some("SHA")),
            ("$6$rounds=5000$salt$digest", None),
            (BCRYPT, None),
        ] {
            assert_eq!(weak_scheme(hash), scheme, "{hash}");
            assert!(users(&format!("ann:{hash}")).is_ok(), "{hash}");
        }
    }

    #[test]
    fn malformed_and_too_costly_hashes_are_refused() {
        for (line, why) in [
            ("", "no user"),
            ("ann", "line 1: not NAME:HASH"),
            ("ann:secret", "not a hash"),
            ("ann:$apr1$lZL6V/ci$short", "not a hash"),
            ("ann:{SHA}short", "not a hash"),
            ("ann:rqXexS6ZhobKA", "not a hash"),
            ("ann:{SSHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "not a hash"),
            ("ann:$6$rounds=99999999$salt$digest", "not a hash"),
            ("ann:$argon2id$v=19$m=9999999,t=2,p=1$YQ$YQ", "not a hash"),
            ("ann:$argon2id$v=19$m=1,t=99,p=1$YQ$YQ", "not a hash"),
        ] {
            let error = users(line).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
        let costly = BCRYPT.replace("$05$", "$31$");
        assert!(users(&format!("ann:{costly}")).is_err());
        assert!(users(&format!("ann:{BCRYPT}\nann:{BCRYPT}")).is_err());
    }
}
