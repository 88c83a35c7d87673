//! Parses the responses of an HTTP/1 connection (RFC 9112). The only facts it needs about the request are those that
//! decide the framing.

use lowroad_http::body::BodyFraming;
use lowroad_http::body::BodyReader;
use lowroad_http::limits::RequestLimits;
use memchr::memmem;

/// Maximum length of a head.
const HEAD_LEN_MAX: usize = 64 * 1024;
/// Maximum length of a body that the end of the connection delimits.
const UNANNOUNCED_LEN_MAX: u64 = 1 << 30;

/// Maximum length of the kept text of a response.
pub(super) const TEXT_LEN_MAX: usize = 1 << 20;

/// A framing fault of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFault {
    /// It is not HTTP/1.
    Malformed,
    /// Its head or body exceeds the maximum length.
    Endless,
}

/// A complete response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompleteResponse {
    /// Its status.
    pub status: u16,
    /// Decoded length of its body.
    pub body_len: u64,
    /// CRC-32 of the body, if requested.
    pub crc32: Option<u32>,
    /// The last `Set-Cookie` value, if requested.
    pub set_cookie: Option<String>,
    /// Its head and body, up to [`TEXT_LEN_MAX`], if requested.
    pub text: Option<Vec<u8>>,
    /// The server closes the connection after this response.
    pub closes: bool,
}

/// Which parts of a response the reader evaluates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseChecks {
    /// The request was HEAD.
    pub head_only: bool,
    /// Compute the CRC-32.
    pub crc32: bool,
    /// Keep `Set-Cookie`.
    pub cookie: bool,
    /// Keep head and body.
    pub text: bool,
}

/// Incremental parser for the responses of a connection.
#[derive(Debug, Default)]
pub struct ResponseReader {
    /// The start of an incomplete head.
    partial: Vec<u8>,
    body: Option<BodyState>,
}

#[derive(Debug)]
struct BodyState {
    framing: BodyEnd,
    head: AnswerHead,
    /// An incomplete trailer section.
    undecoded: Vec<u8>,
    len: u64,
    crc32: Option<crc32fast::Hasher>,
    text: Option<Vec<u8>>,
}

#[derive(Debug)]
enum BodyEnd {
    Framed(BodyReader),
    /// The end of the connection delimits the body (RFC 9112 section 6.3).
    Connection,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AnswerHead {
    status: u16,
    length: Option<u64>,
    chunked: bool,
    closes: bool,
    set_cookie: Option<String>,
    text: Option<Vec<u8>>,
}

impl ResponseReader {
    /// Consumes bytes from the start of `input`. Returns their number, and the response that ends there, if any; if
    /// none ends, all of `input` was consumed.
    ///
    /// # Errors
    /// The response is malformed; the connection can't be used any more.
    pub fn parse(
        &mut self,
        input: &[u8],
        checks: ResponseChecks,
    ) -> Result<(usize, Option<CompleteResponse>), ResponseFault> {
        let mut used_len = 0;
        loop {
            if self.body.is_some() {
                let (body_used, response) = self.take_body(&input[used_len..])?;
                return Ok((used_len + body_used, response));
            }
            let Some((head_used, head)) = self.take_head(&input[used_len..], checks)? else {
                return Ok((input.len(), None));
            };
            used_len += head_used;
            // Interim responses (100, 103) precede the final one.
            if head.status >= 200 {
                self.body = Some(BodyState::new(head, checks));
            }
        }
    }

    /// Handles the end of the connection: if it delimits the current body, returns the response.
    pub fn end(&mut self) -> Option<CompleteResponse> {
        let body = self.body.take_if(|body| body.ends_with_connection())?;
        Some(body.into_response())
    }

