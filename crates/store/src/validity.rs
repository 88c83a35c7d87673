//! How long a stored object may be used: while its source files are unchanged, or for a freshness lifetime, unless a
//! purge ends it.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed},
};

use lowroad_cache::freshness::LifetimeSource;
use lowroad_cache::lifetime::{self, FreshnessLifetime as Times};
use lowroad_cache::request::RequestDirectives;

pub use lowroad_cache::lifetime::Reusability;

use super::object::SourceFiles;
use super::purge_epoch::PurgeEpoch;
use crate::watch::{WatchTrust, WatchedFolder};

/// The time in ms for which an unwatched object is trusted. A change is thus detected within a second.
pub const TRUST_MS: u64 = 500;

/// The kind of validity. Unboxed: there are millions of lifetimes and few files.
pub enum ObjectValidity {
    /// The source files are unchanged.
    Unchanged(FileEvidence),
    /// A freshness lifetime.
    Lifetime(StoredExpiry),
}

/// The evidence that an object's source files are unchanged.
pub struct FileEvidence {
    /// The watched folder; without one, the object is trusted for [`TRUST_MS`].
    folder: Option<Arc<WatchedFolder>>,
    /// The folder's generation before the object was made.
    generation: AtomicU64,
    checked_ms: AtomicU64,
    /// The files, for a comparison.
    sources: Option<Arc<SourceFiles>>,
}

/// The expiry of a handler's response. There is one for each stored response, so rare parts are separate.
pub struct StoredExpiry {
    /// The purge generation up to which the object was compared. Initially that before the call of the handler,
    /// because the response may be older than later purges.
    pub(super) generation: AtomicU64,
    /// The end of freshness, monotonic ms. A soft purge lowers it.
    pub(super) until_ms: AtomicU64,
    /// See [`Times`].
    born_ms: i64,
    more: Option<Box<ExpiryExtras>>,
    /// The count of deletions of its key before the handler was called.
    pub forgotten: u32,
    flags: AtomicU8,
    /// The source of the lifetime.
    pub source: LifetimeSource,
}

/// Each use must be validated.
const NO_CACHE: u8 = 1;
/// See [`Times`].
const MUST_REVALIDATE: u8 = 1 << 1;
/// See [`Times`].
const WAS_USEFUL: u8 = 1 << 2;
/// The response is also for requests with Authorization (RFC 9111 §3.5).
const IS_FOR_ALL: u8 = 1 << 3;
/// A soft purge has made it stale, regardless of the time: a worker's clock is read once a turn and may be before the
/// purge.
const SOFTLY_PURGED: u8 = 1 << 4;

/// Parts that few lifetimes have.
#[derive(Clone, Default)]
struct ExpiryExtras {
    /// The stale-while-revalidate window, ms (RFC 5861 §3).
    swr_ms: u64,
    /// The stale-if-error window, ms (RFC 5861 §4).
    sie_ms: u64,
    /// The names for purges: tags separated by commas, then a group after each line feed.
    names: Box<[u8]>,
    /// The time of the last background refresh.
    refreshed: RefreshTime,
}

/// The time of the last refresh attempt, monotonic ms; 0: none.
#[derive(Default)]
struct RefreshTime(AtomicU64);

/// The minimum time between two attempts, ms: an origin that fails at once must not be called for each request.
const REFRESH_PAUSE_MS: u64 = 1000;

impl RefreshTime {
    /// Whether an attempt is due. Of concurrent callers, one gets true.
    fn begin(&self, now_ms: u64) -> bool {
        let last_ms = self.0.load(Relaxed);
        // 0 means never, so a refresh at time 0 is recorded as 1.
        let is_due = last_ms == 0 || now_ms.saturating_sub(last_ms) >= REFRESH_PAUSE_MS;
        let now_ms = now_ms.max(1);
        is_due
            && self
                .0
                .compare_exchange(last_ms, now_ms, Relaxed, Relaxed)
                .is_ok()
    }
}

impl Clone for RefreshTime {
    fn clone(&self) -> RefreshTime {
        RefreshTime(AtomicU64::new(self.0.load(Relaxed)))
    }
}

impl ObjectValidity {
    /// The validity of an object made from files at `checked_ms`. With a watched folder and its earlier generation, it
    /// lasts until a change there.
    pub fn from_files(trust: WatchTrust, checked_ms: u64) -> ObjectValidity {
        let (folder, generation) = trust.unzip();
        ObjectValidity::Unchanged(FileEvidence {
            folder,
            generation: AtomicU64::new(generation.unwrap_or(0)),
            checked_ms: AtomicU64::new(checked_ms),
            sources: None,
        })
    }

