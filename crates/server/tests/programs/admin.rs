//! The operator's commands for responses of programs: status, explain, and purges.

use crate::host::Host;
use crate::kept::counting;
use crate::talk::{self, ask};

const MINUTE: &str = "Cache-Control: max-age=60\\n";

/// Requests the responses of two programs, which have cache tags.
fn request_tagged(host: &Host) -> [String; 3] {
    let mut client = host.connect();
    ["/cgi/a", "/cgi/a?x", "/cgi/b"].map(|path| {
        let (got, _) = talk::request_on(&mut client, "GET", path, "");
        got.text().trim().to_string()
    })
}

#[test]
fn purged_response_is_generated_again() {
    let fields = |tags| counting("a", &format!("{MINUTE}Cache-Tag: {tags}\\n"));
    let a = fields("news, front page");
    let b = counting(
        "b",
        &format!("{MINUTE}Cache-Tag: sport\\nCache-Tag: News\\n"),
    );
    let host = Host::start(&[("a", &a), ("b", &b)]);
    assert_eq!(request_tagged(&host), ["1", "2", "1"]);
    assert_eq!(request_tagged(&host), ["1", "2", "1"]);
    for (what, then) in [
        ("http://other/*", ["1", "2", "1"]),
        ("http://test/cgi/a", ["3", "2", "1"]),
        ("test/cgi/a*", ["4", "5", "1"]),
        ("tag:none", ["4", "5", "1"]),
        ("tag:sport", ["4", "5", "2"]),
        ("tag:news", ["6", "7", "3"]),
        ("all", ["8", "9", "4"]),
        ("host:another", ["8", "9", "4"]),
        ("host:test", ["10", "11", "5"]),
    ] {
        let is_meant = !["http://other/*", "tag:none", "host:another"].contains(&what);
        let said = host.command_output(&["purge", what]);
        assert_eq!(said.starts_with("removed "), is_meant, "{what}: {said}");
        let is_unmatched = said.starts_with("no stored response matched");
        assert_eq!(is_unmatched, !is_meant, "{what}: {said}");
        assert_eq!(request_tagged(&host), then, "{what}");
    }
    let port = host.address().port().to_string();
    let said = host.command_output(&["purge", "all", "--port", &port]);
    assert_eq!(said, "removed 3 stored responses\n");
}

#[test]
fn purge_applies_to_responses_in_progress() {
    let script = format!(
        "echo x >>DIR/state/n\nprintf 'Content-Type: text/plain\\n{MINUTE}\\n'\n\
         wc -l <DIR/state/n\nwhile ! [ -e DIR/state/go ]; do sleep 0.01; done\n"
    );
    let host = Host::start(&[("slow", &script)]);
    let mut client = host.connect();
    client.send("GET /cgi/slow HTTP/1.1\r\nHost: test\r\n\r\n");
    while !client.received.ends_with(b"1\n\r\n") {
        assert!(client.receive_once());
    }
    host.command_output(&["purge", "all"]);
    host.file("state/go", "");
    let (got, _) = talk::answer(&mut client, "GET");
    assert_eq!(got.text(), "1\n");
    // A response that began before the purge is not stored.
    for _ in 0..2 {
        let (got, _) = ask(host.address(), "GET", "/cgi/slow", "");
        assert_eq!(got.text(), "2\n");
    }
}

#[test]
fn invalid_purge_lists_valid_forms() {
    let host = Host::start(&[]);
    for (what, part) in [("/x", "host:NAME, tag:NAME"), ("tag:", "tag:NAME")] {
        let output = host.command(&["purge", what]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(part), "{said}");
    }
}

#[test]
fn status_counts_program_calls() {
    let host = Host::start(&[("kept", &counting("kept", MINUTE)), ("bad", "exit 1\n")]);
    let mut client = host.connect();
    for path in [
        "/linked",
        "/linked",
        "/wasm",
        "/cgi/kept",
        "/cgi/kept",
        "/cgi/bad",
    ] {
        talk::request_on(&mut client, "GET", path, "");
    }
    let status = host.status();
    assert_eq!(status.value("module.linked.calls"), 2);
    assert_eq!(status.value("module.wasm.calls"), 1);
    assert_eq!(status.value("module.library.failed"), 0);
    assert_eq!(status.value("wasm.requests"), 1);
    let said = host.command_output(&["status"]);
    let route = said.lines().find(|line| line.contains("/cgi/** to cgi "));
    let counts = "2 calls, 1 failed, 0 waiting now, 1 answered from stored responses, 0 by another request's call";
    assert!(route.expect("a route").ends_with(counts), "{said}");
}
