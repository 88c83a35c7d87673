//! Password files: the output of `htpasswd -B` and argon2 tools, `NAME:HASH`, one per line. This module parses text; it
//! opens no files and verifies no passwords.

use std::collections::HashMap;

/// The longest password file, in bytes.
pub const PASSWORD_FILE_LEN_MAX: u64 = 1 << 20;
/// Accepted costs of bcrypt: each step doubles the time, and 16 takes seconds.
const BCRYPT_COSTS: std::ops::RangeInclusive<u32> = 4..=16;
/// The most memory (KiB) and passes of an accepted argon2 hash: a verification must not exhaust the server.
const ARGON2_MEMORY_KIB_MAX: u32 = 1 << 18;
const ARGON2_PASSES_MAX: u32 = 16;

/// Password hashes by user name.
pub type PasswordUsers = HashMap<String, String>;

/// Reads the text of a password file. Empty lines, and those that begin with `#`, are skipped.
///
/// # Errors
/// The first unusable line, and the reason.
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
        // Weak schemes are refused, and so are costs that would let one request occupy a thread for long.
        if !is_hash(hash) {
            return Err(line_error(
                "not a hash of bcrypt (htpasswd -B, cost 4 to 16) or argon2 (up to 256 MiB and 16 passes)",
            ));
        }
        // Two entries could differ; which one is valid must not depend on the order.
        if users.insert(name.into(), hash.into()).is_some() {
            return Err(line_error("this user is listed twice"));
        }
    }
    // An empty file would lock all users out.
    match users.is_empty() {
        true => Err("it contains no user".into()),
        false => Ok(users),
    }
}

fn is_hash(hash: &str) -> bool {
    let parts: Vec<&str> = hash.split('$').collect();
    match &parts[..] {
        // 22 characters of salt and 31 of digest.
        ["", "2a" | "2b" | "2y", cost, digest] => {
            let cost: Option<u32> = cost.parse().ok();
            digest.len() == 53 && cost.is_some_and(|cost| BCRYPT_COSTS.contains(&cost))
        }
        [
            "",
            "argon2i" | "argon2d" | "argon2id",
            "v=19",
            settings,
            _,
            _,
        ] => is_bounded(settings),
        _ => false,
    }
}

/// Whether argon2 parameters are within the limits: `m=65536,t=3,p=4`
fn is_bounded(settings: &str) -> bool {
    let mut pairs = settings.split(',').map(|pair| pair.split_once('='));
    // Unknown parameters might cost unbounded memory or time.
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
    fn users_have_a_hash_each() {
        let read = users(&format!("# staff\n\nann:{BCRYPT}\n bob:{ARGON2}\n"));
        let read = read.expect("two");
        assert_eq!(
            (read["ann"].as_str(), read["bob"].as_str()),
            (BCRYPT, ARGON2)
        );
    }

    #[test]
    fn what_is_weak_or_endless_is_not_taken() {
        for (line, why) in [
            ("", "no user"),
            ("ann", "line 1: not NAME:HASH"),
            ("ann:secret", "not a hash"),
            ("ann:$apr1$lZL6V/ci$eIMz/iKDkbtys/uU7LEK00", "not a hash"),
            ("ann:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "not a hash"),
            ("ann:$argon2id$v=19$m=9999999,t=2,p=1$YQ$YQ", "not a hash"),
            ("ann:$argon2id$v=19$m=1,t=99,p=1$YQ$YQ", "not a hash"),
        ] {
            let said = users(line).expect_err(line);
            assert!(said.contains(why), "{line}: {said}");
        }
        let costly = BCRYPT.replace("$05$", "$31$");
        assert!(users(&format!("ann:{costly}")).is_err());
        assert!(users(&format!("ann:{BCRYPT}\nann:{BCRYPT}")).is_err());
    }
}
