//! Word of changes for whoever keeps copies of answers outside of the server: the level below it.
//! What has changed is not said; nobody keeps so much that asking again would be dear.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

/// The changes of one server, told to one thread.
#[derive(Default)]
pub struct Changes {
    listener: OnceLock<Thread>,
    is_brief: AtomicBool,
}

impl Changes {
    /// This thread waits for changes from now on, by [`Changes::wait`].
    pub fn listen(&self) {
        // A second one would be a mistake of ours; the first stays.
        let _ = self.listener.set(thread::current());
    }

    /// Waits until something may have changed since the last time; now and then it returns for
    /// nothing.
    pub fn wait(&self) {
        thread::park();
    }

    /// Something may have changed: files, rules, pages for errors.
    pub fn tell(&self) {
        if let Some(listener) = self.listener.get() {
            listener.unpark();
        }
    }

    /// An answer was made that can change without notice, so from now on none is to be trusted for
    /// long.
    pub fn tell_brief(&self) {
        if !self.is_brief.swap(true, Ordering::Relaxed) {
            self.tell();
        }
    }

    /// Whether there are such answers.
    pub fn is_brief(&self) -> bool {
        self.is_brief.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_s_changes_are_nothing_to_another() {
        let (one, other) = (Changes::default(), Changes::default());
        one.tell_brief();
        assert!(one.is_brief() && !other.is_brief());
        thread::scope(|scope| {
            let heard = scope.spawn(|| {
                one.listen();
                one.wait();
            });
            other.listen();
            while !heard.is_finished() {
                one.tell();
                thread::yield_now();
            }
        });
    }
}
