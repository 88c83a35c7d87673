//! The request as visible to pages, and the decoding of queries and cookies.

use alloc::string::String;
use core::net::IpAddr;

/// A request for a page. Invalid UTF-8 in it is replaced by U+FFFD.
pub trait PageRequest {
    /// The method, such as `GET`.
    fn method(&self) -> &str;
    /// The path, decoded.
    fn path(&self) -> &[u8];
    /// The target as the client sent it.
    fn target(&self) -> &[u8];
    /// The host name.
    fn host(&self) -> &[u8];
    /// The query without its `?`; empty if there is none.
    fn query(&self) -> &[u8];
    /// The client's address.
    fn peer(&self) -> IpAddr;
    /// The first field with this name, which is in lower case.
    fn field(&self, name: &str) -> Option<&[u8]>;
}

/// The maximum number of pairs that are examined; further pairs are ignored.
const PAIRS_MAX: usize = 1_000;

/// Appends the first value with this name in a query like `a=1&b=2`; false if there is none.
pub fn parameter(query: &[u8], name: &str, to: &mut String) -> bool {
    let mut pairs = query
        .split(|&byte| byte == b'&')
        .filter(|pair| !pair.is_empty());
    for pair in pairs.by_ref().take(PAIRS_MAX) {
        let at = pair.iter().position(|&byte| byte == b'=');
        let (encoded_name, value) = match at {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &b""[..]),
        };
        if is_name(encoded_name, name, to) {
            decode(value, true, to);
            return true;
        }
    }
    false
}

/// Whether an encoded name equals `name` after decoding. `scratch` is restored before returning.
fn is_name(encoded_name: &[u8], name: &str, scratch: &mut String) -> bool {
    // Names without escapes, the usual case, are compared without decoding.
    if !encoded_name
        .iter()
        .any(|byte| matches!(byte, b'%' | b'+' | 0x80..))
    {
        return encoded_name == name.as_bytes();
    }
    let initial_len = scratch.len();
    decode(encoded_name, true, scratch);
    let is_name = &scratch[initial_len..] == name;
    // `scratch` is the page's own buffer, so only the value may remain in it.
    scratch.truncate(initial_len);
    is_name
}

/// Appends the first cookie with this name in a field like `a=1; b=2`; false if there is none.
pub fn cookie(line: &[u8], name: &str, to: &mut String) -> bool {
    for pair in line.split(|&byte| byte == b';').take(PAIRS_MAX) {
        let Some(at) = pair.iter().position(|&byte| byte == b'=') else {
            continue;
        };
        if pair[..at].trim_ascii() == name.as_bytes() {
            decode(pair[at + 1..].trim_ascii(), false, to);
            return true;
        }
    }
    false
}

/// Appends decoded text: `%` and two digits are a byte, and `+` is a space if `plus_is_space`.
fn decode(mut bytes: &[u8], plus_is_space: bool, to: &mut String) {
    let is_special = |byte: &u8| *byte == b'%' || *byte == b'+' && plus_is_space;
    if !bytes.iter().any(is_special) {
        return push_lossy(bytes, to);
    }
    let mut decoded = alloc::vec::Vec::with_capacity(bytes.len());
    while let Some((&first, rest)) = bytes.split_first() {
        bytes = rest;
        let digit = |at: usize| (*rest.get(at)? as char).to_digit(16);
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high << 4 | low) as u8);
                bytes = &rest[2..];
            }
            (b'+', ..) if plus_is_space => decoded.push(b' '),
            // An incomplete escape is kept as text.
            _ => decoded.push(first),
        }
    }
    push_lossy(&decoded, to);
}

/// Appends bytes as text; invalid UTF-8 becomes U+FFFD.
pub fn push_lossy(bytes: &[u8], to: &mut String) {
    match core::str::from_utf8(bytes) {
        Ok(text) => to.push_str(text),
        Err(_) => to.push_str(&String::from_utf8_lossy(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn param(query: &str, name: &str) -> Option<String> {
        let mut to = String::from("x");
        let found = parameter(query.as_bytes(), name, &mut to);
        found.then(|| to.split_off(1))
    }

    #[test]
    fn first_parameter_with_the_name_is_decoded() {
        assert_eq!(param("a=1&b=2&a=3", "a").as_deref(), Some("1"));
        assert_eq!(param("a=1+2%21%", "a").as_deref(), Some("1 2!%"));
        assert_eq!(param("%61=%e2%98%83", "a").as_deref(), Some("☃"));
        assert_eq!(param("a=%ff", "a").as_deref(), Some("\u{fffd}"));
        assert_eq!(param("a", "a").as_deref(), Some(""));
        assert_eq!(param("&&ab=1", "a"), None);
        assert_eq!(param("", ""), None);
    }

    #[test]
    fn first_cookie_with_the_name_is_decoded() {
        let mut to = String::new();
        assert!(cookie(b"a=1; session=x%20y+z ;b", "session", &mut to));
        assert_eq!(to, "x y+z");
        assert!(!cookie(b"a=1; b", "b", &mut to));
    }
}
