//! The effects that a decision may have. The decision is the same for all three implementations: that of a worker loads
//! files and calls handlers; that of a level offer answers from memory only; that of an explanation loads files on its
//! own thread and changes nothing.

use std::net::IpAddr;
use std::sync::Arc;

use lowroad_access_control::AccessRule;
use lowroad_access_control::passwords::{BasicCredentials, PasswordFile, PasswordOutcome};
use lowroad_access_control::traffic_classes::{ClassChoice, TrafficClass};
use lowroad_config::{AliasConfig, BandwidthLimit, RedirectConfig, RewriteConfig};
use lowroad_engine::{Exchange, ExchangeId, FieldChanges};
use lowroad_files::file_loader::{LoadOutcome, LoadRequest};
use lowroad_http::request::Request;
use lowroad_limits::{ClientRates, retry_after_s};
use lowroad_response_cache::calls::{AuthCall, CallStatus, HandlerCall, HandlerCalls};
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

/// The operations that a decision can start: loads, calls, purges and checks.
pub trait Effects {
    /// The hash by which a key is looked up.
    fn hash(&self, key: &[u8]) -> u64;

    /// The stored objects with a key.
    fn find(&self, hash: u64, key: &[u8]) -> Option<VariantSet>;

    /// The stored objects with a key, unless they were purged.
    fn find_unpurged(&self, hash: u64, key: &[u8]) -> Option<VariantSet>;

    /// Starts loading a file.
    fn fetch(&self, request: LoadRequest, id: ExchangeId) -> LoadProgress;

