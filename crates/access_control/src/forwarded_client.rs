//! Reads the reports of trusted proxies about a client: its address and its original request. Each proxy appends the
//! address of its peer to a list. The client's address is therefore the last one that is not a trusted proxy; the
//! client may have forged everything before it. Forwarded is defined in RFC 7239; `X-Forwarded-…` is not standardized,
//! but a list in practice.

use std::net::{IpAddr, SocketAddr};

use lowroad_config::{ClientField, PrefixSet};
use lowroad_http::forwarding::ForwardedRequest;
use lowroad_http::host;
use lowroad_http::request::Request;

/// A field of a proxy is ambiguous.
#[derive(Debug, PartialEq, Eq)]
pub struct AmbiguousForwarding;

/// A client, as reported by trusted proxies.
#[derive(Debug)]
pub struct ForwardedClient {
    /// The address of the client; the port is 0 if it was not reported.
    pub address: SocketAddr,
    /// The properties of the client's original request.
    pub request: ForwardedRequest,
}

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub struct DirectPeer {
    /// The peer of the connection, or the address in its PROXY header.
    pub peer: SocketAddr,
    /// The peer of the connection, if its PROXY header contained `peer`.
    pub proxy: Option<IpAddr>,
}

/// Reads the reports of trusted proxies about a request. `None` if the sender is not a trusted proxy.
///
/// The client's address in the PROXY header of a trusted proxy takes precedence. The list of addresses is read only if
/// the PROXY header's address is another trusted proxy.
///
/// # Errors
/// In Forwarded, a quoted string has no end or begins within a word: by such a value, a client could change its
/// reported address.
pub fn read(
    trusted: &PrefixSet,
    field: ClientField,
    DirectPeer { peer, proxy }: DirectPeer,
    request: &Request<'_>,
) -> Result<Option<ForwardedClient>, AmbiguousForwarding> {
    // Any other sender may have written the fields itself.
    if ![Some(peer.ip()), proxy]
        .into_iter()
        .flatten()
        .any(|it| trusted.contains(it))
    {
        return Ok(None);
    }
    let client = match field {
        ClientField::XForwardedFor => {
            let elements = list(request, b"x-forwarded-for");
            let (address, hops) = client_of(trusted, peer, &elements, address);
            ForwardedClient {
                address,
                request: x_forwarded(request, hops),
            }
        }
        ClientField::Forwarded => {
            let elements = forwarded(request)?;
            let (address, hops) = client_of(trusted, peer, &elements, |element| {
                address(parameter(element, b"for")?)
            });
            // Scheme and host are those of the client's connection, which only the proxy next to the client has seen.
            let nearest = nth_last(&elements, hops).unwrap_or_default();
            ForwardedClient {
                address,
                request: ForwardedRequest {
                    is_https: parameter(nearest, b"proto").and_then(is_https),
                    authority: parameter(nearest, b"host").and_then(authority),
                    port: None,
                },
            }
        }
    };
    Ok(Some(client))
}

/// The client's address, and the number of list elements, counted from the end, that trusted proxies wrote.
fn client_of(
    trusted: &PrefixSet,
    peer: SocketAddr,
    elements: &[&[u8]],
    read: impl Fn(&[u8]) -> Option<SocketAddr>,
) -> (SocketAddr, usize) {
    let (mut client, mut hops) = (peer, 0);
    if !trusted.contains(peer.ip()) {
        // The PROXY header contained a client that is not a proxy, so that client wrote the rest of the list.
        return (peer, 1);
    }
    for element in elements.iter().rev() {
        hops += 1;
        // The proxy did not report its peer, so the proxy itself is the nearest known address.
        let Some(hop_address) = read(element.trim_ascii()) else {
            break;
        };
        client = hop_address;
        // Elements before this one were written by the client, which may have forged them.
        if !trusted.contains(hop_address.ip()) {
            break;
        }
    }
    (client, hops)
}

/// Scheme, host and port from the fields that accompany X-Forwarded-For.
fn x_forwarded(request: &Request<'_>, hops: usize) -> ForwardedRequest {
    let value = |name: &[u8]| {
        let elements = list(request, name);
        nth_last(&elements, hops).map(<[u8]>::trim_ascii)
    };
    let port = |text: &[u8]| {
        // Parsing would also accept a sign and leading zeros.
        let is_decimal = text.iter().all(u8::is_ascii_digit) && !text.starts_with(b"0");
        str::from_utf8(text)
            .ok()
            .filter(|_| is_decimal)?
            .parse()
            .ok()
    };
    ForwardedRequest {
        is_https: value(b"x-forwarded-proto").and_then(is_https),
        authority: value(b"x-forwarded-host").and_then(authority),
        port: value(b"x-forwarded-port").and_then(port),
    }
}

/// The element with this number from the end, which the proxy next to the client wrote. If a proxy replaces the list
/// instead of appending to it, the list is shorter; then the first element.
fn nth_last<'v>(elements: &[&'v [u8]], number: usize) -> Option<&'v [u8]> {
    let at = elements.len().saturating_sub(number.max(1));
    elements.get(at).copied()
}

