//! Section 5.2.1: request directives, where they apply and where not.

use super::Told;

/// Fresh for a while, and 30 s old.
const FRESH: &str = "200 OK|Age: 30|ETag: \"a\"|Cache-Control: max-age=60";
/// Stale for a second.
const STALE: &str = "200 OK|Age: 61|ETag: \"a\"|Cache-Control: max-age=60";

fn control(directives: &str) -> String {
    format!("Cache-Control: {directives}\r\n")
}

#[test]
fn by_default_they_are_not_heard() {
    let told = Told::new();
    for directive in ["no-cache", "max-age=0", "max-age=10", "min-fresh=50"] {
        assert!(
            told.stores_for(FRESH, "", &control(directive)),
            "{directive}"
        );
    }
    assert!(told.stores_for(FRESH, "", "Pragma: no-cache\r\n"));
    assert!(!told.stores_for(STALE, "", &control("max-stale=600")));
    // No response is stored, but the request is answered: the directive is ignored by default.
    let got = told.get(&told.path(), FRESH, &control("only-if-cached"));
    assert_eq!(got.status, 200);
    assert!(
        !told.stores_for(FRESH, &control("no-store"), ""),
        "that one always counts"
    );
}

#[test]
fn where_they_count_a_client_can_want_something_fresher() {
    let told = Told::with("request_directives = true");
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
fn where_they_count_a_client_can_take_something_stale() {
    let told = Told::with("request_directives = true");
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
fn where_they_count_a_client_can_want_only_what_is_stored() {
    let told = Told::with("request_directives = true");
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
fn what_a_client_had_made_anew_is_for_all() {
    let told = Told::with("request_directives = true");
    let path = told.path();
    let old = told.get(&path, FRESH, "");
    let new = told.get(&path, FRESH, &control("no-cache"));
    assert_ne!(old.body, new.body);
    assert_eq!(told.get(&path, FRESH, "").body, new.body);
}
