//! Processes requests, and retransmissions of requests with an answer in flight. `connection_segment` recognizes them;
//! `flight` decides about answers of several segments.

use alloc::vec::Vec;

use super::{ModelResponder, wait_for_listener};
use crate::answer::{
    FlightAnswer, check_answerable, choose, flight_of, retransmit_answer, retransmit_flight,
    write_part,
};
use crate::buffered;
use crate::connection::{ConnectionState, InFlightAnswer, ModelConnection, ModelTable, WINDOW};
use crate::flight::{self, AckInfo, FlightAction, RETRANSMITS_MAX, RecoveryState, WITHHELD};
use crate::verdict::{
    SegmentNumbers, SegmentVerdict, acknowledge, count_verdict, reply_verdict, send_frames,
};
use lowroad_wire::frame::{FIN, SegmentView, len_of};
use lowroad_wire::options::{TIMESTAMPS_LEN, TcpTimestamps};
use lowroad_wire::segment_context::{SegmentContext, SocketState};
use lowroad_wire::segment_reason::SegmentReason;
use lowroad_wire::width::{index, sequence};

impl<T: ModelTable> ModelResponder<T> {
    /// Migrates the connection to the kernel, to which this segment is passed as the first.
    pub(super) fn migrate(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
        reason: SegmentReason,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        connection.state = ConnectionState::Migrating;
        if context.socket(&segment.tuple) == SocketState::None {
            // Two reasons are counted: that of the migration, and the missing listener.
            context.count(reason);
            let verdict = wait_for_listener(connection, context.now_ns());
            return count_verdict(context, verdict);
        }
        count_verdict(context, SegmentVerdict::Migrate(reason))
    }

    /// Processes a request at `rcv_nxt`, which acknowledges all sent data.
    pub(super) fn on_request(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        let choice =
            check_answerable(context, segment).and_then(|()| choose(context, segment, connection));
        let answer = match choice {
            Ok(answer) => answer,
            Err(reason) => return self.migrate(context, segment, reason),
        };
        let parts = answer.parts();
        let request_len = match parts {
            1 => segment.payload.len(),
            // With a flight, the last byte of the request stays unacknowledged, so that the client's timer runs.
            _ => WITHHELD,
        };
        let seq = connection.snd_nxt;
        connection.rcv_nxt = segment.end();
        connection.snd_nxt = seq.wrapping_add(answer.len());
        connection.part_repeats = 0;
        // Each answer starts with a new state of loss recovery.
        connection.recovery = RecoveryState::default();
        connection.in_flight = Some(InFlightAnswer {
            id: answer.id,
            len: answer.bytes.len(),
            request_len,
        });
        if answer.closes {
            connection.state = ConnectionState::Closing;
        }
        let frames = write_parts(context, &answer, 0..parts, segment, connection, seq);
        send_frames(context, SegmentReason::AnswerHit, frames)
    }

    /// Processes a segment of a client that lacks parts of an answer with several segments. Data beyond the request is
    /// buffered.
    pub(super) fn on_flight(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
        ack_info: &AckInfo,
    ) -> SegmentVerdict {
        let connection = *self.table.get(&segment.tuple).expect("just found");
        let in_flight = connection.in_flight.expect("a flight");
        if let Some(skip) = ack_info.excess_offset() {
            buffered::append(&mut self.table, segment, &connection, skip);
        }
        let flight = flight_of(context, segment, &connection, &in_flight);
        let connection = self.table.get(&segment.tuple).expect("just found");
        let (first, count) = match flight::on_segment(flight, &mut connection.recovery, ack_info) {
            FlightAction::Retransmit { first, count } => (first, count),
            FlightAction::Reset => return self.reset(context, segment, SegmentReason::TcpGone),
            FlightAction::Acknowledge(reason) => {
                return acknowledge(context, segment, connection, reason);
            }
            FlightAction::Drop(reason) => {
                return count_verdict(context, SegmentVerdict::Drop(reason));
            }
        };
        let Some(answer) = retransmit_flight(context, connection, &in_flight, flight) else {
            return self.reset(context, segment, SegmentReason::TcpGone);
        };
        let [first, count] = [first, count].map(index);
        let (seq, ..) = connection.acknowledged();
        let frames = write_parts(
            context,
            &answer,
            first..first + count,
            segment,
            connection,
            seq,
        );
        send_frames(context, SegmentReason::AnswerAgain, frames)
    }

