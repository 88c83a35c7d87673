//! Section 3: which responses are stored.

use super::front::{OriginRequest, TestAccelerator, response};
use super::{FAR, LONG_AGO, ScriptedCache};

#[test]
fn only_responses_to_get_are_stored() {
    let told = ScriptedCache::new();
    let say = "Say: 200 OK|Cache-Control: max-age=60\r\n";
    // Responses to other methods do not answer a GET.
    for method in ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        let path = told.path();
        let before = told.front.origin.count();
        told.front.request(method, &path, say);
        told.front.get(&path, say);
        assert_eq!(told.front.origin.count(), before + 2, "{method}");
    }
    // A POST is always forwarded.
    let path = told.path();
    told.front.get(&path, say);
    let before = told.front.origin.count();
    told.front.request("POST", &path, say);
    told.front.request("POST", &path, say);
    assert_eq!(told.front.origin.count(), before + 2);
}

#[test]
fn statuses_stored_with_lifetime() {
    let told = ScriptedCache::new();
    for status in [
        200, 203, 300, 301, 302, 303, 307, 308, 400, 403, 404, 405, 410, 414, 418, 451, 500, 501,
        502, 503, 504, 299, 599,
    ] {
        assert!(
            told.stores(&format!("{status} A|Cache-Control: max-age=60")),
            "{status}"
        );
    }
    for status in [206, 401, 407, 412, 416] {
        assert!(
            !told.stores(&format!("{status} A|Cache-Control: max-age=60")),
            "{status}"
        );
    }
}

#[test]
fn statuses_stored_without_lifetime() {
    let told = ScriptedCache::new();
    for status in [200, 203, 300, 301, 308, 404, 405, 410, 414, 501] {
        let say = format!("{status} A|Last-Modified: {LONG_AGO}");
        assert!(told.stores(&say), "{status} may be guessed");
        assert!(
            !told.stores(&format!("{status} A")),
            "there is nothing to guess from: {status}"
        );
    }
    for status in [302, 303, 307, 400, 403, 418, 500, 502, 503, 504] {
        let say = format!("{status} A|Last-Modified: {LONG_AGO}");
        assert!(!told.stores(&say), "{status} may not be guessed");
    }
}

#[test]
fn response_without_content_is_stored() {
    let told = ScriptedCache::new();
    let path = told.path();
    let say = "204 No Content|Cache-Control: max-age=60";
    let (one, two) = (told.get(&path, say, ""), told.get(&path, say, ""));
    assert_eq!((one.status, two.status), (204, 204));
    assert_eq!(one.field("x-number"), two.field("x-number"));
    assert_eq!(two.field("content-length"), None, "RFC 9110 §8.6");
}

#[test]
fn fields_that_forbid_storing() {
    ScriptedCache::new().assert_none_stored(&[
        "200 OK|Cache-Control: no-store, max-age=60",
        "200 OK|Cache-Control: No-Store, max-age=60",
        "200 OK|Cache-Control: max-age=60|Cache-Control: no-store",
        "200 OK|Cache-Control: private, max-age=60",
        "200 OK|Cache-Control: private, s-maxage=60",
        "200 OK|Cache-Control: PRIVATE, max-age=60",
        "200 OK|Cache-Control: private=\"\", max-age=60",
        "200 OK|Cache-Control: no-cache, max-age=60",
        "200 OK|Cache-Control: no-cache, max-age=60|ETag: \"a\"",
        "200 OK|Pragma: no-cache|Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT",
        "200 OK",
        "200 OK|ETag: \"a\"",
        "200 OK|Set-Cookie: a=b|Cache-Control: max-age=60",
    ]);
}

#[test]
fn fields_that_do_not_forbid_storing() {
    ScriptedCache::new().assert_all_stored(&[
        "200 OK|Cache-Control: max-age=60",
        "200 OK|Cache-Control: max-age=60, unknown, other=\"no-store\"",
        "200 OK|Cache-Control: max-age=60, x=\"private, no-cache\"",
        "200 OK|Cache-Control: max-age=60|Pragma: no-cache",
        "200 OK|Cache-Control: max-age=60, must-revalidate",
        "200 OK|Cache-Control: max-age=60, immutable",
        "200 OK|Set-Cookie: a=b|Cache-Control: public, max-age=60",
        "200 OK|Set-Cookie: a=b|Cache-Control: s-maxage=60",
    ]);
}

#[test]
fn must_understand() {
    let told = ScriptedCache::new();
    assert!(told.stores("200 OK|Cache-Control: must-understand, no-store, max-age=60"));
    assert!(told.stores("404 A|Cache-Control: must-understand, no-store, max-age=60"));
    assert!(!told.stores("299 A|Cache-Control: must-understand, max-age=60"));
}

