//! Idle reaper: tasks that close idle connections, either expired ones or those that crowd a server. Each task runs
//! only while there are connections to check.

use std::sync::Arc;
use std::time::Duration;

use crate::connector::PoolConnector;
use crate::idle_connections::CROWDED_MS;
use crate::pool::{ConnectionPool, PoolState};

/// The job of a reaper task.
pub struct ReaperTarget<C> {
    pause: Duration,
    /// Returns the connections to close at this time; `None` if no connections are left to check.
    close: fn(&mut PoolState<C>, u64) -> Option<Vec<C>>,
    /// The flag that such a task is running.
    flag: fn(&mut PoolState<C>) -> &mut bool,
}

impl<C> ReaperTarget<C> {
    /// Closes idle connections while new ones may wait for the processes that these occupy.
    pub fn crowd() -> ReaperTarget<C> {
        ReaperTarget {
            pause: Duration::from_millis(CROWDED_MS),
            close: |state, now_ms| state.idle.make_room(now_ms),
            flag: |state| &mut state.watching,
        }
    }

    /// Closes connections that were idle for `idle_max`.
    pub fn idle(idle_max: Duration) -> ReaperTarget<C> {
        ReaperTarget {
            pause: idle_max / 2,
            close: |state, now_ms| {
                let idle_ms_max = state.idle_ms_max;
                state.idle.take_expired(now_ms, idle_ms_max)
            },
            flag: |state| &mut state.reaping,
        }
    }
}

/// Starts a task on a worker; the caller has already set its flag.
pub fn begin<O: PoolConnector>(
    pool: &Arc<ConnectionPool<O>>,
    worker: usize,
    target: ReaperTarget<O::PooledConnection>,
) {
    let pause = target.pause;
    // Created before the spawn: even if the task is never polled, its drop resets the flag.
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

/// A running task. If it is dropped with its worker, the flag is reset, so that another worker can start one.
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
            // Reset under the lock, so that no connection is added between the last check and the end of the task.
            *(self.target.flag)(&mut state) = false;
            self.is_done = true;
        }
        // Closed after the lock is released, since closing sockets takes time.
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
