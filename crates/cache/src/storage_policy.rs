//! Decides whether a shared cache may store a response, and gives the reason if not. [`crate::lifetime`] decides
//! whether a stored response may be reused. Read RFC 9111 §3 and §4, RFC 9110 §15.1.
//!
//! [`decide`] evaluates the request and the caller's `StoragePolicy`. [`decide_strict`] is for callers that cannot
//! validate, and that have excluded requests with Authorization, Range or fields outside the cache key: it rejects
//! responses that need validation before each use, or set a cookie.

use crate::cache_control::{self, CacheControl};
use crate::freshness::{
    self, Freshness, HEURISTIC_SECS_MAX, LifetimeSource, ReceiveTime, TimeFields,
};
use crate::lifetime::StoragePlan;
use crate::request::RequestDirectives;
use crate::targeted_fields;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use lowroad_http::fields::FieldNames;

/// The decisions that RFC 9111 leaves to a cache.
#[derive(Clone, Copy, Debug)]
pub struct StoragePolicy {
    /// The cache can validate stored responses: also store stale responses and those with `no-cache`, if they have a
    /// validator.
    pub can_validate: bool,
    /// Store only responses with an explicit freshness lifetime (Cache-Control or Expires).
    pub explicit_only: bool,
    /// The operator's freshness lifetime for responses without an explicit one; it replaces the heuristic by
    /// Last-Modified.
    pub ttl_secs: Option<u64>,
    /// How `ttl_secs` applies.
    pub ttl_scope: TtlScope,
    /// The upper bound of a heuristic freshness lifetime by Last-Modified.
    pub heuristic_secs_max: u64,
    /// Store responses with 403, 429 or 451, although another client, or the same one later, may be admitted.
    pub denial_statuses: bool,
    /// The default of `stale-while-revalidate`.
    pub stale_while_revalidate_secs: u64,
    /// The default of `stale-if-error`.
    pub stale_if_error_secs: u64,
    /// Which responses with Set-Cookie are stored.
    pub cookies: CookiePolicy,
    /// Store responses with a Vary that names any fields; the caller must compare them ([`crate::vary`]). Otherwise
    /// Vary may name only Accept-Encoding.
    pub varies: bool,
    /// Treat Accept-Encoding as a selecting field even if Vary does not name it, since servers may omit it there.
    pub encoding_in_key: bool,
    /// Evaluate CDN-Cache-Control.
    pub targeted: bool,
    /// With `private="f"` or `no-cache="f"`, store the response without the field `f`. Otherwise these directives count
    /// as unqualified.
    pub excludes_fields: bool,
    /// Store 206 responses.
    pub partial: bool,
    /// Store only responses explicitly meant for shared caches: `public`, `s-maxage` or CDN-Cache-Control.
    pub shared_only: bool,
}

/// The responses to which the operator's freshness lifetime applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TtlScope {
    /// Those without an explicit lifetime, with a status that is heuristically cacheable.
    #[default]
    Default,
    /// Those without an explicit lifetime, with any status that can be stored.
    AnyStatus,
    /// All that can be stored, in place of their lifetime and the demands for validation (`no-cache`,
    /// `must-revalidate`). The lifetime begins on arrival. `no-store`, `private` and Set-Cookie still count.
    Override,
}

/// Which responses with Set-Cookie are stored. RFC 9111 permits a cache to store all of them (§7.3). But an
/// application that starts a session on a page with `max-age` does not intend to share that session, so a lifetime
/// alone suffices only for private caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CookiePolicy {
    /// None of them.
    Never,
    /// Those explicitly meant for shared caches: `public`, `s-maxage` or CDN-Cache-Control.
    Shared,
    /// All of them.
    Always,
}

