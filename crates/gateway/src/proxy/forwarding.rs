//! Generates the request fields for the origin and the response fields for the client, without hop-by-hop fields (RFC
//! 9110 §7.6).

use std::hash::{BuildHasher, RandomState};

use lowroad_handler::HandlerRequest;
use lowroad_http::date;
use lowroad_http::equals_lower;
use lowroad_http::fields::{FieldLines, FieldNames, ResponseFields, StandardHeader};
use lowroad_http::forwarding;
use lowroad_http::head_writer::put_number;
use lowroad_http::method::Method;

use crate::address::write_address;

/// Request fields that are not forwarded, ordered by length:
///
/// - Hop-by-hop fields, whether or not Connection names them, and fields that this proxy generates.
/// - Fields in which proxies describe a client or its request ([`is_report`](lowroad_http::forwarding::is_report)),
///   other than X-Forwarded-…: applications trust them, and they are not part of the cache key.
/// - Proxy: a CGI gateway would turn it into HTTP_PROXY (httpoxy).
const NOT_FORWARDED: [&[u8]; 24] = [
    b"te",
    b"via",
    b"host",
    b"close",
    b"proxy",
    b"expect",
    b"x-host",
    b"upgrade",
    b"x-scheme",
    b"forwarded",
    b"x-real-ip",
    b"connection",
    b"keep-alive",
    b"x-url-scheme",
    b"x-rewrite-url",
    b"content-length",
    b"http2-settings",
    b"x-original-url",
    b"front-end-https",
    b"x-original-host",
    b"proxy-connection",
    b"transfer-encoding",
    b"proxy-authorization",
    b"x-http-host-override",
];

/// The length of the longest name in `NOT_FORWARDED`.
const NOT_FORWARDED_LEN_MAX: usize = NOT_FORWARDED[NOT_FORWARDED.len() - 1].len();

/// For each length, the index of its first name, so that a name is compared only with names of equal length.
const STARTS: [u8; NOT_FORWARDED_LEN_MAX + 2] = {
    // Const evaluation has no iterators, hence the `while` loops.
    let mut starts = [0; NOT_FORWARDED_LEN_MAX + 2];
    let (mut len, mut index) = (0, 0);
    while len < starts.len() {
        while index < NOT_FORWARDED.len() && NOT_FORWARDED[index].len() < len {
            index += 1;
        }
        starts[len] = index as u8;
        len += 1;
    }
    starts
};

/// Whether a response field is dropped in addition to those that [`ResponseFields`] drops. `close` is a connection
/// option and therefore reserved as a field name.
fn is_dropped_from_response(name: &[u8], header: Option<StandardHeader>) -> bool {
    match header {
        Some(header) => matches!(
            header,
            StandardHeader::Via | StandardHeader::ProxyAuthenticate
        ),
        None => is_one_of(name, &[b"close", b"proxy-authentication-info"]),
    }
}

/// Response fields about storing and sharing. They are forwarded even if Connection names them (RFC 9110 §7.6.1).
const END_TO_END: [&[u8]; 6] = [
    b"cache-control",
    b"cdn-cache-control",
    b"expires",
    b"pragma",
    b"set-cookie",
    b"vary",
];

/// Parameters of the generated request fields.
pub struct ForwardTerms<'h> {
    /// The value of Host.
    pub host: &'h [u8],
    /// Whether this proxy adds itself to Via; if not, the client's Via is forwarded unchanged.
    pub adds_via: bool,
    /// Whether the request has a body; if so, it cannot be an upgrade request.
    pub has_body: bool,
    /// Whether the lines are for HTTP/2, which has neither Host nor Connection, nor an upgrade (RFC 9113 §8.2.2, §8.3.1).
    pub is_h2: bool,
}

