//! Until when a stored object holds: as long as the files that it was made from are what they were, or for a lifetime that
//! its maker gave, unless it is purged before. Knows neither what the object is nor where it lies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lowroad_cache::freshness::Source;
use lowroad_cache::lifetime::Lifetime as Times;
use lowroad_cache::request::Asked;

pub use lowroad_cache::lifetime::Use;

use super::seen::Seen;
use crate::watch::{Folder, Trust};

/// For how long an object is trusted without a watch, ms. A change is noticed within a second.
pub const TRUST_MS: u64 = 500;

/// Why an object holds. There are millions of lifetimes and few files, so a box would take more than it saves.
pub enum Validity {
    /// Nothing has changed that it was made from.
    Unchanged(Unchanged),
    /// Its maker said so.
    Lifetime(Lifetime),
}

/// What an object made from files is measured by.
pub struct Unchanged {
    /// Who is told of changes; without, the object holds for [`TRUST_MS`].
    folder: Option<Arc<Folder>>,
    /// The folder's from before the object was made.
    generation: AtomicU64,
    checked_ms: AtomicU64,
}

/// What an object holds for that a program made.
#[derive(Clone)]
pub struct Lifetime {
    /// From when until when, and what is allowed after that, without purges; monotonic ms.
    pub times: Times,
    /// What gave it.
    pub source: Source,
    /// It is for requests with Authorization, too (RFC 9111 §3.5).
    pub is_for_all: bool,
    /// The purges that it has seen. When it is made, those from before its program was asked: it may be older than all
    /// others.
    pub purges: Seen,
    /// How often its key had been forgotten then.
    pub forgotten: u32,
    /// What it may be purged by, besides its URL.
    pub names: Names,
    /// When it was last tried to have it anew.
    pub refreshed: Refreshed,
}

/// Tags with commas between, and behind each line end a group. Most objects have none, and there are many objects.
#[derive(Clone, Default)]
pub struct Names(Option<Box<Text>>);

#[derive(Clone)]
struct Text(Box<[u8]>);

impl From<Vec<u8>> for Names {
    fn from(text: Vec<u8>) -> Names {
        Names((!text.is_empty()).then(|| Box::new(Text(text.into()))))
    }
}

impl Names {
    /// They.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |text| &text.0)
    }
}

/// When something was last tried to be had anew, monotonic ms; 0 if never.
#[derive(Default)]
pub struct Refreshed(AtomicU64);

/// So much later at the earliest it is tried again, ms: an origin that fails at once is not asked for each request.
const REFRESH_PAUSE_MS: u64 = 1000;

impl Refreshed {
    /// Whether it is time to try. Of several who ask at a time one does.
    pub fn begin(&self, now_ms: u64) -> bool {
        let last_ms = self.0.load(Relaxed);
        let is_due = last_ms == 0 || now_ms.saturating_sub(last_ms) >= REFRESH_PAUSE_MS;
        let now_ms = now_ms.max(1);
        is_due
            && self
                .0
                .compare_exchange(last_ms, now_ms, Relaxed, Relaxed)
                .is_ok()
    }
}

impl Clone for Refreshed {
    fn clone(&self) -> Refreshed {
        Refreshed(AtomicU64::new(self.0.load(Relaxed)))
    }
}

impl Validity {
    /// That of an object made from files at `checked_ms`. With a folder that is watched, and its generation from before,
    /// it holds until something changes there.
    pub fn of_files(trust: Trust, checked_ms: u64) -> Validity {
        let (folder, generation) = trust.unzip();
        Validity::Unchanged(Unchanged {
            folder,
            generation: AtomicU64::new(generation.unwrap_or(0)),
            checked_ms: AtomicU64::new(checked_ms),
        })
    }

    /// Whether the object may be used without another look at what it was made from.
    #[inline]
    pub fn holds(&self, now_ms: u64) -> bool {
        match self {
            Validity::Unchanged(unchanged) => unchanged.holds(now_ms),
            Validity::Lifetime(lifetime) => lifetime.is_fresh(now_ms),
        }
    }

    /// How the object may be used for a request.
    pub fn use_for(&self, asked: &Asked, now_ms: u64) -> Use {
        match self {
            Validity::Unchanged(unchanged) if unchanged.holds(now_ms) => Use::Fresh,
            Validity::Unchanged(_) => Use::Validate,
            Validity::Lifetime(lifetime) => lifetime.use_for(asked, now_ms),
        }
    }

    /// Whether the object may stand in where its maker fails.
    pub fn stands_in(&self, asked: &Asked, now_ms: u64) -> bool {
        let lifetime = self.lifetime();
        lifetime.is_some_and(|lifetime| {
            lifetime.is_for(asked) && lifetime.current().stands_in(asked, now_ms)
        })
    }

    /// Whether changes of what it was made from are told.
    pub fn is_watched(&self) -> bool {
        matches!(self, Validity::Unchanged(unchanged) if unchanged.folder.is_some())
    }

