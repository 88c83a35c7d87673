//! Measures how fast a client sends a body or receives responses, to detect stalled and slow clients.

use crate::settings::WorkerSettings;

/// The interval of checks of a slow client's pace.
const PACE_CHECK_MS: u64 = 1000;
/// The share of a response's own rate that a client has to reach. Each slice of a limited file is acknowledged before the next
/// one; as there are eight per second, this admits half a second for each.
const OWN_RATE_SHARE: u64 = 4;

/// A client's progress in sending a body or receiving responses.
pub(crate) struct ClientPace {
    /// Bytes received, or wire bytes passed to the socket.
    pub bytes: u64,
    pub since_ms: u64,
    pub progress_ms: u64,
    /// The own rate of the responses in bytes per second, if it is limited: clients can't be faster.
    pub own_rate: Option<u64>,
    /// For a response: `bytes` without those that were unacknowledged at the last check. Below 0 while earlier
    /// responses are still in flight.
    acknowledged_bytes: i64,
}

/// The verdict on a client's pace.
pub(crate) enum PaceVerdict {
    Fine { next_check_ms: u64 },
    Stalled,
    TooSlow,
}

impl ClientPace {
    pub fn new(now_ms: u64) -> ClientPace {
        ClientPace {
            bytes: 0,
            since_ms: now_ms,
            progress_ms: now_ms,
            own_rate: None,
            // Lower than the first value, which is negative while earlier responses are in flight.
            acknowledged_bytes: i64::MIN,
        }
    }

    pub fn record_progress(&mut self, bytes: u64, now_ms: u64) {
        self.bytes += bytes;
        self.progress_ms = now_ms;
    }

    /// Records that all bytes passed to the socket, except `queued`, are acknowledged. Progress counts by
    /// acknowledgements, as a large socket buffer may have no room for long while a slow client steadily receives from
    /// it.
    pub fn record_acknowledged(&mut self, queued: usize, now_ms: u64) {
        let acknowledged_bytes = self.bytes as i64 - queued as i64;
        if acknowledged_bytes > self.acknowledged_bytes {
            self.acknowledged_bytes = acknowledged_bytes;
            self.progress_ms = now_ms;
        }
    }

    /// Excludes the time since the last progress, in which the client waited for the server.
    pub fn exclude_wait(&mut self, now_ms: u64) {
        self.since_ms += now_ms - self.progress_ms;
        self.progress_ms = now_ms;
    }

    /// Judges by the time without progress and by the average rate since the start.
    pub fn judge(&self, settings: &WorkerSettings, timeout_ms: u64, now_ms: u64) -> PaceVerdict {
        // A stall is checked first, as it counts even within the grace period.
        let elapsed_ms = now_ms - self.since_ms;
        if now_ms - self.progress_ms >= timeout_ms {
            return PaceVerdict::Stalled;
        }
        let graced = elapsed_ms <= settings.rate_grace_ms;
        let allowed = self.own_rate.map_or(u64::MAX, |rate| rate / OWN_RATE_SHARE);
        let rate_min = settings.rate_min.min(allowed);
        // `elapsed_ms` can't be 0 in the division, as it exceeds the grace period.
        if !graced && self.bytes.saturating_mul(1000) / elapsed_ms < rate_min {
            return PaceVerdict::TooSlow;
        }
        PaceVerdict::Fine {
            next_check_ms: (self.progress_ms + timeout_ms).min(now_ms + PACE_CHECK_MS),
        }
    }
}
