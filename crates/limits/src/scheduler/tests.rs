//! The order of calls, in some histories written by hand and in many random ones.

extern crate std;

use std::vec::Vec;

use super::*;

const RULES: ClassRules = ClassRules {
    weight: 1,
    calls_max: usize::MAX,
    waiting_max: usize::MAX,
    deadline_ms: 1000,
};

fn rules_with_weight(weight: u32) -> ClassRules {
    ClassRules { weight, ..RULES }
}

fn scheduler(calls_max: usize, waiting_max: usize, rules: &[ClassRules]) -> ClassScheduler<u32> {
    let bounds = CallBounds {
        calls_max,
        waiting_max,
    };
    ClassScheduler::new(bounds, rules)
}

fn waits_with_ticket(ticket: u64) -> CallArrival<u32> {
    CallArrival::Waits {
        ticket,
        displaced: None,
    }
}

#[test]
fn calls_begin_within_the_limit_then_in_fifo_order() {
    let mut all = scheduler(2, 9, &[RULES]);
    assert_eq!(all.arrive(0, 0, 0), CallArrival::Begins);
    assert_eq!(all.arrive(0, 1, 0), CallArrival::Begins);
    assert_eq!(all.arrive(0, 2, 0), waits_with_ticket(0));
    assert_eq!(all.arrive(0, 3, 0), waits_with_ticket(1));
    assert_eq!((all.next(0), all.counts(0)), (None, (2, 2)));
    all.end_call(0);
    assert_eq!(all.next(0), Some(CallOutcome::Begins(2)));
    assert_eq!(all.next(0), None);
    all.end_call(0);
    all.end_call(0);
    assert_eq!(all.next(0), Some(CallOutcome::Begins(3)));
    assert_eq!((all.next(0), all.counts(0)), (None, (1, 0)));
}

/// Runs `calls` calls one after the other, while a call of each class is always waiting. Returns the number of calls of
/// each class.
fn run_calls(all: &mut ClassScheduler<u32>, in_progress: &mut usize, calls: usize) -> [usize; 3] {
    let mut counts = [0; 3];
    for _ in 0..calls {
        all.end_call(*in_progress);
        let Some(CallOutcome::Begins(class)) = all.next(0) else {
            panic!("somebody waits, and there is room");
        };
        *in_progress = class as usize;
        counts[*in_progress] += 1;
        assert!(matches!(
            all.arrive(*in_progress, class, 0),
            CallArrival::Waits { .. }
        ));
    }
    counts
}

#[test]
fn calls_are_proportional_to_weights() {
    let mut all = scheduler(
        1,
        1000,
        &[
            rules_with_weight(6),
            rules_with_weight(3),
            rules_with_weight(1),
        ],
    );
    assert_eq!(all.arrive(0, 9, 0), CallArrival::Begins);
    for class in 0..3 {
        all.arrive(class, class as u32, 0);
    }
    let counts = run_calls(&mut all, &mut 0, 1000);
    for (count, due) in counts.iter().zip([600, 300, 100]) {
        assert!(count.abs_diff(due) <= 1, "{counts:?}");
    }
}

#[test]
fn idle_class_saves_up_no_turns() {
    // Otherwise a class could block all others after a long idle time.
    let mut all = scheduler(1, 1000, &[rules_with_weight(1), rules_with_weight(1)]);
    let mut in_progress = 0;
    all.arrive(0, 0, 0);
    all.arrive(0, 0, 0);
    assert_eq!(run_calls(&mut all, &mut in_progress, 500), [500, 0, 0]);
    all.arrive(1, 1, 0);
    let counts = run_calls(&mut all, &mut in_progress, 100);
    assert!(counts[0].abs_diff(counts[1]) <= 1, "{counts:?}");
}

#[test]
fn class_at_its_limit_does_not_block_others() {
    // Class 0 is next by its weight of 100, but it has no free slot.
    let one = ClassRules {
        calls_max: 1,
        ..rules_with_weight(100)
    };
    let mut all = scheduler(3, 9, &[one, RULES]);
    assert_eq!(all.arrive(0, 0, 0), CallArrival::Begins);
    assert_eq!(all.arrive(0, 1, 0), waits_with_ticket(0));
    assert_eq!(all.arrive(1, 2, 0), CallArrival::Begins);
    assert_eq!(all.arrive(1, 3, 0), CallArrival::Begins);
    assert_eq!(all.arrive(1, 4, 0), waits_with_ticket(1));
    all.end_call(1);
    assert_eq!(all.next(0), Some(CallOutcome::Begins(4)));
    assert_eq!(all.next(0), None);
    all.end_call(0);
    assert_eq!(all.next(0), Some(CallOutcome::Begins(1)));
    assert_eq!((all.counts(0), all.counts(1)), ((1, 0), (2, 0)));
}

