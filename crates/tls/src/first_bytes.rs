//! Classifies the first bytes of a connection: TLS, or HTTP in plain text on the wrong port. Pure.

/// The protocol of a connection's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstBytes {
    /// A handshake record, or the start of one.
    Tls,
    /// An HTTP request in plain text; it gets a readable response.
    Http,
    /// The ClientHello of a client that speaks SSL 3.0 at most, by its legacy_version.
    Ssl3,
    /// None of these.
    Unknown,
}

/// The content type of handshake records.
const HANDSHAKE: u8 = 22;
/// The handshake type of a ClientHello.
const CLIENT_HELLO: u8 = 1;
/// The version number of SSL 3.0.
const SSL3: [u8; 2] = [3, 0];
/// No method in the registry is longer.
const METHOD_LEN_MAX: usize = 20;

/// Classifies the first bytes, at least one. A method that is cut short counts as HTTP: a response in plain text harms
/// no other protocol.
pub fn classify(bytes: &[u8]) -> FirstBytes {
    // The headers of the record and of the handshake message, then legacy_version.
    if let [
        HANDSHAKE,
        _,
        _,
        _,
        _,
        CLIENT_HELLO,
        _,
        _,
        _,
        major,
        minor,
        ..,
    ] = *bytes
        && [major, minor] == SSL3
    {
        return FirstBytes::Ssl3;
    }
    if bytes.first() == Some(&HANDSHAKE) {
        return FirstBytes::Tls;
    }
    // One byte more than a method, for the space behind it.
    let start = &bytes[..bytes.len().min(METHOD_LEN_MAX + 1)];
    let method = match start.iter().position(|byte| *byte == b' ') {
        Some(len) => &start[..len],
        None if start.len() <= METHOD_LEN_MAX => start,
        None => return FirstBytes::Unknown,
    };
    let is_method = |byte: &u8| byte.is_ascii_uppercase() || *byte == b'-';
    match !method.is_empty() && method.iter().all(is_method) {
        true => FirstBytes::Http,
        false => FirstBytes::Unknown,
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
            assert_eq!(classify(start), FirstBytes::Http, "{start:?}");
        }
    }

    #[test]
    fn all_else_is_not() {
        assert_eq!(classify(&[22, 3, 1]), FirstBytes::Tls);
        assert_eq!(
            classify(&[22, 3, 1, 0, 40, 1, 0, 0, 36, 3, 3, 0]),
            FirstBytes::Tls
        );
        assert_eq!(
            classify(&[22, 3, 1, 0, 40, 1, 0, 0, 36, 3, 0, 0]),
            FirstBytes::Ssl3
        );
        for start in [
            &b"get / HTTP/1.1"[..],
            b" / HTTP",
            b"\x80\x2e\x01\x03\x01",
            b"SSH-2.0-OpenSSH",
            b"\r\n\r\n",
            b"",
            b"AAAAAAAAAAAAAAAAAAAAAAAAAAA",
        ] {
            assert_eq!(classify(start), FirstBytes::Unknown, "{start:?}");
        }
    }
}
