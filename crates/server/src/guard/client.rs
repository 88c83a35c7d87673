//! Who a client is that comes through trusted proxies: each of them adds, at the end of a field, from where it was asked. So the
//! last address that is no trusted proxy's is the client's, and what stands before it is what the client says.
//! Forwarded is RFC 7239; X-Forwarded-For has no standard, but everybody writes it as a list of addresses.

use std::net::{IpAddr, SocketAddr};

use lowroad_config::{ClientField, PrefixSet};
use lowroad_http::request::Request;

/// A proxy's field can be read in two ways.
#[derive(Debug, PartialEq, Eq)]
pub struct Unreadable;

/// The client of a request that came from `peer`. Its port is 0 if a proxy names it without one.
///
/// # Errors
/// A quoted text in Forwarded has no end, or one begins within a word: whoever wrote that could make another address of the client's.
pub fn of(
    (trusted, field): (&PrefixSet, ClientField),
    peer: SocketAddr,
    request: &Request<'_>,
) -> Result<SocketAddr, Unreadable> {
    if !trusted.has(peer.ip()) {
        return Ok(peer);
    }
    let name: &[u8] = match field {
        ClientField::XForwardedFor => b"x-forwarded-for",
        ClientField::Forwarded => b"forwarded",
    };
    let read = match field {
        ClientField::XForwardedFor => address,
        ClientField::Forwarded => for_of,
    };
    let mut elements: Vec<&[u8]> = Vec::new();
    let fields = request.fields();
    for (_, value) in fields.filter(|(known, _)| known.eq_ignore_ascii_case(name)) {
        match field {
            ClientField::XForwardedFor => elements.extend(value.split(|byte| *byte == b',')),
            ClientField::Forwarded => split_unquoted(value, b',', &mut elements)?,
        }
    }
    let mut client = peer;
    for element in elements.into_iter().rev() {
        // What is no address is somebody who is not to be known: then the proxy that says so is all that is.
        let Some(named) = read(element.trim_ascii()) else {
            break;
        };
        client = named;
        if !trusted.has(named.ip()) {
            break;
        }
    }
    Ok(client)
}

