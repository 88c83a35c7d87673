//! Decides which requests a stored response may answer, and which responses may be reused: key and freshness lifetime.
//! Independent of the store.
//!
//! Storage follows the rules of a shared cache (RFC 9111): responses of programs only with an explicit lifetime,
//! responses of origins whenever the RFC allows it.

use std::sync::Arc;

use lowroad_cache::freshness::ReceiveTime;
use lowroad_cache::groups;
use lowroad_cache::lifetime::StoragePlan as Stored;
use lowroad_cache::request::RequestDirectives;
use lowroad_cache::storage_policy::{self, StoragePolicy, StorageRefusal};
use lowroad_cache::vary::SelectingFields;
use lowroad_handler::ResponseFields;
use lowroad_handler::fields::TAG_FIELD;
use lowroad_http::fields::{FieldLines, FieldNames};
use lowroad_http::method::Method;
use lowroad_http::preconditions;
use lowroad_http::range::{self, RangesSpecifier};
use lowroad_http::request::{Request, RequestTarget};
use lowroad_http::status::StatusCode;
use lowroad_store::in_flight::InFlightKey;
use lowroad_store::key::{self, SiteScope};
use lowroad_store::purge_epoch::PurgeEpoch;
use lowroad_store::validity::StoredExpiry;

/// Fields that may change a program's response although Vary does not name them: conditions that only the program can
/// evaluate, and method overrides. `Request::affects_caching` must detect each of them.
const SPECIAL: [&[u8]; 5] = [
    b"if-match",
    b"if-unmodified-since",
    b"x-http-method",
    b"x-http-method-override",
    b"x-method-override",
];

/// Separates the marks of range requests from those of whole requests. Its upper half selects another slot of
/// `InFlightTable`.
const PART_MARK: u64 = 0x5bd1_e995_9e37_79b9;

/// The key under which a response is stored.
#[derive(Clone)]
pub struct CacheKey {
    /// See [`key::write_handler_key`].
    pub bytes: Arc<[u8]>,
    /// As in `KeyFacts`.
    pub hash: u64,
    /// As in `KeyFacts`.
    pub requested_part: RequestedPart,
    /// As in `KeyFacts`.
    pub is_conditional: bool,
    /// As in `KeyFacts`.
    pub is_authorized: bool,
    /// The request has already waited for another request's response.
    pub has_waited: bool,
    /// The fields named by Vary, with the request's values; they distinguish the variants.
    pub variant: Box<[u8]>,
}

/// The part of a representation that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedPart {
    /// The whole.
    Whole,
    /// Ranges.
    Part,
    /// The fields only: HEAD.
    Head,
}

/// The properties of a key that a look-up needs.
#[derive(Clone, Copy)]
pub struct KeyFacts {
    /// The hash of the bytes.
    pub hash: u64,
    /// The part of the representation that the request asks for.
    pub requested_part: RequestedPart,
    /// The response may be a 304, which other requests can't use.
    pub is_conditional: bool,
    /// The request has credentials, so its response is rarely shareable.
    pub is_authorized: bool,
}

impl RequestedPart {
    fn from_request(request: &Request<'_>, has_range: bool) -> RequestedPart {
        match (request.method, has_range) {
            (Method::Get, false) => RequestedPart::Whole,
            (Method::Get, true) => RequestedPart::Part,
            _ => RequestedPart::Head,
        }
    }
}

impl KeyFacts {
    /// Writes the key bytes to `scratch`, if the response to the request can depend only on the target, Host and the
    /// fields that Vary names: GET and HEAD, without credentials unless the route is an origin. The caller has ruled
    /// out a body. Conditions and ranges are evaluated against the stored response.
    pub fn from_request(
        request: &Request<'_>,
        is_origin: bool,
        site: SiteScope,
        scratch: &mut Vec<u8>,
        hash: impl Fn(&[u8]) -> u64,
    ) -> Option<KeyFacts> {
        let is_read = matches!(request.method, Method::Get | Method::Head);
        if !is_read {
            return None;
        }
        let is_authorized = match request.affects_caching() {
            false => false,
            true => is_authorized_only(request)?,
        };
        // For origins, RFC 9111 §3.5 decides about the response.
        if is_authorized && !is_origin {
            return None;
        }
        let facts = KeyFacts::from_target(request, site, scratch, hash)?;
        Some(KeyFacts {
            is_authorized,
            ..facts
        })
    }

