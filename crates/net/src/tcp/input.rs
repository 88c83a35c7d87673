//! A segment of a connection (RFC 9293 §3.10.7). The plain one, which is next in order and opens or ends nothing,
//! has a short way.

use core::net::SocketAddrV4;

use lowroad_wire::options::Abilities;

use super::congestion::Mode;
use super::connection::{Connection, NEVER, State};
use super::receive;
use super::segment::{ACK, FIN, PSH, RST, SYN, Segment};
use super::time_wait::Over;
use crate::api::{End, Id, Link, Opened, Service};
use crate::bytes::{before, len32};
use crate::context::{Context, Core, address_of};

/// Duplicate ACKs that mean a loss.
const DUP_ACKS: u32 = 3;

/// What of a segment is new.
struct Fresh<'f> {
    /// Where it begins.
    seq: u32,
    payload: &'f [u8],
    fin: bool,
}

/// A segment of the connection in that place.
pub(crate) fn segment<L: Link, S: Service>(
    cx: &mut Context<'_, L>,
    service: &mut S,
    index: u32,
    segment: &Segment<'_>,
) {
    let id = cx.core.table.id(index);
    let now_us = cx.core.now_us;
    let Some(it) = cx.core.table.at_mut(index) else {
        return;
    };
    let is_plain = it.state == State::Open
        && segment.flags & !PSH == ACK
        && segment.seq == it.rcv_nxt
        && !it.is_fin_received
        && it.early_count == 0
        && len32(segment.payload.len()) <= it.window_left();
    let fresh = match is_plain {
        true => Fresh {
            seq: segment.seq,
            payload: segment.payload,
            fin: false,
        },
        false => match check(cx, service, id, segment) {
            Some(fresh) => fresh,
            None => return,
        },
    };
    let Some(it) = cx.core.table.at_mut(index) else {
        return;
    };
    heard(it, now_us);
    match acknowledged(cx.core, index, segment) {
        Acked::Bad => {
            cx.core.counters.acks_unacceptable += 1;
            return cx.challenge(index);
        }
        Acked::All => service.sent(cx, id),
        Acked::Some => {}
    }
    if !fresh.payload.is_empty() || fresh.fin {
        data(cx, service, id, &fresh);
    }
    finish(cx, service, id);
    cx.core.mark(index);
}

fn heard(it: &mut Connection, now_us: u64) {
    // Who only waits for the peer's end does not wait forever.
    if it.is_fin_acked {
        return;
    }
    if now_us - it.heard_us > it.rtt.timeout_us() && it.flight() == 0 {
        it.congestion.restart(it.mss);
    }
    it.heard_us = now_us;
}

/// What an ACK says.
enum Acked {
    Bad,
    /// Nothing is left of what was queued.
    All,
    Some,
}

fn acknowledged(core: &mut Core, index: u32, segment: &Segment<'_>) -> Acked {
    let Some(it) = core.table.at_mut(index) else {
        return Acked::Some;
    };
    let acked = segment.ack.wrapping_sub(it.snd_una);
    if acked > it.flight() {
        let age = acked.wrapping_neg();
        // Late ones are none of a stranger (RFC 5961 §5.2).
        return match age <= it.snd_wnd_max.max(65_535) {
            true => Acked::Some,
            false => Acked::Bad,
        };
    }
    let is_same = update_window(it, segment);
    if acked == 0 {
        if it.flight() > 0 {
            let is_bare = is_same && segment.payload.is_empty() && segment.flags & FIN == 0;
            let recovers = duplicate(it, segment, is_bare);
            core.counters.recoveries += u64::from(recovers);
        }
        return Acked::Some;
    }
    let flight = it.flight();
    let was = it.queue.len();
    it.snd_una = segment.ack;
    it.retries = 0;
    it.is_fin_acked = it.is_fin_sent && segment.ack == it.snd_nxt;
    it.queue.consume(&mut core.pool, acked as usize);
    // A byte now and then is not what others should wait for.
    if acked >= it.mss.into() || it.queue.len() == 0 {
        it.moved(core.now_us);
    }
    it.rtt.acked(segment.ack, core.now_us);
    if it.congestion.mode == Mode::Open && it.board.is_empty() && segment.options.is_empty() {
        it.congestion.dup_acks = 0;
        it.congestion.acked(acked, flight, it.mss);
    } else {
        let recovers = recovering(it, segment, acked, flight);
        core.counters.recoveries += u64::from(recovers);
    }
    it.resend_at_us = match it.flight() {
        0 => NEVER,
        _ => core.now_us + it.rtt.timeout_us(),
    };
    match was > 0 && it.queue.len() == 0 && it.is_told {
        true => Acked::All,
        false => Acked::Some,
    }
}

