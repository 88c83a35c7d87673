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
                state.idle.take_old(now_ms, idle_ms_max)
            },
            flag: |state| &mut state.reaping,
        }
    }
}

/// Starts a task on a worker; the caller has already set its flag.
pub fn begin<O: PoolConnector>(
    pool: &Arc<ConnectionPool<O>>,
    worker: usize,
    look: ReaperTarget<O::PooledConnection>,
) {
    let pause = look.pause;
    // Created before the spawn: even if the task is never polled, its drop resets the flag.
    let mut tending = IdleReaper {
        pool: pool.clone(),
        look,
        over: false,
    };
    let local = pool.local(worker);
    let timers = local.timers.clone();
    let again = async move {
        loop {
            timers.sleep(pause).await;
            if !tending.look(timers.now_ms()) {
                return;
            }
        }
    };
    local.tasks.spawn(again).detach();
}

/// A running task. If it is dropped with its worker, the flag is reset, so that another worker can start one.
struct IdleReaper<O: PoolConnector> {
    pool: Arc<ConnectionPool<O>>,
    look: ReaperTarget<O::PooledConnection>,
    over: bool,
}

impl<O: PoolConnector> IdleReaper<O> {
    /// Closes the connections that are due. Returns whether there are more to check.
    fn look(&mut self, now_ms: u64) -> bool {
        let mut state = self.pool.lock();
        let close = (self.look.close)(&mut state, now_ms);
        if close.is_none() {
            // Reset under the lock, so that no connection is added between the last check and the end of the task.
            *(self.look.flag)(&mut state) = false;
            self.over = true;
        }
        // Closed after the lock is released, since closing sockets takes time.
        drop(state);
        close.is_some()
    }
}

impl<O: PoolConnector> Drop for IdleReaper<O> {
    fn drop(&mut self) {
        if !self.over {
            *(self.look.flag)(&mut self.pool.lock()) = false;
        }
    }
}
