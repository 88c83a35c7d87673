//! Requests, and retransmissions of requests with an answer in flight. `connection_segment` recognizes requests;
//! `flight` decides for answers of several segments.

use alloc::vec::Vec;

use super::{ModelResponder, wait_for_listener};
use crate::answer::{FlightAnswer, again, choose, flight_again, flight_of, may_answer, write_part};
use crate::buffered;
use crate::connection::{ConnectionState, InFlightAnswer, ModelConnection, ModelTable, WINDOW};
use crate::flight::{self, AGAIN_MAX, AckInfo, FlightAction, RecoveryState, WITHHELD};
use crate::verdict::{SegmentNumbers, SegmentVerdict, acknowledge, counted, reply_verdict, sent};
use lowroad_wire::frame::{FIN, SegmentView, len_of};
use lowroad_wire::options::{TIMESTAMPS_LEN, TcpTimestamps};
use lowroad_wire::segment_context::{SegmentContext, SocketState};
use lowroad_wire::segment_reason::SegmentReason;
use lowroad_wire::width::{index, sequence};

impl<T: ModelTable> ModelResponder<T> {
    /// Migrates the connection to the kernel, which receives this segment as its first.
    pub(super) fn up(
        &mut self,
        world: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
        reason: SegmentReason,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        connection.state = ConnectionState::Handed;
        if world.socket(&segment.tuple) == SocketState::None {
            // Two reasons are counted: that of the migration, and the missing listener.
            world.count(reason);
            let verdict = wait_for_listener(connection, world.now_ns());
            return counted(world, verdict);
        }
        counted(world, SegmentVerdict::Up(reason))
    }

    /// Processes a request at `rcv_nxt`, with all sent data acknowledged.
    pub(super) fn on_request(
        &mut self,
        world: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        let chosen = may_answer(world, segment).and_then(|()| choose(world, segment, connection));
        let answer = match chosen {
            Ok(answer) => answer,
            Err(reason) => return self.up(world, segment, reason),
        };
        let parts = answer.parts();
        let request_len = match parts {
            1 => segment.payload.len(),
            // With a flight, only the last byte keeps the client's timer running.
            _ => WITHHELD,
        };
        let seq = connection.snd_nxt;
        connection.rcv_nxt = segment.end();
        connection.snd_nxt = seq.wrapping_add(answer.len());
        connection.parts = 0;
        // Loss recovery starts anew with each answer.
        connection.recovery = RecoveryState::default();
        connection.under_way = Some(InFlightAnswer {
            id: answer.id,
            len: answer.bytes.len(),
            request_len,
        });
        if answer.closes {
            connection.state = ConnectionState::Closing;
        }
        let frames = write_parts(world, &answer, 0..parts, segment, connection, seq);
        sent(world, SegmentReason::AnswerHit, frames)
    }

    /// Processes a segment of a client that lacks parts of an answer with several segments. Data beyond the request is
    /// buffered.
    pub(super) fn on_flight(
        &mut self,
        world: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
        said: &AckInfo,
    ) -> SegmentVerdict {
        let connection = *self.table.get(&segment.tuple).expect("just found");
        let under_way = connection.under_way.expect("a flight");
        if let Some(skip) = said.beyond() {
            buffered::hold(&mut self.table, segment, &connection, skip);
        }
        let flight = flight_of(world, segment, &connection, &under_way);
        let connection = self.table.get(&segment.tuple).expect("just found");
        let (first, count) = match flight::on_segment(flight, &mut connection.recovery, said) {
            FlightAction::Again { first, count } => (first, count),
            FlightAction::Enough => return self.reset(world, segment, SegmentReason::TcpGone),
            FlightAction::Acknowledge(reason) => {
                return acknowledge(world, segment, connection, reason);
            }
            FlightAction::Drop(reason) => return counted(world, SegmentVerdict::Drop(reason)),
        };
        let Some(answer) = flight_again(world, connection, &under_way, flight) else {
            return self.reset(world, segment, SegmentReason::TcpGone);
        };
        let [first, count] = [first, count].map(index);
        let (seq, ..) = connection.acknowledged();
        let frames = write_parts(
            world,
            &answer,
            first..first + count,
            segment,
            connection,
            seq,
        );
        sent(world, SegmentReason::AnswerAgain, frames)
    }

