//! Messages that a process has not answered, by worker. Independent of processes: it decides which calls may be repeated
//! elsewhere after its death.
//!
//! A worker takes its messages in their order, and answers each before it takes the next. So of those without an answer
//! only the first may have begun.

use std::collections::{HashMap, VecDeque};

/// Calls with an unanswered message, by worker, in the order in which the messages were sent.
#[derive(Debug, Default)]
pub struct UnansweredCalls {
    by_worker: HashMap<usize, VecDeque<u64>>,
}

impl UnansweredCalls {
    /// A message was sent to a worker.
    pub fn sent(&mut self, worker: usize, call: u64) {
        self.by_worker.entry(worker).or_default().push_back(call);
    }

    /// The oldest message of a call was answered.
    pub fn answered(&mut self, call: u64) {
        let mut workers = self.by_worker.values_mut();
        if let Some(calls) = workers.find(|calls| calls.front() == Some(&call)) {
            calls.pop_front();
        }
    }

    /// Calls whose messages no worker had taken when the process died.
    pub fn not_begun(&self) -> impl Iterator<Item = u64> + '_ {
        let workers = self.by_worker.values();
        workers.flat_map(|calls| calls.iter().skip(1).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Workers that take and answer messages in any order among each other: what none has taken is found, except for the
    /// first message of a worker.
    #[test]
    fn only_what_no_worker_has_taken_has_not_begun() {
        for seed in 0..200_u64 {
            let mut drawn = seed;
            let mut dice = |below: u64| {
                drawn = drawn
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (drawn >> 33) % below
            };
            let mut unanswered = UnansweredCalls::default();
            let mut queues = [(); 3].map(|()| VecDeque::new());
            let mut begun = BTreeSet::new();
            for call in 0..100 {
                let worker = dice(3) as usize;
                unanswered.sent(worker, call);
                queues[worker].push_back(call);
                let worker = dice(3) as usize;
                match dice(3) {
                    // The worker takes a message, and answers it later.
                    0 => _ = queues[worker].front().map(|call| begun.insert(*call)),
                    1 if queues[worker]
                        .front()
                        .is_some_and(|call| begun.contains(call)) =>
                    {
                        let call = queues[worker].pop_front().expect("there is one");
                        unanswered.answered(call);
                    }
                    _ => {}
                }
            }
            let not_begun: BTreeSet<_> = unanswered.not_begun().collect();
            assert!(begun.is_disjoint(&not_begun), "seed {seed}");
            let queued: usize = queues
                .iter()
                .map(|queue| queue.len().saturating_sub(1))
                .sum();
            assert_eq!(not_begun.len(), queued, "seed {seed}");
        }
    }
}
