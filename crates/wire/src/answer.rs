//! From a request in a segment to the answer, if this level has one. It knows no states: whether it is
//! the time to answer is for `responder`.

use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::connection::{Connection, State, UnderWay};
use crate::frame::{ACK, FIN, PSH, Segment, URG, len_of};
use crate::key;
use crate::reason::Reason;
use crate::reply::Reply;
use crate::world::{Admitted, Mode, Stored, World};

/// A response in one segment of Ethernet.
const RESPONSE_LEN_MAX: usize = 1460;
/// IPv6's routers do not fragment (RFC 8200 §5).
const RESPONSE_LEN_MAX_V6: usize = 1220;

/// What is to be sent.
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    /// Which publication it is.
    pub(crate) id: u32,
    /// FIN goes with it.
    pub(crate) closes: bool,
}

impl Answer {
    /// What it takes of our numbers.
    pub(crate) fn len(&self) -> u32 {
        len_of(&self.bytes) + u32::from(self.closes)
    }
}

/// Whether requests of this client are answered now.
pub(crate) fn may_answer(world: &impl World, segment: &Segment<'_>) -> Result<(), Reason> {
    if world.mode() != Mode::Serve {
        Err(Reason::UpDrain)
    } else if !world.is_kept() {
        Err(Reason::UpDaemon)
    } else if segment.flags & (FIN | URG) != 0 {
        Err(Reason::UpFlags)
    } else if world.is_denied(segment.tuple.client) {
        Err(Reason::UpDenied)
    } else if !world.is_admitted(&segment.tuple, Admitted::Ever) {
        Err(Reason::UpUnadmitted)
    } else {
        Ok(())
    }
}

/// The answer to the request in the segment.
pub(crate) fn choose(
    world: &impl World,
    segment: &Segment<'_>,
    connection: &Connection,
) -> Result<Answer, Reason> {
    let local = SocketAddr::new(segment.tuple.local, segment.tuple.local_port);
    let asked = key::read(segment.payload, local, world.ignore())?;
    let now_ns = world.now_ns();
    let stored = world.response(&asked.key).ok_or(Reason::UpMiss)?;
    if stored.expires_ns <= now_ns {
        return Err(Reason::UpExpired);
    }
    let len = if asked.is_head {
        stored.head_len
    } else {
        stored.bytes.len()
    };
    let path = if segment.tuple.local.is_ipv6() {
        RESPONSE_LEN_MAX_V6
    } else {
        RESPONSE_LEN_MAX
    };
    if len > path.min(usize::from(connection.can.mss)) {
        return Err(Reason::UpLarge);
    }
    if !has_window(segment, connection, len) {
        return Err(Reason::UpWindow);
    }
    let bytes = filled_in(&stored, len, &world.date(), now_ns);
    Ok(Answer {
        bytes,
        id: stored.id,
        closes: asked.closes,
    })
}

/// The answer that is under way once more, with the date of now: fresh or not, as long as it is there. Of
/// what the client has already, no window is needed.
pub(crate) fn again(
    world: &impl World,
    segment: &Segment<'_>,
    connection: &Connection,
    under_way: &UnderWay,
) -> Result<Answer, Reason> {
    let stored = world.publication(under_way.id).ok_or(Reason::TcpGone)?;
    let part = usize::try_from(connection.acknowledged_part(segment.ack)).unwrap_or(0);
    if !has_window(segment, connection, under_way.len.saturating_sub(part)) {
        return Err(Reason::UpWindow);
    }
    Ok(Answer {
        bytes: filled_in(&stored, under_way.len, &world.date(), world.now_ns()),
        id: under_way.id,
        closes: connection.state == State::Closing,
    })
}

/// Whether so many bytes go into the client's window, and a FIN.
fn has_window(segment: &Segment<'_>, connection: &Connection, len: usize) -> bool {
    usize::from(segment.window) << connection.can.scale.unwrap_or(0) > len
}

/// The first bytes of a response, with the date and its age of now.
fn filled_in(stored: &Stored<'_>, len: usize, date: &[u8; 29], now_ns: u64) -> Vec<u8> {
    let mut bytes = stored.bytes.get(..len).unwrap_or(stored.bytes).to_vec();
    // The clock may be a little behind that by which the response was born; before the clock's start
    // it was born at a large number.
    let age_s = now_ns
        .wrapping_sub(stored.born_ns)
        .cast_signed()
        .max(0)
        .cast_unsigned()
        / 1_000_000_000;
    let mut rest = age_s.min(99_999);
    let mut age = [b'0'; 5];
    for digit in age.iter_mut().rev() {
        *digit += u8::try_from(rest % 10).expect("a digit");
        rest /= 10;
    }
    for (at, value) in [
        (stored.date_at, date.as_slice()),
        (stored.age_at, age.as_slice()),
    ] {
        if let Some(place) = at.and_then(|at| bytes.get_mut(at..at + value.len())) {
            place.copy_from_slice(value);
        }
    }
    bytes
}

/// The frame with the answer, from the number `seq` on.
pub(crate) fn write(
    answer: &Answer,
    segment: &Segment<'_>,
    connection: &Connection,
    (seq, ack): (u32, u32),
) -> Vec<u8> {
    let reply = Reply {
        seq,
        ack,
        flags: ACK | PSH | if answer.closes { FIN } else { 0 },
        window: connection.own_window(),
        options: &[],
        payload: &answer.bytes,
    };
    reply.write(segment)
}
