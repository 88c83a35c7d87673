//! The effects that are open to a decision. There are three implementations: a worker's loads files and calls
//! handlers; a level offer's answers from memory only; an explanation's loads on its own thread and changes nothing.
//! The decision itself is the same.

use std::net::IpAddr;
use std::sync::Arc;

use lowroad_access_control::Rule;
use lowroad_access_control::passwords::{Checked, Credentials, Passwords};
use lowroad_access_control::traffic_classes::{Chosen, Class};
use lowroad_config::{Alias, Rewrite};
use lowroad_engine::{Exchange, ExchangeId};
use lowroad_files::load::{Loaded, Want};
use lowroad_http::request::Request;
use lowroad_limits::{ClientRates, retry_after_s};
use lowroad_response_cache::calls::{Call, Called, Calls};
use lowroad_response_cache::outcome::Outcome;
use lowroad_response_cache::purge::Meant;
use lowroad_response_cache::reuse::Key;
use lowroad_response_cache::storing::Stored;
use lowroad_routes::counts::one;
use lowroad_routes::routes::Route;
use lowroad_site_rules::{FormSet, PathMatches};
use lowroad_store::clock;
use lowroad_store::disk_cache::{self, Recall};
use lowroad_store::purging::Kind;
use lowroad_store::validity::Use;
use lowroad_store::{Entry, Object, ObjectArc};

use super::asked::Asked;
use crate::sites::Site;

/// Loads, calls, purges and checks that a decision can start.
pub trait World {
    /// The hash under which a key is looked up.
    fn hash(&self, key: &[u8]) -> u64;

    /// The stored objects under a key.
    fn find(&self, hash: u64, key: &[u8]) -> Option<Entry>;

    /// The stored objects under a key, unless they were purged.
    fn find_kept(&self, hash: u64, key: &[u8]) -> Option<Entry>;

    /// Starts to load a file.
    fn fetch(&self, want: Want, id: ExchangeId) -> Fetched;

