//! The TCP handshake, with SYN cookies: the SYN's options are encoded in the initial sequence number, which the client
//! acknowledges. So a flood of SYNs can't exhaust any state.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::connection::{
    ConnectionState, ModelConnection, ModelTable, PendingHandshake, WINDOW, now_ms, own_window,
};
use crate::flight::RecoveryState;
use crate::reply::ModelReply;
use lowroad_wire::cookie;
use lowroad_wire::frame::{ACK, FIN, RST, SYN, SegmentView};
use lowroad_wire::options::{self, TcpOptions, TcpTimestamps};
use lowroad_wire::segment_context::{
    AdmissionTime, LevelMode, SegmentContext, SocketState, TimeWait,
};
use lowroad_wire::segment_reason::SegmentReason;

const MINUTE_NS: u64 = 60_000_000_000;
/// How long cookies of the previous minute are accepted after its end.
const COOKIE_LIFE_NS: u64 = 10_000_000_000;
/// How long a stored SYN is not replaced by another one of the same tuple; the same time as in Linux.
const HALF_OPEN_LIFE_NS: u64 = 63_000_000_000;
/// Clients with a smaller MSS are not served here, as answers would need too many segments.
const MSS_MIN_V4: u16 = 536;
/// The minimum MTU of IPv6 (1280 bytes) less the headers.
const MSS_MIN_V6: u16 = 1220;

/// Answers a SYN, or returns the reason to pass it to the kernel.
pub(crate) fn on_syn(
    context: &mut impl SegmentContext,
    table: &mut impl ModelTable,
    syn: &SegmentView<'_>,
) -> Result<(SegmentReason, Vec<u8>), SegmentReason> {
    let tcp_options = check_syn(context, table, syn)?;
    // A SYN must not end a live connection (RFC 5961 §4).
    let old = table.get(&syn.tuple).copied();
    if old.is_some_and(|old| old.is_live()) {
        return Err(SegmentReason::TcpChallenge);
    }
    // The new connection replaces the kernel's old one with the same tuple.
    if old.is_some_and(|old| {
        matches!(
            old.state,
            ConnectionState::Kernel | ConnectionState::AwaitingAdmission
        )
    }) {
        table.remove(&syn.tuple);
    }
    // A forged SYN must not displace the handshake of the real client.
    if let Some(pending) = find_conflicting_syn(table, syn, context.now_ns()) {
        return Ok((SegmentReason::TcpChallenge, challenge(&pending, syn)));
    }
    let isn = remember(context, table, syn, tcp_options);
    // The MTU of Ethernet, 1500 bytes, less the IP and TCP headers.
    let local_mss = if is_v6(syn) { 1440 } else { 1460 };
    // The first timestamp is random for each connection, so that timestamps do not reveal the uptime of this host.
    let timestamps = options::timestamp(syn.options).map(|echo| TcpTimestamps {
        value: context.random(),
        echo,
    });
    let reply = ModelReply {
        seq: isn,
        ack: syn.seq.wrapping_add(1),
        flags: SYN | ACK,
        window: WINDOW,
        options: &tcp_options.answer(local_mss, syn.options.len(), timestamps),
        payload: &[],
    };
    Ok((SegmentReason::TcpSyn, reply.write(syn)))
}

/// Stores the SYN, and returns the initial sequence number for it.
fn remember(
    context: &impl SegmentContext,
    table: &mut impl ModelTable,
    syn: &SegmentView<'_>,
    tcp_options: TcpOptions,
) -> u32 {
    let now_ns = context.now_ns();
    let minute = now_ns / MINUTE_NS;
    // A retransmitted SYN gets the same answer.
    let isn = match repeated(table, syn) {
        Some(pending) => pending.isn,
        None => cookie::make(
            context.cookie_key(minute),
            &syn.tuple,
            syn.seq,
            minute,
            &tcp_options,
        ),
    };
    let handshake = PendingHandshake {
        client_isn: syn.seq,
        isn,
        tcp_options,
        at_ns: now_ns,
    };
    table.remember(&syn.tuple, handshake);
    isn
}

/// A stored recent SYN of the same tuple with another sequence number.
fn find_conflicting_syn(
    table: &impl ModelTable,
    syn: &SegmentView<'_>,
    now_ns: u64,
) -> Option<PendingHandshake> {
    let is_conflicting = |pending: &PendingHandshake| {
        pending.client_isn != syn.seq && now_ns.wrapping_sub(pending.at_ns) <= HALF_OPEN_LIFE_NS
    };
    table.recall(&syn.tuple).filter(is_conflicting)
}

/// A challenge ACK: a client that did not begin the stored handshake answers with a reset.
fn challenge(pending: &PendingHandshake, syn: &SegmentView<'_>) -> Vec<u8> {
    let reply = ModelReply {
        seq: pending.isn.wrapping_add(1),
        ack: pending.client_isn.wrapping_add(1),
        flags: ACK,
        window: own_window(&pending.tcp_options),
        options: &[],
        payload: &[],
    };
    reply.write(syn)
}