    /// Adds the source files.
    pub fn made_of(self, sources: Arc<SourceFiles>) -> ObjectValidity {
        match self {
            ObjectValidity::Unchanged(unchanged) => ObjectValidity::Unchanged(FileEvidence {
                sources: Some(sources),
                ..unchanged
            }),
            ObjectValidity::Lifetime(_) => self,
        }
    }

    /// The source files; `None` for handlers' responses.
    pub fn sources(&self) -> Option<&Arc<SourceFiles>> {
        match self {
            ObjectValidity::Unchanged(unchanged) => unchanged.sources.as_ref(),
            ObjectValidity::Lifetime(_) => None,
        }
    }

    /// Whether the object may be used without checking its source.
    #[inline]
    pub fn holds(&self, now_ms: u64) -> bool {
        match self {
            ObjectValidity::Unchanged(unchanged) => unchanged.holds(now_ms),
            ObjectValidity::Lifetime(lifetime) => lifetime.is_fresh(now_ms),
        }
    }

    /// How the object may be used for a request.
    pub fn use_for(&self, asked: &RequestDirectives, now_ms: u64) -> Reusability {
        match self {
            ObjectValidity::Unchanged(unchanged) if unchanged.holds(now_ms) => Reusability::Fresh,
            ObjectValidity::Unchanged(_) => Reusability::Validate,
            ObjectValidity::Lifetime(lifetime) => lifetime.use_for(asked, now_ms),
        }
    }

    /// Whether the object may be used stale because its origin failed.
    pub fn stands_in(&self, asked: &RequestDirectives, now_ms: u64) -> bool {
        let lifetime = self.lifetime();
        lifetime.is_some_and(|lifetime| {
            lifetime.is_for(asked) && lifetime.times().stands_in(asked, now_ms)
        })
    }

    /// Whether changes to its source files are reported.
    pub fn is_watched(&self) -> bool {
        matches!(self, ObjectValidity::Unchanged(unchanged) if unchanged.folder.is_some())
    }

    /// Records that the files, checked at `checked_ms`, are unchanged; `trust` is from before the check. Returns false
    /// if the object's folder is no longer the watched one.
    pub fn renew(&self, trust: &WatchTrust, checked_ms: u64) -> bool {
        let ObjectValidity::Unchanged(unchanged) = self else {
            return false;
        };
        let (is_same, generation) = match (&unchanged.folder, trust) {
            (Some(own), Some((other, generation))) => (Arc::ptr_eq(own, other), *generation),
            // Unwatched before and now: the check itself is the evidence.
            (None, None) => (true, 0),
            _ => (false, 0),
        };
        if is_same {
            unchanged.set(generation, checked_ms);
        }
        is_same
    }

    /// Ends the validity: the next use checks the files.
    pub fn end(&self) {
        if let ObjectValidity::Unchanged(unchanged) = self {
            unchanged.set(0, 0);
        }
    }

    /// The lifetime, if it has one.
    #[inline]
    pub fn lifetime(&self) -> Option<&StoredExpiry> {
        match self {
            ObjectValidity::Unchanged(_) => None,
            ObjectValidity::Lifetime(lifetime) => Some(lifetime),
        }
    }
}

impl FileEvidence {
    #[inline]
    fn holds(&self, now_ms: u64) -> bool {
        let watched = self.folder.as_ref();
        watched.is_some_and(|folder| folder.generation() == self.generation.load(Relaxed))
            // Without a watch, or after an event, a recent check holds for a moment.
            || now_ms.saturating_sub(self.checked_ms.load(Relaxed)) < TRUST_MS
    }

    fn set(&self, generation: u64, checked_ms: u64) {
        self.generation.store(generation, Relaxed);
        self.checked_ms.store(checked_ms, Relaxed);
    }
}

impl Clone for StoredExpiry {
    fn clone(&self) -> StoredExpiry {
        StoredExpiry {
            // Acquire first: the clone then includes the effects of all purges that its generation covers.
            generation: AtomicU64::new(self.generation.load(Acquire)),
            until_ms: AtomicU64::new(self.until_ms.load(Relaxed)),
            more: self.more.clone(),
            flags: AtomicU8::new(self.flags.load(Relaxed)),
            ..*self
        }
    }
}

