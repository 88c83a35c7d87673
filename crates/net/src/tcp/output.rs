//! Decides how much may be sent now, and builds the segments.

use super::congestion::RecoveryMode;
use super::connection::{HandshakeState, NEVER, TcpConnection};
use super::queue::{PayloadShape, SegmentPayload};
use super::segment::{ACK, FIN, HEADER_LEN, PSH, SYN};
use crate::bytes::{before, fold, len32, write_be16, write_be32};
use crate::context::{StackContext, StackCore};
use crate::stack_api::{DeviceOffload, LinkDevice, OutgoingFrame};

/// The largest payload of a frame that the device splits into segments.
const SEGMENTED_PAYLOAD_MAX: usize = 60 * 1024;
/// The delay of an ACK that waits for data to carry it (RFC 9293 §3.8.6.3).
const ACK_DELAY_US: u64 = 40_000;
/// The number of received segments after which an ACK is sent immediately.
const ACK_EVERY: u8 = 2;
/// Offset of the TCP header in a frame.
const TCP_AT: usize = 34;
const OPTIONS_MAX: usize = 40;

/// A segment that may be sent.
#[derive(Clone, Copy)]
struct OutgoingSegment {
    /// Offset from the first unacknowledged byte of the queue.
    at: u32,
    len_max: usize,
    /// A FIN may be set if the segment reaches the end of the queue.
    fin: bool,
    is_retransmission: bool,
}

impl<L: LinkDevice> StackContext<'_, L> {
    /// Sends all permitted segments, or the due ACK.
    pub(crate) fn output(&mut self, index: u32) {
        let Some(connection) = self.core.table.at_mut(index) else {
            return;
        };
        if connection.state != HandshakeState::Open {
            return self.output_syn(index);
        }
        let mut is_sent = false;
        while let Some(connection) = self.core.table.at(index)
            && connection.has_pending_output()
            && let Some(step) = next(connection, self.offload)
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
        let Some(connection) = self.core.table.at_mut(index) else {
            return;
        };
        // Persist timer: a closed window is probed (RFC 9293 §3.8.6.1).
        if connection.unsent() > 0 && connection.flight() == 0 && connection.resend_at_us == NEVER {
            connection.resend_at_us = now_us + connection.rtt.timeout_us();
            self.core.wheel.schedule(index, connection.resend_at_us);
        }
        if connection.ack_now || connection.unacked >= ACK_EVERY {
            return self.send_ack(index);
        }
        if connection.unacked > 0 && connection.ack_at_us == NEVER {
            connection.ack_at_us = now_us + ACK_DELAY_US;
            self.core.wheel.schedule(index, connection.ack_at_us);
        }
    }

    /// Sends one byte beyond a closed window: without probes, the connection would hang if the ACK that opens the
    /// window gets lost.
    pub(crate) fn probe(&mut self, index: u32) {
        self.core.counters.window_probes += 1;
        let step = OutgoingSegment {
            at: 0,
            len_max: 1,
            fin: false,
            is_retransmission: false,
        };
        self.emit(index, step);
    }

    /// Sends an ACK without data, with SACK blocks for the out-of-order segments.
    pub(crate) fn send_ack(&mut self, index: u32) {
        let Some(connection) = self.core.table.at_mut(index) else {
            return;
        };
        let mut options = [1; OPTIONS_MAX];
        let options_len = sack_option(connection, &mut options);
        let seq = connection.snd_nxt;
        self.send_empty(index, seq, ACK, &options[..options_len]);
    }

    /// Sends a segment without data.
    pub(crate) fn send_empty(&mut self, index: u32, seq: u32, flags: u8, options: &[u8]) {
        let StackContext {
            core,
            link,
            offload,
        } = self;
        let Some(connection) = core.table.at_mut(index) else {
            return;
        };
        let mut frame = [0; TCP_AT + HEADER_LEN + OPTIONS_MAX];
        let (plain, option_space) = frame.split_at_mut(TCP_AT + HEADER_LEN);
        plain.copy_from_slice(&connection.template);
        option_space[..options.len()].copy_from_slice(options);
        plain[46] = ((HEADER_LEN + options.len()) as u8 / 4) << 4;
        let len = HEADER_LEN + options.len();
        let sum = match offload.sum {
            true => None,
            false => Some(crate::payload_checksums::sum_of(options).into()),
        };
        let headers = SegmentHeaders {
            seq,
            flags,
            tcp_len: len,
            window: connection.window(),
            sum,
        };
        fill(connection, plain, headers);
        connection.record_advertised(headers.window);
        let frame = OutgoingFrame {
            head: &frame[..TCP_AT + len],
            copied: &[],
            static_bytes: &[],
            partial_sum: offload.sum.then_some(TCP_AT as u16),
            segment_len: None,
        };
        core.counters.frames_sent += 1;
        link.send(&frame);
    }

    /// Sends a segment. Returns whether it has data or a FIN; if not, the caller must leave its loop.
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
        let Some(connection) = table.at_mut(index) else {
            return false;
        };
        let seq = connection.snd_una.wrapping_add(step.at);
        let shape = PayloadShape {
            len_max: step.len_max,
            copied_max: usize::from(connection.mss),
            prefers_sums: !offload.sum,
        };
        let part = connection.queue.part(step.at as usize, shape);
        let end = step.at as usize + part.len();
        let is_last = end == connection.queue.len();
        let with_fin = is_last && step.fin;
        // PSH: the receiver need not wait for more data.
        let flags = ACK | if is_last { PSH } else { 0 } | if with_fin { FIN } else { 0 };
        let sum = match offload.sum {
            true => None,
            false => Some(part.sum()),
        };
        let mut head = connection.template;
        let headers = SegmentHeaders {
            seq,
            flags,
            tcp_len: HEADER_LEN + part.len(),
            window: connection.window(),
            sum,
        };
        fill(connection, &mut head, headers);
        send(*link, &head, part, sum.is_some(), connection.mss);
        connection.record_advertised(headers.window);
        counters.frames_sent += 1;
        record_sent(
            connection,
            seq,
            end,
            with_fin,
            step.is_retransmission,
            *now_us,
        );
        counters.retransmitted += u64::from(step.is_retransmission);
        // The timer runs for the oldest unacknowledged segment, so a running timer is not restarted (RFC 6298 §5.1).
        if connection.resend_at_us == NEVER {
            connection.resend_at_us = *now_us + connection.rtt.timeout_us();
            wheel.schedule(index, connection.resend_at_us);
        }
        end > step.at as usize || with_fin
    }
}

