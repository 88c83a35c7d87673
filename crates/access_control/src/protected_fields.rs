//! Request fields that only the server sets, by authentication.

/// Whether a request field has one of these names. CGI reads `_` as `-`, so both are the same here.
pub fn is_protected(name: &[u8], protected: &[Box<str>]) -> bool {
    protected.iter().any(|other| {
        let mut pairs = name.iter().zip(other.bytes());
        name.len() == other.len() && pairs.all(|(byte, other)| is_same(*byte, other))
    })
}

fn is_same(byte: u8, other: u8) -> bool {
    // Names are configured without `_`.
    byte.eq_ignore_ascii_case(&other) || byte == b'_' && other == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_protected_in_every_spelling() {
        let protected = ["Remote-User".into(), "X".into()];
        for name in ["Remote-User", "remote-user", "REMOTE_USER", "x"] {
            assert!(is_protected(name.as_bytes(), &protected), "{name}");
        }
        for name in ["", "Remote-Users", "RemoteUser", "Remote-Use", "y"] {
            assert!(!is_protected(name.as_bytes(), &protected), "{name}");
        }
    }
}
