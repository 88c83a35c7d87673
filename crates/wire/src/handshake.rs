//! From a SYN to a connection. Nothing is kept that a flood of SYNs could fill: what the SYN said is
//! in our first sequence number, which the client has to send back.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::connection::{Connection, HalfOpen, State, Table, WINDOW};
use crate::cookie;
use crate::frame::{ACK, FIN, RST, SYN, Segment};
use crate::options::Abilities;
use crate::reason::Reason;
use crate::reply::Reply;
use crate::world::{Admitted, Mode, Socket, World};

const MINUTE_NS: u64 = 60_000_000_000;
/// The least that a client must take: less is not worth a level of its own.
const MSS_MIN_V4: u16 = 536;
/// IPv6 carries 1280 bytes everywhere.
const MSS_MIN_V6: u16 = 1220;

/// The SYN-ACK, or why the SYN is for the server above.
pub(crate) fn on_syn(
    world: &impl World,
    table: &mut impl Table,
    syn: &Segment<'_>,
) -> Result<Vec<u8>, Reason> {
    let can = acceptable(world, table, syn)?;
    // A new connection, whatever the server above had for these ports.
    if table
        .get(&syn.tuple)
        .is_some_and(|old| matches!(old.state, State::Kernel | State::Asked))
    {
        table.remove(&syn.tuple);
    }
    let minute = world.now_ns() / MINUTE_NS;
    let isn = cookie::make(world.cookie_key(minute), &syn.tuple, syn.seq, minute, &can);
    table.remember(
        &syn.tuple,
        HalfOpen {
            client_isn: syn.seq,
            isn,
            can,
        },
    );
    let own_mss = if is_v6(syn) { 1440 } else { 1460 };
    let reply = Reply {
        seq: isn,
        ack: syn.seq.wrapping_add(1),
        flags: SYN | ACK,
        window: WINDOW,
        options: &can.answer(own_mss, syn.options.len()),
        payload: &[],
    };
    Ok(reply.write(syn))
}

fn acceptable(
    world: &impl World,
    table: &impl Table,
    syn: &Segment<'_>,
) -> Result<Abilities, Reason> {
    let serves = world.mode() == Mode::Serve && world.is_kept() && world.has_responses();
    // Of one handshake, one of us answers everything.
    if !serves && !is_repeated(table, syn) {
        return Err(Reason::PassSynOff);
    }
    let is_odd = !syn.payload.is_empty() || syn.flags & (ACK | FIN | RST) != 0;
    if is_odd || world.is_exempt(&syn.tuple) {
        return Err(Reason::PassSynUnusual);
    }
    if world.is_denied(syn.tuple.client) {
        return Err(Reason::PassDenied);
    }
    let least = if is_v6(syn) { MSS_MIN_V6 } else { MSS_MIN_V4 };
    let can = Abilities::read(syn.options).filter(|can| can.mss >= least);
    let can = can.ok_or(Reason::PassSynUnusual)?;
    if syn.is_to_group() || !world.is_here(&syn.tuple) {
        return Err(Reason::PassSynForeign);
    }
    // What is left of a connection too: the server above knows how to reuse it.
    if world.socket(&syn.tuple) != Socket::Listener {
        return Err(Reason::PassSynSocket);
    }
    if !world.is_admitted(syn.tuple.client, Admitted::OfLate) && !is_repeated(table, syn) {
        return Err(Reason::PassUnadmitted);
    }
    Ok(can.within(syn.options.len()))
}

/// Whether this SYN was answered before, and its client has not been heard of since.
fn is_repeated(table: &impl Table, syn: &Segment<'_>) -> bool {
    table
        .recall(&syn.tuple)
        .is_some_and(|half_open| half_open.client_isn == syn.seq)
}

/// Makes the connection whose handshake the segment completes, if it does. It must be the very next
/// after the SYN: what has overtaken others would make a request of what is the middle of one.
pub(crate) fn open(
    world: &impl World,
    table: &mut impl Table,
    segment: &Segment<'_>,
    by_cookie: bool,
) -> Option<Reason> {
    if !segment.is_plain_ack() {
        return None;
    }
    let (isn, client_isn) = (segment.ack.wrapping_sub(1), segment.seq.wrapping_sub(1));
    let remembered = table
        .recall(&segment.tuple)
        .filter(|half_open| (half_open.isn, half_open.client_isn) == (isn, client_isn));
    let (can, reason) = match remembered {
        Some(half_open) => {
            table.forget(&segment.tuple);
            (half_open.can, Reason::TcpOpen)
        }
        None if !by_cookie => return None,
        None => (
            said(world, segment, client_isn, isn)?,
            Reason::TcpOpenCookie,
        ),
    };
    let connection = Connection {
        state: State::Open,
        rcv_nxt: segment.seq,
        snd_nxt: segment.ack,
        can,
        under_way: None,
        handshake: handshake_of(segment),
    };
    table.put(&segment.tuple, connection).then_some(reason)
}

/// Whether it belongs to a handshake that is remembered, but is not the first after the SYN.
pub(crate) fn overtakes(table: &impl Table, segment: &Segment<'_>) -> bool {
    table
        .recall(&segment.tuple)
        .is_some_and(|half_open| half_open.isn == segment.ack.wrapping_sub(1))
}

/// Whether the segment is a late copy of one that came with the handshake of this very connection: it
/// must not begin it anew.
pub(crate) fn is_of_handshake(segment: &Segment<'_>, connection: &Connection) -> bool {
    connection.state != State::Done
        && connection.handshake == handshake_of(segment)
        && connection.rcv_nxt.wrapping_sub(segment.seq) <= 0xffff
}

/// A segment that can't be of the connection as it is known: nowhere near its window.
pub(crate) fn is_far(segment: &Segment<'_>, connection: &Connection) -> bool {
    let ahead = segment.seq.wrapping_sub(connection.rcv_nxt);
    ahead.wrapping_add(0x1_0000) > 0x2_0000 && segment.flags & FIN == 0
}

/// The middle bits of our first number, if the segment acknowledges nothing else.
fn handshake_of(segment: &Segment<'_>) -> u16 {
    let [_, high, low, _] = segment.ack.wrapping_sub(1).to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// What a cookie of this minute or the last says.
fn said(world: &impl World, segment: &Segment<'_>, client_isn: u32, isn: u32) -> Option<Abilities> {
    let minute = world.now_ns() / MINUTE_NS;
    [minute, minute.wrapping_sub(1)].iter().find_map(|minute| {
        cookie::check(
            world.cookie_key(*minute),
            &segment.tuple,
            client_isn,
            *minute,
            isn,
        )
    })
}

fn is_v6(segment: &Segment<'_>) -> bool {
    matches!(segment.tuple.local, IpAddr::V6(_))
}
