//! `ServerProtocol` for HTTP/2: the operations that are common to all versions of HTTP.

use alloc::vec::Vec;

use super::connection::ConnectionPhase;
use super::response_head::put_lines;
use super::server::H2Server;
use super::streams::{StreamInput, StreamOutput};
use super::{frame, hpack};
use crate::fields::FieldLines;
use crate::h1::BodyLengthMismatch;
use crate::protocol::{MultiplexedProtocol, ServerProtocol, StreamId};
use crate::status::StatusCode;
use crate::streams::GoawayState;
use crate::version::HttpVersion;

impl ServerProtocol for H2Server {
    fn version(&self) -> HttpVersion {
        HttpVersion::Http2
    }

    fn is_idle(&self) -> bool {
        self.http.streams.is_empty()
    }

    fn is_finished(&self) -> bool {
        let http = &self.http;
        let is_leaving = http.goaway == GoawayState::Gone || http.peer_last_id.is_some();
        http.phase == ConnectionPhase::Ended || is_leaving && http.streams.is_empty()
    }

    fn has_whole_request(&mut self, stream: StreamId) -> bool {
        self.http
            .streams
            .is_absent_or(stream.0, |it| it.input == StreamInput::Ended)
    }

    fn is_answered(&mut self, stream: StreamId) -> bool {
        self.http
            .streams
            .is_absent_or(stream.0, |it| it.output != StreamOutput::Head)
    }

    fn expects_continue(&mut self, stream: StreamId) -> bool {
        let stream = self.http.streams.by_id(stream.0);
        stream.is_some_and(|it| it.awaits_continue())
    }

    fn interim(
        &mut self,
        stream: StreamId,
        status: StatusCode,
        lines: FieldLines<'_>,
        out: &mut Vec<u8>,
    ) {
        let Some(h2_stream) = self.http.streams.by_id(stream.0) else {
            return;
        };
        if h2_stream.output != StreamOutput::Head {
            return;
        }
        if status == StatusCode::CONTINUE {
            h2_stream.expects_continue = false;
        }
        let frame_start = self.http.open_block(out);
        hpack::put_status(status, out);
        put_lines(lines, out);
        let frame_len_max = self.http.peer.frame_len_max as usize;
        frame::close_block(stream.0, false, frame_start, frame_len_max, out);
    }

    /// Drops the rest of a request's body as it arrives. If the body does not end, the stream is reset some time after
    /// the response (`H2Server::reset_lingering`).
    fn discard_body(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        let Some(h2_stream) = self.http.streams.by_id(stream.0) else {
            return;
        };
        if h2_stream.input == StreamInput::Open {
            h2_stream.input = StreamInput::Unwanted;
            // The client needs the window: it may wait until its whole body is sent before it reads the response.
            let unconsumed = core::mem::take(&mut h2_stream.transport.unconsumed);
            if let Some(increment) = h2_stream.transport.window.release(unconsumed) {
                frame::put_window_update(stream.0, increment, out);
            }
            self.http.release_connection_window(unconsumed, out);
            self.http.remove_if_complete(stream.0, out);
        }
    }

    /// Streams that the client opens before it receives GOAWAY are accepted. After a round trip, or after
    /// `H2Server::send_final_goaway`, new streams are ignored.
    fn drain(&mut self, out: &mut Vec<u8>) {
        self.http.drain(out);
    }
}

impl MultiplexedProtocol for H2Server {
    fn announce_body(&mut self, stream: StreamId, len: u64) -> Result<bool, BodyLengthMismatch> {
        self.body(stream, len)
    }

    #[inline]
    fn announce_whole(&mut self, stream: StreamId, len: u64) -> Result<bool, BodyLengthMismatch> {
        self.whole_body(stream, len)
    }

    fn announce_end(
        &mut self,
        stream: StreamId,
        trailers: FieldLines<'_>,
    ) -> Result<(), BodyLengthMismatch> {
        self.end(stream, trailers)
    }

    fn is_response_complete(&mut self, stream: StreamId) -> bool {
        H2Server::is_response_complete(self, stream)
    }
}