    /// Processes a retransmission of the last request, from a client that has acknowledged nothing of the answer. The
    /// segment may contain only part of the request, or more data after it, as clients may split and merge segments
    /// when they retransmit.
    pub(super) fn on_same_request(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
        in_flight: InFlightAnswer,
    ) -> SegmentVerdict {
        let connection = *self.table.get(&segment.tuple).expect("just found");
        let fin = usize::from(segment.flags & FIN != 0);
        if segment.payload.len() + fin > in_flight.request_len {
            buffered::append(&mut self.table, segment, &connection, in_flight.request_len);
        }
        self.resend_answer(
            context,
            &segment.truncated(in_flight.request_len),
            in_flight,
        )
    }

    /// Processes an acknowledgement of part of a one-segment answer, which a middlebox has split. As the part that
    /// arrived acknowledges the request, the client's retransmission timer no longer runs, so the answer is
    /// retransmitted immediately; but only [`RETRANSMITS_MAX`] times, as an acknowledgement costs the client less than
    /// a request. Then the connection is reset.
    pub(super) fn on_part(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
        in_flight: InFlightAnswer,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        // The limit bounds the work for a client that acknowledges parts again and again.
        if connection.part_repeats == RETRANSMITS_MAX {
            return self.reset(context, segment, SegmentReason::TcpGone);
        }
        connection.part_repeats += 1;
        let mut empty = segment.truncated(0);
        empty.seq = connection.rcv_nxt;
        self.resend_answer(context, &empty, in_flight)
    }

    /// Retransmits the answer in flight. As the client may have any part of it, the bytes must be the same: the
    /// publication is used, fresh or not, as long as it exists; otherwise the connection is reset.
    pub(super) fn resend_answer(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
        in_flight: InFlightAnswer,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        match retransmit_answer(context, segment, connection, &in_flight) {
            Ok(answer) => {
                let seq = connection.snd_nxt.wrapping_sub(answer.len());
                let numbers = SegmentNumbers {
                    seq,
                    ack: connection.rcv_nxt,
                };
                let frame = write_part(context, &answer, 0, segment, connection, numbers);
                reply_verdict(context, SegmentReason::AnswerAgain, frame)
            }
            Err(SegmentReason::UpWindow) => {
                count_verdict(context, SegmentVerdict::Drop(SegmentReason::UpWindow))
            }
            Err(_) => self.reset(context, segment, SegmentReason::TcpGone),
        }
    }
}

/// Writes some segments of the answer in flight; `seq` is the answer's first sequence number.
fn write_parts(
    context: &impl SegmentContext,
    answer: &FlightAnswer,
    parts: core::ops::Range<usize>,
    segment: &SegmentView<'_>,
    connection: &ModelConnection,
    seq: u32,
) -> Vec<Vec<u8>> {
    let withheld = if connection.is_flight() { WITHHELD } else { 0 };
    // The last byte of the request stays unacknowledged, so that the client retransmits it if the flight is lost.
    let ack = connection.rcv_nxt.wrapping_sub(sequence(withheld));
    let numbers = SegmentNumbers { seq, ack };
    parts
        .map(|index| write_part(context, answer, index, segment, connection, numbers))
        .collect()
}

/// The acknowledgement information of a segment during a flight; `None` if there is no flight, or the client has
/// acknowledged all of it.
pub(super) fn flight_ack_info(
    segment: &SegmentView<'_>,
    connection: &ModelConnection,
) -> Option<AckInfo> {
    let part = connection.acknowledged_part(segment.ack);
    let timestamps_len = TcpTimestamps::read(segment.options).map_or(0, |_| TIMESTAMPS_LEN);
    let ack_info = AckInfo {
        part,
        distance: connection.rcv_nxt.wrapping_sub(segment.seq).cast_signed(),
        len: len_of(segment.payload).cast_signed(),
        has_fin: segment.flags & FIN != 0,
        window: segment.window,
        has_options: segment.options.len() > timestamps_len,
    };
    let is_partial = connection.is_flight() && part < connection.in_flight_len();
    (is_partial && ack_info.is_near(WINDOW)).then_some(ack_info)
}

/// The answer in flight, if the segment acknowledges part of it.
pub(super) fn part_of(
    segment: &SegmentView<'_>,
    connection: &ModelConnection,
) -> Option<InFlightAnswer> {
    let in_flight = connection.in_flight?;
    let start = connection.acknowledged().1;
    let part = connection.acknowledged_part(segment.ack);
    let is_part = 0 < part && part < connection.in_flight_len();
    let is_near = segment.seq.wrapping_sub(start) <= u32::from(WINDOW);
    (is_part && is_near).then_some(in_flight)
}
