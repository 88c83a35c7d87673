//! How a client gets on: with a body that it sends, or with responses that it takes. Knows no connection.

use crate::settings::WorkerSettings;

/// How often the pace of a slow client is looked at.
const PACE_CHECK_MS: u64 = 1000;

/// How a client gets on with a body or an answer.
pub(crate) struct ClientPace {
    /// Bytes received, or of the wire that were given to the socket.
    pub bytes: u64,
    pub since_ms: u64,
    pub progress_ms: u64,
    /// Of an answer: `bytes` without those that the client had not acknowledged when last looked.
    /// Below 0 while earlier answers are still on their way.
    taken: i64,
}

/// What is thought of a client's pace.
pub(crate) enum PaceVerdict {
    Fine { look_again_ms: u64 },
    Stalled,
    TooSlow,
}

impl ClientPace {
    pub fn new(now_ms: u64) -> ClientPace {
        ClientPace {
            bytes: 0,
            since_ms: now_ms,
            progress_ms: now_ms,
            taken: i64::MIN,
        }
    }

    pub fn moved(&mut self, bytes: u64, now_ms: u64) {
        self.bytes += bytes;
        self.progress_ms = now_ms;
    }

    /// All but `queued` bytes of what the socket was given are acknowledged. A large socket buffer
    /// goes without room for long while a slow client steadily takes from it.
    pub fn acknowledged(&mut self, queued: usize, now_ms: u64) {
        let taken = self.bytes as i64 - queued as i64;
        if taken > self.taken {
            self.taken = taken;
            self.progress_ms = now_ms;
        }
    }

    /// The time until now is not the client's to answer for.
    pub fn excuse(&mut self, now_ms: u64) {
        self.since_ms += now_ms - self.progress_ms;
        self.progress_ms = now_ms;
    }

    /// Judges by the time without progress and by the rate since the start.
    pub fn judge(&self, settings: &WorkerSettings, timeout_ms: u64, now_ms: u64) -> PaceVerdict {
        let elapsed_ms = now_ms - self.since_ms;
        if now_ms - self.progress_ms >= timeout_ms {
            return PaceVerdict::Stalled;
        }
        let graced = elapsed_ms <= settings.rate_grace_ms;
        if !graced && self.bytes.saturating_mul(1000) / elapsed_ms < settings.rate_min {
            return PaceVerdict::TooSlow;
        }
        PaceVerdict::Fine {
            look_again_ms: (self.progress_ms + timeout_ms).min(now_ms + PACE_CHECK_MS),
        }
    }
}