    fn from_target(
        request: &Request<'_>,
        site: SiteScope,
        scratch: &mut Vec<u8>,
        hash: impl Fn(&[u8]) -> u64,
    ) -> Option<KeyFacts> {
        let RequestTarget::Origin { path, query, .. } = request.target else {
            return None;
        };
        let host = request.authority.unwrap_or_default();
        key::write_handler_key(scratch, site, host, path, query);
        let is_conditional_or_range = preconditions::may_differ(request);
        let has_condition = is_conditional_or_range
            && (!request.if_none_match().is_empty() || request.if_modified_since().is_some());
        let has_range = is_conditional_or_range && request.range().is_some();
        Some(KeyFacts {
            hash: hash(scratch),
            requested_part: RequestedPart::from_request(request, has_range),
            is_conditional: has_condition,
            is_authorized: false,
        })
    }

    /// The key with these bytes.
    pub fn key(self, bytes: &[u8]) -> CacheKey {
        CacheKey {
            bytes: bytes.into(),
            hash: self.hash,
            requested_part: self.requested_part,
            is_conditional: self.is_conditional,
            is_authorized: self.is_authorized,
            has_waited: false,
            variant: Box::default(),
        }
    }
}

/// Whether a request has credentials; `None` if a field may change the response in a way that no key covers.
fn is_authorized_only(request: &Request<'_>) -> Option<bool> {
    let is_special = |name: &[u8]| SPECIAL.iter().any(|f| name.eq_ignore_ascii_case(f));
    let mut is_authorized = false;
    for (name, value) in request.fields() {
        is_authorized |= name.eq_ignore_ascii_case(b"authorization");
        if is_special(name) || hides_fields(name, value) {
            return None;
        }
    }
    Some(is_authorized)
}

impl CacheKey {
    /// The key of the variant that this request selects.
    pub fn with_variant(
        mut self,
        selecting: Option<&SelectingFields>,
        request: &Request<'_>,
    ) -> CacheKey {
        if let Some(selecting) = selecting {
            let mut variant = Vec::new();
            let selecting = selecting.select_from(request.fields());
            selecting.write(&mut variant);
            self.variant = variant.into();
        }
        self
    }

    /// Identifies a call in flight: key, variant and purge epoch. Range requests differ from whole requests, which a
    /// 206 does not answer.
    pub fn job(&self, purges: PurgeEpoch) -> InFlightKey {
        let key_len = self.bytes.len() as u64;
        let job = [
            &*self.bytes,
            &self.variant,
            // Requests after a purge do not join fetches started before it.
            &purges.to_le_bytes(),
            &key_len.to_le_bytes(),
            &[u8::from(self.requested_part == RequestedPart::Part)],
        ];
        job.concat().into()
    }

    /// Whether other requests may wait for the response. Origins get no client conditions except in range requests. A
    /// range can be answered from the whole only if an origin sent it.
    pub fn is_shareable(&self, is_origin: bool) -> bool {
        let can_serve_others = match self.requested_part {
            RequestedPart::Whole => is_origin || !self.is_conditional,
            // An origin may ignore the range (RFC 9110 §14.2): its whole response then serves all.
            RequestedPart::Part => is_origin && !self.is_conditional,
            RequestedPart::Head => false,
        };
        can_serve_others && !self.is_authorized && !self.has_waited
    }

    /// The hash under which an unshareable response is recorded.
    pub fn sharing_mark(&self) -> u64 {
        match self.requested_part {
            RequestedPart::Part => self.part_mark(),
            RequestedPart::Whole | RequestedPart::Head => self.hash,
        }
    }

    /// The same for range requests, usually because the origin answers them with 206.
    pub fn part_mark(&self) -> u64 {
        // In the same table as the marks of whole responses.
        self.hash ^ PART_MARK
    }

