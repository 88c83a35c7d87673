//! The change feed: notifies the softirq level, which has copies of some responses, that copies may be outdated. For
//! changed files the notification does not name the files, because fetching the few copies again is cheap. Purges are
//! reported with their patterns, since each unsafe request may cause one.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};

use lowroad_cache::pattern::RequestPattern;

/// If the patterns of pending purges are longer than this, they are reported as a purge of everything.
const PURGES_LEN_MAX: usize = 16 << 10;

/// The change feed of one server, with one listening thread.
#[derive(Default)]
pub struct ChangeFeed {
    listener: OnceLock<Thread>,
    is_short_lived: AtomicBool,
    pending: Mutex<Invalidation>,
}

/// The changes that the listener has not taken yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Invalidation {
    /// None.
    #[default]
    None,
    /// The patterns of purges, one per line.
    Purged(String),
    /// Any response may have changed.
    All,
}

impl ChangeFeed {
    /// Makes the current thread the listener, which waits with `ChangeFeed::wait`.
    pub fn listen(&self) {
        // A second listener would be a programming error; it is ignored.
        let _ = self.listener.set(thread::current());
    }

    /// Waits for a change; may return spuriously.
    pub fn wait(&self) {
        thread::park();
    }

    /// Reports a change of files, rules or error pages.
    pub fn notify(&self) {
        self.add(|_| Invalidation::All);
    }

    /// Reports a purge by a pattern.
    pub fn notify_purge(&self, purged: &RequestPattern) {
        self.add(|pending| match pending {
            Invalidation::All => Invalidation::All,
            Invalidation::None => Invalidation::Purged(format!("{purged}\n")),
            Invalidation::Purged(before) => Invalidation::Purged(format!("{before}{purged}\n")),
        });
    }

    fn add(&self, add: impl FnOnce(Invalidation) -> Invalidation) {
        let Some(listener) = self.listener.get() else {
            return;
        };
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        *pending = match add(mem::take(&mut *pending)) {
            // The text is bounded: a listener that has fallen behind discards all copies instead.
            Invalidation::Purged(text) if text.len() > PURGES_LEN_MAX => Invalidation::All,
            pending => pending,
        };
        drop(pending);
        // The listener is woken after the change is recorded, so that it finds the change.
        listener.unpark();
    }

    /// Takes the pending changes.
    pub fn take(&self) -> Invalidation {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        mem::take(&mut *pending)
    }

    /// Reports that a response without change detection was stored: from now on, copies must expire soon.
    pub fn notify_short_lived(&self) {
        // Reported once: from then on, all copies at the softirq level expire soon.
        if !self.is_short_lived.swap(true, Ordering::Relaxed) {
            self.notify();
        }
    }

    /// Whether copies must expire soon.
    pub fn is_short_lived(&self) -> bool {
        self.is_short_lived.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purges_are_reported_as_patterns_up_to_a_length() {
        let changes = ChangeFeed::default();
        changes.listen();
        let urls = ["http://a:80/x", "host:b"];
        let tell = |text: &str| changes.notify_purge(&RequestPattern::parse(text).expect(text));
        urls.iter().for_each(|url| tell(url));
        assert_eq!(
            changes.take(),
            Invalidation::Purged(format!("{}\n", urls.join("\n")))
        );
        assert_eq!(changes.take(), Invalidation::None);
        (0..2000).for_each(|_| tell("http://a:80/x"));
        assert_eq!(changes.take(), Invalidation::All);
        tell("all");
        changes.notify();
        assert_eq!(changes.take(), Invalidation::All);
    }

    #[test]
    fn change_feeds_are_independent() {
        let (one, other) = (ChangeFeed::default(), ChangeFeed::default());
        one.notify_short_lived();
        assert!(one.is_short_lived() && !other.is_short_lived());
        assert_eq!(one.take(), Invalidation::None, "nobody listens");
        thread::scope(|scope| {
            let listener = scope.spawn(|| {
                one.listen();
                one.wait();
            });
            other.listen();
            while !listener.is_finished() {
                one.notify();
                thread::yield_now();
            }
        });
    }
}
