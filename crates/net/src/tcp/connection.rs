//! The state of one connection: sequence numbers, queued data, and unread input.

use lowroad_wire::options::TcpOptions;

use super::congestion::{CongestionControl, RecoveryMode};
use super::queue::TransmitQueue;
use super::rtt::RttEstimator;
use super::sack::SackScoreboard;
use super::segment::ConnectionKey;
use crate::bytes::len32;
use crate::pool::{BufferPool, PoolBuffer};
use crate::stack_api::{SMALL, WAITING_MAX};

/// The receive window while there is no unread input. It needs no window scale.
pub(crate) const WINDOW: u32 = 65_535;
/// The smallest MSS that is used, even if a peer announces a smaller one: tiny segments would multiply the work.
pub(crate) const MSS_MIN: u16 = 256;
/// The number of out-of-order segments that are stored.
pub(crate) const OUT_OF_ORDER_MAX: usize = 3;
/// A connection without progress for this time may be evicted.
const STALLED_US: u64 = 4_000_000;
/// The number of challenge ACKs of a connection in each time slot. The limit is per connection: a global limit would be
/// a side channel about other connections (RFC 5961 §7).
const CHALLENGES_MAX: u8 = 10;
const CHALLENGE_SLOT_US: u64 = 100_000;
/// No deadline.
pub(crate) const NEVER: u64 = u64::MAX;

/// The state of the handshake. After the handshake, flags of `TcpConnection` represent the states of RFC 9293 §3.3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeState {
    /// A SYN was sent.
    SynSent,
    /// Both sides sent a SYN.
    SynReceived,
    /// Open or closing.
    Open,
}

/// Input that the service has not consumed.
pub(crate) struct PendingInput {
    pub buffer: PoolBuffer,
    pub start: usize,
    pub end: usize,
}

impl PendingInput {
    /// The unread bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Appends as many bytes as fit; returns their number. A full small buffer is replaced by a large one, if the pool
    /// can spare one.
    pub(crate) fn append(&mut self, bytes: &[u8], pool: &mut BufferPool) -> usize {
        // All free space must be contiguous after the bytes.
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end + bytes.len() > self.buffer.len()
            && self.buffer.len() == SMALL
            && let Some(mut larger) = pool.take_spare_large()
        {
            larger[..self.end].copy_from_slice(self.bytes());
            pool.release(core::mem::replace(&mut self.buffer, larger));
        }
        let room = self.buffer.len().min(WAITING_MAX) - self.end;
        let count = bytes.len().min(room);
        self.buffer[self.end..self.end + count].copy_from_slice(&bytes[..count]);
        self.end += count;
        count
    }
}

/// A segment that arrived out of order.
pub(crate) struct OutOfOrderSegment {
    pub seq: u32,
    pub len: usize,
    pub buffer: PoolBuffer,
}

/// The state of a connection.
pub(crate) struct TcpConnection {
    pub key: ConnectionKey,
    pub state: HandshakeState,
    /// The service was notified of the connection.
    pub is_service_notified: bool,
    pub is_active_open: bool,
    /// The service closed the connection: a FIN follows the queue.
    pub is_closing: bool,
    pub is_fin_sent: bool,
    pub is_fin_acked: bool,
    pub is_fin_received: bool,
    /// The peer's FIN arrived before this side sent its own.
    pub is_passive_close: bool,
    /// The connection is in the list of connections with pending work.
    pub is_pending: bool,
    pub wants_input: bool,
    pub ack_now: bool,
    /// The number of segments received since the last sent ACK.
    pub unacked: u8,
    pub has_sack: bool,
    /// The window scale of the peer.
    pub scale: u8,
    pub retries: u8,
    pub mss: u16,
    pub rcv_nxt: u32,
    /// The right edge of the window that was last advertised.
    pub rcv_end: u32,
    pub snd_una: u32,
    /// SND.NXT: one above the highest sequence number that was sent.
    pub snd_nxt: u32,
    pub snd_wnd: u32,
    pub snd_wnd_max: u32,
    /// SND.WL1 and SND.WL2: the sequence and ACK numbers of the last window update.
    pub snd_wl1: u32,
    pub snd_wl2: u32,
    pub congestion: CongestionControl,
    pub board: SackScoreboard,
    pub rtt: RttEstimator,
    pub queue: TransmitQueue,
    pub waiting: Option<PendingInput>,
    pub out_of_order: [Option<OutOfOrderSegment>; OUT_OF_ORDER_MAX],
    pub out_of_order_count: u8,
    /// The sequence number of a FIN that arrived out of order.
    pub out_of_order_fin: Option<u32>,
    pub resend_at_us: u64,
    pub ack_at_us: u64,
    pub last_received_us: u64,
    /// The time of the last progress in milliseconds (wraps): data was queued, or a full segment or all queued data was
    /// acknowledged.
    pub progress_ms: u32,
    /// The number of challenge ACKs in the current time slot, and the number of that slot.
    pub challenges: u8,
    pub challenge_slot: u32,
    /// Ethernet, IP and TCP headers without lengths, sequence numbers and checksums.
    pub template: [u8; 54],
    /// The checksum of the IP header without its length, unfolded.
    pub ip_sum: u32,
    /// The checksum of the pseudo header without its length.
    pub pseudo_sum: u32,
    /// The MAC address of the next hop is unknown.
    pub needs_mac: bool,
}

fn millis(now_us: u64) -> u32 {
    (now_us / 1000) as u32
}

/// The MSS that both sides accept.
pub(crate) fn agreed_mss(tcp_options: &TcpOptions, local_mss: u16) -> u16 {
    tcp_options.mss.max(MSS_MIN).min(local_mss)
}

