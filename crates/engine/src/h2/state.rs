//! The state of connections that speak HTTP/2, and what those of a worker share. Knows no connection.

use lowroad_http::h2;
use lowroad_http::protocol::StreamId;

use crate::client_pace::ClientPace;

/// The state of an HTTP/2 connection.
pub(crate) struct H2Session {
    pub http: h2::H2Server,
    /// Of which stream a helper reads a file.
    pub reading: Option<StreamId>,
    /// How the client takes bodies, while its windows hold some of them back.
    pub pace: ClientPace,
    /// When a request last came or was under way, monotonic ms.
    pub used_ms: u64,
    /// The end was announced.
    pub is_draining: bool,
}

/// The state that all HTTP/2 connections of a worker share.
pub(crate) struct SharedHttp2<R> {
    /// Fields of a request are decoded here.
    pub text: Vec<u8>,
    pub counters: h2::GlitchCounters,
    /// Responses that were written and have not been given to the connection's streams.
    pub fresh: Vec<UnframedResponse<R>>,
    /// Which of them is probably sent next.
    pub next_fresh: usize,
}

impl<R> Default for SharedHttp2<R> {
    fn default() -> SharedHttp2<R> {
        SharedHttp2 {
            text: Vec::new(),
            counters: h2::GlitchCounters::default(),
            fresh: Vec::new(),
            next_fresh: 0,
        }
    }
}

impl<R> SharedHttp2<R> {
    /// Where the response of a stream lies, if it has just been written. Mostly they leave in their order.
    pub fn find_fresh(&self, stream: StreamId) -> Option<usize> {
        match self.fresh.get(self.next_fresh) {
            Some(fresh) if fresh.stream == stream => Some(self.next_fresh),
            _ => self.fresh.iter().position(|fresh| fresh.stream == stream),
        }
    }
}

/// A response whose copied body is not yet in frames.
pub(crate) struct UnframedResponse<R> {
    pub stream: StreamId,
    /// Where the rest of it lies in `Out::body`.
    pub at: usize,
    pub end: usize,
    /// Bytes that were put into frames.
    pub sent: u64,
    pub record: Option<R>,
}
