//! From the bytes of a request to the key of its response. `lowroad-http` reads the request; here is
//! decided whether it is one that a stored response may answer, and what tells it from others.
//!
//! ```text
//! class  port (BE)  address   0x01 target   0x02 Host   0x03 Accept-Encoding   0x04 If-None-Match   …
//! ```
//!
//! Port and address are those that were asked, IPv4 as `::ffff:a.b.c.d`: servers answer by them too.
//!
//! Values are literal, and stand in the order in which the request had them. What is not in the key
//! is either without influence on a response that a shared cache may store, or a reason to hand the
//! request up.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use lowroad_http::{Framing, Limits, Method, Parsed, Request, Target, Version, request};

use crate::reason::Reason;
use crate::shared;
use crate::width::index;
use crate::world::Ignore;

/// Longest key, in bytes.
pub const KEY_LEN_MAX: usize = index(shared::KEY_MAX);
const CLASS_CLOSE: u8 = shared::CLASS_CLOSE as u8;
const CLASS_HTTP_10: u8 = shared::CLASS_HTTP_10 as u8;
const TARGET: u8 = shared::KEY_TARGET as u8;
const HOST: u8 = shared::KEY_HOST as u8;

/// A request that a stored response may answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The key.
    pub key: Vec<u8>,
    /// Only the head is wanted.
    pub is_head: bool,
    /// The connection ends with the answer.
    pub closes: bool,
}

/// Reads `bytes`, which must be one request to `local` and nothing more.
///
/// # Errors
/// Why it is for the server above.
pub fn read(bytes: &[u8], local: SocketAddr, ignore: Ignore) -> Result<Asked, Reason> {
    if !bytes.starts_with(b"GET ") && !bytes.starts_with(b"HEAD ") {
        return Err(Reason::UpMethod);
    }
    match request::parse(bytes, &Limits::default()) {
        Err(_) => Err(Reason::UpSyntax),
        Ok(Parsed::Partial) => Err(Reason::UpCut),
        // What is behind the head is found after what is in it.
        Ok(Parsed::Complete(request)) => match derive(&request, local, ignore) {
            Ok(_) if request.head_len < bytes.len() => Err(Reason::UpMore),
            other => other,
        },
    }
}

/// The key of a request that was parsed.
///
/// # Errors
/// Why it is for the server above.
pub fn derive(request: &Request<'_>, local: SocketAddr, ignore: Ignore) -> Result<Asked, Reason> {
    let Target::Origin { .. } = request.target else {
        return Err(Reason::UpTarget);
    };
    if !matches!(request.method, Method::Get | Method::Head) {
        return Err(Reason::UpMethod);
    }
    if request.framing != Framing::None {
        return Err(Reason::UpField);
    }
    let is_http_10 = request.version == Version::Http10;
    let mut key = Vec::with_capacity(KEY_LEN_MAX);
    key.push(
        if request.keep_alive { 0 } else { CLASS_CLOSE }
            | if is_http_10 { CLASS_HTTP_10 } else { 0 },
    );
    key.extend(local.port().to_be_bytes());
    key.extend(match local.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    });
    // The target as it came; `request.target` is in parts.
    let target = request
        .line()
        .split(|byte| *byte == b' ')
        .nth(1)
        .unwrap_or_default();
    if target.first() != Some(&b'/') {
        return Err(Reason::UpTarget);
    }
    add(&mut key, TARGET, target)?;
    let mut seen = 0u8;
    for (name, value) in request.fields() {
        let id = match meaning(name, value, ignore)? {
            Meaning::Nothing => continue,
            Meaning::Connection => 0,
            Meaning::Piece(id) => id,
        };
        // Several lines of a list are one list, but nobody sends that, and its key is not literal.
        if seen & 1 << id != 0 {
            return Err(Reason::UpSyntax);
        }
        seen |= 1 << id;
        if id != 0 {
            add(&mut key, id, value)?;
        }
    }
    if seen & 1 << HOST == 0 {
        return Err(Reason::UpHost);
    }
    Ok(Asked {
        key,
        is_head: request.method == Method::Head,
        closes: !request.keep_alive,
    })
}

fn add(key: &mut Vec<u8>, id: u8, value: &[u8]) -> Result<(), Reason> {
    // A byte below 0x20 would begin another piece.
    if value.is_empty() || value.iter().any(|byte| !(0x20..0x7f).contains(byte)) {
        return Err(Reason::UpSyntax);
    }
    if key.len() + 1 + value.len() > KEY_LEN_MAX {
        return Err(Reason::UpLong);
    }
    key.push(id);
    key.extend(value);
    Ok(())
}

enum Meaning {
    Nothing,
    Connection,
    Piece(u8),
}

const PIECES: [(&str, u8); 4] = [
    ("Host", HOST),
    ("Accept-Encoding", shared::KEY_ACCEPT_ENCODING as u8),
    ("If-None-Match", shared::KEY_IF_NONE_MATCH as u8),
    ("If-Modified-Since", shared::KEY_IF_MODIFIED_SINCE as u8),
];