#[cfg(test)]
impl StoredExpiry {
    /// A lifetime from 0 to `until_ms`, for tests.
    pub fn until(until_ms: u64) -> StoredExpiry {
        let times = Times {
            born_ms: 0,
            until_ms,
            swr_until_ms: until_ms,
            sie_until_ms: until_ms,
            no_cache: false,
            must_revalidate: false,
            was_useful: true,
        };
        StoredExpiry::new(&times, LifetimeSource::MaxAge)
    }
}

impl StoredExpiry {
    /// Creates a lifetime with these times.
    pub fn new(times: &Times, source: LifetimeSource) -> StoredExpiry {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let more = ExpiryExtras {
            swr_ms: times.swr_until_ms.saturating_sub(times.until_ms),
            sie_ms: times.sie_until_ms.saturating_sub(times.until_ms),
            ..ExpiryExtras::default()
        };
        StoredExpiry {
            generation: AtomicU64::default(),
            until_ms: AtomicU64::new(times.until_ms),
            born_ms: times.born_ms,
            more: (more.swr_ms > 0 || more.sie_ms > 0).then(|| Box::new(more)),
            forgotten: 0,
            flags: AtomicU8::new(
                flag(times.no_cache, NO_CACHE)
                    | flag(times.must_revalidate, MUST_REVALIDATE)
                    | flag(times.was_useful, WAS_USEFUL),
            ),
            source,
        }
    }

    /// Sets whether it is also for requests with Authorization.
    pub fn for_all(mut self, is_for_all: bool) -> StoredExpiry {
        let flags = self.flags.get_mut();
        *flags = *flags & !IS_FOR_ALL | if is_for_all { IS_FOR_ALL } else { 0 };
        self
    }

    /// Applies a soft purge: the object is stale from this time on.
    pub(super) fn end_softly(&self, at_ms: u64) {
        self.until_ms.fetch_min(at_ms, Relaxed);
        self.flags.fetch_or(SOFTLY_PURGED, Relaxed);
    }

    /// Sets the purge epoch before the fetch.
    pub fn since(self, purges: PurgeEpoch) -> StoredExpiry {
        StoredExpiry {
            generation: AtomicU64::new(purges.generation),
            forgotten: purges.forgotten,
            ..self
        }
    }

    /// Sets the names for purges: tags separated by commas, then a group after each line feed.
    pub fn named(mut self, names: Vec<u8>) -> StoredExpiry {
        if !names.is_empty() {
            self.more.get_or_insert_default().names = names.into();
        }
        self
    }

    /// Adds a tag.
    pub fn tagged(self, tag: &str) -> StoredExpiry {
        // In front: groups follow the tags.
        let names = [tag.as_bytes(), b",", self.names()].concat();
        self.named(names)
    }

    /// The size in bytes of the separate part.
    pub fn size(&self) -> usize {
        let size = |more: &ExpiryExtras| size_of::<ExpiryExtras>() + more.names.len();
        self.more.as_deref().map_or(0, size)
    }

    fn is(&self, flag: u8) -> bool {
        self.flags.load(Relaxed) & flag != 0
    }

    /// The age in seconds, for the Age field.
    #[inline]
    pub fn age_s(&self, now_ms: u64) -> u64 {
        lifetime::age_ms(self.born_ms, now_ms) / 1000
    }

    /// The end of freshness after purges, monotonic ms.
    #[inline]
    pub fn until_ms(&self) -> u64 {
        self.until_ms.load(Relaxed)
    }

    /// The times after purges.
    pub fn times(&self) -> Times {
        let until_ms = self.until_ms();
        let more = self.more.as_ref();
        let end_of = |window_ms: Option<u64>| until_ms.saturating_add(window_ms.unwrap_or(0));
        Times {
            born_ms: self.born_ms,
            until_ms,
            swr_until_ms: end_of(more.map(|more| more.swr_ms)),
            sie_until_ms: end_of(more.map(|more| more.sie_ms)),
            no_cache: self.is(NO_CACHE),
            must_revalidate: self.is(MUST_REVALIDATE),
            was_useful: self.is(WAS_USEFUL),
        }
    }

    /// Whether it could be used without validation when it was received, fresh or stale.
    pub fn was_useful(&self) -> bool {
        self.is(WAS_USEFUL)
    }