/// The elements of all fields with a name in lower case.
fn list<'v>(request: &Request<'v>, name: &[u8]) -> Vec<&'v [u8]> {
    let values = request
        .fields()
        .filter(|(field_name, _)| field_name.eq_ignore_ascii_case(name));
    values
        .flat_map(|(_, value)| value.split(|byte| *byte == b','))
        .collect()
}

/// The elements of all Forwarded fields.
fn forwarded<'v>(request: &Request<'v>) -> Result<Vec<&'v [u8]>, AmbiguousForwarding> {
    let mut elements = Vec::new();
    for (name, value) in request.fields() {
        if name.eq_ignore_ascii_case(b"forwarded") {
            split_unquoted(value, b',', &mut elements)?;
        }
    }
    Ok(elements)
}

/// The unquoted value of a parameter in an element of Forwarded; `None` if it is missing or repeated (RFC 7239 §4).
fn parameter<'v>(element: &'v [u8], name: &[u8]) -> Option<&'v [u8]> {
    let mut pairs = Vec::new();
    split_unquoted(element, b';', &mut pairs).ok()?;
    let mut values = pairs.into_iter().filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let is_named = pair[..at].trim_ascii().eq_ignore_ascii_case(name);
        is_named.then(|| pair[at + 1..].trim_ascii())
    });
    match (values.next(), values.next()) {
        (Some(value), None) => match value.strip_prefix(b"\"") {
            Some(quoted) => quoted.strip_suffix(b"\""),
            None => Some(value),
        },
        _ => None,
    }
}

/// Whether a scheme is https; ws and wss count as http and https, the schemes of their handshakes (RFC 6455 §3).
fn is_https(scheme: &[u8]) -> Option<bool> {
    let is = |name: &[u8]| scheme.eq_ignore_ascii_case(name);
    match () {
        () if is(b"https") || is(b"wss") => Some(true),
        () if is(b"http") || is(b"ws") => Some(false),
        () => None,
    }
}

fn authority(text: &[u8]) -> Option<Box<[u8]>> {
    let is_authority = !text.is_empty() && host::is_valid(text);
    is_authority.then(|| text.into())
}

/// Parses `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`.
fn address(text: &[u8]) -> Option<SocketAddr> {
    let text = str::from_utf8(text).ok()?;
    let unbracketed = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let parsed = unbracketed.unwrap_or(text).parse::<IpAddr>().ok();
    let portless = parsed.map(|address| SocketAddr::new(address, 0));
    let socket_address = portless.or_else(|| text.parse().ok())?;
    // An IPv4-mapped address must match IPv4 prefixes.
    Some(SocketAddr::new(
        socket_address.ip().to_canonical(),
        socket_address.port(),
    ))
}

