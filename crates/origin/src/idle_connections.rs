//! The idle connections of a pool: which connections are kept, for which worker, and when they are closed to make room
//! for others.
//!
//! There is no I/O here: the connections may be of any type, and the caller passes the time (monotonic ms).
//!
//! Crowding: an idle connection may occupy a process of the server (php-fpm, prefork servers), while a new connection
//! still waits in the backlog for a process. A new connection on which the server has not sent anything is called
//! silent. If a silent connection has waited for [`CROWDED_MS`], the server counts as crowded: idle connections are
//! closed, and no connection is kept after its use. Otherwise a connection is not kept if a silent connection has
//! waited for longer than the whole use, and for at least [`SILENCE_MIN_MS`]. Silent connections are not counted if the
//! server has read their request, since a process handles them. Closing idle connections for younger silent ones would
//! only cause further new connections.

use lowroad_engine::upstream_socket::PeerReception;

/// If a new connection is silent for this long, the server is considered crowded.
pub const CROWDED_MS: u64 = 20;
/// The minimum silence that is considered at all, since the durations of fast requests vary.
const SILENCE_MIN_MS: u64 = 5;

/// The idle connections of all workers.
pub struct IdleConnections<C> {
    /// The idle connections of each worker, the most recently used one last.
    by_worker: Vec<Vec<IdleConnection<C>>>,
    /// The number of uses so far.
    uses: u64,
    /// The silent connections: new ones on which the server has not sent any bytes yet.
    silent: Vec<SilentConnection>,
    /// Whether a silent connection has waited for too long.
    is_crowded: bool,
}

struct SilentConnection {
    number: u64,
    since_ms: u64,
    /// Tells whether the server has read the request. `None` if this is unknown: before connecting, and for TCP.
    reception: Option<PeerReception>,
}

impl SilentConnection {
    /// Whether the connection has been silent for this long, and may still be in the backlog.
    fn may_be_waiting(&self, now_ms: u64, silent_ms: u64) -> bool {
        // Checked last, since this may be a system call.
        let is_read = || self.reception.as_ref().is_some_and(|is_read| is_read());
        now_ms.saturating_sub(self.since_ms) >= silent_ms && !is_read()
    }
}

struct IdleConnection<C> {
    connection: C,
    opened_ms: u64,
    since_ms: u64,
}

/// A use of a connection by one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionUse {
    /// The sequence number of the use, in the order in which uses began.
    pub number: u64,
    /// When the connection was opened.
    pub opened_ms: u64,
}

impl<C> IdleConnections<C> {
    /// No connections, for this number of workers.
    pub fn new(workers: usize) -> IdleConnections<C> {
        IdleConnections {
            by_worker: (0..workers).map(|_| Vec::new()).collect(),
            uses: 0,
            silent: Vec::new(),
            is_crowded: false,
        }
    }

    /// Takes an idle connection of this worker; if there is none, one of another worker.
    pub fn take(&mut self, worker: usize) -> Option<(C, ConnectionUse)> {
        // The most recently used connection is taken, since the server is the least likely to have closed it, and the
        // others can expire.
        let from_own_worker = self.by_worker[worker].pop();
        let from_any_worker = || self.by_worker.iter_mut().find_map(Vec::pop);
        let idle = from_own_worker.or_else(from_any_worker)?;
        Some((idle.connection, self.next_use(idle.opened_ms)))
    }

    /// Registers the use of a new connection.
    pub fn begin(&mut self, now_ms: u64) -> ConnectionUse {
        let new_use = self.next_use(now_ms);
        self.silent.push(SilentConnection {
            number: new_use.number,
            since_ms: now_ms,
            reception: None,
        });
        new_use
    }

