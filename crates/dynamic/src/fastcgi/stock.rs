//! Which connections to a server are kept, for which worker, and when they are closed for others.
//! Pure: the connections may be anything, and time is told: monotonic ms of any worker.
//!
//! A connection that is kept holds one of php-fpm's processes, whether there is something to do or
//! not, and one that nothing was heard from may be one that no process has accepted. So none is
//! kept while such a one has waited for longer than a whole request took, or for 20 ms. What is
//! younger is no reason: it may be worked at, and closing for its sake would beget another new one.

/// How long a connection is kept without use.
pub const IDLE_MAX_MS: u64 = 2_000;
/// How long a server may be silent on a new connection before it is thought to be crowded.
pub const CROWDED_MS: u64 = 20;

/// Connections without a request.
pub struct Stock<L> {
    /// Of each worker; the one used last is at the end.
    idle: Vec<Vec<(L, u64)>>,
    /// How many uses there were.
    uses: u64,
    /// Uses of new connections from which nothing was heard yet, and since when.
    unheard: Vec<(u64, u64)>,
    /// One of them is so since too long.
    crowded: bool,
}

impl<L> Stock<L> {
    /// Nothing, for so many workers.
    pub fn new(workers: usize) -> Stock<L> {
        Stock {
            idle: (0..workers).map(|_| Vec::new()).collect(),
            uses: 0,
            unheard: Vec::new(),
            crowded: false,
        }
    }

    /// Takes one to use it, and gives its use a number: the worker's own, or another's that has one
    /// to spare.
    pub fn take(&mut self, worker: usize) -> Option<(L, u64)> {
        let own = self.idle[worker].pop();
        let any = || self.idle.iter_mut().find_map(Vec::pop);
        let (link, _) = own.or_else(any)?;
        self.uses += 1;
        Some((link, self.uses))
    }

    /// A new one is used from now on; gives the number of its use.
    pub fn begin(&mut self, now_ms: u64) -> u64 {
        self.uses += 1;
        self.unheard.push((self.uses, now_ms));
        self.uses
    }

    /// A new one was heard from, or is no more.
    pub fn heard(&mut self, number: u64) {
        self.unheard.retain(|(unheard, _)| *unheard != number);
        self.crowded &= !self.unheard.is_empty();
    }

    /// Keeps one whose use is over.
    ///
    /// # Errors
    /// It may not be kept.
    pub fn put(&mut self, worker: usize, number: u64, link: L, now_ms: u64) -> Result<(), L> {
        let waited_longer = self.unheard.iter().any(|(unheard, _)| *unheard < number);
        if waited_longer || self.crowded {
            return Err(link);
        }
        self.idle[worker].push((link, now_ms));
        Ok(())
    }

    /// What is to be closed because the server is crowded. `None` when all were heard.
    pub fn make_room(&mut self, now_ms: u64) -> Option<Vec<L>> {
        if self.unheard.is_empty() {
            return None;
        }
        let is_old = |since_ms: &u64| now_ms.saturating_sub(*since_ms) >= CROWDED_MS;
        self.crowded = self.unheard.iter().any(|(_, since_ms)| is_old(since_ms));
        match self.crowded {
            true => Some(self.clear()),
            false => Some(Vec::new()),
        }
    }

    /// What is to be closed because nobody used it. `None` when there is nothing left, nor was.
    pub fn take_old(&mut self, now_ms: u64) -> Option<Vec<L>> {
        if self.idle.iter().all(Vec::is_empty) {
            return None;
        }
        let mut old = Vec::new();
        for idle in &mut self.idle {
            // They were put in order.
            let is_old = |since_ms: u64| now_ms.saturating_sub(since_ms) >= IDLE_MAX_MS;
            let count = idle
                .iter()
                .take_while(|(_, since_ms)| is_old(*since_ms))
                .count();
            old.extend(idle.drain(..count).map(|(link, _)| link));
        }
        Some(old)
    }

    /// How many are idle.
    pub fn len(&self) -> usize {
        self.idle.iter().map(Vec::len).sum()
    }

    /// All that are idle.
    pub fn clear(&mut self) -> Vec<L> {
        let idle = self.idle.iter_mut().flat_map(|idle| idle.drain(..));
        idle.map(|(link, _)| link).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_takes_its_own_and_else_anothers() {
        let (mut stock, now) = (Stock::new(2), 1000);
        for (worker, link) in [(0, "a"), (1, "b"), (0, "c")] {
            let number = stock.begin(now);
            stock.heard(number);
            assert_eq!(stock.put(worker, number, link, now), Ok(()));
        }
        let order: Vec<_> = std::iter::from_fn(|| stock.take(0).map(|(link, _)| link)).collect();
        assert_eq!(order, ["c", "a", "b"]);
    }

    /// Two processes, always two requests: new connections must not beget new ones.
    #[test]
    fn what_is_just_begun_elsewhere_closes_nothing() {
        let (mut stock, now) = (Stock::new(1), 1000);
        let a = stock.begin(now);
        let b = stock.begin(now);
        stock.heard(a);
        assert_eq!(stock.put(0, a, "a", now), Ok(()));
        assert_eq!(stock.take(0).map(|(link, _)| link), Some("a"));
        stock.heard(b);
        assert_eq!(stock.put(0, b, "b", now), Ok(()));
    }

    /// One process: a connection that it did not accept gets its turn after a request or two.
    #[test]
    fn what_has_waited_for_a_whole_request_is_made_room_for() {
        let (mut stock, now) = (Stock::new(1), 1000);
        let a = stock.begin(now);
        let _waits = stock.begin(now);
        stock.heard(a);
        assert_eq!(stock.put(0, a, "a", now), Ok(()));
        let (link, a) = stock.take(0).expect("it was kept");
        assert_eq!(stock.put(0, a, link, now), Err("a"));
    }

    #[test]
    fn what_has_waited_for_long_is_made_room_for() {
        let (mut stock, now) = (Stock::new(2), 1000);
        let (a, b) = (stock.begin(now), stock.begin(now));
        stock.heard(a);
        stock.heard(b);
        assert_eq!(stock.put(0, a, "a", now), Ok(()));
        assert_eq!(stock.make_room(now), None);
        let waits = stock.begin(now);
        assert_eq!(stock.make_room(now + CROWDED_MS / 2), Some(vec![]));
        assert_eq!(stock.make_room(now + CROWDED_MS), Some(vec!["a"]));
        assert_eq!(stock.put(1, b, "b", now), Err("b"));
        stock.heard(waits);
        assert_eq!(stock.put(1, b, "b", now), Ok(()));
    }

    #[test]
    fn what_nobody_uses_is_closed() {
        let (mut stock, now) = (Stock::new(2), 1000);
        let (a, b) = (stock.begin(now), stock.begin(now));
        stock.heard(a);
        stock.heard(b);
        assert_eq!(stock.take_old(now), None);
        assert_eq!(stock.put(0, a, "a", now), Ok(()));
        assert_eq!(stock.put(0, b, "b", now + IDLE_MAX_MS), Ok(()));
        assert_eq!(stock.take_old(now + IDLE_MAX_MS / 2), Some(vec![]));
        assert_eq!(stock.take_old(now + IDLE_MAX_MS), Some(vec!["a"]));
        assert_eq!(stock.take_old(now + IDLE_MAX_MS * 2), Some(vec!["b"]));
        assert_eq!(stock.take_old(now + IDLE_MAX_MS * 2), None);
    }
}
