use super::*;
use alloc::string::ToString;
use alloc::vec::Vec;
use lowroad_http::date;

const NOW: u64 = 1_795_207_512;

const RECEIVED: ReceiveTime = ReceiveTime {
    at_unix_secs: NOW,
    delay_ms: 0,
};

fn decide_with(
    status: u16,
    fields: &[(&str, &str)],
    ttl_secs: Option<u64>,
) -> Result<Freshness, StorageRefusal> {
    let fields = fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
    decide_strict(status, fields, &RECEIVED, ttl_secs)
}

fn decide_fields(fields: &[(&str, &str)]) -> Result<u64, StorageRefusal> {
    decide_with(200, fields, None).map(|freshness| freshness.lifetime_secs)
}

fn decide_control(line: &str) -> Result<u64, StorageRefusal> {
    decide_fields(&[("cache-control", line)])
}

#[test]
fn response_with_explicit_lifetime_is_stored() {
    assert_eq!(decide_control("max-age=60"), Ok(60));
    assert_eq!(decide_control("public, max-age=60, s-maxage=5"), Ok(5));
    assert_eq!(decide_control("immutable, max-age=\"60\""), Ok(60));
}

#[test]
fn no_store_private_and_no_cache_are_not_stored() {
    // RFC 9111 §5.2.2; `decide_strict` treats qualified forms as unqualified.
    assert_eq!(
        decide_control("max-age=60, no-store"),
        Err(StorageRefusal::NoStore)
    );
    assert_eq!(
        decide_control("max-age=60, private"),
        Err(StorageRefusal::Private)
    );
    assert_eq!(
        decide_control("max-age=60, private=\"x-user\""),
        Err(StorageRefusal::Private)
    );
    assert_eq!(
        decide_control("max-age=60, no-cache"),
        Err(StorageRefusal::NoCache)
    );
    assert_eq!(
        decide_control("max-age=60, a=\"b"),
        Err(StorageRefusal::Malformed)
    );
    assert_eq!(
        decide_fields(&[
            ("cache-control", "max-age=60"),
            ("cache-control", "NO-STORE")
        ]),
        Err(StorageRefusal::NoStore)
    );
}

#[test]
fn response_stale_on_arrival_is_not_stored() {
    // RFC 9111 §4.2.1: conflicting and invalid lifetimes count as stale.
    for line in [
        "max-age=0",
        // In a shared cache, s-maxage takes precedence.
        "s-maxage=0, max-age=60",
        "max-age=0, must-revalidate",
        // Conflicting values.
        "max-age=1, max-age=2",
        "max-age=-5",
    ] {
        assert_eq!(decide_control(line), Err(StorageRefusal::Stale), "{line}");
    }
    let aged = [("cache-control", "max-age=60"), ("age", "60")];
    assert_eq!(decide_fields(&aged), Err(StorageRefusal::Stale));
    let aged = [("cache-control", "max-age=60"), ("age", "59")];
    assert_eq!(decide_fields(&aged), Ok(60));
    assert_eq!(
        decide_fields(&[("expires", "0")]),
        Err(StorageRefusal::Stale)
    );
    // An invalid Expires counts as expired, and is not replaced by the operator's TTL.
    assert_eq!(
        decide_with(200, &[("expires", "-1")], Some(9)).map(|_| ()),
        Err(StorageRefusal::Stale)
    );
}

#[test]
fn must_revalidate_requires_an_explicit_lifetime() {
    // A heuristic lifetime would contradict the demand for strict freshness.
    assert_eq!(decide_control("max-age=60, must-revalidate"), Ok(60));
    let silent = [("cache-control", "must-revalidate")];
    assert_eq!(
        decide_with(200, &silent, Some(9)).map(|_| ()),
        Err(StorageRefusal::MustRevalidate)
    );
    let silent = [("cache-control", "proxy-revalidate")];
    assert_eq!(
        decide_with(200, &silent, Some(9)).map(|_| ()),
        Err(StorageRefusal::MustRevalidate)
    );
}

#[test]
fn strict_policy_supports_only_vary_accept_encoding() {
    // `decide_strict` is for callers with Accept-Encoding as the only selecting field.
    let vary = |value| decide_fields(&[("cache-control", "max-age=60"), ("vary", value)]);
    assert_eq!(vary("Accept-Encoding"), Ok(60));
    assert_eq!(vary("accept-encoding, , Accept-Encoding"), Ok(60));
    assert_eq!(vary("*"), Err(StorageRefusal::Vary("*".into())));
    assert_eq!(
        vary("Accept-Encoding, User-Agent"),
        Err(StorageRefusal::Vary("User-Agent".into()))
    );
}

#[test]
fn strict_policy_does_not_store_set_cookie() {
    // A session cookie in a shared cache would let one user act in another user's session.
    for name in ["Set-Cookie", "set-cookie2"] {
        let fields = [("cache-control", "public, max-age=60"), (name, "a=b")];
        assert_eq!(decide_fields(&fields), Err(StorageRefusal::SetCookie));
    }
}

