//! The interface that HTTP/3 shares with the other versions of HTTP.

use alloc::vec::Vec;

use super::server::H3Server;
use crate::fields::FieldLines;
use crate::h1::BodyLengthMismatch;
use crate::protocol::{MultiplexedProtocol, ServerProtocol, StreamId};
use crate::status::StatusCode;
use crate::version::HttpVersion;

impl ServerProtocol for H3Server {
    fn version(&self) -> HttpVersion {
        HttpVersion::Http3
    }

    fn is_idle(&self) -> bool {
        H3Server::is_idle(self)
    }

    fn is_finished(&self) -> bool {
        H3Server::is_finished(self)
    }

    fn has_whole_request(&mut self, stream: StreamId) -> bool {
        H3Server::has_whole_request(self, stream)
    }

    fn is_answered(&mut self, stream: StreamId) -> bool {
        H3Server::is_answered(self, stream)
    }

    fn expects_continue(&mut self, stream: StreamId) -> bool {
        H3Server::expects_continue(self, stream)
    }

    fn interim(
        &mut self,
        stream: StreamId,
        status: StatusCode,
        lines: FieldLines<'_>,
        out: &mut Vec<u8>,
    ) {
        H3Server::interim(self, stream, status, lines, out);
    }

    /// Writes nothing: `H3Server::next_stopped` returns the stream after its response.
    fn discard_body(&mut self, stream: StreamId, _: &mut Vec<u8>) {
        H3Server::discard_body(self, stream);
    }

    /// `out` is the output of the control stream.
    fn drain(&mut self, out: &mut Vec<u8>) {
        H3Server::drain(self, out);
    }
}

impl MultiplexedProtocol for H3Server {
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
        self.end_body(stream, trailers)
    }

    fn is_response_complete(&mut self, stream: StreamId) -> bool {
        H3Server::is_response_complete(self, stream)
    }
}
