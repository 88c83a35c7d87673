//! A connection: translates events, keeps bytes that the caller has put back, and raises windows.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{
    Connection, Dir, Event, ReadError, SendStream, StreamEvent, StreamId, VarInt, WriteError,
};

use crate::event::{CloseReason, QuicEvent, QuicStreamClosed, close_reason, received_alert};
use crate::receive_window::{WindowBudget, WindowGrowth};
use crate::settings::QuicSettings;

/// The progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionPhase {
    Handshake,
    /// The handshake of a server is in progress, and early data is read.
    Early,
    Open,
    /// Ended; `Over` is to be returned.
    Ending(CloseReason),
    /// The caller has no state of the connection. Its last datagrams may still be sent.
    Over,
}

impl ConnectionPhase {
    /// Whether the handshake is in progress.
    pub fn is_handshake(self) -> bool {
        matches!(self, ConnectionPhase::Handshake | ConnectionPhase::Early)
    }

    /// Whether the caller has a state of the connection, and streams are read.
    fn is_open(self) -> bool {
        matches!(self, ConnectionPhase::Early | ConnectionPhase::Open)
    }
}

/// Bytes of a stream that QUIC has given out, and the caller has not taken.
#[derive(Debug, Default)]
struct UnreadInput {
    parts: VecDeque<Bytes>,
    /// The stream ends after `parts`.
    is_ended: bool,
    /// Reading waits for the caller.
    is_paused: bool,
}

/// The state of a connection. `P` is the caller's permit.
#[derive(Debug)]
pub(crate) struct QuicConnection<P> {
    pub inner: Connection,
    pub phase: ConnectionPhase,
    /// The connection is in the endpoint's queue, or being processed.
    pub is_touched: bool,
    /// Whether early data is read during the handshake: the client has proved its address by a token. Otherwise a forged
    /// address could send requests.
    pub reads_early_data: bool,
    /// The TLS alert with which the client has ended the handshake.
    pub alert: Option<u8>,
    /// The time at which a handshake in progress is given up.
    pub handshake_due_us: u64,
    /// Dropped with the connection.
    _permit: P,
    /// Streams with bytes to read.
    readable: VecDeque<u64>,
    unread: BTreeMap<u64, UnreadInput>,
    pub growth: WindowGrowth,
    streams_max: u16,
    send_window: u64,
}

impl<P> QuicConnection<P> {
    pub fn new(inner: Connection, permit: P, settings: &QuicSettings, now_us: u64) -> Self {
        QuicConnection {
            inner,
            phase: ConnectionPhase::Handshake,
            is_touched: false,
            reads_early_data: false,
            alert: None,
            handshake_due_us: now_us + u64::from(settings.handshake_timeout_ms) * 1000,
            _permit: permit,
            readable: VecDeque::new(),
            unread: BTreeMap::new(),
            growth: WindowGrowth::new(settings, now_us),
            streams_max: settings.streams_first,
            send_window: settings.send_window_first.into(),
        }
    }

    /// The next event.
    pub fn next_event(
        &mut self,
        settings: &QuicSettings,
        budget: &mut WindowBudget,
        now_us: u64,
    ) -> Option<QuicEvent> {
        loop {
            if let ConnectionPhase::Ending(reason) = self.phase {
                self.phase = ConnectionPhase::Over;
                // The connection may stay for three timeouts more, without these bytes.
                self.readable = VecDeque::new();
                self.unread = BTreeMap::new();
                return Some(QuicEvent::Over(reason));
            }
            let Some(event) = self.inner.poll() else {
                break;
            };
            let translated = self.translate(event, settings);
            // Events of streams may follow the end.
            if translated.is_some() && self.phase != ConnectionPhase::Over {
                return translated;
            }
        }
        while self.phase.is_open()
            && let Some(stream) = self.readable.pop_front()
        {
            // Streams that are paused or have nothing to read are skipped.
            let event = self.read(stream, settings, budget, now_us);
            if event.is_some() {
                return event;
            }
        }
        None
    }

