//! Purge rules for objects with a lifetime. A purge records a rule in constant time, regardless of the number of stored
//! objects; an object is compared with the rules at its next look-up. The rules are those of [`lowroad_cache::ban_list`].
//!
//! URLs, hosts, tags and groups are hashed names. URL prefixes are names, too: an object has one for each length of a
//! purged prefix. Only "all", and prefixes beyond the permitted number of lengths, are rules that are scanned.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use lowroad_cache::ban_list::BanList;
use lowroad_cache::pattern::{RequestPattern, decode_target};
use lowroad_http::host;
use lowroad_log::ErrorLogger;

use super::key;
use super::validity::StoredExpiry;

pub use lowroad_cache::ban_list::{BanVerdict, PurgeMode};

/// The maximum number of scanned rules.
const RULES_MAX: usize = 4096;
/// The number of prefix lengths that are hashed, which bounds the look-ups of a check. Other prefixes are scanned
/// rules.
const PREFIX_LENGTHS_MAX: usize = 128;
/// The maximum number of names; each takes about 50 bytes.
const MARKS_MAX: usize = 1 << 18;

/// The target of a purge.
pub enum PurgeRequest<'p> {
    /// By URL or host.
    Urls(&'p RequestPattern),
    /// Responses with this tag, case-insensitively.
    Tag(&'p [u8]),
    /// Responses of this group, limited to this Host unless it is empty.
    Group(&'p [u8], &'p [u8]),
}

/// The purge rules of a store.
pub struct StorePurges {
    rules: Mutex<PurgeRules>,
    generation: AtomicU64,
    /// The first generation of this process.
    first: AtomicU64,
    hasher: foldhash::fast::RandomState,
    deleted: AtomicU64,
    stale: AtomicU64,
    logger: OnceLock<ErrorLogger>,
}

struct PurgeRules {
    bans: BanList<RequestPattern>,
    /// The prefix lengths that are hashed.
    prefix_lengths: BTreeSet<usize>,
}

/// The counters of purges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeCounters {
    /// Purges.
    pub purges: u64,
    /// Rules and names in memory.
    pub rules: u64,
    /// Rules and names that were dropped to make room.
    pub dropped: u64,
    /// Objects that a purge deleted.
    pub deleted: u64,
    /// Objects that a purge made stale.
    pub stale: u64,
}

impl Default for StorePurges {
    fn default() -> StorePurges {
        StorePurges {
            rules: Mutex::new(PurgeRules {
                bans: BanList::new(RULES_MAX, MARKS_MAX),
                prefix_lengths: BTreeSet::new(),
            }),
            generation: AtomicU64::new(0),
            first: AtomicU64::new(0),
            hasher: foldhash::fast::RandomState::default(),
            deleted: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            logger: OnceLock::new(),
        }
    }
}

impl PurgeRules {
    /// Whether prefixes of this length are hashed from now on.
    fn hashes_prefix_len(&mut self, len: usize) -> bool {
        // Each length costs one hash at every comparison; other prefixes are compared as patterns.
        let has_room = self.prefix_lengths.len() < PREFIX_LENGTHS_MAX;
        if has_room {
            self.prefix_lengths.insert(len);
        }
        has_room || self.prefix_lengths.contains(&len)
    }
}

impl StorePurges {
    /// Sets the logger for dropped purges. Only the first call has an effect.
    pub fn log_to(&self, logger: ErrorLogger) {
        let _ = self.logger.set(logger);
    }

    /// The generation of the last purge.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    /// Purges: matching objects and fetches begun earlier are not used any more. Returns the purge's generation.
    pub fn add(&self, purge: &PurgeRequest<'_>, kind: PurgeMode) -> u64 {
        self.add_after(0, purge, kind)
    }

    /// Repeats a purge of an earlier process with its generation. Must be called in order, before new purges.
    pub fn replay(&self, generation: u64, purge: &PurgeRequest<'_>, kind: PurgeMode) {
        self.add_after(generation.saturating_sub(1), purge, kind);
    }

    /// Gives later purges generations greater than this one.
    pub fn resume_after(&self, generation: u64) {
        let bans = &mut self.lock().bans;
        bans.skip_to(generation);
        self.first.store(bans.generation(), Relaxed);
        self.generation.store(bans.generation(), SeqCst);
    }

    fn add_after(&self, generation: u64, purge: &PurgeRequest<'_>, kind: PurgeMode) -> u64 {
        let mut rules = self.lock();
        rules.bans.skip_to(generation);
        let dropped = rules.bans.dropped();
        match self.names_to_mark(purge, &mut rules) {
            Ok(names) => rules.bans.mark(names, kind),
            Err(pattern) => rules.bans.add(pattern.clone(), kind),
        }
        let (generation, dropped) = (rules.bans.generation(), rules.bans.dropped() - dropped);
        // After the rule is in the list: an object with this generation has been compared with it.
        self.generation.store(generation, SeqCst);
        // Logging may block.
        drop(rules);
        if dropped > 0
            && let Some(logger) = self.logger.get()
        {
            logger.warn(format_args!(
                "too many purges to keep: the {dropped} oldest were dropped, with all stored \
                 responses that were not used since"
            ));
        }
        generation
    }