/// Appends the field lines for the origin. Returns the protocol if the client asks for an upgrade and sends no body.
pub fn request_lines<'r>(
    request: &'r HandlerRequest,
    terms: &ForwardTerms<'_>,
    out: &mut Vec<u8>,
) -> Option<&'r [u8]> {
    if !terms.is_h2 {
        write_line(out, b"Host: ", terms.host);
    }
    let start = out.len();
    // Fast path: a second pass is needed only if Connection names fields, which is rare.
    let (hop_by_hop, dropped) = match write_forwarded(request, &FieldNames::NONE, out) {
        Some(dropped) => (FieldNames::NONE, dropped),
        None => {
            // Fields named by Connection are hop-by-hop as well (RFC 9110 §7.6.1): the pass is repeated without them.
            out.truncate(start);
            let hop_by_hop = connection_options(request.fields());
            let dropped = write_forwarded(request, &hop_by_hop, out).unwrap_or_default();
            (hop_by_hop, dropped)
        }
    };
    // Upgrade is valid only if Connection names it (RFC 9110 §7.8).
    let wants_upgrade = hop_by_hop.contains(b"upgrade") && !terms.has_body && !terms.is_h2;
    let protocol = wants_upgrade.then(|| request.upgrade()).flatten();
    // Only a handshake of another version gets a key: an HTTP/1.1 handshake without one is invalid and must stay
    // invalid (RFC 6455 §4.2.1).
    if !request.version.is_http1()
        && protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
        && request.field("Sec-WebSocket-Key").is_none()
    {
        write_line(out, b"Sec-WebSocket-Key: ", &websocket_key());
    }
    // Trailers are forwarded, and so is `TE: trailers`, without which the origin may drop them. An upgrade has its own
    // Connection field.
    if dropped.takes_trailers && protocol.is_none() {
        out.extend_from_slice(b"TE: trailers\r\n");
        if !terms.is_h2 {
            out.extend_from_slice(b"Connection: TE\r\n");
        }
    }
    // IPv4-mapped IPv6 addresses are written as IPv4, which applications expect.
    out.extend_from_slice(b"X-Forwarded-For: ");
    let peer_start = out.len();
    write_address(out, request.peer.to_canonical());
    let peer_end = out.len();
    out.extend_from_slice(b"\r\nX-Real-IP: ");
    out.extend_from_within(peer_start..peer_end);
    out.extend_from_slice(b"\r\nX-Forwarded-Proto: ");
    out.extend_from_slice(request.scheme());
    out.extend_from_slice(b"\r\n");
    // A request without Host (HTTP/1.0) gets no X-Forwarded-Host.
    if !request.host().is_empty() {
        write_line(out, b"X-Forwarded-Host: ", request.host());
    }
    if let Some(port) = request.forwarded.as_ref().and_then(|it| it.port) {
        out.extend_from_slice(b"X-Forwarded-Port: ");
        put_number(out, port.into());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(&request.extra.added_lines);
    if terms.adds_via {
        out.extend_from_slice(b"Via: ");
        write_via(out, request, dropped.has_via);
    } else if dropped.has_via {
        // The client's Via is forwarded without an entry for this proxy.
        for (name, value) in request.fields().filter(|(name, _)| is_via(name)) {
            write_field_line(out, name, value);
        }
    }
    protocol
}

/// Information from the fields that were not forwarded.
#[derive(Default)]
struct DroppedFields {
    takes_trailers: bool,
    has_via: bool,
}

/// Appends the forwarded fields, except those in `hop_by_hop`. Returns `None` if `hop_by_hop` is empty although
/// Connection names fields: the caller must collect these names first.
fn write_forwarded(
    request: &HandlerRequest,
    hop_by_hop: &FieldNames<&[u8]>,
    out: &mut Vec<u8>,
) -> Option<DroppedFields> {
    let mut dropped = DroppedFields::default();
    let counts_forwards = counts_forwards(request.method);
    let is_from_trusted_proxy = request.forwarded.is_some();
    for (name, value) in request.fields() {
        if is_not_forwarded(name, is_from_trusted_proxy) {
            // Among the names that are not forwarded, TE, Via and Connection are identified by their lengths.
            match name.len() {
                2 => dropped.takes_trailers |= list_contains(value, b"trailers"),
                3 => dropped.has_via = true,
                10 if hop_by_hop.is_empty()
                    && equals_lower(name, b"connection")
                    && names_fields(value) =>
                {
                    return None;
                }
                _ => {}
            }
        } else if counts_forwards && equals_lower(name, b"max-forwards") {
            // The value is decremented (RFC 9110 §7.6.2); a field with an invalid value is dropped.
            let remaining = max_forwards(request).and_then(|max| max.checked_sub(1));
            if let Some(remaining) = remaining {
                write_field_line(out, name, remaining.to_string().as_bytes());
            }
        } else if !hop_by_hop.contains(name) && !is_ambiguous(name) {
            write_field_line(out, name, value);
        }
    }
    Some(dropped)
}

/// Max-Forwards: how many more times the request may be forwarded, for methods that use it (RFC 9110 §7.6.2).
pub fn max_forwards(request: &HandlerRequest) -> Option<u64> {
    let value = counts_forwards(request.method).then(|| request.field("Max-Forwards"));
    let digits = value
        .flatten()
        .filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    str::from_utf8(digits).ok()?.parse().ok()
}

fn counts_forwards(method: Method) -> bool {
    matches!(method, Method::Options | Method::Trace)
}

