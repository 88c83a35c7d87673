//! Answers: a published response, cut into segments for a client. Looks up the answer to a request; `responder` decides
//! whether to send it.

use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::connection::{ConnectionState, InFlightAnswer, ModelConnection};
use crate::flight::{FlightPlan, PARTS_MAX};
use crate::reply::ModelReply;
use crate::verdict::SegmentNumbers;
use lowroad_wire::ebpf_header;
use lowroad_wire::frame::{ACK, FIN, PSH, SegmentView, URG, len_of};
use lowroad_wire::key;
use lowroad_wire::options::TIMESTAMPS_LEN;
use lowroad_wire::segment_context::{AdmissionTime, LevelMode, SegmentContext, StoredAnswer};
use lowroad_wire::segment_reason::SegmentReason;
use lowroad_wire::width::{index, lower, sequence};

/// Maximum number of response bytes in a segment with timestamps, with the usual MTU of Ethernet.
const RESPONSE_LEN_MAX: usize = index(ebpf_header::RESPONSE_MAX);
/// The same maximum for IPv6, with the minimum MTU, as routers do not fragment (RFC 8200 §5).
const RESPONSE_LEN_MAX_V6: usize = index(ebpf_header::RESPONSE_MAX_V6);
/// The length of the IP and TCP headers.
const HEADS_LEN: usize = 40;
const HEADS_LEN_V6: usize = 60;

/// An answer to be sent.
pub(crate) struct FlightAnswer {
    pub(crate) bytes: Vec<u8>,
    /// The number of the publication.
    pub(crate) id: u32,
    /// Whether FIN is sent with the answer.
    pub(crate) closes: bool,
    /// The number of bytes in each segment except the last.
    pub(crate) segment_len: usize,
}

impl FlightAnswer {
    /// The number of sequence numbers that the answer occupies.
    pub(crate) fn len(&self) -> u32 {
        len_of(&self.bytes) + u32::from(self.closes)
    }

    /// The number of segments.
    pub(crate) fn parts(&self) -> usize {
        self.bytes.len().div_ceil(self.segment_len).max(1)
    }
}

/// Checks whether requests of this client may be answered now.
pub(crate) fn check_answerable(
    context: &impl SegmentContext,
    segment: &SegmentView<'_>,
) -> Result<(), SegmentReason> {
    if context.mode() != LevelMode::Serve {
        Err(SegmentReason::UpDrain)
    } else if !context.is_daemon_alive() {
        Err(SegmentReason::UpDaemon)
    } else if segment.flags & (FIN | URG) != 0 {
        Err(SegmentReason::UpFlags)
    } else if context.is_denied(segment.tuple.client) {
        Err(SegmentReason::UpDenied)
    } else if !context.is_admitted(&segment.tuple, AdmissionTime::SinceRulesChanged) {
        Err(SegmentReason::UpUnadmitted)
    } else {
        Ok(())
    }
}

/// The answer to the request in the segment.
pub(crate) fn choose(
    context: &impl SegmentContext,
    segment: &SegmentView<'_>,
    connection: &ModelConnection,
) -> Result<FlightAnswer, SegmentReason> {
    let local = SocketAddr::new(segment.tuple.local, segment.tuple.local_port);
    let reading = key::read(segment.payload, local, context.ignored_fields())?;
    let now_ns = context.now_ns();
    let stored = context
        .response(reading.key.as_bytes())
        .ok_or(SegmentReason::UpMiss)?;
    // `SegmentContext::response` returns stale responses, too.
    if stored.expires_ns <= now_ns {
        return Err(SegmentReason::UpExpired);
    }
    let len = if reading.is_head {
        stored.head_len
    } else {
        stored.bytes.len()
    };
    let path = SegmentPath::new(context, segment, connection);
    let parts_max = match reading.closes {
        true => PARTS_MAX,
        false => context.keep_alive_parts_max(),
    };
    let segment_len = path.segment_len_for(len, reading.is_head, parts_max);
    let segment_len = segment_len.ok_or(SegmentReason::UpLarge)?;
    // An answer can't wait for the window to open, as there is no timer and no queue.
    if !has_window(segment, connection, len) {
        return Err(SegmentReason::UpWindow);
    }
    let bytes = with_current_fields(&stored, len, &context.date(), now_ns);
    Ok(FlightAnswer {
        bytes,
        id: stored.id,
        closes: reading.closes,
        segment_len,
    })
}

/// The properties of the path to a client, which determine the segment size.
struct SegmentPath {
    is_v6: bool,
    mtu: usize,
    mss: usize,
    /// The length of the TCP options in each segment.
    options_len: usize,
}

impl SegmentPath {
    fn new(
        context: &impl SegmentContext,
        segment: &SegmentView<'_>,
        connection: &ModelConnection,
    ) -> SegmentPath {
        SegmentPath {
            is_v6: segment.tuple.local.is_ipv6(),
            mtu: context.mtu(),
            mss: usize::from(connection.tcp_options.mss),
            options_len: connection.reply_options_len(),
        }
    }

    /// Maximum length of TCP options and data in a segment, by the client's MSS and the MTU.
    fn segment_len_max(&self) -> usize {
        let heads = if self.is_v6 { HEADS_LEN_V6 } else { HEADS_LEN };
        self.mtu.saturating_sub(heads).min(self.mss)
    }

    /// Maximum length of data in a segment.
    fn room(&self) -> usize {
        self.segment_len_max().saturating_sub(self.options_len)
    }

    /// The length of data in each segment of a longer answer. All paths with less than the usual MTU or MSS use the
    /// same size, so that the checksums of the segments can be computed in advance.
    fn segment_len(&self) -> usize {
        match !self.is_v6 && self.segment_len_max() >= RESPONSE_LEN_MAX + TIMESTAMPS_LEN {
            true => RESPONSE_LEN_MAX,
            false => RESPONSE_LEN_MAX_V6,
        }
    }

