use super::*;
use crate::freshness::ReceiveTime;
use crate::storage_policy::{self, StoragePolicy, StorageRefusal};

const NOW: u64 = 1_795_207_512;
const AT_MS: u64 = 1_000_000;

fn decide(
    directives: &RequestDirectives,
    fields: &[(&str, &str)],
) -> Result<StoragePlan, StorageRefusal> {
    let fields = fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
    let received = ReceiveTime {
        at_unix_secs: NOW,
        delay_ms: 0,
    };
    storage_policy::decide(&StoragePolicy::ORIGIN, directives, 200, fields, &received)
}

fn stored(control: &str) -> ReuseDeadlines {
    let fields = [("Cache-Control", control), ("ETag", "\"a\"")];
    decide(&RequestDirectives::GET, &fields)
        .expect("it may be stored")
        .reuse_deadlines(AT_MS)
}

fn after_secs(secs: u64) -> u64 {
    AT_MS + secs * 1000
}

fn request_with(control: &'static str) -> RequestDirectives {
    RequestDirectives::read(true, [(&b"cache-control"[..], control.as_bytes())], true)
}

#[test]
fn response_is_fresh_until_its_lifetime_ends() {
    let response = stored("max-age=10");
    assert_eq!(
        response.reusability_for(&RequestDirectives::GET, after_secs(9)),
        Reusability::Fresh
    );
    assert_eq!(
        response.reusability_for(&RequestDirectives::GET, after_secs(10)),
        Reusability::Validate
    );
    for at_ms in [0, AT_MS, after_secs(10) - 1, after_secs(10), u64::MAX] {
        let is_fresh =
            response.reusability_for(&RequestDirectives::GET, at_ms) == Reusability::Fresh;
        assert_eq!(response.is_fresh(at_ms), is_fresh);
    }
    assert!(!stored("max-age=10, no-cache").is_fresh(AT_MS));
    assert_eq!(response.age_ms(after_secs(9)), 9000);
    assert_eq!(
        response
            .after_soft_purge(after_secs(1))
            .reusability_for(&RequestDirectives::GET, after_secs(1)),
        Reusability::Validate
    );
}

#[test]
fn age_may_exceed_the_uptime_of_the_clock() {
    // A monotonic clock starts at boot, so the time at which the response was generated may be negative.
    let fields = [("Cache-Control", "max-age=9000"), ("Age", "7200")];
    let response = decide(&RequestDirectives::GET, &fields)
        .expect("it may be stored")
        .reuse_deadlines(500);
    assert_eq!(response.age_ms(500), 7_200_500);
    // The clock of another worker may be behind.
    assert_eq!(response.age_ms(0) / 1000, 7200);
}

#[test]
fn no_cache_needs_validation_before_each_use() {
    // Not even `stale-if-error` may override it.
    let response = stored("max-age=10, no-cache");
    assert_eq!(
        response.reusability_for(&RequestDirectives::GET, after_secs(0)),
        Reusability::Validate
    );
    assert!(!response.is_usable_on_error(&RequestDirectives::GET, after_secs(0)));
    let bare = [("Cache-Control", "no-cache")];
    assert_eq!(
        decide(&RequestDirectives::GET, &bare),
        Err(StorageRefusal::NoValidator)
    );
}

#[test]
fn request_directives_limit_reuse() {
    // RFC 9111 §5.2.1.
    let response = stored("max-age=10");
    assert_eq!(
        response.reusability_for(&request_with("max-age=5"), after_secs(5)),
        Reusability::Fresh
    );
    assert_eq!(
        response.reusability_for(&request_with("max-age=5"), after_secs(6)),
        Reusability::Validate
    );
    assert_eq!(
        response.reusability_for(&request_with("max-age=0"), after_secs(0)),
        Reusability::Validate
    );
    assert_eq!(
        response.reusability_for(&request_with("no-cache"), after_secs(0)),
        Reusability::Validate
    );
    assert_eq!(
        response.reusability_for(&request_with("min-fresh=5"), after_secs(5)),
        Reusability::Fresh
    );
    assert_eq!(
        response.reusability_for(&request_with("min-fresh=5"), after_secs(6)),
        Reusability::Validate
    );
    assert_eq!(
        response.reusability_for(&request_with("only-if-cached"), after_secs(5)),
        Reusability::Fresh
    );
    assert_eq!(
        response.reusability_for(&request_with("only-if-cached"), after_secs(10)),
        Reusability::Unusable
    );
}

#[test]
fn max_stale_permits_stale_reuse_unless_prohibited() {
    // RFC 9111 §4.2.4: the response's prohibition takes precedence.
    let response = stored("max-age=10");
    assert_eq!(
        response.reusability_for(&request_with("max-stale=5"), after_secs(14)),
        Reusability::Stale
    );
    assert_eq!(
        response.reusability_for(&request_with("max-stale=5"), after_secs(15)),
        Reusability::Validate
    );
    assert_eq!(
        response.reusability_for(&request_with("max-stale"), after_secs(9999)),
        Reusability::Stale
    );
    for control in [
        "max-age=10, must-revalidate",
        "s-maxage=10",
        "max-age=10, proxy-revalidate",
    ] {
        let verdict = stored(control).reusability_for(&request_with("max-stale"), after_secs(11));
        assert_eq!(verdict, Reusability::Validate, "{control}");
    }
}

