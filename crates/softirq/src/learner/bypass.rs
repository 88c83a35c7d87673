//! Level bypass: if the fast path answers few requests, new connections are left to the kernel for a time; then the
//! fast path is tried again. A pure state machine: its input is counters and the time, its output is actions.
//!
//! ```text
//!         few requests answered            no connections remain
//! awake ────────────────────────► resting ───────────────────────► asleep
//!   ▲                                │                               │
//!   └────────────────────────────────┴───────────────────────────────┘
//!              end of the bypass, or a purge by an operator
//! ```
//!
//! Resting: new connections are left to the kernel, live ones stay on the fast path. Asleep: no frames are examined.

const SECOND_NS: u64 = 1_000_000_000;

/// The fast path must answer at least one of this many requests.
const REQUESTS_PER_ANSWER: u64 = 50;
/// Requests on kernel connections are not parsed, but each of their segments costs a table lookup. This many segments
/// cost about as much as one punted request.
const SEGMENTS_PER_REQUEST: u64 = 16;

/// Lengths of observation windows and of bypasses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelBypassRules {
    /// Minimum length of a window. Default 5 s.
    pub window_ns: u64,
    /// Minimum number of requests in a window. Default 2000.
    pub requests_min: u64,
    /// Minimum length of an empty window: one in which no response was published, and at the end of which none is
    /// published or being fetched. Default 1 s.
    pub empty_window_ns: u64,
    /// Minimum number of parsed requests in an empty window; segments on kernel connections do not count. Default 500.
    pub empty_requests_min: u64,
    /// Length of the first bypass; each later one is twice as long, until enough requests are answered again. Default
    /// 30 s.
    pub bypass_ns_min: u64,
    /// Maximum length of a bypass. Default 10 min.
    pub bypass_ns_max: u64,
    /// Time for pending handshakes to complete, and interval of the checks for remaining connections. Default 10 s.
    pub settle_ns: u64,
}

impl Default for LevelBypassRules {
    fn default() -> LevelBypassRules {
        LevelBypassRules {
            window_ns: 5 * SECOND_NS,
            requests_min: 2000,
            empty_window_ns: SECOND_NS,
            empty_requests_min: 500,
            bypass_ns_min: 30 * SECOND_NS,
            bypass_ns_max: 600 * SECOND_NS,
            settle_ns: 10 * SECOND_NS,
        }
    }
}

/// Traffic counters, cumulative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficSample {
    /// Requests answered on the fast path.
    pub answers: u64,
    /// Requests that the fast path has punted to the server.
    pub punted: u64,
    /// Segments on kernel connections.
    pub kernel_segments: u64,
    /// Publications of responses, including responses that were retired since.
    pub published: u64,
}

impl TrafficSample {
    fn since(self, before: TrafficSample) -> TrafficSample {
        TrafficSample {
            answers: self.answers.saturating_sub(before.answers),
            punted: self.punted.saturating_sub(before.punted),
            kernel_segments: self.kernel_segments.saturating_sub(before.kernel_segments),
            published: self.published.saturating_sub(before.published),
        }
    }
}

/// Whether the fast path can expect to answer requests soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerProspect {
    /// No response is published, and no key waits for a fetch or is being fetched.
    Nothing,
    /// Fetching is paused: requests can be answered only with responses that are already published.
    Old,
    /// Fetching is not paused: more responses may be published and get hits.
    New,
}

/// An action for the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelBypassAction {
    /// Begin a bypass: leave new connections to the kernel.
    Rest {
        /// End of the bypass, CLOCK_MONOTONIC.
        until_ns: u64,
        /// Number of requests that were answered in the observation window.
        answers: u64,
        /// Number of all requests in the observation window, partly estimated from the number of segments.
        requests: u64,
    },
    /// Stop examining frames, since no connection depends on the level any more.
    FallAsleep,
    /// End the bypass, and answer requests again.
    Wake,
}

/// The state of the bypass.
#[derive(Debug)]
enum BypassState {
    /// No bypass. Holds the start of the observation window and the counters at that time; `None` before the first
    /// sample.
    Awake(Option<(u64, TrafficSample)>),
    Resting {
        /// Start of the bypass, or the last check that found connections.
        since_ns: u64,
        until_ns: u64,
    },
    Asleep {
        until_ns: u64,
    },
}

/// The state machine.
#[derive(Debug)]
pub struct LevelBypass {
    rules: LevelBypassRules,
    state: BypassState,
    bypass_ns_next: u64,
}

impl LevelBypass {
    /// Starts without bypass.
    #[must_use]
    pub fn new(rules: LevelBypassRules) -> LevelBypass {
        LevelBypass {
            bypass_ns_next: rules.bypass_ns_min,
            rules,
            state: BypassState::Awake(None),
        }
    }

