//! Tracks the messages that a process has not answered, by worker. After the death of a process, they determine which
//! calls may be repeated in another process. This module is independent of processes.
//!
//! The thread of a worker processes messages in order, and answers each one before it takes the next. So of the
//! unanswered messages of a worker, only the first can have been begun.

use std::collections::{HashMap, VecDeque};

/// Calls with an unanswered message, by worker, in the order of the messages.
#[derive(Debug, Default)]
pub struct UnansweredCalls {
    by_worker: HashMap<usize, VecDeque<u64>>,
}

impl UnansweredCalls {
    /// Records a message sent to a worker.
    pub fn record_sent(&mut self, worker: usize, call: u64) {
        self.by_worker.entry(worker).or_default().push_back(call);
    }

    /// Records the answer to the oldest message of a call.
    pub fn record_answer(&mut self, call: u64) {
        let mut workers = self.by_worker.values_mut();
        // Answers arrive in order for each worker, so the answered call is the first of its worker.
        if let Some(calls) = workers.find(|calls| calls.front() == Some(&call)) {
            calls.pop_front();
        }
    }

    /// The calls with messages that had certainly not been begun when the process died.
    pub fn unstarted_calls(&self) -> impl Iterator<Item = u64> + '_ {
        let workers = self.by_worker.values();
        // The first message of each worker may have been begun.
        workers.flat_map(|calls| calls.iter().skip(1).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Workers take and answer messages in any interleaving. The calls of all messages that no worker has taken are
    /// found, except the first of each worker.
    #[test]
    fn unstarted_calls_are_those_behind_first_unanswered() {
        for seed in 0..200_u64 {
            let mut state = seed;
            let mut random_below = |below: u64| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 33) % below
            };
            let mut unanswered = UnansweredCalls::default();
            let mut queues = [(); 3].map(|()| VecDeque::new());
            let mut begun = BTreeSet::new();
            for call in 0..100 {
                let worker = random_below(3) as usize;
                unanswered.record_sent(worker, call);
                queues[worker].push_back(call);
                let worker = random_below(3) as usize;
                match random_below(3) {
                    // The worker takes a message, and answers it later.
                    0 => _ = queues[worker].front().map(|call| begun.insert(*call)),
                    1 if queues[worker]
                        .front()
                        .is_some_and(|call| begun.contains(call)) =>
                    {
                        let call = queues[worker].pop_front().expect("there is one");
                        unanswered.record_answer(call);
                    }
                    _ => {}
                }
            }
            let unstarted: BTreeSet<_> = unanswered.unstarted_calls().collect();
            assert!(begun.is_disjoint(&unstarted), "seed {seed}");
            let queued: usize = queues
                .iter()
                .map(|queue| queue.len().saturating_sub(1))
                .sum();
            assert_eq!(unstarted.len(), queued, "seed {seed}");
        }
    }
}
