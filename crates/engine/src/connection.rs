//! One connection, and what is under way on it.
//!
//! ```text
//!  input ─► http ─► a request ─┬─ answered at once ───────────────► the worker's output ─► sending ─► the socket
//!                     │        └─ deferred: underway.waiting ─ outcome ─┘
//!                     └─ its body: underway.incoming ─► who answers, or nobody
//! ```
//! What belongs to the connection (socket, protocol, input, what is being sent) is in [`WorkerConnection`]; what belongs to one
//! request and its response, in [`Underway`](crate::underway::Underway), which there is only while something of it is
//! waited for. Holds data only; `exchange` and `transmit` move it.

use lowroad_http::protocol::StreamId;

use crate::driver::{ConnectionToken, IoDriver, ListenerId};
use crate::input::InputBuffer;
use crate::protocol::Protocol;
use crate::send_queue::SendQueue;
use crate::service::HttpService;
use crate::stream_table::StreamTable;
use crate::transport::ClientTransport;

/// A connection of a worker. Idle ones are kept by the ten thousand: what is not always needed lives in boxes.
pub(crate) struct WorkerConnection<D: IoDriver, V: HttpService> {
    pub transport: ClientTransport<D::Socket>,
    /// The protocol, which parses the input and frames the output.
    pub protocol: Protocol,
    /// Bytes received and not used yet.
    pub input: InputBuffer,
    /// When to give up or to look again, monotonic ms.
    pub deadline_ms: u64,
    pub requests: u32,
    /// Its name in the worker's table.
    pub token: ConnectionToken,
    pub listener: ListenerId,
    /// Bytes, or the end of them, came while nobody would read them.
    pub unread: bool,
    /// There are, or may come, bytes that nobody will read.
    pub leftover: bool,
    /// A head has begun, and its deadline is set.
    pub begun: bool,
    /// All is said; what the peer still sends is thrown away, so that our last bytes arrive (RFC 9112 §9.6).
    pub lingering: bool,
    /// Nothing may be done with it any more: its worker removes it.
    pub is_closed: bool,
    /// What the socket has not taken yet.
    pub sending: Option<Box<SendQueue<V::Record>>>,
    /// The exchanges of which something is waited for.
    pub exchanges: StreamTable<V>,
}

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Whether it was closed, and only waits to be removed.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The exchange that the protocol speaks of: with HTTP/1, where there is one at a time, the last that has begun.
    pub fn stream(&self) -> StreamId {
        StreamId(self.requests)
    }

    /// Leaves the rest of a request's body unread: the connection ends with the response.
    pub fn leave_body_unread(&mut self, stream: StreamId) {
        self.protocol.leave_body(stream, &mut Vec::new());
        self.leftover = true;
        self.exchanges.end_incoming(stream);
    }

    /// Whether it ends once what was written has left.
    pub fn is_over(&self) -> bool {
        let is_worn = !self.protocol.is_multiplexed() && self.transport.is_worn();
        self.protocol.is_over() || is_worn && self.protocol.is_idle()
    }

    /// Whether nothing is under way, and no request has begun.
    pub fn is_idle(&self) -> bool {
        let is_quiet = !self.protocol.is_multiplexed() || self.protocol.is_idle();
        self.sending.is_none() && self.exchanges.is_empty() && !self.begun && is_quiet
    }
}

#[cfg(test)]
mod tests {
    use crate::epoll::EpollDriver;
    use crate::stream_table::tests::Nothing;
    use crate::worker::Worker;

    /// Ten thousand idle ones are what a small machine may well have.
    const IDLE_LEN_MAX: usize = 128;

    #[test]
    fn an_idle_connection_is_small() {
        const { assert!(Worker::<EpollDriver, Nothing>::CONNECTION_LEN <= IDLE_LEN_MAX) }
    }
}
