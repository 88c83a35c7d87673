//! Maps the bytes of a request to the key of its response. `lowroad-http` parses the request. This module decides, like
//! `bpf/request.h`, whether a published response may answer the request, and which parts of the request belong to the
//! key. Any other field either has no influence on a response that a shared cache may store, or is a reason to punt the
//! request to the slow path.

use core::net::SocketAddr;

use lowroad_http::forwarding;
use lowroad_http::h1::{self, H1RequestHead};
use lowroad_http::{BodyFraming, HttpVersion, Method, RequestLimits, RequestTarget};

use super::{
    ACCEPT_ENCODING, ConnectionClass, HOST, IF_MODIFIED_SINCE, IF_NONE_MATCH, KeyBuilder,
    RequestKey, TARGET,
};
use crate::segment_context::IgnoredFields;
use crate::segment_reason::SegmentReason;

/// A request that a published response may answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerableRequest {
    /// The key.
    pub key: RequestKey,
    /// Whether the request is a HEAD.
    pub is_head: bool,
    /// Whether the connection ends with the response.
    pub closes: bool,
}

/// Parses `bytes`, which must be exactly one request to `local`.
///
/// # Errors
/// The reason to punt the request.
pub fn read(
    bytes: &[u8],
    local: SocketAddr,
    ignore: IgnoredFields,
) -> Result<AnswerableRequest, SegmentReason> {
    if !bytes.starts_with(b"GET ") && !bytes.starts_with(b"HEAD ") {
        return Err(SegmentReason::UpMethod);
    }
    match h1::parse(bytes, &RequestLimits::default()) {
        Err(_) => Err(SegmentReason::UpSyntax),
        Ok(None) => Err(SegmentReason::UpCut),
        // As in the eBPF programs, pipelined bytes are the reason only if there is no other.
        Ok(Some(head)) => match derive(&head, local, ignore) {
            Ok(_) if head.len < bytes.len() => Err(SegmentReason::UpMore),
            other => other,
        },
    }
}

/// The key of a parsed request.
///
/// # Errors
/// The reason to punt the request.
pub fn derive(
    head: &H1RequestHead<'_>,
    local: SocketAddr,
    ignore: IgnoredFields,
) -> Result<AnswerableRequest, SegmentReason> {
    let request = &head.request;
    let RequestTarget::Origin { .. } = request.target else {
        return Err(SegmentReason::UpTarget);
    };
    if !matches!(request.method, Method::Get | Method::Head) {
        return Err(SegmentReason::UpMethod);
    }
    if head.framing != BodyFraming::None {
        return Err(SegmentReason::UpField);
    }
    let is_http_10 = head.version == HttpVersion::Http10;
    let mut key = KeyBuilder::new(ConnectionClass::new(!head.keep_alive, is_http_10), local);
    // The raw target is used, as the key contains it unchanged, while `request.target` is split.
    let target = request.raw_target();
    if target.first() != Some(&b'/') {
        return Err(SegmentReason::UpTarget);
    }
    key.add(TARGET, target)?;
    let mut seen_ids = 0u8;
    for (name, value) in request.fields() {
        let id = match classify_field(name, value, ignore)? {
            FieldMeaning::Nothing => continue,
            FieldMeaning::Connection => 0,
            FieldMeaning::Piece(id) => id,
        };
        // Repeated field lines could be combined to a list, but clients do not send them, and the key would not be
        // literal.
        if seen_ids & 1 << id != 0 {
            return Err(SegmentReason::UpSyntax);
        }
        seen_ids |= 1 << id;
        if id != 0 {
            if value.is_empty() {
                return Err(SegmentReason::UpSyntax);
            }
            key.add(id, value)?;
        }
    }
    if seen_ids & 1 << HOST == 0 {
        return Err(SegmentReason::UpHost);
    }
    Ok(AnswerableRequest {
        key: RequestKey::read(&key.bytes).ok_or(SegmentReason::UpSyntax)?,
        is_head: request.method == Method::Head,
        closes: !head.keep_alive,
    })
}

