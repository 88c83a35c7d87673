//! Where the conversation with a program is polled, and so whose timers it has: tokio's beside a
//! worker, or the worker's own. It knows nothing of conversations.

use std::future::Future;
use std::time::Duration;

use lowroad_engine::Local;
use lowroad_engine::timers::Elapsed;

/// One of both.
#[derive(Clone)]
pub enum Executor {
    /// The tokio runtime around.
    Runtime,
    /// A worker.
    Worker(Local),
}

impl Executor {
    /// Lets `work` go on until its end. A worker that drains waits for it: it is for clients, who may be others'.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        match self {
            Executor::Runtime => drop(tokio::spawn(work)),
            Executor::Worker(local) => {
                let hold = local.tasks.hold();
                let work = async move {
                    let _hold = hold;
                    work.await;
                };
                local.tasks.spawn(work).detach();
            }
        }
    }

    /// Waits for `work`, but no longer than `time`.
    ///
    /// # Errors
    /// [`Elapsed`]; the work is given up.
    pub async fn timeout<T>(
        &self,
        time: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        match self {
            Executor::Runtime => {
                let done = tokio::time::timeout(time, work).await;
                done.map_err(|_| Elapsed)
            }
            Executor::Worker(local) => local.timers.timeout(time, work).await,
        }
    }
}
