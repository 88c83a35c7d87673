//! Section 5.2.1: request directives, with and without the setting `request_directives`.

use super::ScriptedCache;

/// A fresh response with an age of 30 s.
const FRESH: &str = "200 OK|Age: 30|ETag: \"a\"|Cache-Control: max-age=60";
/// A response that became stale a second ago.
const STALE: &str = "200 OK|Age: 61|ETag: \"a\"|Cache-Control: max-age=60";

fn control(directives: &str) -> String {
    format!("Cache-Control: {directives}\r\n")
}

#[test]
fn request_directives_are_ignored_by_default() {
    let told = ScriptedCache::new();
    for directive in ["no-cache", "max-age=0", "max-age=10", "min-fresh=50"] {
        assert!(
            told.stores_for(FRESH, "", &control(directive)),
            "{directive}"
        );
    }
    assert!(told.stores_for(FRESH, "", "Pragma: no-cache\r\n"));
    assert!(!told.stores_for(STALE, "", &control("max-stale=600")));
    // Although no response is stored, the request is forwarded: by default the directive is ignored.
    let got = told.get(&told.path(), FRESH, &control("only-if-cached"));
    assert_eq!(got.status, 200);
    assert!(
        !told.stores_for(FRESH, &control("no-store"), ""),
        "that one always counts"
    );
}

#[test]
fn no_cache_max_age_and_min_fresh_are_honoured_if_enabled() {
    let told = ScriptedCache::with("request_directives = true");
    for directive in [
        "no-cache",
        "max-age=0",
        "max-age=10",
        "min-fresh=50",
        "max-age=x",
        "max-age=60, no-cache",
    ] {
        assert!(
            !told.stores_for(FRESH, "", &control(directive)),
            "{directive}"
        );
    }
    for directive in [
        "max-age=40",
        "min-fresh=10",
        "max-age=99999999999999999999",
        "unknown=0",
    ] {
        assert!(
            told.stores_for(FRESH, "", &control(directive)),
            "{directive}"
        );
    }
    assert!(!told.stores_for(FRESH, "", "Pragma: no-cache\r\n"));
    assert!(told.stores_for(
        FRESH,
        "",
        "Pragma: no-cache\r\nCache-Control: max-age=40\r\n"
    ));
}

#[test]
fn max_stale_is_honoured_if_enabled() {
    let told = ScriptedCache::with("request_directives = true");
    for directive in ["max-stale", "max-stale=600"] {
        assert!(
            told.stores_for(STALE, "", &control(directive)),
            "{directive}"
        );
    }
    for directive in ["max-stale=0", "max-stale=1", "max-stale=x"] {
        assert!(
            !told.stores_for(STALE, "", &control(directive)),
            "{directive}"
        );
    }
    for forbids in [
        "must-revalidate",
        "proxy-revalidate",
        "no-cache",
        "s-maxage=60",
    ] {
        let say = format!("200 OK|Age: 61|ETag: \"a\"|Cache-Control: max-age=60, {forbids}");
        assert!(
            !told.stores_for(&say, "", &control("max-stale")),
            "{forbids}"
        );
    }
}

#[test]
fn only_if_cached_is_honoured_if_enabled() {
    let told = ScriptedCache::with("request_directives = true");
    let path = told.path();
    assert_eq!(
        told.get(&path, FRESH, &control("only-if-cached")).status,
        504
    );
    let one = told.get(&path, FRESH, "");
    assert_eq!(
        told.get(&path, FRESH, &control("only-if-cached")).body,
        one.body
    );
    let path = told.path();
    told.get(&path, STALE, "");
    assert_eq!(
        told.get(&path, STALE, &control("only-if-cached")).status,
        504
    );
    assert_eq!(
        told.get(&path, STALE, &control("only-if-cached, max-stale"))
            .status,
        200
    );
}

#[test]
fn response_to_no_cache_replaces_stored_response() {
    let told = ScriptedCache::with("request_directives = true");
    let path = told.path();
    let old = told.get(&path, FRESH, "");
    let new = told.get(&path, FRESH, &control("no-cache"));
    assert_ne!(old.body, new.body);
    assert_eq!(told.get(&path, FRESH, "").body, new.body);
}
