//! Decides which requests a stored response may answer (cache key and selecting fields), and which responses may be
//! stored and for how long.
//!
//! The rules are those of a shared cache (RFC 9111): responses of applications are stored only with an explicit
//! freshness lifetime, responses of origins whenever the RFC allows it.

use std::sync::Arc;

use lowroad_cache::freshness::ReceiveTime;
use lowroad_cache::groups;
use lowroad_cache::lifetime::StoragePlan as Stored;
use lowroad_cache::request::RequestDirectives;
use lowroad_cache::storage_policy::{self, StoragePolicy, StorageRefusal};
use lowroad_cache::vary::SelectingFields;
use lowroad_handler::ResponseFields;
use lowroad_handler::fields::TAG_FIELD;
use lowroad_http::equals_lower;
use lowroad_http::fields::{FieldLines, FieldNames};
use lowroad_http::method::Method;
use lowroad_http::preconditions;
use lowroad_http::range::{self, RangesSpecifier};
use lowroad_http::request::{Request, RequestTarget};
use lowroad_http::status::StatusCode;
use lowroad_routes::cache_rules::{CacheRuleSet, CacheRules};
use lowroad_store::in_flight::InFlightKey;
use lowroad_store::key::{self, SiteScope};
use lowroad_store::purge_epoch::PurgeEpoch;
use lowroad_store::validity::StoredExpiry;

/// Request fields that may change a handler's response although Vary does not name them: preconditions that only the
/// handler can evaluate, and method overrides. Requests with one of them bypass the cache. `Request::affects_caching`
/// must detect each of them.
const BYPASSING_FIELDS: [&[u8]; 5] = [
    b"if-match",
    b"if-unmodified-since",
    b"x-http-method",
    b"x-http-method-override",
    b"x-method-override",
];

/// Changes the hash under which an unshareable response to a range request is recorded. The upper half selects another
/// slot of `InFlightTable`.
const PART_MARK: u64 = 0x5bd1_e995_9e37_79b9;

/// The key under which a response is stored.
#[derive(Clone)]
pub struct CacheKey {
    /// See [`key::write_handler_key`].
    pub bytes: Arc<[u8]>,
    /// See [`KeyFacts::hash`].
    pub hash: u64,
    /// See [`KeyFacts::requested_part`].
    pub requested_part: RequestedPart,
    /// See [`KeyFacts::is_conditional`].
    pub is_conditional: bool,
    /// See [`KeyFacts::is_authorized`].
    pub is_authorized: bool,
    /// The request was a follower before and got no usable response.
    pub has_waited: bool,
    /// The selecting fields (Vary) with the request's values, encoded, if they are known.
    pub variant: Box<[u8]>,
}

/// The part of the representation that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedPart {
    /// The whole representation.
    Whole,
    /// Ranges of the representation.
    Part,
    /// Only the header fields (HEAD).
    Head,
}

/// The properties of a request, and the hash of its key, that a look-up needs.
#[derive(Clone, Copy)]
pub struct KeyFacts {
    /// The hash of the key's bytes.
    pub hash: u64,
    /// The part that the request asks for.
    pub requested_part: RequestedPart,
    /// The request has preconditions, so the response may be a 304, which other requests can't use.
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
    /// Writes the key bytes to `scratch`. `None` if the response may depend on more than the target, Host and the
    /// fields that Vary names: only GET and HEAD have a key, and requests with credentials only if the route is to an
    /// origin. The caller has checked that there is no body. Preconditions and ranges are evaluated against the stored
    /// response.
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
        // For origins, the rules of RFC 9111 §3.5 are applied to the response.
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

/// Whether a request has credentials. `None` if it has another field that may change the response but is not part of
/// the key.
fn is_authorized_only(request: &Request<'_>) -> Option<bool> {
    let is_special = |name: &[u8]| {
        BYPASSING_FIELDS
            .iter()
            .any(|f| name.eq_ignore_ascii_case(f))
    };
    let mut is_authorized = false;
    for (name, value) in request.fields() {
        is_authorized |= equals_lower(name, b"authorization");
        if is_special(name) || names_connection_fields(name, value) {
            return None;
        }
    }
    Some(is_authorized)
}

impl CacheKey {
    /// The same key with the selecting fields of this request.
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

