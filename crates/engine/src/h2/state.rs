//! The state of an HTTP/2 connection, and the state that all HTTP/2 connections of a worker share.

use lowroad_http::h2;

use crate::multiplexed::SessionProgress;

/// The state of an HTTP/2 connection.
pub(crate) struct H2Session {
    pub http: h2::H2Server,
    pub progress: SessionProgress,
}

/// The state that all HTTP/2 connections of a worker share.
#[derive(Default)]
pub(crate) struct SharedHttp2 {
    /// A buffer for decoded fields of a request.
    pub text: Vec<u8>,
    pub counters: h2::GlitchCounters,
}
