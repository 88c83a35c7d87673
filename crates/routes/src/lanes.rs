//! The threads on which programs are waited for: one beside each worker, with a runtime of its own.
//!
//! A shared pool of threads would even out their load, and wake a second thread for nearly every
//! call to do so: on the way of a short answer that costs more than all else. What a worker polls
//! itself has its I/O and its timers there, and nothing here.

use std::io;
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The name of all these threads.
const THREAD_NAME: &str = "programs";

/// A thread for each worker.
pub struct Lanes(Vec<Lane>);

struct Lane {
    handle: Handle,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Lanes {
    /// Starts as many.
    ///
    /// # Errors
    /// When the machine gives no threads.
    pub fn start(count: usize) -> io::Result<Lanes> {
        let lanes: io::Result<Vec<Lane>> = (0..count.max(1)).map(|_| Lane::start()).collect();
        lanes.map(Lanes)
    }

    /// That of a worker.
    pub fn of(&self, worker: usize) -> Handle {
        self.0[worker % self.0.len()].handle.clone()
    }

    /// Gives up what is under way, and so ends the processes that work for it.
    pub fn end(&mut self) {
        for lane in self.0.drain(..) {
            // A thread that has ended already hears nothing.
            let _ = lane.stop.send(());
            let _ = lane.thread.join();
        }
    }
}

impl Lane {
    fn start() -> io::Result<Lane> {
        let runtime = Builder::new_current_thread()
            .thread_name(THREAD_NAME)
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name(THREAD_NAME.into())
            .spawn(move || {
                // Also when nobody is left who could say so.
                let _ = runtime.block_on(stopped);
                runtime.shutdown_background();
            })?;
        Ok(Lane {
            handle,
            stop,
            thread,
        })
    }
}