    /// Handles a sample; to be called every second. `remaining_connections` returns the number of connections that
    /// depend on this level; it is called only if needed.
    pub fn update(
        &mut self,
        now_ns: u64,
        sample: TrafficSample,
        prospect: AnswerProspect,
        remaining_connections: impl FnOnce() -> usize,
    ) -> Option<LevelBypassAction> {
        match self.state {
            BypassState::Awake(window) => {
                let (start_ns, start_sample) = window.unwrap_or((now_ns, sample));
                self.state = BypassState::Awake(Some((start_ns, start_sample)));
                self.judge(now_ns, start_ns, sample, start_sample, prospect)
            }
            BypassState::Resting { until_ns, .. } | BypassState::Asleep { until_ns }
                if until_ns <= now_ns =>
            {
                self.wake()
            }
            // Pending handshakes have had time to complete, so the remaining connections can be counted.
            BypassState::Resting { since_ns, until_ns }
                if now_ns.saturating_sub(since_ns) >= self.rules.settle_ns =>
            {
                let is_drained = remaining_connections() == 0;
                self.state = match is_drained {
                    true => BypassState::Asleep { until_ns },
                    // Counting takes a while, so the next check follows after another `settle_ns`.
                    false => BypassState::Resting {
                        since_ns: now_ns,
                        until_ns,
                    },
                };
                is_drained.then_some(LevelBypassAction::FallAsleep)
            }
            BypassState::Resting { .. } | BypassState::Asleep { .. } => None,
        }
    }

    /// Ends a bypass, if one is active.
    pub fn wake(&mut self) -> Option<LevelBypassAction> {
        let is_bypassing = !matches!(self.state, BypassState::Awake(_));
        self.state = BypassState::Awake(None);
        is_bypassing.then_some(LevelBypassAction::Wake)
    }