    /// Whether the request asks for the whole body.
    pub fn is_whole(&self) -> bool {
        self.requested_part == RequestedPart::Whole
    }

    /// The key of a request for the whole.
    pub fn without_range(self) -> CacheKey {
        CacheKey {
            requested_part: RequestedPart::Whole,
            ..self
        }
    }
}

/// Whether the field lines ask for a single range without If-Range. An origin that answers such a request with the
/// whole ignores Range. Other range requests may get the whole because of too many or malformed ranges, or a failed
/// If-Range.
pub fn is_plain_range(lines: &[u8]) -> bool {
    let (mut range_count, mut is_plain) = (0, true);
    for (name, value) in FieldLines::new(lines) {
        if name.eq_ignore_ascii_case(b"range") {
            range_count += 1;
            is_plain &= matches!(range::evaluate(value, u64::MAX), RangesSpecifier::One(_));
        }
        // The client may have another version than the one that is shared.
        is_plain &= !name.eq_ignore_ascii_case(b"if-range");
    }
    is_plain && range_count == 1
}

/// Whether a handler does not see all fields: those that Connection names are for the next hop only (RFC 9110 §7.6.1).
/// The response may then differ from that to a request without Connection options.
fn hides_fields(name: &[u8], value: &[u8]) -> bool {
    let is_connection_option = |option: &[u8]| {
        let option = option.trim_ascii();
        let option_is = |expected: &[u8]| option.eq_ignore_ascii_case(expected);
        // Fields named by Connection end at this server (RFC 9110 §7.6.1), so the handler would see another request
        // than the key says.
        option.is_empty() || option_is(b"close") || option_is(b"keep-alive")
    };
    name.eq_ignore_ascii_case(b"connection")
        && !value.split(|b| *b == b',').all(is_connection_option)
}

/// The input for judging a response.
pub struct ReuseJudge<'j> {
    /// The storage policy of the route.
    pub policy: &'j StoragePolicy,
    /// The request's cache directives.
    pub directives: &'j RequestDirectives,
    /// The time at which the request was sent, monotonic ms.
    pub request_time_ms: u64,
    /// The current time, monotonic ms.
    pub now_ms: u64,
    /// The purge epoch before that.
    pub purges: PurgeEpoch,
}

/// The terms on which a response is stored.
pub struct StorageDecision {
    /// Its expiry.
    pub lifetime: StoredExpiry,
    /// Fields to omit.
    pub excluded_fields: FieldNames,
}

impl ReuseJudge<'_> {
    /// The request fields that select the response; `lines` are the field lines of its request. `None` if Vary
    /// prevents a comparison, such as `*`.
    pub fn selecting(&self, fields: &ResponseFields, lines: &[u8]) -> Option<SelectingFields> {
        let encoding = self
            .policy
            .encoding_in_key
            .then_some(&b"accept-encoding"[..]);
        SelectingFields::from_vary(
            fields.values("Vary").chain(encoding),
            FieldLines::new(lines),
        )
    }

    /// The expiry of a response.
    ///
    /// # Errors
    /// The reason why it must not be reused.
    pub fn lifetime(
        &self,
        status: StatusCode,
        fields: &ResponseFields,
    ) -> Result<StorageDecision, StorageRefusal> {
        // 304 answers a conditional request only; it is not a representation.
        if status == StatusCode::NOT_MODIFIED {
            return Err(StorageRefusal::Status(status.code()));
        }
        let plan = self.decide(self.directives, status, fields)?;
        let authorized = RequestDirectives {
            is_authorized: true,
            ..RequestDirectives::GET
        };
        Ok(StorageDecision {
            lifetime: StoredExpiry::new(&plan.lifetime(self.now_ms), plan.freshness.source)
                .with_shareable(self.decide(&authorized, status, fields).is_ok())
                .with_purge_epoch(self.purges)
                .with_names(names(fields)),
            excluded_fields: plan.excluded_fields,
        })
    }

    fn decide(
        &self,
        directives: &RequestDirectives,
        status: StatusCode,
        fields: &ResponseFields,
    ) -> Result<Stored, StorageRefusal> {
        let date = fields.date();
        let fields = fields
            .lines()
            .chain(date.map(|date| (&b"Date"[..], &date[..])));
        let received = ReceiveTime {
            at_unix_secs: (lowroad_store::clock::unix_ns() / 1_000_000_000) as u64,
            delay_ms: self.now_ms.saturating_sub(self.request_time_ms),
        };
        storage_policy::decide(self.policy, directives, status.code(), fields, &received)
    }
}