impl TcpConnection {
    /// A connection on which no segment was sent or received yet.
    pub(crate) fn new(key: ConnectionKey, mss: u16, now_us: u64) -> TcpConnection {
        TcpConnection {
            key,
            state: HandshakeState::Open,
            is_service_notified: false,
            is_active_open: false,
            is_closing: false,
            is_fin_sent: false,
            is_fin_acked: false,
            is_fin_received: false,
            is_passive_close: false,
            is_pending: false,
            wants_input: false,
            ack_now: false,
            unacked: 0,
            has_sack: false,
            scale: 0,
            retries: 0,
            mss,
            rcv_nxt: 0,
            rcv_end: 0,
            snd_una: 0,
            snd_nxt: 0,
            snd_wnd: 0,
            snd_wnd_max: 0,
            snd_wl1: 0,
            snd_wl2: 0,
            congestion: CongestionControl::new(mss),
            board: SackScoreboard::default(),
            rtt: RttEstimator::new(),
            queue: TransmitQueue::default(),
            waiting: None,
            out_of_order: [const { None }; OUT_OF_ORDER_MAX],
            out_of_order_count: 0,
            out_of_order_fin: None,
            resend_at_us: NEVER,
            ack_at_us: NEVER,
            last_received_us: now_us,
            progress_ms: millis(now_us),
            challenges: 0,
            challenge_slot: 0,
            template: [0; 54],
            ip_sum: 0,
            pseudo_sum: 0,
            needs_mac: false,
        }
    }

    /// The receive window after `rcv_nxt`.
    pub(crate) fn window(&self) -> u32 {
        match &self.waiting {
            // Unread input reduces the window, so that a slow service slows the peer down.
            None => WINDOW,
            Some(waiting) => len32(WAITING_MAX - waiting.bytes().len()),
        }
    }

    /// The window in which segments are acceptable: never smaller than the advertised window.
    pub(crate) fn remaining_window(&self) -> u32 {
        let advertised = self.rcv_end.wrapping_sub(self.rcv_nxt).cast_signed().max(0);
        // RFC 9293 §3.8.6.2.2: an advertised window should not shrink.
        self.window().max(advertised.cast_unsigned())
    }

    /// The number of bytes sent but not acknowledged; a FIN counts as one.
    pub(crate) fn flight(&self) -> u32 {
        self.snd_nxt.wrapping_sub(self.snd_una)
    }

    /// The number of bytes queued but not sent yet.
    pub(crate) fn unsent(&self) -> usize {
        self.queue.len().saturating_sub(self.flight() as usize)
    }

    /// Whether there may be data or a FIN to send.
    pub(crate) fn has_pending_output(&self) -> bool {
        self.queue.len() > self.flight() as usize
            || (self.is_closing && !self.is_fin_sent)
            || self.congestion.mode != RecoveryMode::Open
    }

    /// Records that a sent segment acknowledged all input and advertised this window.
    pub(crate) fn record_advertised(&mut self, window: u32) {
        self.rcv_end = self.rcv_nxt.wrapping_add(window);
        self.unacked = 0;
        self.ack_now = false;
        self.ack_at_us = NEVER;
    }

    /// Records progress: data was queued or acknowledged.
    pub(crate) fn record_progress(&mut self, now_us: u64) {
        self.progress_ms = millis(now_us);
    }

    /// Microseconds since the last progress.
    pub(crate) fn since_progress_us(&self, now_us: u64) -> u64 {
        u64::from(millis(now_us).wrapping_sub(self.progress_ms)) * 1000
    }

    /// Whether the connection is incoming and made no progress for so long that it may be evicted.
    pub(crate) fn is_stalled(&self, now_us: u64) -> bool {
        // Outgoing connections are never evicted.
        !self.is_active_open && self.since_progress_us(now_us) >= STALLED_US
    }

    /// Whether the connection holds buffers of the pool.
    pub(crate) fn holds_buffers(&self) -> bool {
        self.queue.has_copied() || self.waiting.is_some() || self.out_of_order_count > 0
    }

    /// Whether one more challenge ACK is within the connection's limit; if so, counts it.
    pub(crate) fn allow_challenge(&mut self, now_us: u64) -> bool {
        let slot = (now_us / CHALLENGE_SLOT_US) as u32;
        // RFC 5961 §7: challenge ACKs are limited, since forged segments can cause them.
        if slot != self.challenge_slot {
            self.challenge_slot = slot;
            self.challenges = 0;
        }
        let is_within = self.challenges < CHALLENGES_MAX;
        self.challenges += u8::from(is_within);
        is_within
    }

    /// Whether the connection is incoming and has no data in flight, queued or unread.
    pub(crate) fn is_idle(&self) -> bool {
        self.state == HandshakeState::Open
            && !self.is_active_open
            && self.queue.len() == 0
            && self.flight() == 0
            && self.waiting.is_none()
            && self.out_of_order_count == 0
    }

    /// Returns all buffers to the pool.
    pub(crate) fn release(&mut self, pool: &mut BufferPool) {
        self.queue.clear(pool);
        if let Some(waiting) = self.waiting.take() {
            pool.release(waiting.buffer);
        }
        self.drop_out_of_order(pool);
    }

    /// Drops the out-of-order segments.
    pub(crate) fn drop_out_of_order(&mut self, pool: &mut BufferPool) {
        for segment in self.out_of_order.iter_mut().filter_map(Option::take) {
            pool.release(segment.buffer);
        }
        self.out_of_order_count = 0;
    }
}

// Ten thousand connections occupy a few megabytes.
const _: () = assert!(size_of::<TcpConnection>() <= 608);
