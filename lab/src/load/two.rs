//! HTTP/2 on a client's connection: sends the HTTP/1.1 requests of sessions as streams, and converts streams to
//! responses. Does no I/O; frames and HPACK come from `lowroad_http`.

use std::collections::VecDeque;

use lowroad_http::fields::{FieldLines, FieldName};
use lowroad_http::h1::BodyLen;
use lowroad_http::h2::hpack::put_field;
use lowroad_http::h2::{
    ConnectionTurn, ErrorCode, GlitchCounters, H2Client, H2ClientEvent, H2Settings,
    OutgoingRequest, StreamId,
};
use lowroad_http::method::Method;
use memchr::memmem;

use super::response::{CompleteResponse, ResponseFault, append_text};
use crate::workload::ResponseInterest;

/// Maximum length of a DATA frame.
const PIECE_LEN_MAX: usize = 16_384;
/// Flow-control window of the client: large enough that a server never waits for it.
const WINDOW_LEN_MAX: u32 = 1 << 24;

/// The HTTP/2 state of one connection.
pub(crate) struct H2LoadClient {
    http: H2Client,
    /// The parts of responses that the session needs.
    interest: ResponseInterest,
    /// The start of an incomplete frame.
    pub buffered: Vec<u8>,
    /// Open streams in order of their number; each belongs to the request at the same index of
    /// `ClientConnection::pending`.
    streams: VecDeque<ClientStream>,
}

struct ClientStream {
    id: StreamId,
    /// The request's body.
    body: Vec<u8>,
    sent_len: usize,
    status: u16,
    len: u64,
    crc32: Option<crc32fast::Hasher>,
    set_cookie: Option<String>,
    text: Option<Vec<u8>>,
}

/// State shared by the connections of a thread.
pub(crate) struct H2Context {
    settings: H2Settings,
    counters: GlitchCounters,
    text: Vec<u8>,
    /// The request in HTTP/1.1, as written by its session.
    pub request: Vec<u8>,
    last: EncodedRequest,
}

/// The last request with its field block, which is reused as long as requests are equal.
#[derive(Default)]
struct EncodedRequest {
    request: Vec<u8>,
    method: Option<Method>,
    block: Vec<u8>,
    /// Offset of the body in the request.
    body_at: usize,
}

/// The effect of some input on requests, which are given by their index in `ClientConnection::pending`.
pub(crate) enum StreamOutcome {
    /// No effect on a request.
    Nothing,
    /// A response has begun.
    First(usize),
    /// A response is complete.
    Whole(usize, CompleteResponse),
    /// The server has reset a stream.
    Reset(usize),
    /// GOAWAY: the server accepts no more requests, and has not processed those from this index on.
    GoneAway(usize),
}

impl Default for H2Context {
    fn default() -> H2Context {
        H2Context {
            settings: H2Settings {
                window_len_max: WINDOW_LEN_MAX,
                ..H2Settings::default()
            },
            counters: GlitchCounters::default(),
            text: Vec::new(),
            request: Vec::new(),
            last: EncodedRequest::default(),
        }
    }
}

impl H2LoadClient {
    /// Creates the state and writes the connection preface.
    pub(crate) fn new(
        shared: &mut H2Context,
        interest: ResponseInterest,
        now_ns: u64,
        out: &mut Vec<u8>,
    ) -> H2LoadClient {
        let http = H2Client::new(&mut shared.turn(now_ns, out));
        H2LoadClient {
            http,
            interest,
            buffered: Vec::new(),
            streams: VecDeque::new(),
        }
    }

    /// Whether the server's limits allow one more request.
    pub(crate) fn can_open_stream(&self) -> bool {
        self.http.can_request()
    }

