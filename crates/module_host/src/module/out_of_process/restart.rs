//! Decides when the next process of a module starts. This module is independent of processes and clocks.

use std::time::Duration;

use lowroad_child_processes::backoff::RestartBackoff;

/// The delay after a process that failed to start, which doubles up to `WAIT_MAX`.
const WAIT_MIN: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(5);
/// A process that lived at least this long has started successfully.
const LONG_LIFE: Duration = Duration::from_secs(10);

/// The way in which a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// The process failed to start.
    NotStarted,
    /// The process died before its first call, after this lifetime.
    BeforeFirstCall(Duration),
    /// The process died after it had got a call.
    AfterFirstCall,
}

/// The back-off for restarts of a module. A process that got a call had started successfully, so its death causes no
/// delay: otherwise, a request that crashes the module would block the module for all other requests.
#[derive(Debug)]
pub struct RestartPolicy(RestartBackoff);

impl RestartPolicy {
    /// A back-off without failures.
    pub fn new() -> RestartPolicy {
        RestartPolicy(RestartBackoff::new(WAIT_MIN, WAIT_MAX, LONG_LIFE))
    }

    /// The delay after a process that ended in this way.
    pub fn delay(&mut self, end: ProcessEnd) -> Duration {
        let has_started = match end {
            ProcessEnd::NotStarted => false,
            ProcessEnd::BeforeFirstCall(lifetime) => self.0.is_long(lifetime),
            // The cause of such a crash is a call, not a failed start.
            ProcessEnd::AfterFirstCall => true,
        };
        if has_started {
            self.0.reset();
            return Duration::ZERO;
        }
        self.0.record_failure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failed_start_delays_next_process() {
        let mut policy = RestartPolicy::new();
        let mut wait_ms = |end| policy.delay(end).as_millis();
        for _ in 0..1_000 {
            assert_eq!(wait_ms(ProcessEnd::AfterFirstCall), 0);
        }
        let early = ProcessEnd::BeforeFirstCall(Duration::from_millis(9_999));
        let ends = [ProcessEnd::NotStarted, early];
        let waits = (0..9).map(|at| wait_ms(ends[at % 2]));
        let waits: Vec<_> = waits.collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        let late = ProcessEnd::BeforeFirstCall(Duration::from_millis(10_000));
        for successful_end in [ProcessEnd::AfterFirstCall, late] {
            assert_eq!(wait_ms(successful_end), 0);
            assert_eq!(wait_ms(ProcessEnd::NotStarted), 50);
        }
    }
}
