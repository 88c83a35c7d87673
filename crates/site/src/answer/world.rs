//! What a decision asks of the world around it, and has done there. There are three: a worker's, where what is not in
//! memory is loaded and programs are called; that of an offer, where nothing is; and that of an explanation, which loads
//! by itself and leaves no trace. The decision is the same.

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

/// Around a decision.
pub trait World {
    /// The hash under which a key is looked up.
    fn hash(&self, key: &[u8]) -> u64;

    /// What is stored under a key.
    fn find(&self, hash: u64, key: &[u8]) -> Option<Entry>;

    /// What is stored under a key and was not purged.
    fn find_kept(&self, hash: u64, key: &[u8]) -> Option<Entry>;

    /// Has something loaded.
    fn fetch(&self, want: Want, id: ExchangeId) -> Fetched;

    /// Has what the disk may have for a request brought into memory. False: it has nothing, or nobody has time.
    fn recall(&self, recall: &Recalling<'_>, id: ExchangeId) -> bool;

    /// Puts a request to a program.
    fn call(&self, call: &Call<'_>, exchange: &mut Exchange) -> Called;

    /// Puts a request to a program whose stored response was just used, to have a fresh one. Nobody waits for it.
    fn refresh(&self, call: &Call<'_>, exchange: &mut Exchange);

    /// Purges.
    fn purge(&self, _: &Meant, _: Kind) {}

    /// Whether it will be told that all purges so far outlive the process. False: there is nothing that does.
    fn keep_purges(&self, _: ExchangeId) -> bool {
        false
    }

    /// Gives a stored response back if it may begin; else what comes of it is told later.
    fn wait(&self, stored: Stored, _: ExchangeId) -> Option<Stored> {
        Some(stored)
    }

    /// Takes a request of a class within its rate; else, after how many seconds one may come.
    fn take(&self, class: &Class, now_ms: u64) -> Result<(), u64>;

    /// Takes a request of a client within the limit of a rule; else, after how many seconds one may come.
    fn take_within(&self, _: &ClientRates, _: IpAddr, _now_ms: u64) -> Result<(), u64> {
        Ok(())
    }

    /// Whether a request shows the right password; `None` if that will be told later.
    fn check(
        &self,
        _: &Arc<Passwords>,
        _: Credentials,
        _: IpAddr,
        _: ExchangeId,
    ) -> Option<Checked> {
        None
    }

    /// Hears what was found or chosen, in its order.
    fn note(&self, step: Step<'_>);
}

/// What may be on the disk.
pub struct Recalling<'r> {
    /// The site.
    pub site: &'r Site,
    /// Under what it would be in memory.
    pub key: &'r [u8],
    /// The hash of that.
    pub hash: u64,
    /// The request.
    pub request: &'r Request<'r>,
    /// It is known to vary.
    pub is_for_lines: bool,
}

/// How far a load has come.
pub enum Fetched {
    /// It is there.
    Loaded(Loaded),
    /// It will come.
    Later,
    /// Too much is being loaded.
    Refused,
}

/// What a decision comes by.
pub enum Step<'s> {
    /// No site is meant.
    NoSite,
    /// This one is.
    Site(&'s Site),
    /// The connection was made for a name with other certificates.
    OtherCertificate,
    /// The path is for clients with a certificate, and this one has shown none.
    NoClientCertificate,
    /// The request is in this class.
    Class(&'s Chosen),
    /// This rule of the site is for the request.
    Rule(&'s Rule),
    /// That rule is for these forms of the path, and earlier ones allow others only.
    NotAllowedForms(&'s PathMatches<'s>, FormSet),
    /// It refuses the request.
    Refused(&'s Rule),
    /// There are rules for the path, whoever asks: nobody else may answer.
    Ruled,
    /// A proxy says that this is the client.
    Client(IpAddr),
    /// The target is no path that can be served; why.
    BadTarget(&'s str),
    /// The path is below this alias, which is not for clients.
    Internal(&'s Alias),
    /// The path is this route's, which is not for clients.
    InternalRoute(&'s Route),
    /// This rewrite of the site leads to this target.
    Rewrite(&'s Rewrite, &'s [u8]),
    /// A rule of the site sends the client there.
    Redirect(&'s [u8]),
    /// What is stored for the path, or was loaded.
    Found(&'s Asked<'s>, &'s Object),
    /// This is sent of it, if the request's conditions allow.
    Chosen(&'s Object),
    /// A program answers.
    Route(&'s Route),
    /// What is stored under its key, if that is anything for this request, can't be used now.
    Unused(Option<&'s Key>, Option<&'s (ObjectArc, Use)>),
    /// What the program answered before may be used again.
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
