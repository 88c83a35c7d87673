//! Where a response is produced: on the tokio runtime, or on a worker with its own timers.

use std::future::Future;
use std::time::Duration;

use lowroad_engine::WorkerHandle;
use lowroad_engine::timers::TimeoutElapsed;

/// The executor on which the exchange with an application is polled.
#[derive(Clone)]
pub enum ResponseExecutor {
    /// The current tokio runtime.
    Runtime,
    /// A worker.
    Worker(WorkerHandle),
}

impl ResponseExecutor {
    /// Spawns `work`, which runs to its end. A draining worker waits for `work`, since `work` serves clients, perhaps
    /// of other workers.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        match self {
            ResponseExecutor::Runtime => drop(tokio::spawn(work)),
            ResponseExecutor::Worker(local) => {
                // The hold keeps a draining worker alive until the work has ended.
                let hold = local.tasks.hold();
                let work = async move {
                    let _hold = hold;
                    work.await;
                };
                local.tasks.spawn(work).detach();
            }
        }
    }

    /// Waits for `work`, for at most `time`.
    ///
    /// # Errors
    /// [`TimeoutElapsed`]; the work is dropped.
    pub async fn timeout<T>(
        &self,
        time: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, TimeoutElapsed> {
        match self {
            ResponseExecutor::Runtime => {
                let done = tokio::time::timeout(time, work).await;
                done.map_err(|_| TimeoutElapsed)
            }
            ResponseExecutor::Worker(local) => local.timers.timeout(time, work).await,
        }
    }
}
