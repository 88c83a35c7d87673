//! Writes responses: representations, ranges, 304, redirects and error responses. This module is independent of the
//! HTTP version, which the engine handles.

mod body_parts;
mod error_body;
mod extra_headers;
mod grpc_error;

use lowroad_config::{BandwidthLimit, FixedResponse, HSTS};
use lowroad_engine::{
    Exchange, FieldChanges, HeadBuilder, PreparedResponse, ResponseRate, ResponseWriter,
};
use lowroad_handler::ResponseFields;
use lowroad_http::error_page;
use lowroad_http::h1::BodyLen;
use lowroad_http::method::Method;
use lowroad_http::preconditions::{self, PreconditionOutcome};
use lowroad_http::range::{ByteRange, RangeSet, RangesSpecifier};
use lowroad_http::refusal::RequestRefusal;
use lowroad_http::request::Request;
use lowroad_http::status::StatusCode;
use lowroad_http::stored_head::StoredSection;
use lowroad_http::version::HttpVersion;
use lowroad_limits::RefusalReason;
use lowroad_request_conditions::ConditionInput;
use lowroad_site_rules::SiteFields;
use lowroad_store::object::{BodyLocation, Representation};

use crate::is_from_daemon;
use crate::sites::{Site, SitePath};
pub use body_parts::append;
use body_parts::{boundary, part_head};
pub use error_body::write_refusal;
use error_body::{ALLOW, ErrorBody, write_page};
use extra_headers::ProgramFields;
pub use extra_headers::{ExtraHeaders, HeaderLines};
use grpc_error::GrpcError;

/// The status that is logged if a connection is closed without a response, as in nginx.
const CLOSED_UNANSWERED: StatusCode = StatusCode::new(444).expect("within the range");
/// The name of the field Retry-After (RFC 9110 §10.2.3).
pub const RETRY_AFTER: &str = "Retry-After";

/// A redirect to another URL.
pub struct RedirectTarget {
    /// The value of Location.
    pub location: Vec<u8>,
    pub status: StatusCode,
    /// Whether another request for the same URL is redirected, too.
    pub is_cacheable: bool,
}

/// An error page in place of a handler's error.
#[derive(Clone, Copy)]
pub struct ReplacingPage {
    /// The status that the client gets.
    pub status: StatusCode,
    /// The status of the handler's error.
    pub replaced: StatusCode,
}

/// Writes the response to one request.
pub struct RequestResponder<'r, 'o> {
    pub request: &'r Request<'r>,
    /// The properties of the request that its connection determines.
    pub exchange: &'r mut Exchange,
    /// The response that is being written.
    pub response: &'r mut ResponseWriter<'o>,
}

impl<'r> RequestResponder<'r, '_> {
    /// The input of conditions.
    pub fn condition_input(&self) -> ConditionInput<'r> {
        let tls = self.exchange.tls.as_ref();
        ConditionInput {
            request: self.request,
            client: self.exchange.peer,
            is_https: self.exchange.is_https(),
            has_certificate: tls.is_some_and(|tls| tls.client.is_some()),
            unix_s: self.exchange.unix_s,
        }
    }
}

impl RequestResponder<'_, '_> {
    /// Limits the bandwidth of the response. Called before the response is written.
    pub fn limit_rate(&mut self, limit: BandwidthLimit) {
        let rate = ResponseRate {
            bytes_per_s: limit.bytes_per_s,
            after: limit.after,
        };
        // A deferred request gets another writer.
        self.exchange.rate = Some(rate);
        self.response.set_rate(Some(rate));
    }

    /// Sends a representation, as the request's preconditions and ranges require.
    #[inline]
    pub fn send(&mut self, site_path: SitePath<'_>, representation: &Representation) -> StatusCode {
        if preconditions::may_differ(self.request) {
            return self.send_on_condition(site_path, representation, None);
        }
        self.send_whole(representation);
        StatusCode::OK
    }

    /// Sends a stored response with extra header fields. Preconditions and ranges apply only to a 200 (RFC 9110
    /// §13.2.1).
    pub fn send_again(
        &mut self,
        site_path: SitePath<'_>,
        representation: &Representation,
        extra_headers: &ExtraHeaders<'_>,
    ) -> StatusCode {
        let status = representation.head.status();
        // Most requests have neither preconditions nor ranges.
        if status == StatusCode::OK && preconditions::may_differ(self.request) {
            return self.send_on_condition(site_path, representation, Some(extra_headers));
        }
        self.send_whole_with(representation, extra_headers);
        status
    }