    /// Processes a retransmission of the last request, from a client without any of the answer. It may have less of
    /// the request, or more data after it, since clients may split and join segments when they retransmit.
    pub(super) fn on_same_request(
        &mut self,
        world: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
        under_way: InFlightAnswer,
    ) -> SegmentVerdict {
        let connection = *self.table.get(&segment.tuple).expect("just found");
        let fin = usize::from(segment.flags & FIN != 0);
        if segment.payload.len() + fin > under_way.request_len {
            buffered::hold(&mut self.table, segment, &connection, under_way.request_len);
        }
        self.answer_again(world, &segment.cut(under_way.request_len), under_way)
    }

    /// Processes an acknowledgement of a part of the answer, which a middlebox has split. The client's retransmission
    /// timer does not run any more, so the answer is sent again at once; but only [`AGAIN_MAX`] times, because an
    /// acknowledgement costs less than a request. Then the connection is reset.
    pub(super) fn on_part(
        &mut self,
        world: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
        under_way: InFlightAnswer,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        // Bounds the work for a client that acknowledges parts again and again.
        if connection.parts == AGAIN_MAX {
            return self.reset(world, segment, SegmentReason::TcpGone);
        }
        connection.parts += 1;
        let mut bare = segment.cut(0);
        bare.seq = connection.rcv_nxt;
        self.answer_again(world, &bare, under_way)
    }

    /// Sends the answer in flight again. The client may already have any part of it, so no other response may take its
    /// place: the same one is sent, fresh or not, as long as it exists; else the connection is reset.
    pub(super) fn answer_again(
        &mut self,
        world: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
        under_way: InFlightAnswer,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        match again(world, segment, connection, &under_way) {
            Ok(answer) => {
                let seq = connection.snd_nxt.wrapping_sub(answer.len());
                let numbers = SegmentNumbers {
                    seq,
                    ack: connection.rcv_nxt,
                };
                let frame = write_part(world, &answer, 0, segment, connection, numbers);
                reply_verdict(world, SegmentReason::AnswerAgain, frame)
            }
            Err(SegmentReason::UpWindow) => {
                counted(world, SegmentVerdict::Drop(SegmentReason::UpWindow))
            }
            Err(_) => self.reset(world, segment, SegmentReason::TcpGone),
        }
    }
}

/// Writes some segments of the answer in flight; `seq` is its first sequence number.
fn write_parts(
    world: &impl SegmentContext,
    answer: &FlightAnswer,
    parts: core::ops::Range<usize>,
    segment: &SegmentView<'_>,
    connection: &ModelConnection,
    seq: u32,
) -> Vec<Vec<u8>> {
    let withheld = if connection.is_flight() { WITHHELD } else { 0 };
    // The last byte of the request stays unacknowledged, so that the client repeats it if the flight is lost.
    let ack = connection.rcv_nxt.wrapping_sub(sequence(withheld));
    let numbers = SegmentNumbers { seq, ack };
    parts
        .map(|index| write_part(world, answer, index, segment, connection, numbers))
        .collect()
}

/// The acknowledgement information of a segment about the flight; `None` if there is no flight, or the client has all
/// of it.
pub(super) fn said_of_flight(
    segment: &SegmentView<'_>,
    connection: &ModelConnection,
) -> Option<AckInfo> {
    let part = connection.acknowledged_part(segment.ack);
    let timestamps_len = TcpTimestamps::read(segment.options).map_or(0, |_| TIMESTAMPS_LEN);
    let said = AckInfo {
        part,
        before: connection.rcv_nxt.wrapping_sub(segment.seq).cast_signed(),
        len: len_of(segment.payload).cast_signed(),
        has_fin: segment.flags & FIN != 0,
        window: segment.window,
        has_options: segment.options.len() > timestamps_len,
    };
    let is_of_it = connection.is_flight() && part < connection.under_way_len();
    (is_of_it && said.is_near(WINDOW)).then_some(said)
}

/// The answer of which the segment acknowledges a part.
pub(super) fn part_of(
    segment: &SegmentView<'_>,
    connection: &ModelConnection,
) -> Option<InFlightAnswer> {
    let under_way = connection.under_way?;
    let begin = connection.acknowledged().1;
    let part = connection.acknowledged_part(segment.ack);
    let is_part = 0 < part && part < connection.under_way_len();
    let is_near = segment.seq.wrapping_sub(begin) <= u32::from(WINDOW);
    (is_part && is_near).then_some(under_way)
}
