//! Paths of requests and responses under all combinations of prefixes.

use super::*;

fn map(strip: &str, add: &str) -> PathMap {
    let prefixes = PathPrefixes {
        strip: strip.into(),
        add: add.into(),
        restores: true,
    };
    PathMap::new(&prefixes).expect("a prefix")
}

#[test]
fn prefix_of_client_is_replaced_by_prefix_of_origin() {
    for (strip, add, target, expected) in [
        ("/api", "", "/api/x", "/x"),
        ("/api", "", "/api", "/"),
        ("/api", "", "/api/", "/"),
        ("/api", "", "/api?a=/api/b", "/?a=/api/b"),
        ("/api", "/v2", "/api/x?y", "/v2/x?y"),
        ("/api", "/v2", "/api", "/v2"),
        ("/api", "/v2", "/api/", "/v2/"),
        ("", "/v2", "/x", "/v2/x"),
        ("", "/v2", "/", "/v2/"),
        ("/api", "/app/", "/api", "/app/"),
        // The client's encoding of the rest is kept.
        ("/api", "", "/api/a%2Fb;c//d%7e", "/a%2Fb;c//d%7e"),
        ("/api", "", "/%61pi/x", "/x"),
        ("/a b", "", "/a%20b/x", "/x"),
        ("/a/b", "", "//a//b//x", "/x"),
        ("/api", "", "/api%2Fx%2Fy", "/x%2Fy"),
        ("/api", "/v2", "/api%2fx", "/v2/x"),
        // A backslash ends the prefix, too: patterns take it for a slash.
        ("/api", "/base", "/api%5cadmin/y", "/base/admin/y"),
        ("/api", "/base", "/api\\x", "/base/x"),
        ("/api", "", "/api%5Cx", "/x"),
        // The result never begins with two slashes.
        ("/api", "", "/api//evil/x", "/evil/x"),
        ("/api", "", "/api/\\evil", "/evil"),
        // Targets without the prefix.
        ("/api", "/v2", "*", "*"),
        ("/api", "", "/apix", "/apix"),
        ("/api", "", "/ap%69x/y", "/ap%69x/y"),
    ] {
        let mapped = map(strip, add).origin_target(target.as_bytes());
        assert_eq!(
            String::from_utf8_lossy(&mapped),
            expected,
            "{strip} {add} {target}"
        );
    }
}

#[test]
fn references_of_origin_are_translated_for_the_client() {
    for (strip, add, reference, expected) in [
        ("/api", "", "/x?a#b", Some("/api/x?a#b")),
        ("/api", "", "/", Some("/api/")),
        ("/api", "/v2", "/v2/x", Some("/api/x")),
        ("/api", "/v2", "/v2", Some("/api")),
        ("/api", "/v2", "/v2?a", Some("/api?a")),
        ("", "/v2", "/v2/x", Some("/x")),
        ("", "/v2", "/v2", Some("/")),
        ("/a b", "", "/x", Some("/a%20b/x")),
        ("/api", "", "http://h:1/x", Some("http://h:1/api/x")),
        ("/api", "", "HTTPS://H:1/x", Some("HTTPS://H:1/api/x")),
        ("", "/v2", "/v2//evil", Some("/.//evil")),
        ("", "/v2", "/v2/\\evil", Some("/./\\evil")),
        // The application knows the prefix.
        ("/api", "", "/api/x", None),
        ("/api", "", "/api", None),
        // References elsewhere.
        ("/api", "/v2", "/v20/x", None),
        ("/api", "/v2", "/login", None),
        ("/api", "", "x", None),
        ("/api", "", "../x", None),
        ("/api", "", "?a", None),
        ("/api", "", "//h:1/x", None),
        ("/api", "", "/\\h/x", None),
        ("/api", "", "http://other/x", None),
        ("/api", "", "http://h:1@other/x", None),
        ("/api", "", "http://h:1\\x", None),
        ("/api", "", "http://h:1", None),
        ("/api", "", "ftp://h:1/x", None),
        ("/api", "", "", None),
    ] {
        let mapped = map(strip, add).client_reference(reference.as_bytes(), b"h:1");
        let mapped = mapped.map(|it| String::from_utf8(it).expect("text"));
        assert_eq!(mapped.as_deref(), expected, "{strip} {add} {reference}");
        // Translation ends: a translated reference is never lengthened again.
        if let (Some(mapped), "") = (mapped, add) {
            let again = map(strip, add).client_reference(mapped.as_bytes(), b"h:1");
            assert_eq!(again, None, "{mapped}");
        }
    }
}