    /// Records that a new connection is established; `reception` tells whether the server has read the request.
    pub fn set_reception(&mut self, number: u64, reception: Option<PeerReception>) {
        let mut entries = self.silent.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.number == number) {
            entry.reception = reception;
        }
    }

    fn next_use(&mut self, opened_ms: u64) -> ConnectionUse {
        self.uses += 1;
        let number = self.uses;
        ConnectionUse { number, opened_ms }
    }

    /// Records that a new connection has received bytes, or is closed: it is no longer silent.
    pub fn mark_proven(&mut self, number: u64) {
        self.silent.retain(|entry| entry.number != number);
        // Crowding ends with the last silent connection.
        self.is_crowded &= !self.silent.is_empty();
    }

    /// Adds a connection after its use.
    ///
    /// # Errors
    /// Returns the connection if it must not be kept.
    pub fn insert(
        &mut self,
        worker: usize,
        connection_use: ConnectionUse,
        connection: C,
        now_ms: u64,
    ) -> Result<(), C> {
        // A silent connection that began before this use has waited longer than the whole use took.
        let has_waited_longer = |entry: &SilentConnection| {
            entry.number < connection_use.number && entry.may_be_waiting(now_ms, SILENCE_MIN_MS)
        };
        // Closing this connection frees its process for the silent one.
        if self.is_crowded || self.silent.iter().any(has_waited_longer) {
            return Err(connection);
        }
        self.by_worker[worker].push(IdleConnection {
            connection,
            opened_ms: connection_use.opened_ms,
            since_ms: now_ms,
        });
        Ok(())
    }

    /// The idle connections to close because the server is crowded. `None` if no connection is silent any more.
    pub fn make_room(&mut self, now_ms: u64) -> Option<Vec<C>> {
        if self.silent.is_empty() {
            return None;
        }
        let is_waiting = |entry: &SilentConnection| entry.may_be_waiting(now_ms, CROWDED_MS);
        // Not reset until `mark_proven`, so that connections that are returned in the meantime are not kept.
        self.is_crowded = self.silent.iter().any(is_waiting);
        match self.is_crowded {
            true => Some(self.clear()),
            // There are silent connections, so the task must check again.
            false => Some(Vec::new()),
        }
    }

    /// The connections that were idle for too long. `None` if there were no idle connections at all.
    pub fn take_expired(&mut self, now_ms: u64, idle_ms_max: u64) -> Option<Vec<C>> {
        if self.len() == 0 {
            return None;
        }
        let mut expired = Vec::new();
        for idle in &mut self.by_worker {
            // Connections are pushed in the order of time, so the oldest ones are at the front.
            let is_expired =
                |entry: &&IdleConnection<C>| now_ms.saturating_sub(entry.since_ms) >= idle_ms_max;
            let count = idle.iter().take_while(is_expired).count();
            expired.extend(idle.drain(..count).map(|entry| entry.connection));
        }
        Some(expired)
    }

    /// The number of idle connections.
    pub fn len(&self) -> usize {
        self.by_worker.iter().map(Vec::len).sum()
    }

    /// Removes all idle connections.
    pub fn clear(&mut self) -> Vec<C> {
        let idle = self.by_worker.iter_mut().flat_map(|idle| idle.drain(..));
        idle.map(|entry| entry.connection).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE_MS_MAX: u64 = 2_000;

    /// A new connection receives bytes, is kept, and is reused.
    fn used_again(
        idle: &mut IdleConnections<&'static str>,
        of: ConnectionUse,
        now_ms: u64,
    ) -> (&'static str, ConnectionUse) {
        idle.mark_proven(of.number);
        assert_eq!(idle.insert(0, of, "a", now_ms), Ok(()));
        idle.take(0).expect("it was kept")
    }

    #[test]
    fn own_idle_connection_is_preferred_to_another_workers() {
        let (mut idle, now) = (IdleConnections::new(2), 1000);
        for (worker, connection) in [(0, "a"), (1, "b"), (0, "c")] {
            let begun = idle.begin(now);
            idle.mark_proven(begun.number);
            assert_eq!(idle.insert(worker, begun, connection, now), Ok(()));
        }
        let next = || idle.take(0).map(|(connection, _)| connection);
        let order: Vec<_> = std::iter::from_fn(next).collect();
        assert_eq!(order, ["c", "a", "b"]);
    }

    #[test]
    fn connection_use_has_the_opening_time() {
        let mut idle = IdleConnections::new(1);
        let begun = idle.begin(1000);
        idle.mark_proven(begun.number);
        assert_eq!(idle.insert(0, begun, "a", 3000), Ok(()));
        let (_, again) = idle.take(0).expect("it was kept");
        assert_eq!(again.opened_ms, 1000);
        assert!(again.number > begun.number);
    }

    /// Two server processes, and always two requests: new connections must not cause further new ones.
    #[test]
    fn young_silent_connection_closes_no_idle_one() {
        let (mut idle, now) = (IdleConnections::new(1), 1000);
        let a = idle.begin(now);
        let b = idle.begin(now);
        idle.mark_proven(a.number);
        assert_eq!(idle.insert(0, a, "a", now), Ok(()));
        assert_eq!(idle.take(0).map(|(connection, _)| connection), Some("a"));
        idle.mark_proven(b.number);
        assert_eq!(idle.insert(0, b, "b", now), Ok(()));
    }

    /// A single server process: a connection that it has not accepted is accepted after one or two requests.
    #[test]
    fn connection_silent_for_a_whole_request_prevents_keeping() {
        let (mut idle, now) = (IdleConnections::new(1), 1000);
        let a = idle.begin(now);
        let _waits = idle.begin(now);
        let (connection, a) = used_again(&mut idle, a, now);
        assert_eq!(
            idle.insert(0, a, connection, now + SILENCE_MIN_MS),
            Err("a")
        );
    }

    /// Enough server processes, and requests of one or two milliseconds: no connection is closed for a new one.
    #[test]
    fn short_silence_closes_no_idle_connection() {
        let (mut idle, now) = (IdleConnections::new(1), 1000);
        let a = idle.begin(now);
        let _takes_longer = idle.begin(now);
        let (connection, a) = used_again(&mut idle, a, now);
        assert_eq!(idle.insert(0, a, connection, now + 1), Ok(()));
    }

    #[test]
    fn connection_whose_request_was_read_is_not_silent() {
        let (mut idle, later) = (IdleConnections::new(1), 1000 + CROWDED_MS);
        let (a, slow) = (idle.begin(1000), idle.begin(1000));
        idle.set_reception(slow.number, Some(Box::new(|| true)));
        idle.mark_proven(a.number);
        assert_eq!(idle.make_room(later), Some(vec![]));
        assert_eq!(idle.insert(0, a, "a", later), Ok(()));
        let (connection, a) = idle.take(0).expect("it was kept");
        assert_eq!(idle.insert(0, a, connection, later), Ok(()));
        idle.set_reception(slow.number, Some(Box::new(|| false)));
        assert_eq!(idle.make_room(later), Some(vec!["a"]));
    }

    #[test]
    fn connection_silent_for_crowded_ms_closes_idle_ones() {
        let (mut idle, now) = (IdleConnections::new(2), 1000);
        let (a, b) = (idle.begin(now), idle.begin(now));
        idle.mark_proven(a.number);
        idle.mark_proven(b.number);
        assert_eq!(idle.insert(0, a, "a", now), Ok(()));
        assert_eq!(idle.make_room(now), None);
        let waits = idle.begin(now);
        assert_eq!(idle.make_room(now + CROWDED_MS / 2), Some(vec![]));
        assert_eq!(idle.make_room(now + CROWDED_MS), Some(vec!["a"]));
        assert_eq!(idle.insert(1, b, "b", now), Err("b"));
        idle.mark_proven(waits.number);
        assert_eq!(idle.insert(1, b, "b", now), Ok(()));
    }

    #[test]
    fn expired_idle_connections_are_closed() {
        let (mut idle, now) = (IdleConnections::new(2), 1000);
        let (a, b) = (idle.begin(now), idle.begin(now));
        idle.mark_proven(a.number);
        idle.mark_proven(b.number);
        assert_eq!(idle.take_expired(now, IDLE_MS_MAX), None);
        assert_eq!(idle.insert(0, a, "a", now), Ok(()));
        assert_eq!(idle.insert(0, b, "b", now + IDLE_MS_MAX), Ok(()));
        let mut old = |after_ms| idle.take_expired(now + after_ms, IDLE_MS_MAX);
        assert_eq!(old(IDLE_MS_MAX / 2), Some(vec![]));
        assert_eq!(old(IDLE_MS_MAX), Some(vec!["a"]));
        assert_eq!(old(IDLE_MS_MAX * 2), Some(vec!["b"]));
        assert_eq!(old(IDLE_MS_MAX * 2), None);
    }
}
