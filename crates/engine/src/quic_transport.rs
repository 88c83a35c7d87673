//! The interface of QUIC: the connections of one datagram socket, without the socket. The engine contains no
//! cryptography and no packets; the crate `quic` implements this trait.
//!
//! A turn: `take` the received datagrams, and `advance` the time. For each `next_touched` connection, process each
//! `next_event`, write, and `emit` until there is nothing left. Then `emit_answer`. Calls for a connection outside of a
//! turn touch it for the next one. Calls with the key of a connection that is over have no effect.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use lowroad_limits::ConnectionLimit;

use crate::datagram_relay::ProcessWorker;
use crate::datagrams::DatagramTrain;
use crate::tls_session::TlsInfo;

/// Identifies a connection of a [`QuicTransport`]. A key is reused after `QuicEvent::Over`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionKey(pub u32);

/// An event of a connection. The first one is `Opened`, the last one `Over`. If a handshake fails, a
/// server's connection has none, and a client's only `Over`.
#[derive(Debug)]
pub enum QuicEvent {
    /// The handshake is complete, or early data has arrived ([`QuicTransport::is_early`]).
    Opened,
    /// Bytes of a stream in their order.
    Bytes {
        /// The identifier of the stream.
        stream: u64,
        /// The bytes; empty only at the end.
        bytes: Bytes,
        /// The stream ends after them.
        is_end: bool,
    },
    /// The peer has reset a stream.
    Reset {
        /// The identifier of the stream.
        stream: u64,
        /// The error code.
        code: u64,
    },
    /// The peer does not read a stream any more.
    Stopped {
        /// The identifier of the stream.
        stream: u64,
        /// The error code.
        code: u64,
    },
    /// A stream without window can be written again.
    Writable {
        /// The identifier of the stream.
        stream: u64,
    },
    /// The connection has ended. Its last datagrams are still to be emitted.
    Over(CloseReason),
}

/// The reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// [`QuicTransport::close`].
    Local,
    /// The peer's application closed the connection, with this code (RFC 9114 §8.1 for HTTP/3).
    PeerApplication(u64),
    /// The peer's QUIC closed the connection, with this code (RFC 9000 §20.1).
    PeerTransport(u64),
    /// The peer violated QUIC; the close frame had this code.
    Fault(u64),
    /// No packets for the idle timeout.
    Timeout,
    /// The peer has lost the connection's state (stateless reset).
    StatelessReset,
}

/// The stream is closed, or has never been open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuicStreamClosed;

/// The receiver of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramRoute {
    /// This worker.
    Here,
    /// Another worker of this process: its number.
    Worker(u8),
    /// A datagram that may begin a connection. If there are workers that receive nothing from the kernel, the worker
    /// with this number.
    New(u8),
    /// A worker of another process, while one replaces the other. If that process has ended, this worker, which answers
    /// with a stateless reset.
    Process(ProcessWorker),
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuicCounters {
    /// Handshakes that began.
    pub accepted: u64,
    /// Handshakes that completed.
    pub opened: u64,
    /// Connections that were opened by early data (0-RTT).
    pub early: u64,
    /// Handshakes that failed or timed out.
    pub failed: u64,
    /// Handshakes given up after their time limit; they are also in `failed`.
    pub handshake_timeouts: u64,
    /// Clients that had to prove their address.
    pub retried: u64,
    /// Connections refused, since there were too many.
    pub refused_connections: u64,
    /// Connections refused, since too many handshakes were in progress.
    pub refused_handshakes: u64,
    /// Connections refused by the caller.
    pub refused: u64,
    /// Connections ignored by the caller.
    pub ignored: u64,
    /// Answers of the endpoint itself: refusals, Retry, versions, resets.
    pub answers: u64,
    /// Receive windows that did not grow, since all of them had reached their limit.
    pub withheld_windows: u64,
    /// Answers dropped, since too many waited to be sent.
    pub dropped_answers: u64,
}

impl QuicCounters {
    /// Adds other counters.
    pub(crate) fn add(&mut self, other: &QuicCounters) {
        self.accepted += other.accepted;
        self.opened += other.opened;
        self.early += other.early;
        self.failed += other.failed;
        self.handshake_timeouts += other.handshake_timeouts;
        self.retried += other.retried;
        self.refused_connections += other.refused_connections;
        self.refused_handshakes += other.refused_handshakes;
        self.refused += other.refused;
        self.ignored += other.ignored;
        self.answers += other.answers;
        self.withheld_windows += other.withheld_windows;
        self.dropped_answers += other.dropped_answers;
    }
}

