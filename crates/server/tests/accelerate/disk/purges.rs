//! Purges of the disk cache: a confirmed purge survives an immediate kill of the server.

use lowroad_testkit::origin::{OriginRequest, TestOrigin};

use super::Host;
use crate::front::response;

fn ok(fields: &str, body: &str) -> String {
    response("200 OK", fields, body)
}

const ALLOWED: &str = "purge_from = \"127.0.0.0/8\"";

fn numbered() -> TestOrigin {
    TestOrigin::with_response(|asked: &OriginRequest| {
        let fields = "Cache-Control: max-age=600\r\nCache-Tag: news\r\nCache-Groups: \"g\"\r\n";
        match asked.method.as_str() {
            "POST" => ok("Cache-Group-Invalidation: \"g\"\r\n", ""),
            _ => ok(fields, &asked.number.to_string()),
        }
    })
}

#[test]
fn what_was_confirmed_outlives_a_kill() {
    let mut host = Host::with(numbered(), "1M", ALLOWED);
    for (number, (target, fields)) in [
        ("/a", ""),
        ("/*", ""),
        ("/", "Cache-Tag: news\r\n"),
        ("/a", "X-Purge-Method: soft\r\n"),
    ]
    .iter()
    .enumerate()
    {
        // From the second round on, the object comes from an earlier process.
        assert_eq!(host.stores("/a", 1).text(), number.to_string());
        let told = host.ask("PURGE", target, fields);
        assert_eq!((told.status, told.text().as_str()), (200, "purged\n"));
        host.start();
        assert_eq!(
            host.get("/a", "").text(),
            (number + 1).to_string(),
            "{target} {fields}"
        );
        host.status().wait_for("disk_stored", 1);
        host.start();
    }
}

#[test]
fn the_command_says_it_when_it_is_sure() {
    let mut host = Host::of(numbered());
    for (number, what) in ["host:test", "group:g", "test/a"].iter().enumerate() {
        assert_eq!(host.stores("/a", 1).text(), number.to_string());
        let said = host.say(&["purge", what]);
        assert!(said.contains("purged at once"), "{said}");
        host.start();
    }
    assert_eq!(host.get("/a", "").text(), "3");
}

#[test]
fn what_is_purged_while_it_is_only_on_the_disk_is_not_found() {
    let mut host = Host::with(numbered(), "1M", ALLOWED);
    host.stores("/a", 1);
    host.start();
    assert_eq!(host.ask("PURGE", "/a", "").status, 200);
    assert_eq!(host.get("/a", "").text(), "1");
}

#[test]
fn a_group_is_forgotten_on_the_disk_too() {
    let mut host = Host::of(numbered());
    host.stores("/a", 1);
    host.start();
    assert_eq!(host.ask("POST", "/b", "Content-Length: 0\r\n").status, 200);
    assert_eq!(host.get("/a", "").text(), "2");
}

#[test]
fn purges_go_when_they_are_over() {
    let host = Host::with(numbered(), "1M", ALLOWED);
    host.stores("/a", 1);
    let kept = || std::fs::read_to_string(host.folder.path().join("cache/purges")).expect("read");
    assert_eq!(host.ask("PURGE", "/a", "").status, 200);
    lowroad_testkit::wait_until("the scan", || (kept().lines().count() == 1).then_some(()));
    assert_eq!(host.status().value("disk_objects"), 0);
}