/// Takes the window, if the segment is not an old one. Gives whether it is the same.
fn update_window(it: &mut Connection, segment: &Segment<'_>) -> bool {
    let is_news = before(it.snd_wl1, segment.seq)
        || (it.snd_wl1 == segment.seq && !before(segment.ack, it.snd_wl2));
    if !is_news {
        return true;
    }
    let window = u32::from(segment.window) << it.scale;
    it.snd_wl1 = segment.seq;
    it.snd_wl2 = segment.ack;
    let was = core::mem::replace(&mut it.snd_wnd, window);
    it.snd_wnd_max = it.snd_wnd_max.max(window);
    if was == 0 && window > 0 && it.flight() > 0 {
        // What was beyond the closed window was not taken.
        it.congestion.send_again(it.snd_una, it.snd_nxt);
    }
    if was == 0 && window > 0 && it.flight() == 0 {
        it.resend_at_us = NEVER;
    }
    was == window
}

/// An ACK that acknowledges nothing new. Gives whether a recovery begins.
fn duplicate(it: &mut Connection, segment: &Segment<'_>, is_bare: bool) -> bool {
    let is_duplicate = match it.has_sack {
        true => it.board.read(segment.options, it.snd_una, it.snd_nxt),
        false => is_bare,
    };
    if !is_duplicate {
        return false;
    }
    it.congestion.dup_acks = it.congestion.dup_acks.saturating_add(1);
    finds_loss(it)
}

/// Begins a recovery if the peer has enough of what was sent later (RFC 6675 §5). Gives whether it did.
fn finds_loss(it: &mut Connection) -> bool {
    let mss = u32::from(it.mss);
    let flight = it.flight();
    // With little under way there will not be three (RFC 5827).
    let segments = flight.div_ceil(mss);
    let enough = match it.has_sack && it.unsent() == 0 && segments < 4 {
        true => segments.saturating_sub(1).max(1),
        false => DUP_ACKS,
    };
    // An ACK that waited says two things at once.
    let later = it.board.total().div_ceil(mss);
    if it.congestion.mode != Mode::Open || later.max(it.congestion.dup_acks.into()) < enough {
        return false;
    }
    it.congestion.enter_recovery(it.snd_una, it.snd_nxt, it.mss);
    true
}

/// New data was acknowledged while something is known to be lost, or may be. Gives whether a
/// recovery begins.
fn recovering(it: &mut Connection, segment: &Segment<'_>, acked: u32, flight: u32) -> bool {
    it.board.advance(it.snd_una);
    if it.has_sack {
        it.board.read(segment.options, it.snd_una, it.snd_nxt);
    }
    let congestion = &mut it.congestion;
    if congestion.mode == Mode::Open {
        congestion.dup_acks = 0;
        congestion.acked(acked, flight, it.mss);
        return !it.board.is_empty() && finds_loss(it);
    }
    if !before(it.snd_una, congestion.recover) {
        congestion.recovered();
        return !it.board.is_empty() && finds_loss(it);
    }
    if congestion.mode == Mode::Loss {
        congestion.acked(acked, flight, it.mss);
    }
    if congestion.mode == Mode::Recovery && it.board.is_empty() {
        // The next hole is lost too (RFC 6582 §3.2).
        let segments = acked.div_ceil(it.mss.into()).min(255) as u8;
        congestion.dup_acks = congestion.dup_acks.saturating_sub(segments);
        congestion.resent = it.snd_una;
    }
    if before(congestion.resent, it.snd_una) {
        congestion.resent = it.snd_una;
    }
    false
}

