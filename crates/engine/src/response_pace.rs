//! Bandwidth limits of single responses, as nginx's `limit_rate` and `limit_rate_after`.
//!
//! A token bucket over the body's bytes: memory and files are released in slices, and the source of a streamed body is
//! polled when the bucket allows it. Between slices the connection waits for its deadline in the timer wheel.

use std::collections::VecDeque;

use crate::response_body::BodyPart;

/// Slices per second.
const SLICES_PER_S: u64 = 8;
/// The minimum length of a slice, in bytes: shorter ones would cost a system call for each few bytes.
const SLICE_LEN_MIN: u64 = 1024;

/// A limit for the bytes of a response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseRate {
    /// Bytes per second; not 0.
    pub bytes_per_s: u64,
    /// The number of bytes that are sent without a limit.
    pub after: u64,
}

/// The bytes of a response that were released under a limit.
#[derive(Clone, Debug)]
pub(crate) struct ResponsePace {
    rate: ResponseRate,
    released: u64,
    /// Since when the limit applies; later by the time for which more than a second's bytes were unused.
    since_ms: Option<u64>,
}

/// A response body in memory or in files, with a limit.
pub struct PacedBody {
    pace: ResponsePace,
    parts: VecDeque<BodyPart>,
}

/// The next step of a body with a limit.
pub(crate) enum PaceStep {
    /// This part can be sent.
    Part(BodyPart),
    /// Nothing may be sent before this time.
    Wait { until_ms: u64 },
    /// Nothing is left.
    Ended,
}

impl ResponsePace {
    pub fn new(rate: ResponseRate) -> ResponsePace {
        ResponsePace {
            rate,
            released: 0,
            since_ms: None,
        }
    }

    /// The number of bytes that may be sent now.
    ///
    /// # Errors
    /// The time at which a slice may be sent.
    pub fn allowance(&mut self, now_ms: u64) -> Result<u64, u64> {
        let ResponseRate { bytes_per_s, after } = self.rate;
        // The time of the unlimited start does not count for the rest.
        if self.released < after {
            return Ok(after - self.released);
        }
        let limited = self.released - after;
        let slice = (bytes_per_s / SLICES_PER_S).max(SLICE_LEN_MIN);
        let since_ms = self.since_ms.get_or_insert(now_ms);
        // In 128 bits, since a body may be sent for days.
        let earned = |since_ms: u64| {
            let elapsed_ms = now_ms.saturating_sub(since_ms);
            // The first slice is sent at once.
            slice.saturating_add((u128::from(elapsed_ms) * u128::from(bytes_per_s) / 1000) as u64)
        };
        let unused = earned(*since_ms).saturating_sub(limited);
        // A client that was slow for long must not get a burst of all that it missed.
        if unused > slice + bytes_per_s {
            let excess_ms = (unused - slice - bytes_per_s).saturating_mul(1000) / bytes_per_s;
            *since_ms += excess_ms;
        }
        let unused = unused.min(slice + bytes_per_s);
        // Waiting for a whole slice bounds the number of timer events per second.
        if unused >= slice {
            return Ok(unused);
        }
        let wait_ms = ((slice - unused) * 1000).div_ceil(bytes_per_s);
        Err(now_ms + wait_ms)
    }

    /// The limit in bytes per second.
    pub fn bytes_per_s(&self) -> u64 {
        self.rate.bytes_per_s
    }

    /// Counts bytes that are being sent.
    pub fn record(&mut self, len: u64) {
        self.released = self.released.saturating_add(len);
    }
}

impl PacedBody {
    pub(crate) fn new(rate: ResponseRate) -> PacedBody {
        PacedBody {
            pace: ResponsePace::new(rate),
            parts: VecDeque::new(),
        }
    }

    /// The limit in bytes per second.
    pub(crate) fn bytes_per_s(&self) -> u64 {
        self.pace.bytes_per_s()
    }

    pub(crate) fn push(&mut self, part: BodyPart) {
        self.parts.push_back(part);
    }

    /// Whether the body ends in a stream.
    pub(crate) fn is_streamed(&self) -> bool {
        self.parts.back().is_some_and(BodyPart::is_streamed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.iter().all(BodyPart::is_empty)
    }

    /// Releases the next slice.
    pub(crate) fn release(&mut self, now_ms: u64) -> PaceStep {
        while self.parts.front().is_some_and(BodyPart::is_empty) {
            self.parts.pop_front();
        }
        let Some(front) = self.parts.front_mut() else {
            return PaceStep::Ended;
        };
        // A stream is the last part, and limits itself.
        if let BodyPart::Stream(streamed) = front {
            streamed.pace = Some(Box::new(self.pace.clone()));
            return self
                .parts
                .pop_front()
                .map_or(PaceStep::Ended, PaceStep::Part);
        }
        match self.pace.allowance(now_ms) {
            Err(until_ms) => PaceStep::Wait { until_ms },
            Ok(len) => {
                // The last slice may be shorter, so its own length counts.
                let part = front.split_start(len);
                self.pace.record(part.len());
                PaceStep::Part(part)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: ResponseRate = ResponseRate {
        bytes_per_s: 80_000,
        after: 5_000,
    };

    /// The times and lengths of the slices of a body, if each is sent as soon as it may be.
    fn slices(rate: ResponseRate, len: usize) -> Vec<(u64, u64)> {
        let mut body = PacedBody::new(rate);
        body.push(BodyPart::Bytes(vec![0; len / 2].into()));
        body.push(BodyPart::Bytes(vec![0; len - len / 2].into()));
        let (mut now_ms, mut slices) = (1_000, Vec::new());
        loop {
            match body.release(now_ms) {
                PaceStep::Ended => return slices,
                PaceStep::Part(part) => slices.push((now_ms - 1_000, part.len())),
                PaceStep::Wait { until_ms } => {
                    assert!(until_ms > now_ms, "no busy loop");
                    now_ms = until_ms;
                }
            }
        }
    }

    #[test]
    fn bytes_keep_to_the_rate_after_the_start() {
        let slices = slices(RATE, 165_000);
        assert_eq!(slices.iter().map(|(_, len)| len).sum::<u64>(), 165_000);
        assert_eq!(slices[..2], [(0, 5_000), (0, 10_000)]);
        let mut sent = 0;
        for (at_ms, len) in &slices {
            sent += len;
            // The bytes before the limit, one slice, and those of the time.
            assert!(sent <= 15_000 + at_ms * 80, "{at_ms} {sent}");
        }
        let (last_ms, _) = slices[slices.len() - 1];
        assert!((1_700..=2_000).contains(&last_ms), "{last_ms}");
    }

    #[test]
    fn slow_client_gets_no_burst_beyond_a_second() {
        let mut pace = ResponsePace::new(ResponseRate {
            bytes_per_s: 8_000,
            after: 0,
        });
        assert_eq!(pace.allowance(0), Ok(1024));
        pace.record(1024);
        assert_eq!(pace.allowance(0), Err(128));
        assert_eq!(pace.allowance(3_600_000), Ok(9_024));
        pace.record(9_024);
        assert!(pace.allowance(3_600_000).is_err());
    }
}
