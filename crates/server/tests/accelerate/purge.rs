//! Purges by the command, by the method PURGE, and by unsafe methods.

use lowroad_testkit::wait_until;

use crate::front::{TestAccelerator, numbered_response, response};

const MINUTE: &str = "Cache-Control: max-age=60\r\n";

/// An accelerator in which loopback may purge. The origin's responses are numbered.
fn front(fields: &'static str) -> TestAccelerator {
    let say = move |request: &_| numbered_response(request, &format!("{MINUTE}{fields}"));
    TestAccelerator::with_arguments(say, &["--purge-from", "127.0.0.0/8"])
}

#[test]
fn purge_of_url_removes_all_variants() {
    let front = front("Vary: Accept-Language\r\n");
    let (german, english) = ("Accept-Language: de\r\n", "Accept-Language: en\r\n");
    let get = |path, fields| front.get(path, fields).text();
    assert_eq!(
        [get("/a", german), get("/a", english), get("/b", "")],
        ["0", "1", "2"]
    );
    let purged = front.request("PURGE", "/%61", "");
    assert_eq!((purged.status, purged.text().as_str()), (200, "purged\n"));
    assert_eq!(
        [get("/a", german), get("/a", english), get("/b", "")],
        ["3", "4", "2"]
    );
    // Targets with this prefix or with a query are purged, too.
    assert_eq!(get("/a?x", ""), "5");
    assert_eq!(front.request("PURGE", "/a", "").status, 200);
    assert_eq!(get("/a?x", ""), "5");
    assert_eq!(front.request("PURGE", "/a*", "").status, 200);
    assert_eq!([get("/a?x", ""), get("/b", "")], ["6", "2"]);
    // PURGE requests do not reach the origin.
    assert!(
        front
            .origin
            .requests()
            .iter()
            .all(|request| request.method == "GET")
    );
}