fn send<L: LinkDevice>(
    link: &mut L,
    head: &[u8],
    part: SegmentPayload<'_>,
    has_sum: bool,
    mss: u16,
) {
    let frame = OutgoingFrame {
        head,
        copied: part.copied,
        static_bytes: part.static_bytes,
        partial_sum: (!has_sum).then_some(TCP_AT as u16),
        segment_len: (part.len() > usize::from(mss)).then_some(mss),
    };
    link.send(&frame);
}

/// Updates the sequence numbers after a segment that ended at offset `end` of the queue.
fn record_sent(
    connection: &mut TcpConnection,
    seq: u32,
    end: usize,
    fin: bool,
    is_retransmission: bool,
    now_us: u64,
) {
    let end = connection
        .snd_una
        .wrapping_add(len32(end))
        .wrapping_add(fin.into());
    if fin {
        connection.is_fin_sent = true;
        connection.is_passive_close |= connection.is_fin_received;
    }
    if is_retransmission {
        connection.congestion.resent = end;
        connection.rtt.forget();
    }
    if before(connection.snd_nxt, end) {
        connection.snd_nxt = end;
        if !is_retransmission && seq != end {
            connection.rtt.sent(end, now_us);
        }
    }
}

/// The next segment that may be sent.
fn next(connection: &TcpConnection, offload: DeviceOffload) -> Option<OutgoingSegment> {
    if connection.congestion.mode != RecoveryMode::Open
        && let Some(step) = next_retransmission(connection)
    {
        return Some(step);
    }
    let unsent = connection.unsent();
    if connection.is_fin_sent || (unsent == 0 && !connection.is_closing) {
        return None;
    }
    let flight = connection.flight();
    if unsent == 0 {
        return Some(OutgoingSegment {
            at: flight,
            len_max: 0,
            fin: true,
            is_retransmission: false,
        });
    }
    let pipe = connection.congestion.pipe(
        connection.snd_una,
        connection.snd_nxt,
        connection.mss,
        &connection.board,
    );
    let room = connection.congestion.cwnd.saturating_sub(pipe);
    // A peer may shrink its window below the data in flight.
    let room = room.min(connection.snd_wnd.saturating_sub(flight)) as usize;
    let mss = usize::from(connection.mss);
    let mut len = unsent.min(room);
    // Sender's silly window avoidance (RFC 9293 §3.8.6.2.1): no small segment if a larger one will be possible later.
    if len < mss && len < unsent && (flight > 0 || len == 0) {
        return None;
    }
    if len > mss {
        len = match offload.segmentation {
            true => len.min(SEGMENTED_PAYLOAD_MAX),
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
        fin: connection.is_closing,
        is_retransmission: false,
    })
}