fn is_not_forwarded(name: &[u8], is_from_trusted_proxy: bool) -> bool {
    let len = name.len();
    // The first byte is a cheap test that most names fail.
    // X-Forwarded-… of a trusted proxy is forwarded, except for the fields that this server generates.
    if matches!(name.first(), Some(b'x' | b'X')) && forwarding::is_x_forwarded(name) {
        return !is_from_trusted_proxy || !forwarding::is_forwarded_report(name);
    }
    if matches!(name.first(), Some(b'c' | b'C')) && forwarding::is_forwarded_report(name) {
        return !is_from_trusted_proxy;
    }
    let (Some(start), Some(end)) = (STARTS.get(len), STARTS.get(len + 1)) else {
        return false;
    };
    let candidates = NOT_FORWARDED.get(usize::from(*start)..usize::from(*end));
    is_one_of(name, candidates.unwrap_or_default())
}

fn write_field_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    write_line(out, b": ", value);
}

/// A Sec-WebSocket-Key, which a handshake over HTTP/2 lacks (RFC 8441 §5.1): 16 random bytes in base64. The key keeps
/// caches from replaying responses; it is not secret.
fn websocket_key() -> [u8; 24] {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let hasher = RandomState::new();
    let random = u128::from(hasher.hash_one(0)) << 64 | u128::from(hasher.hash_one(1));
    let mut key = [b'='; 24];
    for (index, digit) in key.iter_mut().take(22).enumerate() {
        let bits = match index {
            ..21 => random >> (122 - 6 * index),
            // 128 bits are 21 digits of 6 bits, and one digit of 2 bits padded with zeros.
            _ => random << 4,
        };
        *digit = DIGITS[(bits & 63) as usize];
    }
    key
}

