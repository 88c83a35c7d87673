//! A TLS session of either side, over the unbuffered interface of `rustls`.
//!
//! Only incomplete input is stored: the start of a record or of a handshake message. All other bytes go directly from
//! one of the caller's buffers to the other.

use std::mem;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{CommonState, Error, ProtocolVersion};

use crate::byte_queue::ByteQueue;
use crate::decryption;
use crate::failure::{TlsFailure, TlsFault};
use crate::records::{FULL_LEN, RecordSizer};

/// The largest overhead of a record: header, explicit nonce, type, tag.
pub const RECORD_OVERHEAD_MAX: usize = 5 + 8 + 1 + 16;
/// Bytes of a record's header.
pub(crate) const HEADER_LEN: usize = 5;

/// The state changes that received bytes caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveProgress {
    /// These bytes completed the handshake: the negotiated values are known, and the application's bytes can be
    /// encrypted.
    pub established: bool,
    /// The peer sent close_notify. This side may still send.
    pub closed: bool,
}

/// How the peer ended its data, once the TCP connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerClose {
    /// The peer sent close_notify: all of its bytes have arrived.
    Cleanly,
    /// No close_notify: bytes may be missing, so content that is delimited by the end of the connection is incomplete.
    Truncated,
    /// The handshake was not complete.
    InHandshake,
}

/// A `rustls` connection of either side.
pub(crate) trait SessionSide {
    /// The side's type parameter in `rustls`.
    type Data;

    /// See [`UnbufferedStatus`].
    fn process<'c, 'w>(&'c mut self, wire: &'w mut [u8]) -> UnbufferedStatus<'c, 'w, Self::Data>;

    /// The state that both sides share.
    fn common(&self) -> &CommonState;
}

impl SessionSide for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'w>(&'c mut self, wire: &'w mut [u8]) -> UnbufferedStatus<'c, 'w, Self::Data> {
        self.process_tls_records(wire)
    }

    fn common(&self) -> &CommonState {
        self
    }
}

impl SessionSide for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'w>(&'c mut self, wire: &'w mut [u8]) -> UnbufferedStatus<'c, 'w, Self::Data> {
        self.process_tls_records(wire)
    }

    fn common(&self) -> &CommonState {
        self
    }
}

/// The session of one connection.
pub(crate) struct RustlsSession<S> {
    connection: S,
    /// Incomplete input. Unallocated while empty.
    pending: Vec<u8>,
    /// During the handshake: the length of the complete records at the front of `pending`. Their handshake message
    /// continues in the next record.
    complete_len: usize,
    /// A TLS 1.3 server has sent its first flight: from now on, the client's records must be encrypted.
    has_key: bool,
    records: RecordSizer,
    established: bool,
    /// The peer sent close_notify.
    closed: bool,
    failed: bool,
}

/// The output buffers.
struct OutputSinks<'a> {
    plain: &'a mut Vec<u8>,
    wire: &'a mut Vec<u8>,
}

/// The part of the input that `rustls` processes next.
struct InputWindow {
    /// The start of the window; earlier bytes have been consumed.
    used: usize,
    /// The end of the complete records that `rustls` has already seen.
    complete: usize,
    end: usize,
    /// The error in the header of the record at `complete`; the record is rejected with it.
    refusal: Option<Error>,
}

/// The next action after `rustls` returned a state.
enum SessionStep {
    Again,
    Enough,
    Failed(Error),
}

impl<S: SessionSide> RustlsSession<S> {
    pub fn new(connection: S) -> RustlsSession<S> {
        RustlsSession {
            connection,
            pending: Vec::new(),
            complete_len: 0,
            has_key: false,
            records: RecordSizer::default(),
            established: false,
            closed: false,
            failed: false,
        }
    }

    pub fn connection(&self) -> &S {
        &self.connection
    }

