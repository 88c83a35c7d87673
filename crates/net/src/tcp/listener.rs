//! Processes segments without a connection: SYNs, ACKs that complete a handshake, segments in TIME_WAIT, and segments
//! that are answered by a reset.

use core::net::SocketAddrV4;

use lowroad_wire::options::TcpOptions;

use super::connection::{TcpConnection, WINDOW, agreed_mss};
use super::end::end;
use super::half_open::HandshakeMatch;
use super::segment::{ACK, FIN, RST, SYN, TcpSegment};
use super::stateless_reply::{ReplySegment, occupies_sequence};
use super::time_wait::ClosedConnection;
use super::{input, output};
use crate::bytes::before;
use crate::context::{StackContext, StackCore, address_of};
use crate::stack_api::{ConnectionEnd, ConnectionId, ConnectionInitiator, LinkDevice, TcpService};

/// A connection that received input within this time is not idle.
const IDLE_MIN_US: u64 = 1_000_000;
/// A handshake that took longer is not used as an RTT sample.
const ROUND_TRIP_MAX_US: u64 = 1_000_000;

/// Processes a segment without a connection.
pub(crate) fn segment<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    segment: &TcpSegment<'_>,
) {
    let now_us = cx.core.now_us;
    if let Some((at, closed)) = cx.core.time_wait.find(segment.key, now_us) {
        if segment.flags & RST != 0 {
            return time_wait_reset(cx, at, segment.seq == closed.rcv_nxt);
        }
        // RFC 9293 §3.6.1: a SYN with a higher sequence number may reuse a connection in TIME_WAIT.
        let is_syn = segment.flags & (SYN | ACK) == SYN;
        if !is_syn || !before(closed.rcv_nxt, segment.seq) {
            return time_wait(cx, segment, &closed);
        }
        cx.core.time_wait.unlink(at);
        cx.core.counters.time_wait_reused += 1;
    }
    if segment.flags & RST != 0 {
        // A reset is never answered; it may end a half-open connection.
        return cx.core.half_open.forget(segment.key, segment.seq);
    }
    match segment.flags & (SYN | ACK) {
        SYN => syn(cx, segment),
        ACK => completes(cx, service, segment),
        _ => cx.refuse(segment),
    }
}

/// Handles a reset in TIME_WAIT: one with exactly the next sequence number ends TIME_WAIT (RFC 5961 §3.2).
///
/// A client that sends a new SYN with a lower sequence number than the old connection gets an ACK, responds to it with
/// such a reset, and connects with its next SYN.
fn time_wait_reset<L: LinkDevice>(cx: &mut StackContext<'_, L>, at: u32, is_exact: bool) {
    // RFC 1337: other resets must not end TIME-WAIT early.
    if !is_exact {
        cx.core.counters.resets_ignored += 1;
        return;
    }
    cx.core.time_wait.unlink(at);
    cx.core.counters.time_wait_reset += 1;
}

fn time_wait<L: LinkDevice>(
    cx: &mut StackContext<'_, L>,
    segment: &TcpSegment<'_>,
    closed: &ClosedConnection,
) {
    let now_us = cx.core.now_us;
    if occupies_sequence(segment) && cx.core.rates.challenges.take(now_us) {
        let reply = ReplySegment {
            seq: closed.snd_nxt,
            ack: closed.rcv_nxt,
            flags: ACK,
            window: WINDOW as u16,
            options: &[],
        };
        cx.reply(segment, reply);
    }
}

fn syn<L: LinkDevice>(cx: &mut StackContext<'_, L>, syn: &TcpSegment<'_>) {
    if !cx.core.ports.contains(&syn.key.port()) || cx.core.refuses_new {
        cx.core.counters.syns_refused += 1;
        return cx.refuse(syn);
    }
    if syn.flags & FIN != 0 {
        cx.core.counters.syns_malformed += 1;
        return;
    }
    let tcp_options = TcpOptions::read_well_formed(syn.options);
    // A SYN may be forged, so it evicts no connection.
    if cx.core.table.is_full() && find_evictable(cx.core).is_none() {
        cx.core.counters.syns_dropped_full += 1;
        return;
    }
    let now_us = cx.core.now_us;
    let (isn, displaces) = cx
        .core
        .half_open
        .record_syn(syn.key, syn.seq, tcp_options, now_us);
    cx.core.counters.half_open_displaced += u64::from(displaces);
    cx.core.counters.syns_answered += 1;
    // The array is filled with no-operation options, which align the others.
    let mut options = [1; 12];
    let [high, low] = cx.core.local_mss().to_be_bytes();
    options[..4].copy_from_slice(&[2, 4, high, low]);
    let mut len = 4;
    if tcp_options.sack {
        options[len + 2..len + 4].copy_from_slice(&[4, 2]);
        len += 4;
    }
    if tcp_options.scale.is_some() {
        // Scale 0: only the windows of the peer are scaled.
        options[len + 1..len + 4].copy_from_slice(&[3, 3, 0]);
        len += 4;
    }
    let reply = ReplySegment {
        seq: isn,
        ack: syn.seq.wrapping_add(1),
        flags: SYN | ACK,
        window: WINDOW as u16,
        options: &options[..len],
    };
    cx.reply(syn, reply);
}

