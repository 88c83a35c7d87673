//! Processes segments of known connections by their sequence numbers and flags (RFC 9293 §3.10.7.4). Requests are
//! handled in `requests`.

use super::ModelResponder;
use super::requests::{flight_ack_info, part_of};
use crate::buffered::{self, BufferedInput, EarlySegment, RETRANSMIT_LEN_MIN};
use crate::connection::{ConnectionState, ModelConnection, ModelTable, WINDOW};
use crate::flight::BEHIND_MAX;
use crate::verdict::{
    SegmentNumbers, SegmentVerdict, acknowledge, count_verdict, finish, send_empty,
};
use lowroad_wire::frame::{ACK, FIN, RST, SYN, SegmentView};
use lowroad_wire::segment_context::SegmentContext;
use lowroad_wire::segment_reason::SegmentReason;

impl<T: ModelTable> ModelResponder<T> {
    /// Processes a segment of a connection in the table.
    pub(super) fn on_connection_segment(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        if segment.flags & RST != 0 {
            return self.on_reset(context, segment);
        }
        // RFC 5961 §4.2: a SYN gets a challenge ACK.
        if segment.flags & SYN != 0 {
            return acknowledge(context, segment, connection, SegmentReason::TcpChallenge);
        }
        if segment.flags & ACK == 0 {
            return count_verdict(context, SegmentVerdict::Drop(SegmentReason::DropOdd));
        }
        if let Some(ack_info) = flight_ack_info(segment, connection) {
            return self.on_flight(context, segment, &ack_info);
        }
        // If the client has received the whole flight, the segment is processed as if the answer had been acknowledged
        // before.
        if has_whole_flight(segment, connection) {
            connection.in_flight = None;
        }
        if let Some(in_flight) = part_of(segment, connection) {
            return self.on_part(context, segment, in_flight);
        }
        if segment.seq == connection.rcv_nxt {
            return self.on_expected(context, segment);
        }
        let mut updated = *connection;
        let outcome = buffered::on_early_segment(&mut self.table, segment, &mut updated);
        if let Some(connection) = self.table.get(&segment.tuple) {
            *connection = updated;
        }
        match outcome {
            EarlySegment::Unrelated => self.on_out_of_sequence(context, segment),
            EarlySegment::Buffered => {
                count_verdict(context, SegmentVerdict::Drop(SegmentReason::DropPipelined))
            }
            EarlySegment::Ready(BufferedInput {
                frame,
                is_segmented,
            }) => {
                let buffered_segment = SegmentView::parse(&frame).expect("as it was written");
                // Requests in several segments are migrated: if the answer were lost, the client might retransmit only
                // the first segment, which would never be recognized as the request.
                let verdict = match is_segmented && updated.state == ConnectionState::Open {
                    true => self.migrate(context, &buffered_segment, SegmentReason::UpCut),
                    false => self.on_expected(context, &buffered_segment),
                };
                match verdict {
                    SegmentVerdict::Migrate(reason) => SegmentVerdict::MigrateWith(reason, frame),
                    other => other,
                }
            }
        }
    }

    /// Processes a segment at `rcv_nxt`.
    pub(super) fn on_expected(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        let is_acknowledged = segment.ack == connection.snd_nxt;
        if !segment.payload.is_empty() {
            // This side has sent FIN, so no further request can be answered.
            if connection.state != ConnectionState::Open {
                return self.reset(context, segment, SegmentReason::TcpClosed);
            }
            if !is_acknowledged {
                return self.buffer_and_drop(context, segment, SegmentReason::DropPipelined);
            }
            return self.on_request(context, segment);
        }
        if segment.flags & FIN != 0 {
            if connection.state == ConnectionState::Done {
                return count_verdict(context, SegmentVerdict::Drop(SegmentReason::TcpFin));
            }
            if !is_acknowledged {
                return self.buffer_and_drop(context, segment, SegmentReason::TcpFin);
            }
            return on_fin(context, segment, connection);
        }
        if is_acknowledged {
            // After a flight, the last byte of the request is still to be acknowledged.
            let is_withheld = connection.is_flight();
            connection.in_flight = None;
            if connection.state == ConnectionState::Done {
                connection.state = ConnectionState::Ended;
            }
            if is_withheld {
                return acknowledge(context, segment, connection, SegmentReason::TcpAck);
            }
        }
        count_verdict(context, SegmentVerdict::Drop(SegmentReason::TcpAck))
    }

