//! Decides whether a shared cache may store a response, and gives the reason if not. [`crate::lifetime`] decides
//! whether a stored response may be reused. Read RFC 9111 §3 and §4, RFC 9110 §15.1.
//!
//! [`decide`] evaluates the request and the caller's `StoragePolicy`. [`decide_strict`] is for callers that cannot
//! validate, and that have excluded requests with Authorization, Range or fields outside the cache key: it rejects
//! responses that need validation before each use, or set a cookie.

mod storable_fields;
mod storage_refusal;

use crate::freshness::{self, Freshness, HEURISTIC_SECS_MAX, LifetimeSource, ReceiveTime};
use crate::lifetime::StoragePlan;
use crate::request::RequestDirectives;

use self::storable_fields::StorableFields;
pub use self::storage_refusal::StorageRefusal;

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
