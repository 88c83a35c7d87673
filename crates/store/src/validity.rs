//! How long a stored object may be used: while its source files are unchanged, or for a freshness lifetime, unless a
//! purge ends it.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed},
};

use lowroad_cache::freshness::LifetimeSource;
use lowroad_cache::lifetime::{self, ReuseDeadlines as Times};
use lowroad_cache::request::RequestDirectives;

pub use lowroad_cache::lifetime::Reusability;

use super::object::SourceFiles;
use super::purge_epoch::PurgeEpoch;
use crate::watch::{WatchTrust, WatchedFolder};

/// For this time after a check (ms), an object from an unwatched folder is used without another check. A change is thus
/// detected in less than a second.
pub const TRUST_MS: u64 = 500;

/// The conditions of an object's validity. `StoredExpiry` is not boxed although it is the larger variant: nearly all
/// objects have one.
pub enum ObjectValidity {
    /// Source files: the object is valid while they are unchanged.
    Unchanged(FileEvidence),
    /// A freshness lifetime and purges.
    Lifetime(StoredExpiry),
}

/// Tells whether an object's source files are unchanged.
pub struct FileEvidence {
    /// The watched folder; without one, the object is valid for [`TRUST_MS`] after a check.
    folder: Option<Arc<WatchedFolder>>,
    /// The folder's generation before the object was made.
    generation: AtomicU64,
    /// The time of the last check, monotonic ms.
    checked_ms: AtomicU64,
    /// The stamps of the files, to be compared in a check.
    sources: Option<Arc<SourceFiles>>,
}

/// The expiry of a handler's response. There is one for each stored response, so rarely used parts are separate.
pub struct StoredExpiry {
    /// The purge generation up to which the object was compared with the purge rules. At first the purge generation
    /// that was current when the handler was called, since the response may be older than later purges.
    pub(super) generation: AtomicU64,
    /// The end of freshness, monotonic ms. A soft purge lowers it.
    pub(super) fresh_until_ms: AtomicU64,
    /// See [`Times`].
    generated_ms: i64,
    extras: Option<Box<ExpiryExtras>>,
    /// The deletion count of the key's slot when the handler was called; see [`PurgeEpoch`].
    pub deletion_count: u32,
    flags: AtomicU8,
    /// The source of the lifetime.
    pub source: LifetimeSource,
}

/// Each use needs validation.
const NO_CACHE: u8 = 1;
/// See [`Times`].
const MUST_REVALIDATE: u8 = 1 << 1;
/// See [`Times`].
const WAS_REUSABLE: u8 = 1 << 2;
/// The response may also answer requests with Authorization (RFC 9111 §3.5).
const IS_SHAREABLE: u8 = 1 << 3;
/// A soft purge has made the response stale, even for a worker with a time before the purge: workers read the clock
/// only once per event loop turn.
const SOFTLY_PURGED: u8 = 1 << 4;

/// Parts that few responses need.
#[derive(Clone, Default)]
struct ExpiryExtras {
    /// The stale-while-revalidate window, ms (RFC 5861 §3).
    swr_ms: u64,
    /// The stale-if-error window, ms (RFC 5861 §4).
    sie_ms: u64,
    /// The names by which the response can be purged: tags separated by commas, then groups, each after a line feed.
    names: Box<[u8]>,
    /// The time of the last background refresh.
    refreshed: RefreshTime,
}

/// The time of the last background refresh, monotonic ms; 0 if there was none.
#[derive(Default)]
struct RefreshTime(AtomicU64);

/// The minimum time between two background refreshes, ms: an origin that fails immediately must not be called for each
/// request.
const REFRESH_PAUSE_MS: u64 = 1000;

