//! HTTP/3 on a client's connection: sends the HTTP/1.1 requests of sessions as streams, and converts streams to
//! responses. Frames and QPACK come from `lowroad_http`, QUIC from `lowroad_quic`.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;
use lowroad_http::h3::frames::{kind, stream_type};
use lowroad_http::h3::qpack::probe::SectionProbe;
use lowroad_quic::QuicEvent;
use rustix::io::Errno;

use super::h3_frames::{ResponseFrames, ResponsePart, encode, header_text, read_control};
use super::quic::QuicTransport;
use super::response::{CompleteResponse, ResponseFault, append_text};
use super::transport::TlsStart;
use super::two::StreamOutcome;
use crate::workload::ResponseInterest;

/// The control stream: its type, and SETTINGS without a dynamic table.
const CONTROL: &[u8] = &[stream_type::CONTROL as u8, kind::SETTINGS as u8, 0];
/// H3_NO_ERROR (RFC 9114 section 8.1).
pub(super) const NO_ERROR: u64 = 0x100;

/// An HTTP/3 connection.
pub(crate) struct H3LoadClient {
    pub quic: QuicTransport,
    /// The parts of responses that the session needs.
    interest: ResponseInterest,
    /// The stream of the next request, if the server allows one more.
    next_stream: Option<u64>,
    /// Open streams in order of their number; each belongs to the request at the same index of
    /// `ClientConnection::pending`.
    streams: VecDeque<RequestStream>,
    /// The server's unidirectional streams, of which only the control stream is read.
    server_streams: Vec<(u64, Vec<u8>)>,
}

/// A request and its response.
struct RequestStream {
    id: u64,
    /// The part of the request that QUIC has not taken.
    unsent: Vec<Bytes>,
    /// Whether bytes of the response have arrived.
    has_begun: bool,
    response: ResponseFrames,
    text: Option<Vec<u8>>,
    set_cookie: Option<String>,
    crc32: Option<crc32fast::Hasher>,
}

/// State shared by the connections of a thread.
#[derive(Default)]
pub(crate) struct H3Context {
    /// The request in HTTP/1.1, as written by its session.
    pub request: Vec<u8>,
    /// The last request, and its frames, which are reused as long as requests are equal.
    last: (Vec<u8>, Bytes),
}

impl H3LoadClient {
    /// Starts a connection.
    ///
    /// # Errors
    /// An immediate error of the system.
    pub(crate) fn connect(
        address: SocketAddr,
        start: &TlsStart,
        interest: ResponseInterest,
        now_ns: u64,
    ) -> Result<H3LoadClient, Errno> {
        let name = start.name.to_str();
        Ok(H3LoadClient {
            quic: QuicTransport::connect(address, &start.http3, &name, now_ns)?,
            interest,
            next_stream: None,
            streams: VecDeque::new(),
            server_streams: Vec::new(),
        })
    }

    /// Whether the server's limits allow one more request.
    pub(crate) fn can_open_stream(&self) -> bool {
        self.next_stream.is_some()
    }

    pub(super) fn open_next(&mut self) {
        if self.next_stream.is_none() {
            self.next_stream = self.quic.endpoint.open(self.quic.key, true);
        }
    }

    /// Opens the control stream (RFC 9114 section 6.2.1).
    pub(super) fn begin(&mut self) {
        let quic = &mut self.quic;
        if let Some(control) = quic.endpoint.open(quic.key, false) {
            let settings = &mut [Bytes::from_static(CONTROL)];
            _ = quic.endpoint.write(quic.key, control, settings);
        }
        self.open_next();
    }

    /// Writes the request in `context`. Returns false if it could not be written.
    pub(crate) fn send_request(&mut self, context: &mut H3Context, has_crc32: bool) -> bool {
        // Encoding costs as much as the rest of a request, and the requests of a measurement are mostly equal.
        if context.last.0 != context.request {
            let Some(frames) = encode(&context.request) else {
                return false;
            };
            context.last = (context.request.clone(), frames);
        }
        let Some(id) = self.next_stream.take() else {
            return false;
        };
        let mut unsent = vec![context.last.1.clone()];
        self.quic.write_stream(id, &mut unsent);
        self.streams.push_back(RequestStream {
            id,
            unsent,
            has_begun: false,
            response: ResponseFrames::default(),
            text: None,
            set_cookie: None,
            crc32: has_crc32.then(crc32fast::Hasher::new),
        });
        self.open_next();
        true
    }

    fn find(&self, id: u64) -> Option<usize> {
        // QUIC numbers streams in the order in which they are opened.
        self.streams.binary_search_by_key(&id, |it| it.id).ok()
    }