/// The node of the parameter `for`.
fn for_of(element: &[u8]) -> Option<SocketAddr> {
    let mut pairs = Vec::new();
    split_unquoted(element, b';', &mut pairs).ok()?;
    let mut named = pairs.into_iter().filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let is_for = pair[..at].trim_ascii().eq_ignore_ascii_case(b"for");
        is_for.then(|| pair[at + 1..].trim_ascii())
    });
    // A parameter is there once (§4).
    match (named.next(), named.next()) {
        (Some(node), None) => {
            let quoted = node.strip_prefix(b"\"");
            address(quoted.map_or(Some(node), |node| node.strip_suffix(b"\""))?)
        }
        _ => None,
    }
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`.
fn address(text: &[u8]) -> Option<SocketAddr> {
    let text = str::from_utf8(text).ok()?;
    let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let parsed = bare.unwrap_or(text).parse::<IpAddr>().ok();
    let portless = parsed.map(|address| SocketAddr::new(address, 0));
    let named = portless.or_else(|| text.parse().ok())?;
    Some(SocketAddr::new(named.ip().to_canonical(), named.port()))
}

/// Splits at a sign, but not within quoted texts (RFC 9110 §5.6.4).
fn split_unquoted<'v>(
    value: &'v [u8],
    sign: u8,
    parts: &mut Vec<&'v [u8]>,
) -> Result<(), Unreadable> {
    let (mut start, mut is_quoted, mut is_escaped) = (0, false, false);
    for (at, byte) in value.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' if is_quoted => is_quoted = false,
            b'"' if at > 0 && value[at - 1] == b'=' => is_quoted = true,
            b'"' => return Err(Unreadable),
            byte if *byte == sign && !is_quoted => {
                parts.push(&value[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&value[start..]);
    if is_quoted { Err(Unreadable) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_config::Prefix;
    use lowroad_http::h1::parse;
    use lowroad_http::limits::Limits;

    fn client(field: ClientField, peer: &str, lines: &str) -> Option<String> {
        let prefixes = ["10.0.0.0/8", "2001:db8::/32"];
        let prefixes = prefixes.map(|it| Prefix::parse(it).expect("a prefix"));
        let trusted = PrefixSet::new(&prefixes);
        let lines = lines.replace('\n', "\r\n");
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let Ok(Some(head)) = parse(head.as_bytes(), &Limits::default()) else {
            panic!("it is a request: {lines}");
        };
        let peer = SocketAddr::new(peer.parse().expect("an address"), 7);
        let client = of((&trusted, field), peer, &head.request);
        client.ok().map(|client| client.ip().to_string())
    }

    #[test]
    fn the_last_that_is_no_trusted_proxy_is_the_client() {
        for (peer, lines, want) in [
            ("10.0.0.1", "", "10.0.0.1"),
            ("192.0.2.1", "X-Forwarded-For: 1.2.3.4\n", "192.0.2.1"),
            ("10.0.0.1", "X-Forwarded-For: 1.2.3.4\n", "1.2.3.4"),
            ("::ffff:10.0.0.1", "X-Forwarded-For: 1.2.3.4\n", "1.2.3.4"),
            (
                "10.0.0.1",
                "X-Forwarded-For: 6.6.6.6, 1.2.3.4, 10.9.9.9\n",
                "1.2.3.4",
            ),
            (
                "10.0.0.1",
                "X-Forwarded-For: 6.6.6.6,1.2.3.4\nX-FORWARDED-FOR: 10.9.9.9\n",
                "1.2.3.4",
            ),
            (
                "10.0.0.1",
                "X-Forwarded-For: 10.0.0.3, 10.0.0.2\n",
                "10.0.0.3",
            ),
            (
                "10.0.0.1",
                "X-Forwarded-For: 10.0.0.3, what, 10.0.0.2\n",
                "10.0.0.2",
            ),
            ("10.0.0.1", "X-Forwarded-For: 10.0.0.3, \n", "10.0.0.1"),
            ("10.0.0.1", "X-Forwarded-For: unknown\n", "10.0.0.1"),
            ("10.0.0.1", "X-Forwarded-For: 1.2.3.4:567\n", "1.2.3.4"),
            (
                "10.0.0.1",
                "X-Forwarded-For: [2001:db9::1]:567\n",
                "2001:db9::1",
            ),
            ("10.0.0.1", "X-Forwarded-For: 2001:db9::1\n", "2001:db9::1"),
            (
                "2001:db8::1",
                "X-Forwarded-For: ::ffff:1.2.3.4\n",
                "1.2.3.4",
            ),
            ("10.0.0.1", "Forwarded: for=1.2.3.4\n", "10.0.0.1"),
        ] {
            let found = client(ClientField::XForwardedFor, peer, lines);
            assert_eq!(found.as_deref(), Some(want), "{peer} {lines}");
        }
    }

    #[test]
    fn forwarded_is_read_as_it_is_quoted() {
        for (value, want) in [
            ("for=1.2.3.4", Some("1.2.3.4")),
            (
                "For=\"1.2.3.4:80\";proto=http, for=10.0.0.2",
                Some("1.2.3.4"),
            ),
            ("for=\"[2001:db9::1]:4711\"", Some("2001:db9::1")),
            (
                "by=10.0.0.1;for=1.2.3.4;host=\"a, for=10.0.0.9\"",
                Some("1.2.3.4"),
            ),
            ("for=_hidden", Some("10.0.0.1")),
            ("for=5.6.7.8;for=1.2.3.4", Some("10.0.0.1")),
            ("proto=http", Some("10.0.0.1")),
            ("for=\"x, for=1.2.3.4", None),
            ("\"a, for=\"1.2.3.4\"", None),
            ("for=\"x\\\", for=1.2.3.4", None),
        ] {
            let line = format!("Forwarded: {value}\nX-Forwarded-For: 9.9.9.9\n");
            let found = client(ClientField::Forwarded, "10.0.0.1", &line);
            assert_eq!(found.as_deref(), want, "{value}");
        }
    }
}
