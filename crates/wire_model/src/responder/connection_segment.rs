//! Segments of known connections, by their numbers and flags (RFC 9293 §3.10.7.4). `requests` handles requests.

use super::ModelResponder;
use super::requests::{part_of, said_of_flight};
use crate::buffered::{self, AheadKind, BufferedInput, REPEAT_LEN_MIN};
use crate::connection::{ConnectionState, ModelConnection, ModelTable, WINDOW};
use crate::flight::BEHIND_MAX;
use crate::verdict::{SegmentNumbers, SegmentVerdict, acknowledge, bare, counted, finish};
use lowroad_wire::frame::{ACK, FIN, RST, SYN, SegmentView};
use lowroad_wire::segment_context::SegmentContext;
use lowroad_wire::segment_reason::SegmentReason;

impl<T: ModelTable> ModelResponder<T> {
    /// Processes a segment of a connection in the table.
    pub(super) fn on_ours(
        &mut self,
        world: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        if segment.flags & RST != 0 {
            return self.on_reset(world, segment);
        }
        // RFC 5961 §4.2: a SYN gets a challenge ACK.
        if segment.flags & SYN != 0 {
            return acknowledge(world, segment, connection, SegmentReason::TcpChallenge);
        }
        if segment.flags & ACK == 0 {
            return counted(world, SegmentVerdict::Drop(SegmentReason::DropOdd));
        }
        if let Some(said) = said_of_flight(segment, connection) {
            return self.on_flight(world, segment, &said);
        }
        // The segment is processed as if the answer had been acknowledged before.
        if has_all_of_flight(segment, connection) {
            connection.under_way = None;
        }
        if let Some(under_way) = part_of(segment, connection) {
            return self.on_part(world, segment, under_way);
        }
        if segment.seq == connection.rcv_nxt {
            return self.on_expected(world, segment);
        }
        let mut known = *connection;
        let ahead = buffered::on_ahead(&mut self.table, segment, &mut known);
        if let Some(connection) = self.table.get(&segment.tuple) {
            *connection = known;
        }
        match ahead {
            AheadKind::NotOurs => self.on_other_seq(world, segment),
            AheadKind::Held => counted(world, SegmentVerdict::Drop(SegmentReason::DropPipelined)),
            AheadKind::Taken(BufferedInput { frame, is_pieced }) => {
                let taken = SegmentView::parse(&frame).expect("as it was written");
                // Requests in several segments are migrated: if the answer were lost, the client might retransmit only
                // the first segment, which would never be recognized as the request.
                let verdict = match is_pieced && known.state == ConnectionState::Open {
                    true => self.up(world, &taken, SegmentReason::UpCut),
                    false => self.on_expected(world, &taken),
                };
                match verdict {
                    SegmentVerdict::Up(reason) => SegmentVerdict::UpInstead(reason, frame),
                    other => other,
                }
            }
        }
    }

    /// Processes a segment at `rcv_nxt`.
    pub(super) fn on_expected(
        &mut self,
        world: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        let is_acknowledged = segment.ack == connection.snd_nxt;
        if !segment.payload.is_empty() {
            // This side has sent FIN, so the request cannot be answered any more.
            if connection.state != ConnectionState::Open {
                return self.reset(world, segment, SegmentReason::TcpClosed);
            }
            if !is_acknowledged {
                return self.keep(world, segment, SegmentReason::DropPipelined);
            }
            return self.on_request(world, segment);
        }
        if segment.flags & FIN != 0 {
            if connection.state == ConnectionState::Done {
                return counted(world, SegmentVerdict::Drop(SegmentReason::TcpFin));
            }
            if !is_acknowledged {
                return self.keep(world, segment, SegmentReason::TcpFin);
            }
            return on_fin(world, segment, connection);
        }
        if is_acknowledged {
            // The last byte of the request is still unacknowledged then.
            let is_withheld = connection.is_flight();
            connection.under_way = None;
            if connection.state == ConnectionState::Done {
                connection.state = ConnectionState::Over;
            }
            if is_withheld {
                return acknowledge(world, segment, connection, SegmentReason::TcpAck);
            }
        }
        counted(world, SegmentVerdict::Drop(SegmentReason::TcpAck))
    }