#[test]
fn purge_by_tag_removes_tagged_responses() {
    let front = TestAccelerator::with_arguments(
        |request| match request.target.as_str() {
            "/a" => numbered_response(request, &format!("{MINUTE}Surrogate-Key: one  two\r\n")),
            _ => numbered_response(request, &format!("{MINUTE}Cache-Tag: two,three\r\n")),
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
        assert_eq!(front.request("PURGE", "/", tags).status, 200);
        assert_eq!(all(), then, "{tags}");
    }
}

#[test]
fn purge_is_refused_for_other_clients() {
    let say = |request: &_| numbered_response(request, MINUTE);
    for arguments in [&[][..], &["--purge-from", "10.0.0.0/8"]] {
        let front = TestAccelerator::with_arguments(say, arguments);
        assert_eq!(front.get("/", "").text(), "0");
        let refused = front.request("PURGE", "/", "");
        assert_eq!(refused.status, 405);
        assert_eq!(refused.field("allow"), Some("GET, HEAD, OPTIONS"));
        assert_eq!(front.get("/", "").text(), "0");
    }
    // A malformed purge must not report success.
    let front = front("");
    assert_eq!(
        front
            .request("PURGE", "/.*", "X-Purge-Method: regex\r\n")
            .status,
        400
    );
}

#[test]
fn soft_purged_response_is_served_stale_on_error() {
    let front = TestAccelerator::with_arguments(
        |request| match request.number {
            0 => response(
                "200 OK",
                "Cache-Control: max-age=60, stale-if-error=60\r\n",
                "body",
            ),
            1 => response("503 Service Unavailable", "", ""),
            _ => numbered_response(request, MINUTE),
        },
        &["--purge-from", "127.0.0.1"],
    );
    assert_eq!(front.get("/", "").text(), "body");
    assert_eq!(
        front
            .request("PURGE", "/", "X-Purge-Method: soft\r\n")
            .status,
        200
    );
    assert_eq!(front.get("/", "").text(), "body");
    assert_eq!(front.origin.count(), 2, "it was asked, and failed");
    assert_eq!(front.get("/", "").text(), "2");
    assert_eq!(front.get("/", "").text(), "2");
}

#[test]
fn validation_freshens_soft_purged_response() {
    let front = TestAccelerator::with_arguments(
        |request| match request.field("if-none-match") {
            Some("\"a\"") => format!("HTTP/1.1 304 Not Modified\r\n{MINUTE}\r\n"),
            _ => response("200 OK", &format!("{MINUTE}ETag: \"a\"\r\n"), "body"),
        },
        &["--purge-from", "127.0.0.1"],
    );
    assert_eq!(front.get("/", "").text(), "body");
    front.request("PURGE", "/", "Fastly-Soft-Purge: 1\r\n");
    for _ in 0..3 {
        assert_eq!(front.get("/", "").text(), "body");
    }
    let conditions: Vec<bool> = front
        .origin
        .requests()
        .iter()
        .map(|request| request.field("if-none-match").is_some())
        .collect();
    assert_eq!(conditions, [false, true]);
}

#[test]
fn purge_command_supports_host_and_soft() {
    let front = front("ETag: \"a\"\r\n");
    let purge = |arguments: &[&str]| front.run_command(&[&["purge"], arguments].concat());
    assert_eq!(front.get("/", "").text(), "0");
    let said = front.run_command(&["purge", "host:other"]);
    assert!(said.starts_with("no stored response matched"), "{said}");
    assert_eq!(front.get("/", "").text(), "0");
    assert_eq!(purge(&["host:test"]), "removed 1 stored response\n");
    assert_eq!(front.get("/", "").text(), "1");
    assert_eq!(
        purge(&["test/", "--soft"]),
        "made 1 stored response stale\n"
    );
    assert_eq!(front.get("/", "").text(), "2");
    let requests = front.origin.requests();
    let validates = |at: usize| requests[at].field("if-none-match").is_some();
    assert!(!validates(1) && validates(2));
}

#[test]
fn purge_command_finds_responses_of_a_mapped_port() {
    let front = front("");
    let get = |host: &str| {
        let mut client = front.connect();
        client.send(format!("GET /a HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.response().text()
    };
    // A container's port 80 may be the host's 8080, and clients send the host's port.
    assert_eq!([get("test:8080"), get("test")], ["0", "1"]);
    assert!(
        front
            .run_command(&["purge", "http://test:81/b"])
            .starts_with("no stored response matched")
    );
    let purge = |what| front.run_command(&["purge", what]);
    assert_eq!(purge("http://test/a"), "removed 2 stored responses\n");
    assert_eq!([get("test:8080"), get("test")], ["2", "3"]);
    assert_eq!(purge("http://test:8080/*"), "removed 2 stored responses\n");
    assert_eq!([get("test:8080"), get("test")], ["4", "5"]);
    assert_eq!(purge("http://test:80/a"), "removed 1 stored response\n");
    assert_eq!([get("test:8080"), get("test")], ["4", "6"]);
    // A purge that is not applied at once does not count as the next one's.
    assert_eq!(front.request("PURGE", "/a", "").status, 200);
    assert!(purge("http://other/").starts_with("no stored response matched"));
}

#[test]
fn unsafe_requests_invalidate_target_location_and_content_location() {
    let front = TestAccelerator::with_arguments(
        |request| match (request.method.as_str(), request.target.as_str()) {
            ("GET", _) => numbered_response(request, MINUTE),
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
    assert_eq!(front.request("DELETE", "/bad", "").status, 500);
    assert_eq!(all(), ["0", "1", "2", "3", "4"]);
    assert_eq!(front.request("DELETE", "/a", "").status, 201);
    // The numbers include the two unsafe requests.
    assert_eq!(all(), ["7", "8", "9", "3", "4"]);
}

#[test]
fn cache_groups_are_invalidated_together() {
    let front = TestAccelerator::with_arguments(
        |request| match (request.method.as_str(), request.target.as_str()) {
            ("GET", "/c") => numbered_response(request, MINUTE),
            ("GET", _) => {
                numbered_response(request, &format!("{MINUTE}Cache-Groups: \"g\", \"h\"\r\n"))
            }
            _ => response("200 OK", "Cache-Group-Invalidation: \"g\"\r\n", ""),
        },
        &[],
    );
    let all = || ["/a", "/b", "/c"].map(|path| front.get(path, "").text());
    assert_eq!(all(), ["0", "1", "2"]);
    assert_eq!(front.request("PUT", "/x", "").status, 200);
    assert_eq!(all(), ["4", "5", "2"]);
}

#[test]
fn fetch_started_before_purge_is_not_stored() {
    let front = TestAccelerator::with_arguments(
        |request| {
            let chunked = "Transfer-Encoding: chunked\r\n";
            match request.number {
                0 => format!("HTTP/1.1 200 OK\r\n{MINUTE}{chunked}\r\n4\r\nold \r\n"),
                _ => numbered_response(request, MINUTE),
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
    assert_eq!(front.request("PURGE", "/", "").status, 200);
    assert_eq!(front.get("/", "").text(), "1");
    assert_eq!(front.get("/", "").text(), "1");
}