    /// Whether it is also for requests with Authorization (RFC 9111 §3.5).
    pub fn is_for_all(&self) -> bool {
        self.is(IS_FOR_ALL)
    }

    /// Whether it may be used for a request without cache directives: [`Reusability::Fresh`] for [`RequestDirectives::GET`].
    #[inline]
    fn is_fresh(&self, now_ms: u64) -> bool {
        // Two loads: this runs for every hit.
        !self.is(NO_CACHE | SOFTLY_PURGED) && now_ms < self.until_ms()
    }

    /// Whether a background refresh is due. Of concurrent callers, one gets true.
    pub fn begin_refresh(&self, now_ms: u64) -> bool {
        // Without a window, the object is never used stale in this way, so no pause is recorded.
        let more = self.more.as_ref();
        more.is_none_or(|more| more.refreshed.begin(now_ms))
    }

    fn use_for(&self, asked: &RequestDirectives, now_ms: u64) -> Reusability {
        if !self.is_for(asked) {
            return Reusability::Validate;
        }
        let times = self.times();
        // A time that was read before the purge must not make the object look fresh.
        let now_ms = match self.is(SOFTLY_PURGED) {
            true => now_ms.max(times.until_ms),
            false => now_ms,
        };
        times.use_for(asked, now_ms)
    }

    /// Whether the object may answer a request that its origin has not seen.
    fn is_for(&self, asked: &RequestDirectives) -> bool {
        self.is_for_all() || !asked.is_authorized
    }

    /// The names for purges, see `StoredExpiry::named`.
    pub fn names(&self) -> &[u8] {
        self.more.as_ref().map_or(&[], |more| &more.names)
    }

    /// Its tags.
    pub fn tags(&self) -> impl Iterator<Item = &[u8]> {
        let tags = self.names().split(|b| *b == b'\n').next();
        let tags = tags.unwrap_or_default().split(|b| *b == b',');
        tags.map(<[u8]>::trim_ascii).filter(|tag| !tag.is_empty())
    }

    /// Its groups (RFC 9875).
    pub fn groups(&self) -> impl Iterator<Item = &[u8]> {
        self.names().split(|b| *b == b'\n').skip(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_watch_an_object_holds_for_a_moment() {
        let validity = ObjectValidity::from_files(None, 1000);
        assert!(validity.holds(1000 + TRUST_MS - 1) && !validity.holds(1000 + TRUST_MS));
        assert!(validity.renew(&None, 2000) && validity.holds(2000));
        validity.end();
        assert!(!validity.holds(2000));
    }

    #[test]
    fn a_refresh_is_tried_again_after_a_pause() {
        let refreshed = RefreshTime::default();
        assert!(refreshed.begin(0) && !refreshed.begin(999));
        assert!(refreshed.begin(1 + REFRESH_PAUSE_MS) && !refreshed.begin(1 + REFRESH_PAUSE_MS));
    }

    #[test]
    fn its_times_are_those_that_it_was_given() {
        let plain = StoredExpiry::until(5000).times();
        assert_eq!(
            StoredExpiry::new(&plain, LifetimeSource::MaxAge).times(),
            plain
        );
        let times = Times {
            born_ms: -7,
            swr_until_ms: 6000,
            sie_until_ms: 9000,
            no_cache: true,
            ..plain
        };
        let lifetime = StoredExpiry::new(&times, LifetimeSource::SMaxage).named(b"a".to_vec());
        assert_eq!((lifetime.times(), lifetime.names()), (times, &b"a"[..]));
        // A soft purge leaves the same times as `expired`.
        lifetime.until_ms.fetch_min(2000, Relaxed);
        assert_eq!(lifetime.clone().times(), times.expired(2000));
    }

    #[test]
    fn a_lifetime_ends_and_has_an_age() {
        let times = Times {
            born_ms: 1000,
            ..StoredExpiry::until(61_000).times()
        };
        let lifetime = StoredExpiry::new(&times, LifetimeSource::MaxAge);
        let lifetime = lifetime.named(b"news, Sport\nfront, page".to_vec());
        assert_eq!((lifetime.age_s(1999), lifetime.age_s(3500)), (0, 2));
        assert!(lifetime.tags().eq([b"news", &b"Sport"[..]]));
        assert!(lifetime.groups().eq([b"front, page"]));
        let validity = ObjectValidity::Lifetime(lifetime);
        assert!(validity.holds(60_999) && !validity.holds(61_000));
        assert!(!validity.renew(&None, 61_000));
    }
}
