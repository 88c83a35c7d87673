//! Calls of the application for streams and connections.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use lowroad_tls::quic::HandshakeSummary;
use quinn_proto::{Dir, VarInt};

use crate::connection::ConnectionPhase;
use crate::endpoint::QuicEndpoint;
use crate::event::{ConnectionKey, QuicStreamClosed};

impl<P> QuicEndpoint<P> {
    /// Opens a stream of this side. `None`: the peer allows no more.
    pub fn open(&mut self, key: ConnectionKey, is_bidirectional: bool) -> Option<u64> {
        let dir = match is_bidirectional {
            true => Dir::Bi,
            false => Dir::Uni,
        };
        self.find(key)?.inner.streams().open(dir).map(u64::from)
    }

    /// Writes bytes to a stream, without copying them. Returns the number of bytes taken; the rest stays in `parts`,
    /// until `QuicEvent::Writable`.
    ///
    /// # Errors
    /// The stream is closed.
    pub fn write(
        &mut self,
        key: ConnectionKey,
        stream: u64,
        parts: &mut [Bytes],
    ) -> Result<usize, QuicStreamClosed> {
        self.touch(key);
        let slot = self.connections.get_mut(key.0 as usize);
        let connection = slot
            .and_then(Option::as_deref_mut)
            .ok_or(QuicStreamClosed)?;
        connection.write(stream, parts, &self.settings)
    }

    /// Ends a stream after the written bytes.
    ///
    /// # Errors
    /// The stream is closed.
    pub fn finish(&mut self, key: ConnectionKey, stream: u64) -> Result<(), QuicStreamClosed> {
        self.touch(key);
        self.find(key).ok_or(QuicStreamClosed)?.finish(stream)
    }

    /// Gives back bytes of `QuicEvent::Bytes` that can't be processed yet, and the end with them. The stream has no
    /// more such events until `resume_reading`, and its window does not open.
    pub fn put_back(&mut self, key: ConnectionKey, stream: u64, bytes: Bytes, is_end: bool) {
        if let Some(connection) = self.find(key) {
            connection.put_back(stream, bytes, is_end);
        }
    }

    /// Continues a stream after `put_back`.
    pub fn resume_reading(&mut self, key: ConnectionKey, stream: u64) {
        self.touch(key);
        if let Some(connection) = self.find(key) {
            connection.resume_reading(stream);
        }
    }

    /// Discards the rest of a stream, and sends STOP_SENDING.
    ///
    /// # Errors
    /// The stream is closed.
    pub fn stop_reading(
        &mut self,
        key: ConnectionKey,
        stream: u64,
        code: u64,
    ) -> Result<(), QuicStreamClosed> {
        self.touch(key);
        let connection = self.find(key).ok_or(QuicStreamClosed)?;
        connection.stop_reading(stream, error_code(code))
    }

    /// Discards unsent bytes of a stream, and ends it with an error code (RESET_STREAM).
    ///
    /// # Errors
    /// The stream is closed.
    pub fn reset(
        &mut self,
        key: ConnectionKey,
        stream: u64,
        code: u64,
    ) -> Result<(), QuicStreamClosed> {
        self.touch(key);
        let connection = self.find(key).ok_or(QuicStreamClosed)?;
        connection.reset(stream, error_code(code))
    }

    /// Closes a connection with an error code of the application. `QuicEvent::Over` follows.
    pub fn close(&mut self, key: ConnectionKey, code: u64, reason: &'static str, now_us: u64) {
        let now = self.instant(now_us);
        self.touch(key);
        if let Some(connection) = self.find(key)
            && connection.close(now, error_code(code), reason)
        {
            self.record_handshake(false);
        }
    }

    /// The address of the peer. It changes when the client migrates, so read it for each request.
    pub fn peer_address(&mut self, key: ConnectionKey) -> Option<SocketAddr> {
        self.find(key)
            .map(|connection| connection.inner.remote_address())
    }

    /// Whether bytes of a connection are early data (0-RTT), which may be a replay: its handshake is in progress.
    pub fn is_early(&mut self, key: ConnectionKey) -> bool {
        self.find(key)
            .is_some_and(|connection| connection.phase == ConnectionPhase::Early)
    }

    /// The negotiated values of TLS, once they are known; `None` without cryptography.
    pub fn handshake_summary(&mut self, key: ConnectionKey) -> Option<Arc<HandshakeSummary>> {
        let summary = self.find(key)?.inner.crypto_session().handshake_data()?;
        summary.downcast().ok().map(|summary| *summary)
    }

    /// Replaces the keys of a connection, for tests.
    pub fn update_keys(&mut self, key: ConnectionKey) {
        self.touch(key);
        if let Some(connection) = self.find(key) {
            connection.inner.force_key_update();
        }
    }

    /// Sends a packet that the peer acknowledges, so that neither side considers the connection idle.
    pub fn keep_alive(&mut self, key: ConnectionKey) {
        self.touch(key);
        if let Some(connection) = self.find(key) {
            connection.inner.ping();
        }
    }

    /// Streams with bytes that are not acknowledged, or without an end.
    #[must_use]
    pub fn unfinished_streams(&mut self, key: ConnectionKey) -> usize {
        self.find(key)
            .map_or(0, |connection| connection.inner.streams().send_streams())
    }
}

/// Error codes have 62 bits; codes beyond are no codes of HTTP/3.
fn error_code(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}