enum FieldMeaning {
    Nothing,
    Connection,
    Piece(u8),
}

const PIECES: [(&str, u8); 4] = [
    ("Host", HOST),
    ("Accept-Encoding", ACCEPT_ENCODING),
    ("If-None-Match", IF_NONE_MATCH),
    ("If-Modified-Since", IF_MODIFIED_SINCE),
];

/// Fields that may change the response, or that only the slow path can handle.
const PUNTED_FIELDS: [&str; 14] = [
    "Authorization",
    "Content-Length",
    "Expect",
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
];

fn classify_field(
    name: &[u8],
    value: &[u8],
    ignore: IgnoredFields,
) -> Result<FieldMeaning, SegmentReason> {
    let is_named = |candidate: &str| name.eq_ignore_ascii_case(candidate.as_bytes());
    if let Some((_, id)) = PIECES.iter().find(|(candidate, _)| is_named(candidate)) {
        return Ok(FieldMeaning::Piece(*id));
    }
    if is_named("Connection") {
        // Other connection options may name a field, or request an upgrade.
        let plain =
            value.eq_ignore_ascii_case(b"close") || value.eq_ignore_ascii_case(b"keep-alive");
        return if plain {
            Ok(FieldMeaning::Connection)
        } else {
            Err(SegmentReason::UpField)
        };
    }
    if is_named("Cookie") && !ignore.cookies {
        return Err(SegmentReason::UpCookie);
    }
    let controls = (is_named("Cache-Control") || is_named("Pragma")) && !ignore.cache_control;
    if controls
        || forwarding::describes_other_request(name)
        || PUNTED_FIELDS.iter().any(|candidate| is_named(candidate))
    {
        return Err(SegmentReason::UpField);
    }
    Ok(FieldMeaning::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn key(text: &str) -> Result<Vec<u8>, SegmentReason> {
        let local = SocketAddr::from(([192, 0, 2, 1], 8080));
        read(text.as_bytes(), local, IgnoredFields::default())
            .map(|reading| reading.key.as_bytes().to_vec())
    }

    #[test]
    fn keys_contain_literal_values_in_the_order_of_the_request() {
        // The case and spacing of values are kept; names are case-insensitive.
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
        let reading = read(text, v6, IgnoredFields::default()).expect("a key");
        assert_eq!(reading.key.as_bytes(), wanted);
    }

    #[test]
    fn other_requests_are_punted() {
        // Each of these requests may have another response, or is not parsed by the eBPF programs.
        let cases = [
            (
                "POST / HTTP/1.1\r\nHost: h\r\n\r\n",
                SegmentReason::UpMethod,
            ),
            ("GET / HTTP/1.1\r\nHost: h\r\n", SegmentReason::UpCut),
            // The start of a pipelined request.
            ("GET / HTTP/1.1\r\nHost: h\r\n\r\nG", SegmentReason::UpMore),
            (
                "GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n",
                SegmentReason::UpTarget,
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
                SegmentReason::UpSyntax,
            ),
            ("GET / HTTP/1.0\r\n\r\n", SegmentReason::UpHost),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
                SegmentReason::UpField,
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nCookie: a\r\n\r\n",
                SegmentReason::UpCookie,
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nPRAGMA: a\r\n\r\n",
                SegmentReason::UpField,
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nConnection: close, te\r\n\r\n",
                SegmentReason::UpField,
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: a\r\nAccept-Encoding: b\r\n\r\n",
                SegmentReason::UpSyntax,
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: a\tb\r\n\r\n",
                SegmentReason::UpSyntax,
            ),
        ];
        for (text, reason) in cases {
            assert_eq!(key(text), Err(reason), "{text}");
        }
        let ignore = IgnoredFields {
            cookies: true,
            cache_control: true,
        };
        let text = b"GET / HTTP/1.1\r\nHost: h\r\nCookie: a\r\nCache-Control: no-cache\r\n\r\n";
        let local = SocketAddr::from(([192, 0, 2, 1], 80));
        assert!(read(text, local, ignore).is_ok());
    }
}