/// Data and FIN, in order or early.
fn data<L: Link, S: Service>(cx: &mut Context<'_, L>, service: &mut S, id: Id, fresh: &Fresh<'_>) {
    let Some(it) = cx.core.table.get_mut(id) else {
        return;
    };
    let end = fresh.seq.wrapping_add(len32(fresh.payload.len()));
    if fresh.fin {
        it.early_fin = Some(end);
        it.ack_now = true;
    }
    if fresh.seq != it.rcv_nxt {
        return receive::keep_early(cx.core, id.index, fresh.seq, fresh.payload);
    }
    let was_early = it.early_count > 0;
    if !fresh.payload.is_empty() {
        receive::deliver(cx, service, id, fresh.payload);
    }
    if was_early {
        receive::catch_up(cx, service, id);
    }
    if let Some(it) = cx.core.table.get_mut(id)
        && it.early_fin == Some(it.rcv_nxt)
    {
        it.early_fin = None;
        it.is_fin_received = true;
        it.ack_now = true;
        it.rcv_nxt = it.rcv_nxt.wrapping_add(1);
        it.drop_early(&mut cx.core.pool);
        if !it.is_closing {
            service.finished(cx, id);
        }
    }
}

/// Ends the connection if both sides have said all.
fn finish<L: Link, S: Service>(cx: &mut Context<'_, L>, service: &mut S, id: Id) {
    let Some(it) = cx.core.table.get(id) else {
        return;
    };
    if !it.is_fin_received || !it.is_fin_acked {
        return;
    }
    if it.is_passive_close {
        return end(cx, service, id.index, End::Closed);
    }
    let over = Over {
        key: it.key,
        rcv_nxt: it.rcv_nxt,
        snd_nxt: it.snd_nxt,
    };
    cx.send_ack(id.index);
    let now_us = cx.core.now_us;
    let displaces = cx.core.time_wait.insert(over, now_us);
    cx.core.counters.time_wait_displaced += u64::from(displaces);
    end(cx, service, id.index, End::Closed);
}

/// Takes a connection out and says so.
pub(crate) fn end<L: Link, S: Service>(
    cx: &mut Context<'_, L>,
    service: &mut S,
    index: u32,
    end: End,
) {
    let id = cx.core.table.id(index);
    if !remove(cx.core, index) {
        return;
    }
    let counters = &mut cx.core.counters;
    match end {
        End::Closed => counters.ended_closed += 1,
        End::Reset => counters.ended_reset += 1,
        End::TimedOut => counters.ended_timed_out += 1,
    }
    service.ended(cx, id, end);
}

/// Takes a connection out. Gives whether there was one.
pub(crate) fn remove(core: &mut Core, index: u32) -> bool {
    let Some(mut it) = core.table.remove(index) else {
        return false;
    };
    it.release(&mut core.pool);
    core.wheel.leave(index);
    true
}

/// All that is not plain. Gives what of it is to be taken.
#[inline(never)]
fn check<'f, L: Link, S: Service>(
    cx: &mut Context<'_, L>,
    service: &mut S,
    id: Id,
    segment: &Segment<'f>,
) -> Option<Fresh<'f>> {
    let index = id.index;
    let it = cx.core.table.at_mut(index)?;
    if it.state == State::SynSent {
        syn_sent(cx, service, id, segment);
        return None;
    }
    if it.state == State::SynReceived && completes(it, segment) {
        opened(cx, service, id, segment);
    }
    let it = cx.core.table.get_mut(id)?;
    let old = it.rcv_nxt.wrapping_sub(segment.seq).cast_signed();
    let window = it.window_left();
    let is_ahead = old < 0 && old.unsigned_abs() > window;
    let is_old = old > 0 && segment.len() <= old.unsigned_abs();
    if segment.flags & RST != 0 {
        reset(cx, service, index, old, window);
        return None;
    }
    if segment.flags & SYN != 0 {
        match it.state {
            State::SynReceived => cx.send_syn(index),
            _ => cx.challenge(index),
        }
        return None;
    }
    if is_ahead || is_old || segment.flags & ACK == 0 || it.state != State::Open {
        cx.core.counters.segments_outside += 1;
        if segment.flags & ACK != 0 && it_was_sent_again(is_old, segment) {
            // It may be that our ACK got lost; and this one may be news to us.
            acknowledge_old(cx, service, id, segment);
        }
        cx.challenge(index);
        return None;
    }
    let it = cx.core.table.get_mut(id)?;
    let skipped = usize::try_from(old.max(0)).ok()?;
    let payload = segment.payload.get(skipped..).unwrap_or_default();
    let seq = segment.seq.wrapping_add(len32(skipped));
    let ahead = seq.wrapping_sub(it.rcv_nxt);
    let room = window.saturating_sub(ahead) as usize;
    let fin = segment.flags & FIN != 0 && payload.len() <= room && !it.is_fin_received;
    let payload = payload.get(..room).unwrap_or(payload);
    // Nothing comes after a FIN.
    let payload = if it.is_fin_received { &[] } else { payload };
    // Who sends what we have, or have no room for, does not know so.
    it.ack_now |= payload.len() < segment.payload.len();
    Some(Fresh { seq, payload, fin })
}