    fn take_head(
        &mut self,
        input: &[u8],
        checks: ResponseChecks,
    ) -> Result<Option<(usize, AnswerHead)>, ResponseFault> {
        if self.partial.is_empty() {
            if let Some(end) = memmem::find(input, b"\r\n\r\n") {
                return Ok(Some((end + 4, parse_head(&input[..end + 2], checks)?)));
            }
            check_start(input)?;
            self.partial.extend_from_slice(input);
        } else {
            let partial_len = self.partial.len();
            self.partial.extend_from_slice(input);
            // The empty line may have begun in the previous input, with at most three of its four bytes.
            let from = partial_len.saturating_sub(3);
            if let Some(head_end) = memmem::find(&self.partial[from..], b"\r\n\r\n") {
                let end = from + head_end;
                let head = parse_head(&self.partial[..end + 2], checks)?;
                self.partial.clear();
                return Ok(Some((end + 4 - partial_len, head)));
            }
            // The first input may have been shorter than the version.
            check_start(&self.partial)?;
        }
        if self.partial.len() > HEAD_LEN_MAX {
            return Err(ResponseFault::Endless);
        }
        Ok(None)
    }

    fn take_body(
        &mut self,
        input: &[u8],
    ) -> Result<(usize, Option<CompleteResponse>), ResponseFault> {
        let Some(body) = &mut self.body else {
            return Ok((0, None));
        };
        let (used, done) = body.feed(input)?;
        if !done {
            return Ok((used, None));
        }
        let response = self.body.take().map(BodyState::into_response);
        Ok((used, response))
    }
}

impl BodyState {
    fn new(mut head: AnswerHead, checks: ResponseChecks) -> BodyState {
        // RFC 9112 section 6.3, rule 1; 1xx responses are skipped before.
        let bodiless = checks.head_only || head.status == 204 || head.status == 304;
        let framing = match (bodiless, head.chunked, head.length) {
            (true, _, _) => Some(BodyFraming::None),
            // Transfer-Encoding overrides Content-Length (RFC 9112 section 6.3, rule 3).
            (false, true, _) => Some(BodyFraming::Chunked),
            (false, false, Some(len)) => Some(BodyFraming::Length(len)),
            // Neither: the end of the connection delimits the body (rule 8).
            (false, false, None) => None,
        };
        // Test files may have any length, so a server's limits do not apply.
        let limits = RequestLimits {
            body_len_max: u64::MAX,
            ..RequestLimits::default()
        };
        let reader = framing.and_then(|framing| BodyReader::new(framing, &limits).ok());
        BodyState {
            framing: reader.map_or(BodyEnd::Connection, BodyEnd::Framed),
            text: head.text.take(),
            head,
            undecoded: Vec::new(),
            len: 0,
            crc32: checks.crc32.then(crc32fast::Hasher::new),
        }
    }

    fn ends_with_connection(&self) -> bool {
        matches!(self.framing, BodyEnd::Connection)
    }

    /// Consumes bytes of the body. Returns their number (all of `input` unless the body ends) and whether the body is
    /// complete.
    fn feed(&mut self, input: &[u8]) -> Result<(usize, bool), ResponseFault> {
        if self.undecoded.is_empty() {
            let (used, done) = self.decode(input)?;
            if done {
                return Ok((used, true));
            }
            self.undecoded.extend_from_slice(&input[used..]);
            return Ok((input.len(), false));
        }
        let held_len = self.undecoded.len();
        let mut undecoded = std::mem::take(&mut self.undecoded);
        undecoded.extend_from_slice(input);
        let (used, done) = self.decode(&undecoded)?;
        if done {
            // `used` includes the buffered bytes, which earlier calls already consumed.
            return Ok((used - held_len, true));
        }
        undecoded.drain(..used);
        self.undecoded = undecoded;
        Ok((input.len(), false))
    }

    /// Decodes the start of `input`. An incomplete trailer section is left for the next call.
    fn decode(&mut self, input: &[u8]) -> Result<(usize, bool), ResponseFault> {
        let mut used = 0;
        let done = loop {
            let (data, consumed, done) = match &mut self.framing {
                BodyEnd::Framed(reader) => {
                    let fed = reader
                        .feed(&input[used..])
                        .map_err(|_| ResponseFault::Malformed)?;
                    (fed.data, fed.consumed, fed.done)
                }
                BodyEnd::Connection => (&input[used..], input.len() - used, false),
            };
            self.len += data.len() as u64;
            if let Some(crc32) = &mut self.crc32 {
                crc32.update(data);
            }
            if let Some(text) = &mut self.text {
                append_text(text, data);
            }
            used += consumed;
            // Of an incomplete trailer section nothing is consumed: decoding continues with more input.
            if done || consumed == 0 || used == input.len() {
                break done;
            }
        };
        // Bodies with a Content-Length end in any case, and may be larger.
        if self.head.length.is_none() && self.len > UNANNOUNCED_LEN_MAX {
            return Err(ResponseFault::Endless);
        }
        Ok((used, done))
    }

