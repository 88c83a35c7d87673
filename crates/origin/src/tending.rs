//! Tasks that close idle connections: those that nobody uses, and those that are in others' way. Such a
//! task runs while there is something to look after. It knows nothing of why.

use std::sync::Arc;
use std::time::Duration;

use crate::idle::CROWDED_MS;
use crate::open::Open;
use crate::pool::{Pool, State};

/// What a task looks after.
pub struct Look<C> {
    pause: Duration,
    /// What is to be closed at this time; `None` when there is nothing left to look after.
    close: fn(&mut State<C>, u64) -> Option<Vec<C>>,
    /// Whether there is such a task.
    flag: fn(&mut State<C>) -> &mut bool,
}

impl<C> Look<C> {
    /// Idle connections are closed for new ones that may wait for the processes which these hold.
    pub fn crowd() -> Look<C> {
        Look {
            pause: Duration::from_millis(CROWDED_MS),
            close: |state, now_ms| state.idle.make_room(now_ms),
            flag: |state| &mut state.watching,
        }
    }

    /// Idle connections are closed that nobody uses for so long.
    pub fn idle(idle_max: Duration) -> Look<C> {
        Look {
            pause: idle_max / 2,
            close: |state, now_ms| {
                let idle_ms_max = state.idle_ms_max;
                state.idle.take_old(now_ms, idle_ms_max)
            },
            flag: |state| &mut state.reaping,
        }
    }
}

/// Begins a task on a worker; it was noted that there is one.
pub fn begin<O: Open>(pool: &Arc<Pool<O>>, worker: usize, look: Look<O::Connection>) {
    let pause = look.pause;
    // From now on, whether the task is ever polled or not.
    let mut tending = Tending {
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

/// A task that looks. If it ends with its worker, another worker may begin one.
struct Tending<O: Open> {
    pool: Arc<Pool<O>>,
    look: Look<O::Connection>,
    over: bool,
}

impl<O: Open> Tending<O> {
    /// Whether there is something left to look after.
    fn look(&mut self, now_ms: u64) -> bool {
        let mut state = self.pool.lock();
        let close = (self.look.close)(&mut state, now_ms);
        if close.is_none() {
            // While nobody can begin the next.
            *(self.look.flag)(&mut state) = false;
            self.over = true;
        }
        // Without the lock: closing takes its time.
        drop(state);
        close.is_some()
    }
}

impl<O: Open> Drop for Tending<O> {
    fn drop(&mut self) {
        if !self.over {
            *(self.look.flag)(&mut self.pool.lock()) = false;
        }
    }
}
