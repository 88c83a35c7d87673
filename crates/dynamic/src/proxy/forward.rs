//! What an origin gets to see of a request, and a client of its response: written anew from the parsed form, without
//! what belongs to a connection (RFC 9110 §7.6). Knows neither connections nor bodies.

use lowroad_http::date;
use lowroad_http::fields::{Fields, Lines};

use crate::Request;

/// What we are called in Via.
const PSEUDONYM: &[u8] = b"lowroad";

/// Fields that are for the next hop only, whether Connection names them or not; those that our own side of the
/// connection says; and those that say where a request comes from or what it is really for, which only we know: they are
/// no part of a stored response's key, and applications believe them.
const NOT_FORWARDED: [&[u8]; 35] = [
    b"connection",
    b"content-length",
    b"expect",
    b"forwarded",
    b"front-end-https",
    b"host",
    b"http2-settings",
    b"keep-alive",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
    b"via",
    b"x-forwarded",
    b"x-forwarded-by",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-path",
    b"x-forwarded-port",
    b"x-forwarded-prefix",
    b"x-forwarded-proto",
    b"x-forwarded-protocol",
    b"x-forwarded-scheme",
    b"x-forwarded-server",
    b"x-forwarded-ssl",
    b"x-host",
    b"x-http-host-override",
    b"x-original-host",
    b"x-original-url",
    b"x-real-ip",
    b"x-rewrite-url",
    b"x-scheme",
    b"x-url-scheme",
];

/// Fields of a response that are for us, beside those that [`Fields`] drops.
const NOT_PASSED_ON: [&[u8]; 3] = [b"proxy-authenticate", b"proxy-authentication-info", b"via"];

/// Fields of a response that say who may have it: no option of the connection, whatever Connection says (RFC 9110 §7.6.1).
const END_TO_END: [&[u8]; 6] = [
    b"cache-control",
    b"cdn-cache-control",
    b"expires",
    b"pragma",
    b"set-cookie",
    b"vary",
];

/// Appends the field lines for the origin, which gets this Host. The protocol that it is to be asked for, if the client
/// asks for one.
pub fn request_lines<'r>(request: &'r Request, host: &[u8], out: &mut Vec<u8>) -> Option<&'r [u8]> {
    let mut put = |name: &[u8], value: &[u8]| {
        for part in [name, b": ", value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    };
    put(b"Host", host);
    let named = Named::of(request.fields());
    // Few requests have the option, and only those are looked at for the rest.
    let protocol = named.has(b"upgrade").then(|| request.upgrade()).flatten();
    let mut takes_trailers = false;
    for (name, value) in request.fields() {
        if is_one_of(name, &NOT_FORWARDED) {
            takes_trailers |= name.eq_ignore_ascii_case(b"te") && has(value, b"trailers");
        } else if !named.has(name) && !is_ambiguous(name) {
            put(name, value);
        }
    }
    // Trailers are passed on, but who does not ask for them need not get them. An upgrade has a Connection of its own.
    if takes_trailers && protocol.is_none() {
        put(b"TE", b"trailers");
        put(b"Connection", b"TE");
    }
    // Without the form that an IPv6 socket gives to IPv4 addresses.
    let peer = request.peer.to_canonical().to_string();
    put(b"X-Forwarded-For", peer.as_bytes());
    put(b"X-Real-IP", peer.as_bytes());
    put(b"X-Forwarded-Proto", b"http");
    if !request.host().is_empty() {
        put(b"X-Forwarded-Host", request.host());
    }
    let via = via(request.fields(), request.version.as_str().as_bytes());
    put(b"Via", &via);
    protocol
}

/// The fields of a response that clients get; false if one of them is none.
pub fn response_fields(lines: Lines<'_>, now_s: u64) -> Option<Fields> {
    let named = Named::of(lines.clone());
    let mut fields = Fields::new();
    if let Some(date_s) = date_s(lines.clone(), now_s) {
        fields.set_date(date::format(date_s));
    }
    for (name, value) in lines {
        let is_for_hop = named.has(name) && !is_one_of(name, &END_TO_END);
        let stays = !is_one_of(name, &NOT_PASSED_ON) && !is_for_hop;
        if stays && !fields.try_push(name, value) {
            return None;
        }
    }
    Some(fields)
}

/// Whether applications may take a field for another: CGI and what follows it give both `-` and `_` as `_`.
fn is_ambiguous(name: &[u8]) -> bool {
    name.contains(&b'_')
}

/// When an origin made its response, if it says so once and clearly.
fn date_s(mut fields: Lines<'_>, now_s: u64) -> Option<u64> {
    let (_, value) = fields.find(|(name, _)| name.eq_ignore_ascii_case(b"date"))?;
    date::parse(value, now_s)
}

/// The Via that came, and our own: the protocol in which the request came to us.
fn via(fields: Lines<'_>, version: &[u8]) -> Vec<u8> {
    let mut via = Vec::new();
    for (_, value) in fields.filter(|(name, _)| name.eq_ignore_ascii_case(b"via")) {
        via.extend_from_slice(value);
        via.extend_from_slice(b", ");
    }
    // The protocol's name is left out for HTTP.
    via.extend_from_slice(version.strip_prefix(b"HTTP/").unwrap_or(version));
    via.push(b' ');
    via.extend_from_slice(PSEUDONYM);
    via
}

/// The fields that Connection names.
struct Named<'l>(Vec<&'l [u8]>);

impl<'l> Named<'l> {
    fn of(fields: Lines<'l>) -> Named<'l> {
        let of_connection = fields.filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"));
        let options = of_connection.flat_map(|(_, value)| value.split(|byte| *byte == b','));
        Named(options.map(<[u8]>::trim_ascii).collect())
    }

    fn has(&self, name: &[u8]) -> bool {
        self.0.iter().any(|named| named.eq_ignore_ascii_case(name))
    }
}

/// Whether a list has this member.
fn has(list: &[u8], member: &[u8]) -> bool {
    let mut members = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    members.any(|it| it.eq_ignore_ascii_case(member))
}

fn is_one_of(name: &[u8], known: &[&[u8]]) -> bool {
    known.iter().any(|known| name.eq_ignore_ascii_case(known))
}
