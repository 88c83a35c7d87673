//! Responses in memory are also written to the disk, and loaded from there.

use std::io::Write;
use std::sync::{Arc, Barrier};

use lowroad_testkit::origin::{OriginRequest, TestOrigin};
use lowroad_testkit::wait_until;

use super::{Host, body};
use crate::front::response;

fn ok(fields: &str, body: &str) -> String {
    response("200 OK", fields, body)
}

/// An origin with short bodies, which contain the number of the request.
fn short(fields: &'static str) -> TestOrigin {
    TestOrigin::with_response(move |request| {
        ok(fields, &format!("{} {}", request.target, request.number))
    })
}

const USEFUL: &str = "Cache-Control: max-age=600\r\nETag: \"e\"\r\n";

#[test]
fn response_in_memory_is_found_on_disk_after_kill() {
    let mut host = Host::new(short(USEFUL));
    let detail = |host: &Host| {
        let got = host.get("/a", "");
        assert_eq!(got.text(), "/a 0");
        let status = got.field("cache-status").unwrap_or_default();
        status
            .rsplit_once("detail=")
            .map(|(_, detail)| detail.to_owned())
    };
    host.get_until_stored("/a", 1);
    host.start();
    // The response is short, so the first hit loads it into memory.
    assert_eq!(detail(&host).as_deref(), Some("memory"));
    assert_eq!(detail(&host).as_deref(), Some("memory"));
    assert_eq!(host.status().value("disk_hits"), 1);
    host.start();
    let head = host.request("HEAD", "/a", "");
    assert_eq!(
        (head.status, head.field("content-length")),
        (200, Some("4"))
    );
    assert!(head.field("age").is_some());
    host.start();
    assert_eq!(host.get("/a", "If-None-Match: \"e\"\r\n").status, 304);
    host.start();
    assert_eq!(host.get("/a", "Range: bytes=1-1\r\n").text(), "a");
    assert_eq!(host.origin.count(), 1);
}

#[test]
fn evicted_response_is_found_on_disk() {
    const LEN: usize = 20_000;
    let origin = TestOrigin::start(|request, stream| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n{USEFUL}\r\n");
        let body = body(&request.target, 0, LEN);
        stream.write_all(&[head.as_bytes(), &body].concat()).is_ok()
    });
    let host = Host::new(origin);
    let mut client = host.server().connect();
    for round in 0..2 {
        for number in 0..150 {
            let path = format!("/{number}");
            assert!(client.get(&path, "").body == body(&path, 0, LEN), "{path}");
        }
        host.status().wait_for("disk_objects", 150);
        assert_eq!(host.origin.count(), 150, "{round}");
    }
    assert!(host.status().value("cache_evicted") > 0);
    assert!(host.status().value("disk_hits") > 0);
}

#[test]
fn short_lived_response_is_not_written_and_removes_older_copy() {
    let origin = TestOrigin::with_response(|request: &OriginRequest| {
        let fields = match request.number {
            0 => "Cache-Control: max-age=0, stale-while-revalidate=600\r\n",
            _ => "Cache-Control: max-age=5\r\n",
        };
        ok(fields, &request.number.to_string())
    });
    let mut host = Host::new(origin);
    host.get_until_stored("/a", 1);
    // Served stale while it is validated (stale-while-revalidate).
    assert_eq!(host.get("/a", "").text(), "0");
    wait_until("the disk forgets it", || {
        (host.status().value("disk_objects") == 0).then_some(())
    });
    // The newer response is only in memory, so the older copy on disk must have been removed.
    host.start();
    assert_eq!(host.get("/a", "").text(), "2");
}