    /// Starts to load a response from disk into memory. False: the disk has none, or the helpers are busy.
    fn recall(&self, recall: &Recalling<'_>, id: ExchangeId) -> bool;

    /// Puts a request to a handler.
    fn call(&self, call: &Call<'_>, exchange: &mut Exchange) -> Called;

    /// Revalidates a stored response that was just used stale, in the background (RFC 5861).
    fn refresh(&self, call: &Call<'_>, exchange: &mut Exchange);

    fn purge(&self, _: &Meant, _: Kind) {}

    /// Whether an outcome will be posted once all purges so far are durable. False: no storage outlives the process.
    fn keep_purges(&self, _: ExchangeId) -> bool {
        false
    }

    /// Returns a stored response whose body can begin; otherwise registers the request and posts the outcome later.
    fn wait(&self, stored: Stored, _: ExchangeId) -> Option<Stored> {
        Some(stored)
    }

    /// Takes one request of a class's rate; the error is the number of seconds until the next may come.
    fn take(&self, class: &Class, now_ms: u64) -> Result<(), u64>;

    /// Takes one request of a client's rate under a rule; the error is the number of seconds until the next may come.
    fn take_within(&self, _: &ClientRates, _: IpAddr, _now_ms: u64) -> Result<(), u64> {
        Ok(())
    }

    /// Checks a request's password; `None` if the outcome is posted later.
    fn check(
        &self,
        _: &Arc<Passwords>,
        _: Credentials,
        _: IpAddr,
        _: ExchangeId,
    ) -> Option<Checked> {
        None
    }

    /// Records a step of the decision, in order.
    fn note(&self, step: Step<'_>);
}

/// A look-up in the disk cache.
pub struct Recalling<'r> {
    pub site: &'r Site,
    /// The key in memory.
    pub key: &'r [u8],
    /// The hash of the key.
    pub hash: u64,
    pub request: &'r Request<'r>,
    /// The response is known to vary by request fields (RFC 9111 §4.1).
    pub is_for_lines: bool,
}

/// The progress of a load.
pub enum Fetched {
    /// The file is loaded.
    Loaded(Loaded),
    /// The outcome is posted later.
    Later,
    /// Too many loads are queued.
    Refused,
}

/// A step of a decision.
pub enum Step<'s> {
    /// No site serves the authority.
    NoSite,
    /// This site serves the request.
    Site(&'s Site),
    /// The TLS connection was made for a name with other certificates.
    OtherCertificate,
    /// The path requires a client certificate, and the client sent none.
    NoClientCertificate,
    /// The request is in this traffic class.
    Class(&'s Chosen),
    /// This access rule of the site matches.
    Rule(&'s Rule),
    /// This rule matches these forms of the path; earlier rules admit only other forms.
    NotAllowedForms(&'s PathMatches<'s>, FormSet),
    /// This rule refuses the request.
    Refused(&'s Rule),
    /// Access rules apply to the path for any client, so no lower level may answer it.
    Ruled,
    /// A trusted proxy reports this client.
    Client(IpAddr),
    /// The target is not a path that can be served; the reason.
    BadTarget(&'s str),
    /// The path is below this internal alias, which clients can't request.
    Internal(&'s Alias),
    /// The path belongs to this internal route, which clients can't request.
    InternalRoute(&'s Route),
    /// This rewrite of the site leads to this target.
    Rewrite(&'s Rewrite, &'s [u8]),
    /// A rule of the site redirects the client to this location.
    Redirect(&'s [u8]),
    /// The object that is stored for the path or was just loaded.
    Found(&'s Asked<'s>, &'s Object),
    /// The variant that is sent, if the request's conditions allow.
    Chosen(&'s Object),
    /// This route's handler answers.
    Route(&'s Route),
    /// The stored response under this key (if there is one for this request) can't be used now.
    Unused(Option<&'s Key>, Option<&'s (ObjectArc, Use)>),
    /// A stored response of this route's handler is reused.
    Reused(&'s Route, &'s Object),
}

impl World for Calls {
    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        self.store.hash(key)
    }

    #[inline]
    fn find(&self, hash: u64, key: &[u8]) -> Option<Entry> {
        self.store.find(hash, key)
    }

    #[inline]
    fn find_kept(&self, hash: u64, key: &[u8]) -> Option<Entry> {
        self.store.find_kept(hash, key)
    }

    fn fetch(&self, want: Want, id: ExchangeId) -> Fetched {
        match self.fetcher.fetch(want, self.waiter(id)) {
            Ok(()) => Fetched::Later,
            Err(_) => Fetched::Refused,
        }
    }

    fn recall(&self, recalling: &Recalling<'_>, id: ExchangeId) -> bool {
        let Recalling {
            key, hash, request, ..
        } = recalling;
        let Some(tier) = self.store.tier() else {
            return false;
        };
        let Some(primary) = disk_cache::primary(&recalling.site.rules.disk_id, key) else {
            return false;
        };
        if !tier.may_have(&primary) {
            return false;
        }
        let recall = Recall {
            primary,
            key: (*key).into(),
            hash: *hash,
            purges: self.store.purges(*hash),
            lines: request.lines().into(),
            is_for_lines: recalling.is_for_lines,
        };
        let waiter = self.waiter(id);
        self.fetcher.recall(recall, waiter).is_ok()
    }

    fn call(&self, call: &Call<'_>, exchange: &mut Exchange) -> Called {
        self.start(call, exchange)
    }

    fn refresh(&self, call: &Call<'_>, exchange: &mut Exchange) {
        self.start_refresh(call, exchange);
    }

    fn purge(&self, meant: &Meant, kind: Kind) {
        meant.purge(&self.store, kind);
        match meant {
            Meant::Urls(pattern) => self.changes.tell_of(pattern),
            Meant::Tag(_) | Meant::Group(_) => self.changes.tell(),
        }
    }

    fn keep_purges(&self, id: ExchangeId) -> bool {
        let Some(tier) = self.store.tier() else {
            return false;
        };
        let waiter = self.waiter(id);
        tier.when_purges_are_kept(Box::new(move |are_kept| {
            waiter.wake(Outcome::Purged { are_kept });
        }));
        true
    }

    #[inline]
    fn wait(&self, stored: Stored, id: ExchangeId) -> Option<Stored> {
        match stored.body {
            None => Some(stored),
            Some(_) => stored.unless_quiet(|| self.waiter(id)),
        }
    }

    fn take(&self, class: &Class, now_ms: u64) -> Result<(), u64> {
        one(&class.counts.requests);
        class
            .take(now_ms)
            .inspect_err(|_| one(&class.counts.limited))
    }

    fn take_within(&self, limit: &ClientRates, client: IpAddr, now_ms: u64) -> Result<(), u64> {
        limit.take(client, now_ms).map_err(retry_after_s)
    }

    fn check(
        &self,
        passwords: &Arc<Passwords>,
        credentials: Credentials,
        client: IpAddr,
        id: ExchangeId,
    ) -> Option<Checked> {
        if passwords.is_known(&credentials, clock::now_ms()) {
            return Some(Checked::Right);
        }
        let waiter = self.waiter(id);
        let done = move |checked| waiter.wake(Outcome::Checked(checked));
        passwords.verify(credentials, client, done).err()
    }

    #[inline]
    fn note(&self, step: Step<'_>) {
        match step {
            Step::Reused(route, _) => one(&route.counts.kept),
            Step::Refused(rule) => rule.count_refused(),
            _ => {}
        }
    }
}