fn check_syn(
    context: &mut impl SegmentContext,
    table: &impl ModelTable,
    syn: &SegmentView<'_>,
) -> Result<TcpOptions, SegmentReason> {
    let is_serving =
        context.mode() == LevelMode::Serve && context.is_daemon_alive() && context.has_responses();
    // A retransmitted SYN is answered even if new connections are not accepted: the fast path or the kernel handles a
    // whole handshake.
    if !is_serving && repeated(table, syn).is_none() {
        return Err(SegmentReason::PassSynOff);
    }
    let is_unusual = !syn.payload.is_empty() || syn.flags & (ACK | FIN | RST) != 0;
    if is_unusual || context.is_exempt(&syn.tuple) {
        return Err(SegmentReason::PassSynUnusual);
    }
    if context.is_denied(syn.tuple.client) {
        return Err(SegmentReason::PassDenied);
    }
    let least = if is_v6(syn) { MSS_MIN_V6 } else { MSS_MIN_V4 };
    let tcp_options = TcpOptions::read(syn.options).filter(|tcp_options| tcp_options.mss >= least);
    let tcp_options = tcp_options.ok_or(SegmentReason::PassSynUnusual)?;
    if syn.is_to_group() || !context.is_local(&syn.tuple) {
        return Err(SegmentReason::PassSynForeign);
    }
    let is_unadmitted = !context.is_admitted(&syn.tuple, AdmissionTime::LastMinute)
        && repeated(table, syn).is_none();
    match context.socket(&syn.tuple) {
        SocketState::Listener if is_unadmitted => return Err(SegmentReason::PassUnadmitted),
        SocketState::Listener => {}
        // If the client is not admitted, only the kernel may end its old connection.
        SocketState::TimeWait(old)
            if !is_unadmitted && is_reopening(syn, &old) && context.end_time_wait(&syn.tuple) =>
        {
            context.count(SegmentReason::TcpReused);
        }
        // The kernel handles the rest.
        _ => return Err(SegmentReason::PassSynSocket),
    }
    Ok(tcp_options.limited_to(syn.options.len()))
}

/// Whether a SYN may open a new connection in place of one in TIME_WAIT (RFC 9293 §3.10.7.4, RFC 6191): its sequence
/// number is beyond those of the old connection, and so is its timestamp if the old connection used timestamps. A newer
/// timestamp alone is not sufficient, as the fast path does not drop segments with old timestamps (no PAWS).
fn is_reopening(syn: &SegmentView<'_>, old: &TimeWait) -> bool {
    let is_after = |new: u32, old: u32| new.wrapping_sub(old).cast_signed() > 0;
    let times = old.ts_recent.zip(options::timestamp(syn.options));
    is_after(syn.seq, old.rcv_nxt) && times.is_none_or(|(recent, new)| !is_after(recent, new))
}

/// The stored answer to this SYN, if the SYN is a retransmission.
fn repeated(table: &impl ModelTable, syn: &SegmentView<'_>) -> Option<PendingHandshake> {
    let pending = table.recall(&syn.tuple)?;
    (pending.client_isn == syn.seq).then_some(pending)
}

/// The relation of a segment to the stored handshake of its tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeRelation {
    /// No handshake is stored.
    None,
    /// The segment completes the handshake: the connection is open.
    Completes,
    /// The segment arrived before the one that completes the handshake.
    Overtakes,
    /// The segment resets the handshake.
    Resets,
    /// The segment acknowledges a wrong number.
    Misses,
}

/// Determines the relation. Only the segment that directly follows the SYN completes a handshake: after a reordered
/// segment, the middle of a request would be parsed as its start.
pub(crate) fn determine_relation(
    context: &impl SegmentContext,
    table: &mut impl ModelTable,
    segment: &SegmentView<'_>,
) -> HandshakeRelation {
    let Some(pending) = table.recall(&segment.tuple) else {
        return HandshakeRelation::None;
    };
    let is_next = segment.seq == pending.client_isn.wrapping_add(1);
    // RFC 5961 §3.2: a reset is accepted only with the exact sequence number.
    if segment.flags & RST != 0 && is_next {
        table.forget(&segment.tuple);
        return HandshakeRelation::Resets;
    }
    if !segment.is_plain_ack() {
        return HandshakeRelation::None;
    }
    if segment.ack != pending.isn.wrapping_add(1) {
        return HandshakeRelation::Misses;
    }
    if !is_next {
        return HandshakeRelation::Overtakes;
    }
    table.forget(&segment.tuple);
    match open(context, table, segment, pending.tcp_options) {
        true => HandshakeRelation::Completes,
        false => HandshakeRelation::None,
    }
}

/// Opens the connection with its first segment; false if there is no room.
fn open(
    context: &impl SegmentContext,
    table: &mut impl ModelTable,
    segment: &SegmentView<'_>,
    tcp_options: TcpOptions,
) -> bool {
    // Clients send timestamps only if the SYN-ACK had them. The clock continues from the SYN-ACK's timestamp, which the
    // client echoes.
    let clock_offset = TcpTimestamps::read(segment.options)
        .map(|timestamps| timestamps.echo.wrapping_sub(now_ms(context)));
    let connection = ModelConnection {
        state: ConnectionState::Open,
        rcv_nxt: segment.seq,
        snd_nxt: segment.ack,
        tcp_options,
        clock_offset,
        in_flight: None,
        part_repeats: 0,
        recovery: RecoveryState::default(),
        handshake: handshake_of(segment),
        no_listener_since_ns: None,
    };
    table.insert(&segment.tuple, connection)
}