    /// The coalescing key of a call: cache key, variant and purge epoch. Range requests differ from requests for the
    /// whole, which a 206 does not answer.
    pub fn coalescing_key(&self, purges: PurgeEpoch) -> InFlightKey {
        let key_len = self.bytes.len() as u64;
        let job = [
            &*self.bytes,
            &self.variant,
            // Requests after a purge do not join fetches that began before it.
            &purges.to_le_bytes(),
            // Without the length, another split into key and variant could give the same bytes.
            &key_len.to_le_bytes(),
            &[u8::from(self.requested_part == RequestedPart::Part)],
        ];
        job.concat().into()
    }

    /// Whether other requests may wait for the response (coalescing). Preconditions of clients are not forwarded to
    /// origins, except in range requests. Only an origin's response to a range request may be shared.
    pub fn is_shareable(&self, is_origin: bool) -> bool {
        let can_serve_others = match self.requested_part {
            RequestedPart::Whole => is_origin || !self.is_conditional,
            // An origin may ignore Range (RFC 9110 §14.2): its 200 then answers requests for all ranges.
            RequestedPart::Part => is_origin && !self.is_conditional,
            // A response to HEAD has no body for other requests.
            RequestedPart::Head => false,
        };
        // A request that has waited in vain calls the origin itself, so that it waits only once.
        can_serve_others && !self.is_authorized && !self.has_waited
    }

    /// The hash under which an unshareable response is recorded.
    pub fn sharing_mark(&self) -> u64 {
        match self.requested_part {
            RequestedPart::Part => self.part_mark(),
            RequestedPart::Whole | RequestedPart::Head => self.hash,
        }
    }

    /// The hash under which an unshareable response to a range request is recorded. For instance, a 206 of the origin
    /// is unshareable.
    pub fn part_mark(&self) -> u64 {
        // The hash is distinct, since both kinds are recorded in the same table.
        self.hash ^ PART_MARK
    }

    /// Whether the request asks for the whole representation.
    pub fn is_whole(&self) -> bool {
        self.requested_part == RequestedPart::Whole
    }

    /// The same key for a request without Range.
    pub fn without_range(self) -> CacheKey {
        CacheKey {
            requested_part: RequestedPart::Whole,
            ..self
        }
    }
}

/// Whether the field lines ask for a single range without If-Range. If an origin responds to such a request with the
/// whole representation, it ignores Range. Other range requests may get the whole because of too many or malformed
/// ranges, or because the condition of If-Range is false.
pub fn is_plain_range(lines: &[u8]) -> bool {
    let (mut range_count, mut is_plain) = (0, true);
    for (name, value) in FieldLines::new(lines) {
        if equals_lower(name, b"range") {
            range_count += 1;
            // The length is unknown here, so the maximum makes no range unsatisfiable.
            is_plain &= matches!(range::evaluate(value, u64::MAX), RangesSpecifier::One(_));
        }
        // With If-Range, the client may have another version than the shared response.
        is_plain &= !equals_lower(name, b"if-range");
    }
    is_plain && range_count == 1
}

/// Whether a field is a Connection with options other than `close` and `keep-alive`. The fields that it names are not
/// forwarded (RFC 9110 §7.6.1), so the handler gets another request than the one that the key describes.
fn names_connection_fields(name: &[u8], value: &[u8]) -> bool {
    let is_connection_option = |option: &[u8]| {
        let option = option.trim_ascii();
        // These two options name no field that would be removed.
        option.is_empty() || equals_lower(option, b"close") || equals_lower(option, b"keep-alive")
    };
    equals_lower(name, b"connection") && !value.split(|b| *b == b',').all(is_connection_option)
}

/// Decides about the storage of a response.
pub struct ReuseJudge<'j> {
    /// The storage policy of the route.
    pub policy: &'j StoragePolicy,
    /// The rules of the route's cache.
    pub rules: &'j CacheRules,
    /// The rules that may apply.
    pub rule_set: CacheRuleSet,
    /// The request's cache directives.
    pub directives: &'j RequestDirectives,
    /// The time at which the request was sent, monotonic ms.
    pub request_time_ms: u64,
    /// The current time, monotonic ms.
    pub now_ms: u64,
    /// The purge epoch before the request was sent.
    pub purges: PurgeEpoch,
}