    fn translate(&mut self, event: Event, settings: &QuicSettings) -> Option<QuicEvent> {
        match event {
            Event::Connected if self.phase == ConnectionPhase::Handshake => {
                self.phase = ConnectionPhase::Open;
                Some(QuicEvent::Opened)
            }
            Event::Connected if self.phase == ConnectionPhase::Early => {
                // The caller knows the connection already.
                self.phase = ConnectionPhase::Open;
                None
            }
            Event::ConnectionLost { reason } => {
                if self.phase.is_handshake() {
                    self.alert = received_alert(&reason);
                }
                self.phase = match self.phase {
                    // The caller knows a connection that it has opened itself.
                    ConnectionPhase::Handshake if self.inner.side().is_server() => {
                        ConnectionPhase::Over
                    }
                    ConnectionPhase::Over => ConnectionPhase::Over,
                    _ => ConnectionPhase::Ending(close_reason(&reason)),
                };
                None
            }
            Event::Stream(StreamEvent::Opened { dir }) => {
                // The first bytes of a stream are announced with the stream only.
                while let Some(id) = self.inner.streams().accept(dir) {
                    self.queue_reading(id.into());
                }
                self.raise_streams(dir, settings);
                // Before the end of the handshake only early data can have opened a stream of the client.
                let is_early = self.phase == ConnectionPhase::Handshake && self.reads_early_data;
                if is_early {
                    self.phase = ConnectionPhase::Early;
                }
                is_early.then_some(QuicEvent::Opened)
            }
            Event::Stream(StreamEvent::Readable { id }) => self.notice_input(id),
            Event::Stream(StreamEvent::Writable { id }) => {
                Some(QuicEvent::Writable { stream: id.into() })
            }
            Event::Stream(StreamEvent::Stopped { id, error_code }) => Some(QuicEvent::Stopped {
                stream: id.into(),
                code: error_code.into_inner(),
            }),
            _ => None,
        }
    }

    /// Allows four times as many concurrent requests once three quarters are in use. One step to the maximum would cost
    /// a client of 20 requests as much memory as one of 100: `quinn-proto` keeps the entries.
    fn raise_streams(&mut self, dir: Dir, settings: &QuicSettings) {
        let open = self.inner.streams().remote_open_streams(Dir::Bi);
        if dir == Dir::Bi
            && self.streams_max < settings.streams_max
            && open * 4 >= u64::from(self.streams_max) * 3
        {
            let raised = self.streams_max.saturating_mul(4);
            self.streams_max = raised.min(settings.streams_max);
            self.inner
                .set_max_concurrent_streams(Dir::Bi, self.streams_max.into());
        }
    }

    fn queue_reading(&mut self, stream: u64) {
        // Each packet announces its streams; the queue is as short as the number of open streams.
        if !self.readable.contains(&stream) {
            self.readable.push_back(stream);
        }
    }

    /// New bytes of a paused stream wait; a reset does not, since it frees what is waiting.
    fn notice_input(&mut self, id: StreamId) -> Option<QuicEvent> {
        let stream = u64::from(id);
        if !self.unread.get(&stream).is_some_and(|it| it.is_paused) {
            self.queue_reading(stream);
            return None;
        }
        let code = self.inner.recv_stream(id).received_reset().ok().flatten()?;
        // The client has given up what waits here.
        self.unread.remove(&stream);
        let code = code.into_inner();
        Some(QuicEvent::Reset { stream, code })
    }

    /// Reads the next bytes of a stream, and one part more, to know whether the stream ends.
    fn read(
        &mut self,
        stream: u64,
        settings: &QuicSettings,
        budget: &mut WindowBudget,
        now_us: u64,
    ) -> Option<QuicEvent> {
        let mut unread = self.unread.remove(&stream).unwrap_or_default();
        if unread.is_paused {
            self.unread.insert(stream, unread);
            return None;
        }
        let mut read_len = 0;
        // Only two parts are taken at once: bytes that QUIC keeps hold the window.
        if !unread.is_ended && unread.parts.len() < 2 {
            let reset = read_parts(&mut self.inner, stream, &mut unread, &mut read_len);
            // Bytes before a reset may be discarded (RFC 9000 §3.2).
            if let Some(code) = reset {
                return Some(QuicEvent::Reset { stream, code });
            }
        }
        let rtt_us = self.inner.rtt().as_micros() as u64;
        let window = self
            .growth
            .record(read_len, now_us, rtt_us, settings.window_max, budget);
        if let Some(window) = window {
            self.inner.set_receive_window(window.into());
        }
        let part = unread.parts.pop_front();
        let is_end = unread.is_ended && unread.parts.is_empty();
        if part.is_none() && !is_end {
            return None;
        }
        if !unread.parts.is_empty() {
            self.unread.insert(stream, unread);
        }
        if !is_end {
            // Until a read finds nothing.
            self.readable.push_front(stream);
        }
        Some(QuicEvent::Bytes {
            stream,
            bytes: part.unwrap_or_default(),
            is_end,
        })
    }

    /// Keeps bytes for later, in front of all others of the stream, and stops reading the stream.
    pub fn put_back(&mut self, stream: u64, bytes: Bytes, is_end: bool) {
        let unread = self.unread.entry(stream).or_default();
        unread.is_paused = true;
        unread.is_ended |= is_end;
        if !bytes.is_empty() {
            unread.parts.push_front(bytes);
        }
    }

    /// Continues a stream after `put_back`.
    pub fn resume_reading(&mut self, stream: u64) {
        if let Some(unread) = self.unread.get_mut(&stream) {
            unread.is_paused = false;
            self.queue_reading(stream);
        }
    }

