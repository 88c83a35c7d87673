//! Purge rules for objects with a freshness lifetime, in a [`lowroad_cache::ban_list`]. A purge adds a rule in constant
//! time, regardless of the number of stored objects; an object is compared with the rules at its next look-up.
//!
//! URLs, hosts, tags and groups are hashed names. A purged URL prefix is a name as well: for each length of a purged
//! prefix, the first bytes of an object's URL of that length are looked up. Only "all", and prefixes beyond the
//! permitted number of lengths, are pattern rules; an object is compared with each of these.

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

/// The maximum number of pattern rules.
const RULES_MAX: usize = 4096;
/// The maximum number of prefix lengths that are hashed, which bounds the look-ups of a check. Prefixes of other
/// lengths become pattern rules.
const PREFIX_LENGTHS_MAX: usize = 128;
/// The maximum number of names; each takes about 50 bytes.
const MARKS_MAX: usize = 1 << 18;

/// The target of a purge.
pub enum PurgeRequest<'p> {
    /// By URL or host.
    Urls(&'p RequestPattern),
    /// Responses with this tag, case-insensitively.
    Tag(&'p [u8]),
    /// Responses of a group, given by the Host (empty: all hosts) and the group's name.
    Group(&'p [u8], &'p [u8]),
}

/// The port in a name.
#[derive(Clone, Copy, Hash)]
enum NamePort {
    /// The port of a Host field, which may have none.
    Exact(Option<u16>),
    /// Any port: each object also has a name without its port, for purges of URLs without one.
    Any,
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
    /// Purge requests.
    pub purges: u64,
    /// Pattern rules and names in memory.
    pub rules: u64,
    /// Pattern rules and names that were dropped to make room.
    pub dropped: u64,
    /// Objects deleted by hard purges.
    pub deleted: u64,
    /// Objects made stale by soft purges.
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
    /// Adds a prefix length to the hashed ones; false if there are too many.
    fn hashes_prefix_len(&mut self, len: usize) -> bool {
        // Each length costs one hash look-up in every check of an object.
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

    /// Adds a purge: matching objects, and responses to fetches that began before, are no longer used. Returns the
    /// purge's generation.
    pub fn add(&self, purge: &PurgeRequest<'_>, kind: PurgeMode) -> u64 {
        self.add_after(0, purge, kind)
    }

    /// Repeats a purge of an earlier process with the purge's generation. Must be called in order, before new purges.
    pub fn replay(&self, generation: u64, purge: &PurgeRequest<'_>, kind: PurgeMode) {
        self.add_after(generation.saturating_sub(1), purge, kind);
    }

    /// Makes the generations of later purges greater than this one.
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
        // Stored after the rule is in the list, since an object with this generation counts as compared with the rule.
        self.generation.store(generation, SeqCst);
        // Unlocked first, since logging may block.
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

    /// The names that a purge marks, or its pattern if the purge becomes a pattern rule.
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
            // Names are looked up by hash, in constant time for any number of purges.
            RequestPattern::Host(host) => Ok(vec![self.host(Some(host)), self.host(None)]),
            RequestPattern::Url {
                host,
                port,
                target,
                is_prefix,
            } if !is_prefix || rules.hashes_prefix_len(target.len()) => {
                let name = |(host, port)| match is_prefix {
                    true => self.prefix(host, port, target),
                    false => self.url(host, port, target),
                };
                // A request's Host may lack the port, or be missing (HTTP/1.0).
                let names = match port {
                    Some(port) => vec![
                        (Some(&**host), NamePort::Exact(Some(*port))),
                        (Some(&**host), NamePort::Exact(None)),
                        (None, NamePort::Exact(None)),
                    ],
                    None => vec![(Some(&**host), NamePort::Any), (None, NamePort::Any)],
                };
                Ok(names.into_iter().map(name).collect())
            }
            _ => Err(pattern),
        }
    }

    /// Whether an object has been compared with all rules.
    #[inline]
    pub fn is_up_to_date(&self, lifetime: &StoredExpiry) -> bool {
        lifetime.generation.load(Acquire) == self.generation()
    }

    /// Compares the object of a key with the rules that are newer than its last comparison. Returns whether a hard
    /// purge matched; after a soft purge, the object is stale but not purged.
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
                // Release: a thread that reads this generation also sees the effect of a soft purge.
                lifetime.generation.store(bans.generation(), Release);
                false
            }
        }
    }

    /// The effect of purges after generation `since` on an object outside this store (on disk), with this Host and
    /// target.
    pub fn ban(
        &self,
        since: u64,
        authority: &[u8],
        target: &[u8],
        lifetime: Option<&StoredExpiry>,
    ) -> BanVerdict {
        // If there was no purge since, no lock is needed.
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
        // Names are built from the decoded target, so that equivalent forms of a URL are purged together.
        let decoded = decode_target(target);
        let ports = [NamePort::Exact(port), NamePort::Any];
        let mut names = vec![self.host(host)];
        names.extend(ports.map(|port| self.url(host, port, &decoded)));
        for &len in prefix_lengths.range(..=decoded.len()) {
            names.extend(ports.map(|port| self.prefix(host, port, &decoded[..len])));
        }
        let Some(lifetime) = lifetime else {
            return names;
        };
        names.extend(lifetime.tags().map(|name| self.tag(name)));
        for name in lifetime.groups() {
            names.extend([self.group(authority, name), self.group(b"", name)]);
        }
        names
    }

    fn url(&self, host: Option<&[u8]>, port: NamePort, target: &[u8]) -> u64 {
        self.hasher.hash_one(("url", host, port, target))
    }

    fn prefix(&self, host: Option<&[u8]>, port: NamePort, start: &[u8]) -> u64 {
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
        // An authority with the default port equals one without a port.
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
