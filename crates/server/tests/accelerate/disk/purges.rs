//! Purges of the disk cache: a confirmed purge survives an immediate kill of the server.

use lowroad_testkit::origin::{OriginRequest, TestOrigin};

use super::Host;
use crate::front::response;

fn ok(fields: &str, body: &str) -> String {
    response("200 OK", fields, body)
}

const ALLOWED: &str = "purge_from = \"127.0.0.0/8\"";

fn numbered() -> TestOrigin {
    TestOrigin::with_response(|request: &OriginRequest| {
        let fields = "Cache-Control: max-age=600\r\nCache-Tag: news\r\nCache-Groups: \"g\"\r\n";
        match request.method.as_str() {
            "POST" => ok("Cache-Group-Invalidation: \"g\"\r\n", ""),
            _ => ok(fields, &request.number.to_string()),
        }
    })
}

#[test]
fn confirmed_purge_survives_kill() {
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
        // In all rounds but the first, the object was stored by an earlier process.
        assert_eq!(host.get_until_stored("/a", 1).text(), number.to_string());
        let told = host.request("PURGE", target, fields);
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
fn purge_command_confirms_after_disk_write() {
    let mut host = Host::new(numbered());
    for (number, what) in ["host:test", "group:g", "test/a"].iter().enumerate() {
        assert_eq!(host.get_until_stored("/a", 1).text(), number.to_string());
        let said = host.run_command(&["purge", what]);
        assert!(said.contains("purged at once; the matching"), "{said}");
        host.start();
    }
    assert_eq!(host.get("/a", "").text(), "3");
}

#[test]
fn response_only_on_disk_is_purged() {
    let mut host = Host::with(numbered(), "1M", ALLOWED);
    host.get_until_stored("/a", 1);
    host.start();
    assert_eq!(host.request("PURGE", "/a", "").status, 200);
    assert_eq!(host.get("/a", "").text(), "1");
}

#[test]
fn cache_group_on_disk_is_invalidated() {
    let mut host = Host::new(numbered());
    host.get_until_stored("/a", 1);
    host.start();
    assert_eq!(
        host.request("POST", "/b", "Content-Length: 0\r\n").status,
        200
    );
    assert_eq!(host.get("/a", "").text(), "2");
}

#[test]
fn purge_record_is_removed_after_scan() {
    let host = Host::with(numbered(), "1M", ALLOWED);
    host.get_until_stored("/a", 1);
    let kept = || std::fs::read_to_string(host.folder.path().join("cache/purges")).expect("read");
    assert_eq!(host.request("PURGE", "/a", "").status, 200);
    lowroad_testkit::wait_until("the scan", || (kept().lines().count() == 1).then_some(()));
    assert_eq!(host.status().value("disk_objects"), 0);
}