    fn into_response(self) -> CompleteResponse {
        CompleteResponse {
            status: self.head.status,
            body_len: self.len,
            crc32: self.crc32.map(crc32fast::Hasher::finalize),
            set_cookie: self.head.set_cookie,
            text: self.text,
            closes: self.head.closes || matches!(self.framing, BodyEnd::Connection),
        }
    }
}

/// Appends bytes of a response to its text, up to the maximum length.
pub(super) fn append_text(text: &mut Vec<u8>, bytes: &[u8]) {
    let room = TEXT_LEN_MAX.saturating_sub(text.len());
    text.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

/// Rejects input that is not HTTP/1 at its first bytes, instead of waiting for a timeout.
fn check_start(input: &[u8]) -> Result<(), ResponseFault> {
    let start = b"HTTP/1.";
    let len = input.len().min(start.len());
    if input[..len] == start[..len] {
        Ok(())
    } else {
        Err(ResponseFault::Malformed)
    }
}

/// Parses a head: from the status line to the line end of the last field.
fn parse_head(head: &[u8], checks: ResponseChecks) -> Result<AnswerHead, ResponseFault> {
    let mut parsed = AnswerHead::default();
    let Some(line_end) = memchr::memchr(b'\n', head) else {
        return Err(ResponseFault::Malformed);
    };
    let (minor, status) = parse_status_line(&head[..line_end])?;
    parsed.status = status;
    // HTTP/1.0 closes by default, HTTP/1.1 persists (RFC 9112 section 9.3).
    let mut keeps_alive = minor != b'0';
    let mut rest = &head[line_end + 1..];
    while let Some(end) = memchr::memchr(b'\n', rest) {
        // A recipient may accept a bare LF as the end of a line (RFC 9112 section 2.2).
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        rest = &rest[end + 1..];
        // Few fields matter, and their first letter excludes most others.
        match line.first().map(u8::to_ascii_lowercase) {
            Some(b'c') => {
                if let Some(value) = field_value(line, b"content-length") {
                    parsed.length = Some(parse_length(value)?);
                } else if let Some(value) = field_value(line, b"connection") {
                    // close takes precedence over keep-alive (RFC 9112 section 9.3).
                    if has_token(value, b"close") {
                        keeps_alive = false;
                    } else if has_token(value, b"keep-alive") {
                        keeps_alive = true;
                    }
                }
            }
            Some(b't') => {
                if let Some(value) = field_value(line, b"transfer-encoding") {
                    parsed.chunked = has_token(value, b"chunked");
                }
            }
            Some(b's') if checks.cookie => {
                if let Some(value) = field_value(line, b"set-cookie") {
                    parsed.set_cookie = Some(String::from_utf8_lossy(value).into_owned());
                }
            }
            _ => {}
        }
    }
    parsed.closes = !keeps_alive;
    // `head` excludes the empty line at its end.
    parsed.text = checks.text.then(|| [head, b"\r\n"].concat());
    Ok(parsed)
}

fn parse_status_line(line: &[u8]) -> Result<(u8, u16), ResponseFault> {
    // The version with its space has nine bytes, the status three (RFC 9112 section 4).
    let (Some(version), Some(digits)) = (line.get(..9), line.get(9..12)) else {
        return Err(ResponseFault::Malformed);
    };
    let minor = version[7];
    // The reason phrase is optional, and some servers omit the space before it too (RFC 9112 section 4).
    let right = version.starts_with(b"HTTP/1.")
        && matches!(minor, b'0' | b'1')
        && version[8] == b' '
        && digits.iter().all(u8::is_ascii_digit)
        && matches!(line.get(12), None | Some(b' ' | b'\r'));
    if !right {
        return Err(ResponseFault::Malformed);
    }
    let status = digits
        .iter()
        .fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    Ok((minor, status))
}

fn field_value<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (start, rest) = line.split_at_checked(name.len())?;
    if !start.eq_ignore_ascii_case(name) {
        return None;
    }
    Some(rest.strip_prefix(b":")?.trim_ascii())
}

fn has_token(value: &[u8], token: &[u8]) -> bool {
    value
        .split(|byte| *byte == b',')
        .any(|part| part.trim_ascii().eq_ignore_ascii_case(token))
}

fn parse_length(value: &[u8]) -> Result<u64, ResponseFault> {
    let text = std::str::from_utf8(value).map_err(|_| ResponseFault::Malformed)?;
    // Rust's `parse` would accept a plus sign, which the grammar excludes (RFC 9110 section 8.6).
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ResponseFault::Malformed);
    }
    text.parse().map_err(|_| ResponseFault::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> ResponseChecks {
        ResponseChecks {
            head_only: false,
            crc32: true,
            cookie: true,
            text: false,
        }
    }

    /// Returns all responses in `input`, fed in pieces of `piece` bytes.
    fn answers(
        input: &[u8],
        piece: usize,
        wanted: ResponseChecks,
    ) -> Result<Vec<CompleteResponse>, ResponseFault> {
        let (mut reader, mut found) = (ResponseReader::default(), Vec::new());
        for mut part in input.chunks(piece) {
            while !part.is_empty() {
                let (used, whole) = reader.parse(part, wanted)?;
                part = &part[used..];
                found.extend(whole);
            }
        }
        found.extend(reader.end());
        Ok(found)
    }

    const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nSet-Cookie: a=b\r\n\r\nhello\
        HTTP/1.1 100 Continue\r\n\r\n\
        HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n\
        HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n\
        HTTP/1.0 404 Not Found\r\n\r\nuntil the end";

    #[test]
    fn parser_result_is_independent_of_segment_sizes() {
        let whole = answers(STREAM, STREAM.len(), all()).expect("right answers");
        let seen: Vec<_> = whole
            .iter()
            .map(|one| (one.status, one.body_len, one.closes))
            .collect();
        assert_eq!(
            seen,
            [
                (200, 5, false),
                (200, 5, false),
                (304, 0, false),
                (404, 13, true)
            ]
        );
        assert_eq!(whole[0].crc32, Some(crc32fast::hash(b"hello")));
        assert_eq!(whole[1].crc32, Some(crc32fast::hash(b"abcde")));
        assert_eq!(whole[0].set_cookie.as_deref(), Some("a=b"));
        for piece in 1..40 {
            assert_eq!(
                answers(STREAM, piece, all()).as_ref(),
                Ok(&whole),
                "{piece}"
            );
        }
    }

    #[test]
    fn response_to_head_has_no_body() {
        let wanted = ResponseChecks {
            head_only: true,
            ..ResponseChecks::default()
        };
        let input = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        let found = answers(input, 100, wanted).expect("right");
        assert_eq!((found.len(), found[0].body_len), (1, 0));
    }

    #[test]
    fn http_1_0_is_persistent_only_with_connection_keep_alive() {
        let closes = |head: &[u8]| answers(head, 1000, all()).expect("right")[0].closes;
        assert!(closes(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"));
        assert!(!closes(
            b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n"
        ));
        assert!(closes(
            b"HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 0\r\n\r\n"
        ));
    }

    #[test]
    fn malformed_and_endless_heads_are_rejected() {
        for garbage in [
            &b"SSH-2.0-OpenSSH\r\n"[..],
            b"HTTP/2.0 200 OK\r\n\r\n",
            b"HTTP/1.1 2x0 OK\r\n\r\n",
            b"HTTP/1.1 2000 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        ] {
            assert_eq!(answers(garbage, 1000, all()), Err(ResponseFault::Malformed));
        }
        let mut endless = b"HTTP/1.1 200 OK\r\n".to_vec();
        endless.resize(100_000, b'x');
        assert_eq!(answers(&endless, 1000, all()), Err(ResponseFault::Endless));
    }
}
