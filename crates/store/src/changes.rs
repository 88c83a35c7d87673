//! Word of changes for whoever keeps copies of answers outside of the server: the level below it.
//! Of files it is not said what has changed; nobody keeps so much that asking again would be dear. Of purges it is, since there
//! may be one for each request that changes something.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};

use lowroad_cache::pattern::Pattern;

/// More purges at a time than these, in bytes of their texts, are told as one of all.
const PURGES_LEN_MAX: usize = 16 << 10;

/// The changes of one server, told to one thread.
#[derive(Default)]
pub struct Changes {
    listener: OnceLock<Thread>,
    is_brief: AtomicBool,
    news: Mutex<News>,
}

/// What has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum News {
    /// Nothing.
    #[default]
    None,
    /// What these patterns mean, one on each line.
    Purged(String),
    /// Perhaps all.
    All,
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
        self.add(|_| News::All);
    }

    /// What this pattern means was purged.
    pub fn tell_of(&self, purged: &Pattern) {
        self.add(|news| match news {
            News::All => News::All,
            News::None => News::Purged(format!("{purged}\n")),
            News::Purged(before) => News::Purged(format!("{before}{purged}\n")),
        });
    }

    fn add(&self, add: impl FnOnce(News) -> News) {
        let Some(listener) = self.listener.get() else {
            return;
        };
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        *news = match add(mem::take(&mut *news)) {
            News::Purged(text) if text.len() > PURGES_LEN_MAX => News::All,
            news => news,
        };
        drop(news);
        listener.unpark();
    }

    /// What has changed since this was asked the last time.
    pub fn take(&self) -> News {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        mem::take(&mut *news)
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
    fn purges_are_told_by_their_text_until_they_are_many() {
        let changes = Changes::default();
        changes.listen();
        let urls = ["http://a:80/x", "host:b"];
        let tell = |text: &str| changes.tell_of(&Pattern::parse(text).expect(text));
        urls.iter().for_each(|url| tell(url));
        assert_eq!(
            changes.take(),
            News::Purged(format!("{}\n", urls.join("\n")))
        );
        assert_eq!(changes.take(), News::None);
        (0..2000).for_each(|_| tell("http://a:80/x"));
        assert_eq!(changes.take(), News::All);
        tell("all");
        changes.tell();
        assert_eq!(changes.take(), News::All);
    }

    #[test]
    fn one_server_s_changes_are_nothing_to_another() {
        let (one, other) = (Changes::default(), Changes::default());
        one.tell_brief();
        assert!(one.is_brief() && !other.is_brief());
        assert_eq!(one.take(), News::None, "nobody listens");
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
