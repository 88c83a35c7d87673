//! The part of an HTTP/2 connection that client and server share: frame input, streams, windows, settings, shutdown.
//! Field blocks are passed undecoded to `super::H2Server` or `super::H2Client`. Sending is in `data_send`, control
//! frames are in `control`. Read RFC 9113 §3.4, §5 and §6.

use alloc::vec::Vec;

use lowroad_limits::BucketState;

use super::data_receive::DataPayload;
use super::error::{ConnectionError, ErrorCode};
use super::frame::{self, FrameHead, HEAD_LEN, flag, kind};
use super::hpack::HpackDecoder;
use super::reset_streams::ResetStreams;
use super::settings::{PeerSettings, TABLE_LEN, WINDOW_LEN};
use super::streams::{H2Stream, H2StreamTable, StreamInput, StreamOutput, StreamWindows};
use super::window::{BdpEstimate, FlowControlWindow};
use super::{ConnectionTurn, settings};
use crate::refusal::RequestRefusal;
use crate::streams::{EarlyPriorities, GoawayState, Priority, PriorityQueue};

/// The client connection preface (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long the rest of an unwanted body is read and dropped after the response.
const LINGER_MS: u64 = 5000;

/// One side of a connection.
#[derive(Debug)]
pub(super) struct H2Connection {
    pub(super) is_server: bool,
    pub(super) phase: ConnectionPhase,
    pub(super) decoder: HpackDecoder,
    /// The DATA frame in progress.
    pub(super) data: Option<DataPayload>,
    /// The field block in progress, which CONTINUATION frames extend.
    block: Option<ContinuedBlock>,
    pub(super) streams: H2StreamTable,
    /// A stream with output that has just ended; it is removed after its last bytes are written. 0: none.
    pub(super) last_ended: u32,
    pub(super) queue: PriorityQueue,
    pub(super) peer: PeerSettings,
    /// The connection's window for sending.
    pub(super) send_window: i32,
    /// The connection's window for receiving.
    pub(super) window: FlowControlWindow,
    pub(super) estimate: BdpEstimate,
    /// The highest stream that has begun.
    pub(super) last_id: u32,
    pub(super) goaway: GoawayState,
    /// The last stream of the GOAWAY that the peer sent.
    pub(super) peer_last_id: Option<u32>,
    /// The number of sent SETTINGS frames that are not acknowledged.
    pub(super) unacknowledged: u8,
    /// The peer reduced the size of its decoding table; the next field block has to acknowledge that (RFC 7541 §4.2).
    pub(super) must_confirm_table_len: bool,
    pub(super) resets: BucketState,
    pub(super) glitches: BucketState,
    /// Glitches compensated by sent data; subtracted at the next glitch.
    pub(super) glitch_credit: u32,
    pub(super) reset_streams: ResetStreams,
    /// Priorities of streams that have not begun.
    pub(super) early_priorities: EarlyPriorities,
    /// Some answered streams may still receive the rest of their requests' bodies.
    pub(super) may_have_lingering: bool,
}

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionPhase {
    /// The client's preface is expected.
    Preface,
    /// The peer's SETTINGS frame is expected.
    Settings,
    Open,
    /// Input is discarded.
    Ended,
}

/// A field block that is continued in CONTINUATION frames.
#[derive(Debug)]
struct ContinuedBlock {
    stream: u32,
    is_end: bool,
    bytes: Vec<u8>,
    continuations: u32,
}

/// The result of processing a frame.
#[derive(Debug)]
pub(super) enum ConnectionEvent<'b> {
    Nothing,
    /// A field block. It has to be decoded in any case, to keep the dynamic table synchronized.
    Block {
        stream: u32,
        is_end: bool,
        block: FieldBlockFragment<'b>,
    },
    Data {
        stream: u32,
        data: &'b [u8],
    },
    End {
        stream: u32,
    },
    Refused {
        stream: u32,
        refusal: RequestRefusal,
    },
    Reset {
        stream: u32,
        code: ErrorCode,
    },
    GoneAway {
        last_id: u32,
        code: ErrorCode,
    },
}

/// A field block: a slice of the input, or gathered from several frames.
#[derive(Debug)]
pub(super) enum FieldBlockFragment<'b> {
    Whole(&'b [u8]),
    Gathered(Vec<u8>),
}