impl RefreshTime {
    /// Begins a refresh if one is due. Of concurrent callers, only one gets true.
    fn begin_if_due(&self, now_ms: u64) -> bool {
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
    /// The validity of an object that was made from files at `checked_ms`. If the folder is watched, the object is
    /// valid until a change is reported; `watch_trust` must have been read before the files.
    pub fn from_files(watch_trust: WatchTrust, checked_ms: u64) -> ObjectValidity {
        let (folder, generation) = watch_trust.unzip();
        ObjectValidity::Unchanged(FileEvidence {
            folder,
            generation: AtomicU64::new(generation.unwrap_or(0)),
            checked_ms: AtomicU64::new(checked_ms),
            sources: None,
        })
    }

    /// Adds the source files.
    pub fn with_sources(self, sources: Arc<SourceFiles>) -> ObjectValidity {
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
    pub fn is_valid(&self, now_ms: u64) -> bool {
        match self {
            ObjectValidity::Unchanged(unchanged) => unchanged.is_valid(now_ms),
            ObjectValidity::Lifetime(lifetime) => lifetime.is_fresh(now_ms),
        }
    }

    /// How the object may be used for a request.
    pub fn reusability_for(&self, directives: &RequestDirectives, now_ms: u64) -> Reusability {
        match self {
            ObjectValidity::Unchanged(unchanged) if unchanged.is_valid(now_ms) => {
                Reusability::Fresh
            }
            ObjectValidity::Unchanged(_) => Reusability::Validate,
            ObjectValidity::Lifetime(lifetime) => lifetime.reusability_for(directives, now_ms),
        }
    }

    /// Whether the object may be used stale because its origin failed.
    pub fn is_usable_on_error(&self, directives: &RequestDirectives, now_ms: u64) -> bool {
        let lifetime = self.lifetime();
        lifetime.is_some_and(|lifetime| {
            lifetime.allows_request(directives)
                && lifetime.times().is_usable_on_error(directives, now_ms)
        })
    }

    /// Whether inotify reports changes of the object's source files.
    pub fn is_watched(&self) -> bool {
        matches!(self, ObjectValidity::Unchanged(unchanged) if unchanged.folder.is_some())
    }

    /// Records that the files were unchanged in a check at `checked_ms`; `watch_trust` was read before that check.
    /// Returns false, and records nothing, if `watch_trust` is for another folder than the object has, or if the object
    /// has a lifetime.
    pub fn renew(&self, watch_trust: &WatchTrust, checked_ms: u64) -> bool {
        let ObjectValidity::Unchanged(unchanged) = self else {
            return false;
        };
        let (is_same, generation) = match (&unchanged.folder, watch_trust) {
            (Some(folder), Some((trusted_folder, generation))) => {
                (Arc::ptr_eq(folder, trusted_folder), *generation)
            }
            // Neither the object nor the check has a watched folder, so only the time of the check matters.
            (None, None) => (true, 0),
            _ => (false, 0),
        };
        if is_same {
            unchanged.set(generation, checked_ms);
        }
        is_same
    }

    /// Ends the validity of an object from files, so that the files are checked before the next use.
    pub fn end(&self) {
        if let ObjectValidity::Unchanged(unchanged) = self {
            unchanged.set(0, 0);
        }
    }

    /// The expiry, if the validity depends on a freshness lifetime.
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
    fn is_valid(&self, now_ms: u64) -> bool {
        let watched = self.folder.as_ref();
        watched.is_some_and(|folder| folder.generation() == self.generation.load(Relaxed))
            // Without a watched folder, or after an event, a check within the last `TRUST_MS` suffices.
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
            fresh_until_ms: AtomicU64::new(self.fresh_until_ms.load(Relaxed)),
            extras: self.extras.clone(),
            flags: AtomicU8::new(self.flags.load(Relaxed)),
            ..*self
        }
    }
}

#[cfg(test)]
impl StoredExpiry {
    /// For tests: a lifetime from 0 to `fresh_until_ms`.
    pub fn fresh_until(until_ms: u64) -> StoredExpiry {
        let times = Times {
            generated_ms: 0,
            fresh_until_ms: until_ms,
            swr_until_ms: until_ms,
            sie_until_ms: until_ms,
            no_cache: false,
            must_revalidate: false,
            was_reusable_on_arrival: true,
        };
        StoredExpiry::new(&times, LifetimeSource::MaxAge)
    }
}

impl StoredExpiry {
    /// Creates the expiry with these deadlines.
    pub fn new(times: &Times, source: LifetimeSource) -> StoredExpiry {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let extras = ExpiryExtras {
            swr_ms: times.swr_until_ms.saturating_sub(times.fresh_until_ms),
            sie_ms: times.sie_until_ms.saturating_sub(times.fresh_until_ms),
            ..ExpiryExtras::default()
        };
        StoredExpiry {
            generation: AtomicU64::default(),
            fresh_until_ms: AtomicU64::new(times.fresh_until_ms),
            generated_ms: times.generated_ms,
            extras: (extras.swr_ms > 0 || extras.sie_ms > 0).then(|| Box::new(extras)),
            deletion_count: 0,
            flags: AtomicU8::new(
                flag(times.no_cache, NO_CACHE)
                    | flag(times.must_revalidate, MUST_REVALIDATE)
                    | flag(times.was_reusable_on_arrival, WAS_REUSABLE),
            ),
            source,
        }
    }

