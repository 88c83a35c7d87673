//! Purges: by the command, by the method PURGE, and by unsafe methods.

use lowroad_testkit::wait_until;

use crate::front::{TestFront, numbered, response};

const MINUTE: &str = "Cache-Control: max-age=60\r\n";

/// An accelerator that loopback may purge; its origin numbers its responses.
fn front(fields: &'static str) -> TestFront {
    let say = move |asked: &_| numbered(asked, &format!("{MINUTE}{fields}"));
    TestFront::with(say, &["--purge-from", "127.0.0.0/8"])
}

#[test]
fn purge_takes_a_url_in_all_its_variants() {
    let front = front("Vary: Accept-Language\r\n");
    let (german, english) = ("Accept-Language: de\r\n", "Accept-Language: en\r\n");
    let get = |path, fields| front.get(path, fields).text();
    assert_eq!(
        [get("/a", german), get("/a", english), get("/b", "")],
        ["0", "1", "2"]
    );
    let purged = front.ask("PURGE", "/%61", "");
    assert_eq!((purged.status, purged.text().as_str()), (200, "purged\n"));
    assert_eq!(
        [get("/a", german), get("/a", english), get("/b", "")],
        ["3", "4", "2"]
    );
    // Also targets with this prefix, and with a query.
    assert_eq!(get("/a?x", ""), "5");
    assert_eq!(front.ask("PURGE", "/a", "").status, 200);
    assert_eq!(get("/a?x", ""), "5");
    assert_eq!(front.ask("PURGE", "/a*", "").status, 200);
    assert_eq!([get("/a?x", ""), get("/b", "")], ["6", "2"]);
    // PURGE requests do not reach the origin.
    assert!(
        front
            .origin
            .requests()
            .iter()
            .all(|asked| asked.method == "GET")
    );
}

#[test]
fn purge_takes_what_bears_a_tag() {
    let front = TestFront::with(
        |asked| match asked.target.as_str() {
            "/a" => numbered(asked, &format!("{MINUTE}Surrogate-Key: one  two\r\n")),
            _ => numbered(asked, &format!("{MINUTE}Cache-Tag: two,three\r\n")),
        },
        &["--purge-from", "127.0.0.1"],
    );
    let all = || ["/a", "/b"].map(|path| front.get(path, "").text());
    assert_eq!(all(), ["0", "1"]);
    for (tags, then) in [
        ("Surrogate-Key: four\r\n", ["0", "1"]),
        ("Surrogate-Key: one\r\n", ["2", "1"]),
        ("Cache-Tag: three\r\n", ["2", "3"]),
        ("Surrogate-Key: none two\r\n", ["4", "5"]),
    ] {
        assert_eq!(front.ask("PURGE", "/", tags).status, 200);
        assert_eq!(all(), then, "{tags}");
    }
}

#[test]
fn only_who_is_named_may_purge() {
    let say = |asked: &_| numbered(asked, MINUTE);
    for arguments in [&[][..], &["--purge-from", "10.0.0.0/8"]] {
        let front = TestFront::with(say, arguments);
        assert_eq!(front.get("/", "").text(), "0");
        let refused = front.ask("PURGE", "/", "");
        assert_eq!(refused.status, 405);
        assert_eq!(refused.field("allow"), Some("GET, HEAD, OPTIONS"));
        assert_eq!(front.get("/", "").text(), "0");
    }
    // A malformed purge does not report success.
    let front = front("");
    assert_eq!(
        front
            .ask("PURGE", "/.*", "X-Purge-Method: regex\r\n")
            .status,
        400
    );
}

#[test]
fn a_soft_purge_leaves_what_may_be_used_stale() {
    let front = TestFront::with(
        |asked| match asked.number {
            0 => response(
                "200 OK",
                "Cache-Control: max-age=60, stale-if-error=60\r\n",
                "body",
            ),
            1 => response("503 Service Unavailable", "", ""),
            _ => numbered(asked, MINUTE),
        },
        &["--purge-from", "127.0.0.1"],
    );
    assert_eq!(front.get("/", "").text(), "body");
    assert_eq!(
        front.ask("PURGE", "/", "X-Purge-Method: soft\r\n").status,
        200
    );
    assert_eq!(front.get("/", "").text(), "body");
    assert_eq!(front.origin.count(), 2, "it was asked, and failed");
    assert_eq!(front.get("/", "").text(), "2");
    assert_eq!(front.get("/", "").text(), "2");
}