#[test]
fn stale_while_revalidate_and_stale_if_error_end() {
    // RFC 5861; `must-revalidate` forbids both.
    let response = stored("s-maxage=10, stale-while-revalidate=5, stale-if-error=9");
    assert_eq!(
        response.reusability_for(&RequestDirectives::GET, after_secs(14)),
        Reusability::StaleWhileRevalidate
    );
    assert_eq!(
        response.reusability_for(&RequestDirectives::GET, after_secs(15)),
        Reusability::Validate
    );
    assert!(
        response.is_usable_on_error(&RequestDirectives::GET, after_secs(18))
            && !response.is_usable_on_error(&RequestDirectives::GET, after_secs(19))
    );
    let strict = stored("max-age=10, must-revalidate, stale-while-revalidate=5, stale-if-error=9");
    assert_eq!(
        strict.reusability_for(&RequestDirectives::GET, after_secs(11)),
        Reusability::Validate
    );
    assert!(!strict.is_usable_on_error(&RequestDirectives::GET, after_secs(11)));
    let client = stored("max-age=10");
    assert!(client.is_usable_on_error(&request_with("stale-if-error=5"), after_secs(14)));
    assert!(!client.is_usable_on_error(&request_with("stale-if-error=5"), after_secs(15)));
}

#[test]
fn stale_responses_with_validator_are_stored() {
    // Stale, without a lifetime, and invalid.
    for control in ["max-age=0", "public", "max-age=x"] {
        assert_eq!(
            stored(control).reusability_for(&RequestDirectives::GET, after_secs(0)),
            Reusability::Validate,
            "{control}"
        );
    }
    let without = [("Cache-Control", "max-age=0")];
    assert_eq!(
        decide(&RequestDirectives::GET, &without),
        Err(StorageRefusal::NoValidator)
    );
}

#[test]
fn authorized_requests_and_no_store_are_not_stored() {
    // RFC 9111 §3.5.
    let authorized = RequestDirectives {
        is_authorized: true,
        ..RequestDirectives::GET
    };
    let of = |control| decide(&authorized, &[("Cache-Control", control)]).err();
    assert_eq!(of("max-age=5"), Some(StorageRefusal::Authorization));
    for control in [
        "max-age=5, public",
        "s-maxage=5",
        "max-age=5, must-revalidate",
    ] {
        assert_eq!(of(control), None, "{control}");
    }
    let of = |directives: &RequestDirectives| {
        decide(directives, &[("Cache-Control", "max-age=5")]).err()
    };
    assert_eq!(
        of(&request_with("no-store")),
        Some(StorageRefusal::RequestNoStore)
    );
    let head = RequestDirectives {
        is_get: false,
        ..RequestDirectives::GET
    };
    assert_eq!(of(&head), Some(StorageRefusal::Method));
}

#[test]
fn set_cookie_needs_public_or_s_maxage() {
    // A lifetime alone may be meant for private caches.
    let of = |control| {
        decide(
            &RequestDirectives::GET,
            &[("Cache-Control", control), ("Set-Cookie", "a=b")],
        )
        .err()
    };
    assert_eq!(of("max-age=5"), Some(StorageRefusal::SetCookie));
    for control in [
        "max-age=5, public",
        "s-maxage=5",
        "max-age=5, no-cache=\"set-cookie\"",
    ] {
        assert_eq!(of(control), None, "{control}");
    }
}

#[test]
fn qualified_private_and_no_cache_exclude_fields() {
    let fields = [("Cache-Control", "max-age=5, private=\"a\", no-cache=\"B\"")];
    let plan = decide(&RequestDirectives::GET, &fields).expect("it may be stored");
    assert!(!plan.no_cache);
    assert!(plan.excluded_fields.contains(b"a") && plan.excluded_fields.contains(b"b"));
    assert!(!plan.excluded_fields.contains(b"c"));
}

#[test]
fn cdn_cache_control_overrides_cache_control() {
    // RFC 9213 §2.2: the targeted field replaces Cache-Control; an invalid one is ignored (§2.1).
    let of = |cdn, control| {
        let fields = [("CDN-Cache-Control", cdn), ("Cache-Control", control)];
        decide(&RequestDirectives::GET, &fields).map(|s| s.freshness.lifetime_secs)
    };
    assert_eq!(of("max-age=60", "no-store"), Ok(60));
    assert_eq!(of("max-age=1", "max-age=60"), Ok(1));
    assert_eq!(of("no-store", "max-age=60"), Err(StorageRefusal::NoStore));
    assert_eq!(
        of("max-age=60, &&", "no-store"),
        Err(StorageRefusal::NoStore)
    );
}