    /// Sets whether the response may also answer requests with Authorization.
    pub fn with_shareable(mut self, is_shareable: bool) -> StoredExpiry {
        let flags = self.flags.get_mut();
        *flags = *flags & !IS_SHAREABLE | if is_shareable { IS_SHAREABLE } else { 0 };
        self
    }

    /// Applies a soft purge: the response is stale from `at_ms` on.
    pub(super) fn soft_purge(&self, at_ms: u64) {
        self.fresh_until_ms.fetch_min(at_ms, Relaxed);
        self.flags.fetch_or(SOFTLY_PURGED, Relaxed);
    }

    /// Sets the purge epoch that was read before the fetch.
    pub fn with_purge_epoch(self, purges: PurgeEpoch) -> StoredExpiry {
        StoredExpiry {
            generation: AtomicU64::new(purges.generation),
            deletion_count: purges.deletion_count,
            ..self
        }
    }

    /// Sets the names by which the response can be purged: tags separated by commas, then groups, each after a line
    /// feed.
    pub fn with_names(mut self, names: Vec<u8>) -> StoredExpiry {
        if !names.is_empty() {
            self.extras.get_or_insert_default().names = names.into();
        }
        self
    }

    /// Adds a purge tag.
    pub fn with_tag(self, tag: &str) -> StoredExpiry {
        // The tag is added at the front, since the tags precede the groups.
        let names = [tag.as_bytes(), b",", self.names()].concat();
        self.with_names(names)
    }

    /// The size in bytes of the separately allocated part.
    pub fn size(&self) -> usize {
        let size = |extras: &ExpiryExtras| size_of::<ExpiryExtras>() + extras.names.len();
        self.extras.as_deref().map_or(0, size)
    }

    fn has_flag(&self, flag: u8) -> bool {
        self.flags.load(Relaxed) & flag != 0
    }

    /// The age in seconds, for the Age field.
    #[inline]
    pub fn age_s(&self, now_ms: u64) -> u64 {
        lifetime::age_ms(self.generated_ms, now_ms) / 1000
    }

    /// The end of freshness, including the effect of soft purges; monotonic ms.
    #[inline]
    pub fn fresh_until_ms(&self) -> u64 {
        self.fresh_until_ms.load(Relaxed)
    }

    /// The deadlines, including the effect of soft purges.
    pub fn times(&self) -> Times {
        let until_ms = self.fresh_until_ms();
        let extras = self.extras.as_ref();
        let end_of = |window_ms: Option<u64>| until_ms.saturating_add(window_ms.unwrap_or(0));
        Times {
            generated_ms: self.generated_ms,
            fresh_until_ms: until_ms,
            swr_until_ms: end_of(extras.map(|extras| extras.swr_ms)),
            sie_until_ms: end_of(extras.map(|extras| extras.sie_ms)),
            no_cache: self.has_flag(NO_CACHE),
            must_revalidate: self.has_flag(MUST_REVALIDATE),
            was_reusable_on_arrival: self.has_flag(WAS_REUSABLE),
        }
    }

    /// Whether the response could be used without validation when it was received, fresh or stale.
    pub fn was_reusable_on_arrival(&self) -> bool {
        self.has_flag(WAS_REUSABLE)
    }

    /// Whether the response may also answer requests with Authorization (RFC 9111 §3.5).
    pub fn is_shareable(&self) -> bool {
        self.has_flag(IS_SHAREABLE)
    }

    /// Whether the response is fresh for a request without cache directives: equivalent to [`Reusability::Fresh`] for
    /// [`RequestDirectives::GET`].
    #[inline]
    fn is_fresh(&self, now_ms: u64) -> bool {
        // This runs for every hit, so it does only two loads.
        !self.has_flag(NO_CACHE | SOFTLY_PURGED) && now_ms < self.fresh_until_ms()
    }