fn completes<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    segment: &TcpSegment<'_>,
) {
    let (key, seq, ack) = (segment.key, segment.seq, segment.ack);
    let now_us = cx.core.now_us;
    let (tcp_options, syn_us) = match cx.core.half_open.match_handshake(key, seq, ack) {
        HandshakeMatch::Completes {
            tcp_options,
            syn_us,
        } => (tcp_options, Some(syn_us)),
        // The segment that completes the handshake has not arrived yet; the peer retransmits this segment.
        HandshakeMatch::Overtakes => return,
        HandshakeMatch::None if cx.core.half_open.accepts_cookies(now_us) => {
            match cx.core.half_open.cookie(key, seq, ack, now_us) {
                Some(tcp_options) => {
                    cx.core.counters.cookies_good += 1;
                    (tcp_options, None)
                }
                None => {
                    cx.core.counters.cookies_wrong += 1;
                    return cx.refuse(segment);
                }
            }
        }
        HandshakeMatch::None => return cx.refuse(segment),
    };
    // The listener of the cookie's port may have been removed, or the stack may be draining.
    let is_served = cx.core.ports.contains(&key.port()) && !cx.core.refuses_new;
    if !is_served {
        cx.core.counters.syns_refused += 1;
        return cx.refuse(segment);
    }
    let rtt_us = syn_us.map(|syn_us| now_us.saturating_sub(syn_us));
    if let Some(id) = accept(cx, service, segment, tcp_options, rtt_us) {
        input::segment(cx, service, id.index, segment);
    }
}

fn accept<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
    segment: &TcpSegment<'_>,
    tcp_options: TcpOptions,
    rtt_us: Option<u64>,
) -> Option<ConnectionId> {
    if !make_room(cx, service) {
        cx.core.counters.accept_dropped_full += 1;
        return None;
    }
    let core = &mut *cx.core;
    let local = core.local?;
    let key = segment.key;
    let mut connection =
        TcpConnection::new(key, agreed_mss(&tcp_options, core.local_mss()), core.now_us);
    connection.has_sack = tcp_options.sack;
    connection.scale = tcp_options.scale.unwrap_or(0);
    connection.rcv_nxt = segment.seq;
    // The SYN-ACK advertised the full window.
    connection.rcv_end = segment.seq.wrapping_add(WINDOW);
    connection.snd_una = segment.ack;
    connection.snd_nxt = segment.ack;
    // SND.WL1 is one less than the segment's number, so that the segment counts as recent and updates the window.
    connection.snd_wl1 = segment.seq.wrapping_sub(1);
    connection.snd_wl2 = segment.ack;
    connection.is_service_notified = true;
    // The handshake is the first RTT sample; without a sample the timeout is one second.
    if let Some(rtt_us) = rtt_us.filter(|rtt_us| *rtt_us < ROUND_TRIP_MAX_US) {
        connection.rtt.sample(rtt_us as u32);
    }
    output::prepare(&mut connection, core.mac, segment.mac, local.address);
    let id = core.table.insert(connection)?;
    core.half_open.forget(key, segment.seq);
    core.counters.opened_passive += 1;
    // The idle timeout starts now: a handshake alone must not keep a connection open.
    core.wheel
        .schedule(id.index, core.now_us + core.idle_timeout_us);
    let opened = ConnectionInitiator {
        peer: SocketAddrV4::new(address_of(key.remote()), key.remote_port()),
        port: key.port(),
        is_active_open: false,
    };
    service.opened(cx, id, opened);
    cx.core.table.get(id).map(|_| id)
}

/// A connection that may be evicted for a new one.
fn find_evictable(core: &mut StackCore) -> Option<u32> {
    // Connections have a minimum age before they are evicted, so that a flood of new ones can't immediately evict each
    // other.
    let before_us = core.now_us.checked_sub(IDLE_MIN_US)?;
    // Idle connections are evicted first, since that costs the client only a new handshake.
    let idle = core.table.idle(before_us);
    idle.or_else(|| core.table.stalled(core.now_us, false))
}

/// Whether there is a free slot, after the eviction of an idle or stalled connection if necessary.
fn make_room<L: LinkDevice, S: TcpService>(cx: &mut StackContext<'_, L>, service: &mut S) -> bool {
    if !cx.core.table.is_full() {
        return true;
    }
    let Some(index) = find_evictable(cx.core) else {
        return false;
    };
    let is_idle = cx.core.table.at(index).is_some_and(TcpConnection::is_idle);
    match is_idle {
        true => cx.core.counters.evicted_idle += 1,
        false => cx.core.counters.evicted_stalled += 1,
    }
    cx.reset(index);
    end(cx, service, index, ConnectionEnd::TimedOut);
    true
}

/// While few buffers are free, evicts stalled connections that hold buffers.
pub(crate) fn free_buffers<L: LinkDevice, S: TcpService>(
    cx: &mut StackContext<'_, L>,
    service: &mut S,
) {
    let now_us = cx.core.now_us;
    while cx.core.pool.is_short()
        && let Some(index) = cx.core.table.stalled(now_us, true)
    {
        cx.core.counters.evicted_stalled += 1;
        cx.reset(index);
        end(cx, service, index, ConnectionEnd::TimedOut);
    }
}
