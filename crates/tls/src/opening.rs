//! What a client begins with: TLS, or HTTP in plain text on the wrong port. Pure.

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// A handshake record, or the start of one.
    Tls,
    /// An HTTP request in plain text; it deserves an answer that can be read.
    Http,
    /// Neither.
    Unknown,
}

/// The content type of handshake records.
const HANDSHAKE: u8 = 22;
/// No method in the registry is longer.
const METHOD_LEN_MAX: usize = 20;

/// Judges the first bytes, at least one. A method that is cut by the network counts as one: an answer in plain text
/// does no harm to who did not mean HTTP.
pub fn opening(bytes: &[u8]) -> Opening {
    if bytes.first() == Some(&HANDSHAKE) {
        return Opening::Tls;
    }
    let start = &bytes[..bytes.len().min(METHOD_LEN_MAX + 1)];
    let method = match start.iter().position(|byte| *byte == b' ') {
        Some(len) => &start[..len],
        None if start.len() <= METHOD_LEN_MAX => start,
        None => return Opening::Unknown,
    };
    let is_method = |byte: &u8| byte.is_ascii_uppercase() || *byte == b'-';
    match !method.is_empty() && method.iter().all(is_method) {
        true => Opening::Http,
        false => Opening::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_in_plain_text_are_known() {
        for start in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"G",
            b"OPTIONS",
            b"PRI * HTTP/2.0",
            b"VERSION-CONTROL /x",
        ] {
            assert_eq!(opening(start), Opening::Http, "{start:?}");
        }
    }

    #[test]
    fn all_else_is_not() {
        assert_eq!(opening(&[22, 3, 1]), Opening::Tls);
        for start in [
            &b"get / HTTP/1.1"[..],
            b" / HTTP",
            b"\x80\x2e\x01\x03\x01",
            b"SSH-2.0-OpenSSH",
            b"\r\n\r\n",
            b"",
            b"AAAAAAAAAAAAAAAAAAAAAAAAAAA",
        ] {
            assert_eq!(opening(start), Opening::Unknown, "{start:?}");
        }
    }
}
