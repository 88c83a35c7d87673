//! Level offers: answers requests of the soft-interrupt level from memory, without a connection, with the same decision
//! as for clients. Requests that need a load or a handler are declined; the level then sends them as ordinary requests.

use std::cell::Cell;
use std::net::IpAddr;
use std::time::SystemTime;

use lowroad_access_control::traffic_classes::TrafficClass;
use lowroad_engine::{DetachedResponse, Exchange, ExchangeId, ListenerId, ResponseWriter};
use lowroad_files::file_loader::LoadRequest;
use lowroad_http::date;
use lowroad_http::limits::RequestLimits;
use lowroad_http::request::{Request, RequestTarget};
use lowroad_response_cache::calls::{CallStatus, HandlerCall, HandlerCalls};
use lowroad_store::VariantSet;
use lowroad_store::clock;

use super::{
    CHALLENGES, DiskRecall, Effects, LoadProgress, RequestDecider, RequestDecision, SiteService,
    TraceEvent,
};
use crate::access::RequestOutcome as Logged;
use crate::responder::RequestResponder;

/// The maximum length of an offered response.
pub const OFFER_LEN_MAX: usize = 24 * 1024;

/// Receives the response; `None` if the offer is declined.
pub type OfferReply = Box<dyn FnOnce(Option<&[u8]>) + Send>;

/// A request of the soft-interrupt level.
pub struct LevelOffer {
    /// The bytes of the request, as on a connection.
    pub head: Vec<u8>,
    /// The request limits in force.
    pub limits: RequestLimits,
    /// The listener to which the client connects.
    pub listener: ListenerId,
    /// The client's address.
    pub peer: IpAddr,
    /// Receives the response.
    pub reply: OfferReply,
}

impl SiteService {
    /// Answers or declines an offer.
    pub(super) fn offer(&mut self, offer: LevelOffer) {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let unix_s = since.map_or(0, |since| since.as_secs());
        let date = date::format(unix_s);
        let mut detached = DetachedResponse::default();
        let is_answered = match detached.request(&offer.head, &offer.limits) {
            Some(request) => {
                let now_ms = clock::now_ms();
                let protocol = detached.protocol();
                let exchange =
                    Exchange::without_client(offer.listener, offer.peer, protocol, now_ms, unix_s);
                self.answer_stored(&request, exchange, &mut detached.response(&date))
            }
            None => false,
        };
        // The level does not accept longer responses.
        let response_bytes = is_answered
            .then(|| detached.into_bytes(OFFER_LEN_MAX))
            .flatten();
        (offer.reply)(response_bytes.as_deref());
    }

    fn answer_stored(
        &mut self,
        request: &Request<'_>,
        mut exchange: Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> bool {
        let mut responder = RequestResponder {
            request,
            exchange: &mut exchange,
            response,
        };
        let effects = MemoryEffects {
            calls: &self.calls,
            is_for_level: Cell::new(true),
            is_redirect: Cell::new(false),
        };
        let decider = RequestDecider {
            sites: &self.sites,
            effects: &effects,
            logger: &self.logger,
            scratch: &mut self.scratch,
        };
        let decision = decider.decide(request, &mut responder);
        let is_lasting = match decision {
            RequestDecision::Answered(_, Logged::Hit) => true,
            // A redirect remains valid as long as the rules do; a reload discards all copies that the level keeps.
            RequestDecision::Answered(_, Logged::Generated) => {
                effects.is_redirect.get() && !may_become_challenge(request)
            }
            _ => false,
        };
        // The level sends its copies to any client without a decision, so the response must be valid for all of them.
        is_lasting && effects.is_for_level.get()
    }
}

/// Whether a path may be that of an ACME challenge, which takes precedence over redirects (RFC 8555 §8.3).
fn may_become_challenge(request: &Request<'_>) -> bool {
    match request.target {
        // An encoded path may decode to that of a challenge.
        RequestTarget::Origin { path, plain, .. } => !plain || path.starts_with(CHALLENGES),
        RequestTarget::Asterisk | RequestTarget::Authority(_) => false,
    }
}

/// The effects of an offer: only memory is used.
struct MemoryEffects<'c> {
    calls: &'c HandlerCalls,
    /// Whether the level may keep the response: no handler generates it, and no access rule applies. Otherwise the
    /// level must forward each request.
    is_for_level: Cell<bool>,
    /// Whether a rule redirects the client.
    is_redirect: Cell<bool>,
}

impl Effects for MemoryEffects<'_> {
    fn hash(&self, key: &[u8]) -> u64 {
        self.calls.hash(key)
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<VariantSet> {
        self.calls.find(hash, key)
    }

    fn find_unpurged(&self, hash: u64, key: &[u8]) -> Option<VariantSet> {
        self.calls.find_unpurged(hash, key)
    }

    fn fetch(&self, _: LoadRequest, _: ExchangeId) -> LoadProgress {
        LoadProgress::Pending
    }

    fn recall(&self, _: &DiskRecall<'_>, _: ExchangeId) -> bool {
        false
    }

    fn call(&self, _: &HandlerCall<'_>, _: &mut Exchange) -> CallStatus {
        CallStatus::Running(Box::new(()))
    }

    fn refresh(&self, _: &HandlerCall<'_>, _: &mut Exchange) {}

    fn take(&self, _: &TrafficClass, _: u64) -> Result<(), u64> {
        Ok(())
    }

    fn trace(&self, event: TraceEvent<'_>) {
        match event {
            TraceEvent::Route(_) | TraceEvent::HasAccessRules => self.is_for_level.set(false),
            TraceEvent::Redirect(..) | TraceEvent::RedirectRule(..) => self.is_redirect.set(true),
            _ => {}
        }
    }
}