    /// Whether the handshake is complete.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// Processes received bytes; decrypts in place, in `wire`. See `TlsServer::receive`.
    pub fn receive(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        to_send: &mut Vec<u8>,
    ) -> Result<ReceiveProgress, TlsFailure> {
        let previous = (self.established, self.closed);
        let mut sinks = OutputSinks {
            plain,
            wire: to_send,
        };
        if !self.failed && !self.closed {
            self.consume(wire, &mut sinks)?;
        }
        // A half-closed connection keeps no buffer.
        if self.closed {
            self.pending = Vec::new();
        }
        Ok(ReceiveProgress {
            established: self.established && !previous.0,
            closed: self.closed && !previous.1,
        })
    }

    /// Completes the pending input first, with as few bytes as possible; the rest of `wire` is decrypted in place.
    fn consume(&mut self, wire: &mut [u8], sinks: &mut OutputSinks<'_>) -> Result<(), TlsFailure> {
        let mut rest = wire;
        while !self.pending.is_empty() && !rest.is_empty() {
            let (now, remaining) =
                rest.split_at_mut(missing_len(&self.pending[self.complete_len..]).min(rest.len()));
            rest = remaining;
            // Only the bytes up to the end of the pending record are copied.
            let mut pending = mem::take(&mut self.pending);
            pending.extend_from_slice(now);
            let used = self.drive(&mut pending, sinks)?;
            pending.drain(..used);
            if !pending.is_empty() {
                self.pending = pending;
            }
        }
        if !rest.is_empty() {
            // An incomplete record at the end is stored until the rest of it arrives.
            let used = self.drive(rest, sinks)?;
            self.pending = rest[used..].to_vec();
        }
        Ok(())
    }

    /// Runs `rustls` on `wire`, of which it has already seen the first `complete_len` bytes. Returns the number of
    /// consumed bytes.
    fn drive(&mut self, wire: &mut [u8], sinks: &mut OutputSinks<'_>) -> Result<usize, TlsFailure> {
        let complete_len = mem::take(&mut self.complete_len);
        let mut window = self.window(wire, 0, complete_len);
        loop {
            match self.process(wire, &mut window, sinks) {
                SessionStep::Again => {}
                // `rustls` needs more input: the next record, or bytes that have not arrived.
                SessionStep::Enough => {
                    self.established |= !self.connection.common().is_handshaking();
                    if window.end == wire.len() {
                        break;
                    }
                    window = self.window(wire, window.used, window.end);
                }
                SessionStep::Failed(error) => {
                    self.failed = true;
                    // An alert tells the peer the reason.
                    if !self.ends_silently(&error) {
                        self.send_alert(&mut wire[window.used..], sinks);
                    }
                    return Err(TlsFailure::from_error(error));
                }
            }
        }
        if !self.established {
            let complete = record_end(wire, window.complete).unwrap_or(window.complete);
            self.complete_len = complete.saturating_sub(window.used);
        }
        Ok(window.used)
    }

    /// The next input for `rustls`: during the handshake one record at a time, to know which record fails decryption;
    /// afterwards all input.
    fn window(&self, wire: &[u8], used: usize, complete: usize) -> InputWindow {
        let next = record_end(wire, complete).filter(|_| !self.established);
        // In the middle of a handshake message, `rustls` itself rejects plaintext records.
        let is_checked = self.has_key && !self.established && used == complete;
        let header = wire[complete..].first_chunk().filter(|_| is_checked);
        InputWindow {
            used,
            complete,
            end: next.unwrap_or(wire.len()),
            refusal: header.and_then(|header| decryption::header_error(*header)),
        }
    }

    /// Calls `rustls` once with the window.
    fn process(
        &mut self,
        wire: &mut [u8],
        window: &mut InputWindow,
        sinks: &mut OutputSinks<'_>,
    ) -> SessionStep {
        let mut refused_record;
        let bytes = match window.refusal.take() {
            Some(error) => {
                refused_record = decryption::refused_record(error);
                &mut refused_record[..]
            }
            None => &mut wire[window.used..window.end],
        };
        let (status, events) = decryption::watch(|| self.connection.process(bytes));
        let step = match status.state {
            Ok(ConnectionState::PeerClosed) => {
                self.closed = true;
                SessionStep::Again
            }
            Ok(state) => step(state, sinks),
            Err(error) => SessionStep::Failed(error),
        };
        self.has_key |= events.has_key;
        window.used = match events.has_failed {
            // Trial decryption: the record that failed, the only one in the window, is skipped.
            true => window.end,
            false => window.used + status.discard,
        };
        step
    }