impl StoragePolicy {
    /// For caches that neither validate stored responses nor compare selecting fields other than Accept-Encoding.
    pub const STRICT: StoragePolicy = StoragePolicy {
        can_validate: false,
        explicit_only: false,
        ttl_secs: None,
        ttl_scope: TtlScope::Default,
        heuristic_secs_max: HEURISTIC_SECS_MAX,
        denial_statuses: false,
        stale_while_revalidate_secs: 0,
        stale_if_error_secs: 0,
        cookies: CookiePolicy::Never,
        varies: false,
        encoding_in_key: false,
        targeted: false,
        excludes_fields: false,
        partial: false,
        shared_only: false,
    };
    /// For responses of applications (CGI, FastCGI, handlers): any Vary, but only explicit freshness lifetimes.
    pub const APPLICATION: StoragePolicy = StoragePolicy {
        explicit_only: true,
        denial_statuses: true,
        varies: true,
        ..StoragePolicy::STRICT
    };
    /// For responses of origin servers: everything that RFC 9111 permits.
    pub const ORIGIN: StoragePolicy = StoragePolicy {
        can_validate: true,
        denial_statuses: true,
        cookies: CookiePolicy::Shared,
        varies: true,
        targeted: true,
        excludes_fields: true,
        partial: true,
        ..StoragePolicy::STRICT
    };
}

/// The reason for not storing a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageRefusal {
    /// The status is interim, or depends on more than the cache key.
    Status(u16),
    /// The status is not heuristically cacheable, and there is no explicit freshness lifetime.
    StatusNeedsLifetime(u16),
    /// `must-understand`, and the caching rules of the status are not implemented.
    NotUnderstood(u16),
    /// `no-store`
    NoStore,
    /// `private`
    Private,
    /// `no-cache`: each use would need validation.
    NoCache,
    /// The response sets a cookie.
    SetCookie,
    /// Vary names a field that is not part of the key, or `*`.
    Vary(String),
    /// Cache-Control cannot be parsed.
    Malformed,
    /// There is no explicit freshness lifetime, and `must-revalidate` rules out a heuristic one.
    MustRevalidate,
    /// There is no freshness lifetime: neither explicit nor heuristic nor set by the operator.
    NoLifetime,
    /// The response is stale on arrival.
    Stale,
    /// The response has no explicit freshness lifetime, and changed so recently that its heuristic one is over on
    /// arrival. A later response may be storable.
    JustChanged,
    /// The request's method is not GET.
    Method,
    /// The request has `no-store`.
    RequestNoStore,
    /// The request has Authorization, and the response does not permit sharing (§3.5).
    Authorization,
    /// The response needs validation before use, and has no validator.
    NoValidator,
    /// The operator requires that responses are explicitly meant for shared caches, and this one is not.
    NotShared,
    /// A rule of the operator excludes it.
    Rule,
}

impl StorageRefusal {
    /// A short name for counters.
    pub fn label(&self) -> &'static str {
        match self {
            StorageRefusal::Status(_) => "status",
            StorageRefusal::StatusNeedsLifetime(_) => "status-without-lifetime",
            StorageRefusal::NotUnderstood(_) => "must-understand",
            StorageRefusal::NoStore => "no-store",
            StorageRefusal::Private => "private",
            StorageRefusal::NoCache => "no-cache",
            StorageRefusal::SetCookie => "set-cookie",
            StorageRefusal::Vary(_) => "vary",
            StorageRefusal::Malformed => "cache-control-malformed",
            StorageRefusal::MustRevalidate => "must-revalidate",
            StorageRefusal::NoLifetime => "no-lifetime",
            StorageRefusal::Stale | StorageRefusal::JustChanged => "stale",
            StorageRefusal::Method => "method",
            StorageRefusal::RequestNoStore => "request-no-store",
            StorageRefusal::Authorization => "authorization",
            StorageRefusal::NoValidator => "no-validator",
            StorageRefusal::NotShared => "not-shared",
            StorageRefusal::Rule => "rule",
        }
    }
}

