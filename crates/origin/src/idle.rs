//! Which connections to a server are kept, for which worker, and when they are closed for others.
//! Pure: the connections may be anything, and time is told: monotonic ms of any worker.
//!
//! A connection that is kept may hold one of the server's processes, whether there is something to do
//! or not (php-fpm, prefork servers), and one from which nothing was heard may be one that no process
//! has accepted. So none is kept while such a one has waited for longer than a whole request took and for
//! [`UNHEARD_MS`], or for [`CROWDED_MS`]. What is younger is no reason, nor what is known to be worked at, since its request
//! was read: closing for its sake would beget another new one, and so on.

use lowroad_engine::outgoing::Reception;

/// How long a server may be silent on a new connection before it is thought to be crowded.
pub const CROWDED_MS: u64 = 20;
/// How long it may be silent though others take less: quick requests take unequal times, too.
const UNHEARD_MS: u64 = 5;

/// Connections without a request.
pub struct Idle<C> {
    /// Of each worker; the one used last is at the end.
    of: Vec<Vec<Kept<C>>>,
    /// How many uses there were.
    uses: u64,
    /// Uses of new connections from which nothing was heard yet.
    unheard: Vec<Unheard>,
    /// One of them is so since too long.
    crowded: bool,
}

struct Unheard {
    number: u64,
    since_ms: u64,
    /// Unknown until it is connected, and with TCP.
    reception: Option<Reception>,
}

impl Unheard {
    /// Whether it has been silent for so long, and may be one that no process has accepted.
    fn may_wait(&self, now_ms: u64, silent_ms: u64) -> bool {
        let is_read = || self.reception.as_ref().is_some_and(|is_read| is_read());
        now_ms.saturating_sub(self.since_ms) >= silent_ms && !is_read()
    }
}

struct Kept<C> {
    connection: C,
    opened_ms: u64,
    since_ms: u64,
}

/// A use of a connection, from its begin to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Uses are numbered as they begin.
    pub number: u64,
    /// When its connection was opened.
    pub opened_ms: u64,
}

impl<C> Idle<C> {
    /// None, for so many workers.
    pub fn new(workers: usize) -> Idle<C> {
        Idle {
            of: (0..workers).map(|_| Vec::new()).collect(),
            uses: 0,
            unheard: Vec::new(),
            crowded: false,
        }
    }

    /// Takes one to use it: the worker's own, or another's that has one to spare.
    pub fn take(&mut self, worker: usize) -> Option<(C, Use)> {
        let own = self.of[worker].pop();
        let any = || self.of.iter_mut().find_map(Vec::pop);
        let kept = own.or_else(any)?;
        Some((kept.connection, self.next_use(kept.opened_ms)))
    }

    /// A new one is used from now on.
    pub fn begin(&mut self, now_ms: u64) -> Use {
        let begun = self.next_use(now_ms);
        self.unheard.push(Unheard {
            number: begun.number,
            since_ms: now_ms,
            reception: None,
        });
        begun
    }

    /// A new one is connected, and this says whether its request was read.
    pub fn connected(&mut self, number: u64, reception: Option<Reception>) {
        let mut unheard = self.unheard.iter_mut();
        if let Some(unheard) = unheard.find(|unheard| unheard.number == number) {
            unheard.reception = reception;
        }
    }

    fn next_use(&mut self, opened_ms: u64) -> Use {
        self.uses += 1;
        let number = self.uses;
        Use { number, opened_ms }
    }

    /// A new one was heard from, or is no more.
    pub fn heard(&mut self, number: u64) {
        self.unheard.retain(|unheard| unheard.number != number);
        self.crowded &= !self.unheard.is_empty();
    }

    /// Keeps one whose use is over.
    ///
    /// # Errors
    /// It may not be kept.
    pub fn put(&mut self, worker: usize, of: Use, connection: C, now_ms: u64) -> Result<(), C> {
        let waits_longer =
            |unheard: &Unheard| unheard.number < of.number && unheard.may_wait(now_ms, UNHEARD_MS);
        if self.crowded || self.unheard.iter().any(waits_longer) {
            return Err(connection);
        }
        self.of[worker].push(Kept {
            connection,
            opened_ms: of.opened_ms,
            since_ms: now_ms,
        });
        Ok(())
    }

    /// What is to be closed because the server is crowded. `None` when all were heard.
    pub fn make_room(&mut self, now_ms: u64) -> Option<Vec<C>> {
        if self.unheard.is_empty() {
            return None;
        }
        let waits = |unheard: &Unheard| unheard.may_wait(now_ms, CROWDED_MS);
        self.crowded = self.unheard.iter().any(waits);
        match self.crowded {
            true => Some(self.clear()),
            false => Some(Vec::new()),
        }
    }

    /// What is to be closed because nobody used it for so long. `None` when there is nothing left, nor
    /// was.
    pub fn take_old(&mut self, now_ms: u64, idle_ms_max: u64) -> Option<Vec<C>> {
        if self.len() == 0 {
            return None;
        }
        let mut old = Vec::new();
        for idle in &mut self.of {
            // They were put in order.
            let is_old = |kept: &&Kept<C>| now_ms.saturating_sub(kept.since_ms) >= idle_ms_max;
            let count = idle.iter().take_while(is_old).count();
            old.extend(idle.drain(..count).map(|kept| kept.connection));
        }
        Some(old)
    }

    /// How many are idle.
    pub fn len(&self) -> usize {
        self.of.iter().map(Vec::len).sum()
    }

