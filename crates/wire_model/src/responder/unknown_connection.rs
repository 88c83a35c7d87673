//! Processes segments of unknown or ended connections: decides whether a segment opens a connection.

use super::ModelResponder;
use crate::connection::{ModelConnection, ModelTable};
use crate::handshake::{self, HandshakeRelation};
use crate::verdict::SegmentVerdict;
use lowroad_wire::frame::SegmentView;
use lowroad_wire::segment_context::{SegmentContext, SocketState};
use lowroad_wire::segment_reason::SegmentReason;

impl<T: ModelTable> ModelResponder<T> {
    /// Ensures that the segment's connection is in the table; otherwise returns the verdict for the segment.
    pub(super) fn find_or_open(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
        entry: Option<&ModelConnection>,
    ) -> Result<(), SegmentVerdict> {
        let is_reused_tuple = |entry: &ModelConnection| {
            segment.seq != entry.rcv_nxt
                && !entry.is_live()
                && !handshake::is_handshake_copy(segment, entry)
        };
        match entry {
            None => self.open_unknown(context, segment),
            Some(entry) if is_reused_tuple(entry) => {
                self.open_reused_tuple(context, segment, entry);
                Ok(())
            }
            Some(_) => Ok(()),
        }
    }

    /// Opens a new connection with the tuple of an old one, if the client has begun one from the same port. (No SYN is
    /// answered while the old connection is live.) A cookie is accepted only if the segment can't be a late segment of
    /// the old connection.
    pub(super) fn open_reused_tuple(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
        entry: &ModelConnection,
    ) {
        match handshake::determine_relation(context, &mut self.table, segment) {
            HandshakeRelation::Completes => context.count(SegmentReason::TcpOpen),
            HandshakeRelation::None
                if segment.is_plain_ack() && handshake::is_far_from_window(segment, entry) =>
            {
                let _ = self.open_by_cookie(context, segment);
            }
            _ => {}
        }
    }

    pub(super) fn open_by_cookie(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
    ) -> Result<(), SegmentReason> {
        handshake::open_by_cookie(context, &mut self.table, &mut self.wrong_cookies, segment)?;
        context.count(SegmentReason::TcpOpenCookie);
        Ok(())
    }

    /// Processes a segment of an unknown connection, which may complete a handshake or belong to the kernel. The cookie
    /// is checked only if the kernel has no connection for the segment.
    pub(super) fn open_unknown(
        &mut self,
        context: &mut impl SegmentContext,
        segment: &SegmentView<'_>,
    ) -> Result<(), SegmentVerdict> {
        let relation = handshake::determine_relation(context, &mut self.table, segment);
        if relation == HandshakeRelation::Completes {
            context.count(SegmentReason::TcpOpen);
            return Ok(());
        }
        if relation == HandshakeRelation::Resets {
            return Err(SegmentVerdict::Drop(SegmentReason::TcpReset));
        }
        let unknown = SegmentVerdict::Pass(SegmentReason::PassUnknown);
        if !segment.is_plain_ack() {
            return Err(unknown);
        }
        // The kernel's listener would answer with a reset. Dropping the segment loses nothing: the client retransmits
        // data.
        if relation == HandshakeRelation::Overtakes {
            return Err(SegmentVerdict::Drop(SegmentReason::DropEarly));
        }
        match context.socket(&segment.tuple) {
            SocketState::None => Err(unknown),
            // The segment is not passed to the kernel, which would check its own cookie: an attacker could then guess
            // either of two numbers.
            SocketState::Listener if relation == HandshakeRelation::Misses => {
                Err(SegmentVerdict::Drop(SegmentReason::DropCookie))
            }
            SocketState::Listener => {
                let opened = self.open_by_cookie(context, segment);
                opened.map_err(|reason| match reason {
                    SegmentReason::PassUnknown => SegmentVerdict::Pass(reason),
                    _ => SegmentVerdict::Drop(reason),
                })
            }
            SocketState::Connection | SocketState::Handshake | SocketState::TimeWait(_) => {
                // If the table has no room for the marker, the socket is looked up again for the next segment.
                let _ = self
                    .table
                    .insert(&segment.tuple, ModelConnection::kernel_owned());
                Err(SegmentVerdict::Pass(SegmentReason::PassKernel))
            }
        }
    }
}
