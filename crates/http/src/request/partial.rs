//! The parts of a request that was refused before it was parsed completely: enough to find its site and to log it. Only
//! the authority is validated.

use crate::h1::first_line;
use crate::host;

/// The parts of a refused request; missing and ambiguous parts are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialRequest<'b> {
    /// The request line of HTTP/1; empty over HTTP/2.
    pub line: &'b [u8],
    /// The method.
    pub method: &'b [u8],
    /// The target as it was sent.
    pub target: &'b [u8],
    /// A host for which [`host::is_valid`] holds.
    pub authority: Option<&'b [u8]>,
    /// Referer.
    pub referer: Option<&'b [u8]>,
    /// User-Agent.
    pub user_agent: Option<&'b [u8]>,
}

impl<'b> PartialRequest<'b> {
    /// Reads an HTTP/1 head with lines that may be truncated or malformed.
    #[must_use]
    pub fn from_head(input: &'b [u8]) -> PartialRequest<'b> {
        let line = first_line(input);
        let mut words = line.split(|byte| *byte == b' ');
        let mut partial = PartialRequest {
            line,
            method: words.next().unwrap_or_default(),
            target: words.next().unwrap_or_default(),
            ..PartialRequest::default()
        };
        // RFC 9112 §2.2: one empty line before the request is skipped.
        let input = input.strip_prefix(b"\r\n").unwrap_or(input);
        let mut lines = input.split(|byte| *byte == b'\n').skip(1);
        // The last line may be truncated in the middle of its value, so it is not used.
        let mut next = lines.next();
        while let (Some(line), following) = (next, lines.next()) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() || following.is_none() {
                break;
            }
            next = following;
            if let Some(at) = line.iter().position(|byte| *byte == b':') {
                partial.add(&line[..at], line[at + 1..].trim_ascii());
            }
        }
        // An empty authority is invalid, so conflicting hosts become `None` here.
        partial.authority = partial.authority.filter(|host| host::is_valid(host));
        partial
    }

    /// Adds a field. The first of several with the same name counts, but conflicting hosts make the authority empty.
    pub(crate) fn add(&mut self, name: &[u8], value: &'b [u8]) {
        let name_is = |expected: &str| name.eq_ignore_ascii_case(expected.as_bytes());
        match () {
            () if name_is("Host") => {
                // Two different hosts would select two sites, so neither is used.
                let is_conflicting = self.authority.is_some_and(|previous| previous != value);
                self.authority = Some(if is_conflicting { &[] } else { value });
            }
            () if name_is("Referer") => _ = self.referer.get_or_insert(value),
            () if name_is("User-Agent") => _ = self.user_agent.get_or_insert(value),
            () => {}
        }
    }

    /// The path, percent-encoded, if the target is in origin-form.
    #[must_use]
    pub fn path(&self) -> Option<&'b [u8]> {
        let path = self.target.split(|byte| *byte == b'?').next();
        path.filter(|path| path.starts_with(b"/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(head: &str) -> (&str, &str, &str, &str) {
        let partial = PartialRequest::from_head(head.as_bytes());
        let text = |bytes| str::from_utf8(bytes).expect("text");
        (
            text(partial.method),
            text(partial.path().unwrap_or_default()),
            text(partial.authority.unwrap_or_default()),
            text(partial.user_agent.unwrap_or_default()),
        )
    }

    #[test]
    fn partial_request_ignores_the_incomplete_line() {
        for (head, want) in [
            (
                "PUT /a?b HTTP/1.1\r\nHost: h\r\nuser-agent:  u\r\nA b: c\r\n\r\nUser-Agent: x\r\n",
                ("PUT", "/a", "h", "u"),
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nUser-Agent: cu",
                ("GET", "/", "h", ""),
            ),
            ("GET / HTTP/1.1\nHost: h\nX: y\n", ("GET", "/", "h", "")),
            ("\r\nGET / HTTP/1.1\r\nHost: h\r\nX", ("GET", "/", "h", "")),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\nX",
                ("GET", "/", "", ""),
            ),
            (
                "GET / HTTP/1.1\r\nHost: h h\r\nX: y\r\n",
                ("GET", "/", "", ""),
            ),
            ("GET http://h/ HTTP/1.1\r\n", ("GET", "", "", "")),
            ("\u{16}\u{3}", ("\u{16}\u{3}", "", "", "")),
            ("", ("", "", "", "")),
        ] {
            assert_eq!(read(head), want, "{head:?}");
        }
    }
}