#[test]
fn must_understand_overrides_no_store_for_understood_statuses() {
    let fields = [("cache-control", "must-understand, no-store, max-age=60")];
    assert_eq!(decide_with(200, &fields, None).map(|_| ()), Ok(()));
    assert_eq!(decide_with(302, &fields, None).map(|_| ()), Ok(()));
    assert_eq!(
        decide_with(400, &fields, None).map(|_| ()),
        Err(StorageRefusal::NotUnderstood(400))
    );
}

#[test]
fn pragma_no_cache_counts_only_without_cache_control() {
    // RFC 9111 §5.4.
    assert_eq!(
        decide_with(200, &[("pragma", "x, No-Cache")], Some(9)).map(|_| ()),
        Err(StorageRefusal::NoCache)
    );
    let both = [("pragma", "no-cache"), ("cache-control", "max-age=60")];
    assert_eq!(decide_fields(&both), Ok(60));
}

#[test]
fn heuristically_cacheable_statuses_need_no_explicit_lifetime() {
    // 206 is missing: this policy stores no partial content.
    let stored: Vec<u16> = (100..=599)
        .filter(|status| decide_with(*status, &[], Some(9)).is_ok())
        .collect();
    assert_eq!(
        stored,
        [200, 203, 204, 300, 301, 304, 308, 404, 405, 410, 414, 501]
    );
    assert_eq!(
        decide_with(302, &[], Some(9)).map(|_| ()),
        Err(StorageRefusal::StatusNeedsLifetime(302))
    );
}

#[test]
fn other_final_statuses_need_an_explicit_lifetime_or_public() {
    // RFC 9111 §3 and §4.2.2.
    for status in [302, 303, 307, 400, 500, 503] {
        let lifetime = [("cache-control", "max-age=60")];
        assert!(decide_with(status, &lifetime, None).is_ok(), "{status}");
        let public = [("cache-control", "public")];
        assert!(decide_with(status, &public, Some(9)).is_ok(), "{status}");
    }
    for status in [100, 103, 199, 206, 401, 403, 407, 412, 416, 429, 451, 600] {
        let lifetime = [("cache-control", "max-age=60")];
        assert_eq!(
            decide_with(status, &lifetime, Some(9)).map(|_| ()),
            Err(StorageRefusal::Status(status))
        );
    }
}

#[test]
fn policy_controls_denial_statuses_and_heuristic_lifetimes() {
    let received = ReceiveTime {
        at_unix_secs: NOW,
        delay_ms: 0,
    };
    let lifetime = [(&b"cache-control"[..], &b"max-age=60"[..])];
    let is_stored = |policy: &StoragePolicy, status| {
        decide(policy, &RequestDirectives::GET, status, lifetime, &received).is_ok()
    };
    for status in [403, 429, 451] {
        assert!(is_stored(&StoragePolicy::ORIGIN, status), "{status}");
        assert!(!is_stored(&StoragePolicy::STRICT, status), "{status}");
    }
    let modified = date::format(NOW - 1_000_000);
    let bounded = StoragePolicy {
        heuristic_secs_max: 5,
        ..StoragePolicy::ORIGIN
    };
    let heuristic_lifetime = |policy| {
        let fields = [(&b"last-modified"[..], &modified[..])];
        let plan = decide(policy, &RequestDirectives::GET, 200, fields, &received);
        plan.map(|plan| plan.freshness.lifetime_secs)
    };
    assert_eq!(heuristic_lifetime(&bounded), Ok(5));
    assert_eq!(heuristic_lifetime(&StoragePolicy::ORIGIN), Ok(86_400));
    // Modified just now: the reason shows that a later response may be storable.
    let modified = date::format(NOW - 5);
    let fields = [(&b"last-modified"[..], &modified[..])];
    let strict = decide(
        &StoragePolicy::STRICT,
        &RequestDirectives::GET,
        200,
        fields,
        &received,
    );
    assert_eq!(strict.map(|_| ()), Err(StorageRefusal::JustChanged));
}

#[test]
fn without_explicit_lifetime_ttl_or_heuristic_applies() {
    let modified = date::format(NOW - 1000);
    let modified = core::str::from_utf8(&modified).expect("ASCII");
    let fields_with_last_modified = [("last-modified", modified)];
    let source =
        |fields: &[_], ttl| decide_with(200, fields, ttl).map(|f| (f.lifetime_secs, f.source));
    assert_eq!(
        source(&fields_with_last_modified, Some(9)),
        Ok((9, LifetimeSource::Ttl))
    );
    assert_eq!(
        source(&fields_with_last_modified, None),
        Ok((100, LifetimeSource::Heuristic))
    );
    assert_eq!(source(&[], Some(9)), Ok((9, LifetimeSource::Ttl)));
    assert_eq!(source(&[], None), Err(StorageRefusal::NoLifetime));
    assert_eq!(source(&[], Some(0)), Err(StorageRefusal::Stale));
    let explicit = [("cache-control", "max-age=60")];
    assert_eq!(source(&explicit, Some(9)), Ok((60, LifetimeSource::MaxAge)));
}