#[test]
fn newest_call_of_the_lowest_class_is_shed_first() {
    let mut all = scheduler(1, 4, &[rules_with_weight(3), rules_with_weight(1)]);
    assert_eq!(all.arrive(1, 10, 0), CallArrival::Begins);
    for (ticket, waiter) in (11..15).enumerate() {
        assert_eq!(all.arrive(1, waiter, 0), waits_with_ticket(ticket as u64));
    }
    assert_eq!(all.arrive(1, 15, 0), CallArrival::Shed);
    for (ticket, displaced) in [(4, 14), (5, 13), (6, 12)] {
        let displaced = Some((1, displaced));
        assert_eq!(
            all.arrive(0, 1, 0),
            CallArrival::Waits { ticket, displaced }
        );
    }
    // One of the four places is reserved for the lower class.
    assert_eq!(all.arrive(0, 2, 0), CallArrival::Shed);
    assert_eq!((all.counts(0), all.counts(1)), ((0, 3), (1, 1)));
}

#[test]
fn lower_class_regains_its_reserved_places() {
    // The higher class has filled the places that are reserved for the lower one.
    let mut all = scheduler(1, 4, &[rules_with_weight(3), rules_with_weight(1)]);
    for waiter in 0..5 {
        all.arrive(0, waiter, 0);
    }
    let displaced = Some((0, 4));
    let ticket = 4;
    assert_eq!(
        all.arrive(1, 9, 0),
        CallArrival::Waits { ticket, displaced }
    );
    assert_eq!(all.arrive(1, 9, 0), CallArrival::Shed);
}

#[test]
fn queue_length_of_each_class_is_limited() {
    let short = ClassRules {
        waiting_max: 1,
        ..RULES
    };
    let mut all = scheduler(1, 9, &[short]);
    assert_eq!(all.arrive(0, 0, 0), CallArrival::Begins);
    assert_eq!(all.arrive(0, 1, 0), waits_with_ticket(0));
    assert_eq!(all.arrive(0, 2, 0), CallArrival::Shed);
    let none = ClassRules {
        waiting_max: 0,
        ..RULES
    };
    let mut all = scheduler(1, 9, &[none]);
    assert_eq!(all.arrive(0, 0, 0), CallArrival::Begins);
    assert_eq!(all.arrive(0, 1, 0), CallArrival::Shed);
}

#[test]
fn waiting_calls_expire_at_the_class_deadline() {
    let mut all = scheduler(1, 9, &[RULES]);
    all.arrive(0, 0, 0);
    all.arrive(0, 1, 10);
    all.arrive(0, 2, 20);
    assert_eq!(all.next(1009), None);
    assert_eq!(all.next(1010), Some(CallOutcome::TooLate(0, 1)));
    assert_eq!(all.next(1010), None);
    all.end_call(0);
    assert_eq!(all.next(1019), Some(CallOutcome::Begins(2)));
}

