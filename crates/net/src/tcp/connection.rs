//! One connection: its numbers, what it has to send, and what has come and was not taken. It knows no table,
//! no timers and no service.

use lowroad_wire::options::Abilities;

use super::congestion::{Congestion, Mode};
use super::queue::Queue;
use super::rtt::Rtt;
use super::sack::Scoreboard;
use super::segment::Key;
use crate::api::{SMALL, WAITING_MAX};
use crate::bytes::len32;
use crate::pool::{Buffer, Pool};

/// What we take at once when nothing waits. It needs no scale.
pub(crate) const WINDOW: u32 = 65_535;
/// No peer is sent shorter segments, whatever it asks for.
pub(crate) const MSS_MIN: u16 = 256;
/// Segments out of order that are kept.
pub(crate) const OUT_OF_ORDER_MAX: usize = 3;
/// Who neither takes nor asks anything for so long goes when there is no room for others.
const STALLED_US: u64 = 4_000_000;
/// So many challenge ACKs within that time. Each connection has its own, since one number for all tells a stranger
/// of the others (RFC 5961 §7).
const CHALLENGES_MAX: u8 = 10;
const CHALLENGE_SLOT_US: u64 = 100_000;
/// No deadline.
pub(crate) const NEVER: u64 = u64::MAX;

/// Where the handshake is. After it, flags of [`Connection`] say what RFC 9293 §3.3.2 has states for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// We have asked.
    SynSent,
    /// Both have asked.
    SynReceived,
    /// Open, or on its way to its end.
    Open,
}

/// Input that waits for the service.
pub(crate) struct Waiting {
    pub buffer: Buffer,
    pub start: usize,
    pub end: usize,
}

impl Waiting {
    /// What waits.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Adds as much as there is room for. A small buffer makes room for a large one if there is one to spare.
    pub(crate) fn append(&mut self, bytes: &[u8], pool: &mut Pool) -> usize {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end + bytes.len() > self.buffer.len()
            && self.buffer.len() == SMALL
            && let Some(mut larger) = pool.spare_large()
        {
            larger[..self.end].copy_from_slice(self.bytes());
            pool.give(core::mem::replace(&mut self.buffer, larger));
        }
        let room = self.buffer.len().min(WAITING_MAX) - self.end;
        let count = bytes.len().min(room);
        self.buffer[self.end..self.end + count].copy_from_slice(&bytes[..count]);
        self.end += count;
        count
    }
}

/// A segment that has come before its turn.
pub(crate) struct Early {
    pub seq: u32,
    pub len: usize,
    pub buffer: Buffer,
}

/// A connection.
pub(crate) struct Connection {
    pub key: Key,
    pub state: State,
    /// The service is told of it.
    pub is_told: bool,
    pub by_us: bool,
    /// The service has closed it: a FIN follows the queue.
    pub is_closing: bool,
    pub is_fin_sent: bool,
    pub is_fin_acked: bool,
    pub is_fin_received: bool,
    /// Its FIN came before ours left.
    pub is_passive_close: bool,
    /// In the list of those that have something to do.
    pub is_pending: bool,
    pub wants_input: bool,
    pub ack_now: bool,
    /// Segments since our last ACK.
    pub unacked: u8,
    pub has_sack: bool,
    /// Of the peer's window.
    pub scale: u8,
    pub retries: u8,
    pub mss: u16,
    pub rcv_nxt: u32,
    /// The window's end as it was said last.
    pub rcv_end: u32,
    pub snd_una: u32,
    /// Above all that was sent.
    pub snd_nxt: u32,
    pub snd_wnd: u32,
    pub snd_wnd_max: u32,
    /// Segment and ACK that said the window last.
    pub snd_wl1: u32,
    pub snd_wl2: u32,
    pub congestion: Congestion,
    pub board: Scoreboard,
    pub rtt: Rtt,
    pub queue: Queue,
    pub waiting: Option<Waiting>,
    pub early: [Option<Early>; OUT_OF_ORDER_MAX],
    pub early_count: u8,
    /// The number of a FIN that has come before its turn.
    pub early_fin: Option<u32>,
    pub resend_at_us: u64,
    pub ack_at_us: u64,
    pub heard_us: u64,
    /// When something was queued last, or a full segment or the rest acknowledged, in milliseconds; it wraps.
    pub moved_ms: u32,
    /// Challenge ACKs, and the time in slots that they are counted in.
    pub challenges: u8,
    pub challenge_slot: u32,
    /// Ethernet, IP and TCP, without lengths, numbers and sums.
    pub template: [u8; 54],
    /// The sum of the IP header without its length, not folded.
    pub ip_sum: u32,
    /// The pseudo header's without the length, with the ports.
    pub pseudo_sum: u32,
    /// The next hop's MAC is not known yet.
    pub needs_mac: bool,
}

