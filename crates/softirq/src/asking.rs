//! What the packet program makes of a request: its key, or the reason for which it goes up. The same
//! rules as in `bpf/request.h`, for explanations; a segment is never judged by this.

use std::net::SocketAddr;

use lowroad_wire::width::index;

use crate::key::{self, Class, KEY_LEN_MAX, Key, start};
use crate::layout::{REQUEST_MAX, SETTING_IGNORE_CACHE_CONTROL, SETTING_IGNORE_COOKIES};

/// Why a request goes up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoesUp {
    /// The name of the reason, one of [`crate::layout::REASONS`].
    pub reason: &'static str,
    /// The field that it is about, as it was written.
    pub field: Option<String>,
}

/// More lines are not read.
const LINES_MAX: usize = 48;
/// Longer names are not read.
const NAME_LEN_MAX: usize = 31;

/// Fields that another level understands: the length of the name, and how it begins.
const OTHERS: [(usize, &str); 19] = [
    (2, "te"),
    (5, "range"),
    (6, "expect"),
    (7, "upgrade"),
    (7, "trailer"),
    (8, "if-match"),
    (6, "x-host"),
    (8, "if-range"),
    (9, "forwarded"),
    (10, "cf-visit"),
    (13, "authoriz"),
    (14, "content-"),
    (14, "http2-se"),
    (15, "front-en"),
    (16, "proxy-co"),
    (17, "transfer"),
    (19, "if-unmod"),
    (19, "proxy-au"),
    (26, "cloudfro"),
];

/// Fields of a TLS terminator or a proxy, of any length: how they begin.
const OF_TERMINATORS: [&str; 7] = [
    "x-forwar", "x-http-m", "x-method", "x-origin", "x-rewrit", "x-scheme", "x-url-sc",
];
/// Of these, what only says who asks.
const OF_CLIENTS: &str = "x-forwarded-for";

/// Pieces of the key: id and name.
const PIECES: [(u8, &str); 4] = [
    (key::HOST, "host"),
    (key::ACCEPT_ENCODING, "accept-encoding"),
    (key::IF_NONE_MATCH, "if-none-match"),
    (key::IF_MODIFIED_SINCE, "if-modified-since"),
];

/// Reads the head of a request to an address and port of this machine, under some of the `SETTING_`
/// bits.
///
/// # Errors
/// Why it goes up.
pub fn key_of(head: &[u8], local: SocketAddr, settings: u32) -> Result<Key, GoesUp> {
    if head.len() > index(REQUEST_MAX) {
        return Err(up("up_cut"));
    }
    let text = std::str::from_utf8(head).map_err(|_| up("up_syntax"))?;
    let (head, rest) = text.split_once("\r\n\r\n").ok_or(up("up_cut"))?;
    if !rest.is_empty() {
        return Err(up("up_more"));
    }
    let mut lines = head.split("\r\n");
    let (target, is_http10) = request_line(lines.next().unwrap_or_default())?;
    let mut key = start(Class::default(), local).to_vec();
    add(&mut key, key::TARGET, target)?;
    let mut seen = Seen::default();
    for (number, line) in lines.enumerate() {
        if number >= LINES_MAX - 1 {
            return Err(up("up_long"));
        }
        seen.field(line, settings, &mut key)?;
    }
    if !seen.pieces.contains(&2) {
        return Err(up("up_host"));
    }
    let closes = match is_http10 {
        true => seen.connection != Some(Connection::KeepAlive),
        false => seen.connection == Some(Connection::Close),
    };
    key[0] = u8::from(closes) | u8::from(is_http10) << 1;
    Key::read(&key).ok_or(up("up_syntax"))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Connection {
    Close,
    KeepAlive,
}

#[derive(Default)]
struct Seen {
    pieces: Vec<u8>,
    connection: Option<Connection>,
}

impl Seen {
    fn field(&mut self, line: &str, settings: u32, key: &mut Vec<u8>) -> Result<(), GoesUp> {
        let because = |reason| GoesUp {
            reason,
            field: Some(line.to_owned()),
        };
        let (name, value) = line.split_once(": ").ok_or(because("up_syntax"))?;
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        if name.is_empty() || name.len() > NAME_LEN_MAX || !name.bytes().all(is_name) {
            return Err(because("up_syntax"));
        }
        if !value.bytes().all(|b| (0x20..0x7f).contains(&b)) {
            return Err(because("up_syntax"));
        }
        let name = name.to_ascii_lowercase();
        if let Some((id, _)) = PIECES.iter().find(|(_, piece)| *piece == name) {
            return self.piece(*id, value, key).map_err(because);
        }
        match name.as_str() {
            "connection" => return self.connection(value).map_err(because),
            "cookie" if settings & SETTING_IGNORE_COOKIES == 0 => return Err(because("up_cookie")),
            "pragma" | "cache-control" if settings & SETTING_IGNORE_CACHE_CONTROL == 0 => {
                return Err(because("up_field"));
            }
            _ => {}
        }
        let is_other = |(len, begin): &(usize, &str)| name.len() == *len && name.starts_with(begin);
        let of_terminator =
            name != OF_CLIENTS && OF_TERMINATORS.iter().any(|begin| name.starts_with(begin));
        match of_terminator || OTHERS.iter().any(is_other) {
            true => Err(because("up_field")),
            false => Ok(()),
        }
    }

    fn piece(&mut self, id: u8, value: &str, key: &mut Vec<u8>) -> Result<(), &'static str> {
        let is_bare = !value.is_empty() && !value.starts_with(' ') && !value.ends_with(' ');
        if !is_bare || self.pieces.contains(&id) {
            return Err(if id == key::HOST {
                "up_host"
            } else {
                "up_syntax"
            });
        }
        self.pieces.push(id);
        add(key, id, value).map_err(|up| up.reason)
    }

    fn connection(&mut self, value: &str) -> Result<(), &'static str> {
        if self.connection.is_some() {
            return Err("up_field");
        }
        self.connection = match value.to_ascii_lowercase().as_str() {
            "close" => Some(Connection::Close),
            "keep-alive" => Some(Connection::KeepAlive),
            _ => return Err("up_field"),
        };
        Ok(())
    }
}

