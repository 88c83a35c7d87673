//! Writes the responses of handlers, new or stored: the head with this connection's framing, and the body whole or as
//! a stream.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lowroad_engine::shared_body::SharedBodyReader;
use lowroad_engine::stream::BodyReceiver;
use lowroad_handler::{HandlerFailure, ResponseContent, ResponseFields, UpgradedConnection};
use lowroad_http::h1::{BodyLen, upgrade_asked};
use lowroad_http::method::Method;
use lowroad_http::preconditions::{self, PreconditionOutcome, Validators};
use lowroad_http::range::ByteRange;
use lowroad_http::status::StatusCode;
use lowroad_log::ErrorLogger;
use lowroad_response_cache::cache_status;
use lowroad_response_cache::reply::HandlerReply;
use lowroad_response_cache::storage::{HitKind, StoredResponse};
use lowroad_routes::failure_log::FailureNotice;
use lowroad_routes::routes::Route;
use lowroad_site_rules::SiteFields;
use lowroad_store::StoredObject;
use lowroad_store::clock;
use lowroad_store::object::{self, ObjectKind, Representation};
use lowroad_store::streaming_object::StreamingObject;

use crate::is_from_daemon;
use crate::responder::{ExtraHeaders, HeaderLines, RequestResponder, append};
use crate::sites::SitePath;

/// A response head to be written.
struct ProgramResponseHead<'a> {
    status: StatusCode,
    fields: &'a ResponseFields,
    body: BodyLen,
    /// The body, if trailers may follow it.
    stream: Option<&'a BodyReceiver>,
}

impl RequestResponder<'_, '_> {
    /// Writes a handler's response.
    pub fn reply(&mut self, at: SitePath<'_>, route: &Route, reply: HandlerReply) -> StatusCode {
        let status = reply.response.status;
        // A 101 has no content; the connection becomes the tunnel.
        if let ResponseContent::Upgrade(upgrade) = reply.response.content {
            return self.upgrade(at, &reply.response.fields, *upgrade);
        }
        // An interim status as the final one is invalid (RFC 9110 §15.2).
        if status.code() < 200 {
            return self.refuse(Some(at), StatusCode::BAD_GATEWAY);
        }
        let head = ProgramResponseHead {
            status,
            fields: &reply.response.fields,
            body: reply.len(),
            stream: match &reply.response.content {
                ResponseContent::Stream { stream, .. } => Some(stream),
                _ => None,
            },
        };
        if self.head(at, route, &head) {
            self.body(reply);
        }
        status
    }

    /// Upgrades the connection, if the client requested that (RFC 9110 §7.8).
    fn upgrade(
        &mut self,
        at: SitePath<'_>,
        fields: &ResponseFields,
        upgrade: UpgradedConnection,
    ) -> StatusCode {
        let asks = upgrade_asked(self.request.fields()).is_some();
        let is_get = self.request.method == Method::Get;
        let UpgradedConnection { protocol, tunnel } = upgrade;
        let status = StatusCode::SWITCHING_PROTOCOLS;
        let fields = SiteFields::new(&at.site.rules, at.path, status).apply(fields, status);
        // A program must not switch protocols for a client that did not ask (RFC 9110 §7.8).
        match asks && is_get && self.response.upgrade(&protocol, &fields, tunnel).is_ok() {
            true => status,
            false => self.refuse(Some(at), StatusCode::BAD_GATEWAY),
        }
    }

    /// Sends a handler's stored response that is fresh and whole.
    #[inline]
    pub fn hit(
        &mut self,
        at: SitePath<'_>,
        object: &StoredObject,
        whole: &Representation,
        route: &Route,
    ) -> StatusCode {
        let now_ms = self.exchange.now_ms;
        let lifetime = object.validity.lifetime();
        let age_s = lifetime.map(|lifetime| lifetime.age_s(now_ms));
        let ttl_secs = cache_status::ttl_secs(route, lifetime, now_ms);
        let is_in_memory = !matches!(whole.content(), object::BodyLocation::Segment(_));
        // The hot path: the stored head is sent as bytes, with a few lines appended.
        if is_in_memory && whole.head.has_length() && !preconditions::may_differ(self.request) {
            let lines = HeaderLines::for_hit(age_s, ttl_secs);
            self.send_built(whole, lines.as_bytes());
            return whole.head.status();
        }
        let aside = ExtraHeaders {
            date: whole.head.date(whole.bytes()),
            age_s,
            cache_status: ttl_secs
                .map(|ttl_secs| cache_status::hit(ttl_secs, Some(whole.content()))),
            ..ExtraHeaders::default()
        };
        self.send_again(at, whole, &aside)
    }

    /// Sends a handler's stored response. `None` (and nothing is written) if it is no longer available.
    pub fn reuse(
        &mut self,
        at: SitePath<'_>,
        stored: StoredResponse,
        route: &Route,
    ) -> Option<StatusCode> {
        let object = &*stored.object;
        let now_ms = self.exchange.now_ms;
        let age_s = object
            .validity
            .lifetime()
            .map(|lifetime| lifetime.age_s(now_ms));
        let cache_status = cache_status::for_stored(route, &stored, now_ms);
        let aside = |date| ExtraHeaders {
            date,
            // A response that was just made has no Age, unless an upstream cache reported one.
            age_s: age_s.filter(|age_s| stored.way != HitKind::Made || *age_s > 0),
            cache_status,
            own: stored.own.as_deref(),
            program: None,
        };
        match &object.kind {
            ObjectKind::Representation(whole) => {
                let aside = aside(whole.head.date(whole.bytes()));
                Some(self.send_again(at, whole, &aside))
            }
            ObjectKind::Filling(filling, _) => {
                let aside = aside(filling.head.date(&filling.bytes));
                Some(self.send_filling(filling, stored.body?, &aside))
            }
            ObjectKind::Parts(partial) => {
                let known = &partial.representation;
                // The stored parts may have been replaced since the look-up.
                let is_there = partial.answers(self.request, self.exchange.unix_s);
                let aside = aside(known.head.date(known.bytes()));
                is_there.then(|| self.send_again(at, known, &aside))
            }
            ObjectKind::Folder(_)
            | ObjectKind::NoIndex(_)
            | ObjectKind::Refused(..)
            | ObjectKind::Index(..) => None,
        }
    }