    /// The length of an answer's segments: the answer's length, if it fits into one segment. `None` if the answer is
    /// too long.
    fn segment_len_for(&self, len: usize, is_head: bool, parts_max: u32) -> Option<usize> {
        let limit = match self.is_v6 {
            true => RESPONSE_LEN_MAX_V6,
            false => RESPONSE_LEN_MAX,
        };
        if len <= limit.min(self.room()) {
            return Some(len.max(1));
        }
        let segment_len = self.segment_len();
        let parts_max = usize::try_from(parts_max).unwrap_or(usize::MAX);
        let fits = !is_head && segment_len <= self.room() && len.div_ceil(segment_len) <= parts_max;
        fits.then_some(segment_len)
    }
}

/// The segmentation of the answer in flight, which has several segments.
pub(crate) fn flight_of(
    context: &impl SegmentContext,
    segment: &SegmentView<'_>,
    connection: &ModelConnection,
    in_flight: &InFlightAnswer,
) -> FlightPlan {
    let segment_len = SegmentPath::new(context, segment, connection).segment_len();
    let [len, segment_len] = [in_flight.len, segment_len].map(sequence);
    FlightPlan { len, segment_len }
}

/// An answer of several segments, to be retransmitted. The window is not checked, as the client must not shrink it.
pub(crate) fn retransmit_flight(
    context: &impl SegmentContext,
    connection: &ModelConnection,
    in_flight: &InFlightAnswer,
    flight: FlightPlan,
) -> Option<FlightAnswer> {
    let stored = context.publication(in_flight.id)?;
    Some(FlightAnswer {
        bytes: with_current_fields(&stored, in_flight.len, &context.date(), context.now_ns()),
        id: in_flight.id,
        closes: connection.state == ConnectionState::Closing,
        segment_len: index(flight.segment_len),
    })
}

/// The answer in flight, to be retransmitted with the current date: fresh or not, as long as its publication exists.
/// The part that the client has acknowledged needs no window.
pub(crate) fn retransmit_answer(
    context: &impl SegmentContext,
    segment: &SegmentView<'_>,
    connection: &ModelConnection,
    in_flight: &InFlightAnswer,
) -> Result<FlightAnswer, SegmentReason> {
    let stored = context
        .publication(in_flight.id)
        .ok_or(SegmentReason::TcpGone)?;
    let part = usize::try_from(connection.acknowledged_part(segment.ack)).unwrap_or(0);
    if !has_window(segment, connection, in_flight.len.saturating_sub(part)) {
        return Err(SegmentReason::UpWindow);
    }
    Ok(FlightAnswer {
        bytes: with_current_fields(&stored, in_flight.len, &context.date(), context.now_ns()),
        id: in_flight.id,
        closes: connection.state == ConnectionState::Closing,
        segment_len: in_flight.len.max(1),
    })
}

/// Whether `len` bytes and a FIN fit into the client's window.
fn has_window(segment: &SegmentView<'_>, connection: &ModelConnection, len: usize) -> bool {
    // The window must be greater than `len`, not equal, as FIN occupies a sequence number, too.
    usize::from(segment.window) << connection.tcp_options.scale.unwrap_or(0) > len
}

const DIGITS: [u8; 10] = *b"0123456789";

/// The first `len` bytes of a response, with the current Date and Age.
fn with_current_fields(
    stored: &StoredAnswer<'_>,
    len: usize,
    date: &[u8; 29],
    now_ns: u64,
) -> Vec<u8> {
    let mut bytes = stored.bytes.get(..len).unwrap_or(stored.bytes).to_vec();
    // The clock may be slightly behind that of `generated_ns`, hence the signed difference. Times before the clock's
    // start are large numbers, for which the subtraction wraps.
    let age_s = now_ns
        .wrapping_sub(stored.generated_ns)
        .cast_signed()
        .max(0)
        .cast_unsigned()
        / 1_000_000_000;
    // Age has five digits in published responses.
    let mut rest = lower(age_s.min(99_999));
    let mut age = [0; 5];
    for digit in age.iter_mut().rev() {
        *digit = DIGITS[index(rest % 10)];
        rest /= 10;
    }
    for (at, value) in [
        (stored.date_at, date.as_slice()),
        (stored.age_at, age.as_slice()),
    ] {
        if let Some(target) = at.and_then(|at| bytes.get_mut(at..at + value.len())) {
            target.copy_from_slice(value);
        }
    }
    bytes
}

/// Writes one segment of an answer; `numbers.seq` is the sequence number of the answer's first byte.
pub(crate) fn write_part(
    context: &impl SegmentContext,
    answer: &FlightAnswer,
    index: usize,
    segment: &SegmentView<'_>,
    connection: &ModelConnection,
    numbers: SegmentNumbers,
) -> Vec<u8> {
    let from = index * answer.segment_len;
    let rest = answer.bytes.get(from..).unwrap_or_default();
    let (bytes, is_last) = match rest.split_at_checked(answer.segment_len) {
        Some((bytes, remaining)) => (bytes, remaining.is_empty()),
        None => (rest, true),
    };
    let fin = if answer.closes { FIN } else { 0 };
    let options = connection.reply_options(context, segment);
    let reply = ModelReply {
        seq: numbers.seq.wrapping_add(sequence(from)),
        ack: numbers.ack,
        flags: ACK | if is_last { PSH | fin } else { 0 },
        window: connection.receive_window(),
        options: &options,
        payload: bytes,
    };
    reply.write(segment)
}
