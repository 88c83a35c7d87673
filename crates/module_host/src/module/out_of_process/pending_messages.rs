//! Messages that a process has not answered, by worker. They decide which calls may be repeated by another process
//! after its death. Independent of processes.
//!
//! A worker's thread takes messages in order, and answers each before it takes the next. So only the first unanswered
//! message can have been begun.

use std::collections::{HashMap, VecDeque};

/// Calls with an unanswered message, by worker, in the order in which the messages were sent.
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
        // Replies arrive in order per worker, so the answered call is the first of its worker.
        if let Some(calls) = workers.find(|calls| calls.front() == Some(&call)) {
            calls.pop_front();
        }
    }

    /// Calls with messages that no worker had taken when the process died.
    pub fn unstarted_calls(&self) -> impl Iterator<Item = u64> + '_ {
        let workers = self.by_worker.values();
        // The first one of each worker may have been begun before the death.
        workers.flat_map(|calls| calls.iter().skip(1).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Workers take and answer messages in any interleaving. All messages that no worker has taken are found, except
    /// the first one of each worker.
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
                unanswered.record_sent(worker, call);
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
                        unanswered.record_answer(call);
                    }
                    _ => {}
                }
            }
            let not_begun: BTreeSet<_> = unanswered.unstarted_calls().collect();
            assert!(begun.is_disjoint(&not_begun), "seed {seed}");
            let queued: usize = queues
                .iter()
                .map(|queue| queue.len().saturating_sub(1))
                .sum();
            assert_eq!(not_begun.len(), queued, "seed {seed}");
        }
    }
}
