//! The head of a request that was received as a field section: the version-neutral [`Request`], over field lines in
//! HTTP/1 format, and the parts that are specific to HTTP/2 and HTTP/3. Read RFC 9113 §8.2 and §8.3, RFC 9114 §4.3, RFC
//! 8441 §4, RFC 9220.
//!
//! ```text
//! text   :method: GET\r\n:path: /a\r\n:authority: h\r\n  accept: */*\r\ncookie: a; b\r\n  host: h\r\n
//!        pseudo-headers; their values are used           field lines as received           added
//! ```
//! Host is added, so that code that reads the lines (CGI, proxies, rules) does not depend on the version. For the same
//! reason an extended CONNECT becomes its HTTP/1.1 equivalent, a GET with Upgrade. A client cannot send Upgrade itself,
//! since RFC 9113 §8.2.2 and RFC 9114 §4.2 forbid it.

use alloc::vec::Vec;

use super::request_fields::RequestFieldSink;
use super::{MalformedRequest, RequestRules, TextSpan};
use crate::field_coding::FieldClass;
use crate::forwarding::default_port;
use crate::h1::path_form;
use crate::host;
use crate::method::Method;
use crate::protocol::StreamId;
use crate::refusal::RequestRefusal;
use crate::request::{FieldIndex, IndexedField, PartialRequest, Request, RequestTarget};
use crate::streams::Priority;

/// The head of a request.
#[derive(Clone, Debug)]
pub struct StreamRequestHead<'b> {
    /// The stream of the request.
    pub stream: StreamId,
    /// The version-neutral request. Its lines always include Host, and at most one Cookie.
    pub request: Request<'b>,
    /// Whether a body follows, which may be empty. If not, the stream has no more events.
    pub has_body: bool,
    /// Content-Length; 0 if there is no body.
    pub body_len: Option<u64>,
    /// The client waits for 100 (Continue) before it sends the body.
    pub expect_continue: bool,
    /// The protocol of an extended CONNECT (RFC 8441, RFC 9220), such as `websocket`. The request is then a GET with
    /// Upgrade.
    pub protocol: Option<&'b [u8]>,
    /// Whether the scheme is https.
    pub is_https: bool,
    /// The priority of the response that the client requested.
    pub priority: Priority,
}

/// The fields seen so far, as ranges of the text.
pub(crate) struct FieldSpans {
    pub(crate) first_fault: Option<MalformedRequest>,
    pub(crate) name: Option<TextSpan>,
    pub(crate) path: Option<TextSpan>,
    pub(crate) authority: Option<TextSpan>,
    pub(crate) protocol: Option<TextSpan>,
    /// 0: absent, 1: http, 2: https.
    pub(crate) scheme: u8,
    pub(crate) host: Option<TextSpan>,
    /// `:authority` or Host is not a valid host.
    pub(crate) is_host_invalid: bool,
    /// The start of the first field line.
    pub(crate) lines_at: Option<usize>,
    pub(crate) content_len: Option<u64>,
    pub(crate) expects_continue: bool,
    pub(crate) priority: Priority,
    /// The end of the last Cookie line.
    pub(crate) cookie_end: usize,
    /// There are several Cookie lines with other lines between them.
    pub(crate) has_scattered_cookies: bool,
    pub(crate) section_len: usize,
    pub(crate) count: u16,
    pub(crate) index: FieldIndex,
}

impl Default for FieldSpans {
    fn default() -> FieldSpans {
        FieldSpans {
            first_fault: None,
            name: None,
            path: None,
            authority: None,
            protocol: None,
            scheme: 0,
            host: None,
            is_host_invalid: false,
            lines_at: None,
            content_len: None,
            expects_continue: false,
            priority: Priority::default(),
            cookie_end: 0,
            has_scattered_cookies: false,
            section_len: 0,
            count: 0,
            index: FieldIndex::EMPTY,
        }
    }
}