    /// Discards the rest of a stream, and sends STOP_SENDING.
    pub fn stop_reading(&mut self, stream: u64, code: VarInt) -> Result<(), QuicStreamClosed> {
        self.unread.remove(&stream);
        // A read of a stopped stream is an error.
        self.readable.retain(|queued| *queued != stream);
        let id = stream_id(stream)?;
        if id.dir() == Dir::Uni && id.initiator() == self.inner.side() {
            return Err(QuicStreamClosed);
        }
        let stopped = self.inner.recv_stream(id).stop(code);
        stopped.map_err(|_| QuicStreamClosed)
    }

    /// Writes parts. Returns the bytes taken; the rest stays in `parts`.
    pub fn write(
        &mut self,
        stream: u64,
        parts: &mut [Bytes],
        settings: &QuicSettings,
    ) -> Result<usize, QuicStreamClosed> {
        // As many bytes as two round trips carry keep the connection busy; more would only occupy memory.
        let wanted = self.inner.congestion_state().window().saturating_mul(2);
        let first = u64::from(settings.send_window_first);
        let wanted = wanted.clamp(first, first.max(settings.send_window_max.into()));
        // A change wakes streams that the smaller window has blocked.
        if wanted != self.send_window {
            self.send_window = wanted;
            self.inner.set_send_window(wanted);
        }
        let mut taken = 0;
        let mut rest = parts;
        while !rest.is_empty() {
            match self.sender(stream)?.write_chunks(rest) {
                Ok(written) if written.bytes > 0 => {
                    taken += written.bytes;
                    rest = &mut rest[written.chunks..];
                }
                // Written again after a partial write, so that `Writable` follows.
                Ok(_) | Err(WriteError::Blocked) => break,
                Err(_) => return Err(QuicStreamClosed),
            }
        }
        Ok(taken)
    }

    /// Ends a stream after the written bytes.
    pub fn finish(&mut self, stream: u64) -> Result<(), QuicStreamClosed> {
        self.sender(stream)?.finish().map_err(|_| QuicStreamClosed)
    }

    /// Discards unsent bytes of a stream, and ends it with an error code.
    pub fn reset(&mut self, stream: u64, code: VarInt) -> Result<(), QuicStreamClosed> {
        self.sender(stream)?
            .reset(code)
            .map_err(|_| QuicStreamClosed)
    }

    fn sender(&mut self, stream: u64) -> Result<SendStream<'_>, QuicStreamClosed> {
        let id = stream_id(stream)?;
        if id.dir() == Dir::Uni && id.initiator() != self.inner.side() {
            return Err(QuicStreamClosed);
        }
        Ok(self.inner.send_stream(id))
    }

    /// Closes the connection with an error code of the application. Returns whether that ends its handshake.
    pub fn close(&mut self, now: Instant, code: VarInt, reason: &'static str) -> bool {
        let is_handshake = self.phase.is_handshake();
        self.inner
            .close(now, code, Bytes::from_static(reason.as_bytes()));
        self.phase = match self.phase {
            ConnectionPhase::Early | ConnectionPhase::Open => {
                ConnectionPhase::Ending(CloseReason::Local)
            }
            // The caller knows a connection that it has opened itself.
            ConnectionPhase::Handshake if self.inner.side().is_client() => {
                ConnectionPhase::Ending(CloseReason::Local)
            }
            ConnectionPhase::Handshake => ConnectionPhase::Over,
            ended => ended,
        };
        is_handshake
    }
}

/// Reads until two parts are there, or the end. Returns the code of a reset.
fn read_parts(
    connection: &mut Connection,
    stream: u64,
    unread: &mut UnreadInput,
    read_len: &mut u64,
) -> Option<u64> {
    let id = stream_id(stream).ok()?;
    let mut receiver = connection.recv_stream(id);
    let mut chunks = receiver.read(true).ok()?;
    let mut reset = None;
    while unread.parts.len() < 2 && !unread.is_ended {
        match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => {
                *read_len += chunk.bytes.len() as u64;
                unread.parts.push_back(chunk.bytes);
            }
            // `quinn-proto` has forgotten the stream; another read would fail.
            Ok(None) => unread.is_ended = true,
            Err(ReadError::Blocked) => break,
            Err(ReadError::Reset(code)) => {
                reset = Some(code.into_inner());
                break;
            }
        }
    }
    // The windows that this opens are sent with the next datagrams.
    _ = chunks.finalize();
    reset
}

/// The stream of an identifier, if it is one (RFC 9000 §16: 62 bits).
pub(crate) fn stream_id(stream: u64) -> Result<StreamId, QuicStreamClosed> {
    let id = VarInt::from_u64(stream).map_err(|_| QuicStreamClosed)?;
    Ok(StreamId::from(id))
}