    /// Writes the request in `shared`. Returns false if it could not be written.
    pub(crate) fn send_request(
        &mut self,
        shared: &mut H2Context,
        is_https: bool,
        has_crc32: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        if shared.last.request != shared.request && !shared.encode(is_https) {
            return false;
        }
        let EncodedRequest {
            method: Some(method),
            block,
            body_at,
            ..
        } = &shared.last
        else {
            return false;
        };
        let body = &shared.request[*body_at..];
        let len = match body.len() {
            // Without a body HEADERS carries END_STREAM, which saves a frame.
            0 => BodyLen::None,
            len => BodyLen::Known(len as u64),
        };
        let Ok(id) = self.http.request_prebuilt(block, *method, len, out) else {
            return false;
        };
        self.streams.push_back(ClientStream {
            id,
            body: body.to_vec(),
            sent_len: 0,
            status: 0,
            len: 0,
            crc32: has_crc32.then(crc32fast::Hasher::new),
            set_cookie: None,
            text: None,
        });
        if !body.is_empty() {
            let ready = self.http.body(id, body.len() as u64);
            let end_result = self.http.end(id, FieldLines::NONE);
            self.send(out);
            return ready == Ok(true) && end_result.is_ok();
        }
        true
    }

    /// Writes request bodies as far as the flow-control windows allow.
    pub(crate) fn send(&mut self, out: &mut Vec<u8>) {
        while let Some(piece) = self.http.send(PIECE_LEN_MAX, out) {
            let len = piece.len as usize;
            let Some(index) = self.find(piece.stream) else {
                continue;
            };
            let stream = &mut self.streams[index];
            out.extend_from_slice(&stream.body[stream.sent_len..][..len]);
            stream.sent_len += len;
        }
    }

    /// Parses the start of the input. Returns the consumed length and the effect. If both are empty, more input is
    /// needed.
    ///
    /// # Errors
    /// The connection can't be used any more.
    pub(crate) fn next(
        &mut self,
        input: &[u8],
        shared: &mut H2Context,
        now_ns: u64,
        out: &mut Vec<u8>,
    ) -> Result<(usize, StreamOutcome), ResponseFault> {
        let mut text = std::mem::take(&mut shared.text);
        let mut turn = shared.turn(now_ns, out);
        let step = self.http.next(input, &mut text, &mut turn);
        let step = step.map_err(|_| ResponseFault::Malformed)?;
        let event = match step.event {
            None | Some(H2ClientEvent::Interim(_)) => StreamOutcome::Nothing,
            Some(H2ClientEvent::Response(head)) => match self.find(head.stream) {
                None => StreamOutcome::Nothing,
                Some(index) => {
                    let stream = &mut self.streams[index];
                    stream.status = head.status.code();
                    if self.interest.text {
                        stream.text = Some(header_text(stream.status, &head.fields));
                    }
                    if self.interest.cookies {
                        let cookies = head.fields.filter(|(name, _)| *name == b"set-cookie");
                        let last = cookies.last().map(|(_, value)| value);
                        stream.set_cookie =
                            last.map(|value| String::from_utf8_lossy(value).into_owned());
                    }
                    match head.has_body {
                        true => StreamOutcome::First(index),
                        false => self.finish_stream(index, out),
                    }
                }
            },
            Some(H2ClientEvent::Data { stream, data }) => {
                if let Some(index) = self.find(stream) {
                    let stream = &mut self.streams[index];
                    stream.len += data.len() as u64;
                    if let Some(crc32) = &mut stream.crc32 {
                        crc32.update(data);
                    }
                    if let Some(text) = &mut stream.text {
                        append_text(text, data);
                    }
                }
                // Capacity is released also for a stream that no longer exists: its bytes count against the
                // connection's window (RFC 9113 section 6.9).
                self.http.release_capacity(stream, data.len(), out);
                StreamOutcome::Nothing
            }
            Some(H2ClientEvent::End { stream, .. }) => match self.find(stream) {
                None => StreamOutcome::Nothing,
                Some(index) => self.finish_stream(index, out),
            },
            Some(H2ClientEvent::Reset { stream, .. }) => match self.find(stream) {
                None => StreamOutcome::Nothing,
                Some(index) => {
                    self.streams.remove(index);
                    StreamOutcome::Reset(index)
                }
            },
            Some(H2ClientEvent::GoneAway { last, .. }) => {
                // The numbers increase, since a client opens its streams in their order (RFC 9113 section 5.1.1).
                let index = self.streams.partition_point(|stream| stream.id <= last);
                self.streams.truncate(index);
                StreamOutcome::GoneAway(index)
            }
        };
        let used = step.used;
        shared.text = text;
        Ok((used, event))
    }

    fn find(&self, id: StreamId) -> Option<usize> {
        self.streams.binary_search_by_key(&id, |it| it.id).ok()
    }