fn request_line(line: &str) -> Result<(&str, bool), GoesUp> {
    let rest = line
        .strip_prefix("GET ")
        .or_else(|| line.strip_prefix("HEAD "))
        .ok_or(up("up_method"))?;
    if !rest.starts_with('/') {
        return Err(up("up_target"));
    }
    let end = rest.bytes().position(|b| !b.is_ascii_graphic());
    let (target, version) = rest.split_at(end.unwrap_or(rest.len()));
    match version {
        " HTTP/1.1" => Ok((target, false)),
        " HTTP/1.0" => Ok((target, true)),
        _ => Err(up("up_version")),
    }
}

fn add(key: &mut Vec<u8>, id: u8, value: &str) -> Result<(), GoesUp> {
    if key.len() + value.len() + 1 > KEY_LEN_MAX {
        return Err(up("up_long"));
    }
    key.push(id);
    key.extend_from_slice(value.as_bytes());
    Ok(())
}

fn up(reason: &'static str) -> GoesUp {
    GoesUp {
        reason,
        field: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::REASONS;

    fn local() -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], 80))
    }

    /// Its pieces.
    fn key(fields: &str) -> Result<Vec<u8>, &'static str> {
        let head = format!("GET /x HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        key_of(head.as_bytes(), local(), 0)
            .map(|key| key.as_bytes()[19..].to_vec())
            .map_err(|up| up.reason)
    }

    fn reason(head: &str) -> &'static str {
        let reason = key_of(head.as_bytes(), local(), 0).expect_err(head).reason;
        assert!(REASONS.iter().any(|(name, _)| *name == reason), "{reason}");
        reason
    }

    #[test]
    fn keys_hold_what_the_response_depends_on_in_its_order() {
        assert_eq!(key(""), Ok(b"\x01/x\x02a".to_vec()));
        assert_eq!(
            key("User-Agent: u\r\naccept-encoding: gzip\r\nConnection: Close\r\n"),
            Ok(b"\x01/x\x02a\x03gzip".to_vec())
        );
        let old = key_of(b"HEAD / HTTP/1.0\r\nHost: a\r\n\r\n", local(), 0).expect("a key");
        assert_eq!(old.as_bytes()[0], 3);
        assert_eq!(old.parts().local(), local());
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n";
        let closes = key_of(head, local(), 0).expect("a key");
        assert!(closes.parts().class.closes());
    }

    #[test]
    fn fields_of_other_levels_send_a_request_up() {
        for field in [
            "Range: bytes=0-1",
            "Authorization: x",
            "Expect: 100-continue",
            "Content-Length: 1",
            "Transfer-Encoding: chunked",
            "If-Match: x",
            "If-Unmodified-Since: x",
            "Cache-Control: no-cache",
            "Pragma: no-cache",
            "Connection: upgrade",
            "TE: trailers",
            "Forwarded: proto=https",
            "X-Forwarded-Proto: https",
            "X-Forwarded-Host: a",
            "X-Original-URL: /",
            "X-Rewrite-URL: /",
            "X-Scheme: https",
            "X-URL-Scheme: https",
            "X-Host: a",
            "X-HTTP-Method-Override: PUT",
            "X-Method-Override: PUT",
            "Front-End-Https: on",
            "CF-Visitor: x",
            "CloudFront-Forwarded-Proto: https",
        ] {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
            assert_eq!(reason(&head), "up_field", "{field}");
        }
        assert_eq!(key("Cookie: a=b\r\n"), Err("up_cookie"));
        assert_eq!(key("Host: b\r\n"), Err("up_host"));
        assert_eq!(key("Accept-Encoding: \r\n"), Err("up_syntax"));
        assert_eq!(key("If-None-Match:  x\r\n"), Err("up_syntax"));
        assert_eq!(key("X_Y: z\r\n"), Err("up_syntax"));
        assert!(key("Accept: text/html\r\nReferer: x\r\nX-Forwarded-For: 1\r\n").is_ok());
    }

    #[test]
    fn settings_let_cookies_and_cache_control_pass() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nCookie: x\r\nCache-Control: no-cache\r\n\r\n";
        let both = SETTING_IGNORE_CACHE_CONTROL | SETTING_IGNORE_COOKIES;
        assert!(key_of(head, local(), both).is_ok());
        let up = key_of(head, local(), SETTING_IGNORE_COOKIES).expect_err("a field");
        assert_eq!(up.field.as_deref(), Some("Cache-Control: no-cache"));
    }

    #[test]
    fn what_is_no_plain_request_goes_up() {
        assert_eq!(reason("POST / HTTP/1.1\r\nHost: a\r\n\r\n"), "up_method");
        assert_eq!(reason("GET * HTTP/1.1\r\nHost: a\r\n\r\n"), "up_target");
        assert_eq!(reason("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), "up_version");
        assert_eq!(reason("GET / HTTP/1.1\r\n\r\n"), "up_host");
        assert_eq!(reason("GET / HTTP/1.1\r\nHost: a\r\n"), "up_cut");
        assert_eq!(reason("GET / HTTP/1.1\r\nHost: a\r\n\r\nx"), "up_more");
        let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(440));
        assert_eq!(reason(&long), "up_long");
    }
}
