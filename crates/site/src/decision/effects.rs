//! The effects that are open to a decision. There are three implementations: a worker's loads files and calls
//! handlers; a level offer's answers from memory only; an explanation's loads on its own thread and changes nothing.
//! The decision itself is the same.

use std::net::IpAddr;
use std::sync::Arc;

use lowroad_access_control::AccessRule;
use lowroad_access_control::passwords::{BasicCredentials, PasswordFile, PasswordOutcome};
use lowroad_access_control::traffic_classes::{ClassChoice, TrafficClass};
use lowroad_config::{AliasConfig, RewriteConfig};
use lowroad_engine::{Exchange, ExchangeId};
use lowroad_files::file_loader::{LoadOutcome, LoadRequest};
use lowroad_http::request::Request;
use lowroad_limits::{ClientRates, retry_after_s};
use lowroad_response_cache::calls::{CallStatus, HandlerCall, HandlerCalls};
use lowroad_response_cache::handler_outcome::HandlerOutcome;
use lowroad_response_cache::purge::PurgeTarget;
use lowroad_response_cache::reuse::CacheKey;
use lowroad_response_cache::storage::StoredResponse;
use lowroad_routes::counts::increment;
use lowroad_routes::routes::Route;
use lowroad_site_rules::{FormSet, PathMatches};
use lowroad_store::clock;
use lowroad_store::disk_cache::{self, RecallRequest};
use lowroad_store::purge_rules::PurgeMode;
use lowroad_store::validity::Reusability;
use lowroad_store::{ObjectArc, StoredObject, VariantSet};

use super::context::RequestContext;
use crate::sites::Site;

/// Loads, calls, purges and checks that a decision can start.
pub trait Effects {
    /// The hash under which a key is looked up.
    fn hash(&self, key: &[u8]) -> u64;

    /// The stored objects under a key.
    fn find(&self, hash: u64, key: &[u8]) -> Option<VariantSet>;

    /// The stored objects under a key, unless they were purged.
    fn find_unpurged(&self, hash: u64, key: &[u8]) -> Option<VariantSet>;

    /// Starts to load a file.
    fn fetch(&self, request: LoadRequest, id: ExchangeId) -> LoadProgress;

