//! The head of an HTTP/2 request, built from a field block: the version-neutral [`Request`], over field lines in HTTP/1
//! format, and the parts that are specific to HTTP/2. Read RFC 9113 §8.2 and §8.3, RFC 8441 §4.
//!
//! ```text
//! text   :method: GET\r\n:path: /a\r\n:authority: h\r\n  accept: */*\r\ncookie: a; b\r\n  host: h\r\n
//!        pseudo-headers; their values are used           field lines as received           added
//! ```
//! Host is added, so that code that reads the lines (CGI, proxies, rules) does not depend on the version. For the same
//! reason an extended CONNECT becomes its HTTP/1.1 equivalent, a GET with Upgrade. A client cannot send Upgrade itself,
//! since RFC 9113 §8.2.2 forbids it.

use alloc::vec::Vec;

use super::StreamId;
use super::hpack::{DecodedField, ENTRY_LEN, FieldClass, FieldSink};
use super::priority::Priority;
use super::settings::H2Settings;
use crate::forwarding::default_port;
use crate::h1::path_form;
use crate::host;
use crate::list_values;
use crate::method::Method;
use crate::refusal::RequestRefusal;
use crate::request::{FieldIndex, IndexedField, PartialRequest, Request, RequestTarget};

/// The head of a request.
#[derive(Clone, Debug)]
pub struct H2RequestHead<'b> {
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
    /// The protocol of an extended CONNECT (RFC 8441), such as `websocket`. The request is then a GET with Upgrade.
    pub protocol: Option<&'b [u8]>,
    /// Whether the scheme is https.
    pub is_https: bool,
    /// The priority of the response that the client requested.
    pub priority: Priority,
}

/// Why a field section is not a valid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MalformedRequest {
    /// Malformed: a stream error PROTOCOL_ERROR (RFC 9113 §8.1.1).
    Malformed(&'static str),
    /// Refused: answered with the refusal's status.
    Refused(RequestRefusal),
}

/// A range of the text.
#[derive(Clone, Copy, Debug)]
struct TextSpan {
    start: usize,
    len: usize,
}

impl TextSpan {
    fn slice(self, text: &[u8]) -> &[u8] {
        text.get(self.start..self.start + self.len)
            .unwrap_or_default()
    }
}

/// Receives the decoded fields of a request.
pub(super) struct RequestFieldSink<'t> {
    text: &'t mut Vec<u8>,
    settings: &'t H2Settings,
    spans: &'t mut FieldSpans,
}

/// The fields seen so far, as ranges of the text.
pub(super) struct FieldSpans {
    first_fault: Option<MalformedRequest>,
    name: Option<TextSpan>,
    path: Option<TextSpan>,
    authority: Option<TextSpan>,
    protocol: Option<TextSpan>,
    /// 0: absent, 1: http, 2: https.
    scheme: u8,
    host: Option<TextSpan>,
    /// `:authority` or Host is not a valid host.
    is_host_invalid: bool,
    /// The start of the first field line.
    lines_at: Option<usize>,
    pub(super) content_len: Option<u64>,
    expects_continue: bool,
    pub(super) priority: Priority,
    /// The end of the last Cookie line.
    cookie_end: usize,
    /// There are several Cookie lines with other lines between them.
    has_scattered_cookies: bool,
    section_len: usize,
    count: u16,
    index: FieldIndex,
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

impl FieldSink for RequestFieldSink<'_> {
    #[inline]
    fn text(&mut self) -> &mut Vec<u8> {
        self.text
    }

    #[inline(always)]
    fn on_field(&mut self, field: DecodedField) {
        let len = self.text.len() - field.line_start;
        // RFC 9113 §6.5.2 defines this size, which excludes the four bytes of ": " and CRLF.
        self.spans.section_len += len - 4 + ENTRY_LEN;
        if self.spans.section_len > self.settings.section_len_max {
            self.record_fault(MalformedRequest::Refused(RequestRefusal::HeadTooLarge));
        }
        let result = match self.spans.first_fault.is_none() && field.is_value_valid {
            true => self.take(field),
            false => Err(MalformedRequest::Malformed("an invalid field value")),
        };
        if let Err(fault) = result {
            // After the first fault, decoding continues only to update the dynamic table: the fields are dropped.
            self.record_fault(fault);
            self.text.truncate(field.line_start);
        }
    }
}