#[test]
fn call_that_gives_up_frees_its_place() {
    let mut all = scheduler(1, 2, &[RULES]);
    all.arrive(0, 0, 0);
    all.arrive(0, 1, 0);
    all.arrive(0, 2, 0);
    assert!(all.give_up(0, 0) && !all.give_up(0, 0));
    assert_eq!(all.arrive(0, 3, 0), waits_with_ticket(2));
    all.end_call(0);
    assert_eq!(all.next(0), Some(CallOutcome::Begins(2)));
    assert!(!all.give_up(0, 1));
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// The calls of a history: their classes, and their tickets while they wait.
#[derive(Default)]
struct History {
    begun: Vec<usize>,
    waiting: Vec<(u64, usize, u32)>,
    counts: [usize; 5],
}

impl History {
    fn leaves(&mut self, waiter: u32) -> usize {
        let place = self.waiting.iter().position(|(_, _, it)| *it == waiter);
        self.waiting.remove(place.expect("it waits")).1
    }

    /// Performs a random operation.
    fn step(
        &mut self,
        all: &mut ClassScheduler<u32>,
        random: &mut Random,
        waiter: u32,
        now_ms: u64,
    ) {
        match random.below(10) {
            0..5 => {
                let class = random.below(all.classes.len());
                match all.arrive(class, waiter, now_ms) {
                    CallArrival::Begins => self.begun.push(class),
                    CallArrival::Shed => self.counts[0] += 1,
                    CallArrival::Waits { ticket, displaced } => {
                        self.waiting.push((ticket, class, waiter));
                        if let Some((of, other)) = displaced {
                            self.counts[1] += 1;
                            assert_eq!(self.leaves(other), of);
                            assert!(all.classes[of].queue.len() >= all.classes[of].reserved);
                        }
                    }
                }
            }
            5..9 if !self.begun.is_empty() => {
                let place = random.below(self.begun.len());
                all.end_call(self.begun.swap_remove(place));
            }
            _ if !self.waiting.is_empty() => {
                let place = random.below(self.waiting.len());
                let (ticket, class, _) = self.waiting.swap_remove(place);
                assert!(all.give_up(class, ticket));
                self.counts[2] += 1;
            }
            _ => {}
        }
        while let Some(next) = all.next(now_ms) {
            match next {
                CallOutcome::Begins(waiter) => {
                    let class = self.leaves(waiter);
                    self.begun.push(class);
                    self.counts[3] += 1;
                }
                CallOutcome::TooLate(class, waiter) => {
                    assert_eq!(self.leaves(waiter), class);
                    self.counts[4] += 1;
                }
            }
        }
    }

    fn check(&self, all: &ClassScheduler<u32>) {
        assert!(all.in_progress <= all.bounds.calls_max);
        assert!(all.waiting <= all.bounds.waiting_max);
        assert_eq!(
            (all.in_progress, all.waiting),
            (self.begun.len(), self.waiting.len())
        );
        for (class, at) in all.classes.iter().enumerate() {
            let begun = self.begun.iter().filter(|of| **of == class).count();
            let waiting = self
                .waiting
                .iter()
                .filter(|(_, of, _)| *of == class)
                .count();
            assert_eq!(all.counts(class), (begun, waiting));
            assert!(begun <= at.rules.calls_max && waiting <= at.rules.waiting_max);
            assert!(
                waiting == 0 || !all.has_room(class),
                "nobody waits for nothing"
            );
        }
    }
}

#[test]
fn random_histories_keep_the_limits_and_leave_no_startable_call_waiting() {
    let mut sums = [0; 5];
    for seed in 1..=300 {
        let mut random = Random(seed * 0x9e37_79b9);
        let mut rules = || ClassRules {
            weight: 1 + random.below(9) as u32,
            calls_max: 1 + random.below(4),
            waiting_max: random.below(8),
            deadline_ms: random.below(100) as u64,
        };
        let rules: Vec<ClassRules> = (0..4).map(|_| rules()).collect();
        let (calls_max, waiting_max) = (1 + random.below(8), random.below(12));
        let mut all = scheduler(calls_max, waiting_max, &rules);
        let mut history = History::default();
        for step in 0..1000 {
            history.step(&mut all, &mut random, step, u64::from(step));
            history.check(&all);
        }
        (0..5).for_each(|at| sums[at] += history.counts[at]);
    }
    // Every kind of operation was performed.
    assert!(sums.iter().all(|sum| *sum > 100), "{sums:?}");
}

/// While two classes have waiting calls, the number of calls of each differs from its share by less than one call of
/// each (the bound of start-time fair queueing).
#[test]
fn calls_stay_within_the_fair_queueing_bound() {
    for seed in 1..=100 {
        let mut random = Random(seed * 0x9e37_79b9);
        let weights: Vec<u32> = (0..4).map(|_| 1 + random.below(50) as u32).collect();
        let rules: Vec<ClassRules> = weights
            .iter()
            .map(|weight| rules_with_weight(*weight))
            .collect();
        let calls_max = 1 + random.below(6);
        let mut all = scheduler(calls_max, 1000, &rules);
        let mut in_progress = Vec::new();
        for _ in 0..calls_max {
            assert_eq!(all.arrive(0, 0, 0), CallArrival::Begins);
            in_progress.push(0);
        }
        for class in 0..4 {
            all.arrive(class, class as u32, 0);
        }
        let mut counts = [0_u64; 4];
        for _ in 0..2000 {
            let place = random.below(in_progress.len());
            all.end_call(in_progress.swap_remove(place));
            let Some(CallOutcome::Begins(class)) = all.next(0) else {
                panic!("somebody waits, and there is room");
            };
            let class = class as usize;
            all.arrive(class, class as u32, 0);
            in_progress.push(class);
            counts[class] += 1;
            // Class 0 did not always have waiting calls, so the bound does not apply to it.
            for (a, b) in [(1, 2), (1, 3), (2, 3)] {
                let of = |class: usize| counts[class] as f64 / f64::from(weights[class]);
                let bound = 1.0 / f64::from(weights[a]) + 1.0 / f64::from(weights[b]);
                let apart = (of(a) - of(b)).abs();
                assert!(apart <= bound + 1e-3, "seed {seed}: {apart} > {bound}");
            }
        }
    }
}