    fn judge(
        &mut self,
        now_ns: u64,
        start_ns: u64,
        sample: TrafficSample,
        start_sample: TrafficSample,
        prospect: AnswerProspect,
    ) -> Option<LevelBypassAction> {
        let delta = sample.since(start_sample);
        // Each parsed request was either answered or punted.
        let read = delta.answers.saturating_add(delta.punted);
        // Requests on kernel connections are not parsed; their number is estimated from the number of their segments.
        let requests = read.saturating_add(delta.kernel_segments / SEGMENTS_PER_REQUEST);
        let elapsed_ns = now_ns.saturating_sub(start_ns);
        let has_no_responses = prospect == AnswerProspect::Nothing && delta.published == 0;
        let rules = &self.rules;
        let is_window_full = elapsed_ns >= rules.window_ns && requests >= rules.requests_min;
        // Without responses the fast path can't answer anything, so a shorter window with fewer requests suffices.
        let is_empty_window_full = has_no_responses
            && elapsed_ns >= rules.empty_window_ns
            && read >= rules.empty_requests_min;
        if !(is_window_full || is_empty_window_full) {
            return None;
        }
        // The next observation window begins, whether a bypass begins or not.
        self.state = BypassState::Awake(Some((now_ns, sample)));
        if delta.answers.saturating_mul(REQUESTS_PER_ANSWER) >= requests {
            self.bypass_ns_next = self.rules.bypass_ns_min;
            return None;
        }
        // The responses that were published in this window need time to get hits.
        if prospect == AnswerProspect::New && delta.published > 0 {
            return None;
        }
        // Exponential backoff: each window between two bypasses makes the fast path parse requests, which slows them
        // down, in vain if the traffic has not changed.
        let until_ns = now_ns.saturating_add(self.bypass_ns_next);
        self.bypass_ns_next = self
            .bypass_ns_next
            .saturating_mul(2)
            .min(self.rules.bypass_ns_max);
        self.state = BypassState::Resting {
            since_ns: now_ns,
            until_ns,
        };
        Some(LevelBypassAction::Rest {
            until_ns,
            answers: delta.answers,
            requests,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A level bypass, and its inputs at the current second of simulated time.
    struct Bench {
        rest: LevelBypass,
        now_s: u64,
        seen: TrafficSample,
        remaining: usize,
        prospect: AnswerProspect,
    }

    impl Bench {
        fn new() -> Bench {
            Bench {
                rest: LevelBypass::new(LevelBypassRules::default()),
                now_s: 1000,
                // The counters do not begin at 0, since they continue those of an earlier daemon.
                seen: TrafficSample {
                    answers: 1_000_000,
                    punted: 5,
                    kernel_segments: 7,
                    published: 0,
                },
                remaining: 0,
                prospect: AnswerProspect::Old,
            }
        }

        /// Simulates at most `secs` seconds, each with this many answered and punted requests, until the level bypass
        /// returns an action. Returns the number of seconds before the action, and the action.
        fn until(
            &mut self,
            secs: u64,
            answers: u64,
            punted: u64,
        ) -> Option<(u64, LevelBypassAction)> {
            let start_s = self.now_s;
            for _ in 0..secs {
                let (now_ns, remaining) = (self.now_s * SECOND_NS, self.remaining);
                let step = self
                    .rest
                    .update(now_ns, self.seen, self.prospect, || remaining);
                self.now_s += 1;
                if let Some(step) = step {
                    return Some((self.now_s - 1 - start_s, step));
                }
                self.seen.answers += answers;
                self.seen.punted += punted;
            }
            None
        }

        fn bypass_secs(&mut self, answers: u64, punted: u64) -> u64 {
            match self.until(100, answers, punted) {
                Some((_, LevelBypassAction::Rest { until_ns, .. })) => {
                    until_ns / SECOND_NS - (self.now_s - 1)
                }
                other => panic!("no rest: {other:?}"),
            }
        }
    }

    #[test]
    fn without_answers_the_level_rests_sleeps_and_wakes_with_backoff() {
        let mut bench = Bench::new();
        let rest = LevelBypassAction::Rest {
            until_ns: 1035 * SECOND_NS,
            answers: 50,
            requests: 5000,
        };
        // 10 of 1,000 are fewer than one in 50.
        assert_eq!(bench.until(100, 10, 990), Some((5, rest)));
        // The first check for connections follows after 10 s.
        assert_eq!(
            bench.until(100, 0, 0),
            Some((9, LevelBypassAction::FallAsleep))
        );
        assert_eq!(bench.until(100, 0, 0), Some((19, LevelBypassAction::Wake)));
        let mut rests = Vec::new();
        for _ in 0..6 {
            rests.push(bench.bypass_secs(0, 1000));
            bench.now_s += 600;
            assert_eq!(bench.until(1, 0, 0), Some((0, LevelBypassAction::Wake)));
        }
        assert_eq!(rests, [60, 120, 240, 480, 600, 600]);
    }

    #[test]
    fn enough_answers_prevent_a_bypass_and_reset_its_length() {
        for (answers, punted) in [(20, 980), (500, 500), (1000, 0)] {
            assert_eq!(Bench::new().until(1000, answers, punted), None);
        }
        // After requests were answered again, the next bypass is short.
        let mut bench = Bench::new();
        for _ in 0..3 {
            bench.bypass_secs(0, 1000);
            bench.now_s += 600;
            bench.until(1, 0, 0);
        }
        assert_eq!(bench.until(10, 500, 500), None);
        assert_eq!(bench.bypass_secs(0, 1000), 30);
    }

    #[test]
    fn windows_below_the_minimum_of_requests_are_extended() {
        let mut bench = Bench::new();
        // Fewer than the minimum of 2,000 requests.
        assert_eq!(bench.until(1900, 0, 1), None);
        assert!(matches!(
            bench.until(200, 0, 1),
            Some((_, LevelBypassAction::Rest { .. }))
        ));
    }

    #[test]
    fn recent_publications_postpone_a_bypass() {
        let mut bench = Bench::new();
        bench.prospect = AnswerProspect::New;
        for _ in 0..5 {
            bench.seen.published += 100;
            assert_eq!(bench.until(5, 0, 1000), None);
        }
        bench.prospect = AnswerProspect::Old;
        bench.seen.published += 100;
        assert!(matches!(
            bench.until(6, 0, 1000),
            Some((_, LevelBypassAction::Rest { .. }))
        ));
    }

    #[test]
    fn window_without_responses_needs_fewer_requests() {
        let rest = LevelBypassAction::Rest {
            until_ns: 1031 * SECOND_NS,
            answers: 0,
            requests: 500,
        };
        let mut bench = Bench::new();
        assert_eq!(bench.until(4, 0, 500), None);
        let mut bench = Bench::new();
        bench.prospect = AnswerProspect::Nothing;
        assert_eq!(bench.until(4, 0, 500), Some((1, rest)));
        // A response was published and removed in this window, so it may be published again.
        let mut bench = Bench::new();
        bench.prospect = AnswerProspect::Nothing;
        bench.until(1, 0, 500);
        bench.seen.published += 1;
        assert_eq!(bench.until(4, 0, 500), None);
    }

    #[test]
    fn segments_of_kernel_connections_count_as_requests() {
        let mut bench = Bench::new();
        bench.until(1, 0, 0);
        for _ in 0..4 {
            // These segments count as 500 requests.
            bench.seen.kernel_segments += 16 * 500;
            assert_eq!(bench.until(1, 7, 0), None);
        }
        assert!(matches!(
            bench.until(1, 7, 0),
            Some((
                0,
                LevelBypassAction::Rest {
                    answers: 28,
                    requests: 2028,
                    ..
                }
            ))
        ));
    }

    #[test]
    fn level_sleeps_only_without_remaining_connections() {
        let mut bench = Bench::new();
        bench.bypass_secs(0, 1000);
        bench.remaining = 1;
        assert_eq!(bench.until(12, 0, 0), None);
        bench.remaining = 0;
        assert_eq!(
            bench.until(9, 0, 0),
            Some((7, LevelBypassAction::FallAsleep))
        );
    }

    #[test]
    fn wake_ends_a_bypass_and_keeps_the_backoff() {
        let mut bench = Bench::new();
        assert_eq!(bench.rest.wake(), None);
        bench.bypass_secs(0, 1000);
        assert_eq!(bench.rest.wake(), Some(LevelBypassAction::Wake));
        assert_eq!(bench.bypass_secs(0, 1000), 60);
    }
}
