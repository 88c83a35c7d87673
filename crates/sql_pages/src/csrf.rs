//! CSRF tokens: they show that a form came from one of the site's own pages. A token is an HMAC over a random cookie
//! and the host's name. Pages of other sites can neither read the cookie nor compute a token without the key. A host
//! that can set cookies for this one, such as another host of its domain, could set one for which it was given a token
//! here; against that, browsers report a request's source. Independent of forms and templates. See "HMAC-based token"
//! in OWASP's CSRF cheat sheet.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The cookie that tokens are bound to.
pub const COOKIE: &str = "lowroad_csrf";

/// The form field of the token.
pub const FIELD: &str = "csrf";

/// The request field of the token when a script sends the request.
pub const HEADER: &str = "X-CSRF-Token";

/// The bytes of a cookie before they are written as hexadecimal digits.
const COOKIE_LEN: usize = 16;

/// The key that signs tokens. It is made at the start and survives reloads of the configuration, so that open forms
/// stay valid; after a restart they must be loaded again.
#[derive(Clone)]
pub struct CsrfKey([u8; 32]);

impl CsrfKey {
    /// A random key.
    ///
    /// The reason if the system has no random bytes.
    /// With the reason, if the system has no random bytes.
    pub fn random() -> Result<CsrfKey, String> {
        random().map(CsrfKey)
    }

    /// The token for a cookie at a host.
    pub fn token(&self, host: &[u8], cookie: &str) -> String {
        hex(&self.mac(host, cookie).finalize().into_bytes())
    }

    /// Whether it is the token for the cookie at the host; in constant time for tokens of the right form.
    pub fn verify(&self, host: &[u8], cookie: &str, token: &str) -> bool {
        // `verify_slice` takes the same time for each token, so that guesses learn nothing.
        let is_right = |token: Vec<u8>| self.mac(host, cookie).verify_slice(&token).is_ok();
        // The cookie's form is checked first: a token for an arbitrary cookie value proves nothing.
        is_cookie(cookie) && unhex(token).is_some_and(is_right)
    }

    fn mac(&self, host: &[u8], cookie: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length will do");
        // Distinct from other uses of the key.
        mac.update(b"form\0");
        mac.update(cookie.as_bytes());
        // A host has no NUL, and a cookie has a fixed length, so no two pairs produce the same bytes.
        mac.update(b"\0");
        // Host names are case-insensitive.
        mac.update(&host.to_ascii_lowercase());
        mac
    }
}

/// A value for the cookie of a visitor without one.
///
/// The reason if the system has no random bytes.
/// With the reason, if the system has no random bytes.
pub fn new_cookie() -> Result<String, String> {
    random::<COOKIE_LEN>().map(|bytes| hex(&bytes))
}

/// Whether a cookie has the form of those made here.
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
        let (key, other) = (CsrfKey([1; 32]), CsrfKey([2; 32]));
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