/// The share of a connection in the limits of all connections and of its address, given back when it is dropped.
pub struct ConnectionPermit {
    admission: Arc<ConnectionLimit>,
    peer: IpAddr,
}

impl std::fmt::Debug for ConnectionPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ConnectionPermit").field(&self.peer).finish()
    }
}

impl ConnectionPermit {
    /// The permit of a connection that was counted.
    pub(crate) fn new(admission: Arc<ConnectionLimit>, peer: IpAddr) -> ConnectionPermit {
        ConnectionPermit { admission, peer }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.admission.leave(self.peer);
    }
}

/// The connections of one datagram socket. Times are microseconds of the driver's clock.
pub trait QuicTransport: Send {
    /// The receiver of a datagram.
    fn route(&self, datagram: &[u8]) -> DatagramRoute;

    /// Processes the datagrams of a train. `admit` decides about a client that wants to open a connection.
    fn take(
        &mut self,
        train: &DatagramTrain,
        datagram: &[u8],
        now_us: u64,
        admit: &mut dyn FnMut(SocketAddr) -> Option<ConnectionPermit>,
    );

    /// Handles timers that are due.
    fn advance(&mut self, now_us: u64);

    /// The time of the next timer.
    fn due_us(&self) -> Option<u64>;

    /// The next connection that may have events or output. It must be emitted, or postponed.
    fn next_touched(&mut self) -> Option<ConnectionKey>;

    /// Moves a touched connection to the next turn.
    fn postpone(&mut self, key: ConnectionKey);

    /// The next event of a connection.
    fn next_event(&mut self, key: ConnectionKey) -> Option<QuicEvent>;

    /// Writes a train of a connection to `out`, which is cleared before. `None` once all are written.
    fn emit(&mut self, key: ConnectionKey, now_us: u64, out: &mut Vec<u8>)
    -> Option<DatagramTrain>;

    /// Writes a datagram that belongs to no connection to `out`, which is cleared before.
    fn emit_answer(&mut self, out: &mut Vec<u8>) -> Option<DatagramTrain>;

    /// Opens a unidirectional stream. `None`: the peer allows no more.
    fn open(&mut self, key: ConnectionKey) -> Option<u64>;

    /// Writes bytes to a stream, without copying them. Returns the number of bytes taken; the rest stays in `parts`,
    /// until `QuicEvent::Writable`.
    ///
    /// # Errors
    /// The stream is closed.
    fn write(
        &mut self,
        key: ConnectionKey,
        stream: u64,
        parts: &mut [Bytes],
    ) -> Result<usize, QuicStreamClosed>;

    /// Ends a stream after the written bytes. A closed stream stays closed.
    fn finish(&mut self, key: ConnectionKey, stream: u64);

    /// Gives back bytes of `QuicEvent::Bytes` that can't be processed yet, and the end with them. The stream has no
    /// more such events until `resume_reading`, and its window does not open.
    fn put_back(&mut self, key: ConnectionKey, stream: u64, bytes: Bytes, is_end: bool);

    /// Continues a stream after `put_back`.
    fn resume_reading(&mut self, key: ConnectionKey, stream: u64);

    /// Discards the rest of a stream, and sends STOP_SENDING.
    fn stop_reading(&mut self, key: ConnectionKey, stream: u64, code: u64);

    /// Discards unsent bytes of a stream, and ends it with an error code (RESET_STREAM).
    fn reset(&mut self, key: ConnectionKey, stream: u64, code: u64);

    /// Closes a connection with an error code of the application. `QuicEvent::Over` follows.
    fn close(&mut self, key: ConnectionKey, code: u64, reason: &'static str, now_us: u64);

    /// The address of the peer. It changes when the client migrates.
    fn peer_address(&mut self, key: ConnectionKey) -> Option<SocketAddr>;

    /// Whether the bytes of a connection are early data (0-RTT), which may be a replay: its handshake is in progress.
    fn is_early(&mut self, key: ConnectionKey) -> bool;

    /// The parameters of TLS, once they are known; `None` without cryptography.
    fn tls_info(&mut self, key: ConnectionKey) -> Option<Arc<TlsInfo>>;

    /// Sends a packet that the peer acknowledges, so that neither side considers the connection idle.
    fn keep_alive(&mut self, key: ConnectionKey);

    /// The streams of a connection with bytes that are not acknowledged, or without an end.
    fn unfinished_streams(&mut self, key: ConnectionKey) -> usize;

    /// The number of connections, including those during the handshake and before the end is acknowledged.
    fn connection_count(&self) -> u32;

    /// Handshakes in progress.
    fn handshakes(&self) -> u32;

    /// The counters.
    fn counters(&self) -> QuicCounters;
}