impl FieldBlockFragment<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            FieldBlockFragment::Whole(bytes) => bytes,
            FieldBlockFragment::Gathered(bytes) => bytes,
        }
    }
}

impl H2Connection {
    pub(super) fn new(is_server: bool) -> H2Connection {
        H2Connection {
            is_server,
            phase: if is_server {
                ConnectionPhase::Preface
            } else {
                ConnectionPhase::Settings
            },
            decoder: HpackDecoder::new(TABLE_LEN),
            data: None,
            block: None,
            streams: H2StreamTable::default(),
            last_ended: 0,
            queue: PriorityQueue::default(),
            peer: PeerSettings::default(),
            send_window: WINDOW_LEN as i32,
            // A connection has twice the window of a stream, see `window_len_max`.
            window: FlowControlWindow::new(2 * WINDOW_LEN),
            estimate: BdpEstimate::NEW,
            last_id: 0,
            goaway: GoawayState::No,
            peer_last_id: None,
            unacknowledged: 0,
            must_confirm_table_len: false,
            resets: BucketState::default(),
            glitches: BucketState::default(),
            glitch_credit: 0,
            reset_streams: ResetStreams::default(),
            early_priorities: EarlyPriorities::default(),
            may_have_lingering: false,
        }
    }

    /// Writes the initial SETTINGS frame.
    pub(super) fn write_initial_settings(&mut self, turn: &mut ConnectionTurn<'_>) {
        let settings = turn.settings;
        let section_len = u32::try_from(settings.section_len_max).unwrap_or(u32::MAX);
        let mut local_settings = Vec::with_capacity(4);
        if self.is_server {
            local_settings.push((
                settings::id::MAX_CONCURRENT_STREAMS,
                u32::from(settings.streams_max),
            ));
            if settings.accepts_connect_protocol {
                local_settings.push((settings::id::ENABLE_CONNECT_PROTOCOL, 1));
            }
        } else {
            turn.out.extend_from_slice(PREFACE);
            local_settings.push((settings::id::ENABLE_PUSH, 0));
        }
        local_settings.push((settings::id::MAX_HEADER_LIST_SIZE, section_len));
        // RFC 9218 §2.1: the priorities of RFC 7540 are not used.
        local_settings.push((settings::id::NO_RFC7540_PRIORITIES, 1));
        frame::put_settings(&local_settings, turn.out);
        self.unacknowledged = 1;
        // SETTINGS_INITIAL_WINDOW_SIZE does not apply to the connection's window (RFC 9113 §6.9.2): enlarge it by an
        // update.
        if let Some(increment) = self.window.flush() {
            frame::put_window_update(0, increment, turn.out);
        }
    }

    /// Processes frames from the start of the input. Returns the bytes consumed and the result; 0 bytes and no result
    /// mean that more input is needed.
    ///
    /// # Errors
    /// A connection error; the caller writes GOAWAY.
    pub(super) fn step<'b>(
        &mut self,
        input: &'b [u8],
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<(usize, ConnectionEvent<'b>), ConnectionError> {
        // The ended stream is not removed in `send`, where the bytes of a body have to follow their frame header.
        self.remove_last_ended(turn.out);
        let mut used = 0;
        loop {
            let rest = input.get(used..).unwrap_or_default();
            let (len, event) = self.process_next(rest, turn)?;
            used += len;
            if len == 0 || !matches!(event, ConnectionEvent::Nothing) {
                return Ok((used, event));
            }
        }
    }

    /// Ends the connection after a connection error of the peer.
    #[cold]
    pub(super) fn fail(&mut self, fault: ConnectionError, turn: &mut ConnectionTurn<'_>) {
        turn.counters.ended += 1;
        turn.counters.floods += u64::from(fault.code == ErrorCode::ENHANCE_YOUR_CALM);
        self.end(fault.code, fault.reason, turn.out);
    }

    /// Writes GOAWAY and stops reading.
    pub(super) fn end(&mut self, code: ErrorCode, debug_data: &str, out: &mut Vec<u8>) {
        if self.phase != ConnectionPhase::Ended {
            // GOAWAY names a stream of the peer: to a server it is 0, since servers open no streams.
            let last_id = if self.is_server { self.last_id } else { 0 };
            frame::put_goaway(last_id, code, debug_data, out);
            self.phase = ConnectionPhase::Ended;
            self.goaway = GoawayState::Gone;
        }
    }

