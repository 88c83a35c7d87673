//! Idle reaper: tasks that close idle connections of a pool, either when they expire, or when the server is crowded
//! (see `idle_connections`). A task runs only while there are connections to check.

use std::sync::Arc;
use std::time::Duration;

use crate::connector::PoolConnector;
use crate::idle_connections::CROWDED_MS;
use crate::pool::{ConnectionPool, PoolState};

/// The connections that a reaper task closes.
pub struct ReaperTarget<C> {
    pause: Duration,
    /// Returns the connections to close at this time; `None` if no connections are left to check.
    close: fn(&mut PoolState<C>, u64) -> Option<Vec<C>>,
    /// The flag that is set while such a task is running.
    flag: fn(&mut PoolState<C>) -> &mut bool,
}

impl<C> ReaperTarget<C> {
    /// Closes idle connections while new connections may wait for the server processes that they occupy.
    pub fn crowd() -> ReaperTarget<C> {
        ReaperTarget {
            pause: Duration::from_millis(CROWDED_MS),
            close: |state, now_ms| state.idle.make_room(now_ms),
            flag: |state| &mut state.is_crowd_reaper_running,
        }
    }

    /// Closes connections that have been idle for `idle_max`.
    pub fn idle(idle_max: Duration) -> ReaperTarget<C> {
        ReaperTarget {
            // With half of the limit, a connection is closed at most that much too late.
            pause: idle_max / 2,
            close: |state, now_ms| {
                let idle_ms_max = state.idle_ms_max;
                state.idle.take_expired(now_ms, idle_ms_max)
            },
            flag: |state| &mut state.is_idle_reaper_running,
        }
    }
}

/// Starts a reaper task on a worker; the caller has already set the flag.
pub fn begin<O: PoolConnector>(
    pool: &Arc<ConnectionPool<O>>,
    worker: usize,
    target: ReaperTarget<O::PooledConnection>,
) {
    let pause = target.pause;
    // Created before the task is spawned, so that its drop resets the flag even if the task is never polled.
    let mut reaper = IdleReaper {
        pool: pool.clone(),
        target,
        is_done: false,
    };
    let worker_handle = pool.worker_handle(worker);
    let timers = worker_handle.timers.clone();
    let task = async move {
        loop {
            timers.sleep(pause).await;
            if !reaper.reap(timers.now_ms()) {
                return;
            }
        }
    };
    worker_handle.tasks.spawn(task).detach();
}

/// A running reaper task. If it is dropped with its worker, the flag is reset, so that another worker can start one.
struct IdleReaper<O: PoolConnector> {
    pool: Arc<ConnectionPool<O>>,
    target: ReaperTarget<O::PooledConnection>,
    is_done: bool,
}

impl<O: PoolConnector> IdleReaper<O> {
    /// Closes the connections that are due. Returns whether there are more to check.
    fn reap(&mut self, now_ms: u64) -> bool {
        let mut state = self.pool.lock();
        let to_close = (self.target.close)(&mut state, now_ms);
        if to_close.is_none() {
            // Reset under the lock: a connection that is added after the last check starts a new task.
            *(self.target.flag)(&mut state) = false;
            self.is_done = true;
        }
        // The connections are closed after unlocking, since closing sockets takes time.
        drop(state);
        to_close.is_some()
    }
}

impl<O: PoolConnector> Drop for IdleReaper<O> {
    fn drop(&mut self) {
        if !self.is_done {
            *(self.target.flag)(&mut self.pool.lock()) = false;
        }
    }
}