/// The decision to store a response.
pub struct StorageDecision {
    /// The expiry.
    pub lifetime: StoredExpiry,
    /// The fields that are not stored.
    pub excluded_fields: FieldNames,
}

impl ReuseJudge<'_> {
    /// The selecting fields of a response; `lines` are the field lines of its request. `None` if Vary is `*` or
    /// otherwise excludes reuse.
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

    /// Decides whether a response is stored, and until when it may be reused.
    ///
    /// # Errors
    /// The reason why the response must not be stored.
    pub fn lifetime(
        &self,
        status: StatusCode,
        fields: &ResponseFields,
    ) -> Result<StorageDecision, StorageRefusal> {
        // A 304 answers only the conditional request; it has no representation to be stored.
        if status == StatusCode::NOT_MODIFIED {
            return Err(StorageRefusal::Status(status.code()));
        }
        let plan = self.decide(self.directives, status, fields)?;
        // RFC 9111 §3.5: only some responses may be shared by requests with credentials.
        let authorized = RequestDirectives {
            is_authorized: true,
            ..RequestDirectives::GET
        };
        Ok(StorageDecision {
            lifetime: StoredExpiry::new(&plan.reuse_deadlines(self.now_ms), plan.freshness.source)
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
        let status = status.code();
        // Most routes have no rules, and need no copy of the policy.
        if self.rules.is_empty() {
            return storage_policy::decide(self.policy, directives, status, fields, &received);
        }
        let policy = self.rules.policy(self.rule_set, status, *self.policy)?;
        storage_policy::decide(&policy, directives, status, fields, &received)
    }
}

/// The names by which the response can be purged: tags separated by commas, then groups, each after a line feed.
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

    const APPLICATION: ReuseJudge<'_> = ReuseJudge {
        policy: &StoragePolicy::APPLICATION,
        rules: &CacheRules::NONE,
        rule_set: CacheRuleSet::EMPTY,
        directives: &RequestDirectives::GET,
        request_time_ms: 0,
        now_ms: 0,
        purges: PurgeEpoch {
            generation: 0,
            deletion_count: 0,
        },
    };

    fn lifetime_ms(response: &HandlerResponse) -> Option<u64> {
        let decision = APPLICATION.lifetime(response.status, &response.fields);
        decision
            .ok()
            .map(|decision| decision.lifetime.fresh_until_ms())
    }

    #[test]
    fn application_response_needs_an_explicit_lifetime() {
        assert_eq!(lifetime_ms(&response()), None);
        let stored = || response().field("Cache-Control", "max-age=60");
        assert_eq!(lifetime_ms(&stored()), Some(60_000));
        assert_eq!(lifetime_ms(&stored().field("Vary", "*")), None);
        let private = response().field("Cache-Control", "private, max-age=60");
        assert_eq!(lifetime_ms(&private), None);
        assert_eq!(lifetime_ms(&stored().field("Set-Cookie", "a=b")), None);
        let heuristic = response().field("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(lifetime_ms(&heuristic), None);
    }

    #[test]
    fn plain_range_is_a_single_range_without_if_range() {
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
    fn vary_determines_the_selecting_fields() {
        let response = response()
            .field("Cache-Control", "max-age=60")
            .field("Vary", "Cookie")
            .field("Cache-Tag", "a, b")
            .field("Cache-Tag", "c")
            .field("Surrogate-Key", "d  e")
            .field("Cache-Groups", "\"f,g\"");
        let decision = APPLICATION.lifetime(response.status, &response.fields);
        let lifetime = decision.expect("it may be stored").lifetime;
        let selecting = APPLICATION.selecting(&response.fields, b"Cookie: a\r\n");
        let selecting = selecting.expect("it can be compared");
        assert!(lifetime.tags().eq([b"a", b"b", b"c", b"d", b"e"]));
        assert!(lifetime.groups().eq([b"f,g"]));
        let matches_lines = |lines: &[u8]| selecting.matches(FieldLines::new(lines));
        assert!(
            matches_lines(b"cookie: a\r\nX: y\r\n")
                && !matches_lines(b"Cookie: b\r\n")
                && !matches_lines(b"")
        );
    }
}