    /// Drops a segment that arrived before the answer is acknowledged, after buffering it.
    pub(super) fn keep(
        &mut self,
        world: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
        reason: SegmentReason,
    ) -> SegmentVerdict {
        let connection = *self.table.get(&segment.tuple).expect("just found");
        if connection.under_way.is_some() && connection.acknowledged_part(segment.ack) == 0 {
            buffered::hold(&mut self.table, segment, &connection, 0);
        }
        counted(world, SegmentVerdict::Drop(reason))
    }

    /// Processes a segment that is not at `rcv_nxt`: an old or an early one.
    pub(super) fn on_other_seq(
        &mut self,
        world: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        let before = connection.rcv_nxt.wrapping_sub(segment.seq);
        if let Some(under_way) = connection.under_way
            && usize::try_from(before) == Ok(under_way.request_len)
            // No client retransmits in smaller pieces.
            && segment.payload.len() >= under_way.request_len.min(REPEAT_LEN_MIN)
            && connection.acknowledged_part(segment.ack) == 0
        {
            return self.on_same_request(world, segment, under_way);
        }
        let has_fin = segment.flags & FIN != 0;
        let is_empty = segment.payload.is_empty();
        match connection.state {
            // The FIN of this side, or the acknowledgement of the client's, was lost.
            ConnectionState::Done if before == 1 && has_fin => {
                match segment.ack == connection.snd_nxt {
                    true => acknowledge(world, segment, connection, SegmentReason::TcpFin),
                    false => finish(world, segment, connection),
                }
            }
            // RFC 9293 §3.8.4: a keep-alive probe is one byte before the next number.
            ConnectionState::Open if before == 1 && segment.payload.len() <= 1 && !has_fin => {
                acknowledge(world, segment, connection, SegmentReason::TcpProbe)
            }
            _ if is_empty && !has_fin => {
                counted(world, SegmentVerdict::Drop(SegmentReason::TcpAck))
            }
            _ if before.cast_signed() > 0 => {
                acknowledge(world, segment, connection, SegmentReason::TcpOld)
            }
            _ => acknowledge(world, segment, connection, SegmentReason::TcpEarly),
        }
    }

    /// Processes a reset. RFC 5961 §3.2: it is accepted at the client's next sequence number. That is `rcv_nxt`, and,
    /// while an answer is in flight and its request unacknowledged, the number acknowledged last.
    pub(super) fn on_reset(
        &mut self,
        world: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        let (_, edge, _) = connection.acknowledged();
        match segment.seq.wrapping_sub(edge) {
            _ if segment.seq == connection.rcv_nxt => connection.state = ConnectionState::Over,
            0 => connection.state = ConnectionState::Over,
            beside if beside < u32::from(WINDOW) => {
                return acknowledge(world, segment, connection, SegmentReason::TcpChallenge);
            }
            _ => {}
        }
        counted(world, SegmentVerdict::Drop(SegmentReason::TcpReset))
    }

    /// Resets a connection that cannot continue, so that the client learns of it at once.
    pub(super) fn reset(
        &mut self,
        world: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
        reason: SegmentReason,
    ) -> SegmentVerdict {
        let connection = self.table.get(&segment.tuple).expect("just found");
        connection.state = ConnectionState::Over;
        bare(
            world,
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

/// Whether the client has all of a flight and retransmits the withheld part of its request: its acknowledgement was
/// lost, and the retransmission repeats it. Then the whole retransmission is acknowledged.
fn has_all_of_flight(segment: &SegmentView<'_>, connection: &ModelConnection) -> bool {
    let before = connection.rcv_nxt.wrapping_sub(segment.seq).cast_signed();
    let is_near = (1..=BEHIND_MAX).contains(&before);
    is_near && connection.is_flight() && segment.ack == connection.snd_nxt
}

/// Processes a FIN at `rcv_nxt`, without data, with all sent data acknowledged.
fn on_fin(
    world: &mut impl SegmentContext,
    segment: &SegmentView<'_>,
    connection: &mut ModelConnection,
) -> SegmentVerdict {
    connection.rcv_nxt = connection.rcv_nxt.wrapping_add(1);
    connection.under_way = None;
    let was = core::mem::replace(&mut connection.state, ConnectionState::Done);
    if was == ConnectionState::Closing {
        return acknowledge(world, segment, connection, SegmentReason::TcpFin);
    }
    connection.snd_nxt = connection.snd_nxt.wrapping_add(1);
    finish(world, segment, connection)
}