#[test]
fn mapped_reference_leads_back_to_the_origin_path() {
    for (strip, add) in [
        ("/api", ""),
        ("/api", "/v2"),
        ("", "/v2"),
        ("/a/b c", "/d/e"),
    ] {
        let map = map(strip, add);
        for rest in ["/x", "/x/y%2Fz", "/", "/a%20b?q=1"] {
            let origin = [add, rest].concat();
            let client = map
                .client_reference(origin.as_bytes(), b"")
                .expect("a reference");
            assert_eq!(
                map.origin_target(&client),
                origin.as_bytes(),
                "{strip} {origin}"
            );
        }
    }
}

#[test]
fn cookies_and_refresh_are_translated() {
    let cookie = |strip, add, value: &str| {
        let value = map(strip, add).client_cookie(value.as_bytes())?;
        Some(String::from_utf8(value).expect("text"))
    };
    for (strip, add, value, expected) in [
        ("/api", "", "a=b; Path=/", Some("a=b; Path=/api")),
        (
            "/api",
            "",
            "a=b; path = /x ;Secure",
            Some("a=b; path =/api/x;Secure"),
        ),
        ("/api", "/v2", "a=b; Path=/v2/", Some("a=b; Path=/api/")),
        ("/api", "/v2", "a=b; Path=/v2", Some("a=b; Path=/api")),
        ("", "/v2", "a=b; Path=/v2", Some("a=b; Path=/")),
        ("/api", "/v2", "a=b; Path=/", None),
        ("/api", "", "a=b; Path=/api/x", None),
        ("/api", "", "a=b; Path=x", None),
        ("/api", "", "Path=/x", None),
        ("/api", "", "a=b; Path", None),
    ] {
        assert_eq!(cookie(strip, add, value).as_deref(), expected, "{value}");
    }
    let refresh = |value: &str| {
        let value = map("/api", "").client_refresh(value.as_bytes(), b"h")?;
        Some(String::from_utf8(value).expect("text"))
    };
    for (value, expected) in [
        ("5; url=/x", Some("5; url=/api/x")),
        ("0;URL='/x'", Some("0;URL='/api/x'")),
        ("0;url=\"http://h/x\" ", Some("0;url=\"http://h/api/x\" ")),
        ("5", None),
        ("5; url=x", None),
        ("5; url", None),
    ] {
        assert_eq!(refresh(value).as_deref(), expected, "{value}");
    }
}

#[test]
fn destination_of_this_server_is_translated_for_the_origin() {
    let map = map("/dav", "/files");
    for (reference, expected) in [
        ("http://h/dav/a", Some("http://h/files/a")),
        ("/dav/a", Some("/files/a")),
        ("http://other/dav/a", None),
    ] {
        let mapped = map.origin_reference(reference.as_bytes(), b"h");
        let expected = expected.map(|it| OriginReference::Translated(it.into()));
        assert_eq!(mapped, expected, "{reference}");
    }
}

#[test]
fn destination_with_dot_segments_is_refused() {
    let map = map("/dav", "/files");
    for path in [
        "/dav/../admin",
        "/dav/%2e%2E/admin",
        "/dav/a/..",
        "/dav/./a",
        "/dav/..%2fadmin",
        "/dav/..\\admin",
        "/dav/%zz/../admin",
        "/dav/..?x",
    ] {
        let refused = Some(OriginReference::Refused);
        assert_eq!(
            map.origin_reference(path.as_bytes(), b"h"),
            refused,
            "{path}"
        );
    }
    for path in ["/dav/..a", "/dav/...", "/dav/a.", "/dav/a?/../", "/dav//"] {
        let mapped = map.origin_reference(path.as_bytes(), b"h");
        assert!(
            matches!(mapped, Some(OriginReference::Translated(_))),
            "{path}"
        );
    }
}