    /// Whether no alert is sent for an error: in TLS 1.3, received alerts other than user_canceled and close_notify are
    /// errors at any level (RFC 8446, section 6), and alerts are not answered. `rustls` would answer one at warning
    /// level with decode_error.
    fn ends_silently(&self, error: &Error) -> bool {
        let version = self.connection.common().protocol_version();
        version == Some(ProtocolVersion::TLSv1_3) && matches!(error, Error::AlertReceived(_))
    }

    /// Appends the alert that `rustls` has queued for an error. The session must not be used afterwards.
    fn send_alert(&mut self, wire: &mut [u8], sinks: &mut OutputSinks<'_>) {
        while self.connection.common().wants_write() {
            let Ok(ConnectionState::EncodeTlsData(mut data)) = self.connection.process(wire).state
            else {
                return;
            };
            if encode(&mut data, sinks.wire).is_err() {
                return;
            }
        }
    }

    /// Appends the bytes that are sent before any input arrives: a client's ClientHello.
    pub fn start(&mut self, to_send: &mut Vec<u8>) -> Result<(), TlsFailure> {
        let plain = &mut Vec::new();
        self.drive(
            &mut [],
            &mut OutputSinks {
                plain,
                wire: to_send,
            },
        )
        .map(|_| ())
    }

    /// Encrypts `pieces`, in order. See `TlsServer::encrypt`.
    pub fn encrypt(
        &mut self,
        pieces: &[&[u8]],
        to_send: &mut Vec<u8>,
        now_ms: u64,
    ) -> Result<(), TlsFailure> {
        let small = self.records.record_send(now_ms);
        self.when_writable(to_send, |writer, to_send| {
            seal_all(writer, pieces, to_send, small)
        })
    }

    /// Appends close_notify.
    pub fn close(&mut self, to_send: &mut Vec<u8>) -> Result<(), TlsFailure> {
        self.when_writable(to_send, |writer, to_send| {
            with_room(to_send, RECORD_OVERHEAD_MAX + 2, |room| {
                writer.queue_close_notify(room)
            })
        })
    }

    /// See `TlsServer::peer_close`.
    pub fn peer_close(&self) -> PeerClose {
        match (self.closed, self.established) {
            (true, _) => PeerClose::Cleanly,
            (false, true) => PeerClose::Truncated,
            (false, false) => PeerClose::InHandshake,
        }
    }

