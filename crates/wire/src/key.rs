//! Keys of published responses: their encoding, and the mapping of requests to keys (`request`). The constants are
//! those of `crates/softirq/bpf/shared.h`, so the eBPF programs build the same keys.
//!
//! ```text
//! class  port (BE)  address   0x01 target   0x02 Host   0x03 Accept-Encoding   …
//! u8     u16        16 bytes  value bytes, 0x20 to 0x7e, up to the next byte below 0x20
//! ```
//!
//! Port and address are the destination of the client's connection (IPv4 as `::ffff:a.b.c.d`), since the responses of a
//! server may depend on them.
//!
//! The target is the first piece; the others are in the order of the request's fields. Values are literal: a request
//! with a different spelling or order has a different key.

mod request;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

pub use self::request::{AnswerableRequest, derive, read};
use crate::ebpf_header;
use crate::segment_reason::SegmentReason;
use crate::width::index;

/// The longest key in bytes.
pub const KEY_LEN_MAX: usize = index(ebpf_header::KEY_MAX);

/// The length of class, port and address.
const START_LEN: usize = index(ebpf_header::KEY_START);
const ADDRESS_AT: usize = index(ebpf_header::KEY_ADDRESS_AT);

const TARGET: u8 = ebpf_header::KEY_TARGET as u8;
const HOST: u8 = ebpf_header::KEY_HOST as u8;
const ACCEPT_ENCODING: u8 = ebpf_header::KEY_ACCEPT_ENCODING as u8;
const IF_NONE_MATCH: u8 = ebpf_header::KEY_IF_NONE_MATCH as u8;
const IF_MODIFIED_SINCE: u8 = ebpf_header::KEY_IF_MODIFIED_SINCE as u8;

/// Properties of the request's connection on which the bytes of the response depend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConnectionClass(u8);

impl ConnectionClass {
    const CLOSES: u8 = ebpf_header::CLASS_CLOSE as u8;
    const HTTP10: u8 = ebpf_header::CLASS_HTTP_10 as u8;

    /// Builds a class.
    pub const fn new(closes: bool, is_http10: bool) -> ConnectionClass {
        ConnectionClass(
            if closes { ConnectionClass::CLOSES } else { 0 }
                | if is_http10 {
                    ConnectionClass::HTTP10
                } else {
                    0
                },
        )
    }

    /// Whether the connection ends with the response.
    pub fn closes(self) -> bool {
        self.0 & ConnectionClass::CLOSES != 0
    }

    /// Whether the request is HTTP/1.0.
    pub fn is_http10(self) -> bool {
        self.0 & ConnectionClass::HTTP10 != 0
    }

    fn read(bits: u8) -> Option<ConnectionClass> {
        (bits & !(ConnectionClass::CLOSES | ConnectionClass::HTTP10) == 0)
            .then_some(ConnectionClass(bits))
    }
}

/// The decoded parts of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyParts<'k> {
    /// The properties of the connection.
    pub class: ConnectionClass,
    /// The destination address.
    pub address: IpAddr,
    /// The destination port.
    pub port: u16,
    /// The request target, which begins with `/`.
    pub target: &'k [u8],
    /// The value of Host, which may be empty.
    pub host: &'k [u8],
    /// The value of Accept-Encoding.
    pub accept_encoding: Option<&'k [u8]>,
    /// The value of If-None-Match.
    pub if_none_match: Option<&'k [u8]>,
    /// The value of If-Modified-Since.
    pub if_modified_since: Option<&'k [u8]>,
}

impl KeyParts<'_> {
    /// The destination address and port.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }

    /// Whether the request is conditional.
    pub fn is_conditional(&self) -> bool {
        self.if_none_match.is_some() || self.if_modified_since.is_some()
    }
}

/// A validated key. Clones share the bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestKey(Arc<[u8]>);

impl RequestKey {
    /// Validates bytes as a key; `None` if they are not a valid key.
    pub fn read(bytes: &[u8]) -> Option<RequestKey> {
        RequestKey::parse(bytes).map(|_| RequestKey(bytes.into()))
    }

    /// The key of a request with its fields in the order of [`KeyParts`]; `None` if a value has an invalid byte, or
    /// the key is too long.
    pub fn build(parts: &KeyParts<'_>) -> Option<RequestKey> {
        let mut key = KeyBuilder::new(parts.class, parts.local());
        for (id, value) in [
            (TARGET, Some(parts.target)),
            (HOST, Some(parts.host)),
            (ACCEPT_ENCODING, parts.accept_encoding),
            (IF_NONE_MATCH, parts.if_none_match),
            (IF_MODIFIED_SINCE, parts.if_modified_since),
        ] {
            let Some(value) = value else { continue };
            key.add(id, value).ok()?;
        }
        // `add` has checked each piece; this validates the complete key.
        RequestKey::read(&key.bytes)
    }