    /// Sends a file that a program's response named, with fields of that response. `site_path` is the path of the file;
    /// `client_path` is the path that the client requested.
    pub fn send_for_program(
        &mut self,
        site_path: SitePath<'_>,
        client_path: SitePath<'_>,
        representation: &Representation,
        fields: &ResponseFields,
    ) -> StatusCode {
        let extra_headers = ExtraHeaders {
            program: Some(ProgramFields {
                fields,
                client_path,
                includes_content_fields: true,
            }),
            ..ExtraHeaders::default()
        };
        self.send_again(site_path, representation, &extra_headers)
    }

    fn send_whole_with(
        &mut self,
        representation: &Representation,
        extra_headers: &ExtraHeaders<'_>,
    ) {
        let fields = representation.head.all(representation.bytes());
        let head = self.begin(representation.head.status(), fields, Some(extra_headers));
        if head.end(BodyLen::Known(representation.len())) {
            let range = ByteRange {
                start: 0,
                end: representation.len(),
            };
            append(representation, range, self.response);
        }
    }

    /// Begins a head with the fields of a stored response.
    pub fn begin(
        &mut self,
        status: StatusCode,
        fields: StoredSection<'_>,
        extra_headers: Option<&ExtraHeaders<'_>>,
    ) -> HeadBuilder<'_> {
        let date = extra_headers.and_then(|extra_headers| extra_headers.date);
        let mut head = self.response.head_dated(status, date);
        match extra_headers.and_then(|extra_headers| extra_headers.program.as_ref()) {
            None => drop(head.encoded(fields)),
            Some(program) => program.write(status, fields, &mut head),
        }
        if let Some(extra_headers) = extra_headers {
            extra_headers.write(&mut head);
        }
        head
    }

    /// Sends a stored head and body unchanged, which is the common case.
    #[inline]
    fn send_whole(&mut self, representation: &Representation) {
        self.send_built(representation, b"");
    }

    /// Sends a stored response of known length, with a few field lines appended to its head.
    #[inline(always)]
    pub fn send_built(&mut self, representation: &Representation, extra_lines: &[u8]) {
        let prepared = PreparedResponse {
            status: representation.head.status(),
            bytes: representation.bytes(),
            is_dated: representation.head.is_dated(),
            head_len: representation.head.h1_len(),
            body_len: representation.len(),
            is_inline: matches!(representation.content(), BodyLocation::Inline),
            extra_fields: extra_lines,
        };
        if self
            .response
            .write_prepared(&prepared, || representation.encoded_heads())
        {
            let range = ByteRange {
                start: 0,
                end: representation.len(),
            };
            append(representation, range, self.response);
        }
    }

    /// Evaluates the preconditions, then the ranges if If-Range allows them (RFC 9110 §13.2.2).
    fn send_on_condition(
        &mut self,
        site_path: SitePath<'_>,
        representation: &Representation,
        extra_headers: Option<&ExtraHeaders<'_>>,
    ) -> StatusCode {
        let validators = representation.validators();
        let now_s = self.exchange.unix_s;
        match preconditions::evaluate(self.request, &validators, now_s) {
            PreconditionOutcome::NotModified => {
                return self.not_modified(representation, extra_headers);
            }
            PreconditionOutcome::Failed => {
                return self.refuse(Some(site_path), StatusCode::PRECONDITION_FAILED);
            }
            PreconditionOutcome::Proceed => {}
        }
        let ranges = preconditions::ranges(self.request, &validators, now_s, representation.len());
        match ranges {
            RangesSpecifier::Whole => {
                match extra_headers {
                    Some(extra_headers) => self.send_whole_with(representation, extra_headers),
                    None => self.send_whole(representation),
                }
                StatusCode::OK
            }
            RangesSpecifier::One(range) => self.send_range(representation, range, extra_headers),
            RangesSpecifier::Many(ranges) => {
                self.send_ranges(representation, &ranges, extra_headers)
            }
            RangesSpecifier::Unsatisfiable => self.unsatisfiable(site_path, representation),
        }
    }

    fn not_modified(
        &mut self,
        representation: &Representation,
        extra_headers: Option<&ExtraHeaders<'_>>,
    ) -> StatusCode {
        let fields = representation.head.shared(representation.bytes());
        let extra_headers = extra_headers.map(ExtraHeaders::without_content);
        let head = self.begin(StatusCode::NOT_MODIFIED, fields, extra_headers.as_ref());
        head.end(BodyLen::None);
        StatusCode::NOT_MODIFIED
    }

    fn send_range(
        &mut self,
        representation: &Representation,
        range: ByteRange,
        extra_headers: Option<&ExtraHeaders<'_>>,
    ) -> StatusCode {
        let fields = representation.head.all(representation.bytes());
        let mut head = self.begin(StatusCode::PARTIAL_CONTENT, fields, extra_headers);
        head.content_range(range.start, range.end, representation.len());
        if head.end(BodyLen::Known(range.end - range.start)) {
            append(representation, range, self.response);
        }
        StatusCode::PARTIAL_CONTENT
    }

    /// Sends multipart/byteranges (RFC 9110 §14.6).
    fn send_ranges(
        &mut self,
        representation: &Representation,
        ranges: &RangeSet,
        extra_headers: Option<&ExtraHeaders<'_>>,
    ) -> StatusCode {
        let boundary = boundary(self.exchange, representation);
        let program = extra_headers.and_then(|extra_headers| extra_headers.program.as_ref());
        let content_type = program.and_then(ProgramFields::content_type);
        let content_type = content_type.unwrap_or(representation.content_type());
        let extra_headers = extra_headers.map(ExtraHeaders::without_content);
        let part_heads: Vec<Vec<u8>> = ranges
            .iter()
            .map(|range| part_head(&boundary, content_type, representation.len(), range))
            .collect();
        let end = format!("\r\n--{boundary}--\r\n").into_bytes();
        let heads_len: usize = part_heads.iter().map(Vec::len).sum();
        let ranges_len: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        // The length is known in advance, so that no chunked coding is needed.
        let len = heads_len as u64 + ranges_len + end.len() as u64;
        let fields = representation.head.shared(representation.bytes());
        let mut head = self.begin(StatusCode::PARTIAL_CONTENT, fields, extra_headers.as_ref());
        let content_type = format!("multipart/byteranges; boundary={boundary}");
        head.field("Content-Type", content_type.as_bytes());
        // The ranges are those of the encoded representation (RFC 9110 §14.2).
        let encoding = representation.encoding;
        if encoding != lowroad_http::content_coding::ContentCoding::Identity {
            head.field("Content-Encoding", encoding.as_str().as_bytes());
        }
        if head.end(BodyLen::Known(len)) {
            for (part_head, range) in part_heads.into_iter().zip(ranges.iter()) {
                self.response.write_bytes(part_head.into());
                append(representation, *range, self.response);
            }
            self.response.write_bytes(end.into());
        }
        StatusCode::PARTIAL_CONTENT
    }

    fn unsatisfiable(
        &mut self,
        site_path: SitePath<'_>,
        representation: &Representation,
    ) -> StatusCode {
        // A 416 contains the current length (RFC 9110 §15.5.17).
        let value = format!("bytes */{}", representation.len());
        self.page(
            Some(site_path),
            StatusCode::RANGE_NOT_SATISFIABLE,
            None,
            &[("Content-Range", value.as_bytes())],
        );
        StatusCode::RANGE_NOT_SATISFIABLE
    }

    /// Sets the only change to the fields of a response: without TLS, Strict-Transport-Security is omitted.
    pub fn omit_hsts(&mut self, site: &Site) {
        let mut changes = FieldChanges::default();
        if site.omits_hsts(self.exchange) {
            changes.omitted.push(HSTS.into());
        }
        self.response.set_field_changes(changes);
    }

    /// Answers OPTIONS; all other methods get 405.
    pub fn other_method(&mut self, site_path: SitePath<'_>) -> StatusCode {
        if self.request.method != Method::Options {
            return self.refuse(Some(site_path), StatusCode::METHOD_NOT_ALLOWED);
        }
        // The response to OPTIONS contains the allowed methods (RFC 9110 §9.3.7).
        let mut head = self.response.head(StatusCode::NO_CONTENT);
        head.field("Allow", ALLOW.as_bytes());
        let rules = SiteFields::new(
            &site_path.site.rules,
            site_path.path,
            StatusCode::NO_CONTENT,
        );
        for (name, value) in rules.added(|name| name.eq_ignore_ascii_case("Allow")) {
            head.field(name, value.as_bytes());
        }
        head.end(BodyLen::None);
        StatusCode::NO_CONTENT
    }

    /// Permits a cross-origin request.
    pub fn preflight(
        &mut self,
        site_path: SitePath<'_>,
        fields: &[(&'static str, Vec<u8>)],
    ) -> StatusCode {
        let status = StatusCode::NO_CONTENT;
        let rules = SiteFields::new(&site_path.site.rules, site_path.path, status);
        // The changes for other responses would omit these fields.
        self.omit_hsts(site_path.site);
        let mut head = self.response.head(status);
        for (name, value) in fields {
            head.field(name, value);
        }
        let has = |name: &str| fields.iter().any(|(it, _)| it.eq_ignore_ascii_case(name));
        for (name, value) in rules.added(has).filter(|(name, _)| !has(name)) {
            head.field(name, value.as_bytes());
        }
        head.end(BodyLen::None);
        status
    }

    /// Refuses a request while the site is not available for a known time.
    pub fn refuse_for(&mut self, site_path: SitePath<'_>, retry_after_s: u64) -> StatusCode {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let seconds = retry_after_s.to_string();
        self.refuse_by_rule(site_path, status, &[(RETRY_AFTER, seconds.as_bytes())])
    }

    /// Redirects the client.
    pub fn redirect(&mut self, site_path: SitePath<'_>, redirect: &RedirectTarget) -> StatusCode {
        let location = ("Location", &redirect.location[..]);
        let no_store = ("Cache-Control", &b"no-store"[..]);
        let fields = match redirect.is_cacheable {
            true => &[location][..],
            false => &[location, no_store][..],
        };
        let explanation = Some("The page has moved.");
        self.page(Some(site_path), redirect.status, explanation, fields);
        redirect.status
    }

    /// Ends the exchange without a response. The status is that of nginx's log for this case.
    pub fn close_unanswered(&mut self) -> StatusCode {
        self.response.abandon();
        CLOSED_UNANSWERED
    }

    /// Sends a fixed response.
    pub fn respond(&mut self, site_path: SitePath<'_>, fixed: &FixedResponse) -> StatusCode {
        let status = StatusCode::new(fixed.status).unwrap_or(StatusCode::INTERNAL_ERROR);
        let has_content = status != StatusCode::NO_CONTENT;
        let Some(text) = fixed.text.as_deref().or((!has_content).then_some("")) else {
            let fields = fixed.fields.iter();
            let fields: Vec<(&str, &[u8])> = fields
                .map(|(name, value)| (name.as_str(), value.as_bytes()))
                .collect();
            self.page(Some(site_path), status, None, &fields);
            return status;
        };
        let rules = SiteFields::new(&site_path.site.rules, site_path.path, status);
        let mut head = self.response.head(status);
        if has_content {
            head.field("Content-Type", fixed.media_type.as_bytes());
        }
        for (name, value) in &fixed.fields {
            if rules.keeps(name, value.as_bytes()) {
                head.field(name, value.as_bytes());
            }
        }
        let has_field = |name: &str| {
            let mut names = fixed.fields.iter().map(|(name, _)| name);
            names.any(|it| it.eq_ignore_ascii_case(name))
        };
        for (name, value) in rules.added(has_field) {
            head.field(name, value.as_bytes());
        }
        if head.end(BodyLen::Known(text.len() as u64)) {
            self.response.write_copied(text.as_bytes());
        }
        status
    }

    /// Redirects to the canonical URL: 301 for GET and HEAD, 308 otherwise. Without a site no header rules apply.
    pub fn redirect_to_canonical(
        &mut self,
        site_path: Option<SitePath<'_>>,
        location: &[u8],
    ) -> StatusCode {
        let status = match self.request.method {
            Method::Get | Method::Head => StatusCode::MOVED_PERMANENTLY,
            // 308 preserves method and body; 301 may change POST to GET (RFC 9110 §15.4.2).
            _ => StatusCode::PERMANENT_REDIRECT,
        };
        let explanation = Some("The page has moved.");
        self.page(site_path, status, explanation, &[("Location", location)]);
        status
    }

    /// Sends a short text that must not be cached: the response to an ACME challenge.
    pub fn text(&mut self, text: &str) -> StatusCode {
        let mut head = self.response.head(StatusCode::OK);
        // This media type is that of the example in RFC 8555 §8.3.
        head.field("Content-Type", b"application/octet-stream")
            .field("Cache-Control", b"no-store");
        if head.end(BodyLen::Known(text.len() as u64)) {
            self.response.write_copied(text.as_bytes());
        }
        StatusCode::OK
    }

    /// Sends an error page.
    pub fn refuse(&mut self, site_path: Option<SitePath<'_>>, status: StatusCode) -> StatusCode {
        self.page(site_path, status, None, &[]);
        status
    }

    /// Refuses a body that exceeds the limit, before any of it is read.
    pub fn refuse_body(&mut self, site_path: SitePath<'_>) -> StatusCode {
        self.refuse_target(site_path, RequestRefusal::BodyTooLarge)
    }

    /// Refuses a folder without an index file, as there are no listings.
    pub fn refuse_folder(&mut self, site_path: SitePath<'_>) -> StatusCode {
        let status = StatusCode::FORBIDDEN;
        self.page(Some(site_path), status, Some(error_page::NO_INDEX), &[]);
        status
    }

    /// Refuses a request that exceeds a rate limit, with Retry-After.
    pub fn refuse_rate_limited(
        &mut self,
        site_path: SitePath<'_>,
        retry_after_s: u64,
    ) -> StatusCode {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        self.exchange.refusal_reason = Some(RefusalReason::Rate);
        let seconds = retry_after_s.to_string();
        let fields: [(&str, &[u8]); 2] = [
            ("Cache-Control", b"no-store"),
            (RETRY_AFTER, seconds.as_bytes()),
        ];
        self.page(Some(site_path), status, None, &fields);
        status
    }

    /// Refuses a request by an access rule. The response is not cacheable, since the rule may admit other clients.
    pub fn refuse_by_rule(
        &mut self,
        site_path: SitePath<'_>,
        status: StatusCode,
        fields: &[(&str, &[u8])],
    ) -> StatusCode {
        let mut all = vec![("Cache-Control", &b"no-store"[..])];
        all.extend_from_slice(fields);
        self.page(Some(site_path), status, None, &all);
        status
    }

    /// Refuses a request of the soft-interrupt level as by a rule, so that the level stores no response; `None` for other
    /// requests.
    pub fn refuse_level(&mut self, site_path: SitePath<'_>) -> Option<StatusCode> {
        is_from_daemon(self.request.user_agent(), self.exchange.peer)
            .then(|| self.refuse_by_rule(site_path, StatusCode::FORBIDDEN, &[]))
    }

    /// Sends an error page in place of a handler's response. The page is not cacheable, since the handler may recover
    /// at any time.
    pub fn replace(
        &mut self,
        site_path: SitePath<'_>,
        page: ReplacingPage,
        explanation: Option<&str>,
        fields: &[(&str, &[u8])],
    ) {
        let mut all = vec![("Cache-Control", &b"no-store"[..])];
        all.extend_from_slice(fields);
        let page = ErrorBody {
            site_path: Some(site_path),
            status: page.status,
            replaced: page.replaced,
            explanation,
            fields: &all,
        };
        self.write_error(&page);
    }

    /// Refuses a target that is not a valid path.
    pub fn refuse_target(
        &mut self,
        site_path: SitePath<'_>,
        refusal: RequestRefusal,
    ) -> StatusCode {
        // The connection is closed: an ambiguous target may be request smuggling on a connection that several clients
        // share.
        self.response.close();
        self.exchange.is_refused = true;
        self.exchange.refusal_reason = refusal.reason();
        self.page(
            Some(site_path),
            refusal.status(),
            Some(refusal.as_str()),
            &[],
        );
        refusal.status()
    }

    fn page(
        &mut self,
        site_path: Option<SitePath<'_>>,
        status: StatusCode,
        explanation: Option<&str>,
        fields: &[(&str, &[u8])],
    ) {
        let page = ErrorBody {
            site_path,
            status,
            replaced: status,
            explanation,
            fields,
        };
        self.write_error(&page);
    }

    fn write_error(&mut self, page: &ErrorBody<'_>) {
        let status = page.status;
        // A client of gRPC can't read a page. gRPC is defined for POST over HTTP/2 only.
        if self.exchange.protocol == HttpVersion::Http2
            && self.request.method == Method::Post
            && grpc_error::is_call(self.request.fields())
        {
            let explanation = page.explanation;
            let explanation = explanation.unwrap_or_else(|| error_page::explanation(status));
            self.grpc_error(&GrpcError::new(status, explanation), page.fields);
        } else {
            write_page(page, self.response);
        }
    }

    /// Sends an error of gRPC, in a response of only a head. The log has the status of HTTP.
    fn grpc_error(&mut self, error: &GrpcError, fields: &[(&str, &[u8])]) {
        let mut head = self.response.head(StatusCode::OK);
        head.field("Content-Type", b"application/grpc");
        // The status 200 must not be taken for that of a page.
        head.field("Cache-Control", b"no-store");
        head.field("grpc-status", error.code.as_bytes());
        head.field("grpc-message", &error.message);
        for (name, value) in fields {
            head.field(name, value);
        }
        head.end(BodyLen::Known(0));
    }
}
