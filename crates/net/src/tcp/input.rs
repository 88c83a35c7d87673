//! A segment of a connection (RFC 9293 §3.10.7). The plain one, which is next in order and opens or ends nothing,
//! has a short way.

use super::acknowledge::{Acked, acknowledged};
use super::connection::{Connection, State};
use super::end::end;
use super::segment::{ACK, FIN, PSH, RST, SYN, Segment};
use super::time_wait::Over;
use super::{receive, syn_sent};
use crate::api::{End, Id, Link, Service};
use crate::bytes::len32;
use crate::context::Context;

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
        syn_sent::segment(cx, service, id, segment);
        return None;
    }
    if it.state == State::SynReceived && syn_sent::completes(it, segment) {
        syn_sent::opened(cx, service, id, segment);
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
