//! An answer of several segments under way: the flight. What a segment of a client that has not got all of it
//! says, and what is due for that (RFC 5681 §3.2, RFC 5827, RFC 6582). It knows numbers only: no frames, no
//! responses, no table.
//!
//! All parts acknowledge the request but for its last byte; so the client's own timer runs until it has
//! acknowledged the whole answer, and nobody here needs one.

use lowroad_wire::reason::Reason;
use lowroad_wire::shared;

#[cfg(test)]
mod tests;

/// Segments of a flight: as many as a server sends at first (RFC 6928).
pub const PARTS_MAX: u32 = shared::PARTS_MAX;
/// What of a request is not acknowledged while a flight is under way. No request is as short.
pub(crate) const WITHHELD: usize = 1;
/// How often an answer is sent again without any progress, for what costs less than its request.
pub(crate) const AGAIN_MAX: u8 = 7;
/// A segment that begins earlier has nothing to do with the request that is answered.
pub(crate) const BEHIND_MAX: i32 = 1500;
/// Parts that are sent again at a time once the client's timer has fired: as many as bring an
/// acknowledgement at once.
const TIMER_PARTS: u32 = 2;

/// How the answer is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flight {
    /// Bytes, without FIN.
    pub(crate) len: u32,
    /// Bytes of each part but the last.
    pub(crate) cut: u32,
}

/// Why parts are sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// None was.
    #[default]
    None,
    /// The client has acknowledged the one before repeatedly.
    Fast,
    /// The client's timer has fired.
    Timer,
}

/// What is known of the losses of a flight. It starts empty with each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Bytes of the answer that the client has.
    acked: u32,
    duplicates: u8,
    phase: Phase,
    /// The client's when it said so.
    window: u16,
    /// How often parts were sent again since it has got another.
    again: u8,
}

/// What a segment says of the flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// How much of the answer it acknowledges.
    pub(crate) part: u32,
    /// How far before the end of the request it begins.
    pub(crate) before: i32,
    /// Bytes of data.
    pub(crate) len: i32,
    /// FIN.
    pub(crate) has_fin: bool,
    /// As in the header.
    pub(crate) window: u16,
    /// TCP options besides timestamps.
    pub(crate) has_options: bool,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Parts once more: the first, and how many.
    Again {
        /// Which is the first.
        first: u32,
        /// How many.
        count: u32,
    },
    /// It was sent again often enough.
    Enough,
    /// An acknowledgement without data.
    Acknowledge(Reason),
    /// Nothing.
    Drop(Reason),
}

impl Flight {
    pub(crate) fn parts(self) -> u32 {
        self.len.div_ceil(self.cut)
    }

    /// In which part the client is that has so much.
    fn part_at(self, acked: u32) -> u32 {
        acked / self.cut
    }

    /// So many parts from there on, as far as there are. Of who lacks only the FIN, the last one.
    fn again(self, acked: u32, count: u32) -> Due {
        let first = self.part_at(acked).min(self.parts() - 1);
        let count = count.min(self.parts() - first);
        Due::Again { first, count }
    }

    /// Acknowledgements that say the same before a part counts as lost. With few parts under way there are
    /// never three of them (RFC 5827).
    fn duplicates_of_loss(self, acked: u32) -> u32 {
        let outstanding = self.parts().saturating_sub(self.part_at(acked));
        outstanding.saturating_sub(1).clamp(1, 3)
    }
}

impl Said {
    /// Whether it is of this request's time.
    pub(crate) fn is_near(&self, window: u16) -> bool {
        (-i32::from(window)..=BEHIND_MAX).contains(&self.before)
    }

    /// From which of its bytes on it goes beyond the request, if it does: that is held.
    pub(crate) fn beyond(&self) -> Option<usize> {
        let goes_beyond = self.len + i32::from(self.has_fin) > self.before;
        let says_more = self.len > 0 || self.has_fin;
        (says_more && goes_beyond).then(|| usize::try_from(self.before).unwrap_or(0))
    }

    /// Its client's timer has fired: it brings what is withheld.
    fn is_repeat(&self) -> bool {
        1 <= self.before && self.before <= self.len
    }

    fn is_bare(&self) -> bool {
        self.len == 0 && !self.has_fin
    }
}

/// What is due for a segment of a client that has not got all of the flight.
pub(crate) fn on_segment(flight: Flight, known: &mut Recovery, said: &Said) -> Due {
    if said.is_bare() {
        on_acknowledged(flight, known, said)
    } else if said.is_repeat() {
        on_timer(flight, known, said.part)
    } else if said.len == 0 {
        Due::Drop(Reason::TcpFin)
    } else if said.before > said.len {
        Due::Acknowledge(Reason::TcpOld)
    } else {
        Due::Drop(Reason::DropPipelined)
    }
}

fn on_timer(flight: Flight, known: &mut Recovery, part: u32) -> Due {
    if flight.part_at(part) > flight.part_at(known.acked) {
        known.again = 0;
    }
    if !is_patient(known) {
        return Due::Enough;
    }
    // Who goes back and forth makes no progress.
    known.acked = known.acked.max(part);
    known.duplicates = 0;
    known.phase = Phase::Timer;
    flight.again(part, TIMER_PARTS)
}

fn on_acknowledged(flight: Flight, known: &mut Recovery, said: &Said) -> Due {
    let nothing = Due::Drop(Reason::TcpAck);
    match said.part.cmp(&known.acked) {
        core::cmp::Ordering::Less => nothing,
        core::cmp::Ordering::Equal => on_duplicate(flight, known, said),
        core::cmp::Ordering::Greater => match on_progress(flight, known, said) {
            0 => nothing,
            count => flight.again(said.part, count),
        },
    }
}

/// The client has more than before: how many parts it gets. Of those behind a lost one it says nothing, so in
/// recovery it gets the next that it may lack (RFC 6582); an acknowledgement within a part brings nothing,
/// or each of its bytes could be one.
fn on_progress(flight: Flight, known: &mut Recovery, said: &Said) -> u32 {
    let is_next = flight.part_at(said.part) > flight.part_at(known.acked);
    known.acked = said.part;
    known.duplicates = 0;
    known.window = said.window;
    if !is_next {
        return 0;
    }
    known.again = 0;
    match known.phase {
        Phase::None => 0,
        Phase::Fast => 1,
        Phase::Timer => TIMER_PARTS,
    }
}

/// The client says the same once more. Without SACK a client that has room again says nothing else either.
fn on_duplicate(flight: Flight, known: &mut Recovery, said: &Said) -> Due {
    let nothing = Due::Drop(Reason::TcpAck);
    if !said.has_options && said.window != known.window {
        known.window = said.window;
        return nothing;
    }
    known.duplicates = known.duplicates.saturating_add(1);
    let is_loss = u32::from(known.duplicates) == flight.duplicates_of_loss(said.part);
    if known.phase != Phase::None || !is_loss {
        return nothing;
    }
    if !is_patient(known) {
        return Due::Enough;
    }
    known.phase = Phase::Fast;
    flight.again(said.part, 1)
}

/// Whether parts may be sent again without progress, and that they are.
fn is_patient(known: &mut Recovery) -> bool {
    let is_patient = known.again < AGAIN_MAX;
    known.again += u8::from(is_patient);
    is_patient
}
