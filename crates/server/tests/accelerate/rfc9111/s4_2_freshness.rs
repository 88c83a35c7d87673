//! Section 4.2: freshness lifetime and age.

use super::{FAR, LONG_AGO, ScriptedCache};

#[test]
fn most_specific_lifetime_applies() {
    ScriptedCache::new().assert_all_stored(&[
        "200 OK|Cache-Control: s-maxage=60, max-age=0",
        &format!("200 OK|Cache-Control: max-age=60|Expires: {LONG_AGO}"),
        &format!("200 OK|Expires: {FAR}"),
        "200 OK|CDN-Cache-Control: max-age=60|Cache-Control: max-age=0",
        "200 OK|CDN-Cache-Control: max-age=60|Cache-Control: no-store",
        &format!("200 OK|CDN-Cache-Control: max-age=60|Expires: {LONG_AGO}"),
    ]);
    ScriptedCache::new().assert_none_stored(&[
        "200 OK|Cache-Control: s-maxage=0, max-age=60",
        &format!("200 OK|Cache-Control: max-age=0|Expires: {FAR}"),
        &format!("200 OK|Expires: {LONG_AGO}"),
        "200 OK|CDN-Cache-Control: max-age=0|Cache-Control: max-age=60",
        "200 OK|CDN-Cache-Control: no-store|Cache-Control: max-age=60",
        "200 OK|CDN-Cache-Control: private|Cache-Control: max-age=60",
    ]);
}

#[test]
fn malformed_lifetime_is_stale() {
    ScriptedCache::new().assert_none_stored(&[
        "200 OK|Cache-Control: max-age=-1",
        "200 OK|Cache-Control: max-age=1.5",
        "200 OK|Cache-Control: max-age=abc",
        "200 OK|Cache-Control: max-age=60, max-age=0",
        "200 OK|Cache-Control: max-age",
        "200 OK|Cache-Control: max-age=",
        "200 OK|Cache-Control: max-age= 60",
        "200 OK|Cache-Control: max-age =60",
        "200 OK|Cache-Control: s-maxage=x, max-age=60",
        "200 OK|Expires: 0",
        "200 OK|Expires: -1",
        "200 OK|Expires: tomorrow",
        &format!("200 OK|Expires: {FAR}|Expires: {LONG_AGO}"),
    ]);
}

#[test]
fn unusual_but_valid_lifetime_applies() {
    ScriptedCache::new().assert_all_stored(&[
        "200 OK|Cache-Control: max-age=\"60\"",
        "200 OK|Cache-Control: MAX-AGE=60",
        "200 OK|Cache-Control: ,,max-age=60,,",
        "200 OK|Cache-Control: max-age=60, max-age=60",
        "200 OK|Cache-Control: max-age=060",
        "200 OK|Cache-Control: max-age=2147483648",
        "200 OK|Cache-Control: max-age=99999999999999999999999999",
        // An invalid dictionary is as if it were absent (RFC 9213 §2.1).
        "200 OK|CDN-Cache-Control: max-age=0, &|Cache-Control: max-age=60",
    ]);
}

#[test]
fn date_in_the_past_reduces_freshness() {
    let told = ScriptedCache::new();
    assert!(!told.stores(&format!(
        "200 OK|Date: {LONG_AGO}|Cache-Control: max-age=60"
    )));
    assert!(!told.stores(&format!("200 OK|Date: {FAR}|Expires: {FAR}")));
    assert!(
        told.stores(&format!("200 OK|Date: {FAR}|Cache-Control: max-age=60")),
        "it is 0 old"
    );
    assert!(!told.stores(&format!(
        "200 OK|Date: {LONG_AGO}|Expires: Sun, 06 Nov 1994 09:49:37 GMT"
    )));
    assert!(
        told.stores("200 OK|Date: nonsense|Cache-Control: max-age=60"),
        "it is as old as its arrival"
    );
}

#[test]
fn received_age_reduces_freshness_and_increases() {
    let told = ScriptedCache::new();
    told.assert_none_stored(&[
        "200 OK|Age: 60|Cache-Control: max-age=60",
        "200 OK|Age: 61|Cache-Control: max-age=60",
        "200 OK|Age: 99999999999999999999999|Cache-Control: max-age=60",
        "200 OK|Age: 2147483648|Cache-Control: max-age=2147483647",
    ]);
    told.assert_all_stored(&[
        "200 OK|Age: 30|Cache-Control: max-age=60",
        "200 OK|Age: 2147483647|Cache-Control: max-age=99999999999999999999",
    ]);
    let (path, say) = (told.path(), "200 OK|Age: 100|Cache-Control: max-age=900");
    let age = |response: &lowroad_testkit::ClientResponse| -> u64 {
        let ages: Vec<_> = response
            .head
            .lines()
            .filter(|line| line.starts_with("Age:"))
            .collect();
        assert_eq!(ages.len(), 1, "{}", response.head);
        response
            .field("age")
            .expect("an age")
            .parse()
            .expect("a number")
    };
    let first = age(&told.get(&path, say, ""));
    let second = age(&told.get(&path, say, ""));
    assert!(
        (100..110).contains(&first) && (first..110).contains(&second),
        "{first}, {second}"
    );
}

#[test]
fn stored_response_has_age() {
    let told = ScriptedCache::new();
    let (path, say) = (told.path(), "200 OK|Cache-Control: max-age=60");
    told.get(&path, say, "");
    let age = told.get(&path, say, "").field("age").map(str::to_string);
    assert!(age.is_some_and(|age| age.parse::<u64>().is_ok_and(|age| age < 20)));
}

#[test]
fn age_is_computed_from_date() {
    let told = ScriptedCache::new();
    let path = told.path();
    let say = format!("200 OK|Date: {LONG_AGO}|Cache-Control: max-age=2000000000");
    let first = told.get(&path, &say, "");
    let got = told.get(&path, &say, "");
    assert_eq!(first.body, got.body);
    assert_eq!(got.field("date"), Some(LONG_AGO), "the origin's");
    let age: u64 = got.field("age").expect("an age").parse().expect("a number");
    assert!(age > 1_000_000_000, "{age}");
}

#[test]
fn configured_ttl_applies_without_freshness_information() {
    let told = ScriptedCache::with("ttl = \"60s\"");
    told.assert_all_stored(&["200 OK", "404 A", "301 A|Location: /", "200 OK|ETag: \"a\""]);
    told.assert_none_stored(&[
        "200 OK|Cache-Control: max-age=0",
        "200 OK|Cache-Control: no-store",
        "200 OK|Cache-Control: private",
        "200 OK|Set-Cookie: a=b",
        "200 OK|Expires: 0",
        "500 A",
        "400 A",
        "302 A|Location: /",
    ]);
}