fn it_was_sent_again(is_old: bool, segment: &Segment<'_>) -> bool {
    is_old && segment.len() > 0
}

/// The ACK of a segment that was there before.
fn acknowledge_old<L: Link, S: Service>(
    cx: &mut Context<'_, L>,
    service: &mut S,
    id: Id,
    segment: &Segment<'_>,
) {
    if let Acked::All = acknowledged(cx.core, id.index, segment) {
        service.sent(cx, id);
    }
    finish(cx, service, id);
    cx.core.mark(id.index);
}

/// A reset counts if it has exactly the next number (RFC 5961 §3.2).
fn reset<L: Link, S: Service>(
    cx: &mut Context<'_, L>,
    service: &mut S,
    index: u32,
    old: i32,
    window: u32,
) {
    if old == 0 {
        return end(cx, service, index, End::Reset);
    }
    cx.core.counters.resets_ignored += 1;
    if old < 0 && old.unsigned_abs() <= window {
        cx.challenge(index);
    }
}

/// A segment to who has asked (RFC 9293 §3.10.7.3).
fn syn_sent<L: Link, S: Service>(
    cx: &mut Context<'_, L>,
    service: &mut S,
    id: Id,
    segment: &Segment<'_>,
) {
    let Some(it) = cx.core.table.get_mut(id) else {
        return;
    };
    let is_acked = segment.flags & ACK != 0;
    let is_right = it.flight() > 0 && segment.ack == it.snd_nxt;
    if is_acked && !is_right {
        return cx.refuse(segment);
    }
    if segment.flags & RST != 0 {
        if is_acked {
            end(cx, service, id.index, End::Reset);
        }
        return;
    }
    let can = Abilities::read(segment.options);
    let Some(can) = can.filter(|_| segment.flags & SYN != 0) else {
        return;
    };
    let own_mss = cx.core.own_mss();
    let Some(it) = cx.core.table.get_mut(id) else {
        return;
    };
    it.mss = super::listen::agreed_mss(&can, own_mss);
    it.congestion = super::congestion::Congestion::new(it.mss);
    it.has_sack = can.sack;
    it.scale = can.scale.unwrap_or(0);
    it.rcv_nxt = segment.seq.wrapping_add(1);
    if is_acked {
        opened(cx, service, id, segment);
        if let Some(it) = cx.core.table.get_mut(id) {
            it.ack_now = true;
            cx.core.mark(id.index);
        }
        return;
    }
    it.state = State::SynReceived;
    it.snd_nxt = it.snd_una.wrapping_add(1);
    cx.send_syn(id.index);
}

/// Whether the peer has our SYN, and we have its.
fn completes(it: &Connection, segment: &Segment<'_>) -> bool {
    let is_syn = segment.flags & SYN != 0;
    segment.flags & (ACK | RST) == ACK
        && segment.ack == it.snd_una.wrapping_add(1)
        && segment.seq.wrapping_add(is_syn.into()) == it.rcv_nxt
}

/// A connection that we have asked for is open.
fn opened<L: Link, S: Service>(
    cx: &mut Context<'_, L>,
    service: &mut S,
    id: Id,
    segment: &Segment<'_>,
) {
    let now_us = cx.core.now_us;
    let Some(it) = cx.core.table.get_mut(id) else {
        return;
    };
    it.state = State::Open;
    it.is_told = true;
    it.retries = 0;
    it.heard_us = now_us;
    it.rtt.acked(segment.ack, now_us);
    it.snd_una = segment.ack;
    it.snd_nxt = segment.ack;
    it.resend_at_us = NEVER;
    // Not scaled in a SYN.
    let scale = if segment.flags & SYN != 0 {
        0
    } else {
        it.scale
    };
    it.snd_wnd = u32::from(segment.window) << scale;
    it.snd_wnd_max = it.snd_wnd;
    it.snd_wl1 = segment.seq;
    it.snd_wl2 = segment.ack;
    cx.core.counters.opened_active += 1;
    let key = it.key;
    let opened = Opened {
        peer: SocketAddrV4::new(address_of(key.remote()), key.remote_port()),
        port: key.port(),
        by_us: true,
    };
    service.opened(cx, id, opened);
}
