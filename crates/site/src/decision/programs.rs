//! Writes new or stored responses of handlers: the head with this connection's framing, then the body as bytes or as a
//! stream.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lowroad_engine::shared_body::SharedBodyReader;
use lowroad_engine::stream::BodyReceiver;
use lowroad_handler::request_label::RequestLabel;
use lowroad_handler::{HandlerFailure, ResponseContent, ResponseFields, UpgradedConnection};
use lowroad_http::fields::FieldName;
use lowroad_http::h1::{BodyLen, requested_upgrade};
use lowroad_http::method::Method;
use lowroad_http::preconditions::{self, PreconditionOutcome, Validators};
use lowroad_http::range::ByteRange;
use lowroad_http::status::StatusCode;
use lowroad_log::{ErrorLogger, LogLevel};
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
use crate::responder::ReplacingPage;
use crate::responder::{ExtraHeaders, HeaderLines, RequestResponder, append};
use crate::sites::SitePath;

/// The head of a response that is to be written.
struct ProgramResponseHead<'a> {
    status: StatusCode,
    fields: &'a ResponseFields,
    body: BodyLen,
    /// The body, if trailers may follow it.
    stream: Option<&'a BodyReceiver>,
}

impl RequestResponder<'_, '_> {
    /// Writes a handler's response.
    pub fn reply(
        &mut self,
        site_path: SitePath<'_>,
        route: &Route,
        reply: HandlerReply,
    ) -> StatusCode {
        let status = reply.response.status;
        // A 101 has no content; the connection becomes the tunnel.
        if let ResponseContent::Upgrade(upgrade) = reply.response.content {
            return self.upgrade(site_path, &reply.response.fields, *upgrade);
        }
        // An interim status is invalid for a final response (RFC 9110 §15.2).
        if status.code() < 200 {
            return self.refuse(Some(site_path), StatusCode::BAD_GATEWAY);
        }
        if let Some(page) = ReplacingPage::new(site_path, route, status) {
            return self.send_site_page(site_path, page, &reply.response.fields);
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
        if self.head(site_path, route, &head) {
            self.body(reply);
        }
        status
    }

    /// Upgrades the connection, if the client requested that (RFC 9110 §7.8).
    fn upgrade(
        &mut self,
        site_path: SitePath<'_>,
        fields: &ResponseFields,
        upgrade: UpgradedConnection,
    ) -> StatusCode {
        let is_requested = requested_upgrade(self.request.fields()).is_some();
        let is_get = self.request.method == Method::Get;
        let UpgradedConnection { protocol, tunnel } = upgrade;
        let status = StatusCode::SWITCHING_PROTOCOLS;
        let fields =
            SiteFields::new(&site_path.site.rules, site_path.path, status).apply(fields, status);
        // A program must not switch protocols unless the client asked for it (RFC 9110 §7.8).
        match is_requested && is_get && self.response.upgrade(&protocol, &fields, tunnel).is_ok() {
            true => status,
            false => self.refuse(Some(site_path), StatusCode::BAD_GATEWAY),
        }
    }

    /// Sends a handler's stored response that is fresh and complete.
    #[inline]
    pub fn hit(
        &mut self,
        site_path: SitePath<'_>,
        object: &StoredObject,
        representation: &Representation,
        route: &Route,
    ) -> StatusCode {
        if let Some(page) = ReplacingPage::new(site_path, route, representation.head.status()) {
            let head = representation.head.all(representation.bytes());
            return self.send_site_page(site_path, page, &kept_fields(head.fields()));
        }
        let now_ms = self.exchange.now_ms;
        let lifetime = object.validity.lifetime();
        let age_s = lifetime.map(|lifetime| lifetime.age_s(now_ms));
        let ttl_secs = cache_status::ttl_secs(route, lifetime, now_ms);
        let is_in_memory = !matches!(representation.content(), object::BodyLocation::Segment(_));
        // The hot path: the stored head is sent as bytes, with a few lines appended.
        if is_in_memory
            && representation.head.has_length()
            && !preconditions::may_differ(self.request)
        {
            let lines = HeaderLines::for_hit(age_s, ttl_secs);
            self.send_built(representation, lines.as_bytes());
            return representation.head.status();
        }
        let extra_headers = ExtraHeaders {
            date: representation.head.date(representation.bytes()),
            age_s,
            cache_status: ttl_secs
                .map(|ttl_secs| cache_status::hit(ttl_secs, Some(representation.content()))),
            ..ExtraHeaders::default()
        };
        self.send_again(site_path, representation, &extra_headers)
    }

    /// Sends a handler's stored response. Returns `None`, without writing anything, if the response is no longer
    /// available.
    pub fn reuse(
        &mut self,
        site_path: SitePath<'_>,
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
        let extra_headers = |date| ExtraHeaders {
            date,
            // A response that was just generated gets no Age, unless an upstream cache has reported one.
            age_s: age_s.filter(|age_s| stored.hit_kind != HitKind::Fetched || *age_s > 0),
            cache_status,
            client_fields: stored.client_fields.as_deref(),
            program: None,
        };
        let stored_head = match &object.kind {
            ObjectKind::Representation(representation) => {
                Some((&representation.head, representation.bytes()))
            }
            ObjectKind::Streaming(streaming, _) => Some((&streaming.head, &*streaming.bytes)),
            _ => None,
        };
        if let Some((head, bytes)) = stored_head
            && let Some(page) = ReplacingPage::new(site_path, route, head.status())
        {
            let fields = kept_fields(head.all(bytes).fields());
            return Some(self.send_site_page(site_path, page, &fields));
        }
        match &object.kind {
            ObjectKind::Representation(representation) => {
                let extra_headers = extra_headers(representation.head.date(representation.bytes()));
                Some(self.send_again(site_path, representation, &extra_headers))
            }
            ObjectKind::Streaming(streaming, _) => {
                let extra_headers = extra_headers(streaming.head.date(&streaming.bytes));
                Some(self.send_streaming(streaming, stored.body?, &extra_headers))
            }
            ObjectKind::Parts(partial) => {
                let stored_parts = &partial.representation;
                // The stored parts may have been replaced since the look-up.
                let is_available = partial.answers(self.request, self.exchange.unix_s);
                let extra_headers = extra_headers(stored_parts.head.date(stored_parts.bytes()));
                is_available.then(|| self.send_again(site_path, stored_parts, &extra_headers))
            }
            ObjectKind::Folder(_)
            | ObjectKind::NoIndex(_)
            | ObjectKind::Refused(..)
            | ObjectKind::Index(..) => None,
        }
    }

    /// Sends a response with a body that is still arriving. It is sent completely even if a range was requested, which
    /// RFC 9110 §14.2 allows.
    fn send_streaming(
        &mut self,
        streaming: &StreamingObject,
        body: SharedBodyReader,
        extra_headers: &ExtraHeaders<'_>,
    ) -> StatusCode {
        let (bytes, stored_head) = (&*streaming.bytes, &streaming.head);
        let validators = Validators {
            etag: stored_head.etag(bytes),
            last_modified: streaming.modified_s,
        };
        let precondition = preconditions::evaluate(self.request, &validators, self.exchange.unix_s);
        // A 304 has no body, so the client need not wait for it.
        let is_not_modified = stored_head.status() == StatusCode::OK
            && precondition == PreconditionOutcome::NotModified;
        if is_not_modified {
            let head = self.begin(
                StatusCode::NOT_MODIFIED,
                stored_head.shared(bytes),
                Some(extra_headers),
            );
            head.end(BodyLen::None);
            return StatusCode::NOT_MODIFIED;
        }
        let head = self.begin(
            stored_head.status(),
            stored_head.all(bytes),
            Some(extra_headers),
        );
        if head.end(streaming.len.map_or(BodyLen::Unknown, BodyLen::Known)) {
            self.response.write_stream(body);
        }
        stored_head.status()
    }

    /// Sends the site's page in place of an error response with these fields.
    fn send_site_page(
        &mut self,
        site_path: SitePath<'_>,
        page: ReplacingPage,
        fields: &ResponseFields,
    ) -> StatusCode {
        // Without the challenge of a 401, a browser would not prompt for the password.
        let kept = fields.for_clients();
        let kept = kept.filter(|(name, _)| is_kept(name.as_str()));
        let kept: Vec<_> = kept.map(|(name, value)| (name.as_str(), value)).collect();
        self.replace(site_path, page, None, &kept);
        page.status
    }

    /// Writes the head; returns whether a body has to follow.
    fn head(
        &mut self,
        site_path: SitePath<'_>,
        route: &Route,
        head: &ProgramResponseHead<'_>,
    ) -> bool {
        let status = head.status;
        let mut out = self.response.head_dated(status, head.fields.date());
        let rules = SiteFields::new(&site_path.site.rules, site_path.path, status);
        // In the common case there are no rules, so no field is compared.
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
                // Rules that remove or replace a field also apply to a trailer of that name.
                stream.omit_trailers(rules.omitted_trailers());
            }
        }
        // The soft-interrupt level keeps responses without freshness information for a while, since it is notified of
        // changes to files. It is not notified of changes to handlers' responses.
        let (agent, peer) = (self.request.user_agent(), self.exchange.peer);
        let may_store =
            head.fields.has_lifetime() && !route.never_stores && !route.policy.shared_only;
        if !may_store && is_from_daemon(agent, peer) {
            out.field("Cache-Control", b"no-store");
        }
        if let Some(status) = cache_status::for_bypass(route, self.request.method) {
            cache_status::write(&status, &mut out);
        }
        out.end(head.body)
    }

    fn body(&mut self, reply: HandlerReply) {
        match reply.response.content {
            ResponseContent::Bytes(bytes) => self.response.write_bytes(bytes),
            ResponseContent::Stream { stream, .. } => self.response.write_stream(stream),
            ResponseContent::Upgrade(_) | ResponseContent::LocalRedirect(_) => {} // has no body
            ResponseContent::Stored(wrapper) => {
                self.response.write_bytes(wrapper.before);
                let stored = reply.stored.as_ref();
                if let Some(representation) = stored.and_then(|stored| stored.representation()) {
                    append(representation, whole_range(representation), self.response);
                }
                self.response.write_bytes(wrapper.after);
            }
        }
    }

    /// Responds to the failure of a handler: the client gets a number, and the log the details with that number.
    pub fn send_failure(
        &mut self,
        site_path: SitePath<'_>,
        route: &Route,
        failure: &HandlerFailure,
        logger: &ErrorLogger,
    ) -> StatusCode {
        self.exchange.refusal_reason = failure.reason;
        // A failed origin is an error of the route like any other.
        let page = ReplacingPage::new(site_path, route, failure.status);
        let page = page.unwrap_or(ReplacingPage {
            status: failure.status,
            replaced: failure.status,
        });
        // Without details, a log line would be useless.
        if failure.detail.is_empty() {
            self.replace(site_path, page, None, &[]);
            return page.status;
        }
        let (code, detail) = (failure.status.code(), &failure.detail);
        // If a backend is down, all requests fail in the same way: repeated failures share one log line.
        let fault = route
            .faults
            .count(code, detail, clock::now_ms(), next_number);
        if let FailureNotice::Line(number) = &fault {
            let path = site_path.path.escape_ascii();
            let line = format_args!("fault {number}: {code} at {path}: {detail}");
            let level = match code {
                500.. => LogLevel::Error,
                // Lower codes, such as 404, are part of normal operation.
                _ => LogLevel::Info,
            };
            logger.log_request(level, line, &self.label());
        }
        let (FailureNotice::Line(number) | FailureNotice::Covered(number)) = fault;
        let explanation = format!("This is fault number {number} in the server's log.");
        self.replace(site_path, page, Some(&explanation), &[]);
        page.status
    }
}

