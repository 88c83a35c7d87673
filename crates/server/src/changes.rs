//! Word of changes for whoever keeps copies of answers outside of the server: the level below it.
//! What has changed is not said; nobody keeps so much that asking again would be dear.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

static LISTENER: OnceLock<Thread> = OnceLock::new();
static BRIEF: AtomicBool = AtomicBool::new(false);

/// This thread waits for changes from now on, by [`wait`].
pub fn listen() {
    // A second one in the same process would be a mistake of ours; the first stays.
    let _ = LISTENER.set(thread::current());
}

/// Waits until something may have changed since the last time; now and then it returns for nothing.
pub fn wait() {
    thread::park();
}

/// Something may have changed: files, rules, pages for errors.
pub fn tell() {
    if let Some(listener) = LISTENER.get() {
        listener.unpark();
    }
}

/// An answer was made that can change without notice, so from now on none is to be trusted for long.
pub fn tell_brief() {
    if !BRIEF.swap(true, Ordering::Relaxed) {
        tell();
    }
}

/// Whether there are such answers.
pub fn is_brief() -> bool {
    BRIEF.load(Ordering::Relaxed)
}