    /// Sends a response whose body is still arriving: whole, even if a range was requested (RFC 9110 §14.2 allows
    /// that).
    fn send_filling(
        &mut self,
        filling: &StreamingObject,
        body: SharedBodyReader,
        aside: &ExtraHeaders<'_>,
    ) -> StatusCode {
        let (bytes, forms) = (&*filling.bytes, &filling.head);
        let validators = Validators {
            etag: forms.etag(bytes),
            last_modified: filling.modified_s,
        };
        let precondition = preconditions::evaluate(self.request, &validators, self.exchange.unix_s);
        // A 304 needs no body, so the client need not wait for it.
        let is_known =
            forms.status() == StatusCode::OK && precondition == PreconditionOutcome::NotModified;
        if is_known {
            let head = self.begin(StatusCode::NOT_MODIFIED, forms.shared(bytes), Some(aside));
            head.end(BodyLen::None);
            return StatusCode::NOT_MODIFIED;
        }
        let head = self.begin(forms.status(), forms.all(bytes), Some(aside));
        if head.end(filling.len.map_or(BodyLen::Unknown, BodyLen::Known)) {
            self.response.stream(body);
        }
        forms.status()
    }

    /// Writes the head; returns whether a body must follow.
    fn head(&mut self, at: SitePath<'_>, route: &Route, head: &ProgramResponseHead<'_>) -> bool {
        let status = head.status;
        let mut out = self.response.head_dated(status, head.fields.date());
        let rules = SiteFields::new(&at.site.rules, at.path, status);
        // The common case: no field is compared.
        if rules.is_empty() {
            out.fields(head.fields);
        } else {
            let fields = head.fields.for_clients();
            for (name, value) in fields.filter(|(name, value)| rules.keeps(name.as_str(), value)) {
                out.field(name.as_str(), value);
            }
            for (name, value) in rules.added(|name| head.fields.values(name).next().is_some()) {
                out.field(name, value.as_bytes());
            }
            if let Some(stream) = head.stream {
                // Rules that remove or replace a field apply to the trailer of that name, too.
                stream.omit_trailers(rules.omitted_trailers());
            }
        }
        // The level below keeps a response without freshness information for a while, because it is notified of
        // changes to files. It gets no notification about handlers' responses.
        let (agent, peer) = (self.request.user_agent(), self.exchange.peer);
        let may_keep =
            head.fields.give_lifetime() && !route.keeps_nothing && !route.policy.shared_only;
        if !may_keep && is_from_daemon(agent, peer) {
            out.field("Cache-Control", b"no-store");
        }
        if let Some(status) = cache_status::for_bypass(route, self.request.method) {
            cache_status::write(&status, &mut out);
        }
        out.end(head.body)
    }

    fn body(&mut self, reply: HandlerReply) {
        match reply.response.content {
            ResponseContent::Bytes(bytes) => self.response.bytes(bytes),
            ResponseContent::Stream { stream, .. } => self.response.stream(stream),
            ResponseContent::Upgrade(_) | ResponseContent::Local(_) => {} // has no body
            ResponseContent::Stored(around) => {
                self.response.bytes(around.before);
                let stored = reply.stored.as_ref();
                if let Some(representation) = stored.and_then(|stored| stored.representation()) {
                    append(representation, all_of(representation), self.response);
                }
                self.response.bytes(around.after);
            }
        }
    }

    /// Reports a handler's failure: the client gets a number, the log the detail under that number.
    pub fn failed(
        &mut self,
        at: SitePath<'_>,
        route: &Route,
        failure: &HandlerFailure,
        logger: &ErrorLogger,
    ) -> StatusCode {
        // Without a detail, a log line would say nothing.
        if failure.detail.is_empty() {
            self.refuse_program(at, failure.status, None);
            return failure.status;
        }
        let (code, detail) = (failure.status.code(), &failure.detail);
        // If a handler is down, all its requests fail alike: repeated failures share one line.
        let fault = route
            .faults
            .count(code, detail, clock::now_ms(), next_number);
        if let FailureNotice::Line(number) = &fault {
            let path = String::from_utf8_lossy(at.path);
            let line = format_args!("fault {number}: {code} at {path}: {detail}");
            match code {
                // Lower codes, such as 404, are part of normal operation.
                500.. => logger.error(line),
                _ => logger.info(line),
            }
        }
        let (FailureNotice::Line(number) | FailureNotice::Another(number)) = fault;
        let explanation = format!("This is fault number {number} in the server's log.");
        self.refuse_program(at, failure.status, Some(&explanation));
        failure.status
    }
}

fn all_of(representation: &Representation) -> ByteRange {
    ByteRange {
        start: 0,
        end: representation.len(),
    }
}

/// A fault number that differs from those of earlier runs: it starts at the time in ms.
fn next_number() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let start = lowroad_store::clock::unix_ns() as u64 / 1_000_000;
    // Only the first call sets the start.
    let _ = NEXT.compare_exchange(0, start, Relaxed, Relaxed);
    format!("{:x}", NEXT.fetch_add(1, Relaxed))
}
