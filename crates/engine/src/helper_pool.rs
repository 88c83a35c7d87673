//! A pool of helper threads for work that may block: opening, reading and sending files, compressing.
//!
//! A worker submits a job and continues; the job reports through a mailbox.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::panic_policy::contain;

/// The maximum number of queued jobs; beyond it requests get 503.
pub const QUEUE_LEN_MAX: usize = 4096;

type HelperJob = Box<dyn FnOnce() + Send>;

/// A fixed number of threads and their queue. Clones share them.
#[derive(Clone)]
pub struct HelperPool {
    shared: Arc<HelperQueue>,
}

struct HelperQueue {
    queue: Mutex<VecDeque<HelperJob>>,
    added: Condvar,
}

/// The queue is full.
#[derive(Debug)]
pub struct QueueFull;

impl HelperPool {
    /// Starts `count` threads, which live as long as the process.
    ///
    /// # Errors
    /// The system can't start more threads.
    pub fn start(count: usize) -> io::Result<HelperPool> {
        HelperPool::start_as("helper", count)
    }

    /// Starts `count` threads, named `name` and a number.
    ///
    /// # Errors
    /// Those of [`HelperPool::start`].
    pub fn start_as(name: &str, count: usize) -> io::Result<HelperPool> {
        let shared = Arc::new(HelperQueue {
            queue: Mutex::new(VecDeque::new()),
            added: Condvar::new(),
        });
        // Without a thread, queued jobs would never run.
        for number in 0..count.max(1) {
            let shared = shared.clone();
            thread::Builder::new()
                .name(format!("{name}-{number}"))
                .spawn(move || work(&shared))?;
        }
        Ok(HelperPool { shared })
    }

    /// Adds a job.
    ///
    /// # Errors
    /// [`QueueFull`] if too many jobs are queued; the job is dropped then.
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) -> Result<(), QueueFull> {
        let mut queue = lock(&self.shared.queue);
        if queue.len() >= QUEUE_LEN_MAX {
            return Err(QueueFull);
        }
        queue.push_back(Box::new(job));
        drop(queue);
        // Notified after the lock is released, so that the woken thread need not wait for it.
        self.shared.added.notify_one();
        Ok(())
    }
}

fn work(shared: &HelperQueue) {
    loop {
        let mut queue = lock(&shared.queue);
        let job = loop {
            match queue.pop_front() {
                Some(job) => break job,
                None => {
                    queue = shared
                        .added
                        .wait(queue)
                        .unwrap_or_else(PoisonError::into_inner)
                }
            }
        };
        drop(queue);
        // A panic drops the job's captures, which notify the waiter.
        contain(job);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