/// Opens a connection with a displaced SYN, if its cookie is valid; otherwise returns the reason. A connection that
/// has ended is not opened again.
pub(crate) fn open_by_cookie(
    context: &impl SegmentContext,
    table: &mut impl ModelTable,
    wrong_cookies: &mut WrongCookieLimit,
    segment: &SegmentView<'_>,
) -> Result<(), SegmentReason> {
    let now_ns = context.now_ns();
    let old = table.get(&segment.tuple).copied();
    let is_old = old.is_some_and(|old| old.handshake == handshake_of(segment));
    // If no SYN was displaced, a segment with a valid cookie is a late copy or a guess.
    if is_old || !table.consume_forgotten(&segment.tuple, now_ns) {
        return Err(SegmentReason::PassUnknown);
    }
    if wrong_cookies.is_limit_reached(now_ns) {
        return Err(SegmentReason::DropCookie);
    }
    let Some(tcp_options) = options_from_cookie(context, segment) else {
        wrong_cookies.count(now_ns);
        return Err(SegmentReason::DropCookie);
    };
    match open(context, table, segment, tcp_options) {
        true => Ok(()),
        false => Err(SegmentReason::PassUnknown),
    }
}

/// Counts wrong cookies per second. After [`WRONG_COOKIES_MAX`], an attack is assumed, and no connection is opened by a
/// cookie for the rest of the second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WrongCookieLimit {
    second: u64,
    count: u32,
}

const WRONG_COOKIES_MAX: u32 = 4096;
const SECOND_NS: u64 = 1_000_000_000;

impl WrongCookieLimit {
    fn is_limit_reached(&self, now_ns: u64) -> bool {
        self.count >= WRONG_COOKIES_MAX && self.second == now_ns / SECOND_NS
    }

    fn count(&mut self, now_ns: u64) {
        let second = now_ns / SECOND_NS;
        if self.second != second {
            *self = WrongCookieLimit { second, count: 0 };
        }
        self.count += 1;
    }
}

/// Whether the segment is a late copy of this connection's handshake, which must not open the connection again.
pub(crate) fn is_handshake_copy(segment: &SegmentView<'_>, connection: &ModelConnection) -> bool {
    connection.state != ConnectionState::Done
        && connection.handshake == handshake_of(segment)
        && connection.rcv_nxt.wrapping_sub(segment.seq) <= 0xffff
}

/// Whether the segment is so far from the window that it can't belong to the known connection.
pub(crate) fn is_far_from_window(segment: &SegmentView<'_>, connection: &ModelConnection) -> bool {
    let distance = segment.seq.wrapping_sub(connection.rcv_nxt);
    distance.wrapping_add(0x1_0000) > 0x2_0000 && segment.flags & FIN == 0
}

/// The middle bits of the initial sequence number, if the segment acknowledges only the SYN.
fn handshake_of(segment: &SegmentView<'_>) -> u16 {
    let [_, high, low, _] = segment.ack.wrapping_sub(1).to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// The options in a cookie, if it is valid: of this minute or, shortly after its end, of the previous one.
fn options_from_cookie(
    context: &impl SegmentContext,
    segment: &SegmentView<'_>,
) -> Option<TcpOptions> {
    let (isn, client_isn) = (segment.ack.wrapping_sub(1), segment.seq.wrapping_sub(1));
    let now_ns = context.now_ns();
    let (minute, previous) = (
        now_ns / MINUTE_NS,
        now_ns.wrapping_sub(COOKIE_LIFE_NS) / MINUTE_NS,
    );
    let check_minute = |minute: u64| {
        let key = context.cookie_key(minute);
        cookie::check(key, &segment.tuple, client_isn, minute, isn)
    };
    check_minute(minute).or_else(|| check_minute(previous))
}

fn is_v6(segment: &SegmentView<'_>) -> bool {
    matches!(segment.tuple.local, IpAddr::V6(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_rejected_for_a_second_after_too_many_wrong_ones() {
        // At this rate, guessing one of 8 in 2^32 numbers takes more than a day.
        let mut wrong_cookies = WrongCookieLimit::default();
        for _ in 0..WRONG_COOKIES_MAX {
            assert!(!wrong_cookies.is_limit_reached(5 * SECOND_NS + 7));
            wrong_cookies.count(5 * SECOND_NS);
        }
        assert!(wrong_cookies.is_limit_reached(6 * SECOND_NS - 1));
        assert!(!wrong_cookies.is_limit_reached(6 * SECOND_NS));
        wrong_cookies.count(6 * SECOND_NS);
        assert!(!wrong_cookies.is_limit_reached(6 * SECOND_NS));
    }
}