/// The names for purges: tags separated by commas, then a group after each line feed.
fn names(fields: &ResponseFields) -> Vec<u8> {
    let mut tags: Vec<&[u8]> = fields.values(TAG_FIELD).collect();
    let keys = fields.values("Surrogate-Key");
    tags.extend(keys.flat_map(|keys| keys.split(|b| *b == b' ')));
    let mut names = tags.join(&b","[..]);
    for group in groups::names(fields.values("Cache-Groups")) {
        names.push(b'\n');
        names.extend(group);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_handler::HandlerResponse;

    fn response() -> HandlerResponse {
        HandlerResponse::new(StatusCode::OK, "text/plain", "hello")
    }

    const PROGRAM: ReuseJudge<'_> = ReuseJudge {
        policy: &StoragePolicy::PROGRAM,
        directives: &RequestDirectives::GET,
        request_time_ms: 0,
        now_ms: 0,
        purges: PurgeEpoch {
            generation: 0,
            deletion_count: 0,
        },
    };

    fn lifetime_ms(response: &HandlerResponse) -> Option<u64> {
        let judged = PROGRAM.lifetime(response.status, &response.fields);
        judged.ok().map(|judged| judged.lifetime.until_ms())
    }

    #[test]
    fn only_what_says_so_is_used_again() {
        assert_eq!(lifetime_ms(&response()), None);
        let stored = || response().field("Cache-Control", "max-age=60");
        assert_eq!(lifetime_ms(&stored()), Some(60_000));
        assert_eq!(lifetime_ms(&stored().field("Vary", "*")), None);
        let private = response().field("Cache-Control", "private, max-age=60");
        assert_eq!(lifetime_ms(&private), None);
        assert_eq!(lifetime_ms(&stored().field("Set-Cookie", "a=b")), None);
        let guessed = response().field("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(lifetime_ms(&guessed), None);
    }

    #[test]
    fn a_plain_range_is_one_by_itself() {
        for (lines, is_plain) in [
            ("Range: bytes=0-3\r\n", true),
            ("range: bytes=5-\r\nAccept: */*\r\n", true),
            ("Range: bytes=-3\r\n", true),
            ("Range: bytes=0-3,7-9\r\n", false),
            ("Range: bytes=3-0\r\n", false),
            ("Range: lines=0-3\r\n", false),
            ("Range: bytes=0-3\r\nIf-Range: \"a\"\r\n", false),
            ("Range: bytes=0-3\r\nRange: bytes=0-3\r\n", false),
            ("Accept: */*\r\n", false),
        ] {
            assert_eq!(is_plain_range(lines.as_bytes()), is_plain, "{lines}");
        }
    }

    #[test]
    fn vary_says_for_whom() {
        let response = response()
            .field("Cache-Control", "max-age=60")
            .field("Vary", "Cookie")
            .field("Cache-Tag", "a, b")
            .field("Cache-Tag", "c")
            .field("Surrogate-Key", "d  e")
            .field("Cache-Groups", "\"f,g\"");
        let judged = PROGRAM.lifetime(response.status, &response.fields);
        let lifetime = judged.expect("it may be stored").lifetime;
        let selecting = PROGRAM.selecting(&response.fields, b"Cookie: a\r\n");
        let selecting = selecting.expect("it can be compared");
        assert!(lifetime.tags().eq([b"a", b"b", b"c", b"d", b"e"]));
        assert!(lifetime.groups().eq([b"f,g"]));
        let takes = |lines: &[u8]| selecting.matches(FieldLines::new(lines));
        assert!(takes(b"cookie: a\r\nX: y\r\n") && !takes(b"Cookie: b\r\n") && !takes(b""));
    }
}
