//! A segment of no connection that is known, or of one that is over: whether it begins another. It knows
//! no answers.

use super::Responder;
use crate::connection::{Connection, Table};
use crate::handshake::{self, Relation};
use crate::verdict::Verdict;
use lowroad_wire::frame::Segment;
use lowroad_wire::reason::Reason;
use lowroad_wire::world::{Socket, World};

impl<T: Table> Responder<T> {
    /// Sees to it that the segment's connection is in the table, or says why it can't be.
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

    /// The client may have begun another from the same port: no SYN of a live connection was answered. Its
    /// cookie alone says so only where the segment can't be a late one of this connection.
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

    /// Of no connection that is known: perhaps a handshake completes, perhaps the server above has it.
    /// Only where it could not, the cookie is looked at.
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
        // A listener would reset it. It comes again, or what it acknowledges is not lost.
        if relation == Relation::Overtakes {
            return Err(Verdict::Drop(Reason::DropEarly));
        }
        match world.socket(&segment.tuple) {
            Socket::None => Err(unknown),
            // Of one handshake, one of us looks at everything: else a guess would be good for two numbers.
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
                // Without room for the marker it is asked again.
                let _ = self.table.put(&segment.tuple, Connection::of_kernel());
                Err(Verdict::Pass(Reason::PassKernel))
            }
        }
    }
}