    /// Brings `rustls` to the only state in which it accepts output, and calls `write`. `rustls` gets the pending input
    /// again, since it refers to positions in it.
    fn when_writable(
        &mut self,
        to_send: &mut Vec<u8>,
        write: impl FnOnce(&mut WriteTraffic<'_, S::Data>, &mut Vec<u8>) -> Result<(), TlsFailure>,
    ) -> Result<(), TlsFailure> {
        if self.failed || !self.established {
            return Err(TlsFault::NotReady.into());
        }
        loop {
            let state = self.connection.process(&mut self.pending).state;
            let state = state.inspect_err(|_| self.failed = true);
            match state.map_err(TlsFailure::from_error)? {
                ConnectionState::WriteTraffic(mut writer) => return write(&mut writer, to_send),
                ConnectionState::EncodeTlsData(mut data) => {
                    encode(&mut data, to_send).map_err(TlsFailure::from_error)?;
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                _ => return Err(TlsFault::NotReady.into()),
            }
        }
    }

    /// Returns the connection, its incomplete input, and the state of record sizing.
    pub fn into_parts(self) -> Result<(S, Vec<u8>, RecordSizer), TlsFailure> {
        if !self.established || self.failed || self.closed {
            return Err(TlsFault::NotReady.into());
        }
        Ok((self.connection, self.pending, self.records))
    }
}

/// The end of the record that begins at `start`, if the record is complete.
fn record_end(wire: &[u8], start: usize) -> Option<usize> {
    let rest = wire.get(start..)?;
    let header = rest.first_chunk::<HEADER_LEN>()?;
    let len = HEADER_LEN + usize::from(u16::from_be_bytes([header[3], header[4]]));
    (len <= rest.len()).then_some(start + len)
}

/// The number of bytes that complete the pending input: first its header, then its record. Unlimited if the record is
/// complete and its handshake message continues in the next one.
pub(crate) fn missing_len(pending: &[u8]) -> usize {
    let Some(header) = pending.first_chunk::<HEADER_LEN>() else {
        return HEADER_LEN - pending.len();
    };
    let record_len = HEADER_LEN + usize::from(u16::from_be_bytes([header[3], header[4]]));
    match record_len.saturating_sub(pending.len()) {
        0 => usize::MAX,
        missing => missing,
    }
}

fn step<D>(state: ConnectionState<'_, '_, D>, sinks: &mut OutputSinks<'_>) -> SessionStep {
    match state {
        ConnectionState::ReadTraffic(mut records) => {
            while let Some(record) = records.next_record() {
                match record {
                    Ok(record) => sinks.plain.extend_from_slice(record.payload),
                    Err(error) => return SessionStep::Failed(error),
                }
            }
            SessionStep::Again
        }
        ConnectionState::EncodeTlsData(mut data) => match encode(&mut data, sinks.wire) {
            Ok(()) => SessionStep::Again,
            Err(error) => SessionStep::Failed(error),
        },
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            SessionStep::Again
        }
        // Any other state. Early data is never offered, so none arrives.
        _ => SessionStep::Enough,
    }
}

fn encode<D>(data: &mut EncodeTlsData<'_, D>, to_send: &mut Vec<u8>) -> Result<(), Error> {
    let start = to_send.len();
    let needed_len = match data.encode(&mut []) {
        // `rustls` reports the required size only as an error for a buffer that is too small.
        Err(EncodeError::InsufficientSize(size)) => size.required_size,
        _ => return Err(Error::General("an empty record".into())),
    };
    to_send.resize(start + needed_len, 0);
    let encoded = data.encode(&mut to_send[start..]);
    encoded
        .map(|_| ())
        .map_err(|error| Error::General(error.to_string()))
}

/// Calls `write` with `room_len` bytes at the end of `to_send`; if it needs more, calls it again with more.
fn with_room(
    to_send: &mut Vec<u8>,
    room_len: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), TlsFailure> {
    let start = to_send.len();
    let mut room_len = room_len;
    loop {
        to_send.resize(start + room_len, 0);
        match write(&mut to_send[start..]) {
            Ok(len) => {
                to_send.truncate(start + len);
                return Ok(());
            }
            Err(EncryptError::InsufficientSize(size)) if size.required_size > room_len => {
                room_len = size.required_size;
            }
            Err(_) => {
                // A partial record must not be sent.
                to_send.truncate(start);
                return Err(TlsFault::Exhausted.into());
            }
        }
    }
}

fn seal_all<D>(
    writer: &mut WriteTraffic<'_, D>,
    pieces: &[&[u8]],
    to_send: &mut Vec<u8>,
    small: bool,
) -> Result<(), TlsFailure> {
    let mut remaining: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut gathered = Vec::new();
    let mut pieces = ByteQueue::new(pieces);
    let mut small = small;
    // One reservation for all records, so that `to_send` is reallocated at most once.
    to_send.reserve(remaining + (remaining / FULL_LEN + 2) * RECORD_OVERHEAD_MAX);
    while remaining > 0 {
        let len = RecordSizer::len(mem::take(&mut small), remaining);
        let plain = pieces.take(len, &mut gathered);
        with_room(to_send, len + RECORD_OVERHEAD_MAX, |room| {
            writer.encrypt(plain, room)
        })?;
        remaining -= len;
    }
    Ok(())
}