impl fmt::Display for StorageRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageRefusal::Status(status) => {
                write!(f, "responses with status {status} are never stored")
            }
            StorageRefusal::StatusNeedsLifetime(status) => write!(
                f,
                "status {status} needs an explicit lifetime to be stored; set Cache-Control: max-age"
            ),
            StorageRefusal::NotUnderstood(status) => write!(
                f,
                "Cache-Control has must-understand, and the caching requirements of status \
                 {status} are unknown here"
            ),
            StorageRefusal::NoStore => f.write_str("Cache-Control has no-store"),
            StorageRefusal::Private => f.write_str("Cache-Control has private, and this is a shared cache"),
            StorageRefusal::NoCache => f.write_str(
                "Cache-Control (or Pragma) has no-cache: each use would need validation; use max-age instead",
            ),
            StorageRefusal::SetCookie => f.write_str("the response sets a cookie"),
            StorageRefusal::Vary(name) => write!(
                f,
                "Vary names {name:?}; only Accept-Encoding is supported"
            ),
            StorageRefusal::Malformed => f.write_str("Cache-Control is malformed"),
            StorageRefusal::MustRevalidate => f.write_str(
                "Cache-Control has must-revalidate, and the response has no freshness lifetime; add max-age",
            ),
            StorageRefusal::NoLifetime => f.write_str(
                "the response has no freshness lifetime; set Cache-Control: max-age, or a ttl for such responses",
            ),
            StorageRefusal::Stale => f.write_str(
                "the response is already stale on arrival (a lifetime of 0, an Expires in the \
                 past or invalid, or an Age beyond it)",
            ),
            StorageRefusal::JustChanged => f.write_str(
                "the response has no freshness lifetime, and was modified a moment ago, so its \
                 heuristic lifetime is 0; set Cache-Control: max-age, or a ttl for such responses",
            ),
            StorageRefusal::Method => f.write_str("only responses to GET are stored"),
            StorageRefusal::RequestNoStore => f.write_str("the request's Cache-Control has no-store"),
            StorageRefusal::Authorization => f.write_str(
                "the request has Authorization; send public, s-maxage or must-revalidate if other \
                 clients may receive the response",
            ),
            StorageRefusal::NoValidator => f.write_str(
                "the response needs validation before each use, and has neither ETag nor Last-Modified",
            ),
            StorageRefusal::NotShared => f.write_str(
                "the route stores only responses marked for shared caches; send public or s-maxage",
            ),
            StorageRefusal::Rule => f.write_str("a rule of the route's cache has no_store"),
        }
    }
}

impl core::error::Error for StorageRefusal {}

/// Decides whether the response to a GET is stored, by [`StoragePolicy::STRICT`] with this `ttl_secs`.
///
/// # Errors
/// The first reason found not to store the response.
pub fn decide_strict<'a>(
    status: u16,
    fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    received: &ReceiveTime,
    ttl_secs: Option<u64>,
) -> Result<Freshness, StorageRefusal> {
    let policy = StoragePolicy {
        ttl_secs,
        ..StoragePolicy::STRICT
    };
    decide(&policy, &RequestDirectives::GET, status, fields, received).map(|plan| plan.freshness)
}

/// Decides whether the response to a request is stored.
///
/// # Errors
/// The first reason found not to store the response.
pub fn decide<'a>(
    policy: &StoragePolicy,
    directives: &RequestDirectives,
    status: u16,
    fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    received: &ReceiveTime,
) -> Result<StoragePlan, StorageRefusal> {
    if !directives.is_get {
        return Err(StorageRefusal::Method);
    }
    if directives.no_store {
        return Err(StorageRefusal::RequestNoStore);
    }
    let storable = StorableFields::read(fields, policy)?;
    check_storable(status, &storable, policy)?;
    // RFC 9111 §3.5.
    if directives.is_authorized && !storable.permits_authorized_request() {
        return Err(StorageRefusal::Authorization);
    }
    let (lifetime_secs, source) = lifetime(status, &storable, received.at_unix_secs, policy)?;
    let age_ms = freshness::age_ms(&storable.times, received);
    let freshness = Freshness {
        lifetime_secs: match policy.ttl_scope {
            // The lifetime counts from now on, however old the response is.
            TtlScope::Override if source == LifetimeSource::Ttl => {
                lifetime_secs.saturating_add(age_ms.div_ceil(1000))
            }
            _ => lifetime_secs,
        },
        age_ms,
        source,
    };
    let plan = storable.plan(status, freshness, policy);
    match plan.is_useful(policy.can_validate && storable.has_validator) {
        true => Ok(plan),
        false if !policy.can_validate && source == LifetimeSource::Heuristic => {
            Err(StorageRefusal::JustChanged)
        }
        // Unlike with `JustChanged`, a later response will not help: the explicit lifetime itself is over.
        false if !policy.can_validate => Err(StorageRefusal::Stale),
        false => Err(StorageRefusal::NoValidator),
    }
}

