//! When a level that answers little rests, and when it tries again, as a state machine: what came and the
//! time go in, what is to be done comes out. It knows no maps and no clock.
//!
//! ```text
//!          almost nothing answered              none of ours is left
//! awake ──────────────────────────► resting ───────────────────────► asleep
//!   ▲                                  │                                │
//!   └──────────────────────────────────┴── its time is over, or a purge ┘
//! ```

const SECOND_NS: u64 = 1_000_000_000;

/// Of so many requests one must be answered here.
const REQUESTS_PER_ANSWER: u64 = 50;
/// Requests on connections of the kernel are not read, but each of their segments is looked up. So many cost about
/// what a request does that is handed up.
const SEGMENTS_PER_REQUEST: u64 = 16;

/// How long is looked at, and how long is rested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A judgement is over so long at least. Default 5 s.
    pub window_ns: u64,
    /// And over so many requests at least. Default 2000.
    pub requests_min: u64,
    /// The same where nothing is here that could be answered. Default 1 s.
    pub vain_window_ns: u64,
    /// And this, of which segments are none. Default 500.
    pub vain_requests_min: u64,
    /// The first rest; each after it is twice as long, until something is answered again. Default 30 s.
    pub rest_ns_min: u64,
    /// No rest is longer. Default 10 min.
    pub rest_ns_max: u64,
    /// Handshakes that were answered may be completed for so long; and so often it is looked whether
    /// connections are left. Default 10 s.
    pub settle_ns: u64,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            window_ns: 5 * SECOND_NS,
            requests_min: 2000,
            vain_window_ns: SECOND_NS,
            vain_requests_min: 500,
            rest_ns_min: 30 * SECOND_NS,
            rest_ns_max: 600 * SECOND_NS,
            settle_ns: 10 * SECOND_NS,
        }
    }
}

/// What has come since counting began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Requests that were answered here.
    pub answers: u64,
    /// Requests that were handed up.
    pub handed_up: u64,
    /// Segments of connections that were the kernel's.
    pub kernel_segments: u64,
    /// Responses that were published.
    pub published: u64,
}

impl Seen {
    fn since(self, before: Seen) -> Seen {
        Seen {
            answers: self.answers.saturating_sub(before.answers),
            handed_up: self.handed_up.saturating_sub(before.handed_up),
            kernel_segments: self.kernel_segments.saturating_sub(before.kernel_segments),
            published: self.published.saturating_sub(before.published),
        }
    }
}

/// What may be answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prospect {
    /// Nothing is published, nor is anything being fetched.
    Nothing,
    /// What was published before, but nothing new is fetched.
    Old,
    /// What was published lately may be asked for yet.
    New,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Leave connections to the kernel.
    Rest {
        /// Until then.
        until_ns: u64,
        /// So many requests were answered.
        answers: u64,
        /// Of so many.
        requests: u64,
    },
    /// Look at nothing.
    FallAsleep,
    /// Answer again.
    Wake,
}

/// How much of what comes is looked at.
#[derive(Debug)]
enum Wakefulness {
    /// With the beginning of the window, and what had come by then; unknown before the first look.
    Awake(Option<(u64, Seen)>),
    Resting {
        /// When it began, or connections were left.
        since_ns: u64,
        until_ns: u64,
    },
    Asleep {
        until_ns: u64,
    },
}

/// The state machine.
#[derive(Debug)]
pub struct Rest {
    rules: Rules,
    state: Wakefulness,
    rest_ns_next: u64,
}

impl Rest {
    /// Awake.
    #[must_use]
    pub fn new(rules: Rules) -> Rest {
        Rest {
            rest_ns_next: rules.rest_ns_min,
            rules,
            state: Wakefulness::Awake(None),
        }
    }