    /// Decodes a key; `None` if the bytes are not a valid key.
    pub fn parse(bytes: &[u8]) -> Option<KeyParts<'_>> {
        let (&[class, port_high, port_low, ..], pieces) = bytes.split_first_chunk::<START_LEN>()?;
        let address: [u8; 16] = *bytes[ADDRESS_AT..].first_chunk()?;
        // The eBPF map has keys of a fixed size.
        if bytes.len() > KEY_LEN_MAX {
            return None;
        }
        let mut values = [None; IF_MODIFIED_SINCE as usize + 1];
        let (target, mut rest) = take_piece(pieces, TARGET)?;
        while let Some(id) = rest.first() {
            let slot = values.get_mut(usize::from(*id))?;
            let (value, after) = take_piece(rest, *id)?;
            // A repeated piece is invalid: the eBPF programs never build such a key.
            if slot.replace(value).is_some() {
                return None;
            }
            rest = after;
        }
        let [
            None,
            None,
            host,
            accept_encoding,
            if_none_match,
            if_modified_since,
        ] = values
        else {
            return None;
        };
        target.starts_with(b"/").then_some(KeyParts {
            class: ConnectionClass::read(class)?,
            address: Ipv6Addr::from(address).to_canonical(),
            port: u16::from_be_bytes([port_high, port_low]),
            target,
            host: host?,
            accept_encoding,
            if_none_match,
            if_modified_since,
        })
    }

    /// The decoded parts.
    pub fn parts(&self) -> KeyParts<'_> {
        RequestKey::parse(&self.0).expect("checked when it was made")
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The URL, for messages.
    #[must_use]
    pub fn url(&self) -> String {
        let parts = self.parts();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        format!("http://{}{}", text(parts.host), text(parts.target))
    }

    /// Whether both keys belong to the same request, possibly to different addresses.
    pub fn is_same_request(&self, other: &RequestKey) -> bool {
        self.0[..ADDRESS_AT] == other.0[..ADDRESS_AT] && self.0[START_LEN..] == other.0[START_LEN..]
    }
}

/// A key that is being built.
struct KeyBuilder {
    bytes: Vec<u8>,
}

impl KeyBuilder {
    /// Starts a key with class, port and address.
    fn new(class: ConnectionClass, local: SocketAddr) -> KeyBuilder {
        let address = match local.ip() {
            // Both families use the same form, as in the eBPF programs.
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mut bytes = Vec::with_capacity(KEY_LEN_MAX);
        bytes.push(class.0);
        bytes.extend(local.port().to_be_bytes());
        bytes.extend(address.octets());
        KeyBuilder { bytes }
    }

    /// Adds a piece.
    fn add(&mut self, id: u8, value: &[u8]) -> Result<(), SegmentReason> {
        // A byte below 0x20 would begin another piece, so a client could forge one.
        if value.iter().any(|byte| !(0x20..0x7f).contains(byte)) {
            return Err(SegmentReason::UpSyntax);
        }
        if self.bytes.len() + 1 + value.len() > KEY_LEN_MAX {
            return Err(SegmentReason::UpLong);
        }
        self.bytes.push(id);
        self.bytes.extend(value);
        Ok(())
    }
}

impl fmt::Debug for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0.escape_ascii())
    }
}