#[test]
fn validation_result_survives_kill() {
    let origin = TestOrigin::with_response(|request| match request.field("if-none-match") {
        Some(_) => {
            "HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=600\r\nX-New: 1\r\n\r\n".into()
        }
        None => ok(
            "ETag: \"e\"\r\nCache-Control: max-age=0, stale-while-revalidate=600\r\n",
            "x",
        ),
    });
    let mut host = Host::new(origin);
    host.get_until_stored("/a", 1);
    assert_eq!(host.get("/a", "").field("x-new"), None);
    host.status().wait_for("disk_stored", 2);
    host.start();
    let got = host.get("/a", "");
    assert_eq!((got.text().as_str(), got.field("x-new")), ("x", Some("1")));
    assert_eq!(host.origin.count(), 2);
}

#[test]
fn storability_with_credentials_survives_kill() {
    let origin = TestOrigin::with_response(|request| {
        let fields = match request.target.as_str() {
            "/all" => "Cache-Control: public, max-age=600\r\n",
            _ => "Cache-Control: max-age=600\r\n",
        };
        ok(fields, &request.number.to_string())
    });
    let mut host = Host::new(origin);
    host.get_until_stored("/all", 1);
    host.get_until_stored("/own", 2);
    host.start();
    let credentials = "Authorization: Basic eDp5\r\n";
    assert_eq!(host.get("/all", credentials).text(), "0");
    assert_eq!(host.get("/own", credentials).text(), "2");
    assert_eq!(host.get("/own", "").text(), "1");
}

#[test]
fn stale_response_is_validated_after_kill() {
    let origin = TestOrigin::with_response(|request| match request.field("if-none-match") {
        Some(_) => "HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=600\r\n\r\n".into(),
        None => ok(
            "ETag: \"e\"\r\nCache-Control: max-age=0, stale-while-revalidate=600\r\n",
            "x",
        ),
    });
    let mut host = Host::new(origin);
    host.get_until_stored("/a", 1);
    host.start();
    // Served stale while it is validated.
    assert_eq!(host.get("/a", "").text(), "x");
    wait_until("it is validated", || {
        let requests = host.origin.requests();
        let is_asked = requests.last()?.field("if-none-match") == Some("\"e\"");
        is_asked.then_some(())
    });
}

#[test]
fn reload_keeps_copies_on_disk() {
    let mut host = Host::new(short(USEFUL));
    host.get_until_stored("/a", 1);
    host.start();
    host.server().signal("HUP");
    host.server().wait_for_error_line("reload 1");
    assert_eq!(host.get("/a", "").text(), "/a 0");
    assert_eq!(host.origin.count(), 1);
}

#[test]
fn response_too_long_for_memory_is_fetched_once() {
    // Shorter than the limit for shared bodies, longer than an object that this memory stores.
    const LEN: usize = 3_900_000;
    let is_whole = Arc::new(Barrier::new(2));
    let at_the_end = is_whole.clone();
    let origin = TestOrigin::start(move |request, stream| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n{USEFUL}\r\n");
        let body = body(&request.target, request.number, LEN);
        let is_sent = stream
            .write_all(&[head.as_bytes(), &body[..LEN - 10]].concat())
            .is_ok();
        at_the_end.wait();
        is_sent && stream.write_all(&body[LEN - 10..]).is_ok()
    });
    let mut host = Host::with(origin, "64M", "");
    let all = body("/a", 0, LEN);
    let mut clients: Vec<_> = (0..20).map(|_| host.server().connect()).collect();
    for client in &mut clients {
        client.send("GET /a HTTP/1.1\r\nHost: test\r\n\r\n");
    }
    // When one client has received nearly all of the body, the others have joined the fetch.
    clients[0].receive_once();
    is_whole.wait();
    for client in &mut clients {
        assert!(client.response().body == all);
        // The response can be read from the disk cache while it is being written.
        assert!(host.get("/a", "").body == all);
    }
    host.status().wait_for("disk_objects", 1);
    host.start();
    let got = host.get("/a", "");
    let status = got.field("cache-status").unwrap_or_default();
    assert!(status.ends_with("detail=disk"), "{status}");
    assert!(got.body == all);
    assert_eq!(host.origin.count(), 1);
}
