//! The order of calls, in some histories by hand and in many random ones.

extern crate std;

use std::vec::Vec;

use super::*;

const RULES: ClassRules = ClassRules {
    weight: 1,
    calls_max: usize::MAX,
    waiting_max: usize::MAX,
    deadline_ms: 1000,
};

fn weighing(weight: u32) -> ClassRules {
    ClassRules { weight, ..RULES }
}

fn scheduler(calls_max: usize, waiting_max: usize, rules: &[ClassRules]) -> ClassScheduler<u32> {
    let bounds = CallBounds {
        calls_max,
        waiting_max,
    };
    ClassScheduler::new(bounds, rules)
}

fn waits(ticket: u64) -> CallArrival<u32> {
    CallArrival::Waits {
        ticket,
        displaced: None,
    }
}

#[test]
fn calls_begin_while_there_is_room_and_then_in_their_order() {
    let mut all = scheduler(2, 9, &[RULES]);
    assert_eq!(all.arrive(0, 0, 0), CallArrival::Begins);
    assert_eq!(all.arrive(0, 1, 0), CallArrival::Begins);
    assert_eq!(all.arrive(0, 2, 0), waits(0));
    assert_eq!(all.arrive(0, 3, 0), waits(1));
    assert_eq!((all.next(0), all.counts(0)), (None, (2, 2)));
    all.end_call(0);
    assert_eq!(all.next(0), Some(CallOutcome::Begins(2)));
    assert_eq!(all.next(0), None);
    all.end_call(0);
    all.end_call(0);
    assert_eq!(all.next(0), Some(CallOutcome::Begins(3)));
    assert_eq!((all.next(0), all.counts(0)), (None, (1, 0)));
}

/// Runs calls one after the other, with a call of each class always waiting; counts the calls of each class.
fn shares(all: &mut ClassScheduler<u32>, under_way: &mut usize, calls: usize) -> [usize; 3] {
    let mut counts = [0; 3];
    for _ in 0..calls {
        all.end_call(*under_way);
        let Some(CallOutcome::Begins(class)) = all.next(0) else {
            panic!("somebody waits, and there is room");
        };
        *under_way = class as usize;
        counts[*under_way] += 1;
        assert!(matches!(
            all.arrive(*under_way, class, 0),
            CallArrival::Waits { .. }
        ));
    }
    counts
}

#[test]
fn shares_are_as_the_weights() {
    let mut all = scheduler(1, 1000, &[weighing(6), weighing(3), weighing(1)]);
    assert_eq!(all.arrive(0, 9, 0), CallArrival::Begins);
    for class in 0..3 {
        all.arrive(class, class as u32, 0);
    }
    let counts = shares(&mut all, &mut 0, 1000);
    for (count, due) in counts.iter().zip([600, 300, 100]) {
        assert!(count.abs_diff(due) <= 1, "{counts:?}");
    }
}

#[test]
fn who_was_away_has_saved_nothing_up() {
    // Otherwise a class could block all others after a long idle time.
    let mut all = scheduler(1, 1000, &[weighing(1), weighing(1)]);
    let mut under_way = 0;
    all.arrive(0, 0, 0);
    all.arrive(0, 0, 0);
    assert_eq!(shares(&mut all, &mut under_way, 500), [500, 0, 0]);
    all.arrive(1, 1, 0);
    let counts = shares(&mut all, &mut under_way, 100);
    assert!(counts[0].abs_diff(counts[1]) <= 1, "{counts:?}");
}

#[test]
fn a_class_at_its_own_bound_lets_others_pass() {
    // Its weight of 100 would make it the next class, but it has no free slot.
    let one = ClassRules {
        calls_max: 1,
        ..weighing(100)
    };
    let mut all = scheduler(3, 9, &[one, RULES]);
    assert_eq!(all.arrive(0, 0, 0), CallArrival::Begins);
    assert_eq!(all.arrive(0, 1, 0), waits(0));
    assert_eq!(all.arrive(1, 2, 0), CallArrival::Begins);
    assert_eq!(all.arrive(1, 3, 0), CallArrival::Begins);
    assert_eq!(all.arrive(1, 4, 0), waits(1));
    all.end_call(1);
    assert_eq!(all.next(0), Some(CallOutcome::Begins(4)));
    assert_eq!(all.next(0), None);
    all.end_call(0);
    assert_eq!(all.next(0), Some(CallOutcome::Begins(1)));
    assert_eq!((all.counts(0), all.counts(1)), ((1, 0), (2, 0)));
}