impl RequestFieldSink<'_> {
    /// Checks the section as a whole, after its last field.
    pub(crate) fn finish(mut self, is_end: bool) -> Result<Method, MalformedRequest> {
        if let Some(fault) = self.spans.first_fault {
            return Err(fault);
        }
        let lines_at = *self.spans.lines_at.get_or_insert(self.text.len());
        match (self.spans.authority, self.spans.host) {
            // Code that reads the lines expects Host.
            (Some(authority), None) => {
                self.text.extend_from_slice(b"host: ");
                self.text
                    .extend_from_within(authority.start..authority.start + authority.len);
                self.text.extend_from_slice(b"\r\n");
            }
            (Some(authority), Some(host)) => {
                // RFC 9113 §8.3.1: they must not differ, since two recipients could use different ones.
                let (authority, host) = (authority.slice(self.text), host.slice(self.text));
                let default_port = default_port(self.spans.scheme == 2);
                if !host::is_same(authority, host, default_port) {
                    return Err(MalformedRequest::Malformed("Host differs from :authority"));
                }
            }
            // RFC 9113 §8.3.1: without :authority, Host is the authority.
            (None, host) => self.spans.authority = host,
        }
        if self.spans.has_scattered_cookies {
            self.gather_cookies(lines_at);
        }
        let method = self.method()?;
        if let Some(protocol) = self.spans.protocol {
            // WebSocket handlers expect the Upgrade field of HTTP/1.1.
            let protocol = protocol.start..protocol.start + protocol.len;
            self.text
                .extend_from_slice(b"connection: upgrade\r\nupgrade: ");
            self.text.extend_from_within(protocol);
            self.text.extend_from_slice(b"\r\n");
            // As over HTTP/1.1: a response to a request with Upgrade must not answer one without.
            self.spans.index.mark(IndexedField::ConnectionOption);
            return Ok(Method::Get);
        }
        // RFC 9113 §8.1.1: the length of all DATA frames must equal Content-Length.
        if is_end && self.spans.content_len.unwrap_or(0) > 0 {
            return Err(MalformedRequest::Malformed(
                "less content than Content-Length announces",
            ));
        }
        Ok(method)
    }

    /// Checks that the pseudo-header fields are those that the method requires (RFC 9113 §8.3.1, §8.5, RFC 8441 §4).
    fn method(&self) -> Result<Method, MalformedRequest> {
        let spans = &*self.spans;
        let name = spans.name.ok_or(MISSING)?.slice(self.text);
        let is_tunnel = name == b"CONNECT" && spans.protocol.is_none();
        let has_target = spans.scheme != 0 && spans.path.is_some();
        let has_scheme_or_path = spans.scheme != 0 || spans.path.is_some();
        if spans.protocol.is_some() && (name != b"CONNECT" || !self.rules.accepts_connect_protocol)
        {
            return Err(MalformedRequest::Malformed("a misplaced :protocol"));
        }
        // RFC 9113 §8.5: CONNECT without :protocol has neither :scheme nor :path.
        if is_tunnel && (has_scheme_or_path || spans.authority.is_none())
            || !is_tunnel && !has_target
        {
            return Err(MISSING);
        }
        // RFC 9113 §8.3.1: :path is never empty for http and https.
        if spans.path.is_some_and(|path| path.len == 0) {
            return Err(MalformedRequest::Malformed("an empty path"));
        }
        Method::parse(name).ok_or(match crate::fields::is_token(name) {
            true => MalformedRequest::Refused(RequestRefusal::MethodUnknown),
            false => MalformedRequest::Malformed("an invalid method"),
        })
    }

    /// Joins all cookies into one line, and rebuilds the index of the other fields.
    #[cold]
    fn gather_cookies(&mut self, lines_at: usize) {
        let mut lines = Vec::with_capacity(self.text.len() - lines_at);
        let mut cookies = Vec::new();
        let mut host_at = None;
        self.spans.index = FieldIndex::EMPTY;
        for (name, value) in crate::fields::FieldLines::new(&self.text[lines_at..]) {
            let kind = FieldClass::for_name(name);
            if kind == FieldClass::Cookie {
                cookies.extend_from_slice(if cookies.is_empty() {
                    b"cookie: "
                } else {
                    b"; "
                });
                cookies.extend_from_slice(value);
                continue;
            }
            let at = lines.len();
            lines.extend_from_slice(name);
            lines.extend_from_slice(b": ");
            match kind {
                FieldClass::Indexed(indexed) => {
                    let (at, value_at) = (at as u32, lines.len() as u32);
                    self.spans
                        .index
                        .add_at(indexed, at, value_at, value.len() as u32);
                }
                FieldClass::Presence(indexed) => self.spans.index.mark(indexed),
                FieldClass::Host | FieldClass::InvalidHost => {
                    host_at = Some(lines_at + lines.len())
                }
                _ => {}
            }
            lines.extend_from_slice(value);
            lines.extend_from_slice(b"\r\n");
        }
        // Host may have moved; if it serves as the authority, its range is updated.
        self.text.truncate(lines_at);
        self.text.extend_from_slice(&lines);
        self.text.extend_from_slice(&cookies);
        self.text.extend_from_slice(b"\r\n");
        if let (Some(at), Some(authority)) = (host_at, &mut self.spans.authority)
            && authority.start >= lines_at
        {
            authority.start = at;
        }
    }
}

