//! Answers for the level below without a connection: what is in memory, by the same decisions as for a
//! client. What would have to be loaded first, or belongs to a program, has to be asked for as others do.

use std::net::IpAddr;
use std::time::SystemTime;

use lowroad_engine::driver::Token;
use lowroad_engine::{Exchange, ListenerId, Response, Unsent};
use lowroad_http::date;
use lowroad_http::encoding::Encoding;
use lowroad_http::limits::Limits;
use lowroad_http::request::{Request, Target};
use lowroad_http::target;

use super::{Decision, Web, write_key};
use crate::clock;
use crate::respond::Responder;
use crate::stored::Kind;

/// Longer answers are not offered.
pub const OFFER_LEN_MAX: usize = 24 * 1024;

/// Who gets the answer, if there is one.
pub type Reply = Box<dyn FnOnce(Option<&[u8]>) + Send>;

/// What the level asks.
pub struct Offer {
    /// The request, as it would come over a connection.
    pub head: Vec<u8>,
    /// Those of requests now.
    pub limits: Limits,
    /// Where the connection would come in.
    pub listener: ListenerId,
    /// From where.
    pub peer: IpAddr,
    /// Gets the answer.
    pub reply: Reply,
}

impl Web {
    /// Answers, or says that it does not.
    pub(super) fn offer(&mut self, offer: Offer) {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let unix_s = since.map_or(0, |since| since.as_secs());
        let date = date::format(unix_s);
        let mut unsent = Unsent::default();
        let is_answered = match unsent.request(&offer.head, &offer.limits) {
            Some(request) => {
                self.answer_stored(&request, &offer, unix_s, &mut unsent.response(&date))
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
        unix_s: u64,
        response: &mut Response<'_>,
    ) -> bool {
        let now_ms = clock::now_ms();
        if !self.is_stored(request, offer.listener, now_ms) {
            return false;
        }
        let mut exchange = Exchange {
            // Nobody's: what is loaded for it comes too late.
            token: Token {
                slot: u32::MAX,
                generation: 0,
            },
            peer: offer.peer,
            listener: offer.listener,
            now_ms,
            started_ms: now_ms,
            unix_s,
            body: None,
            is_body_coming: false,
        };
        let mut to = Responder {
            request,
            exchange: &mut exchange,
            response,
        };
        matches!(self.decide(request, &mut to), Decision::Answered(..))
    }

    /// Whether the answer is in memory, and no program's.
    fn is_stored(&mut self, request: &Request<'_>, listener: ListenerId, now_ms: u64) -> bool {
        let mut name = [0; 256];
        let Some(found) = self.sites.find(listener, request.host, &mut name) else {
            return false;
        };
        let Target::Origin { path, .. } = request.target else {
            return false;
        };
        self.scratch.path.resize(path.len(), 0);
        let Ok(path) = target::decode(path, &mut self.scratch.path) else {
            return false;
        };
        let site = found.site;
        if site.routes.of(path).is_some() {
            return false;
        }
        let host = match site.per_host() {
            true => &name[..found.host_len],
            false => &[],
        };
        write_key(&mut self.scratch.key, site, host, path, Encoding::Identity);
        let hash = self.calls.store.hash(&self.scratch.key);
        let stored = self.calls.store.find(hash, &self.scratch.key);
        stored.is_some_and(|stored| {
            let is_file = matches!(stored.kind, Kind::Representation(_));
            stored.fresh(now_ms) && (is_file || site.routes.is_empty())
        })
    }
}