    /// Call it each second. `left`: how many connections of this level there are, if that matters.
    pub fn look(
        &mut self,
        now_ns: u64,
        seen: Seen,
        prospect: Prospect,
        left: impl FnOnce() -> usize,
    ) -> Option<Step> {
        match self.state {
            Wakefulness::Awake(window) => {
                let (begin_ns, before) = window.unwrap_or((now_ns, seen));
                self.state = Wakefulness::Awake(Some((begin_ns, before)));
                self.judge(now_ns, begin_ns, seen, before, prospect)
            }
            Wakefulness::Resting { until_ns, .. } | Wakefulness::Asleep { until_ns }
                if until_ns <= now_ns =>
            {
                self.wake()
            }
            Wakefulness::Resting { since_ns, until_ns }
                if now_ns.saturating_sub(since_ns) >= self.rules.settle_ns =>
            {
                let is_over = left() == 0;
                self.state = match is_over {
                    true => Wakefulness::Asleep { until_ns },
                    // To count them takes a while.
                    false => Wakefulness::Resting {
                        since_ns: now_ns,
                        until_ns,
                    },
                };
                is_over.then_some(Step::FallAsleep)
            }
            Wakefulness::Resting { .. } | Wakefulness::Asleep { .. } => None,
        }
    }

    /// Ends a rest, if there is one.
    pub fn wake(&mut self) -> Option<Step> {
        let rests = !matches!(self.state, Wakefulness::Awake(_));
        self.state = Wakefulness::Awake(None);
        rests.then_some(Step::Wake)
    }

