//! Sending: decides how much may be sent now, and builds the segments.

use super::congestion::RecoveryMode;
use super::connection::{HandshakeState, NEVER, TcpConnection};
use super::queue::{PayloadShape, SegmentPayload};
use super::segment::{ACK, FIN, HEADER_LEN, PSH, SYN};
use crate::bytes::{before, fold, len32, put16, put32};
use crate::context::{StackContext, StackCore};
use crate::stack_api::{DeviceOffload, LinkDevice, OutgoingFrame};

/// The largest payload of a frame that the device segments.
const CUT_TOTAL_MAX: usize = 60 * 1024;
/// The delay of an ACK that waits for data to carry it (RFC 9293 §3.8.6.3).
const ACK_DELAY_US: u64 = 40_000;
/// Received segments after which an ACK is sent at once.
const ACK_EVERY: u8 = 2;
/// Offset of the TCP header in a frame.
const TCP_AT: usize = 34;
const OPTIONS_MAX: usize = 40;

/// A segment that may be sent.
#[derive(Clone, Copy)]
struct OutgoingSegment {
    /// Offset from the first unacknowledged byte.
    at: u32,
    len_max: usize,
    /// A FIN may follow if the segment reaches the queue's end.
    fin: bool,
    is_again: bool,
}

impl<L: LinkDevice> StackContext<'_, L> {
    /// Sends all permitted segments, or the due ACK.
    pub(crate) fn output(&mut self, index: u32) {
        let Some(it) = self.core.table.at_mut(index) else {
            return;
        };
        if it.state != HandshakeState::Open {
            return self.output_syn(index);
        }
        let mut is_sent = false;
        while let Some(it) = self.core.table.at(index)
            && it.has_more()
            && let Some(step) = next(it, self.offload)
        {
            is_sent = true;
            if !self.emit(index, step) {
                break;
            }
        }
        if !is_sent {
            self.acknowledge(index);
        }
    }

    fn acknowledge(&mut self, index: u32) {
        let now_us = self.core.now_us;
        let Some(it) = self.core.table.at_mut(index) else {
            return;
        };
        // Persist timer: a closed window is probed (RFC 9293 §3.8.6.1).
        if it.unsent() > 0 && it.flight() == 0 && it.resend_at_us == NEVER {
            it.resend_at_us = now_us + it.rtt.timeout_us();
            self.core.wheel.ask(index, it.resend_at_us);
        }
        if it.ack_now || it.unacked >= ACK_EVERY {
            return self.send_ack(index);
        }
        if it.unacked > 0 && it.ack_at_us == NEVER {
            it.ack_at_us = now_us + ACK_DELAY_US;
            self.core.wheel.ask(index, it.ack_at_us);
        }
    }

    /// Sends one byte beyond a closed window, since the ACK that opens it may get lost.
    pub(crate) fn probe(&mut self, index: u32) {
        self.core.counters.window_probes += 1;
        let step = OutgoingSegment {
            at: 0,
            len_max: 1,
            fin: false,
            is_again: false,
        };
        self.emit(index, step);
    }

    /// Sends an ACK without data, with SACK blocks of the out-of-order segments.
    pub(crate) fn send_ack(&mut self, index: u32) {
        let Some(it) = self.core.table.at_mut(index) else {
            return;
        };
        let mut options = [1; OPTIONS_MAX];
        let options_len = sack_option(it, &mut options);
        let seq = it.snd_nxt;
        self.bare(index, seq, ACK, &options[..options_len]);
    }

    /// Sends a segment without data.
    pub(crate) fn bare(&mut self, index: u32, seq: u32, flags: u8, options: &[u8]) {
        let StackContext {
            core,
            link,
            offload,
        } = self;
        let Some(it) = core.table.at_mut(index) else {
            return;
        };
        let mut frame = [0; TCP_AT + HEADER_LEN + OPTIONS_MAX];
        let (plain, behind) = frame.split_at_mut(TCP_AT + HEADER_LEN);
        plain.copy_from_slice(&it.template);
        behind[..options.len()].copy_from_slice(options);
        plain[46] = ((HEADER_LEN + options.len()) as u8 / 4) << 4;
        let len = HEADER_LEN + options.len();
        let sum = match offload.sum {
            true => None,
            false => Some(crate::payload_checksums::sum_of(options).into()),
        };
        let says = SegmentHeaders {
            seq,
            flags,
            tcp_len: len,
            window: it.window(),
            sum,
        };
        fill(it, plain, says);
        it.has_said(says.window);
        let frame = OutgoingFrame {
            head: &frame[..TCP_AT + len],
            copied: &[],
            lasting: &[],
            partial_sum: offload.sum.then_some(TCP_AT as u16),
            cut_len: None,
        };
        core.counters.frames_sent += 1;
        link.send(&frame);
    }

    /// Sends a segment. Returns whether it carries data or a FIN: the caller's loop would not end otherwise.
    fn emit(&mut self, index: u32, step: OutgoingSegment) -> bool {
        let StackContext {
            core,
            link,
            offload,
        } = self;
        let StackCore {
            table,
            wheel,
            counters,
            now_us,
            ..
        } = &mut **core;
        let Some(it) = table.at_mut(index) else {
            return false;
        };
        let seq = it.snd_una.wrapping_add(step.at);
        let shape = PayloadShape {
            len_max: step.len_max,
            copied_max: usize::from(it.mss),
            by_sums: !offload.sum,
        };
        let part = it.queue.part(step.at as usize, shape);
        let end = step.at as usize + part.len();
        let is_last = end == it.queue.len();
        let with_fin = is_last && step.fin;
        // PSH: the receiver need not wait for more.
        let flags = ACK | if is_last { PSH } else { 0 } | if with_fin { FIN } else { 0 };
        let sum = match offload.sum {
            true => None,
            false => Some(part.sum()),
        };
        let mut head = it.template;
        let says = SegmentHeaders {
            seq,
            flags,
            tcp_len: HEADER_LEN + part.len(),
            window: it.window(),
            sum,
        };
        fill(it, &mut head, says);
        send(*link, &head, part, sum.is_some(), it.mss);
        it.has_said(says.window);
        counters.frames_sent += 1;
        note_sent(it, seq, end, with_fin, step.is_again, *now_us);
        counters.retransmitted += u64::from(step.is_again);
        // The timer runs from the oldest unacknowledged segment, so a running one is not restarted (RFC 6298 §5.1).
        if it.resend_at_us == NEVER {
            it.resend_at_us = *now_us + it.rtt.timeout_us();
            wheel.ask(index, it.resend_at_us);
        }
        end > step.at as usize || with_fin
    }
}

