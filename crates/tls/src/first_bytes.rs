//! Classifies the first bytes of a connection: TLS, or plaintext HTTP sent to a TLS port. Pure.

/// The protocol of a connection's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstBytes {
    /// A handshake record, or the start of one.
    Tls,
    /// An HTTP request in plaintext; it gets a plaintext response.
    Http,
    /// The ClientHello of a client that supports at most SSL 3.0, according to its legacy_version.
    Ssl3,
    /// Any other protocol.
    Unknown,
}

/// The content type of handshake records.
const HANDSHAKE: u8 = 22;
/// The handshake type of a ClientHello.
const CLIENT_HELLO: u8 = 1;
/// The version number of SSL 3.0.
const SSL3: [u8; 2] = [3, 0];
/// The length of the longest method in the IANA registry.
const METHOD_LEN_MAX: usize = 20;

/// Classifies the first bytes, at least one. A truncated method counts as HTTP: a plaintext response does no harm to
/// other protocols.
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
    // One byte more than a method, for the space after it.
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
    fn plaintext_http_is_recognized() {
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
    fn tls_ssl3_and_other_protocols_are_recognized() {
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