    fn judge(
        &mut self,
        now_ns: u64,
        begin_ns: u64,
        seen: Seen,
        before: Seen,
        prospect: Prospect,
    ) -> Option<Step> {
        let came = seen.since(before);
        let read = came.answers.saturating_add(came.handed_up);
        let requests = read.saturating_add(came.kernel_segments / SEGMENTS_PER_REQUEST);
        let passed_ns = now_ns.saturating_sub(begin_ns);
        let is_vain = prospect == Prospect::Nothing && came.published == 0;
        let rules = &self.rules;
        let is_enough = passed_ns >= rules.window_ns && requests >= rules.requests_min;
        let is_enough_in_vain =
            is_vain && passed_ns >= rules.vain_window_ns && read >= rules.vain_requests_min;
        if !(is_enough || is_enough_in_vain) {
            return None;
        }
        self.state = Wakefulness::Awake(Some((now_ns, seen)));
        if came.answers.saturating_mul(REQUESTS_PER_ANSWER) >= requests {
            self.rest_ns_next = self.rules.rest_ns_min;
            return None;
        }
        if prospect == Prospect::New && came.published > 0 {
            return None;
        }
        let until_ns = now_ns.saturating_add(self.rest_ns_next);
        self.rest_ns_next = self
            .rest_ns_next
            .saturating_mul(2)
            .min(self.rules.rest_ns_max);
        self.state = Wakefulness::Resting {
            since_ns: now_ns,
            until_ns,
        };
        Some(Step::Rest {
            until_ns,
            answers: came.answers,
            requests,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A level, second by second.
    struct Bench {
        rest: Rest,
        now_s: u64,
        seen: Seen,
        left: usize,
        prospect: Prospect,
    }

    impl Bench {
        fn new() -> Bench {
            Bench {
                rest: Rest::new(Rules::default()),
                now_s: 1000,
                // An earlier daemon has counted too.
                seen: Seen {
                    answers: 1_000_000,
                    handed_up: 5,
                    kernel_segments: 7,
                    published: 0,
                },
                left: 0,
                prospect: Prospect::Old,
            }
        }

        /// Seconds with so many requests each, until something is to be done: when, and what.
        fn until(&mut self, secs: u64, answers: u64, handed_up: u64) -> Option<(u64, Step)> {
            let begin_s = self.now_s;
            for _ in 0..secs {
                let (now_ns, left) = (self.now_s * SECOND_NS, self.left);
                let step = self.rest.look(now_ns, self.seen, self.prospect, || left);
                self.now_s += 1;
                if let Some(step) = step {
                    return Some((self.now_s - 1 - begin_s, step));
                }
                self.seen.answers += answers;
                self.seen.handed_up += handed_up;
            }
            None
        }

        fn rested(&mut self, answers: u64, handed_up: u64) -> u64 {
            match self.until(100, answers, handed_up) {
                Some((_, Step::Rest { until_ns, .. })) => until_ns / SECOND_NS - (self.now_s - 1),
                other => panic!("no rest: {other:?}"),
            }
        }
    }

    #[test]
    fn one_that_answers_nothing_rests_sleeps_and_tries_again() {
        let mut bench = Bench::new();
        let rest = Step::Rest {
            until_ns: 1035 * SECOND_NS,
            answers: 50,
            requests: 5000,
        };
        assert_eq!(bench.until(100, 10, 990), Some((5, rest)));
        assert_eq!(bench.until(100, 0, 0), Some((9, Step::FallAsleep)));
        assert_eq!(bench.until(100, 0, 0), Some((19, Step::Wake)));
        let mut rests = Vec::new();
        for _ in 0..6 {
            rests.push(bench.rested(0, 1000));
            bench.now_s += 600;
            assert_eq!(bench.until(1, 0, 0), Some((0, Step::Wake)));
        }
        assert_eq!(rests, [60, 120, 240, 480, 600, 600]);
    }

    #[test]
    fn who_answers_something_does_not_rest() {
        for (answers, handed_up) in [(20, 980), (500, 500), (1000, 0)] {
            assert_eq!(Bench::new().until(1000, answers, handed_up), None);
        }
        // And what was hard to answer once is no reason for a long rest later.
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
        assert_eq!(bench.until(1900, 0, 1), None);
        assert!(matches!(
            bench.until(200, 0, 1),
            Some((_, Step::Rest { .. }))
        ));
    }

    #[test]
    fn what_was_just_published_may_be_hit_yet() {
        let mut bench = Bench::new();
        bench.prospect = Prospect::New;
        for _ in 0..5 {
            bench.seen.published += 100;
            assert_eq!(bench.until(5, 0, 1000), None);
        }
        bench.prospect = Prospect::Old;
        bench.seen.published += 100;
        assert!(matches!(
            bench.until(6, 0, 1000),
            Some((_, Step::Rest { .. }))
        ));
    }

    #[test]
    fn where_nothing_can_be_answered_less_is_enough() {
        let rest = Step::Rest {
            until_ns: 1031 * SECOND_NS,
            answers: 0,
            requests: 500,
        };
        let mut bench = Bench::new();
        assert_eq!(bench.until(4, 0, 500), None);
        let mut bench = Bench::new();
        bench.prospect = Prospect::Nothing;
        assert_eq!(bench.until(4, 0, 500), Some((1, rest)));
        // It is gone again, and may come again.
        let mut bench = Bench::new();
        bench.prospect = Prospect::Nothing;
        bench.until(1, 0, 500);
        bench.seen.published += 1;
        assert_eq!(bench.until(4, 0, 500), None);
    }

    #[test]
    fn segments_of_kept_connections_cost_too() {
        let mut bench = Bench::new();
        bench.until(1, 0, 0);
        for _ in 0..4 {
            bench.seen.kernel_segments += 16 * 500;
            assert_eq!(bench.until(1, 7, 0), None);
        }
        assert!(matches!(
            bench.until(1, 7, 0),
            Some((
                0,
                Step::Rest {
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
        assert_eq!(bench.until(9, 0, 0), Some((7, Step::FallAsleep)));
    }

    #[test]
    fn somebody_may_wake_it() {
        let mut bench = Bench::new();
        assert_eq!(bench.rest.wake(), None);
        bench.rested(0, 1000);
        assert_eq!(bench.rest.wake(), Some(Step::Wake));
        assert_eq!(bench.rested(0, 1000), 60);
    }
}