/// Beginnings of names that tell a server that the client has asked for something else than the request
/// line says, mostly over TLS: its answer may be another.
const OF_TERMINATORS: [&str; 7] = [
    "X-Forwar", "X-HTTP-M", "X-Method", "X-Origin", "X-Rewrit", "X-Scheme", "X-URL-Sc",
];
/// Of these, what only says who asks.
const OF_CLIENTS: &str = "X-Forwarded-For";

/// Each makes another response of it, or is for who holds the connection.
const NOT_HERE: [&str; 19] = [
    "Authorization",
    "CF-Visitor",
    "CloudFront-Forwarded-Proto",
    "Content-Length",
    "Expect",
    "Forwarded",
    "Front-End-Https",
    "HTTP2-Settings",
    "If-Match",
    "If-Range",
    "If-Unmodified-Since",
    "Proxy-Authorization",
    "Proxy-Connection",
    "Range",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "X-Host",
];

fn meaning(name: &[u8], value: &[u8], ignore: Ignore) -> Result<Meaning, Reason> {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    if let Some((_, id)) = PIECES.iter().find(|(known, _)| is(known)) {
        return Ok(Meaning::Piece(*id));
    }
    if is("Connection") {
        let plain =
            value.eq_ignore_ascii_case(b"close") || value.eq_ignore_ascii_case(b"keep-alive");
        return if plain {
            Ok(Meaning::Connection)
        } else {
            Err(Reason::UpField)
        };
    }
    if is("Cookie") && !ignore.cookies {
        return Err(Reason::UpCookie);
    }
    let controls = (is("Cache-Control") || is("Pragma")) && !ignore.cache_control;
    let begins = |known: &str| {
        let start = name.get(..known.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(known.as_bytes()))
    };
    let of_terminator = OF_TERMINATORS.iter().any(|known| begins(known)) && !is(OF_CLIENTS);
    if controls || of_terminator || NOT_HERE.iter().any(|known| is(known)) {
        return Err(Reason::UpField);
    }
    Ok(Meaning::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Result<Vec<u8>, Reason> {
        let local = SocketAddr::from(([192, 0, 2, 1], 8080));
        read(text.as_bytes(), local, Ignore::default()).map(|asked| asked.key)
    }

    #[test]
    fn keys_are_literal_and_in_order() {
        let cases: [(&str, &[u8]); 5] = [
            (
                "GET /a?b HTTP/1.1\r\nHost: h:1\r\n\r\n",
                b"\x00\x1f\x90\x01/a?b\x02h:1",
            ),
            (
                "HEAD / HTTP/1.1\r\naccept-encoding: br, GZIP\r\nhost: H\r\nconnection: Close\r\n\r\n",
                b"\x01\x1f\x90\x01/\x03br, GZIP\x02H",
            ),
            (
                "GET / HTTP/1.0\r\nHost: h\r\n\r\n",
                b"\x03\x1f\x90\x01/\x02h",
            ),
            (
                "GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\nX: y\r\n\r\n",
                b"\x02\x1f\x90\x01/\x02h",
            ),
            (
                "GET / HTTP/1.1\r\nIf-None-Match: \"a\"\r\nHost: h\r\nIf-Modified-Since: x\r\n\r\n",
                b"\x00\x1f\x90\x01/\x04\"a\"\x02h\x05x",
            ),
        ];
        let address = b"\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01";
        for (text, wanted) in cases {
            let wanted = [&wanted[..3], address, &wanted[3..]].concat();
            assert_eq!(key(text), Ok(wanted), "{text}");
        }
        let text = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let v6 = SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 1], 80));
        let wanted = b"\0\0\x50\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x01/\x02h";
        let asked = read(text, v6, Ignore::default());
        assert_eq!(asked.map(|asked| asked.key), Ok(wanted.to_vec()));
    }

    #[test]
    fn the_others_go_up() {
        let cases = [
            ("POST / HTTP/1.1\r\nHost: h\r\n\r\n", Reason::UpMethod),
            ("GET / HTTP/1.1\r\nHost: h\r\n", Reason::UpCut),
            ("GET / HTTP/1.1\r\nHost: h\r\n\r\nG", Reason::UpMore),
            (
                "GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n",
                Reason::UpTarget,
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
                Reason::UpSyntax,
            ),
            ("GET / HTTP/1.0\r\n\r\n", Reason::UpHost),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
                Reason::UpField,
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nCookie: a\r\n\r\n",
                Reason::UpCookie,
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nPRAGMA: a\r\n\r\n",
                Reason::UpField,
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nConnection: close, te\r\n\r\n",
                Reason::UpField,
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: a\r\nAccept-Encoding: b\r\n\r\n",
                Reason::UpSyntax,
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: a\tb\r\n\r\n",
                Reason::UpSyntax,
            ),
        ];
        for (text, reason) in cases {
            assert_eq!(key(text), Err(reason), "{text}");
        }
        let ignore = Ignore {
            cookies: true,
            cache_control: true,
        };
        let text = b"GET / HTTP/1.1\r\nHost: h\r\nCookie: a\r\nCache-Control: no-cache\r\n\r\n";
        let local = SocketAddr::from(([192, 0, 2, 1], 80));
        assert!(read(text, local, ignore).is_ok());
    }
}