#[test]
fn response_to_authorization_is_stored_only_if_allowed() {
    let told = ScriptedCache::new();
    let auth = "Authorization: Basic YTpi\r\n";
    for (control, is_for_all) in [
        ("max-age=60", false),
        ("public, max-age=60", true),
        ("s-maxage=60", true),
        ("max-age=60, must-revalidate", true),
        ("max-age=60, proxy-revalidate", false),
        ("private, max-age=60", false),
    ] {
        let say = format!("200 OK|Cache-Control: {control}");
        assert_eq!(
            told.stores_for(&say, auth, ""),
            is_for_all,
            "for others: {control}"
        );
        assert_eq!(
            told.stores_for(&say, auth, auth),
            is_for_all,
            "for the same: {control}"
        );
    }
}

/// A response to a request with credentials is stored only if its Cache-Control allows that. While no response is
/// stored, the client's preconditions are forwarded: otherwise clients of a private registry or API would always
/// receive complete responses.
#[test]
fn preconditions_with_credentials_are_forwarded() {
    let is_current = |request: &OriginRequest| {
        request.field("if-none-match") == Some("\"a\"")
            || request.field("if-modified-since") == Some(LONG_AGO)
    };
    let tag = "If-None-Match: \"a\"\r\n".to_owned();
    let date = format!("If-Modified-Since: {LONG_AGO}\r\n");
    for (control, is_for_all) in [
        ("", false),
        ("Cache-Control: private\r\n", false),
        ("Cache-Control: max-age=60\r\n", false),
        ("Cache-Control: no-store\r\n", false),
        ("Cache-Control: public, max-age=60\r\n", true),
    ] {
        let validators = format!("ETag: \"a\"\r\nLast-Modified: {LONG_AGO}\r\n{control}");
        let front = TestAccelerator::with_response(move |request| match is_current(request) {
            true => "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n".into(),
            false => response("200 OK", &validators, "body"),
        });
        let auth = "Authorization: Basic YTpi\r\n";
        for condition in [&tag, &date] {
            let got = front.get("/", &format!("{auth}{condition}"));
            assert_eq!(got.status, 304, "{control:?} {condition:?}, nothing stored");
        }
        assert_eq!(front.get("/", auth).text(), "body");
        for condition in [&tag, &date] {
            let got = front.get("/", &format!("{auth}{condition}"));
            assert_eq!(got.status, 304, "{control:?} {condition:?}, asked before");
        }
        let count = if is_for_all { 3 } else { 5 };
        assert_eq!(front.origin.count(), count, "{control:?}");
        // If the version has changed, the complete response is sent.
        let other = format!("{auth}If-None-Match: \"b\"\r\n");
        assert_eq!(front.get("/", &other).text(), "body");
    }
}

#[test]
fn request_no_store_forbids_storing() {
    let told = ScriptedCache::new();
    let say = "200 OK|Cache-Control: max-age=60";
    assert!(!told.stores_for(say, "Cache-Control: no-store\r\n", ""));
    // A request with no-store may still be answered by a stored response.
    assert!(told.stores_for(say, "", "Cache-Control: no-store\r\n"));
}

#[test]
fn qualified_directives_remove_fields_from_stored_response() {
    let told = ScriptedCache::new();
    for directive in [
        "private=\"x-own, x-other\"",
        "no-cache=\"X-Own\"",
        "private=x-own",
    ] {
        let path = told.path();
        let say = format!("200 OK|Cache-Control: {directive}, max-age=60|X-Own: 1|X-All: 1");
        let first = told.get(&path, &say, "");
        let second = told.get(&path, &say, "");
        assert_eq!(first.body, second.body, "{directive}");
        assert_eq!(
            (second.field("x-own"), second.field("x-all")),
            (None, Some("1"))
        );
    }
}

#[test]
fn qualified_directives_keep_fields_in_first_response() {
    let told = ScriptedCache::new();
    for directive in ["private=\"x-own\"", "no-cache=\"x-own\""] {
        let say = format!("200 OK|Cache-Control: {directive}, max-age=60|X-Own: 1");
        let first = told.get(&told.path(), &say, "");
        assert_eq!(first.field("x-own"), Some("1"), "{directive}");
    }
}

#[test]
fn fields_are_stored_unchanged() {
    let told = ScriptedCache::new();
    let path = told.path();
    let say = format!(
        "200 OK|Cache-Control: max-age=60|X-A: 1|X-A: 2|X-Empty:|Expires: {FAR}|Last-Modified: {LONG_AGO}|Link: </a>"
    );
    let (first, second) = (told.get(&path, &say, ""), told.get(&path, &say, ""));
    assert_eq!(first.body, second.body);
    for response in [&first, &second] {
        let of = |name: &str| {
            let lines = response.head.lines();
            lines
                .filter(|line| line.to_ascii_lowercase().starts_with(name))
                .count()
        };
        assert_eq!(
            (of("x-a:"), of("x-empty:"), of("link:")),
            (2, 1, 1),
            "{}",
            response.head
        );
        assert_eq!(response.field("expires"), Some(FAR));
        assert_eq!(response.field("last-modified"), Some(LONG_AGO));
    }
}