impl RequestResponder<'_, '_> {
    /// The label of the request in the error log.
    pub fn label(&self) -> RequestLabel {
        RequestLabel {
            client: self.exchange.peer,
            host: self.request.authority.unwrap_or_default().into(),
            request_id: self.exchange.request_id(),
        }
    }
}

/// The fields of an error response that its site's page has, too.
const KEPT_FIELDS: [&str; 3] = ["WWW-Authenticate", "Retry-After", "Allow"];

fn is_kept(name: &str) -> bool {
    KEPT_FIELDS.iter().any(|it| it.eq_ignore_ascii_case(name))
}

fn kept_fields<'f>(fields: impl Iterator<Item = (FieldName<'f>, &'f [u8])>) -> ResponseFields {
    let mut kept = ResponseFields::new();
    for (name, value) in fields.filter(|(name, _)| is_kept(name.as_str())) {
        kept.push(name.as_str(), value);
    }
    kept
}

impl ReplacingPage {
    /// The site's page that replaces an error response of a handler, if one does.
    #[inline]
    fn new(site_path: SitePath<'_>, route: &Route, replaced: StatusCode) -> Option<ReplacingPage> {
        let pages = &site_path.site.pages;
        let has_page = |status: StatusCode| pages.find(status.code()).is_some();
        let status = route.replacing_status(replaced, has_page)?;
        Some(ReplacingPage { status, replaced })
    }
}

fn whole_range(representation: &Representation) -> ByteRange {
    ByteRange {
        start: 0,
        end: representation.len(),
    }
}

/// A number for a failure. It differs from those of previous runs, as counting starts at the current time in ms.
fn next_number() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let start = lowroad_store::clock::unix_ns() as u64 / 1_000_000;
    // Only the first call sets the start.
    let _ = NEXT.compare_exchange(0, start, Relaxed, Relaxed);
    format!("{:x}", NEXT.fetch_add(1, Relaxed))
}
