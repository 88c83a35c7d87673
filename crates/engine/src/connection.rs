//! One connection and its state.
//!
//! ```text
//!  input ─► protocol ─► a request ─┬─ answered immediately ────► the worker's output ─► SendQueue ─► the socket
//!                         │        └─ deferred: StreamState::waiting ─ outcome ─┘
//!                         └─ its body: StreamState::incoming ─► the handler, or dropped
//! ```
//! State of the connection (socket, protocol, input, unsent output) is in [`WorkerConnection`]; state of one request
//! and its response in [`StreamState`](crate::stream_table::StreamState), which exists only while the exchange is
//! pending. The types here only store data; the code that moves it is in `exchange` and `transmit`.

use lowroad_http::protocol::StreamId;

use crate::driver::{ConnectionToken, IoDriver, ListenerId};
use crate::input::InputBuffer;
use crate::protocol::Protocol;
use crate::send_queue::SendQueue;
use crate::service::HttpService;
use crate::stream_table::StreamTable;
use crate::transport::ClientTransport;

/// A connection of a worker. Tens of thousands may be idle, so state that is rarely needed is boxed.
pub(crate) struct WorkerConnection<D: IoDriver, V: HttpService> {
    /// The path to the client: the socket, and TLS if it is used.
    pub transport: ClientTransport<D::Socket>,
    /// The protocol, which parses the input and frames the output.
    pub protocol: Protocol,
    /// Received bytes that are not parsed yet.
    pub input: InputBuffer,
    /// When the connection times out or is checked again, monotonic ms.
    pub deadline_ms: u64,
    pub requests: u32,
    /// Identifies the connection in the worker's table.
    pub token: ConnectionToken,
    pub listener: ListenerId,
    /// Bytes or the end of input may have arrived while the connection did not read.
    pub unread: bool,
    /// Received or later bytes will not be read, so closing the socket could cause a reset.
    pub leftover: bool,
    /// An incomplete head was received, and its deadline is set.
    pub has_partial_head: bool,
    /// All output was sent. The peer's further bytes are received and dropped, so that no reset destroys the last bytes
    /// of the response (RFC 9112 §9.6).
    pub lingering: bool,
    /// HTTP/1: the client has ended its direction before it was answered. It may have closed the connection, which only
    /// its reaction to the response shows.
    pub client_ended: bool,
    /// The connection is closed: its worker removes it.
    pub is_closed: bool,
    /// Output that the socket has not accepted yet.
    pub sending: Option<Box<SendQueue<V::Record>>>,
    /// The pending exchanges.
    pub exchanges: StreamTable<V>,
}

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Whether the connection is closed and will be removed by its worker.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The stream of the last exchange that has begun; with HTTP/1 it is the only stream.
    pub fn stream(&self) -> StreamId {
        StreamId(self.requests)
    }

    /// Leaves the rest of a request's body unread, so the connection ends after the response.
    pub fn leave_body_unread(&mut self, stream: StreamId) {
        self.protocol.discard_body(stream, &mut Vec::new());
        self.leftover = true;
        self.exchanges.end_incoming(stream);
    }

    /// Whether the connection ends after the written output is sent.
    pub fn is_over(&self) -> bool {
        let is_key_used_up = !self.protocol.is_multiplexed() && self.transport.is_key_worn();
        self.protocol.is_finished() || is_key_used_up && self.protocol.is_idle()
    }

    /// Whether no exchange is pending, no output unsent and no request partly received.
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
    use crate::stream_table::tests::NoopService;
    use crate::worker::Worker;

    /// A small server may have ten thousand idle connections.
    const IDLE_LEN_MAX: usize = 128;

    #[test]
    fn idle_connection_takes_at_most_128_bytes() {
        const { assert!(Worker::<EpollDriver, NoopService>::CONNECTION_LEN <= IDLE_LEN_MAX) }
    }
}
