//! Builds the Cache-Status field of a response (RFC 9211).

use lowroad_cache::cache_status::{CacheResult, CacheStatus};
use lowroad_engine::HeadBuilder;
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_routes::routes::Route;
use lowroad_store::object::{BodyLocation, Representation};
use lowroad_store::validity::StoredExpiry;

use crate::storage::{HitKind, StoredResponse};

/// The name of this cache.
const NAME: &str = "lowroad";

/// The remaining freshness of a stored response in seconds, negative if it is stale; `None` if the route does not send
/// Cache-Status.
#[inline]
pub fn ttl_secs(route: &Route, lifetime: Option<&StoredExpiry>, now_ms: u64) -> Option<i64> {
    let lifetime = lifetime.filter(|_| route.sends_cache_status)?;
    let until_ms = lifetime.fresh_until_ms();
    // Rounded towards negative infinity in both cases.
    Some(match until_ms.checked_sub(now_ms) {
        Some(remaining_ms) => (remaining_ms / 1000).cast_signed(),
        None => (until_ms as i64 - now_ms as i64).div_euclid(1000),
    })
}

/// The member for a hit; `HeaderLines::for_hit` of `site` writes the same for hits in memory.
pub fn hit(ttl_secs: i64, content: Option<&BodyLocation>) -> CacheStatus<'static> {
    CacheStatus {
        ttl_secs: Some(ttl_secs),
        detail: Some(tier_of(content)),
        ..CacheStatus::default()
    }
}

/// The member for a response from the store; `None` if the route does not send Cache-Status.
pub fn for_stored(
    route: &Route,
    stored: &StoredResponse,
    now_ms: u64,
) -> Option<CacheStatus<'static>> {
    let object = &stored.object;
    let content = object.representation().map(Representation::content);
    let ttl_secs = ttl_secs(route, object.validity.lifetime(), now_ms)?;
    let hit = hit(ttl_secs, content);
    let status = CacheStatus {
        detail: None,
        ..hit
    };
    Some(match stored.hit_kind {
        HitKind::Hit => hit,
        // The ttl parameter is only for responses that were stored (RFC 9211 §2.4).
        HitKind::Fetched | HitKind::Coalesced => CacheStatus {
            result: stored.reason,
            ttl_secs: status.ttl_secs.filter(|_| stored.is_stored),
            stored: stored.is_stored,
            collapsed: stored.hit_kind == HitKind::Coalesced,
            ..status
        },
        HitKind::Validated => CacheStatus {
            result: CacheResult::Stale,
            fwd_status: Some(StatusCode::NOT_MODIFIED.code()),
            stored: true,
            ..status
        },
        HitKind::StaleIfError => CacheStatus {
            result: CacheResult::Stale,
            detail: Some("stale-if-error"),
            ..status
        },
    })
}

/// The tier of the store that has the body.
#[inline]
fn tier_of(content: Option<&BodyLocation>) -> &'static str {
    match content {
        Some(BodyLocation::Segment(_)) => "disk",
        _ => "memory",
    }
}

/// The member for a response that is not stored.
pub fn for_bypass(route: &Route, method: Method) -> Option<CacheStatus<'static>> {
    let answered = match method {
        Method::Get | Method::Head => CacheResult::Miss,
        // RFC 9211 §2.2: the method's semantics require forwarding.
        _ => CacheResult::Method,
    };
    let status = CacheStatus {
        result: answered,
        ..CacheStatus::default()
    };
    route.sends_cache_status.then_some(status)
}

/// Writes the Cache-Status field.
pub fn write(status: &CacheStatus<'_>, head: &mut HeadBuilder<'_>) {
    head.field_by("Cache-Status", |value| status.write(NAME, value));
}