    fn finish_stream(&mut self, index: usize, out: &mut Vec<u8>) -> StreamOutcome {
        let Some(stream) = self.streams.remove(index) else {
            return StreamOutcome::Nothing;
        };
        // The response is complete before the request. The rest of the request is no longer needed (RFC 9113
        // section 8.1).
        if stream.sent_len < stream.body.len() {
            self.http.reset(stream.id, ErrorCode::CANCEL, out);
        }
        let response = CompleteResponse {
            status: stream.status,
            body_len: stream.len,
            crc32: stream.crc32.map(crc32fast::Hasher::finalize),
            set_cookie: stream.set_cookie,
            text: stream.text,
            closes: false,
        };
        StreamOutcome::Whole(index, response)
    }
}

impl H2Context {
    fn turn<'t>(&'t mut self, now_ns: u64, out: &'t mut Vec<u8>) -> ConnectionTurn<'t> {
        ConnectionTurn {
            now_ms: now_ns / 1_000_000,
            settings: &self.settings,
            out,
            counters: &mut self.counters,
        }
    }

    /// Encodes the field block of the request's head. Returns whether the head was valid.
    fn encode(&mut self, is_https: bool) -> bool {
        let last = &mut self.last;
        last.request.clone_from(&self.request);
        last.block.clear();
        last.method = encode(&self.request, is_https, &mut last.block).map(|(method, body_at)| {
            last.body_at = body_at;
            method
        });
        last.method.is_some()
    }
}

/// Formats a response head like that of HTTP/1, for patterns that search in it.
fn header_text(status: u16, fields: &FieldLines<'_>) -> Vec<u8> {
    let mut text = format!("HTTP/2 {status}\r\n").into_bytes();
    for (name, value) in fields.clone() {
        for part in [name, b": ", value, b"\r\n"] {
            append_text(&mut text, part);
        }
    }
    append_text(&mut text, b"\r\n");
    text
}

/// A request that a session has written in HTTP/1.1, for a protocol with pseudo-header fields.
pub(super) struct TranslatedRequest<'r> {
    pub method: Method,
    pub authority: &'r [u8],
    pub path: &'r [u8],
    lines: FieldLines<'r>,
    /// Offset of the body in the request.
    pub body_at: usize,
}

impl<'r> TranslatedRequest<'r> {
    /// Parses a request; `None` if it is not valid.
    pub fn parse(request: &'r [u8]) -> Option<TranslatedRequest<'r>> {
        let line_end = memmem::find(request, b"\r\n")?;
        let body_at = memmem::find(request, b"\r\n\r\n")? + 4;
        let mut words = request[..line_end].split(|byte| *byte == b' ');
        let (method, path) = (Method::parse(words.next()?)?, words.next()?);
        let lines = FieldLines::new(&request[line_end + 2..body_at]);
        let (_, authority) = lines.clone().find(|(name, _)| is_host(name))?;
        Some(TranslatedRequest {
            method,
            authority,
            path,
            lines,
            body_at,
        })
    }

    /// The fields without those that only HTTP/1 has.
    pub fn fields(&self) -> impl Iterator<Item = (FieldName<'r>, &'r [u8])> {
        // Connection-specific fields are malformed in HTTP/2 and 3 (RFC 9113 section 8.2.2, RFC 9114 section 4.2), and
        // :authority replaces Host.
        self.lines.clone().resolved_names().filter(|(name, _)| {
            let text = name.as_str().as_bytes();
            !is_host(text) && !text.eq_ignore_ascii_case(b"connection")
        })
    }
}

fn is_host(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"host")
}

/// Appends the field block of a request in HTTP/1.1 form. Returns its method and the offset of its body.
fn encode(request: &[u8], is_https: bool, block: &mut Vec<u8>) -> Option<(Method, usize)> {
    let request = TranslatedRequest::parse(request)?;
    let outgoing = OutgoingRequest {
        method: request.method,
        is_https,
        authority: request.authority,
        path: request.path,
        // Only extended CONNECT has this pseudo-header field (RFC 8441).
        protocol: None,
    };
    outgoing.put_pseudo_fields(block);
    for (name, value) in request.fields() {
        put_field(name, value, block);
    }
    Some((request.method, request.body_at))
}