/// The next lost segment that may be retransmitted.
fn next_retransmission(connection: &TcpConnection) -> Option<OutgoingSegment> {
    let lost_end = connection.congestion.lost_end(
        connection.snd_una,
        connection.snd_nxt,
        connection.mss,
        &connection.board,
    );
    let resent = connection.congestion.resent;
    let from = if before(resent, connection.snd_una) {
        connection.snd_una
    } else {
        resent
    };
    let (start, end) = connection.board.hole(from, lost_end)?;
    let at = start.wrapping_sub(connection.snd_una);
    let len = end.wrapping_sub(start).min(connection.mss.into());
    // The first unacknowledged segment is retransmitted regardless of the window; otherwise recovery would stall.
    if at > 0 {
        let pipe = connection.congestion.pipe(
            connection.snd_una,
            connection.snd_nxt,
            connection.mss,
            &connection.board,
        );
        if pipe >= connection.congestion.cwnd || at + len > connection.snd_wnd {
            return None;
        }
    }
    // The FIN has the sequence number after the end of the queue.
    let remaining = connection.queue.len().saturating_sub(at as usize);
    Some(OutgoingSegment {
        at,
        len_max: remaining.min(len as usize),
        fin: connection.is_fin_sent
            && before(
                connection
                    .snd_una
                    .wrapping_add(len32(connection.queue.len())),
                end,
            ),
        is_retransmission: true,
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
    /// The checksum of all bytes after the header; `None` if the device computes it.
    sum: Option<u32>,
}

/// Writes sequence numbers, lengths and checksums into the headers.
fn fill(connection: &TcpConnection, head: &mut [u8], headers: SegmentHeaders) {
    let Some(head) = head.first_chunk_mut::<54>() else {
        return;
    };
    let SegmentHeaders {
        seq,
        flags,
        tcp_len,
        window,
        sum,
    } = headers;
    let ack = if flags & ACK != 0 {
        connection.rcv_nxt
    } else {
        0
    };
    let total_len = 20 + tcp_len as u16;
    write_be16(head, 16, total_len);
    write_be16(head, 24, !fold(connection.ip_sum + u32::from(total_len)));
    write_be32(head, 38, seq);
    write_be32(head, 42, ack);
    head[47] = flags;
    write_be16(head, 48, window as u16);
    let pseudo = connection.pseudo_sum + tcp_len as u32;
    let Some(sum) = sum else {
        // The device adds the sum of the TCP header and payload.
        write_be16(head, 50, fold(pseudo));
        return;
    };
    let fold_halves = |word: u32| (word >> 16) + (word & 0xffff);
    let ports = u32::from(connection.key.port()) + u32::from(connection.key.remote_port());
    let offset_flags = u32::from(head[46]) << 8 | u32::from(flags);
    let total = pseudo + ports + fold_halves(seq) + fold_halves(ack) + offset_flags + window + sum;
    write_be16(head, 50, !fold(total));
}

/// Builds the header template of a connection.
pub(crate) fn prepare(connection: &mut TcpConnection, mac: [u8; 6], to_mac: [u8; 6], local: u32) {
    let head = &mut connection.template;
    head[..6].copy_from_slice(&to_mac);
    head[6..12].copy_from_slice(&mac);
    head[12..14].copy_from_slice(&crate::ipv4::ETHERTYPE);
    crate::ipv4::header(
        &mut head[14..34],
        crate::ipv4::TCP,
        0,
        local,
        connection.key.remote(),
    );
    // The header was written with a length of 20, which is removed from the checksum here.
    connection.ip_sum = u32::from(!u16::from_be_bytes([head[24], head[25]])) + u32::from(!20u16);
    write_be16(head, 34, connection.key.port());
    write_be16(head, 36, connection.key.remote_port());
    head[46] = (HEADER_LEN as u8 / 4) << 4;
    connection.pseudo_sum =
        crate::ipv4::pseudo_sum(crate::ipv4::TCP, local, connection.key.remote());
}

/// Writes the SACK option for the out-of-order segments; returns its length.
fn sack_option(connection: &TcpConnection, options: &mut [u8; OPTIONS_MAX]) -> usize {
    if connection.out_of_order_count == 0 || !connection.has_sack {
        return 0;
    }
    let mut at = 4;
    for segment in connection.out_of_order.iter().flatten() {
        write_be32(options, at, segment.seq);
        write_be32(
            options,
            at + 4,
            segment.seq.wrapping_add(len32(segment.len)),
        );
        at += 8;
    }
    options[2] = 5;
    options[3] = at as u8 - 2;
    at
}

impl<L: LinkDevice> StackContext<'_, L> {
    /// Sends the SYN of an outgoing connection.
    fn output_syn(&mut self, index: u32) {
        let Some(connection) = self.core.table.at(index) else {
            return;
        };
        if connection.flight() > 0 || !self.has_mac(index) {
            return;
        }
        self.send_syn(index);
        let now_us = self.core.now_us;
        if let Some(connection) = self.core.table.at_mut(index) {
            connection.snd_nxt = connection.snd_una.wrapping_add(1);
            connection.rtt.sent(connection.snd_nxt, now_us);
            connection.resend_at_us = now_us + connection.rtt.timeout_us();
            self.core.wheel.schedule(index, connection.resend_at_us);
        }
    }

    /// Sends a SYN, or a SYN-ACK after a simultaneous open.
    pub(crate) fn send_syn(&mut self, index: u32) {
        let Some(connection) = self.core.table.at(index) else {
            return;
        };
        let [high, low] = self.core.local_mss().to_be_bytes();
        let options = [2, 4, high, low, 1, 1, 4, 2, 1, 3, 3, 0];
        let flags = match connection.state {
            HandshakeState::SynReceived => SYN | ACK,
            _ => SYN,
        };
        let seq = connection.snd_una;
        self.send_empty(index, seq, flags, &options);
        if let Some(connection) = self.core.table.at_mut(index) {
            // The window of a SYN is never scaled, nor are later windows of this side, since the SYN announces scale 0.
            connection.rcv_end = connection.rcv_nxt.wrapping_add(connection.window());
        }
    }
}