/// Splits the piece `id` off the start of `bytes`; returns its value, and the rest.
fn take_piece(bytes: &[u8], id: u8) -> Option<(&[u8], &[u8])> {
    let rest = bytes.strip_prefix(&[id])?;
    let len = rest.iter().position(|b| *b < 0x20).unwrap_or(rest.len());
    let (value, after) = rest.split_at(len);
    // These are the restrictions of `KeyBuilder::add`.
    let literal = value.iter().all(|b| (0x20..0x7f).contains(b));
    let is_trimmed = !value.starts_with(b" ") && !value.ends_with(b" ");
    (literal && is_trimmed).then_some((value, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use core::net::Ipv4Addr;

    /// The bytes of a key, possibly an invalid one, of this class for port 80 of 192.0.2.1.
    fn at_80(class: u8, pieces: &[u8]) -> Vec<u8> {
        let mut bytes =
            KeyBuilder::new(ConnectionClass(class), SocketAddr::new(PARTS.address, 80)).bytes;
        bytes.extend(pieces);
        bytes
    }

    const PARTS: KeyParts<'static> = KeyParts {
        class: ConnectionClass(1),
        address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        port: 8080,
        target: b"/a?b",
        host: b"example.com:8080",
        accept_encoding: Some(b"gzip, br"),
        if_none_match: None,
        if_modified_since: Some(b"Sun, 06 Nov 1994 08:49:37 GMT"),
    };

    #[test]
    fn built_key_is_decoded_to_its_parts() {
        let key = RequestKey::build(&PARTS).expect("a key");
        assert_eq!(key.parts(), PARTS);
        assert_eq!(
            key.as_bytes()[..START_LEN],
            *b"\x01\x1f\x90\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01"
        );
        let pieces = b"\x01/a?b\x02example.com:8080\x03gzip, br\x05Sun";
        assert!(key.as_bytes()[START_LEN..].starts_with(pieces));
        assert!(key.parts().is_conditional());
        assert!(key.parts().class.closes() && !key.parts().class.is_http10());
        assert_eq!(RequestKey::read(key.as_bytes()), Some(key));
    }

    #[test]
    fn order_of_fields_is_part_of_the_key() {
        // Keys are literal: the pieces keep the order of the request.
        let one = RequestKey::read(&at_80(0, b"\x01/\x02h\x03gzip")).expect("a key");
        let other = RequestKey::read(&at_80(0, b"\x01/\x03gzip\x02h")).expect("a key");
        assert_eq!(one.parts(), other.parts());
        assert_ne!(one, other);
    }

    #[test]
    fn keys_for_other_addresses_are_of_the_same_request() {
        let at =
            |address: IpAddr| RequestKey::build(&KeyParts { address, ..PARTS }).expect("a key");
        let v6: IpAddr = "2001:db8::1".parse().expect("an address");
        let (one, other) = (at(PARTS.address), at(v6));
        assert_eq!(other.parts().local().to_string(), "[2001:db8::1]:8080");
        assert_ne!(one, other);
        assert!(one.is_same_request(&other) && one.is_same_request(&one));
        let keeps = KeyParts {
            class: ConnectionClass(0),
            ..PARTS
        };
        assert!(!one.is_same_request(&RequestKey::build(&keeps).expect("a key")));
    }

    #[test]
    fn empty_values_are_valid() {
        let key = RequestKey::read(&at_80(3, b"\x01/\x02\x03")).expect("a key");
        assert_eq!(key.parts().host, b"");
        assert_eq!(key.parts().accept_encoding, Some(b"".as_slice()));
    }

    #[test]
    fn invalid_keys_are_rejected() {
        let cases: [(u8, &[u8]); 14] = [
            (0, b""),
            (0, b"\x01/"),
            // An unknown bit of the class.
            (4, b"\x01/\x02h"),
            // The target is not the first piece.
            (0, b"\x02h\x01/"),
            (0, b"\x01\x02h"),
            (0, b"\x01a\x02h"),
            // A repeated piece.
            (0, b"\x01/\x02h\x02h"),
            (0, b"\x01/\x01/\x02h"),
            // An unknown piece.
            (0, b"\x01/\x02h\x06x"),
            (0, b"\x01/\x02h\x00"),
            // A value with a leading or trailing space.
            (0, b"\x01/\x02 h"),
            (0, b"\x01/\x02h "),
            (0, b"\x01/\x02h\x7f"),
            (0, b"\x01/\x02h\xc3"),
        ];
        for (class, pieces) in cases {
            let bytes = at_80(class, pieces);
            assert_eq!(RequestKey::parse(&bytes), None, "{}", bytes.escape_ascii());
        }
        for len in 0..START_LEN {
            assert_eq!(RequestKey::parse(&at_80(0, b"")[..len]), None);
        }
    }

    #[test]
    fn key_longer_than_key_len_max_is_rejected() {
        let mut bytes = at_80(0, b"\x01/\x02h\x03");
        bytes.resize(KEY_LEN_MAX, b'a');
        assert!(RequestKey::read(&bytes).is_some());
        bytes.push(b'a');
        assert!(RequestKey::read(&bytes).is_none());
    }

    #[test]
    fn build_rejects_invalid_bytes_in_values() {
        // The first target contains a forged Accept-Encoding piece.
        for target in [
            b"/\x03gzip".as_slice(),
            b"/\r\n",
            b"/\xff",
            b"",
            b"a",
            b"/ ",
        ] {
            let parts = KeyParts {
                target,
                accept_encoding: None,
                ..PARTS
            };
            assert_eq!(RequestKey::build(&parts), None, "{}", target.escape_ascii());
        }
    }

    #[test]
    fn random_changes_cause_no_panic_and_no_inconsistent_parts() {
        // Random changes of a valid key cause no panic and no inconsistent parts.
        let mut state = 88_172_645_463_325_252_u64;
        for _ in 0..20_000 {
            let mut bytes = RequestKey::build(&PARTS)
                .expect("a key")
                .as_bytes()
                .to_vec();
            for _ in 0..3 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let [at, value, cut, ..] = state.to_le_bytes();
                let at = usize::from(at) % bytes.len();
                bytes[at] = value;
                if cut < 30 {
                    bytes.truncate(at.max(1));
                }
            }
            if let Some(key) = RequestKey::read(&bytes) {
                assert_eq!(Some(key.parts()), RequestKey::parse(&bytes));
                let parts = key.parts();
                let start = KeyBuilder::new(parts.class, parts.local()).bytes;
                assert_eq!(start, bytes[..START_LEN]);
            }
        }
    }
}
