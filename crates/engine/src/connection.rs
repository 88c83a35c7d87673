//! One connection and its state.
//!
//! ```text
//!  input ─► protocol ─► a request ─┬─ answered at once ─────────► the worker's output ─► SendQueue ─► the socket
//!                         │        └─ deferred: StreamState::waiting ─ outcome ─┘
//!                         └─ its body: StreamState::incoming ─► the handler, or dropped
//! ```
//! State of the connection (socket, protocol, input, unsent output) is in [`WorkerConnection`]; state of one request
//! and its response in [`StreamState`](crate::stream_table::StreamState), which exists only while it is pending. These
//! types hold data only; `exchange` and `transmit` move it.

use lowroad_http::protocol::StreamId;

use crate::driver::{ConnectionToken, IoDriver, ListenerId};
use crate::input::InputBuffer;
use crate::protocol::Protocol;
use crate::send_queue::SendQueue;
use crate::service::HttpService;
use crate::stream_table::StreamTable;
use crate::transport::ClientTransport;

/// A connection of a worker. There may be ten thousands of idle ones, so state that is rarely needed is boxed.
pub(crate) struct WorkerConnection<D: IoDriver, V: HttpService> {
    /// The path to the client: the socket, and TLS if it is used.
    pub transport: ClientTransport<D::Socket>,
    /// The protocol, which parses the input and frames the output.
    /// The protocol, which parses the input and frames the output.
    pub protocol: Protocol,
    /// Received bytes that are not parsed yet.
    pub input: InputBuffer,
    /// When to give up or to check again, monotonic ms.
    pub deadline_ms: u64,
    pub requests: u32,
    /// Its identifier in the worker's table.
    pub token: ConnectionToken,
    pub listener: ListenerId,
    /// Bytes, or their end, arrived while the connection did not read.
    pub unread: bool,
    /// There are, or may arrive, bytes that will not be read.
    pub leftover: bool,
    /// A head has begun, and its deadline is set.
    pub has_partial_head: bool,
    /// All output was sent; the peer's further bytes are dropped, so that the last bytes arrive (RFC 9112 §9.6).
    pub lingering: bool,
    /// The connection is closed: its worker removes it.
    pub is_closed: bool,
    /// Output that the socket has not accepted yet.
    pub sending: Option<Box<SendQueue<V::Record>>>,
    /// The pending exchanges.
    pub exchanges: StreamTable<V>,
}

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Whether it was closed and waits only to be removed.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The current exchange of the protocol: with HTTP/1, which has one at a time, the last that has begun.
    pub fn stream(&self) -> StreamId {
        StreamId(self.requests)
    }

    /// Leaves the rest of a request's body unread: the connection ends with the response.
    pub fn leave_body_unread(&mut self, stream: StreamId) {
        self.protocol.discard_body(stream, &mut Vec::new());
        self.leftover = true;
        self.exchanges.end_incoming(stream);
    }

    /// Whether it ends once the written output has been sent.
    pub fn is_over(&self) -> bool {
        let is_key_used_up = !self.protocol.is_multiplexed() && self.transport.is_key_worn();
        self.protocol.is_finished() || is_key_used_up && self.protocol.is_idle()
    }

    /// Whether nothing is pending and no request has begun.
    pub fn is_idle(&self) -> bool {
        let has_no_streams = !self.protocol.is_multiplexed() || self.protocol.is_idle();
        self.sending.is_none()
            && self.exchanges.is_empty()
            && !self.has_partial_head
            && has_no_streams
    }
}

#[cfg(test)]
mod tests {
    use crate::epoll::EpollDriver;
    use crate::stream_table::tests::Nothing;
    use crate::worker::Worker;

    /// A small machine may have ten thousand idle connections.
    const IDLE_LEN_MAX: usize = 128;

    #[test]
    fn an_idle_connection_is_small() {
        const { assert!(Worker::<EpollDriver, Nothing>::CONNECTION_LEN <= IDLE_LEN_MAX) }
    }
}
