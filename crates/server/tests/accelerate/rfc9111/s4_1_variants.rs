//! Section 4.1: cache keys, and variants selected by Vary.

use super::ScriptedCache;

#[test]
fn cache_key_has_complete_target_and_host() {
    let told = ScriptedCache::new();
    let say = "Say: 200 OK|Cache-Control: max-age=60\r\n";
    let mut bodies = Vec::new();
    for target in [
        "/k", "/k?", "/k?a", "/k?a=1", "/k?a=1&", "/K", "/k/", "/%6b",
    ] {
        let body = told.front.get(target, say).text();
        assert!(!bodies.contains(&body), "{target}");
        assert_eq!(told.front.get(target, say).text(), body, "{target}");
        bodies.push(body);
    }
    let mut client = told.front.connect();
    client.send(format!("GET /k HTTP/1.1\r\nHost: other\r\n{say}\r\n"));
    assert!(!bodies.contains(&client.response().text()));
}

#[test]
fn vary_selects_variant_by_field_value() {
    let told = ScriptedCache::new();
    let say = "200 OK|Cache-Control: max-age=60|Vary: X-Kind";
    assert!(told.stores_for(say, "X-Kind: a\r\n", "X-Kind: a\r\n"));
    assert!(
        told.stores_for(say, "X-Kind: a\r\n", "x-kind:  a \r\n"),
        "case of the name, and space around"
    );
    assert!(!told.stores_for(say, "X-Kind: a\r\n", "X-Kind: A\r\n"));
    assert!(!told.stores_for(say, "X-Kind: a\r\n", ""));
    assert!(!told.stores_for(say, "", "X-Kind: a\r\n"));
    assert!(told.stores_for(say, "", ""));
    assert!(told.stores_for(
        say,
        "X-Kind: a\r\nX-Other: 1\r\n",
        "X-Kind: a\r\nX-Other: 2\r\n"
    ));
    assert!(told.stores_for(say, "X-Kind: a\r\nX-Kind: b\r\n", "X-Kind: a, b\r\n"));
}

#[test]
fn variants_are_stored_concurrently() {
    let told = ScriptedCache::new();
    let (path, say) = (
        told.path(),
        "200 OK|Cache-Control: max-age=60|Vary: X-Kind, X-Two",
    );
    let ask = |kind: usize| {
        let fields = format!("X-Kind: {}\r\nX-Two: {}\r\n", kind % 4, kind / 4);
        told.get(&path, say, &fields).text()
    };
    let first: Vec<_> = (0..12).map(ask).collect();
    let again: Vec<_> = (0..12).map(ask).collect();
    assert_eq!(first, again);
    assert_eq!(told.front.origin.count(), 12);
}

#[test]
fn many_variants_are_kept_apart() {
    let told = ScriptedCache::new();
    let (path, say) = (
        told.path(),
        "200 OK|Cache-Control: max-age=60|Vary: Say-Body|X-Body: ",
    );
    for round in 0..2 {
        for kind in 0..60 {
            let got = told.get(
                &path,
                &format!("{say}{kind}"),
                &format!("Say-Body: {kind}\r\n"),
            );
            assert_eq!(
                got.field("x-body"),
                Some(&*kind.to_string()),
                "round {round}"
            );
        }
    }
}

#[test]
fn vary_star_or_malformed_vary_is_not_stored() {
    ScriptedCache::new().assert_none_stored(&[
        "200 OK|Cache-Control: max-age=60|Vary: *",
        "200 OK|Cache-Control: max-age=60|Vary: Accept, *",
        "200 OK|Cache-Control: max-age=60|Vary: Accept|Vary: *",
        "200 OK|Cache-Control: max-age=60|Vary: *, Accept",
        "200 OK|Cache-Control: max-age=60|Vary: a b",
    ]);
}

#[test]
fn vary_lines_are_combined() {
    let told = ScriptedCache::new();
    let say = "200 OK|Cache-Control: max-age=60|Vary: X-A|Vary: ,x-b,,";
    assert!(told.stores_for(say, "X-A: 1\r\nX-B: 1\r\n", "X-B: 1\r\nX-A: 1\r\n"));
    assert!(!told.stores_for(say, "X-A: 1\r\nX-B: 1\r\n", "X-A: 2\r\nX-B: 1\r\n"));
    assert!(!told.stores_for(say, "X-A: 1\r\nX-B: 1\r\n", "X-A: 1\r\nX-B: 2\r\n"));
}

#[test]
fn equal_preferences_select_the_same_variant() {
    let told = ScriptedCache::new();
    let say = "200 OK|Cache-Control: max-age=60|Vary: Accept-Language";
    let same = |one: &str, two: &str| {
        let line = |value: &str| format!("Accept-Language: {value}\r\n");
        told.stores_for(say, &line(one), &line(two))
    };
    assert!(same("de, en;q=0.5", "de,en;q=0.5"));
    assert!(same("de, en", "DE , en"));
    assert!(!same("de, en", "en, de"), "origins take the first");
    assert!(!same("de, en", "de;q=0.1, en"));
    assert!(!same("de", "en"));
    let say = "200 OK|Cache-Control: max-age=60|Vary: Accept-Encoding";
    assert!(told.stores_for(
        say,
        "Accept-Encoding: gzip, br\r\n",
        "Accept-Encoding: br,gzip\r\n"
    ));
    assert!(!told.stores_for(say, "Accept-Encoding: gzip\r\n", ""));
}

#[test]
fn precondition_applies_to_selected_variant() {
    let told = ScriptedCache::new();
    let path = told.path();
    let say =
        |kind: &str| format!("200 OK|Cache-Control: max-age=60|Vary: X-Kind|ETag: \"{kind}\"");
    told.get(&path, &say("a"), "X-Kind: a\r\n");
    told.get(&path, &say("b"), "X-Kind: b\r\n");
    let status = |kind: &str, tag: &str| {
        let fields = format!("X-Kind: {kind}\r\nIf-None-Match: \"{tag}\"\r\n");
        told.get(&path, "500 A", &fields).status
    };
    assert_eq!((status("a", "a"), status("b", "b")), (304, 304));
    assert_eq!((status("a", "b"), status("b", "a")), (200, 200));
}
