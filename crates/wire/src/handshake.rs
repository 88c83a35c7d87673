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
use crate::world::{Mode, Socket, World};

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
    let can = acceptable(world, syn)?;
    // A new connection, whatever the server above had for these ports.
    if table
        .get(&syn.tuple)
        .is_some_and(|old| old.state == State::Kernel)
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

fn acceptable(world: &impl World, syn: &Segment<'_>) -> Result<Abilities, Reason> {
    if world.mode() != Mode::Serve || !world.is_kept() || !world.has_responses() {
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
    if !world.is_here(&syn.tuple) {
        return Err(Reason::PassSynForeign);
    }
    match world.socket(&syn.tuple) {
        Socket::Listener => Ok(can.within(syn.options.len())),
        // What is left of a connection too: the server above knows how to reuse it.
        Socket::None | Socket::Connection => Err(Reason::PassSynSocket),
    }
}

/// What a segment is to the handshakes that are under way.
pub(crate) enum Opened {
    /// It completes one: there is a connection now.
    Now(Reason),
    /// It belongs to one, but what comes before it has not come. Taking it for the beginning would
    /// make a request of what is the middle of one.
    Early,
    /// Nothing.
    No,
}

/// Makes the connection whose handshake the segment completes, if it does.
pub(crate) fn open(
    world: &impl World,
    table: &mut impl Table,
    segment: &Segment<'_>,
    by_cookie: bool,
) -> Opened {
    if !segment.is_plain_ack() {
        return Opened::No;
    }
    let (isn, client_isn) = (segment.ack.wrapping_sub(1), segment.seq.wrapping_sub(1));
    let remembered = table
        .recall(&segment.tuple)
        .filter(|half_open| half_open.isn == isn);
    let (can, reason) = match remembered {
        Some(half_open) if half_open.client_isn != client_isn => return Opened::Early,
        Some(half_open) => (half_open.can, Reason::TcpOpen),
        None => match by_cookie
            .then(|| said(world, segment, client_isn, isn))
            .flatten()
        {
            Some(can) => (can, Reason::TcpOpenCookie),
            None => return Opened::No,
        },
    };
    table.forget(&segment.tuple);
    let connection = Connection {
        state: State::Open,
        rcv_nxt: segment.seq,
        snd_nxt: segment.ack,
        can,
        under_way: None,
    };
    match table.put(&segment.tuple, connection) {
        true => Opened::Now(reason),
        false => Opened::No,
    }
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
