//! The exchanges of connections that interleave responses, for HTTP/2 and HTTP/3: requests, bodies in both directions,
//! tunnels, resets and timeouts. The modules `h2` and `h3` have what depends on frames, sockets and QUIC.

mod bodies;
mod deadlines;
mod requests;
mod responses;
mod tunnels;
pub(crate) mod unframed;

pub(crate) use requests::StreamAbort;

use lowroad_http::protocol::{MultiplexedProtocol, StreamId};

use crate::client_pace::ClientPace;

/// The delay before a file is read again after no helper thread was available.
const POSTPONED_MS: u64 = 100;
/// The interval of checks of a connection with pending exchanges.
pub(crate) const LOOK_MS: u64 = 1000;

/// The progress of a connection with several exchanges.
pub(crate) struct SessionProgress {
    /// The stream for which a helper reads a file.
    pub reading: Option<StreamId>,
    /// The client's pace in reading bodies, while flow control blocks some of them.
    pub pace: ClientPace,
    /// When a request last arrived or was pending, monotonic ms.
    pub used_ms: u64,
    /// A GOAWAY was sent.
    pub is_draining: bool,
}

impl SessionProgress {
    /// The progress of a new connection.
    pub fn new(now_ms: u64, is_draining: bool) -> SessionProgress {
        SessionProgress {
            reading: None,
            pace: ClientPace::new(now_ms),
            used_ms: now_ms,
            is_draining,
        }
    }
}

/// A connection's protocol with its progress.
pub(crate) struct MultiplexedSession<'s> {
    pub http: &'s mut dyn MultiplexedProtocol,
    pub progress: &'s mut SessionProgress,
}