fn millis(now_us: u64) -> u32 {
    (now_us / 1000) as u32
}

/// The longest segments that both take.
pub(crate) fn agreed_mss(can: &Abilities, own: u16) -> u16 {
    can.mss.max(MSS_MIN).min(own)
}

impl Connection {
    /// A connection that nothing was said on.
    pub(crate) fn new(key: Key, mss: u16, now_us: u64) -> Connection {
        Connection {
            key,
            state: State::Open,
            is_told: false,
            by_us: false,
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
            congestion: Congestion::new(mss),
            board: Scoreboard::default(),
            rtt: Rtt::new(),
            queue: Queue::default(),
            waiting: None,
            early: [const { None }; OUT_OF_ORDER_MAX],
            early_count: 0,
            early_fin: None,
            resend_at_us: NEVER,
            ack_at_us: NEVER,
            heard_us: now_us,
            moved_ms: millis(now_us),
            challenges: 0,
            challenge_slot: 0,
            template: [0; 54],
            ip_sum: 0,
            pseudo_sum: 0,
            needs_mac: false,
        }
    }

    /// What we take beyond [`Connection::rcv_nxt`].
    pub(crate) fn window(&self) -> u32 {
        match &self.waiting {
            None => WINDOW,
            Some(waiting) => len32(WAITING_MAX - waiting.bytes().len()),
        }
    }

    /// What of the peer's segments is within the window that it knows of.
    pub(crate) fn window_left(&self) -> u32 {
        let said = self.rcv_end.wrapping_sub(self.rcv_nxt).cast_signed().max(0);
        self.window().max(said.cast_unsigned())
    }

    /// Sent and not acknowledged, a FIN included.
    pub(crate) fn flight(&self) -> u32 {
        self.snd_nxt.wrapping_sub(self.snd_una)
    }

    /// Queued and not sent yet.
    pub(crate) fn unsent(&self) -> usize {
        self.queue.len().saturating_sub(self.flight() as usize)
    }

    /// Whether there is something that could be sent, if all else allows it.
    pub(crate) fn has_more(&self) -> bool {
        self.queue.len() > self.flight() as usize
            || (self.is_closing && !self.is_fin_sent)
            || self.congestion.mode != Mode::Open
    }

    /// A segment has left that acknowledges all, with that window.
    pub(crate) fn has_said(&mut self, window: u32) {
        self.rcv_end = self.rcv_nxt.wrapping_add(window);
        self.unacked = 0;
        self.ack_now = false;
        self.ack_at_us = NEVER;
    }

    /// Something was queued or acknowledged: the connection is of use to its peer.
    pub(crate) fn moved(&mut self, now_us: u64) {
        self.moved_ms = millis(now_us);
    }

    /// So long ago nothing was.
    pub(crate) fn still_us(&self, now_us: u64) -> u64 {
        u64::from(millis(now_us).wrapping_sub(self.moved_ms)) * 1000
    }

    /// A peer's, on which nothing has moved for so long that it may go for others.
    pub(crate) fn is_stalled(&self, now_us: u64) -> bool {
        !self.by_us && self.still_us(now_us) >= STALLED_US
    }

    /// Whether it keeps buffers from others.
    pub(crate) fn holds_buffers(&self) -> bool {
        self.queue.has_copied() || self.waiting.is_some() || self.early_count > 0
    }

    /// Whether one more challenge ACK is within what one connection gets; it is counted then.
    pub(crate) fn takes_challenge(&mut self, now_us: u64) -> bool {
        let slot = (now_us / CHALLENGE_SLOT_US) as u32;
        if slot != self.challenge_slot {
            self.challenge_slot = slot;
            self.challenges = 0;
        }
        let is_within = self.challenges < CHALLENGES_MAX;
        self.challenges += u8::from(is_within);
        is_within
    }

    /// A peer's, where nothing is under way or waits on either side.
    pub(crate) fn is_idle(&self) -> bool {
        self.state == State::Open
            && !self.by_us
            && self.queue.len() == 0
            && self.flight() == 0
            && self.waiting.is_none()
            && self.early_count == 0
    }

    /// Gives all buffers back.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        self.queue.clear(pool);
        if let Some(waiting) = self.waiting.take() {
            pool.give(waiting.buffer);
        }
        self.drop_early(pool);
    }

    /// Forgets what has come before its turn.
    pub(crate) fn drop_early(&mut self, pool: &mut Pool) {
        for early in self.early.iter_mut().filter_map(Option::take) {
            pool.give(early.buffer);
        }
        self.early_count = 0;
    }
}

// Ten thousand of them are a few megabytes.
const _: () = assert!(size_of::<Connection>() <= 608);