#[test]
fn response_delay_is_part_of_the_age() {
    // RFC 9111 §4.2.3: the response may have aged during the whole exchange.
    let received = ReceiveTime {
        at_unix_secs: NOW,
        delay_ms: 250,
    };
    let fields = [(b"Cache-Control".as_slice(), b"max-age=2".as_slice())];
    let freshness = decide_strict(200, fields, &received, None).expect("fresh");
    assert_eq!(freshness.remaining_ms(), 1750);
}

#[test]
fn refusals_are_displayed_with_a_remedy() {
    let text = StorageRefusal::Vary("User-Agent".into()).to_string();
    assert_eq!(
        text,
        "Vary names \"User-Agent\"; only Accept-Encoding is supported"
    );
    assert!(StorageRefusal::NoLifetime.to_string().contains("ttl"));
}

#[test]
fn ttl_of_a_rule_is_for_any_status_and_may_override_the_response() {
    let received = ReceiveTime {
        at_unix_secs: 0,
        delay_ms: 0,
    };
    let lifetime = |scope, status, lines: &[(&str, &str)]| {
        let policy = StoragePolicy {
            ttl_secs: Some(60),
            ttl_scope: scope,
            ..StoragePolicy::ORIGIN
        };
        let fields = lines
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let plan = decide(&policy, &RequestDirectives::GET, status, fields, &received)?;
        Ok((
            plan.freshness.lifetime_secs,
            plan.no_cache,
            plan.must_revalidate,
        ))
    };
    use TtlScope::{AnyStatus, Default, Override};
    // As applications send them that do not know of shared caches.
    let own = [("Cache-Control", "max-age=5")];
    let strict = [
        ("Cache-Control", "no-cache, must-revalidate, max-age=0"),
        ("Expires", "0"),
        ("Pragma", "no-cache"),
    ];
    for (scope, status, lines, expected) in [
        (
            Default,
            500,
            &[][..],
            Err(StorageRefusal::StatusNeedsLifetime(500)),
        ),
        (AnyStatus, 500, &[], Ok((60, false, false))),
        (AnyStatus, 200, &own, Ok((5, false, false))),
        (Override, 200, &own, Ok((60, false, false))),
        (Override, 200, &strict, Ok((60, false, false))),
        (Override, 302, &strict, Ok((60, false, false))),
        // The lifetime begins on arrival.
        (Override, 200, &[("Age", "100")], Ok((161, false, false))),
        (
            Override,
            200,
            &[("Cache-Control", "private, max-age=9")],
            Err(StorageRefusal::Private),
        ),
        (
            Override,
            200,
            &[("Cache-Control", "no-store")],
            Err(StorageRefusal::NoStore),
        ),
        (
            Override,
            200,
            &[("Set-Cookie", "a=b"), ("Cache-Control", "max-age=9")],
            Err(StorageRefusal::SetCookie),
        ),
        (Override, 401, &own, Err(StorageRefusal::Status(401))),
    ] {
        assert_eq!(
            lifetime(scope, status, lines),
            expected,
            "{scope:?} {status} {lines:?}"
        );
    }
}

#[test]
fn operators_lifetime_does_not_share_personal_responses() {
    let policy = StoragePolicy {
        ttl_secs: Some(60),
        ttl_scope: TtlScope::Override,
        ..StoragePolicy::ORIGIN
    };
    let refusal = |is_authorized: bool, lines: &[(&str, &str)]| {
        let directives = RequestDirectives {
            is_authorized,
            ..RequestDirectives::GET
        };
        let fields = lines
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        decide(&policy, &directives, 200, fields, &RECEIVED).err()
    };
    for control in [
        "no-cache, must-revalidate",
        "max-age=0, must-revalidate",
        "max-age=9, must-revalidate",
        "s-maxage=0",
        "public, no-cache",
        "public, max-age=0",
    ] {
        let line = ("Cache-Control", control);
        assert_eq!(
            refusal(true, &[line]),
            Some(StorageRefusal::Authorization),
            "{control}"
        );
        assert_eq!(
            refusal(false, &[line, ("Set-Cookie", "a=b")]),
            Some(StorageRefusal::SetCookie),
            "{control}"
        );
        assert_eq!(refusal(false, &[line]), None, "{control}");
    }
    let shared = ("Cache-Control", "public, max-age=9");
    assert_eq!(refusal(true, &[shared]), None);
    assert_eq!(
        refusal(false, &[shared, ("Set-Cookie", "a=b")]),
        Some(StorageRefusal::SetCookie)
    );
    let targeted = ("CDN-Cache-Control", "max-age=0");
    assert_eq!(
        refusal(false, &[targeted, ("Set-Cookie", "a=b")]),
        Some(StorageRefusal::SetCookie)
    );
}