const MISSING: MalformedRequest =
    MalformedRequest::Malformed("the pseudo-headers do not fit the method");

impl FieldSpans {
    /// The known parts of a refused request.
    pub(crate) fn partial<'b>(&self, text: &'b [u8]) -> PartialRequest<'b> {
        let span = |span: Option<TextSpan>| span.map(|span| span.slice(text));
        let authority = span(self.authority.or(self.host));
        let mut partial = PartialRequest {
            method: span(self.name).unwrap_or_default(),
            target: span(self.path).unwrap_or_default(),
            ..PartialRequest::default()
        };
        let lines = self.lines_at.and_then(|at| text.get(at..));
        for (name, value) in crate::fields::FieldLines::new(lines.unwrap_or_default()) {
            partial.add(name, value);
        }
        partial.authority = authority.filter(|_| !self.is_host_invalid);
        partial
    }

    /// Builds the head.
    pub(crate) fn head<'b>(
        &self,
        text: &'b [u8],
        stream: StreamId,
        method: Method,
        is_end: bool,
        rules: RequestRules<'_>,
    ) -> Result<StreamRequestHead<'b>, RequestRefusal> {
        let spans = self;
        let span = |span: Option<TextSpan>| span.map(|span| span.slice(text));
        let authority = span(spans.authority);
        if spans.is_host_invalid {
            return Err(RequestRefusal::HostInvalid);
        }
        // CONNECT has no path: the authority is its target.
        let raw_target = span(spans.path).or(authority).unwrap_or_default();
        if raw_target.len() > rules.limits.target_len_max {
            return Err(RequestRefusal::TargetTooLong);
        }
        let target = match (spans.path, authority) {
            (Some(_), _) => path_form(raw_target, method)?,
            (None, Some(authority)) if host::port(authority).is_some() => {
                RequestTarget::Authority(authority)
            }
            _ => return Err(RequestRefusal::TargetInvalid),
        };
        Ok(StreamRequestHead {
            stream,
            request: Request {
                method,
                target,
                authority: Some(authority.ok_or(RequestRefusal::HostMissing)?),
                raw_target,
                lines: text
                    .get(spans.lines_at.unwrap_or_default()..)
                    .unwrap_or_default(),
                index: self.index,
            },
            has_body: !is_end,
            body_len: if is_end { Some(0) } else { spans.content_len },
            expect_continue: spans.expects_continue && !is_end,
            protocol: span(spans.protocol),
            is_https: spans.scheme == 2,
            priority: spans.priority,
        })
    }
}