    /// Starts loading a response from the disk cache into memory. Returns false if the disk cache has none, or if the
    /// helpers are busy.
    fn recall(&self, recall: &DiskRecall<'_>, id: ExchangeId) -> bool;

    /// Calls a handler.
    fn call(&self, call: &HandlerCall<'_>, exchange: &mut Exchange) -> CallStatus;

    /// Revalidates in the background a stored response that was just used while stale (RFC 5861).
    fn refresh(&self, call: &HandlerCall<'_>, exchange: &mut Exchange);

    /// Purges stored responses; an implementation without side effects does nothing.
    fn purge(&self, _: &PurgeTarget, _: PurgeMode) {}

    /// Whether the exchange will be resumed when all purges so far are durable. False if no storage outlives the
    /// process.
    fn await_durable_purges(&self, _: ExchangeId) -> bool {
        false
    }

    /// Returns a stored response if its body has started to arrive; otherwise registers the exchange, which is resumed
    /// later.
    fn wait(&self, stored: StoredResponse, _: ExchangeId) -> Option<StoredResponse> {
        Some(stored)
    }

    /// Takes one request from the rate of a class. The error is the number of seconds until the next one is permitted.
    fn take(&self, class: &TrafficClass, now_ms: u64) -> Result<(), u64>;

    /// Takes one request from a client's rate under a rule. The error is the number of seconds until the next one is
    /// permitted.
    fn take_client_rate(&self, _: &ClientRates, _: IpAddr, _now_ms: u64) -> Result<(), u64> {
        Ok(())
    }

    /// Checks the password of a request; `None` if the exchange is resumed later with the outcome.
    fn check(
        &self,
        _: &Arc<PasswordFile>,
        _: BasicCredentials,
        _: IpAddr,
        _: ExchangeId,
    ) -> Option<PasswordOutcome> {
        None
    }

    /// Asks the server of a forward authentication about a request. The exchange is resumed with its response unless the
    /// result, which must be kept until then, is dropped; `None` assumes that the server admits the request.
    fn ask(&self, _: &AuthCall<'_>, _: &Exchange) -> Option<Box<dyn Send>> {
        Some(Box::new(()))
    }

    /// Records a step of the decision. The calls follow the order of the steps.
    fn trace(&self, event: TraceEvent<'_>);
}

/// A look-up in the disk cache.
pub struct DiskRecall<'r> {
    /// The site of the request.
    pub site: &'r Site,
    /// The key of the memory cache.
    pub key: &'r [u8],
    /// The hash of the key.
    pub hash: u64,
    /// The request of the client.
    pub request: &'r Request<'r>,
    /// Whether the response is known to vary by request fields (RFC 9111 §4.1).
    pub is_for_lines: bool,
}

/// The progress of a load.
pub enum LoadProgress {
    /// The file is loaded.
    Loaded(LoadOutcome),
    /// The exchange is resumed later with the outcome.
    Pending,
    /// Too many loads are queued.
    Refused,
}

/// A step of a decision, recorded for `lowroad explain`.
pub enum TraceEvent<'s> {
    /// No site has the request's host name.
    NoSite,
    /// The request belongs to this site.
    Site(&'s Site),
    /// The site or the route limits the bandwidth of the response.
    Bandwidth(BandwidthLimit),
    /// The rules of the site apply to this path.
    Path(&'s RequestContext<'s>),
    /// The TLS connection was made for a name with other certificates.
    OtherCertificate,
    /// The path requires a client certificate, but the client sent none.
    NoClientCertificate,
    /// The request belongs to this traffic class.
    Class(&'s ClassChoice),
    /// This access rule matches the request.
    Rule(&'s AccessRule),
    /// The last matching rule applies to these forms of the path only; earlier rules allowed the other forms.
    RuleLimitedToForms(&'s PathMatches<'s>, FormSet),
    /// This access rule refuses the request.
    Refused(&'s AccessRule),
    /// Access rules or response fields of the path differ between clients, so the level below must not answer it.
    HasAccessRules,
    /// A trusted proxy reported this client.
    Client(IpAddr),
    /// The target is not a path that can be served, for this reason.
    BadTarget(&'s str),
    /// The path is below this internal alias, which clients cannot request.
    Internal(&'s AliasConfig),
    /// The path belongs to this internal route, which clients cannot request.
    InternalRoute(&'s Route),
    /// This rewrite sets this target.
    Rewrite(&'s RewriteConfig, &'s [u8]),
    /// The fields of the response change for this request.
    Fields(&'s FieldChanges),
    /// The maintenance mode refuses the request.
    Maintenance,
    /// A preflight of another origin, which is permitted or not.
    Preflight(bool),
    /// The rule with this name redirects the client to this location.
    Redirect(&'static str, &'s [u8]),
    /// This redirect of the site leads to this location.
    RedirectRule(&'s RedirectConfig, &'s [u8]),
    /// This object was stored for the path, or was just loaded.
    Found(&'s RequestContext<'s>, &'s StoredObject),
    /// This variant is sent, unless the request's conditions or ranges require another response.
    Chosen(&'s StoredObject),
    /// The handler of this route answers.
    Route(&'s Route),
    /// The response has no key, for this reason, so it is neither stored nor reused.
    Unkeyed(&'static str),
    /// The stored response with this key, if there is one for this request, cannot be used now.
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
            Ok(()) => LoadProgress::Pending,
            // The queue of the helpers is full: the request is answered with 503 rather than waiting without bound.
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
        // The key of a file has no primary key (`None`): files are never in the disk cache.
        let Some(primary) = disk_cache::primary(&lookup.site.rules.disk_id, key) else {
            return false;
        };
        // This check uses only memory, so that most misses need no helper.
        if !tier.may_contain(&primary) {
            return false;
        }
        let recall = RecallRequest {
            primary,
            key: (*key).into(),
            hash: *hash,
            // The purge epoch is read before the helper reads the disk: a purge in the meantime must take effect.
            purges: self.store.purge_epoch(*hash),
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
            // The levels below can only find their copies by URL.
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
            waiter.wake(HandlerOutcome::PurgeSaved { is_durable });
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
        let callback = move |checked| waiter.wake(HandlerOutcome::PasswordChecked(checked));
        passwords.verify(credentials, client, callback).err()
    }

    fn ask(&self, call: &AuthCall<'_>, exchange: &Exchange) -> Option<Box<dyn Send>> {
        Some(self.start_auth(call, exchange))
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