    /// Buffers the data of a segment that arrived before the answer is acknowledged, and drops the segment.
    pub(super) fn buffer_and_drop(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
        reason: SegmentReason,
    ) -> SegmentVerdict {
        let connection = *self.table.get(&segment.tuple).expect("just found");
        if connection.in_flight.is_some() && connection.acknowledged_part(segment.ack) == 0 {
            buffered::append(&mut self.table, segment, &connection, 0);
        }
        count_verdict(context, SegmentVerdict::Drop(reason))
    }

    /// Processes a segment that is not at `rcv_nxt`: an old or an early one.
    pub(super) fn on_out_of_sequence(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        let distance = connection.rcv_nxt.wrapping_sub(segment.seq);
        if let Some(in_flight) = connection.in_flight
            && usize::try_from(distance) == Ok(in_flight.request_len)
            // Clients do not retransmit smaller segments.
            && segment.payload.len() >= in_flight.request_len.min(RETRANSMIT_LEN_MIN)
            && connection.acknowledged_part(segment.ack) == 0
        {
            return self.on_same_request(context, segment, in_flight);
        }
        let has_fin = segment.flags & FIN != 0;
        let is_empty = segment.payload.is_empty();
        match connection.state {
            // This side's FIN, or its acknowledgement of the client's FIN, was lost.
            ConnectionState::Done if distance == 1 && has_fin => {
                match segment.ack == connection.snd_nxt {
                    true => acknowledge(context, segment, connection, SegmentReason::TcpFin),
                    false => finish(context, segment, connection),
                }
            }
            // RFC 9293 §3.8.4: a keep-alive probe begins one byte before `rcv_nxt`.
            ConnectionState::Open if distance == 1 && segment.payload.len() <= 1 && !has_fin => {
                acknowledge(context, segment, connection, SegmentReason::TcpProbe)
            }
            _ if is_empty && !has_fin => {
                count_verdict(context, SegmentVerdict::Drop(SegmentReason::TcpAck))
            }
            _ if distance.cast_signed() > 0 => {
                acknowledge(context, segment, connection, SegmentReason::TcpOld)
            }
            _ => acknowledge(context, segment, connection, SegmentReason::TcpEarly),
        }
    }

    /// Processes a reset, which is accepted only with the client's next sequence number (RFC 5961 §3.2). For the client
    /// that is `rcv_nxt` or, while a request is unacknowledged, the last acknowledged number.
    pub(super) fn on_reset(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        let (_, edge, _) = connection.acknowledged();
        match segment.seq.wrapping_sub(edge) {
            _ if segment.seq == connection.rcv_nxt => connection.state = ConnectionState::Ended,
            0 => connection.state = ConnectionState::Ended,
            offset if offset < u32::from(WINDOW) => {
                return acknowledge(context, segment, connection, SegmentReason::TcpChallenge);
            }
            _ => {}
        }
        count_verdict(context, SegmentVerdict::Drop(SegmentReason::TcpReset))
    }

    /// Resets a connection that can't continue, so that the client need not wait for a timeout.
    pub(super) fn reset(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
        reason: SegmentReason,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        connection.state = ConnectionState::Ended;
        send_empty(
            context,
            segment,
            connection,
            reason,
            SegmentNumbers {
                seq: segment.ack,
                ack: segment.end(),
            },
            RST | ACK,
        )
    }
}

/// Whether the client has received all of a flight but retransmits the end of its request, as its acknowledgement of
/// the flight was lost. The retransmission contains that acknowledgement.
fn has_whole_flight(segment: &SegmentView<'_>, connection: &ModelConnection) -> bool {
    let distance = connection.rcv_nxt.wrapping_sub(segment.seq).cast_signed();
    let is_near = (1..=BEHIND_MAX).contains(&distance);
    is_near && connection.is_flight() && segment.ack == connection.snd_nxt
}

/// Processes a FIN at `rcv_nxt` without data, which acknowledges all sent data.
fn on_fin(
    context: &mut impl SegmentContext,
    segment: &SegmentView<'_>,
    connection: &mut ModelConnection,
) -> SegmentVerdict {
    connection.rcv_nxt = connection.rcv_nxt.wrapping_add(1);
    connection.in_flight = None;
    let previous = core::mem::replace(&mut connection.state, ConnectionState::Done);
    if previous == ConnectionState::Closing {
        return acknowledge(context, segment, connection, SegmentReason::TcpFin);
    }
    connection.snd_nxt = connection.snd_nxt.wrapping_add(1);
    finish(context, segment, connection)
}
