//! Level offers: answers requests of the level below from memory, without a connection, by the decision that clients
//! get. Requests that need a load or a handler are declined; the level forwards them as ordinary requests.

use std::cell::Cell;
use std::net::IpAddr;
use std::time::SystemTime;

use lowroad_access_control::traffic_classes::Class;
use lowroad_engine::{Exchange, ExchangeId, ListenerId, Response, Unsent};
use lowroad_files::load::Want;
use lowroad_http::date;
use lowroad_http::limits::Limits;
use lowroad_http::request::{Request, Target};
use lowroad_http::version::Version;
use lowroad_response_cache::calls::{Call, Called, Calls};
use lowroad_store::Entry;
use lowroad_store::clock;

use super::{CHALLENGES, Decider, Decision, Fetched, Recalling, Step, Web, World};
use crate::access::Outcome as Logged;
use crate::respond::Responder;

/// Longer responses are not offered.
pub const OFFER_LEN_MAX: usize = 24 * 1024;

/// Receives the response, or `None`.
pub type Reply = Box<dyn FnOnce(Option<&[u8]>) + Send>;

/// A request of the level below.
pub struct Offer {
    /// The request's bytes, as on a connection.
    pub head: Vec<u8>,
    /// The request limits in force.
    pub limits: Limits,
    /// The listener at which the client connects.
    pub listener: ListenerId,
    /// The client's address.
    pub peer: IpAddr,
    /// Receives the response.
    pub reply: Reply,
}

impl Web {
    /// Answers or declines an offer.
    pub(super) fn offer(&mut self, offer: Offer) {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let unix_s = since.map_or(0, |since| since.as_secs());
        let date = date::format(unix_s);
        let mut unsent = Unsent::default();
        let is_answered = match unsent.request(&offer.head, &offer.limits) {
            Some(request) => {
                let protocol = unsent.protocol();
                let response = &mut unsent.response(&date);
                self.answer_stored(&request, &offer, (protocol, unix_s), response)
            }
            None => false,
        };
        let answer = is_answered.then(|| unsent.whole(OFFER_LEN_MAX)).flatten();
        (offer.reply)(answer.as_deref());
    }

    fn answer_stored(
        &mut self,
        request: &Request<'_>,
        offer: &Offer,
        (protocol, unix_s): (Version, u64),
        response: &mut Response<'_>,
    ) -> bool {
        let now_ms = clock::now_ms();
        let from = (offer.listener, offer.peer);
        let mut exchange = Exchange::of_nobody(from, protocol, now_ms, unix_s);
        let mut to = Responder {
            request,
            exchange: &mut exchange,
            response,
        };
        let world = InMemory {
            calls: &self.calls,
            is_for_level: Cell::new(true),
            is_redirect: Cell::new(false),
        };
        let decider = Decider {
            sites: &self.sites,
            world: &world,
            logger: &self.logger,
            scratch: &mut self.scratch,
        };
        let decision = decider.decide(request, &mut to);
        let is_lasting = match decision {
            Decision::Answered(_, Logged::Hit) => true,
            // A redirect is valid as long as the rules are, and a reload discards all copies in the level.
            Decision::Answered(_, Logged::Made) => {
                world.is_redirect.get() && !may_become_challenge(request)
            }
            _ => false,
        };
        is_lasting && world.is_for_level.get()
    }
}

/// Whether a path may be that of an ACME challenge, which precedes all redirects (RFC 8555 §8.3).
fn may_become_challenge(request: &Request<'_>) -> bool {
    match request.target {
        Target::Origin { path, plain, .. } => !plain || path.starts_with(CHALLENGES),
        Target::Asterisk | Target::Authority(_) => false,
    }
}

/// The effects of an offer: answers from memory only.
struct InMemory<'c> {
    calls: &'c Calls,
    /// The level may keep the response: no handler produces it, and no access rule applies. Otherwise each request
    /// must be forwarded.
    is_for_level: Cell<bool>,
    /// A rule redirects the client.
    is_redirect: Cell<bool>,
}

impl World for InMemory<'_> {
    fn hash(&self, key: &[u8]) -> u64 {
        self.calls.hash(key)
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<Entry> {
        self.calls.find(hash, key)
    }

    fn find_kept(&self, hash: u64, key: &[u8]) -> Option<Entry> {
        self.calls.find_kept(hash, key)
    }

    fn fetch(&self, _: Want, _: ExchangeId) -> Fetched {
        Fetched::Later
    }

    fn recall(&self, _: &Recalling<'_>, _: ExchangeId) -> bool {
        false
    }

    fn call(&self, _: &Call<'_>, _: &mut Exchange) -> Called {
        Called::Runs(Box::new(()))
    }

    fn refresh(&self, _: &Call<'_>, _: &mut Exchange) {}

    fn take(&self, _: &Class, _: u64) -> Result<(), u64> {
        Ok(())
    }

    fn note(&self, step: Step<'_>) {
        match step {
            Step::Route(_) | Step::Ruled => self.is_for_level.set(false),
            Step::Redirect(_) => self.is_redirect.set(true),
            _ => {}
        }
    }
}