impl<'t> RequestFieldSink<'t> {
    pub(super) fn new(
        text: &'t mut Vec<u8>,
        settings: &'t H2Settings,
        spans: &'t mut FieldSpans,
    ) -> RequestFieldSink<'t> {
        text.clear();
        RequestFieldSink {
            text,
            settings,
            spans,
        }
    }

    #[cold]
    fn record_fault(&mut self, fault: MalformedRequest) {
        self.spans.first_fault.get_or_insert(fault);
    }

    #[inline(always)]
    fn take(&mut self, field: DecodedField) -> Result<(), MalformedRequest> {
        let value_at = field.line_start + field.name_len + 2;
        let value = TextSpan {
            start: value_at,
            len: self.text.len() - 2 - value_at,
        };
        // Pseudo-header fields do not count towards `fields_max`.
        if field.kind.is_pseudo() {
            return self.pseudo(field.kind, value);
        }
        let lines_at = *self.spans.lines_at.get_or_insert(field.line_start);
        self.spans.count += 1;
        if self.spans.count > self.settings.limits.fields_max {
            return Err(MalformedRequest::Refused(RequestRefusal::TooManyFields));
        }
        match field.kind {
            FieldClass::Plain => {}
            FieldClass::Indexed(indexed) => {
                let line_offset = |at: usize| (at - lines_at) as u32;
                let len = value.len as u32;
                self.spans.index.add_at(
                    indexed,
                    line_offset(field.line_start),
                    line_offset(value.start),
                    len,
                );
            }
            FieldClass::Presence(indexed) => self.spans.index.mark(indexed),
            special_kind => self.special(special_kind, field, value)?,
        }
        Ok(())
    }

    #[inline(never)]
    fn pseudo(&mut self, kind: FieldClass, value: TextSpan) -> Result<(), MalformedRequest> {
        // RFC 9113 §8.3: pseudo-header fields come first.
        if self.spans.lines_at.is_some() {
            return Err(MalformedRequest::Malformed("a pseudo-header after a field"));
        }
        let bytes = value.slice(self.text);
        let slot = match kind {
            FieldClass::Method => &mut self.spans.name,
            FieldClass::Path => &mut self.spans.path,
            FieldClass::InvalidAuthority => {
                self.spans.is_host_invalid = true;
                &mut self.spans.authority
            }
            FieldClass::Authority => &mut self.spans.authority,
            FieldClass::Protocol => &mut self.spans.protocol,
            FieldClass::Scheme if self.spans.scheme == 0 => {
                self.spans.scheme = match bytes {
                    b"http" => 1,
                    b"https" => 2,
                    _ => {
                        return Err(MalformedRequest::Malformed(
                            "a scheme other than http and https",
                        ));
                    }
                };
                return Ok(());
            }
            FieldClass::Scheme => return Err(REPEATED),
            _ => return Err(MalformedRequest::Malformed("a response pseudo-header")),
        };
        match slot.replace(value) {
            None => Ok(()),
            Some(_) => Err(REPEATED),
        }
    }

    #[inline(never)]
    fn special(
        &mut self,
        kind: FieldClass,
        field: DecodedField,
        value: TextSpan,
    ) -> Result<(), MalformedRequest> {
        let bytes = value.slice(self.text);
        match kind {
            FieldClass::Cookie => self.cookie(field, value),
            FieldClass::Host | FieldClass::InvalidHost => {
                self.spans.is_host_invalid |= kind == FieldClass::InvalidHost;
                match self.spans.host.replace(value) {
                    None => Ok(()),
                    Some(_) => Err(MalformedRequest::Malformed("Host is repeated")),
                }
            }
            FieldClass::ContentLength => {
                let len = list_values::decimal(bytes);
                match (len, self.spans.content_len) {
                    (Some(_), None) => {
                        self.spans.content_len = len;
                        Ok(())
                    }
                    (None, _) => Err(MalformedRequest::Malformed(
                        "Content-Length is not a number",
                    )),
                    _ => Err(MalformedRequest::Malformed("Content-Length is repeated")),
                }
            }
            FieldClass::Expect if bytes.eq_ignore_ascii_case(b"100-continue") => {
                self.spans.expects_continue = true;
                Ok(())
            }
            // RFC 9110 §10.1.1: the response is 417.
            FieldClass::Expect => Err(MalformedRequest::Refused(
                RequestRefusal::ExpectationUnknown,
            )),
            FieldClass::Priority => {
                self.spans.priority = Priority::parse(bytes);
                Ok(())
            }
            // RFC 9113 §8.2.2: `trailers` is the only permitted value.
            FieldClass::Te if bytes.eq_ignore_ascii_case(b"trailers") => Ok(()),
            FieldClass::Te | FieldClass::ConnectionSpecific => {
                Err(MalformedRequest::Malformed("a connection-specific field"))
            }
            _ => Err(MalformedRequest::Malformed("an invalid field name")),
        }
    }

    /// Joins the cookie crumbs that RFC 9113 §8.2.3 allows into one line.
    fn cookie(&mut self, field: DecodedField, value: TextSpan) -> Result<(), MalformedRequest> {
        if self.spans.cookie_end == field.line_start && field.line_start >= 2 {
            // Overwrite the CRLF of the previous line, and drop the name.
            self.text[field.line_start - 2..field.line_start].copy_from_slice(b"; ");
            self.text.copy_within(value.start.., field.line_start);
            self.text.truncate(field.line_start + value.len + 2);
        } else {
            self.spans.has_scattered_cookies |= self.spans.cookie_end > 0;
        }
        self.spans.cookie_end = self.text.len();
        Ok(())
    }

    /// Checks the section as a whole, after its last field.
    pub(super) fn finish(mut self, is_end: bool) -> Result<Method, MalformedRequest> {
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
        if spans.protocol.is_some()
            && (name != b"CONNECT" || !self.settings.accepts_connect_protocol)
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
const REPEATED: MalformedRequest = MalformedRequest::Malformed("a pseudo-header is repeated");

impl FieldSpans {
    /// The known parts of a refused request.
    pub(super) fn partial<'b>(&self, text: &'b [u8]) -> PartialRequest<'b> {
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
    pub(super) fn head<'b>(
        &self,
        text: &'b [u8],
        stream: StreamId,
        method: Method,
        is_end: bool,
        settings: &H2Settings,
    ) -> Result<H2RequestHead<'b>, RequestRefusal> {
        let spans = self;
        let span = |span: Option<TextSpan>| span.map(|span| span.slice(text));
        let authority = span(spans.authority);
        if spans.is_host_invalid {
            return Err(RequestRefusal::HostInvalid);
        }
        // CONNECT has no path: the authority is its target.
        let raw_target = span(spans.path).or(authority).unwrap_or_default();
        if raw_target.len() > settings.limits.target_len_max {
            return Err(RequestRefusal::TargetTooLong);
        }
        let target = match (spans.path, authority) {
            (Some(_), _) => path_form(raw_target, method)?,
            (None, Some(authority)) if host::port(authority).is_some() => {
                RequestTarget::Authority(authority)
            }
            _ => return Err(RequestRefusal::TargetInvalid),
        };
        Ok(H2RequestHead {
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
