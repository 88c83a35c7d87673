//! Segments of unknown connections, or of connections that are over: decides whether they open a new one.

use super::Responder;
use crate::connection::{Connection, Table};
use crate::handshake::{self, Relation};
use crate::verdict::Verdict;
use lowroad_wire::frame::Segment;
use lowroad_wire::reason::Reason;
use lowroad_wire::world::{Socket, World};

impl<T: Table> Responder<T> {
    /// Ensures that the segment's connection is in the table, or returns the verdict if it cannot be.
    pub(super) fn find_or_open(
        &mut self,
        world: &mut impl World,
        segment: &Segment<'_>,
        known: Option<&Connection>,
    ) -> Result<(), Verdict> {
        let is_anew = |known: &Connection| {
            segment.seq != known.rcv_nxt
                && !known.is_live()
                && !handshake::is_of_handshake(segment, known)
        };
        match known {
            None => self.open_unknown(world, segment),
            Some(known) if is_anew(known) => {
                self.open_anew(world, segment, known);
                Ok(())
            }
            Some(_) => Ok(()),
        }
    }

    /// The client may have opened another connection from the same port. No SYN is answered for a live connection. The
    /// cookie alone counts only if the segment cannot be a late one of the known connection.
    pub(super) fn open_anew(
        &mut self,
        world: &mut impl World,
        segment: &Segment<'_>,
        known: &Connection,
    ) {
        match handshake::relation(world, &mut self.table, segment) {
            Relation::Completes => world.count(Reason::TcpOpen),
            Relation::None if segment.is_plain_ack() && handshake::is_far(segment, known) => {
                let _ = self.open_by_cookie(world, segment);
            }
            _ => {}
        }
    }

    pub(super) fn open_by_cookie(
        &mut self,
        world: &mut impl World,
        segment: &Segment<'_>,
    ) -> Result<(), Reason> {
        handshake::open_by_cookie(world, &mut self.table, &mut self.doubts, segment)?;
        world.count(Reason::TcpOpenCookie);
        Ok(())
    }

    /// A segment of an unknown connection: it may complete a handshake, or belong to the kernel. The cookie is checked
    /// only if the kernel has no connection for it.
    pub(super) fn open_unknown(
        &mut self,
        world: &mut impl World,
        segment: &Segment<'_>,
    ) -> Result<(), Verdict> {
        let relation = handshake::relation(world, &mut self.table, segment);
        if relation == Relation::Completes {
            world.count(Reason::TcpOpen);
            return Ok(());
        }
        if relation == Relation::Resets {
            return Err(Verdict::Drop(Reason::TcpReset));
        }
        let unknown = Verdict::Pass(Reason::PassUnknown);
        if !segment.is_plain_ack() {
            return Err(unknown);
        }
        // A listener would reset it. The client retransmits it, or the data that it acknowledges is not lost.
        if relation == Relation::Overtakes {
            return Err(Verdict::Drop(Reason::DropEarly));
        }
        match world.socket(&segment.tuple) {
            Socket::None => Err(unknown),
            // One side handles a whole handshake: otherwise a guess would succeed for two numbers, this cookie and the
            // kernel's.
            Socket::Listener if relation == Relation::Misses => {
                Err(Verdict::Drop(Reason::DropCookie))
            }
            Socket::Listener => {
                let opened = self.open_by_cookie(world, segment);
                opened.map_err(|reason| match reason {
                    Reason::PassUnknown => Verdict::Pass(reason),
                    _ => Verdict::Drop(reason),
                })
            }
            Socket::Connection | Socket::Handshake | Socket::TimeWait(_) => {
                // Without room for the marker, the socket is looked up again at the next segment.
                let _ = self.table.put(&segment.tuple, Connection::of_kernel());
                Err(Verdict::Pass(Reason::PassKernel))
            }
        }
    }
}
