//! Who waits for leave: a line for each worker. It knows nothing of how much there is.
//!
//! Whoever waits on the worker where leave is given back gets it, with what has just become free
//! there; another worker's only if it has waited markedly longer. Strict order would move connections
//! from worker to worker, and rouse one for each request.

use std::collections::VecDeque;
use std::task::Waker;

/// How much longer than the worker's own another's must have waited, in ms of the workers' clocks,
/// which may tick every 4 ms only.
pub const MARKEDLY_MS: u64 = 1;

/// The lines.
#[derive(Debug)]
pub struct Lines {
    /// For each worker in the order of coming.
    of: Vec<VecDeque<Waiter>>,
    /// How many there are in all.
    len: usize,
    /// Who has leave and does not know it yet.
    called: Vec<u64>,
    next: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    since_ms: u64,
    waker: Waker,
}

impl Lines {
    /// Nobody, on so many workers.
    pub fn new(workers: usize) -> Lines {
        Lines {
            of: (0..workers).map(|_| VecDeque::new()).collect(),
            len: 0,
            called: Vec::new(),
            next: 0,
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// One more; gives its number.
    pub fn push(&mut self, worker: usize, since_ms: u64, waker: Waker) -> u64 {
        let number = self.next;
        self.next += 1;
        self.len += 1;
        self.of[worker].push_back(Waiter {
            number,
            since_ms,
            waker,
        });
        number
    }

    /// Gives leave to who is next when it was given back on this worker.
    pub fn call(&mut self, worker: usize) -> Option<Waker> {
        let first = |line: &VecDeque<Waiter>| line.front().map(|waiter| waiter.since_ms);
        let fronts = self.of.iter().map(first).enumerate();
        let oldest = fronts.filter_map(|(worker, since)| Some((since?, worker)));
        let (since, other) = oldest.min()?;
        let own = first(&self.of[worker]);
        let chosen = match own {
            Some(own) if own <= since + MARKEDLY_MS => worker,
            _ => other,
        };
        let waiter = self.of[chosen].pop_front()?;
        self.len -= 1;
        self.called.push(waiter.number);
        Some(waiter.waker)
    }

    /// Whether it has leave by now; told once.
    pub fn was_called(&mut self, number: u64) -> bool {
        let called = self.called.iter().position(|called| *called == number);
        called.map(|at| self.called.swap_remove(at)).is_some()
    }

    /// It is woken with this from now on.
    pub fn wait_on(&mut self, worker: usize, number: u64, waker: &Waker) {
        let mut line = self.of[worker].iter_mut();
        if let Some(waiter) = line.find(|waiter| waiter.number == number) {
            waiter.waker.clone_from(waker);
        }
    }

    /// It waits no more.
    pub fn remove(&mut self, worker: usize, number: u64) {
        let line = &mut self.of[worker];
        let before = line.len();
        line.retain(|waiter| waiter.number != number);
        self.len -= before - line.len();
    }
}
