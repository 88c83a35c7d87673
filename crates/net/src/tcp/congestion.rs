//! How much may be under way: NewReno (RFC 5681, RFC 6582) with a pipe as of RFC 6675. It knows no segments and
//! no clock.

use super::sack::Scoreboard;
use crate::bytes::before;

/// Segments at the beginning (RFC 6928).
const INITIAL_SEGMENTS: u32 = 10;
/// More is never needed: the largest window.
const CWND_MAX: u32 = 1 << 30;

/// What is done about losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// None is known.
    Open,
    /// What is before what the peer has is lost.
    Recovery,
    /// All that was under way at the timeout is lost.
    Loss,
}

/// The state of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Congestion {
    pub cwnd: u32,
    ssthresh: u32,
    /// Acknowledged since the window grew last.
    gained: u32,
    pub mode: Mode,
    /// The end of what was under way when the loss was found.
    pub recover: u32,
    /// What is before it was sent again already, if it was lost.
    pub resent: u32,
    pub dup_acks: u8,
}

impl Congestion {
    pub(crate) fn new(mss: u16) -> Congestion {
        Congestion {
            cwnd: INITIAL_SEGMENTS * u32::from(mss),
            ssthresh: CWND_MAX,
            gained: 0,
            mode: Mode::Open,
            recover: 0,
            resent: 0,
            dup_acks: 0,
        }
    }

    /// Where what counts as lost ends.
    pub(crate) fn lost_end(&self, una: u32, nxt: u32, mss: u16, board: &Scoreboard) -> u32 {
        match self.mode {
            Mode::Open => una,
            Mode::Loss => self.recover,
            Mode::Recovery => board.highest().unwrap_or_else(|| {
                // Without selective ACKs one segment is known to be lost.
                let end = una.wrapping_add(u32::from(mss));
                if before(end, nxt) { end } else { nxt }
            }),
        }
    }

    /// Bytes that are under way, as far as is known.
    pub(crate) fn pipe(&self, una: u32, nxt: u32, mss: u16, board: &Scoreboard) -> u32 {
        if self.mode == Mode::Open && self.dup_acks == 0 && board.is_empty() {
            return nxt.wrapping_sub(una);
        }
        let lost_end = self.lost_end(una, nxt, mss, board);
        let resent_end = if before(self.resent, lost_end) {
            self.resent
        } else {
            lost_end
        };
        let again = match self.mode {
            Mode::Open => 0,
            _ => board.missing(una, resent_end),
        };
        let pipe = again + board.missing(lost_end, nxt);
        match board.is_empty() && self.mode != Mode::Loss {
            true => pipe.saturating_sub(u32::from(self.dup_acks) * u32::from(mss)),
            false => pipe,
        }
    }

    /// New data is acknowledged, of so much that was under way.
    pub(crate) fn acked(&mut self, acked: u32, flight: u32, mss: u16) {
        let mss = u32::from(mss);
        // What was not full says nothing about more (RFC 7661).
        if flight.saturating_mul(2) < self.cwnd {
            return;
        }
        if self.cwnd < self.ssthresh {
            self.cwnd = (self.cwnd + acked.min(2 * mss)).min(CWND_MAX);
            return;
        }
        self.gained += acked;
        if self.gained >= self.cwnd {
            self.gained -= self.cwnd;
            self.cwnd = (self.cwnd + mss).min(CWND_MAX);
        }
    }

    /// A loss was found by ACKs.
    pub(crate) fn enter_recovery(&mut self, una: u32, nxt: u32, mss: u16) {
        self.ssthresh = half(nxt.wrapping_sub(una), mss);
        self.cwnd = self.ssthresh;
        self.gained = 0;
        self.mode = Mode::Recovery;
        self.recover = nxt;
        self.resent = una;
    }

    /// Nothing was acknowledged for too long.
    pub(crate) fn enter_loss(&mut self, una: u32, nxt: u32, mss: u16) {
        if self.mode != Mode::Loss {
            self.ssthresh = half(nxt.wrapping_sub(una), mss);
        }
        self.cwnd = u32::from(mss);
        self.send_again(una, nxt);
    }

    /// All that is under way goes again, by no fault of the network.
    pub(crate) fn send_again(&mut self, una: u32, nxt: u32) {
        self.gained = 0;
        self.mode = Mode::Loss;
        self.recover = nxt;
        self.resent = una;
        self.dup_acks = 0;
    }

    /// All of the loss is acknowledged.
    pub(crate) fn recovered(&mut self) {
        if self.mode == Mode::Recovery {
            self.cwnd = self.ssthresh;
        }
        self.mode = Mode::Open;
        self.dup_acks = 0;
    }

    /// Nothing was sent for longer than a timeout (RFC 5681 §4.1).
    pub(crate) fn restart(&mut self, mss: u16) {
        self.cwnd = self.cwnd.min(INITIAL_SEGMENTS * u32::from(mss));
    }
}

fn half(flight: u32, mss: u16) -> u32 {
    (flight / 2).max(2 * u32::from(mss))
}