/// `start` is the field name with its separator.
fn write_line(out: &mut Vec<u8>, start: &[u8], value: &[u8]) {
    out.extend_from_slice(start);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The response fields for the client; `None` if a field is invalid.
pub fn response_fields(
    lines: FieldLines<'_>,
    now_s: fn() -> u64,
    dates: &mut DateCache,
) -> Option<ResponseFields> {
    // The same fast path as in `request_lines`.
    match filter_response_fields(lines.clone(), &FieldNames::NONE, now_s, dates)? {
        ForwardOutcome::All(fields) => Some(fields),
        ForwardOutcome::Names => {
            match filter_response_fields(lines.clone(), &connection_options(lines), now_s, dates)? {
                ForwardOutcome::All(fields) => Some(fields),
                ForwardOutcome::Names => None,
            }
        }
    }
}

/// The result of one pass over the response fields.
enum ForwardOutcome {
    All(ResponseFields),
    /// Connection names fields, which must be collected first.
    Names,
}

fn filter_response_fields(
    lines: FieldLines<'_>,
    hop_by_hop: &FieldNames<&[u8]>,
    now_s: fn() -> u64,
    dates: &mut DateCache,
) -> Option<ForwardOutcome> {
    let mut fields = ResponseFields::new();
    let mut has_date = false;
    for (name, value) in lines {
        let header = StandardHeader::find(name);
        match header {
            Some(StandardHeader::Connection) if hop_by_hop.is_empty() && names_fields(value) => {
                return Some(ForwardOutcome::Names);
            }
            Some(StandardHeader::Date) if !has_date => {
                has_date = true;
                if let Some(date) = dates.parse(value, now_s) {
                    fields.set_date(date);
                }
                continue;
            }
            _ => {}
        }
        let is_hop_by_hop = hop_by_hop.contains(name) && !is_one_of(name, &END_TO_END);
        let is_forwarded = !is_dropped_from_response(name, header) && !is_hop_by_hop;
        if is_forwarded && !fields.try_push_resolved(name, header, value) {
            return None;
        }
    }
    Some(ForwardOutcome::All(fields))
}

/// The last Date value of an origin and its normal form: consecutive responses mostly have the same value.
#[derive(Default)]
pub struct DateCache(Option<([u8; 29], [u8; 29])>);

impl DateCache {
    /// Normalizes the Date of a response; `None` if it is invalid.
    fn parse(&mut self, value: &[u8], now_s: fn() -> u64) -> Option<[u8; 29]> {
        if let Some((cached, date)) = &self.0
            && cached == value
        {
            return Some(*date);
        }
        let date = date::format(date::parse(value, now_s())?);
        // Only the usual form, IMF-fixdate, has 29 bytes (RFC 9110 §5.6.7); obsolete forms are not cached.
        if let Ok(value) = value.try_into() {
            self.0 = Some((value, date));
        }
        Some(date)
    }
}

/// Whether a field may be confused with another one: CGI maps both `-` and `_` to `_`.
fn is_ambiguous(name: &[u8]) -> bool {
    name.contains(&b'_')
}

fn is_via(name: &[u8]) -> bool {
    equals_lower(name, b"via")
}

/// Appends a Via line: the received values, then this proxy's entry (the protocol version of the request and the
/// proxy's pseudonym; RFC 9110 §7.6.3).
fn write_via(out: &mut Vec<u8>, request: &HandlerRequest, has_via: bool) {
    let fields = match has_via {
        true => request.fields(),
        false => FieldLines::NONE,
    };
    // Entries are in the order of forwarding, so this proxy adds itself at the end (RFC 9110 §7.6.3).
    for (_, value) in fields.filter(|(name, _)| is_via(name)) {
        out.extend_from_slice(value);
        out.extend_from_slice(b", ");
    }
    // The protocol name may be omitted if it is HTTP (RFC 9110 §7.6.3).
    out.extend_from_slice(request.version.number().as_bytes());
    out.extend_from_slice(b" lowroad\r\n");
}

/// The fields that Connection lists.
fn connection_options(fields: FieldLines<'_>) -> FieldNames<&[u8]> {
    let connection_lines = fields.filter(|(name, _)| equals_lower(name, b"connection"));
    let options = connection_lines.flat_map(|(_, value)| value.split(|byte| *byte == b','));
    options.map(<[u8]>::trim_ascii).collect()
}

/// Whether a Connection value names fields: options other than `close` and `keep-alive`, which are never forwarded
/// anyway.
fn names_fields(value: &[u8]) -> bool {
    let is_plain_option = |option: &[u8]| {
        let option = option.trim_ascii();
        equals_lower(option, b"close") || equals_lower(option, b"keep-alive")
    };
    !value.split(|byte| *byte == b',').all(is_plain_option)
}

/// Whether a comma-separated list contains `member`.
fn list_contains(list: &[u8], member: &[u8]) -> bool {
    let mut members = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    members.any(|it| it.eq_ignore_ascii_case(member))
}

fn is_one_of(name: &[u8], names: &[&[u8]]) -> bool {
    names
        .iter()
        .any(|candidate| name.eq_ignore_ascii_case(candidate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_forwarded_names_are_case_insensitive() {
        assert!(NOT_FORWARDED.is_sorted_by_key(|name| name.len()));
        for name in NOT_FORWARDED {
            let upper = name.to_ascii_uppercase();
            assert!(is_not_forwarded(name, true) && is_not_forwarded(&upper, true));
            let other = [name, b"x"].concat();
            let is_other = NOT_FORWARDED.contains(&&*other);
            assert_eq!(is_not_forwarded(&other, true), is_other);
        }
        assert!(!is_not_forwarded(b"", false) && !is_not_forwarded(b"accept", false));
        assert!(!is_not_forwarded(&[b'x'; 100], false));
    }

    #[test]
    fn forwarding_fields_of_untrusted_clients_are_not_forwarded() {
        for name in forwarding::FORWARDING_FIELDS {
            assert!(is_not_forwarded(name.as_bytes(), true), "{name}");
        }
        for name in ["X-Forwarded-For", "x-forwarded-host", "X-Forwarded"] {
            assert!(is_not_forwarded(name.as_bytes(), true), "{name}");
        }
        for name in ["X-Forwarded-User", "x-forwarded-prefix", "CF-Visitor"] {
            assert!(is_not_forwarded(name.as_bytes(), false), "{name}");
            assert!(!is_not_forwarded(name.as_bytes(), true), "{name}");
        }
    }

    #[test]
    fn fields_named_by_connection_are_not_forwarded() {
        let fields = |lines: &[u8]| {
            let fields = response_fields(FieldLines::new(lines), || 0, &mut DateCache::default());
            let fields = fields.expect("fields");
            fields
                .iter()
                .map(|(name, _)| name.to_owned())
                .collect::<Vec<_>>()
        };
        let lines =
            b"X-A: 1\r\nconnection: close, x-a\r\nX-B: 2\r\nVary: c\r\nConnection: vary\r\n";
        assert_eq!(fields(lines), ["X-B", "Vary"]);
        assert_eq!(
            fields(b"X-A: 1\r\nConnection: keep-alive\r\nVia: x\r\n"),
            ["X-A"]
        );
    }

    #[test]
    fn date_cache_returns_same_result_as_parser() {
        let mut dates = DateCache::default();
        let mut of = |date: &str| dates.parse(date.as_bytes(), || 784_111_777);
        let good = *b"Sun, 06 Nov 1994 08:49:37 GMT";
        // The day of the week is not checked, but generated.
        for _ in 0..2 {
            assert_eq!(of("Mon, 06 Nov 1994 08:49:37 GMT"), Some(good));
            assert_eq!(of("Sunday, 06-Nov-94 08:49:37 GMT"), Some(good));
            assert_eq!(of("yesterday"), None);
        }
    }
}