    /// All that are idle.
    pub fn clear(&mut self) -> Vec<C> {
        let idle = self.of.iter_mut().flat_map(|idle| idle.drain(..));
        idle.map(|kept| kept.connection).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE_MS_MAX: u64 = 2_000;

    /// A new one is heard from and kept, and used for another request.
    fn used_again(idle: &mut Idle<&'static str>, of: Use, now_ms: u64) -> (&'static str, Use) {
        idle.heard(of.number);
        assert_eq!(idle.put(0, of, "a", now_ms), Ok(()));
        idle.take(0).expect("it was kept")
    }

    #[test]
    fn a_worker_takes_its_own_and_else_anothers() {
        let (mut idle, now) = (Idle::new(2), 1000);
        for (worker, connection) in [(0, "a"), (1, "b"), (0, "c")] {
            let begun = idle.begin(now);
            idle.heard(begun.number);
            assert_eq!(idle.put(worker, begun, connection, now), Ok(()));
        }
        let next = || idle.take(0).map(|(connection, _)| connection);
        let order: Vec<_> = std::iter::from_fn(next).collect();
        assert_eq!(order, ["c", "a", "b"]);
    }

    #[test]
    fn a_use_knows_how_old_its_connection_is() {
        let mut idle = Idle::new(1);
        let begun = idle.begin(1000);
        idle.heard(begun.number);
        assert_eq!(idle.put(0, begun, "a", 3000), Ok(()));
        let (_, again) = idle.take(0).expect("it was kept");
        assert_eq!(again.opened_ms, 1000);
        assert!(again.number > begun.number);
    }

    /// Two processes, always two requests: new connections must not beget new ones.
    #[test]
    fn what_is_just_begun_elsewhere_closes_nothing() {
        let (mut idle, now) = (Idle::new(1), 1000);
        let a = idle.begin(now);
        let b = idle.begin(now);
        idle.heard(a.number);
        assert_eq!(idle.put(0, a, "a", now), Ok(()));
        assert_eq!(idle.take(0).map(|(connection, _)| connection), Some("a"));
        idle.heard(b.number);
        assert_eq!(idle.put(0, b, "b", now), Ok(()));
    }

    /// One process: a connection that it did not accept gets its turn after a request or two.
    #[test]
    fn what_has_waited_for_a_whole_request_is_made_room_for() {
        let (mut idle, now) = (Idle::new(1), 1000);
        let a = idle.begin(now);
        let _waits = idle.begin(now);
        let (connection, a) = used_again(&mut idle, a, now);
        assert_eq!(idle.put(0, a, connection, now + UNHEARD_MS), Err("a"));
    }

    /// Enough processes, and requests of one or two milliseconds: no new connection costs another its place.
    #[test]
    fn what_takes_longer_by_chance_closes_nothing() {
        let (mut idle, now) = (Idle::new(1), 1000);
        let a = idle.begin(now);
        let _takes_longer = idle.begin(now);
        let (connection, a) = used_again(&mut idle, a, now);
        assert_eq!(idle.put(0, a, connection, now + 1), Ok(()));
    }

    #[test]
    fn what_was_read_is_worked_at_however_long_it_takes() {
        let (mut idle, later) = (Idle::new(1), 1000 + CROWDED_MS);
        let (a, slow) = (idle.begin(1000), idle.begin(1000));
        idle.connected(slow.number, Some(Box::new(|| true)));
        idle.heard(a.number);
        assert_eq!(idle.make_room(later), Some(vec![]));
        assert_eq!(idle.put(0, a, "a", later), Ok(()));
        let (connection, a) = idle.take(0).expect("it was kept");
        assert_eq!(idle.put(0, a, connection, later), Ok(()));
        idle.connected(slow.number, Some(Box::new(|| false)));
        assert_eq!(idle.make_room(later), Some(vec!["a"]));
    }

    #[test]
    fn what_has_waited_for_long_is_made_room_for() {
        let (mut idle, now) = (Idle::new(2), 1000);
        let (a, b) = (idle.begin(now), idle.begin(now));
        idle.heard(a.number);
        idle.heard(b.number);
        assert_eq!(idle.put(0, a, "a", now), Ok(()));
        assert_eq!(idle.make_room(now), None);
        let waits = idle.begin(now);
        assert_eq!(idle.make_room(now + CROWDED_MS / 2), Some(vec![]));
        assert_eq!(idle.make_room(now + CROWDED_MS), Some(vec!["a"]));
        assert_eq!(idle.put(1, b, "b", now), Err("b"));
        idle.heard(waits.number);
        assert_eq!(idle.put(1, b, "b", now), Ok(()));
    }

    #[test]
    fn what_nobody_uses_is_closed() {
        let (mut idle, now) = (Idle::new(2), 1000);
        let (a, b) = (idle.begin(now), idle.begin(now));
        idle.heard(a.number);
        idle.heard(b.number);
        assert_eq!(idle.take_old(now, IDLE_MS_MAX), None);
        assert_eq!(idle.put(0, a, "a", now), Ok(()));
        assert_eq!(idle.put(0, b, "b", now + IDLE_MS_MAX), Ok(()));
        let mut old = |after_ms| idle.take_old(now + after_ms, IDLE_MS_MAX);
        assert_eq!(old(IDLE_MS_MAX / 2), Some(vec![]));
        assert_eq!(old(IDLE_MS_MAX), Some(vec!["a"]));
        assert_eq!(old(IDLE_MS_MAX * 2), Some(vec!["b"]));
        assert_eq!(old(IDLE_MS_MAX * 2), None);
    }
}
