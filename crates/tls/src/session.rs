//! One connection's TLS over the unbuffered interface of `rustls`, for both sides.
//!
//! Only incomplete input is kept: the start of a record or of a handshake message. All other bytes go straight between
//! the caller's buffers.

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
use crate::records::{FULL_LEN, RecordParser};

/// The largest overhead of a record on the wire: header, explicit nonce, type, tag.
pub const RECORD_OVERHEAD_MAX: usize = 5 + 8 + 1 + 16;
/// Bytes of a record's header.
pub(crate) const HEADER_LEN: usize = 5;

/// The result of received bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveProgress {
    /// These bytes completed the handshake: names and protocols are known, and bytes can be encrypted.
    pub established: bool,
    /// The peer sent close_notify. This side may still send.
    pub closed: bool,
}

/// The meaning of the end of the peer's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerClose {
    /// The peer sent close_notify: all of its bytes have arrived.
    Cleanly,
    /// No close_notify: bytes may be missing, so content that is delimited by the end must not be taken for complete.
    Truncated,
    /// The handshake was not complete.
    InHandshake,
}

/// A connection of `rustls`, of either side.
pub(crate) trait SessionSide {
    /// The side's data in `rustls`.
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

/// One side of a connection.
pub(crate) struct RustlsSession<S> {
    connection: S,
    /// Incomplete input. Holds no allocation while empty.
    pending: Vec<u8>,
    /// During the handshake: bytes of whole records at the front of `pending`, with a message that continues in the
    /// next record.
    complete_len: usize,
    /// A TLS 1.3 server has sent its first flight: the client's records must be encrypted.
    has_key: bool,
    records: RecordParser,
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

/// The part of the input that `rustls` gets.
struct InputWindow {
    /// The start of the window; earlier bytes are consumed.
    used: usize,
    /// The end of the whole records that `rustls` has processed.
    complete: usize,
    end: usize,
    /// The error in the header of the record at `complete`.
    refusal: Option<Error>,
}

/// The action after a state of `rustls`.
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
            records: RecordParser::default(),
            established: false,
            closed: false,
            failed: false,
        }
    }

    pub fn connection(&self) -> &S {
        &self.connection
    }

    /// Whether the handshake is over.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// Processes received bytes. `wire` is used as scratch memory. See `TlsServer::receive`.
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
            self.take(wire, &mut sinks)?;
        }
        // An idle half-closed connection keeps no buffer.
        if self.closed {
            self.pending = Vec::new();
        }
        Ok(ReceiveProgress {
            established: self.established && !previous.0,
            closed: self.closed && !previous.1,
        })
    }

    /// Completes pending input first, with as few bytes as possible; the rest is decrypted in place.
    fn take(&mut self, wire: &mut [u8], sinks: &mut OutputSinks<'_>) -> Result<(), TlsFailure> {
        let mut rest = wire;
        while !self.pending.is_empty() && !rest.is_empty() {
            let (now, remaining) =
                rest.split_at_mut(missing_len(&self.pending[self.complete_len..]).min(rest.len()));
            rest = remaining;
            // Only up to the end of the pending record is copied.
            let mut pending = mem::take(&mut self.pending);
            pending.extend_from_slice(now);
            let used = self.drive(&mut pending, sinks)?;
            pending.drain(..used);
            if !pending.is_empty() {
                self.pending = pending;
            }
        }
        if !rest.is_empty() {
            // The incomplete rest is kept until its remainder arrives.
            let used = self.drive(rest, sinks)?;
            self.pending = rest[used..].to_vec();
        }
        Ok(())
    }

    /// Lets `rustls` process these bytes, of which it has seen the first `complete_len`. Returns the number of consumed
    /// bytes.
    fn drive(&mut self, wire: &mut [u8], sinks: &mut OutputSinks<'_>) -> Result<usize, TlsFailure> {
        let complete_len = mem::take(&mut self.complete_len);
        let mut window = self.window(wire, 0, complete_len);
        loop {
            match self.process(wire, &mut window, sinks) {
                SessionStep::Again => {}
                // `rustls` needs more input: the next record, or the caller's.
                SessionStep::Enough => {
                    self.established |= !self.connection.common().is_handshaking();
                    if window.end == wire.len() {
                        break;
                    }
                    window = self.window(wire, window.used, window.end);
                }
                SessionStep::Failed(error) => {
                    self.failed = true;
                    // The peer learns the reason by an alert.
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

    /// The next input for `rustls`: one record at a time during the handshake, to know which one fails decryption;
    /// later all.
    fn window(&self, wire: &[u8], used: usize, complete: usize) -> InputWindow {
        let next = record_end(wire, complete).filter(|_| !self.established);
        // Within a handshake message `rustls` itself refuses plaintext records.
        let is_checked = self.has_key && !self.established && used == complete;
        let header = wire[complete..].first_chunk().filter(|_| is_checked);
        InputWindow {
            used,
            complete,
            end: next.unwrap_or(wire.len()),
            refusal: header.and_then(|header| decryption::header_error(*header)),
        }
    }

    /// Lets `rustls` take one step with the window.
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
            // Trial decryption: the failed record, the only one in the window, is skipped.
            true => window.end,
            false => window.used + status.discard,
        };
        step
    }

    /// Whether an error gets no alert: TLS 1.3 alerts except user_canceled and close_notify are errors of any level
    /// (RFC 8446, section 6), and alerts are not answered. `rustls` would answer the warning level with decode_error.
    fn ends_silently(&self, error: &Error) -> bool {
        let version = self.connection.common().protocol_version();
        version == Some(ProtocolVersion::TLSv1_3) && matches!(error, Error::AlertReceived(_))
    }

    /// Appends the alerts of `rustls` after an error. The connection must not be used for anything else afterwards.
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

    /// Appends the bytes that are sent before any input: a client's ClientHello.
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

    /// Encrypts pieces, in order. See `TlsServer::encrypt`.
    pub fn encrypt(
        &mut self,
        pieces: &[&[u8]],
        to_send: &mut Vec<u8>,
        now_ms: u64,
    ) -> Result<(), TlsFailure> {
        let small = self.records.begin(now_ms);
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

    /// The meaning of the end of the peer's bytes.
    pub fn peer_close(&self) -> PeerClose {
        match (self.closed, self.established) {
            (true, _) => PeerClose::Cleanly,
            (false, true) => PeerClose::Truncated,
            (false, false) => PeerClose::InHandshake,
        }
    }

    /// Calls `write` in the only state in which `rustls` accepts output. `rustls` needs the pending input again, since
    /// it keeps positions in it.
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

    /// Returns the connection, its incomplete input and its record sizes.
    pub fn into_parts(self) -> Result<(S, Vec<u8>, RecordParser), TlsFailure> {
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

/// Bytes that complete the pending input: a header, then its record. Unlimited if the record is complete and its
/// handshake message continues.
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
        // Early data is never offered, so none is accepted.
        _ => SessionStep::Enough,
    }
}

fn encode<D>(data: &mut EncodeTlsData<'_, D>, to_send: &mut Vec<u8>) -> Result<(), Error> {
    let start = to_send.len();
    let needed_len = match data.encode(&mut []) {
        // rustls reports the size only as the error of an empty buffer.
        Err(EncodeError::InsufficientSize(size)) => size.required_size,
        _ => return Err(Error::General("an empty record".into())),
    };
    to_send.resize(start + needed_len, 0);
    let encoded = data.encode(&mut to_send[start..]);
    encoded
        .map(|_| ())
        .map_err(|error| Error::General(error.to_string()))
}

/// Calls `write` with room at the end of `to_send`, and again with more if it needs more.
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
                // No part of a record may be sent.
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
    // One reservation for all records: memory grows at most once.
    to_send.reserve(remaining + (remaining / FULL_LEN + 2) * RECORD_OVERHEAD_MAX);
    while remaining > 0 {
        let len = RecordParser::len(mem::take(&mut small), remaining);
        let plain = pieces.take(len, &mut gathered);
        with_room(to_send, len + RECORD_OVERHEAD_MAX, |room| {
            writer.encrypt(plain, room)
        })?;
        remaining -= len;
    }
    Ok(())
}
