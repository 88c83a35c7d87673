//! Restart back-off: decides when the next process of a module starts. Independent of processes and clocks.

/// The delay after a process that failed to start, in milliseconds; it doubles with each failure in a row.
const WAIT_MS_MIN: u64 = 50;
const WAIT_MS_MAX: u64 = 5_000;
/// A process that lived at least this long started successfully, in milliseconds.
const LIVED_MS: u64 = 10_000;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// It failed to start.
    NotStarted,
    /// It died before its first call, after this many milliseconds.
    Unasked {
        /// How long it lived.
        lived_ms: u64,
    },
    /// It died after its first call.
    Asked,
}

/// The back-off of a module. A process that had a call had started successfully, so its death causes no delay:
/// otherwise a request that crashes the module would block it for all others.
#[derive(Debug)]
pub struct RestartPolicy {
    next_ms: u64,
}

impl RestartPolicy {
    /// A back-off without failures.
    pub fn new() -> RestartPolicy {
        RestartPolicy {
            next_ms: WAIT_MS_MIN,
        }
    }

    /// The delay, in milliseconds, after a process that ended in this way.
    pub fn wait_ms(&mut self, end: ProcessEnd) -> u64 {
        let is_well = match end {
            ProcessEnd::NotStarted => false,
            ProcessEnd::Unasked { lived_ms } => lived_ms >= LIVED_MS,
            ProcessEnd::Asked => true,
        };
        if is_well {
            self.next_ms = WAIT_MS_MIN;
            return 0;
        }
        let wait_ms = self.next_ms;
        self.next_ms = (wait_ms * 2).min(WAIT_MS_MAX);
        wait_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_that_can_not_start_delays_the_next() {
        let mut restart = RestartPolicy::new();
        for _ in 0..1_000 {
            assert_eq!(restart.wait_ms(ProcessEnd::Asked), 0);
        }
        let early = ProcessEnd::Unasked { lived_ms: 9_999 };
        let ends = [ProcessEnd::NotStarted, early];
        let waits = (0..9).map(|at| restart.wait_ms(ends[at % 2]));
        let waits: Vec<_> = waits.collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        let late = ProcessEnd::Unasked { lived_ms: 10_000 };
        for well in [ProcessEnd::Asked, late] {
            assert_eq!(restart.wait_ms(well), 0);
            assert_eq!(restart.wait_ms(ProcessEnd::NotStarted), 50);
        }
    }
}