    /// The names that a purge marks, or the pattern to be scanned.
    fn names_to_mark<'p>(
        &self,
        purge: &PurgeRequest<'p>,
        rules: &mut PurgeRules,
    ) -> Result<Vec<u64>, &'p RequestPattern> {
        let pattern = match purge {
            PurgeRequest::Tag(name) => return Ok(vec![self.tag(name)]),
            PurgeRequest::Group(authority, name) => return Ok(vec![self.group(authority, name)]),
            PurgeRequest::Urls(pattern) => *pattern,
        };
        match pattern {
            // Names are compared by hash, in constant time for any number of purges.
            RequestPattern::Host(host) => Ok(vec![self.host(Some(host)), self.host(None)]),
            RequestPattern::Url {
                host,
                port,
                target,
                is_prefix,
            } if !is_prefix || rules.hashes_prefix_len(target.len()) => {
                // A request's Host may lack the port, or be missing (HTTP/1.0).
                let authorities = [
                    (Some(&**host), Some(*port)),
                    (Some(&**host), None),
                    (None, None),
                ];
                let name = |(host, port)| match is_prefix {
                    true => self.prefix(host, port, target),
                    false => self.url(host, port, target),
                };
                Ok(authorities.map(name).into())
            }
            _ => Err(pattern),
        }
    }

    /// Whether an object has been compared with all rules.
    #[inline]
    pub fn is_up_to_date(&self, lifetime: &StoredExpiry) -> bool {
        lifetime.generation.load(Acquire) == self.generation()
    }

    /// Compares an object under a key with the rules that are newer than its last comparison; returns whether it is
    /// purged.
    pub fn is_purged(&self, key: &[u8], lifetime: &StoredExpiry) -> bool {
        let Some((authority, target)) = key::handler_key_parts(key) else {
            return false;
        };
        let rules = self.lock();
        let names = self.names(authority, target, Some(lifetime), &rules.prefix_lengths);
        let bans = &rules.bans;
        let is_match = |pattern: &RequestPattern| pattern.matches(authority, None, target);
        let ban = bans.check(lifetime.generation.load(Acquire), names, is_match);
        if let BanVerdict::Soft { at_ms } = ban {
            lifetime.soft_purge(at_ms);
            self.stale.fetch_add(1, Relaxed);
        }
        match ban {
            BanVerdict::Hard => {
                self.deleted.fetch_add(1, Relaxed);
                true
            }
            BanVerdict::None | BanVerdict::Soft { .. } => {
                // Release: a reader of the generation sees the effect of a soft purge, too.
                lifetime.generation.store(bans.generation(), Release);
                false
            }
        }
    }

    /// The effect of purges after generation `since` on an object outside this store, under this Host and target, with
    /// a lifetime or without one.
    pub fn ban(
        &self,
        since: u64,
        authority: &[u8],
        target: &[u8],
        lifetime: Option<&StoredExpiry>,
    ) -> BanVerdict {
        // No purge since: no lock is needed.
        if since == self.generation() {
            return BanVerdict::None;
        }
        let rules = self.lock();
        let names = self.names(authority, target, lifetime, &rules.prefix_lengths);
        let is_match = |pattern: &RequestPattern| pattern.matches(authority, None, target);
        rules.bans.check(since, names, is_match)
    }

    /// The names by which an object can be purged.
    fn names(
        &self,
        authority: &[u8],
        target: &[u8],
        lifetime: Option<&StoredExpiry>,
        prefix_lengths: &BTreeSet<usize>,
    ) -> Vec<u64> {
        let mut out = [0; 256];
        let host = host::normalize(authority, &mut out);
        let port = host.and_then(|_| host::port(authority));
        // Equivalent forms of a URL are purged together.
        let decoded = decode_target(target);
        let mut names = vec![self.url(host, port, &decoded), self.host(host)];
        let prefixes = prefix_lengths.range(..=decoded.len());
        names.extend(prefixes.map(|&len| self.prefix(host, port, &decoded[..len])));
        let Some(lifetime) = lifetime else {
            return names;
        };
        names.extend(lifetime.tags().map(|name| self.tag(name)));
        for name in lifetime.groups() {
            names.extend([self.group(authority, name), self.group(b"", name)]);
        }
        names
    }

    fn url(&self, host: Option<&[u8]>, port: Option<u16>, target: &[u8]) -> u64 {
        self.hasher.hash_one(("url", host, port, target))
    }

    fn prefix(&self, host: Option<&[u8]>, port: Option<u16>, start: &[u8]) -> u64 {
        self.hasher.hash_one(("prefix", host, port, start))
    }

    fn host(&self, name: Option<&[u8]>) -> u64 {
        self.hasher.hash_one(("host", name))
    }

    fn tag(&self, name: &[u8]) -> u64 {
        let name = name.to_ascii_lowercase();
        self.hasher.hash_one(("tag", name))
    }

    /// Groups belong to one origin (RFC 9875 §2).
    fn group(&self, authority: &[u8], name: &[u8]) -> u64 {
        let mut out = [0; 256];
        let host = host::normalize(authority, &mut out);
        // The default port and none are the same authority.
        let port = host::port(authority).filter(|port| *port != 80);
        self.hasher.hash_one(("group", host, port, name))
    }

    /// The counters.
    pub fn counters(&self) -> PurgeCounters {
        let bans = &self.lock().bans;
        PurgeCounters {
            purges: bans.generation() - self.first.load(Relaxed),
            rules: bans.len() as u64,
            dropped: bans.dropped(),
            deleted: self.deleted.load(Relaxed),
            stale: self.stale.load(Relaxed),
        }
    }

    fn lock(&self) -> MutexGuard<'_, PurgeRules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
