//! Congestion control: NewReno (RFC 5681, RFC 6582) with the pipe estimate of RFC 6675.

use super::sack::SackScoreboard;
use crate::bytes::before;

/// The initial window in segments (RFC 6928).
const INITIAL_SEGMENTS: u32 = 10;
/// The limit of the congestion window: the largest possible peer window.
const CWND_MAX: u32 = 1 << 30;

/// The phase of loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryMode {
    /// No loss was detected.
    Open,
    /// Data below the highest SACKed sequence number is considered lost.
    Recovery,
    /// All data in flight at the timeout is considered lost.
    Loss,
}

/// The congestion window and the recovery state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CongestionControl {
    pub cwnd: u32,
    ssthresh: u32,
    /// Bytes acknowledged since the window last grew.
    acked_since_growth: u32,
    pub mode: RecoveryMode,
    /// SND.NXT when the loss was detected: an ACK of all data below it ends the recovery.
    pub recover: u32,
    /// Lost data below this sequence number was already retransmitted.
    pub resent: u32,
    pub dup_acks: u8,
}

impl CongestionControl {
    pub(crate) fn new(mss: u16) -> CongestionControl {
        CongestionControl {
            cwnd: INITIAL_SEGMENTS * u32::from(mss),
            ssthresh: CWND_MAX,
            acked_since_growth: 0,
            mode: RecoveryMode::Open,
            recover: 0,
            resent: 0,
            dup_acks: 0,
        }
    }

    /// The end of the data that is considered lost.
    pub(crate) fn lost_end(&self, una: u32, nxt: u32, mss: u16, board: &SackScoreboard) -> u32 {
        match self.mode {
            RecoveryMode::Open => una,
            RecoveryMode::Loss => self.recover,
            RecoveryMode::Recovery => board.highest().unwrap_or_else(|| {
                // Without SACK, only one segment is known to be lost.
                let end = una.wrapping_add(u32::from(mss));
                if before(end, nxt) { end } else { nxt }
            }),
        }
    }

    /// The estimated number of bytes in flight ("pipe" in RFC 6675).
    pub(crate) fn pipe(&self, una: u32, nxt: u32, mss: u16, board: &SackScoreboard) -> u32 {
        // The common case: no sign of a loss.
        if self.mode == RecoveryMode::Open && self.dup_acks == 0 && board.is_empty() {
            return nxt.wrapping_sub(una);
        }
        let lost_end = self.lost_end(una, nxt, mss, board);
        let resent_end = if before(self.resent, lost_end) {
            self.resent
        } else {
            lost_end
        };
        let retransmitted = match self.mode {
            RecoveryMode::Open => 0,
            _ => board.missing(una, resent_end),
        };
        let pipe = retransmitted + board.missing(lost_end, nxt);
        match board.is_empty() && self.mode != RecoveryMode::Loss {
            // Without SACK each duplicate ACK means that a segment has left the network.
            true => pipe.saturating_sub(u32::from(self.dup_acks) * u32::from(mss)),
            false => pipe,
        }
    }

    /// Grows the window after an ACK of `acked` bytes; `flight` bytes were in flight.
    pub(crate) fn acked(&mut self, acked: u32, flight: u32, mss: u16) {
        let mss = u32::from(mss);
        // A window that was not fully used is not validated, so it doesn't grow (RFC 7661).
        if flight.saturating_mul(2) < self.cwnd {
            return;
        }
        if self.cwnd < self.ssthresh {
            // RFC 3465: at most two segments per ACK, as a defence against ACK division.
            self.cwnd = (self.cwnd + acked.min(2 * mss)).min(CWND_MAX);
            return;
        }
        // Congestion avoidance: one segment per window of acknowledged data (RFC 5681 §3.1).
        self.acked_since_growth += acked;
        if self.acked_since_growth >= self.cwnd {
            self.acked_since_growth -= self.cwnd;
            self.cwnd = (self.cwnd + mss).min(CWND_MAX);
        }
    }

    /// Enters recovery after a loss detected by duplicate or selective ACKs.
    pub(crate) fn enter_recovery(&mut self, una: u32, nxt: u32, mss: u16) {
        self.ssthresh = half(nxt.wrapping_sub(una), mss);
        // The window is halved (RFC 5681 §3.2).
        self.cwnd = self.ssthresh;
        self.acked_since_growth = 0;
        self.mode = RecoveryMode::Recovery;
        self.recover = nxt;
        self.resent = una;
    }

    /// Enters recovery after a retransmission timeout.
    pub(crate) fn enter_loss(&mut self, una: u32, nxt: u32, mss: u16) {
        // RFC 5681 §3.1: repeated timeouts of the same data reduce ssthresh only once.
        if self.mode != RecoveryMode::Loss {
            self.ssthresh = half(nxt.wrapping_sub(una), mss);
        }
        // The loss window is one segment (RFC 5681 §3.1).
        self.cwnd = u32::from(mss);
        self.send_again(una, nxt);
    }

    /// Retransmits all data in flight without reducing the window, since the loss wasn't caused by congestion.
    pub(crate) fn send_again(&mut self, una: u32, nxt: u32) {
        self.acked_since_growth = 0;
        self.mode = RecoveryMode::Loss;
        self.recover = nxt;
        self.resent = una;
        self.dup_acks = 0;
    }

    /// Ends the recovery: all data up to `recover` is acknowledged.
    pub(crate) fn recovered(&mut self) {
        if self.mode == RecoveryMode::Recovery {
            // Deflate the window after the recovery (RFC 6582 §3.2, step 3).
            self.cwnd = self.ssthresh;
        }
        self.mode = RecoveryMode::Open;
        self.dup_acks = 0;
    }

    /// Limits the window after an idle period longer than a retransmission timeout (RFC 5681 §4.1).
    pub(crate) fn restart(&mut self, mss: u16) {
        // RFC 5681 §4.1: the restart window.
        self.cwnd = self.cwnd.min(INITIAL_SEGMENTS * u32::from(mss));
    }
}

fn half(flight: u32, mss: u16) -> u32 {
    // RFC 5681 §3.1, equation 4.
    (flight / 2).max(2 * u32::from(mss))
}
