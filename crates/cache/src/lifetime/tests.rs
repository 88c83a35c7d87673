use super::*;
use crate::freshness::ReceiveTime;
use crate::storage_policy::{self, StoragePolicy, StorageRefusal};

const NOW: u64 = 1_795_207_512;
const AT_MS: u64 = 1_000_000;

fn decide(
    asked: &RequestDirectives,
    fields: &[(&str, &str)],
) -> Result<StoragePlan, StorageRefusal> {
    let fields = fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
    let received = ReceiveTime {
        at_unix_secs: NOW,
        delay_ms: 0,
    };
    storage_policy::decide(&StoragePolicy::ORIGIN, asked, 200, fields, &received)
}

fn stored(control: &str) -> FreshnessLifetime {
    let fields = [("Cache-Control", control), ("ETag", "\"a\"")];
    decide(&RequestDirectives::GET, &fields)
        .expect("it may be stored")
        .lifetime(AT_MS)
}

fn after(secs: u64) -> u64 {
    AT_MS + secs * 1000
}

fn asks(control: &'static str) -> RequestDirectives {
    RequestDirectives::read(true, [(&b"cache-control"[..], control.as_bytes())], true)
}

#[test]
fn fresh_until_its_lifetime_ends() {
    let it = stored("max-age=10");
    assert_eq!(
        it.reusability_for(&RequestDirectives::GET, after(9)),
        Reusability::Fresh
    );
    assert_eq!(
        it.reusability_for(&RequestDirectives::GET, after(10)),
        Reusability::Validate
    );
    for at_ms in [0, AT_MS, after(10) - 1, after(10), u64::MAX] {
        let is_fresh = it.reusability_for(&RequestDirectives::GET, at_ms) == Reusability::Fresh;
        assert_eq!(it.is_fresh(at_ms), is_fresh);
    }
    assert!(!stored("max-age=10, no-cache").is_fresh(AT_MS));
    assert_eq!(it.age_ms(after(9)), 9000);
    assert_eq!(
        it.expired(after(1))
            .reusability_for(&RequestDirectives::GET, after(1)),
        Reusability::Validate
    );
}

#[test]
fn an_age_beyond_the_time_that_the_clock_has_run_is_kept() {
    // A monotonic clock starts at boot, so the time of origin may be negative.
    let fields = [("Cache-Control", "max-age=9000"), ("Age", "7200")];
    let it = decide(&RequestDirectives::GET, &fields)
        .expect("it may be stored")
        .lifetime(500);
    assert_eq!(it.age_ms(500), 7_200_500);
    // The clock of another worker may be behind.
    assert_eq!(it.age_ms(0) / 1000, 7200);
}

#[test]
fn no_cache_is_validated_each_time() {
    // Not even `stale-if-error` may override it.
    let it = stored("max-age=10, no-cache");
    assert_eq!(
        it.reusability_for(&RequestDirectives::GET, after(0)),
        Reusability::Validate
    );
    assert!(!it.is_usable_on_error(&RequestDirectives::GET, after(0)));
    let bare = [("Cache-Control", "no-cache")];
    assert_eq!(
        decide(&RequestDirectives::GET, &bare),
        Err(StorageRefusal::NoValidator)
    );
}

#[test]
fn the_request_limits_what_is_used() {
    // RFC 9111 §5.2.1.
    let it = stored("max-age=10");
    assert_eq!(
        it.reusability_for(&asks("max-age=5"), after(5)),
        Reusability::Fresh
    );
    assert_eq!(
        it.reusability_for(&asks("max-age=5"), after(6)),
        Reusability::Validate
    );
    assert_eq!(
        it.reusability_for(&asks("max-age=0"), after(0)),
        Reusability::Validate
    );
    assert_eq!(
        it.reusability_for(&asks("no-cache"), after(0)),
        Reusability::Validate
    );
    assert_eq!(
        it.reusability_for(&asks("min-fresh=5"), after(5)),
        Reusability::Fresh
    );
    assert_eq!(
        it.reusability_for(&asks("min-fresh=5"), after(6)),
        Reusability::Validate
    );
    assert_eq!(
        it.reusability_for(&asks("only-if-cached"), after(5)),
        Reusability::Fresh
    );
    assert_eq!(
        it.reusability_for(&asks("only-if-cached"), after(10)),
        Reusability::Unusable
    );
}

#[test]
fn max_stale_takes_what_may_be_stale() {
    // RFC 9111 §4.2.4: the response's prohibition takes precedence.
    let it = stored("max-age=10");
    assert_eq!(
        it.reusability_for(&asks("max-stale=5"), after(14)),
        Reusability::Stale
    );
    assert_eq!(
        it.reusability_for(&asks("max-stale=5"), after(15)),
        Reusability::Validate
    );
    assert_eq!(
        it.reusability_for(&asks("max-stale"), after(9999)),
        Reusability::Stale
    );
    for control in [
        "max-age=10, must-revalidate",
        "s-maxage=10",
        "max-age=10, proxy-revalidate",
    ] {
        let verdict = stored(control).reusability_for(&asks("max-stale"), after(11));
        assert_eq!(verdict, Reusability::Validate, "{control}");
    }
}

#[test]
fn windows_of_stale_use() {
    // RFC 5861; `must-revalidate` excludes both windows.
    let it = stored("s-maxage=10, stale-while-revalidate=5, stale-if-error=9");
    assert_eq!(
        it.reusability_for(&RequestDirectives::GET, after(14)),
        Reusability::StaleWhileRevalidate
    );
    assert_eq!(
        it.reusability_for(&RequestDirectives::GET, after(15)),
        Reusability::Validate
    );
    assert!(
        it.is_usable_on_error(&RequestDirectives::GET, after(18))
            && !it.is_usable_on_error(&RequestDirectives::GET, after(19))
    );
    let strict = stored("max-age=10, must-revalidate, stale-while-revalidate=5, stale-if-error=9");
    assert_eq!(
        strict.reusability_for(&RequestDirectives::GET, after(11)),
        Reusability::Validate
    );
    assert!(!strict.is_usable_on_error(&RequestDirectives::GET, after(11)));
    let client = stored("max-age=10");
    assert!(client.is_usable_on_error(&asks("stale-if-error=5"), after(14)));
    assert!(!client.is_usable_on_error(&asks("stale-if-error=5"), after(15)));
}

#[test]
fn stale_responses_are_stored_to_be_validated() {
    // Stale, without a lifetime, and invalid.
    for control in ["max-age=0", "public", "max-age=x"] {
        assert_eq!(
            stored(control).reusability_for(&RequestDirectives::GET, after(0)),
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
fn requests_that_are_not_for_everybody() {
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
    let of = |asked: &RequestDirectives| decide(asked, &[("Cache-Control", "max-age=5")]).err();
    assert_eq!(of(&asks("no-store")), Some(StorageRefusal::Asked));
    let head = RequestDirectives {
        is_get: false,
        ..RequestDirectives::GET
    };
    assert_eq!(of(&head), Some(StorageRefusal::Method));
}

#[test]
fn cookies_need_words_for_shared_caches() {
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
fn named_fields_are_left_out() {
    let fields = [("Cache-Control", "max-age=5, private=\"a\", no-cache=\"B\"")];
    let storing = decide(&RequestDirectives::GET, &fields).expect("it may be stored");
    assert!(!storing.no_cache);
    assert!(storing.excluded_fields.contains(b"a") && storing.excluded_fields.contains(b"b"));
    assert!(!storing.excluded_fields.contains(b"c"));
}

#[test]
fn what_is_said_to_cdns_counts() {
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