    #[inline]
    pub(super) fn process_next<'b>(
        &mut self,
        rest: &'b [u8],
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<(usize, ConnectionEvent<'b>), ConnectionError> {
        // A DATA frame may be larger than one input buffer.
        if self.data.is_some() {
            return self.continue_data(rest, turn);
        }
        match self.phase {
            ConnectionPhase::Open | ConnectionPhase::Settings => {}
            ConnectionPhase::Preface => return self.preface(rest),
            ConnectionPhase::Ended => return Ok((rest.len(), ConnectionEvent::Nothing)),
        }
        let Some(head) = rest.first_chunk().map(FrameHead::parse) else {
            return Ok((0, ConnectionEvent::Nothing));
        };
        head.check()?;
        self.check_order(head)?;
        // DATA is passed on in parts, since a frame need not fit into the input buffer.
        if head.kind == kind::DATA {
            return self.begin_data(head, rest, turn);
        }
        let len = HEAD_LEN + head.len;
        match rest.get(HEAD_LEN..len) {
            None => Ok((0, ConnectionEvent::Nothing)),
            Some(payload) => Ok((len, self.frame(head, payload, turn)?)),
        }
    }

    fn preface<'b>(
        &mut self,
        rest: &[u8],
    ) -> Result<(usize, ConnectionEvent<'b>), ConnectionError> {
        let common_len = rest.len().min(PREFACE.len());
        // A request in HTTP/1 is detected at its first bytes.
        if rest.get(..common_len) != PREFACE.get(..common_len) {
            return Err(ConnectionError::protocol(
                "the connection preface is not valid",
            ));
        }
        if common_len < PREFACE.len() {
            return Ok((0, ConnectionEvent::Nothing));
        }
        self.phase = ConnectionPhase::Settings;
        Ok((common_len, ConnectionEvent::Nothing))
    }

    /// Checks the order of frames.
    #[inline]
    fn check_order(&mut self, head: FrameHead) -> Result<(), ConnectionError> {
        // RFC 9113 §6.10: the frames of a field block are contiguous.
        if let Some(block) = &self.block {
            let is_continuation = head.kind == kind::CONTINUATION && head.stream == block.stream;
            return match is_continuation {
                true => Ok(()),
                false => Err(ConnectionError::protocol("a frame within a field block")),
            };
        }
        if self.phase == ConnectionPhase::Settings {
            let is_settings = head.kind == kind::SETTINGS && !head.has(flag::ACK);
            if !is_settings {
                return Err(ConnectionError::protocol("the first frame is not SETTINGS"));
            }
            self.phase = ConnectionPhase::Open;
        }
        Ok(())
    }

    #[inline]
    fn frame<'b>(
        &mut self,
        head: FrameHead,
        payload: &'b [u8],
        turn: &mut ConnectionTurn<'_>,
    ) -> Result<ConnectionEvent<'b>, ConnectionError> {
        match head.kind {
            kind::HEADERS => self.headers(head, payload),
            kind::CONTINUATION => self.continuation(head, payload, turn),
            kind::WINDOW_UPDATE => self.window_update(head, payload, turn),
            kind::RST_STREAM => self.handle_reset(head, payload, turn),
            kind::SETTINGS => self.settings(head, payload, turn),
            kind::PING => self.ping(head, payload, turn),
            kind::GOAWAY => Ok(self.handle_goaway(payload)),
            kind::PRIORITY_UPDATE => self.priority_update(payload, turn),
            // Clients disable push by ENABLE_PUSH, and servers never accept it (RFC 9113 §8.4).
            kind::PUSH_PROMISE => Err(ConnectionError::protocol(
                "PUSH_PROMISE although push is disabled",
            )),
            _ => {
                // RFC 9113 §5.5: unknown types are ignored, but each costs time. PRIORITY is deprecated (§5.3.2).
                self.glitch(1, turn)?;
                Ok(ConnectionEvent::Nothing)
            }
        }
    }

    fn headers<'b>(
        &mut self,
        head: FrameHead,
        payload: &'b [u8],
    ) -> Result<ConnectionEvent<'b>, ConnectionError> {
        let fragment = frame::fragment(head, payload)?;
        let is_end = head.has(flag::END_STREAM);
        if head.has(flag::END_HEADERS) {
            return Ok(ConnectionEvent::Block {
                stream: head.stream,
                is_end,
                block: FieldBlockFragment::Whole(fragment),
            });
        }
        // The block is copied, since the input buffer is reused before the block is complete.
        self.block = Some(ContinuedBlock {
            stream: head.stream,
            is_end,
            bytes: fragment.to_vec(),
            continuations: 0,
        });
        Ok(ConnectionEvent::Nothing)
    }

    fn continuation<'b>(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        turn: &ConnectionTurn<'_>,
    ) -> Result<ConnectionEvent<'b>, ConnectionError> {
        let Some(mut block) = self.block.take() else {
            return Err(ConnectionError::protocol(
                "CONTINUATION without a field block",
            ));
        };
        block.continuations += 1;
        block.bytes.extend_from_slice(payload);
        let settings = turn.settings;
        // In a CONTINUATION flood, a field block never ends, and is therefore never counted as a request.
        if block.continuations > settings.continuations_max
            || block.bytes.len() > settings.section_len_max
        {
            return Err(ConnectionError::calm("a field block that is too long"));
        }
        if head.has(flag::END_HEADERS) {
            return Ok(ConnectionEvent::Block {
                stream: block.stream,
                is_end: block.is_end,
                block: FieldBlockFragment::Gathered(block.bytes),
            });
        }
        self.block = Some(block);
        Ok(ConnectionEvent::Nothing)
    }

    /// Adds a stream.
    pub(super) fn begin(
        &mut self,
        id: u32,
        input: StreamInput,
        output: StreamOutput,
        priority: Priority,
    ) -> u16 {
        let windows = StreamWindows {
            // RFC 9113 §6.9.2: the initial window from the peer's settings.
            send_window: self.peer.window_len as i32,
            window: FlowControlWindow::new(WINDOW_LEN),
            unconsumed: 0,
            linger_until_ms: None,
        };
        self.streams
            .add(H2Stream::new(id, input, output, priority, windows))
    }

    /// Removes a stream if it is complete. An answered stream with an unwanted body lingers, so that its client reads
    /// the response before RST_STREAM; some clients take a reset for a failure of the request (RFC 9113 §8.1).
    pub(super) fn remove_if_complete(&mut self, id: u32, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.by_id(id) else {
            return;
        };
        if stream.is_lingering() {
            self.may_have_lingering = true;
            // The input of a tunnel may never end, so its stream does not linger.
            if stream.is_tunnel {
                self.end_lingering(id, out);
            }
        } else if stream.is_closed() {
            self.remove_stream(id, out);
        }
    }

    /// Resets the streams that have lingered for [`LINGER_MS`].
    pub(super) fn reset_lingering(&mut self, now_ms: u64, out: &mut Vec<u8>) {
        // The scan over all streams runs only if one may be lingering.
        if !core::mem::take(&mut self.may_have_lingering) {
            return;
        }
        let slots: Vec<u16> = self.streams.slots().collect();
        for slot in slots {
            let stream = self.streams.get(slot);
            if !stream.is_lingering() {
                continue;
            }
            // The time starts at the first check after the response is complete.
            let until_ms = stream
                .transport
                .linger_until_ms
                .get_or_insert(now_ms + LINGER_MS);
            if now_ms >= *until_ms {
                let id = stream.id;
                self.end_lingering(id, out);
            } else {
                self.may_have_lingering = true;
            }
        }
    }

    fn end_lingering(&mut self, id: u32, out: &mut Vec<u8>) {
        frame::put_reset(id, ErrorCode::NO_ERROR, out);
        self.reset_streams.add(id);
        self.remove_stream(id, out);
    }

    /// Removes a stream, and returns its outstanding window to the connection.
    pub(super) fn remove_stream(&mut self, id: u32, out: &mut Vec<u8>) {
        let Some(slot) = self.streams.find(id) else {
            return;
        };
        self.queue.remove(&mut self.streams, slot);
        // Bytes that were not consumed would otherwise reduce the connection's window permanently.
        let unconsumed = self.streams.get(slot).transport.unconsumed;
        self.streams.remove(id);
        if self.is_server {
            self.release_connection_window(unconsumed, out);
        }
    }

    /// Marks a reset stream as dead: it has no more input or output, but keeps its slot until the work for it has
    /// ended.
    pub(super) fn mark_dead(&mut self, id: u32) {
        if let Some(slot) = self.streams.find(id) {
            self.queue.remove(&mut self.streams, slot);
            self.streams.get(slot).mark_dead();
        }
    }
}
