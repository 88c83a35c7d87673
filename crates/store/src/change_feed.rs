//! The change feed: notifies the level below, which keeps copies of responses, that some may be outdated. Changed
//! files are not named, because the level keeps so few copies that fetching them again is cheap. Purges are named,
//! since each unsafe request may cause one.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};

use lowroad_cache::pattern::RequestPattern;

/// If the pending purges exceed this length in bytes of text, they are reported as a purge of everything.
const PURGES_LEN_MAX: usize = 16 << 10;

/// The change feed of one server, with one listening thread.
#[derive(Default)]
pub struct ChangeFeed {
    listener: OnceLock<Thread>,
    is_short_lived: AtomicBool,
    pending: Mutex<Invalidation>,
}

/// The pending change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Invalidation {
    /// None.
    #[default]
    None,
    /// Purges by these patterns, one a line.
    Purged(String),
    /// Any response may have changed.
    All,
}

impl ChangeFeed {
    /// Makes the current thread the listener, which waits with `ChangeFeed::wait`.
    pub fn listen(&self) {
        // A second listener would be a programming error; the first one stays.
        let _ = self.listener.set(thread::current());
    }

    /// Waits for a change; returns spuriously at times.
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
            // Bounded: a listener that is behind discards everything instead.
            Invalidation::Purged(text) if text.len() > PURGES_LEN_MAX => Invalidation::All,
            pending => pending,
        };
        drop(pending);
        // After the change is recorded: the listener must find it.
        listener.unpark();
    }

    /// Takes the pending changes.
    pub fn take(&self) -> Invalidation {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        mem::take(&mut *pending)
    }

    /// Reports a new response without change detection: copies must expire soon from now on.
    pub fn notify_short_lived(&self) {
        // Reported once: from then on, the levels below keep all copies briefly.
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
    fn purges_are_told_by_their_text_until_they_are_many() {
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
    fn one_server_s_changes_are_nothing_to_another() {
        let (one, other) = (ChangeFeed::default(), ChangeFeed::default());
        one.notify_short_lived();
        assert!(one.is_short_lived() && !other.is_short_lived());
        assert_eq!(one.take(), Invalidation::None, "nobody listens");
        thread::scope(|scope| {
            let heard = scope.spawn(|| {
                one.listen();
                one.wait();
            });
            other.listen();
            while !heard.is_finished() {
                one.notify();
                thread::yield_now();
            }
        });
    }
}