#[test]
fn a_soft_purge_is_over_once_the_origin_says_that_it_holds() {
    let front = TestFront::with(
        |asked| match asked.field("if-none-match") {
            Some("\"a\"") => format!("HTTP/1.1 304 Not Modified\r\n{MINUTE}\r\n"),
            _ => response("200 OK", &format!("{MINUTE}ETag: \"a\"\r\n"), "body"),
        },
        &["--purge-from", "127.0.0.1"],
    );
    assert_eq!(front.get("/", "").text(), "body");
    front.ask("PURGE", "/", "Fastly-Soft-Purge: 1\r\n");
    for _ in 0..3 {
        assert_eq!(front.get("/", "").text(), "body");
    }
    let conditions: Vec<bool> = front
        .origin
        .requests()
        .iter()
        .map(|asked| asked.field("if-none-match").is_some())
        .collect();
    assert_eq!(conditions, [false, true]);
}

#[test]
fn the_command_purges_by_host_and_makes_stale() {
    let front = front("ETag: \"a\"\r\n");
    let purge = |arguments: &[&str]| {
        let said = front.say(&[&["purge"], arguments].concat());
        assert_eq!(said, "purged at once\n", "{arguments:?}");
    };
    assert_eq!(front.get("/", "").text(), "0");
    let said = front.say(&["purge", "host:other"]);
    assert!(said.starts_with("no stored response matched"), "{said}");
    assert_eq!(front.get("/", "").text(), "0");
    purge(&["host:test"]);
    assert_eq!(front.get("/", "").text(), "1");
    purge(&["test/", "--soft"]);
    assert_eq!(front.get("/", "").text(), "2");
    let asked = front.origin.requests();
    let validates = |at: usize| asked[at].field("if-none-match").is_some();
    assert!(!validates(1) && validates(2));
}

#[test]
fn what_a_request_changes_is_forgotten() {
    let front = TestFront::with(
        |asked| match (asked.method.as_str(), asked.target.as_str()) {
            ("GET", _) => numbered(asked, MINUTE),
            (_, "/bad") => response("500 Internal Server Error", "Location: /a\r\n", ""),
            _ => response(
                "201 Created",
                "Location: /b\r\nContent-Location: http://test/c\r\n\
                 Cache-Group-Invalidation: \"g\"\r\n",
                "",
            ),
        },
        &[],
    );
    let all = || ["/a", "/b", "/c", "/d", "/bad"].map(|path| front.get(path, "").text());
    assert_eq!(all(), ["0", "1", "2", "3", "4"]);
    assert_eq!(front.ask("DELETE", "/bad", "").status, 500);
    assert_eq!(all(), ["0", "1", "2", "3", "4"]);
    assert_eq!(front.ask("DELETE", "/a", "").status, 201);
    // The two unsafe requests count, too.
    assert_eq!(all(), ["7", "8", "9", "3", "4"]);
}

#[test]
fn groups_are_invalidated_together() {
    let front = TestFront::with(
        |asked| match (asked.method.as_str(), asked.target.as_str()) {
            ("GET", "/c") => numbered(asked, MINUTE),
            ("GET", _) => numbered(asked, &format!("{MINUTE}Cache-Groups: \"g\", \"h\"\r\n")),
            _ => response("200 OK", "Cache-Group-Invalidation: \"g\"\r\n", ""),
        },
        &[],
    );
    let all = || ["/a", "/b", "/c"].map(|path| front.get(path, "").text());
    assert_eq!(all(), ["0", "1", "2"]);
    assert_eq!(front.ask("PUT", "/x", "").status, 200);
    assert_eq!(all(), ["4", "5", "2"]);
}

#[test]
fn what_began_before_a_purge_is_not_used_after_it() {
    let front = TestFront::with(
        |asked| {
            let chunked = "Transfer-Encoding: chunked\r\n";
            match asked.number {
                0 => format!("HTTP/1.1 200 OK\r\n{MINUTE}{chunked}\r\n4\r\nold \r\n"),
                _ => numbered(asked, MINUTE),
            }
        },
        &["--purge-from", "127.0.0.1"],
    );
    let mut first = front.connect();
    first.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    wait_until("some of the body", || {
        assert!(first.receive_once());
        first
            .received
            .windows(4)
            .any(|part| part == b"old ")
            .then_some(())
    });
    assert_eq!(front.ask("PURGE", "/", "").status, 200);
    assert_eq!(front.get("/", "").text(), "1");
    assert_eq!(front.get("/", "").text(), "1");
}
