//! Section 4.4: invalidation by unsafe methods.

use super::ScriptedCache;

const SAY: &str = "200 OK|Cache-Control: max-age=60";

/// Whether a request with this method, if it gets this response, invalidates the stored response of its target.
fn invalidates(told: &ScriptedCache, method: &str, say: &str) -> bool {
    let path = told.path();
    let one = told.get(&path, SAY, "");
    told.front
        .request(method, &path, &format!("Say: {say}\r\n"));
    one.body != told.get(&path, SAY, "").body
}

#[test]
fn unsafe_methods_invalidate_target() {
    let told = ScriptedCache::new();
    for method in [
        "POST", "PUT", "DELETE", "PATCH", "M-SEARCH", "MKCOL", "brew",
    ] {
        for say in [
            "200 OK",
            "201 Created",
            "204 A",
            "302 A|Location: /elsewhere",
            "303 A|Location: /elsewhere",
        ] {
            assert!(invalidates(&told, method, say), "{method} {say}");
        }
    }
}

#[test]
fn failed_and_safe_requests_do_not_invalidate() {
    let told = ScriptedCache::new();
    for say in ["400 A", "403 A", "404 A", "409 A", "500 A", "503 A"] {
        assert!(!invalidates(&told, "POST", say), "{say}");
    }
    for method in ["GET", "HEAD", "OPTIONS", "PROPFIND", "REPORT"] {
        assert!(!invalidates(&told, method, SAY), "{method}");
    }
}

#[test]
fn all_variants_are_invalidated() {
    let told = ScriptedCache::new();
    let (path, say) = (told.path(), "200 OK|Cache-Control: max-age=60|Vary: X-Kind");
    let get = |kind: &str| told.get(&path, say, &format!("X-Kind: {kind}\r\n")).text();
    let before = (get("a"), get("b"));
    told.front
        .request("POST", &path, "X-Kind: a\r\nSay: 200 OK\r\n");
    let after = (get("a"), get("b"));
    assert!(before.0 != after.0 && before.1 != after.1);
}

#[test]
fn other_targets_and_hosts_are_not_invalidated() {
    let told = ScriptedCache::new();
    let (path, other) = (told.path(), told.path());
    let one = told.get(&other, SAY, "");
    told.front.request("POST", &path, "Say: 200 OK\r\n");
    assert_eq!(told.get(&other, SAY, "").body, one.body);
    // A URL with another host must not be invalidated (§4.4).
    let mut client = told.front.connect();
    let say = format!("Say: 200 OK|Location: http://test{other}\r\n");
    client.send(format!(
        "POST {path} HTTP/1.1\r\nHost: evil\r\nContent-Length: 0\r\n{say}\r\n"
    ));
    client.response();
    assert_eq!(told.get(&other, SAY, "").body, one.body);
}

#[test]
fn location_and_content_location_are_invalidated() {
    let told = ScriptedCache::new();
    for field in ["Location", "Content-Location"] {
        let (path, other) = (told.path(), told.path());
        let one = told.get(&other, SAY, "");
        told.front.request(
            "POST",
            &path,
            &format!("Say: 201 Created|{field}: {other}\r\n"),
        );
        assert_ne!(told.get(&other, SAY, "").body, one.body, "{field}");
    }
}