    /// Starts to load a response from disk into memory. False: the disk has none, or the helpers are busy.
    fn recall(&self, recall: &DiskRecall<'_>, id: ExchangeId) -> bool;

    /// Puts a request to a handler.
    fn call(&self, call: &HandlerCall<'_>, exchange: &mut Exchange) -> CallStatus;

    /// Revalidates a stored response that was just used stale, in the background (RFC 5861).
    fn refresh(&self, call: &HandlerCall<'_>, exchange: &mut Exchange);

    /// Purges stored responses, where the effects allow it.
    fn purge(&self, _: &PurgeTarget, _: PurgeMode) {}

    /// Whether an outcome will be posted once all purges so far are durable. False: no storage outlives the process.
    fn await_durable_purges(&self, _: ExchangeId) -> bool {
        false
    }

    /// Returns a stored response if its body can begin; otherwise registers the request and posts the outcome later.
    fn wait(&self, stored: StoredResponse, _: ExchangeId) -> Option<StoredResponse> {
        Some(stored)
    }

    /// Takes one request of a class's rate; the error is the number of seconds until the next may come.
    fn take(&self, class: &TrafficClass, now_ms: u64) -> Result<(), u64>;

    /// Takes one request of a client's rate under a rule; the error is the number of seconds until the next may come.
    fn take_client_rate(&self, _: &ClientRates, _: IpAddr, _now_ms: u64) -> Result<(), u64> {
        Ok(())
    }

    /// Checks a request's password; `None` if the outcome is posted later.
    fn check(
        &self,
        _: &Arc<PasswordFile>,
        _: BasicCredentials,
        _: IpAddr,
        _: ExchangeId,
    ) -> Option<PasswordOutcome> {
        None
    }

    /// Records a step of the decision, in order.
    fn trace(&self, event: TraceEvent<'_>);
}

/// A look-up in the disk cache.
pub struct DiskRecall<'r> {
    /// The site of the request.
    pub site: &'r Site,
    /// The key in memory.
    pub key: &'r [u8],
    /// The hash of the key.
    pub hash: u64,
    /// The client's request.
    pub request: &'r Request<'r>,
    /// The response is known to vary by request fields (RFC 9111 §4.1).
    pub is_for_lines: bool,
}

/// The progress of a load.
pub enum LoadProgress {
    /// The file is loaded.
    Loaded(LoadOutcome),
    /// The outcome is posted later.
    Later,
    /// Too many loads are queued.
    Refused,
}

/// A step of a decision.
pub enum TraceEvent<'s> {
    /// No site serves the authority.
    NoSite,
    /// This site serves the request.
    Site(&'s Site),
    /// The TLS connection was made for a name with other certificates.
    OtherCertificate,
    /// The path requires a client certificate, and the client sent none.
    NoClientCertificate,
    /// The request is in this traffic class.
    Class(&'s ClassChoice),
    /// This access rule of the site matches.
    Rule(&'s AccessRule),
    /// This rule matches these forms of the path; earlier rules admit only other forms.
    NotAllowedForms(&'s PathMatches<'s>, FormSet),
    /// This rule refuses the request.
    Refused(&'s AccessRule),
    /// Access rules apply to the path for any client, so no lower level may answer it.
    Ruled,
    /// A trusted proxy reports this client.
    Client(IpAddr),
    /// The target is not a path that can be served; the reason.
    BadTarget(&'s str),
    /// The path is below this internal alias, which clients can't request.
    Internal(&'s AliasConfig),
    /// The path belongs to this internal route, which clients can't request.
    InternalRoute(&'s Route),
    /// This rewrite of the site leads to this target.
    Rewrite(&'s RewriteConfig, &'s [u8]),
    /// A rule of the site redirects the client to this location.
    Redirect(&'s [u8]),
    /// The object that is stored for the path or was just loaded.
    Found(&'s RequestContext<'s>, &'s StoredObject),
    /// The variant that is sent, if the request's conditions allow.
    Chosen(&'s StoredObject),
    /// This route's handler answers.
    Route(&'s Route),
    /// The stored response under this key (if there is one for this request) can't be used now.
    Unused(Option<&'s CacheKey>, Option<&'s (ObjectArc, Reusability)>),
    /// A stored response of this route's handler is reused.
    Reused(&'s Route, &'s StoredObject),
}

impl Effects for HandlerCalls {
    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        self.store.hash(key)
    }

    #[inline]
    fn find(&self, hash: u64, key: &[u8]) -> Option<VariantSet> {
        self.store.find(hash, key)
    }

    #[inline]
    fn find_unpurged(&self, hash: u64, key: &[u8]) -> Option<VariantSet> {
        self.store.find_valid(hash, key)
    }

    fn fetch(&self, request: LoadRequest, id: ExchangeId) -> LoadProgress {
        match self.fetcher.fetch(request, self.waiter(id)) {
            Ok(()) => LoadProgress::Later,
            // The helpers' queue is full: 503 instead of an unbounded wait.
            Err(_) => LoadProgress::Refused,
        }
    }

    fn recall(&self, lookup: &DiskRecall<'_>, id: ExchangeId) -> bool {
        let DiskRecall {
            key, hash, request, ..
        } = lookup;
        let Some(tier) = self.store.tier() else {
            return false;
        };
        // `None`: the key of a file, which has no copy on disk.
        let Some(primary) = disk_cache::primary(&lookup.site.rules.disk_id, key) else {
            return false;
        };
        // Asked in memory: most misses need no helper.
        if !tier.may_contain(&primary) {
            return false;
        }
        let recall = RecallRequest {
            primary,
            key: (*key).into(),
            hash: *hash,
            // Before the helper reads: a purge meanwhile must win.
            purges: self.store.purges(*hash),
            lines: request.lines().into(),
            is_for_lines: lookup.is_for_lines,
        };
        let waiter = self.waiter(id);
        self.fetcher.recall(recall, waiter).is_ok()
    }

    fn call(&self, call: &HandlerCall<'_>, exchange: &mut Exchange) -> CallStatus {
        self.start(call, exchange)
    }

    fn refresh(&self, call: &HandlerCall<'_>, exchange: &mut Exchange) {
        self.start_refresh(call, exchange);
    }

    fn purge(&self, target: &PurgeTarget, kind: PurgeMode) {
        target.purge(&self.store, kind);
        match target {
            // The levels below can find copies by URL only.
            PurgeTarget::Urls(pattern) => self.changes.notify_purge(pattern),
            PurgeTarget::Tag(_) | PurgeTarget::Group(_) => self.changes.notify(),
        }
    }

    fn await_durable_purges(&self, id: ExchangeId) -> bool {
        let Some(tier) = self.store.tier() else {
            return false;
        };
        let waiter = self.waiter(id);
        tier.on_purges_durable(Box::new(move |is_durable| {
            waiter.wake(HandlerOutcome::Purged { is_durable });
        }));
        true
    }

    #[inline]
    fn wait(&self, stored: StoredResponse, id: ExchangeId) -> Option<StoredResponse> {
        match stored.body {
            None => Some(stored),
            Some(_) => stored.unless_stalled(|| self.waiter(id)),
        }
    }

    fn take(&self, class: &TrafficClass, now_ms: u64) -> Result<(), u64> {
        increment(&class.counts.requests);
        class
            .take(now_ms)
            .inspect_err(|_| increment(&class.counts.limited))
    }

    fn take_client_rate(
        &self,
        limit: &ClientRates,
        client: IpAddr,
        now_ms: u64,
    ) -> Result<(), u64> {
        limit.take(client, now_ms).map_err(retry_after_s)
    }

    fn check(
        &self,
        passwords: &Arc<PasswordFile>,
        credentials: BasicCredentials,
        client: IpAddr,
        id: ExchangeId,
    ) -> Option<PasswordOutcome> {
        if passwords.is_verified(&credentials, clock::now_ms()) {
            return Some(PasswordOutcome::Right);
        }
        let waiter = self.waiter(id);
        let callback = move |checked| waiter.wake(HandlerOutcome::Checked(checked));
        passwords.verify(credentials, client, callback).err()
    }

    #[inline]
    fn trace(&self, event: TraceEvent<'_>) {
        match event {
            TraceEvent::Reused(route, _) => increment(&route.counts.store_hits),
            TraceEvent::Refused(rule) => rule.count_refused(),
            _ => {}
        }
    }
}
