//! Level bypass: if the fast path answers few requests, it leaves connections to the kernel for a time, then tries
//! again. A pure state machine: its input is counters and time, its output are actions.
//!
//! ```text
//!          almost nothing answered              no live connection
//! awake ──────────────────────────► resting ───────────────────────► asleep
//!   ▲                                  │                                │
//!   └──────────────────────────────────┴── its time is over, or a purge ┘
//! ```

const SECOND_NS: u64 = 1_000_000_000;

/// At least one of this many requests must be answered on the fast path.
const REQUESTS_PER_ANSWER: u64 = 50;
/// Requests on kernel connections are not parsed, but each of their segments is looked up. This many segments cost
/// about as much as a punted request.
const SEGMENTS_PER_REQUEST: u64 = 16;

/// Lengths of observation windows and of bypasses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelBypassRules {
    /// Minimum length of a window. Default 5 s.
    pub window_ns: u64,
    /// Minimum number of requests in a window. Default 2000.
    pub requests_min: u64,
    /// Minimum length of a window in which no response is stored or fetched. Default 1 s.
    pub empty_window_ns: u64,
    /// Minimum number of parsed requests in such a window; segments do not count. Default 500.
    pub empty_requests_min: u64,
    /// Length of the first bypass; each later one is twice as long, until requests are answered again. Default 30 s.
    pub bypass_ns_min: u64,
    /// Maximum length of a bypass. Default 10 min.
    pub bypass_ns_max: u64,
    /// Time in which pending handshakes may still complete, and interval of the checks for remaining connections.
    /// Default 10 s.
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

/// Counters of the traffic since counting began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficSample {
    /// Requests answered on the fast path.
    pub answers: u64,
    /// Requests punted.
    pub punted: u64,
    /// Segments on kernel connections.
    pub kernel_segments: u64,
    /// Responses published.
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
    /// Nothing is published or being fetched.
    Nothing,
    /// Responses are published, but fetching is paused.
    Old,
    /// Recently published responses may still get hits.
    New,
}

/// An action for the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelBypassAction {
    /// Leave connections to the kernel.
    Rest {
        /// End of the bypass.
        until_ns: u64,
        /// Requests answered in the window.
        answers: u64,
        /// All requests in the window.
        requests: u64,
    },
    /// Stop examining frames.
    FallAsleep,
    /// End the bypass.
    Wake,
}

/// The state of the bypass.
#[derive(Debug)]
enum SamplingState {
    /// No bypass. The start of the observation window and the counters at that time; `None` before the first sample.
    Awake(Option<(u64, TrafficSample)>),
    Resting {
        /// Start of the bypass, or last check that found connections.
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
    state: SamplingState,
    bypass_ns_next: u64,
}

impl LevelBypass {
    /// Starts without bypass.
    #[must_use]
    pub fn new(rules: LevelBypassRules) -> LevelBypass {
        LevelBypass {
            bypass_ns_next: rules.bypass_ns_min,
            rules,
            state: SamplingState::Awake(None),
        }
    }

    /// To be called every second. `remaining_connections`: number of this level's connections, evaluated only if needed.
    pub fn update(
        &mut self,
        now_ns: u64,
        sample: TrafficSample,
        prospect: AnswerProspect,
        remaining_connections: impl FnOnce() -> usize,
    ) -> Option<LevelBypassAction> {
        match self.state {
            SamplingState::Awake(window) => {
                let (start_ns, start_sample) = window.unwrap_or((now_ns, sample));
                self.state = SamplingState::Awake(Some((start_ns, start_sample)));
                self.judge(now_ns, start_ns, sample, start_sample, prospect)
            }
            SamplingState::Resting { until_ns, .. } | SamplingState::Asleep { until_ns }
                if until_ns <= now_ns =>
            {
                self.wake()
            }
            // Pending handshakes had time to complete, so the remaining connections can be counted.
            SamplingState::Resting { since_ns, until_ns }
                if now_ns.saturating_sub(since_ns) >= self.rules.settle_ns =>
            {
                let is_drained = remaining_connections() == 0;
                self.state = match is_drained {
                    true => SamplingState::Asleep { until_ns },
                    // Counting them takes a while, so the next check is after `settle_ns` again.
                    false => SamplingState::Resting {
                        since_ns: now_ns,
                        until_ns,
                    },
                };
                is_drained.then_some(LevelBypassAction::FallAsleep)
            }
            SamplingState::Resting { .. } | SamplingState::Asleep { .. } => None,
        }
    }