/// The fields of a response that determine whether it is stored.
#[derive(Debug, Default)]
struct StorableFields<'a> {
    control: CacheControl,
    /// `control` was read from CDN-Cache-Control, which overrides Cache-Control and Expires.
    is_targeted: bool,
    times: TimeFields<'a>,
    sets_cookie: bool,
    has_validator: bool,
    /// The values of Cache-Control.
    control_lines: Vec<&'a [u8]>,
    excluded_fields: FieldNames,
    /// `Pragma: no-cache`. Pragma is a request field, but servers that send it mean `Cache-Control: no-cache`.
    pragma_no_cache: bool,
}

impl<'a> StorableFields<'a> {
    fn read(
        fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        policy: &StoragePolicy,
    ) -> Result<StorableFields<'a>, StorageRefusal> {
        let mut storable = StorableFields::default();
        let mut targeted = Vec::new();
        for (name, value) in fields {
            let value = value.trim_ascii();
            let name_is = |expected: &str| name.eq_ignore_ascii_case(expected.as_bytes());
            match name.len() {
                4 if name_is("vary") => check_vary(value, policy)?,
                17 if policy.targeted && name_is("cdn-cache-control") => targeted.push(value),
                _ => storable.add(name, value),
            }
        }
        let control_lines = storable.control_lines.iter();
        storable.excluded_fields = control_lines
            .flat_map(|line| cache_control::field_names(line))
            .map(Box::from)
            .collect();
        if let Some(control) = targeted_fields::read(&targeted) {
            storable.control = control;
            storable.is_targeted = true;
            // RFC 9213 §2.2: Expires is ignored with a targeted field.
            storable.times.expires = freshness::SingletonField::Absent;
        }
        if policy.ttl_scope == TtlScope::Override {
            storable.discard_lifetime();
        }
        Ok(storable)
    }

    fn add(&mut self, name: &[u8], value: &'a [u8]) {
        let name_is = |expected: &str| name.eq_ignore_ascii_case(expected.as_bytes());
        let times = &mut self.times;
        // The length selects one or two candidate names.
        match name.len() {
            // RFC 9111 §5.1: the first of several values counts.
            3 if name_is("age") => times.age = times.age.or(Some(value)),
            4 if name_is("date") => times.date = times.date.combine(value),
            4 if name_is("etag") => self.has_validator = true,
            6 if name_is("pragma") => {
                let is_no_cache =
                    |member: &[u8]| member.trim_ascii().eq_ignore_ascii_case(b"no-cache");
                self.pragma_no_cache |= value.split(|b| *b == b',').any(is_no_cache);
            }
            7 if name_is("expires") => times.expires = times.expires.combine(value),
            10 if name_is("set-cookie") => self.sets_cookie = true,
            11 if name_is("set-cookie2") => self.sets_cookie = true,
            13 if name_is("cache-control") => {
                self.control.add_line(value);
                self.control_lines.push(value);
            }
            13 if name_is("last-modified") => {
                times.last_modified = times.last_modified.combine(value);
                self.has_validator = true;
            }
            _ => {}
        }
    }

    /// Discards the explicit lifetime and the demands for validation. A response that could be used only after validation
    /// was not permitted for reuse by others, even with `public`.
    fn discard_lifetime(&mut self) {
        let control = &self.control;
        let is_zero = |secs: cache_control::DeltaSeconds| secs.secs() == Some(0);
        let demands_validation = control.no_cache
            || self.pragma_no_cache
            || is_zero(control.max_age)
            || is_zero(control.s_maxage);
        self.is_targeted &= !demands_validation;
        self.times.expires = freshness::SingletonField::Absent;
        self.pragma_no_cache = false;
        self.control = CacheControl {
            public: !demands_validation && (control.public || control.s_maxage.secs().is_some()),
            must_revalidate_directive: false,
            max_age: cache_control::DeltaSeconds::Absent,
            s_maxage: cache_control::DeltaSeconds::Absent,
            no_cache: false,
            no_cache_unqualified: false,
            must_revalidate: false,
            immutable: false,
            ..self.control
        };
    }

    /// Whether every use needs validation.
    fn no_cache(&self, policy: &StoragePolicy) -> bool {
        let is_no_cache_set = match policy.excludes_fields {
            true => self.control.no_cache_unqualified,
            false => self.control.no_cache,
        };
        is_no_cache_set || (self.pragma_no_cache && !self.control.present)
    }

    /// Whether the response to a request with Authorization may be stored (§3.5).
    fn permits_authorized_request(&self) -> bool {
        let control = &self.control;
        control.public || control.must_revalidate_directive || control.s_maxage.secs().is_some()
    }

    fn plan(&self, status: u16, freshness: Freshness, policy: &StoragePolicy) -> StoragePlan {
        let control = &self.control;
        let no_cache = self.no_cache(policy);
        let s_maxage = control.s_maxage != cache_control::DeltaSeconds::Absent;
        // Without a freshness lifetime the response is stored only for validation, and may be personal: neither a
        // client's max-stale nor the operator's defaults for stale reuse may make it reusable by others.
        let is_never_fresh = freshness.lifetime_secs == 0;
        let stale_window_secs =
            |directive: cache_control::DeltaSeconds, default_secs: u64| match directive {
                // RFC 9111 §5.2.2.2, §5.2.2.4: no stale reuse without validation.
                _ if !policy.can_validate || control.must_revalidate || no_cache => 0,
                cache_control::DeltaSeconds::Secs(secs) => secs,
                // The operator's default applies only if the response does not restrict stale reuse itself.
                cache_control::DeltaSeconds::Absent if !s_maxage && !is_never_fresh => default_secs,
                _ => 0,
            };
        StoragePlan {
            freshness,
            no_cache,
            // RFC 9111 §5.2.2.10: s-maxage implies proxy-revalidate.
            must_revalidate: control.must_revalidate || s_maxage || is_never_fresh,
            swr_secs: stale_window_secs(
                control.stale_while_revalidate,
                policy.stale_while_revalidate_secs,
            ),
            sie_secs: stale_window_secs(control.stale_if_error, policy.stale_if_error_secs),
            immutable: control.immutable,
            excluded_fields: match policy.excludes_fields {
                true => self.excluded_fields.clone(),
                false => FieldNames::NONE,
            },
            is_partial: status == 206,
        }
    }
}

