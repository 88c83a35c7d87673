//! Lane threads: for each worker one thread with its own runtime, on which its calls of programs wait.
//!
//! A shared pool would balance the load, but would wake a second thread for almost every call, which costs more than
//! the rest of a short response. Tasks that a worker polls itself use the worker's I/O and timers, not these threads.

use std::io;
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The name of these threads.
const THREAD_NAME: &str = "programs";

/// The lane threads, one for each worker.
pub struct LaneThreads(Vec<LaneThread>);

struct LaneThread {
    handle: Handle,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl LaneThreads {
    /// Starts `count` threads.
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn start(count: usize) -> io::Result<LaneThreads> {
        let lanes: io::Result<Vec<LaneThread>> =
            (0..count.max(1)).map(|_| LaneThread::start()).collect();
        lanes.map(LaneThreads)
    }

    /// The runtime for a worker.
    pub fn handle(&self, worker: usize) -> Handle {
        self.0[worker % self.0.len()].handle.clone()
    }

    /// Cancels all calls, which ends the processes started for them.
    pub fn end(&mut self) {
        for lane in self.0.drain(..) {
            // The thread may have ended before.
            let _ = lane.stop.send(());
            // Joined, so that no task runs afterwards.
            let _ = lane.thread.join();
        }
    }
}

impl LaneThread {
    fn start() -> io::Result<LaneThread> {
        let runtime = Builder::new_current_thread()
            .thread_name(THREAD_NAME)
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name(THREAD_NAME.into())
            .spawn(move || {
                // `block_on` also returns if the sender is dropped.
                let _ = runtime.block_on(stopped);
                // Blocking calls of programs must not delay the shutdown.
                runtime.shutdown_background();
            })?;
        Ok(LaneThread {
            handle,
            stop,
            thread,
        })
    }
}
