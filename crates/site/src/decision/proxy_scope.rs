//! Proxy in front of another web server: selects the requests that this server may process itself: those that all
//! servers interpret alike. Requests that a proxy would change, drop fields of or refuse are passed through, so that
//! the server answers them as it would without a proxy.

use lowroad_http::fields::FieldLines;
use lowroad_http::forwarding;
use lowroad_http::h1::H1RequestHead;
use lowroad_http::method::Method;
use lowroad_http::request::RequestTarget;
use lowroad_http::target;
use lowroad_http::{BodyFraming, Request};

/// Whether a stored response, or a forwarded (that is, rewritten) request, has the same result as the original request.
pub fn is_in_scope(head: &H1RequestHead<'_>, scratch: &mut Vec<u8>) -> bool {
    let request = &head.request;
    request.authority.is_some()
        && matches!(
            request.method,
            Method::Get
                | Method::Head
                | Method::Post
                | Method::Put
                | Method::Patch
                | Method::Delete
                | Method::Options
        )
        // Servers differ in parsing chunked bodies.
        && head.framing != BodyFraming::Chunked
        // The server decides whether it accepts the body.
        && !head.expect_continue
        && has_plain_path(request, scratch)
        && request
            .fields()
            .all(|(name, value)| is_forwarded(name, value, request.fields()))
}

/// Whether the target is a path that all servers interpret alike.
fn has_plain_path(request: &Request<'_>, scratch: &mut Vec<u8>) -> bool {
    let RequestTarget::Origin { path, plain, .. } = request.target else {
        return false;
    };
    // An absolute-form target would be forwarded in another form.
    if !request.raw_target().starts_with(b"/") {
        return false;
    }
    scratch.resize(path.len(), 0);
    plain || target::decode(path, scratch).is_ok()
}

/// Whether the proxy forwards a field or preserves its effect. `X-Forwarded-For` and `X-Real-IP` are set by the proxy.
fn is_forwarded(name: &[u8], value: &[u8], fields: FieldLines<'_>) -> bool {
    let is = |field_name: &str| name.eq_ignore_ascii_case(field_name.as_bytes());
    match () {
        () if is("connection") => names_no_field(value),
        () if is("upgrade") => is_websocket(value, fields),
        () => {
            // CGI maps `_` and `-` to the same variable, so a name with `_` can impersonate another field.
            !name.contains(&b'_')
                && !forwarding::describes_other_request(name)
                && !DROPPED.into_iter().any(is)
        }
    }
}

/// Fields that a proxy drops in addition to hop-by-hop fields.
const DROPPED: [&str; 5] = [
    "HTTP2-Settings",
    "Proxy",
    "Proxy-Authorization",
    "Proxy-Connection",
    "X-HTTP-Host-Override",
];

/// Whether a Connection value names no hop-by-hop fields.
fn names_no_field(value: &[u8]) -> bool {
    let mut options = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    options.all(|option| {
        ["close", "keep-alive", "upgrade", ""]
            .into_iter()
            .any(|option_name| option.eq_ignore_ascii_case(option_name.as_bytes()))
    })
}

/// Whether the proxy forwards an upgrade with all that the handshake needs.
fn is_websocket(value: &[u8], mut fields: FieldLines<'_>) -> bool {
    value.eq_ignore_ascii_case(b"websocket")
        && fields.any(|(name, _)| name.eq_ignore_ascii_case(b"sec-websocket-key"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_http::h1;
    use lowroad_http::limits::RequestLimits;

    fn is(text: &str) -> bool {
        let head = h1::parse(text.as_bytes(), &RequestLimits::default());
        let head = head.expect("no refusal").expect("whole");
        is_in_scope(&head, &mut Vec::new())
    }

    #[test]
    fn unambiguous_requests_are_processed_by_proxy() {
        for request in [
            "GET /a//b%20c?d HTTP/1.1\r\nHost: h\r\nCookie: e\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999999\r\n\r\n",
            "HEAD / HTTP/1.0\r\nHost: h\r\nConnection: Keep-Alive\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
             Sec-WebSocket-Key: x\r\n\r\n",
            "OPTIONS / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n",
        ] {
            assert!(is(request), "{request}");
        }
    }

    #[test]
    fn ambiguous_requests_are_passed_through() {
        for line in [
            "OPTIONS * HTTP/1.1",
            "GET http://h/ HTTP/1.1",
            "GET /a/../b HTTP/1.1",
            "GET /a\\b HTTP/1.1",
            "GET /%00 HTTP/1.1",
            "GET /a%2fb HTTP/1.1",
            "TRACE / HTTP/1.1",
            "CONNECT h:1 HTTP/1.1",
            "PURGE / HTTP/1.1",
            "BREW / HTTP/1.1",
        ] {
            assert!(!is(&format!("{line}\r\nHost: h\r\n\r\n")), "{line}");
        }
        for field in [
            "Transfer-Encoding: chunked",
            "X_Y: z",
            "X-Forwarded-Proto: https",
            "Proxy: x",
            "Connection: close, x",
            "Upgrade: h2c",
            "Upgrade: websocket",
            "Content-Length: 1\r\nExpect: 100-continue",
        ] {
            let request = format!("POST / HTTP/1.1\r\nHost: h\r\n{field}\r\n\r\n");
            assert!(!is(&request), "{field}");
        }
        assert!(!is("GET / HTTP/1.0\r\n\r\n"));
    }
}
