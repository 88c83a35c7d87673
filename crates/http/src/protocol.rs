//! The server-side interface that all versions of HTTP share: a connection has streams, each with one request and its
//! response. How requests are received and responses are sent depends on the version.

use alloc::vec::Vec;

use crate::fields::FieldLines;
use crate::h1::BodyLengthMismatch;
use crate::status::StatusCode;
use crate::version::HttpVersion;

/// Identifies an exchange on its connection. HTTP/1 has one exchange at a time and ignores the identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// The next bytes to send: `len` bytes of a stream's body, after the frame header just written, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextData {
    /// The stream.
    pub stream: StreamId,
    /// The number of bytes; 0 if only the end of the stream was written.
    pub len: u32,
    /// The message is complete with these bytes.
    pub is_last: bool,
}

/// The server's side of one connection, as a state machine without I/O.
pub trait ServerProtocol {
    /// The version of HTTP of the client's last request.
    fn version(&self) -> HttpVersion;

    /// Whether no request is in progress.
    fn is_idle(&self) -> bool;

    /// Whether the connection ends once all written bytes are sent.
    fn is_finished(&self) -> bool;

    /// Whether the whole connection is a tunnel (RFC 9110 §7.8). A tunnel in a stream does not count.
    fn is_tunnel(&self) -> bool {
        false
    }

    /// Whether a request was received with its whole body.
    fn has_whole_request(&mut self, stream: StreamId) -> bool;

    /// Whether the response to a request has begun, or the client has cancelled the request.
    fn is_answered(&mut self, stream: StreamId) -> bool;

    /// Whether the client waits for 100 (Continue) before it sends the body.
    fn expects_continue(&mut self, stream: StreamId) -> bool;

    /// Writes an interim response (1xx except 101) with these field lines, if the client supports it.
    fn interim(
        &mut self,
        stream: StreamId,
        status: StatusCode,
        lines: FieldLines<'_>,
        out: &mut Vec<u8>,
    );

    /// Discards the rest of a request's body. In HTTP/1 the connection closes after the response.
    fn discard_body(&mut self, stream: StreamId, out: &mut Vec<u8>);

    /// Announces the end of the connection: requests in progress are still answered.
    fn drain(&mut self, out: &mut Vec<u8>);
}

/// The operations that exist only if the bodies of several responses are interleaved. Bodies are announced; the protocol
/// selects in which order they are sent.
pub trait MultiplexedProtocol: ServerProtocol {
    /// Announces more of a response's body. Returns false if the body is not to be sent: the response has no body, or the
    /// client has cancelled the request.
    ///
    /// # Errors
    /// The body is longer than announced: the stream is to be reset.
    fn announce_body(&mut self, stream: StreamId, len: u64) -> Result<bool, BodyLengthMismatch>;

    /// Announces a whole body, as `announce_body` and `announce_end` do.
    ///
    /// # Errors
    /// The body is longer or shorter than announced: the stream is to be reset.
    fn announce_whole(&mut self, stream: StreamId, len: u64) -> Result<bool, BodyLengthMismatch>;

    /// Announces the end of a response's body. `trailers` are field lines.
    ///
    /// # Errors
    /// The body is shorter than announced: the stream is to be reset.
    fn announce_end(
        &mut self,
        stream: StreamId,
        trailers: FieldLines<'_>,
    ) -> Result<(), BodyLengthMismatch>;

    /// Whether the whole response to a request was written.
    fn is_response_complete(&mut self, stream: StreamId) -> bool;
}
