//! CSRF tokens: prove that a form was sent from one of the site's own pages. A token is an HMAC over a random cookie
//! and the host name. Pages of other sites can neither read the cookie nor compute a token without the key ("HMAC-based
//! token" in OWASP's CSRF cheat sheet).
//!
//! Another host of the same domain could set the cookie to a value for which it has obtained a token here; against
//! that, requests that the browser reports as cross-site are refused. This module is independent of forms and
//! templates.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The name of the cookie that tokens are bound to.
pub const COOKIE: &str = "lowroad_csrf";

/// The form field with the token.
pub const FIELD: &str = "csrf";

/// The request header field with the token, for requests sent by scripts.
pub const HEADER: &str = "X-CSRF-Token";

/// The length of a cookie in bytes, before it is written in hexadecimal digits.
const COOKIE_LEN: usize = 16;

/// The key that signs tokens. It is created when the server starts and kept across reloads, so that open forms remain
/// valid; after a restart, clients must load forms again.
#[derive(Clone)]
pub struct CsrfKey([u8; 32]);

impl CsrfKey {
    /// Creates a random key.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn random() -> Result<CsrfKey, String> {
        random().map(CsrfKey)
    }

    /// The token for a cookie and a host.
    pub fn token(&self, host: &[u8], cookie: &str) -> String {
        hex(&self.mac(host, cookie).finalize().into_bytes())
    }

    /// Whether `token` is the token for this cookie and host. Takes constant time for tokens of the right length.
    pub fn verify(&self, host: &[u8], cookie: &str, token: &str) -> bool {
        // `verify_slice` takes the same time for every token, so that timing reveals nothing about the right token.
        let is_right = |token: Vec<u8>| self.mac(host, cookie).verify_slice(&token).is_ok();
        // The cookie's format is checked first: a token for an arbitrary cookie value proves nothing.
        is_cookie(cookie) && unhex(token).is_some_and(is_right)
    }

    fn mac(&self, host: &[u8], cookie: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length will do");
        // The prefix separates tokens from other uses of the key.
        mac.update(b"form\0");
        mac.update(cookie.as_bytes());
        // A host contains no NUL, and a cookie has a fixed length, so two different pairs never produce the same bytes.
        mac.update(b"\0");
        // Host names are case-insensitive.
        mac.update(&host.to_ascii_lowercase());
        mac
    }
}

/// Creates a cookie value, for a client without the cookie.
///
/// # Errors
/// The system has no random bytes.
pub fn new_cookie() -> Result<String, String> {
    random::<COOKIE_LEN>().map(|bytes| hex(&bytes))
}

/// Whether a cookie has the format of [`new_cookie`].
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
    fn token_is_valid_for_its_cookie_host_and_key_only() {
        let (key, other) = (CsrfKey([1; 32]), CsrfKey([2; 32]));
        let (own_cookie, other_cookie) = ("00".repeat(16), "11".repeat(16));
        let token = key.token(b"a.example", &own_cookie);
        assert!(key.verify(b"a.example", &own_cookie, &token));
        assert!(key.verify(b"A.Example", &own_cookie, &token));
        assert!(
            !key.verify(b"b.example", &own_cookie, &token),
            "another site"
        );
        assert!(!key.verify(b"a.example", &other_cookie, &token));
        assert!(!other.verify(b"a.example", &own_cookie, &token));
        let none = key.token(b"", "");
        assert!(!key.verify(b"", "", &none), "no cookie, no token");
        for wrong in ["", "0", "zz", &token[2..], &format!("{token}00")] {
            assert!(!key.verify(b"a.example", &own_cookie, wrong), "{wrong}");
        }
    }

    #[test]
    fn cookies_are_random_and_have_a_valid_format() {
        let (one, two) = (new_cookie().unwrap(), new_cookie().unwrap());
        assert_ne!(one, two);
        assert!(is_cookie(&one) && !is_cookie("x") && !is_cookie(&"g".repeat(32)));
    }
}