    /// Processes an event of a stream. Returns its effects on requests.
    pub(super) fn handle(&mut self, event: QuicEvent) -> Result<[StreamOutcome; 2], ResponseFault> {
        const NOTHING: StreamOutcome = StreamOutcome::Nothing;
        match event {
            QuicEvent::Bytes {
                stream,
                bytes,
                is_end,
            } => match self.find(stream) {
                Some(index) => self.read_response(index, &bytes, is_end),
                // Unidirectional streams of the server (RFC 9000 section 2.1).
                None if stream % 4 == 3 => Ok([self.read_server_stream(stream, &bytes)?, NOTHING]),
                None => Ok([NOTHING, NOTHING]),
            },
            QuicEvent::Reset { stream, .. } => Ok(match self.find(stream) {
                Some(index) => {
                    self.streams.remove(index);
                    [StreamOutcome::Reset(index), NOTHING]
                }
                None => [NOTHING, NOTHING],
            }),
            QuicEvent::Writable { stream } | QuicEvent::Stopped { stream, .. } => {
                // Writing to a stopped stream fails, and discards the rest.
                if let Some(index) = self.find(stream) {
                    let stream = &mut self.streams[index];
                    self.quic.write_stream(stream.id, &mut stream.unsent);
                }
                Ok([NOTHING, NOTHING])
            }
            QuicEvent::Opened | QuicEvent::Over(_) => Ok([NOTHING, NOTHING]),
        }
    }

    fn read_response(
        &mut self,
        index: usize,
        bytes: &[u8],
        is_end: bool,
    ) -> Result<[StreamOutcome; 2], ResponseFault> {
        let interest = self.interest;
        let RequestStream {
            response,
            text,
            set_cookie,
            crc32,
            has_begun,
            ..
        } = &mut self.streams[index];
        response.read(bytes, |status, part| match part {
            ResponsePart::Data(data) => {
                if let Some(crc32) = crc32 {
                    crc32.update(data);
                }
                if let Some(text) = text {
                    append_text(text, data);
                }
                Ok(0)
            }
            ResponsePart::Head(section) => {
                let head = SectionProbe::new(0).decode(section);
                let head = head.ok().flatten().ok_or(ResponseFault::Malformed)?;
                // Trailers have no status.
                if status >= 200 {
                    return Ok(status);
                }
                if interest.text {
                    *text = Some(header_text(&head));
                }
                if interest.cookies {
                    let last = head.iter().rfind(|(name, _)| name == b"set-cookie");
                    *set_cookie =
                        last.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
                }
                let status = head.iter().find(|(name, _)| name == b":status");
                let text = status.and_then(|(_, value)| std::str::from_utf8(value).ok());
                let status = text.and_then(|text| text.parse().ok());
                status.ok_or(ResponseFault::Malformed)
            }
        })?;
        // The time to the first byte counts from here, even if the head is incomplete.
        let first = match std::mem::replace(has_begun, true) {
            true => StreamOutcome::Nothing,
            false => StreamOutcome::First(index),
        };
        if !is_end {
            return Ok([first, StreamOutcome::Nothing]);
        }
        Ok([first, self.finish(index)?])
    }

    fn finish(&mut self, index: usize) -> Result<StreamOutcome, ResponseFault> {
        let stream = self.streams.remove(index);
        let stream = stream.filter(|stream| stream.response.is_complete());
        let stream = stream.ok_or(ResponseFault::Malformed)?;
        // The rest of the request is no longer needed (RFC 9114 section 4.1).
        if !stream.unsent.is_empty() {
            let quic = &mut self.quic;
            _ = quic.endpoint.reset(quic.key, stream.id, NO_ERROR);
        }
        let response = CompleteResponse {
            status: stream.response.status,
            body_len: stream.response.len,
            crc32: stream.crc32.map(crc32fast::Hasher::finalize),
            set_cookie: stream.set_cookie,
            text: stream.text,
            closes: false,
        };
        Ok(StreamOutcome::Whole(index, response))
    }

    /// Reads GOAWAY from the control stream.
    fn read_server_stream(
        &mut self,
        stream: u64,
        bytes: &[u8],
    ) -> Result<StreamOutcome, ResponseFault> {
        let index = self.server_streams.iter().position(|(id, _)| *id == stream);
        let index = index.unwrap_or_else(|| {
            self.server_streams.push((stream, Vec::new()));
            self.server_streams.len() - 1
        });
        let input = &mut self.server_streams[index].1;
        input.extend_from_slice(bytes);
        let goaway = read_control(input)?;
        let Some(first) = goaway else {
            return Ok(StreamOutcome::Nothing);
        };
        // The server processes the streams before `first` only (RFC 9114 section 5.2).
        let index = self.streams.partition_point(|stream| stream.id < first);
        self.streams.truncate(index);
        Ok(StreamOutcome::GoneAway(index))
    }
}