fn send<L: LinkDevice>(
    link: &mut L,
    head: &[u8],
    part: SegmentPayload<'_>,
    is_summed: bool,
    mss: u16,
) {
    let frame = OutgoingFrame {
        head,
        copied: part.copied,
        lasting: part.lasting,
        partial_sum: (!is_summed).then_some(TCP_AT as u16),
        cut_len: (part.len() > usize::from(mss)).then_some(mss),
    };
    link.send(&frame);
}

/// Updates the sequence numbers after a segment that ended at `end` of the queue.
fn note_sent(it: &mut TcpConnection, seq: u32, end: usize, fin: bool, is_again: bool, now_us: u64) {
    let end = it.snd_una.wrapping_add(len32(end)).wrapping_add(fin.into());
    if fin {
        it.is_fin_sent = true;
        it.is_passive_close |= it.is_fin_received;
    }
    if is_again {
        it.congestion.resent = end;
        it.rtt.forget();
    }
    if before(it.snd_nxt, end) {
        it.snd_nxt = end;
        if !is_again && seq != end {
            it.rtt.sent(end, now_us);
        }
    }
}

/// The next segment that may be sent.
fn next(it: &TcpConnection, offload: DeviceOffload) -> Option<OutgoingSegment> {
    if it.congestion.mode != RecoveryMode::Open
        && let Some(step) = again(it)
    {
        return Some(step);
    }
    let unsent = it.unsent();
    if it.is_fin_sent || (unsent == 0 && !it.is_closing) {
        return None;
    }
    let flight = it.flight();
    if unsent == 0 {
        return Some(OutgoingSegment {
            at: flight,
            len_max: 0,
            fin: true,
            is_again: false,
        });
    }
    let pipe = it
        .congestion
        .pipe(it.snd_una, it.snd_nxt, it.mss, &it.board);
    let room = it.congestion.cwnd.saturating_sub(pipe);
    // A peer may shrink its window below the data in flight.
    let room = room.min(it.snd_wnd.saturating_sub(flight)) as usize;
    let mss = usize::from(it.mss);
    let mut len = unsent.min(room);
    // Sender's silly window avoidance (RFC 9293 §3.8.6.2.1): no small segment while a larger one is possible later.
    if len < mss && len < unsent && (flight > 0 || len == 0) {
        return None;
    }
    if len > mss {
        len = match offload.segmentation {
            true => len.min(CUT_TOTAL_MAX),
            false => mss,
        };
        // Only the last segment of the queue may be short.
        if len < unsent {
            len -= len % mss;
        }
    }
    Some(OutgoingSegment {
        at: flight,
        len_max: len,
        fin: it.is_closing,
        is_again: false,
    })
}

/// The next lost segment that may be retransmitted.
fn again(it: &TcpConnection) -> Option<OutgoingSegment> {
    let lost_end = it
        .congestion
        .lost_end(it.snd_una, it.snd_nxt, it.mss, &it.board);
    let resent = it.congestion.resent;
    let from = if before(resent, it.snd_una) {
        it.snd_una
    } else {
        resent
    };
    let (start, end) = it.board.hole(from, lost_end)?;
    let at = start.wrapping_sub(it.snd_una);
    let len = end.wrapping_sub(start).min(it.mss.into());
    // The first unacknowledged segment is retransmitted regardless of the window, or recovery would stall.
    if at > 0 {
        let pipe = it
            .congestion
            .pipe(it.snd_una, it.snd_nxt, it.mss, &it.board);
        if pipe >= it.congestion.cwnd || at + len > it.snd_wnd {
            return None;
        }
    }
    // The FIN has the sequence number behind the queue.
    let left = it.queue.len().saturating_sub(at as usize);
    Some(OutgoingSegment {
        at,
        len_max: left.min(len as usize),
        fin: it.is_fin_sent && before(it.snd_una.wrapping_add(len32(it.queue.len())), end),
        is_again: true,
    })
}

