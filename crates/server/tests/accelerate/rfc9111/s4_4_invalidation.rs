//! Section 4.4: invalidation by unsafe methods.

use super::Told;

const SAY: &str = "200 OK|Cache-Control: max-age=60";

/// Whether a request with this method and this response invalidates the stored response of its target.
fn ends(told: &Told, method: &str, say: &str) -> bool {
    let path = told.path();
    let one = told.get(&path, SAY, "");
    told.front.ask(method, &path, &format!("Say: {say}\r\n"));
    one.body != told.get(&path, SAY, "").body
}

#[test]
fn unsafe_methods_end_what_is_stored() {
    let told = Told::new();
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
            assert!(ends(&told, method, say), "{method} {say}");
        }
    }
}

#[test]
fn failures_and_safe_methods_end_nothing() {
    let told = Told::new();
    for say in ["400 A", "403 A", "404 A", "409 A", "500 A", "503 A"] {
        assert!(!ends(&told, "POST", say), "{say}");
    }
    for method in ["GET", "HEAD", "OPTIONS", "PROPFIND", "REPORT"] {
        assert!(!ends(&told, method, SAY), "{method}");
    }
}

#[test]
fn all_variants_end() {
    let told = Told::new();
    let (path, say) = (told.path(), "200 OK|Cache-Control: max-age=60|Vary: X-Kind");
    let get = |kind: &str| told.get(&path, say, &format!("X-Kind: {kind}\r\n")).text();
    let before = (get("a"), get("b"));
    told.front
        .ask("POST", &path, "X-Kind: a\r\nSay: 200 OK\r\n");
    let after = (get("a"), get("b"));
    assert!(before.0 != after.0 && before.1 != after.1);
}

#[test]
fn others_stay() {
    let told = Told::new();
    let (path, other) = (told.path(), told.path());
    let one = told.get(&other, SAY, "");
    told.front.ask("POST", &path, "Say: 200 OK\r\n");
    assert_eq!(told.get(&other, SAY, "").body, one.body);
    // A URL of another host must not be invalidated (§4.4).
    let mut client = told.front.connect();
    let say = format!("Say: 200 OK|Location: http://test{other}\r\n");
    client.send(format!(
        "POST {path} HTTP/1.1\r\nHost: evil\r\nContent-Length: 0\r\n{say}\r\n"
    ));
    client.response();
    assert_eq!(told.get(&other, SAY, "").body, one.body);
}

#[test]
fn what_the_response_names_ends_too() {
    let told = Told::new();
    for field in ["Location", "Content-Location"] {
        let (path, other) = (told.path(), told.path());
        let one = told.get(&other, SAY, "");
        told.front.ask(
            "POST",
            &path,
            &format!("Say: 201 Created|{field}: {other}\r\n"),
        );
        assert_ne!(told.get(&other, SAY, "").body, one.body, "{field}");
    }
}