/// Fails with the first name in Vary that the policy does not support: `*`, or without `policy.varies` any name except
/// Accept-Encoding.
fn check_vary(value: &[u8], policy: &StoragePolicy) -> Result<(), StorageRefusal> {
    let unsupported_name = value
        .split(|b| *b == b',')
        .map(<[u8]>::trim_ascii)
        .find(|name| match policy.varies {
            true => *name == b"*",
            false => !name.is_empty() && !name.eq_ignore_ascii_case(b"accept-encoding"),
        });
    match unsupported_name {
        Some(name) => Err(StorageRefusal::Vary(
            String::from_utf8_lossy(name).into_owned(),
        )),
        None => Ok(()),
    }
}

/// Checks everything except the freshness lifetime.
fn check_storable(
    status: u16,
    storable: &StorableFields<'_>,
    policy: &StoragePolicy,
) -> Result<(), StorageRefusal> {
    let control = &storable.control;
    let is_excluded_denial = is_denial_status(status) && !policy.denial_statuses;
    if is_excluded_denial || !(is_storable_status(status) || status == 206 && policy.partial) {
        return Err(StorageRefusal::Status(status));
    }
    // RFC 9111 §4.2.1 advises to treat a response with malformed fields as stale; here it is not stored at all.
    if control.malformed {
        return Err(StorageRefusal::Malformed);
    }
    // RFC 9111 §5.2.2.3.
    if control.must_understand && !is_understood_status(status) {
        return Err(StorageRefusal::NotUnderstood(status));
    }
    // With must-understand, no-store is meant for caches that do not implement must-understand (§5.2.2.3).
    if control.no_store && !control.must_understand {
        return Err(StorageRefusal::NoStore);
    }
    if control.private_unqualified || control.private && !policy.excludes_fields {
        return Err(StorageRefusal::Private);
    }
    if storable.no_cache(policy) && !policy.can_validate {
        return Err(StorageRefusal::NoCache);
    }
    // With `private="set-cookie"` or `no-cache="set-cookie"`, the response is stored without its cookie.
    let is_cookie_excluded =
        policy.excludes_fields && storable.excluded_fields.contains(b"set-cookie");
    let is_for_shared_caches =
        storable.is_targeted || control.public || control.s_maxage.secs().is_some();
    if policy.shared_only && !is_for_shared_caches {
        return Err(StorageRefusal::NotShared);
    }
    let is_cookie_allowed = match policy.cookies {
        CookiePolicy::Never => false,
        // The lifetime of the operator is longer than the one for which the origin permitted sharing.
        CookiePolicy::Shared => is_for_shared_caches && policy.ttl_scope != TtlScope::Override,
        CookiePolicy::Always => true,
    };
    match storable.sets_cookie && !is_cookie_excluded && !is_cookie_allowed {
        true => Err(StorageRefusal::SetCookie),
        false => Ok(()),
    }
}