/// The header fields of a segment.
#[derive(Clone, Copy)]
struct SegmentHeaders {
    seq: u32,
    flags: u8,
    /// Length of the TCP header and data.
    tcp_len: usize,
    window: u32,
    /// The sum of all bytes behind the header; `None`: the device computes it.
    sum: Option<u32>,
}

/// Writes numbers, lengths and checksums into the headers.
fn fill(it: &TcpConnection, head: &mut [u8], says: SegmentHeaders) {
    let Some(head) = head.first_chunk_mut::<54>() else {
        return;
    };
    let SegmentHeaders {
        seq,
        flags,
        tcp_len,
        window,
        sum,
    } = says;
    let ack = if flags & ACK != 0 { it.rcv_nxt } else { 0 };
    let total_len = 20 + tcp_len as u16;
    put16(head, 16, total_len);
    put16(head, 24, !fold(it.ip_sum + u32::from(total_len)));
    put32(head, 38, seq);
    put32(head, 42, ack);
    head[47] = flags;
    put16(head, 48, window as u16);
    let pseudo = it.pseudo_sum + tcp_len as u32;
    let Some(sum) = sum else {
        // The device adds the sum of header and payload.
        put16(head, 50, fold(pseudo));
        return;
    };
    let halves = |word: u32| (word >> 16) + (word & 0xffff);
    let ports = u32::from(it.key.port()) + u32::from(it.key.remote_port());
    let offset_flags = u32::from(head[46]) << 8 | u32::from(flags);
    let total = pseudo + ports + halves(seq) + halves(ack) + offset_flags + window + sum;
    put16(head, 50, !fold(total));
}

/// Builds a connection's header template.
pub(crate) fn prepare(it: &mut TcpConnection, mac: [u8; 6], to_mac: [u8; 6], local: u32) {
    let head = &mut it.template;
    head[..6].copy_from_slice(&to_mac);
    head[6..12].copy_from_slice(&mac);
    head[12..14].copy_from_slice(&crate::ipv4::ETHERTYPE);
    crate::ipv4::header(
        &mut head[14..34],
        crate::ipv4::TCP,
        0,
        local,
        it.key.remote(),
    );
    // The sum without the length of 20 that the header was written with.
    it.ip_sum = u32::from(!u16::from_be_bytes([head[24], head[25]])) + u32::from(!20u16);
    put16(head, 34, it.key.port());
    put16(head, 36, it.key.remote_port());
    head[46] = (HEADER_LEN as u8 / 4) << 4;
    it.pseudo_sum = crate::ipv4::pseudo_sum(crate::ipv4::TCP, local, it.key.remote());
}

/// Writes the SACK option for the out-of-order segments; returns its length.
fn sack_option(it: &TcpConnection, options: &mut [u8; OPTIONS_MAX]) -> usize {
    if it.early_count == 0 || !it.has_sack {
        return 0;
    }
    let mut at = 4;
    for early in it.early.iter().flatten() {
        put32(options, at, early.seq);
        put32(options, at + 4, early.seq.wrapping_add(len32(early.len)));
        at += 8;
    }
    options[2] = 5;
    options[3] = at as u8 - 2;
    at
}

impl<L: LinkDevice> StackContext<'_, L> {
    /// Sends the SYN of an outgoing connection.
    fn output_syn(&mut self, index: u32) {
        let Some(it) = self.core.table.at(index) else {
            return;
        };
        if it.flight() > 0 || !self.has_mac(index) {
            return;
        }
        self.send_syn(index);
        let now_us = self.core.now_us;
        if let Some(it) = self.core.table.at_mut(index) {
            it.snd_nxt = it.snd_una.wrapping_add(1);
            it.rtt.sent(it.snd_nxt, now_us);
            it.resend_at_us = now_us + it.rtt.timeout_us();
            self.core.wheel.ask(index, it.resend_at_us);
        }
    }

    /// Sends a SYN, or a SYN-ACK after a simultaneous open.
    pub(crate) fn send_syn(&mut self, index: u32) {
        let Some(it) = self.core.table.at(index) else {
            return;
        };
        let [high, low] = self.core.own_mss().to_be_bytes();
        let options = [2, 4, high, low, 1, 1, 4, 2, 1, 3, 3, 0];
        let flags = match it.state {
            HandshakeState::SynReceived => SYN | ACK,
            _ => SYN,
        };
        let seq = it.snd_una;
        self.bare(index, seq, flags, &options);
        if let Some(it) = self.core.table.at_mut(index) {
            // The window of a SYN is never scaled, nor are later ones of this side, since it announces scale 0.
            it.rcv_end = it.rcv_nxt.wrapping_add(it.window());
        }
    }
}