    /// Begins a background refresh if one is due. Of concurrent callers, only one gets true.
    pub fn begin_refresh_if_due(&self, now_ms: u64) -> bool {
        // Without extras, there is no stale-while-revalidate, so the time need not be recorded.
        let extras = self.extras.as_ref();
        extras.is_none_or(|extras| extras.refreshed.begin_if_due(now_ms))
    }

    fn reusability_for(&self, directives: &RequestDirectives, now_ms: u64) -> Reusability {
        if !self.allows_request(directives) {
            return Reusability::Validate;
        }
        let times = self.times();
        // `now_ms` may have been read before the soft purge, and must not make the response fresh.
        let now_ms = match self.has_flag(SOFTLY_PURGED) {
            true => now_ms.max(times.fresh_until_ms),
            false => now_ms,
        };
        times.reusability_for(directives, now_ms)
    }

    /// Whether the response may answer this request: requests with Authorization need `IS_SHAREABLE`.
    fn allows_request(&self, directives: &RequestDirectives) -> bool {
        self.is_shareable() || !directives.is_authorized
    }

    /// The names by which the response can be purged; see `StoredExpiry::with_names`.
    pub fn names(&self) -> &[u8] {
        self.extras.as_ref().map_or(&[], |extras| &extras.names)
    }

    /// The purge tags.
    pub fn tags(&self) -> impl Iterator<Item = &[u8]> {
        let tags = self.names().split(|b| *b == b'\n').next();
        let tags = tags.unwrap_or_default().split(|b| *b == b',');
        tags.map(<[u8]>::trim_ascii).filter(|tag| !tag.is_empty())
    }

    /// The cache groups (RFC 9875).
    pub fn groups(&self) -> impl Iterator<Item = &[u8]> {
        self.names().split(|b| *b == b'\n').skip(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwatched_object_is_valid_for_trust_ms() {
        let validity = ObjectValidity::from_files(None, 1000);
        assert!(validity.is_valid(1000 + TRUST_MS - 1) && !validity.is_valid(1000 + TRUST_MS));
        assert!(validity.renew(&None, 2000) && validity.is_valid(2000));
        validity.end();
        assert!(!validity.is_valid(2000));
    }

    #[test]
    fn background_refresh_is_repeated_after_a_pause() {
        let refreshed = RefreshTime::default();
        assert!(refreshed.begin_if_due(0) && !refreshed.begin_if_due(999));
        assert!(
            refreshed.begin_if_due(1 + REFRESH_PAUSE_MS)
                && !refreshed.begin_if_due(1 + REFRESH_PAUSE_MS)
        );
    }

    #[test]
    fn stored_expiry_preserves_deadlines_and_names() {
        let plain = StoredExpiry::fresh_until(5000).times();
        assert_eq!(
            StoredExpiry::new(&plain, LifetimeSource::MaxAge).times(),
            plain
        );
        let times = Times {
            generated_ms: -7,
            swr_until_ms: 6000,
            sie_until_ms: 9000,
            no_cache: true,
            ..plain
        };
        let lifetime = StoredExpiry::new(&times, LifetimeSource::SMaxage).with_names(b"a".to_vec());
        assert_eq!((lifetime.times(), lifetime.names()), (times, &b"a"[..]));
        // A soft purge gives the same deadlines as `after_soft_purge`.
        lifetime.fresh_until_ms.fetch_min(2000, Relaxed);
        assert_eq!(lifetime.clone().times(), times.after_soft_purge(2000));
    }

    #[test]
    fn object_with_lifetime_expires_and_reports_its_age() {
        let times = Times {
            generated_ms: 1000,
            ..StoredExpiry::fresh_until(61_000).times()
        };
        let lifetime = StoredExpiry::new(&times, LifetimeSource::MaxAge);
        let lifetime = lifetime.with_names(b"news, Sport\nfront, page".to_vec());
        assert_eq!((lifetime.age_s(1999), lifetime.age_s(3500)), (0, 2));
        assert!(lifetime.tags().eq([b"news", &b"Sport"[..]]));
        assert!(lifetime.groups().eq([b"front, page"]));
        let validity = ObjectValidity::Lifetime(lifetime);
        assert!(validity.is_valid(60_999) && !validity.is_valid(61_000));
        assert!(!validity.renew(&None, 61_000));
    }
}