fn lifetime(
    status: u16,
    storable: &StorableFields<'_>,
    at_unix_secs: u64,
    policy: &StoragePolicy,
) -> Result<(u64, LifetimeSource), StorageRefusal> {
    if let Some((secs, source)) =
        freshness::explicit(&storable.control, &storable.times, at_unix_secs)
    {
        let source = match storable.is_targeted {
            true => LifetimeSource::Targeted,
            false => source,
        };
        return Ok((secs, source));
    }
    if policy.ttl_scope != TtlScope::Default
        && let Some(secs) = policy.ttl_secs
        && !storable.control.must_revalidate
    {
        return Ok((secs, LifetimeSource::Ttl));
    }
    // RFC 9111 §4.2.2: a heuristic lifetime needs a heuristically cacheable status, or `public`.
    if !is_heuristically_cacheable(status) && !storable.control.public {
        return Err(StorageRefusal::StatusNeedsLifetime(status));
    }
    // A response that is validated before each use needs no freshness lifetime.
    let validation_only = || match policy.can_validate && storable.has_validator {
        true => Ok((0, LifetimeSource::Absent)),
        false if policy.can_validate && storable.no_cache(policy) => {
            Err(StorageRefusal::NoValidator)
        }
        false => Err(StorageRefusal::NoLifetime),
    };
    // must-revalidate asks for strict freshness, which a heuristic lifetime would defeat.
    if storable.control.must_revalidate {
        return validation_only().map_err(|_| StorageRefusal::MustRevalidate);
    }
    if policy.explicit_only {
        let ttl = policy.ttl_secs.map(|secs| (secs, LifetimeSource::Ttl));
        return ttl.map_or_else(validation_only, Ok);
    }
    let heuristic_lifetime = || {
        let secs = freshness::heuristic(&storable.times, at_unix_secs)?;
        Some((
            secs.min(policy.heuristic_secs_max),
            LifetimeSource::Heuristic,
        ))
    };
    // The operator's lifetime replaces the heuristic.
    let ttl_or_heuristic = policy
        .ttl_secs
        .map(|secs| (secs, LifetimeSource::Ttl))
        .or_else(heuristic_lifetime);
    ttl_or_heuristic.map_or_else(validation_only, Ok)
}

/// Whether the status denies access to this client, or temporarily to all.
fn is_denial_status(status: u16) -> bool {
    matches!(status, 403 | 429 | 451)
}

/// Whether a response with this status can answer other requests with the same cache key. Other statuses are interim,
/// or depend on credentials, ranges or preconditions of one request.
fn is_storable_status(status: u16) -> bool {
    (200..600).contains(&status) && !matches!(status, 206 | 401 | 407 | 412 | 416)
}

/// Whether the status may be stored without an explicit freshness lifetime (RFC 9110 §15.1). 304 is included because it
/// stands for a 200 if the client's request was conditional.
#[must_use]
pub fn is_heuristically_cacheable(status: u16) -> bool {
    matches!(
        status,
        200 | 203 | 204 | 206 | 300 | 301 | 304 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

/// Whether the caching rules of this status are implemented.
fn is_understood_status(status: u16) -> bool {
    is_heuristically_cacheable(status) || matches!(status, 302 | 303 | 307)
}

#[cfg(test)]
mod tests;