    /// Ends a bypass, if there is one.
    pub fn wake(&mut self) -> Option<LevelBypassAction> {
        let is_bypassing = !matches!(self.state, SamplingState::Awake(_));
        self.state = SamplingState::Awake(None);
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
        let read = delta.answers.saturating_add(delta.punted);
        // Requests on kernel connections are not parsed, so their number is estimated from their segments.
        let requests = read.saturating_add(delta.kernel_segments / SEGMENTS_PER_REQUEST);
        let elapsed_ns = now_ns.saturating_sub(start_ns);
        let has_no_responses = prospect == AnswerProspect::Nothing && delta.published == 0;
        let rules = &self.rules;
        let is_window_full = elapsed_ns >= rules.window_ns && requests >= rules.requests_min;
        // Nothing could have been answered in this window, so less evidence is needed.
        let is_empty_window_full = has_no_responses
            && elapsed_ns >= rules.empty_window_ns
            && read >= rules.empty_requests_min;
        if !(is_window_full || is_empty_window_full) {
            return None;
        }
        // A new window begins, regardless of the result.
        self.state = SamplingState::Awake(Some((now_ns, sample)));
        if delta.answers.saturating_mul(REQUESTS_PER_ANSWER) >= requests {
            self.bypass_ns_next = self.rules.bypass_ns_min;
            return None;
        }
        // New responses need time to get hits.
        if prospect == AnswerProspect::New && delta.published > 0 {
            return None;
        }
        // Exponential backoff: the window between two bypasses costs time for every request, in vain if the traffic has
        // not changed.
        let until_ns = now_ns.saturating_add(self.bypass_ns_next);
        self.bypass_ns_next = self
            .bypass_ns_next
            .saturating_mul(2)
            .min(self.rules.bypass_ns_max);
        self.state = SamplingState::Resting {
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

    /// A level, simulated second by second.
    struct Bench {
        rest: LevelBypass,
        now_s: u64,
        seen: TrafficSample,
        left: usize,
        prospect: AnswerProspect,
    }

    impl Bench {
        fn new() -> Bench {
            Bench {
                rest: LevelBypass::new(LevelBypassRules::default()),
                now_s: 1000,
                // An earlier daemon has counted as well.
                seen: TrafficSample {
                    answers: 1_000_000,
                    punted: 5,
                    kernel_segments: 7,
                    published: 0,
                },
                left: 0,
                prospect: AnswerProspect::Old,
            }
        }

        /// Runs seconds with this many requests each until a step; returns when, and which.
        fn until(
            &mut self,
            secs: u64,
            answers: u64,
            handed_up: u64,
        ) -> Option<(u64, LevelBypassAction)> {
            let begin_s = self.now_s;
            for _ in 0..secs {
                let (now_ns, left) = (self.now_s * SECOND_NS, self.left);
                let step = self.rest.update(now_ns, self.seen, self.prospect, || left);
                self.now_s += 1;
                if let Some(step) = step {
                    return Some((self.now_s - 1 - begin_s, step));
                }
                self.seen.answers += answers;
                self.seen.punted += handed_up;
            }
            None
        }

        fn rested(&mut self, answers: u64, handed_up: u64) -> u64 {
            match self.until(100, answers, handed_up) {
                Some((_, LevelBypassAction::Rest { until_ns, .. })) => {
                    until_ns / SECOND_NS - (self.now_s - 1)
                }
                other => panic!("no rest: {other:?}"),
            }
        }
    }

    #[test]
    fn one_that_answers_nothing_rests_sleeps_and_tries_again() {
        let mut bench = Bench::new();
        let rest = LevelBypassAction::Rest {
            until_ns: 1035 * SECOND_NS,
            answers: 50,
            requests: 5000,
        };
        // 10 of 1,000 are fewer than one of 50.
        assert_eq!(bench.until(100, 10, 990), Some((5, rest)));
        // The first check for connections comes after 10 s.
        assert_eq!(
            bench.until(100, 0, 0),
            Some((9, LevelBypassAction::FallAsleep))
        );
        assert_eq!(bench.until(100, 0, 0), Some((19, LevelBypassAction::Wake)));
        let mut rests = Vec::new();
        for _ in 0..6 {
            rests.push(bench.rested(0, 1000));
            bench.now_s += 600;
            assert_eq!(bench.until(1, 0, 0), Some((0, LevelBypassAction::Wake)));
        }
        assert_eq!(rests, [60, 120, 240, 480, 600, 600]);
    }

    #[test]
    fn who_answers_something_does_not_rest() {
        for (answers, handed_up) in [(20, 980), (500, 500), (1000, 0)] {
            assert_eq!(Bench::new().until(1000, answers, handed_up), None);
        }
        // After requests were answered again, the next bypass is short.
        let mut bench = Bench::new();
        for _ in 0..3 {
            bench.rested(0, 1000);
            bench.now_s += 600;
            bench.until(1, 0, 0);
        }
        assert_eq!(bench.until(10, 500, 500), None);
        assert_eq!(bench.rested(0, 1000), 30);
    }

    #[test]
    fn few_requests_say_little() {
        let mut bench = Bench::new();
        // Fewer than the minimum of 2,000 requests.
        assert_eq!(bench.until(1900, 0, 1), None);
        assert!(matches!(
            bench.until(200, 0, 1),
            Some((_, LevelBypassAction::Rest { .. }))
        ));
    }

    #[test]
    fn what_was_just_published_may_be_hit_yet() {
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
    fn where_nothing_can_be_answered_less_is_enough() {
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
    fn segments_of_kept_connections_cost_too() {
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
    fn nobody_sleeps_while_a_connection_of_ours_is_left() {
        let mut bench = Bench::new();
        bench.rested(0, 1000);
        bench.left = 1;
        assert_eq!(bench.until(12, 0, 0), None);
        bench.left = 0;
        assert_eq!(
            bench.until(9, 0, 0),
            Some((7, LevelBypassAction::FallAsleep))
        );
    }

    #[test]
    fn somebody_may_wake_it() {
        let mut bench = Bench::new();
        assert_eq!(bench.rest.wake(), None);
        bench.rested(0, 1000);
        assert_eq!(bench.rest.wake(), Some(LevelBypassAction::Wake));
        assert_eq!(bench.rested(0, 1000), 60);
    }
}
