//! The state of an HTTP/2 connection, and the state that all HTTP/2 connections of a worker share.

use lowroad_http::h2;
use lowroad_http::protocol::StreamId;

use crate::client_pace::ClientPace;

/// The state of an HTTP/2 connection.
pub(crate) struct H2Session {
    pub http: h2::H2Server,
    /// The stream for which a helper reads a file.
    pub reading: Option<StreamId>,
    /// The client's pace in reading bodies, while its windows block some of them.
    pub pace: ClientPace,
    /// When a request last arrived or was pending, monotonic ms.
    pub used_ms: u64,
    /// A GOAWAY was sent.
    pub is_draining: bool,
}

/// The state that all HTTP/2 connections of a worker share.
pub(crate) struct SharedHttp2<R> {
    /// A buffer for decoded fields of a request.
    pub text: Vec<u8>,
    pub counters: h2::GlitchCounters,
    /// Written responses that were not moved to their streams.
    pub unframed: Vec<UnframedResponse<R>>,
    /// The index of the response that is probably sent next.
    pub next_unframed: usize,
}

impl<R> Default for SharedHttp2<R> {
    fn default() -> SharedHttp2<R> {
        SharedHttp2 {
            text: Vec::new(),
            counters: h2::GlitchCounters::default(),
            unframed: Vec::new(),
            next_unframed: 0,
        }
    }
}

impl<R> SharedHttp2<R> {
    /// The index of a stream's response, if it was just written. Most responses are sent in order.
    pub fn find_unframed(&self, stream: StreamId) -> Option<usize> {
        match self.unframed.get(self.next_unframed) {
            Some(response) if response.stream == stream => Some(self.next_unframed),
            _ => self
                .unframed
                .iter()
                .position(|response| response.stream == stream),
        }
    }
}

/// A response with a body that was copied to the worker's buffer and is not framed yet.
pub(crate) struct UnframedResponse<R> {
    pub stream: StreamId,
    /// The offset in `OutputBuffer::body` of the bytes that are not framed yet.
    pub offset: usize,
    pub end: usize,
    /// Bytes that were framed.
    pub sent: u64,
    pub record: Option<R>,
}
