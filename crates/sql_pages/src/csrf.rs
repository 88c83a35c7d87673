//! Tokens that show that a form came from one of the site's own pages: an HMAC over a random cookie
//! and the name of the host: what another site's pages can neither read nor, without the key, make
//! a token for. Who can set a cookie for the host, as the other hosts of its domain can, could set
//! one for which the host gave him a token; browsers say where a request comes from besides. Knows
//! neither forms nor templates. Read the "HMAC-based token" part of OWASP's cheat sheet on the subject.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The cookie that tokens are bound to.
pub const COOKIE: &str = "lowroad_csrf";

/// The form field that has the token.
pub const FIELD: &str = "csrf";

/// The request field that has the token where a script sends the request.
pub const HEADER: &str = "X-CSRF-Token";

/// The bytes of a cookie before they are written as hexadecimal digits.
const COOKIE_LEN: usize = 16;

/// What tokens are signed with. It is made at the start and kept when the configuration is read
/// again, so that open forms stay valid; after a restart they have to be loaded anew.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// A key that nobody knows.
    ///
    /// # Errors
    /// With the reason, if the system has no random bytes.
    pub fn random() -> Result<Key, String> {
        random().map(Key)
    }

    /// The token for a cookie at a host.
    pub fn token(&self, host: &[u8], cookie: &str) -> String {
        hex(&self.mac(host, cookie).finalize().into_bytes())
    }

    /// Whether it is the token for the cookie at the host; takes the same time for any wrong one.
    pub fn verify(&self, host: &[u8], cookie: &str, token: &str) -> bool {
        let is_right = |token: Vec<u8>| self.mac(host, cookie).verify_slice(&token).is_ok();
        is_cookie(cookie) && unhex(token).is_some_and(is_right)
    }

    fn mac(&self, host: &[u8], cookie: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length will do");
        mac.update(b"form\0");
        mac.update(cookie.as_bytes());
        // A host has no NUL, and a cookie one length, so that no two pairs are the same bytes.
        mac.update(b"\0");
        mac.update(&host.to_ascii_lowercase());
        mac
    }
}

/// A value for the cookie of a visitor who has none.
///
/// # Errors
/// With the reason, if the system has no random bytes.
pub fn new_cookie() -> Result<String, String> {
    random::<COOKIE_LEN>().map(|bytes| hex(&bytes))
}

/// Whether a cookie looks like one of ours.
pub fn is_cookie(text: &str) -> bool {
    text.len() == 2 * COOKIE_LEN && unhex(text).is_some()
}

fn random<const LEN: usize>() -> Result<[u8; LEN], String> {
    let mut bytes = [0; LEN];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random bytes: {error}"))?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs
        .map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_for_this_cookie_and_this_key_is_right() {
        let (key, other) = (Key([1; 32]), Key([2; 32]));
        let (mine, his) = ("00".repeat(16), "11".repeat(16));
        let token = key.token(b"a.example", &mine);
        assert!(key.verify(b"a.example", &mine, &token));
        assert!(key.verify(b"A.Example", &mine, &token));
        assert!(!key.verify(b"b.example", &mine, &token), "another site");
        assert!(!key.verify(b"a.example", &his, &token));
        assert!(!other.verify(b"a.example", &mine, &token));
        let none = key.token(b"", "");
        assert!(!key.verify(b"", "", &none), "no cookie, no token");
        for wrong in ["", "0", "zz", &token[2..], &format!("{token}00")] {
            assert!(!key.verify(b"a.example", &mine, wrong), "{wrong}");
        }
    }

    #[test]
    fn cookies_are_random_and_known_again() {
        let (one, two) = (new_cookie().unwrap(), new_cookie().unwrap());
        assert_ne!(one, two);
        assert!(is_cookie(&one) && !is_cookie("x") && !is_cookie(&"g".repeat(32)));
    }
}