    /// Its files, looked at `checked_ms`, are what they were; `trust` is from before the look. Whether that could be
    /// noted: its folder is the one that is watched now.
    pub fn renew(&self, trust: &Trust, checked_ms: u64) -> bool {
        let Validity::Unchanged(unchanged) = self else {
            return false;
        };
        let (is_same, generation) = match (&unchanged.folder, trust) {
            (Some(own), Some((other, generation))) => (Arc::ptr_eq(own, other), *generation),
            (None, None) => (true, 0),
            _ => (false, 0),
        };
        if is_same {
            unchanged.set(generation, checked_ms);
        }
        is_same
    }

    /// It was found not to hold: the next use looks at the files.
    pub fn end(&self) {
        if let Validity::Unchanged(unchanged) = self {
            unchanged.set(0, 0);
        }
    }

    /// The lifetime, if it has one.
    #[inline]
    pub fn lifetime(&self) -> Option<&Lifetime> {
        match self {
            Validity::Unchanged(_) => None,
            Validity::Lifetime(lifetime) => Some(lifetime),
        }
    }
}

impl Unchanged {
    #[inline]
    fn holds(&self, now_ms: u64) -> bool {
        let watched = self.folder.as_ref();
        watched.is_some_and(|folder| folder.generation() == self.generation.load(Relaxed))
            || now_ms.saturating_sub(self.checked_ms.load(Relaxed)) < TRUST_MS
    }

    fn set(&self, generation: u64, checked_ms: u64) {
        self.generation.store(generation, Relaxed);
        self.checked_ms.store(checked_ms, Relaxed);
    }
}

#[cfg(test)]
impl Lifetime {
    /// One that was given at 0 and ends then, for tests.
    pub fn until(until_ms: u64) -> Lifetime {
        Lifetime {
            times: Times {
                at_ms: 0,
                age_ms: 0,
                until_ms,
                swr_until_ms: until_ms,
                sie_until_ms: until_ms,
                no_cache: false,
                must_revalidate: false,
            },
            source: Source::MaxAge,
            is_for_all: false,
            purges: crate::store::seen::Since::default().into(),
            forgotten: 0,
            names: Names::default(),
            refreshed: Refreshed::default(),
        }
    }
}

impl Lifetime {
    /// Its age in seconds, for the field of that name.
    #[inline]
    pub fn age_s(&self, now_ms: u64) -> u64 {
        self.times.age_ms(now_ms) / 1000
    }

    /// Whether it may be used for a request that asks for nothing else: [`Use::Fresh`] for [`Asked::GET`].
    #[inline]
    fn is_fresh(&self, now_ms: u64) -> bool {
        self.times.is_fresh(now_ms)
            && self
                .purges
                .stale_from_ms()
                .is_none_or(|at_ms| now_ms < at_ms)
    }

    fn use_for(&self, asked: &Asked, now_ms: u64) -> Use {
        match self.is_for(asked) {
            true => self.current().use_for(asked, now_ms),
            false => Use::Validate,
        }
    }

    /// Whether a request may be answered with it that its origin has not seen.
    fn is_for(&self, asked: &Asked) -> bool {
        self.is_for_all || !asked.is_authorized
    }

    /// Its times as purges have left them.
    #[inline]
    pub fn current(&self) -> Times {
        match self.purges.stale_from_ms() {
            None => self.times,
            Some(at_ms) => self.times.expired(at_ms),
        }
    }

    /// Its tags.
    pub fn tags(&self) -> impl Iterator<Item = &[u8]> {
        let tags = self.names.as_bytes().split(|b| *b == b'\n').next();
        let tags = tags.unwrap_or_default().split(|b| *b == b',');
        tags.map(<[u8]>::trim_ascii).filter(|tag| !tag.is_empty())
    }

    /// Its groups (RFC 9875).
    pub fn groups(&self) -> impl Iterator<Item = &[u8]> {
        self.names.as_bytes().split(|b| *b == b'\n').skip(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_watch_an_object_holds_for_a_moment() {
        let validity = Validity::of_files(None, 1000);
        assert!(validity.holds(1000 + TRUST_MS - 1) && !validity.holds(1000 + TRUST_MS));
        assert!(validity.renew(&None, 2000) && validity.holds(2000));
        validity.end();
        assert!(!validity.holds(2000));
    }

    #[test]
    fn a_refresh_is_tried_again_after_a_pause() {
        let refreshed = Refreshed::default();
        assert!(refreshed.begin(0) && !refreshed.begin(999));
        assert!(refreshed.begin(1 + REFRESH_PAUSE_MS) && !refreshed.begin(1 + REFRESH_PAUSE_MS));
    }

    #[test]
    fn a_lifetime_ends_and_has_an_age() {
        let until = Lifetime::until(61_000);
        let lifetime = Lifetime {
            times: Times {
                at_ms: 1000,
                ..until.times
            },
            names: b"news, Sport\nfront, page".to_vec().into(),
            ..until
        };
        assert_eq!((lifetime.age_s(1999), lifetime.age_s(3500)), (0, 2));
        assert!(lifetime.tags().eq([b"news", &b"Sport"[..]]));
        assert!(lifetime.groups().eq([b"front, page"]));
        let validity = Validity::Lifetime(lifetime);
        assert!(validity.holds(60_999) && !validity.holds(61_000));
        assert!(!validity.renew(&None, 61_000));
    }
}