#[test]
fn the_lowest_class_is_shed_first_and_the_youngest_of_it() {
    let mut all = scheduler(1, 4, &[weighing(3), weighing(1)]);
    assert_eq!(all.arrive(1, 10, 0), CallArrival::Begins);
    for (ticket, waiter) in (11..15).enumerate() {
        assert_eq!(all.arrive(1, waiter, 0), waits(ticket as u64));
    }
    assert_eq!(all.arrive(1, 15, 0), CallArrival::Shed);
    for (ticket, displaced) in [(4, 14), (5, 13), (6, 12)] {
        let displaced = Some((1, displaced));
        assert_eq!(
            all.arrive(0, 1, 0),
            CallArrival::Waits { ticket, displaced }
        );
    }
    // One of four places is reserved for the lower class.
    assert_eq!(all.arrive(0, 2, 0), CallArrival::Shed);
    assert_eq!((all.counts(0), all.counts(1)), ((0, 3), (1, 1)));
}

#[test]
fn a_lower_class_gets_its_places_back() {
    // The higher class had filled the places that are reserved for the lower one.
    let mut all = scheduler(1, 4, &[weighing(3), weighing(1)]);
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
fn a_line_has_an_end_of_its_own() {
    let short = ClassRules {
        waiting_max: 1,
        ..RULES
    };
    let mut all = scheduler(1, 9, &[short]);
    assert_eq!(all.arrive(0, 0, 0), CallArrival::Begins);
    assert_eq!(all.arrive(0, 1, 0), waits(0));
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
fn nobody_waits_longer_than_the_class_may() {
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
fn who_gives_up_was_never_there() {
    let mut all = scheduler(1, 2, &[RULES]);
    all.arrive(0, 0, 0);
    all.arrive(0, 1, 0);
    all.arrive(0, 2, 0);
    assert!(all.give_up(0, 0) && !all.give_up(0, 0));
    assert_eq!(all.arrive(0, 3, 0), waits(2));
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

    /// A random step.
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
fn bounds_are_kept_and_nobody_waits_for_nothing() {
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
    // Every kind of step was taken.
    assert!(sums.iter().all(|sum| *sum > 100), "{sums:?}");
}

/// While two classes have waiting calls, the number of calls of each differs from its share by less than one call of
/// each (the bound of start-time fair queueing).
#[test]
fn shares_are_held_at_any_moment() {
    for seed in 1..=100 {
        let mut random = Random(seed * 0x9e37_79b9);
        let weights: Vec<u32> = (0..4).map(|_| 1 + random.below(50) as u32).collect();
        let rules: Vec<ClassRules> = weights.iter().map(|weight| weighing(*weight)).collect();
        let calls_max = 1 + random.below(6);
        let mut all = scheduler(calls_max, 1000, &rules);
        let mut under_way = Vec::new();
        for _ in 0..calls_max {
            assert_eq!(all.arrive(0, 0, 0), CallArrival::Begins);
            under_way.push(0);
        }
        for class in 0..4 {
            all.arrive(class, class as u32, 0);
        }
        let mut counts = [0_u64; 4];
        for _ in 0..2000 {
            let place = random.below(under_way.len());
            all.end_call(under_way.swap_remove(place));
            let Some(CallOutcome::Begins(class)) = all.next(0) else {
                panic!("somebody waits, and there is room");
            };
            let class = class as usize;
            all.arrive(class, class as u32, 0);
            under_way.push(class);
            counts[class] += 1;
            // Class 0 did not always wait, so it has no such bound.
            for (a, b) in [(1, 2), (1, 3), (2, 3)] {
                let of = |class: usize| counts[class] as f64 / f64::from(weights[class]);
                let bound = 1.0 / f64::from(weights[a]) + 1.0 / f64::from(weights[b]);
                let apart = (of(a) - of(b)).abs();
                assert!(apart <= bound + 1e-3, "seed {seed}: {apart} > {bound}");
            }
        }
    }
}
