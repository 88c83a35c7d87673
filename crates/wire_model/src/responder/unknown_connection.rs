//! Segments of unknown connections, or of connections that are over: decides whether they open a new one.

use super::ModelResponder;
use crate::connection::{ModelConnection, ModelTable};
use crate::handshake::{self, HandshakeRelation};
use crate::verdict::SegmentVerdict;
use lowroad_wire::frame::SegmentView;
use lowroad_wire::segment_context::{SegmentContext, SocketState};
use lowroad_wire::segment_reason::SegmentReason;

impl<T: ModelTable> ModelResponder<T> {
    /// Ensures that the segment's connection is in the table, or returns the verdict if it cannot be.
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
                self.open_anew(context, segment, entry);
                Ok(())
            }
            Some(_) => Ok(()),
        }
    }

    /// The client may have opened another connection from the same port. No SYN is answered for a live connection. The
    /// cookie alone counts only if the segment cannot be a late one of the known connection.
    pub(super) fn open_anew(
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

    /// A segment of an unknown connection: it may complete a handshake, or belong to the kernel. The cookie is checked
    /// only if the kernel has no connection for it.
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
        // A listener would reset it. The client retransmits it, or the data that it acknowledges is not lost.
        if relation == HandshakeRelation::Overtakes {
            return Err(SegmentVerdict::Drop(SegmentReason::DropEarly));
        }
        match context.socket(&segment.tuple) {
            SocketState::None => Err(unknown),
            // One side handles a whole handshake: otherwise a guess would succeed for two numbers, this cookie and the
            // kernel's.
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
                // Without room for the marker, the socket is looked up again at the next segment.
                let _ = self
                    .table
                    .insert(&segment.tuple, ModelConnection::kernel_owned());
                Err(SegmentVerdict::Pass(SegmentReason::PassKernel))
            }
        }
    }
}