/// Splits at a separator, but not within quoted strings (RFC 9110 §5.6.4).
fn split_unquoted<'v>(
    value: &'v [u8],
    separator: u8,
    parts: &mut Vec<&'v [u8]>,
) -> Result<(), AmbiguousForwarding> {
    let (mut start, mut is_quoted, mut is_escaped) = (0, false, false);
    for (at, byte) in value.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' if is_quoted => is_quoted = false,
            // A quoted string must be the whole value (RFC 7239 §4): within a value, other parsers might split
            // differently.
            b'"' if at > 0 && value[at - 1] == b'=' => is_quoted = true,
            b'"' => return Err(AmbiguousForwarding),
            byte if *byte == separator && !is_quoted => {
                parts.push(&value[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&value[start..]);
    if is_quoted {
        Err(AmbiguousForwarding)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_config::AddressPrefix;
    use lowroad_http::h1::parse;
    use lowroad_http::limits::RequestLimits;

    fn forwarded_client(
        field: ClientField,
        peer: &str,
        lines: &str,
    ) -> Result<Option<ForwardedClient>, AmbiguousForwarding> {
        let prefixes = ["10.0.0.0/8", "2001:db8::/32"];
        let prefixes = prefixes.map(|it| AddressPrefix::parse(it).expect("a prefix"));
        let trusted = PrefixSet::new(&prefixes);
        let lines = lines.replace('\n', "\r\n");
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let Ok(Some(head)) = parse(head.as_bytes(), &RequestLimits::default()) else {
            panic!("it is a request: {lines}");
        };
        // `CLIENT by PROXY`: the connection's peer is PROXY, and its PROXY header contains CLIENT.
        let (peer, proxy) = match peer.split_once(" by ") {
            Some((peer, proxy)) => (peer, Some(proxy)),
            None => (peer, None),
        };
        let sender = DirectPeer {
            peer: SocketAddr::new(peer.parse().expect("an address"), 7),
            proxy: proxy.map(|it| it.parse().expect("an address")),
        };
        read(&trusted, field, sender, &head.request)
    }

    /// The client's address; that of the peer if it is not a trusted proxy.
    fn client(field: ClientField, peer: &str, lines: &str) -> Option<String> {
        let client = forwarded_client(field, peer, lines).ok()?;
        Some(client.map_or(peer.into(), |client| client.address.ip().to_string()))
    }

    /// The reported scheme, authority and port of the client's request, as text.
    fn request(field: ClientField, lines: &str) -> String {
        request_from(field, "10.0.0.1", lines)
    }

    fn request_from(field: ClientField, peer: &str, lines: &str) -> String {
        let client = forwarded_client(field, peer, lines);
        let request = client.expect("readable").expect("a trusted peer").request;
        let authority = request.authority.unwrap_or_default();
        let authority = String::from_utf8_lossy(&authority);
        let scheme = request
            .is_https
            .map_or("-", |is| if is { "https" } else { "http" });
        format!("{scheme} {authority} {}", request.port.unwrap_or(0))
    }

    #[test]
    fn scheme_host_and_port_come_from_proxy_next_to_client() {
        for (lines, want) in [
            ("", "-  0"),
            (
                "X-Forwarded-For: 1.2.3.4\nX-Forwarded-Proto: https\nX-Forwarded-Host: a.b:1\nX-Forwarded-Port: 2\n",
                "https a.b:1 2",
            ),
            // A TLS terminator that reports no client address.
            ("X-Forwarded-Proto: HTTPS\n", "https  0"),
            ("X-Forwarded-Proto: wss\n", "https  0"),
            // The client wrote the first element.
            (
                "X-Forwarded-For: 6.6.6.6, 1.2.3.4\nX-Forwarded-Proto: http, https\nX-Forwarded-Host: evil, good\n",
                "https good 0",
            ),
            // Two trusted proxies, both of which append.
            (
                "X-Forwarded-For: 1.2.3.4, 10.9.9.9\nX-Forwarded-Proto: https, http\n",
                "https  0",
            ),
            // Two trusted proxies, of which the second leaves the scheme unchanged.
            (
                "X-Forwarded-For: 1.2.3.4, 10.9.9.9\nX-Forwarded-Proto: https\n",
                "https  0",
            ),
            // Invalid values.
            (
                "X-Forwarded-Proto: gopher\nX-Forwarded-Host: a/b\nX-Forwarded-Port: 0\n",
                "-  0",
            ),
            ("X-Forwarded-Host: \nX-Forwarded-Port: 99999\n", "-  0"),
            ("X-Forwarded-Port: +443\n", "-  0"),
            ("X-Forwarded-Port: 0443\n", "-  0"),
            // Only the configured field is read.
            ("Forwarded: proto=https;host=a\n", "-  0"),
        ] {
            assert_eq!(request(ClientField::XForwardedFor, lines), want, "{lines}");
        }
        for (value, want) in [
            ("for=1.2.3.4;proto=https;host=a", "https a 0"),
            ("proto=https;host=\"a:8\"", "https a:8 0"),
            ("for=_hidden;Proto=HTTP", "http  0"),
            (
                "for=6.6.6.6;proto=http;host=evil, for=1.2.3.4;proto=https",
                "https  0",
            ),
            (
                "for=1.2.3.4;proto=https;host=a, for=10.9.9.9;proto=http;host=b",
                "https a 0",
            ),
            ("proto=http;proto=https", "-  0"),
        ] {
            let line = format!("Forwarded: {value}\nX-Forwarded-Proto: http\n");
            assert_eq!(request(ClientField::Forwarded, &line), want, "{value}");
        }
        // With a PROXY header, the element written by the client precedes that of the proxy.
        for (field, lines) in [
            (
                ClientField::XForwardedFor,
                "X-Forwarded-For: 6.6.6.6, 1.2.3.4\nX-Forwarded-Proto: http, https\nX-Forwarded-Port: 443\n",
            ),
            (
                ClientField::XForwardedFor,
                "X-Forwarded-Proto: https\nX-Forwarded-Port: 443\n",
            ),
        ] {
            let found = request_from(field, "1.2.3.4 by 10.0.0.1", lines);
            assert_eq!(found, "https  443", "{lines}");
        }
        let untrusted = forwarded_client(
            ClientField::XForwardedFor,
            "1.2.3.4 by 192.0.2.1",
            "X-Forwarded-Proto: https\n",
        );
        assert!(matches!(untrusted, Ok(None)));
    }

    #[test]
    fn client_is_last_address_that_is_not_a_trusted_proxy() {
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
            // A PROXY header takes precedence over the list of the same proxy.
            (
                "1.2.3.4 by 10.0.0.1",
                "X-Forwarded-For: 6.6.6.6\n",
                "1.2.3.4",
            ),
            (
                "10.0.0.2 by 10.0.0.1",
                "X-Forwarded-For: 6.6.6.6, 1.2.3.4, 10.0.0.2\n",
                "1.2.3.4",
            ),
            (
                "10.0.0.2 by 192.0.2.1",
                "X-Forwarded-For: 1.2.3.4\n",
                "1.2.3.4",
            ),
        ] {
            let found = client(ClientField::XForwardedFor, peer, lines);
            assert_eq!(found.as_deref(), Some(want), "{peer} {lines}");
        }
    }

    #[test]
    fn forwarded_field_respects_quoted_strings() {
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
