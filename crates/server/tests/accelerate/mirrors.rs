//! Copies of requests to another origin, which never affect the requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{TempFolder, TestServer, wait_until};

use crate::front::{PROGRAM, response};

fn named(name: &'static str) -> TestOrigin {
    TestOrigin::with_response(move |_| response("200 OK", "Cache-Control: no-store\r\n", name))
}

/// A server in front of an origin, with this mirror.
fn front(origin: &TestOrigin, folder: &TempFolder, mirror: &str) -> TestServer {
    let config = format!(
        "[server]\nworkers = 1\nadmin = \"{}/admin\"\n[[site]]\nlisten = \"127.0.0.1:0\"\n\
         [[site.route]]\npattern = \"/**\"\norigin = \"{}\"\nmirror = {mirror}\n",
        folder.path().display(),
        origin.url(),
    );
    TestServer::run(PROGRAM, folder, &config)
}

fn status(folder: &TempFolder) -> StatusClient {
    StatusClient::new(PROGRAM, folder.path().join("admin"))
}

#[test]
fn copies_have_target_fields_and_body() {
    let (origin, mirror) = (named("a"), named("b"));
    let folder = TempFolder::new();
    let table = format!(
        "{{ to = \"{}\", methods = [\"GET\", \"POST\"], body_max = 8 }}",
        mirror.url()
    );
    let server = front(&origin, &folder, &table);
    let mut client = server.connect();
    assert_eq!(client.get("/x?y=1", "X-A: b\r\n").text(), "a");
    // The second body exceeds the limit by a byte.
    for body in ["12345678", "123456789"] {
        let len = body.len();
        client.send(format!(
            "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n\r\n{body}"
        ));
        assert_eq!(client.response().text(), "a");
    }
    client.send("PUT /p HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().text(), "a");
    status(&folder).wait_for("mirror.too_large", 1);
    wait_until("two copies", || (mirror.count() == 2).then_some(()));
    let copies = mirror.requests();
    let get = copies.iter().find(|it| it.method == "GET");
    let get = get.expect("a copy of GET");
    assert_eq!(
        (get.target.as_str(), get.field("x-a")),
        ("/x?y=1", Some("b"))
    );
    assert!(copies.iter().any(|it| it.body == b"12345678"));
    assert_eq!(origin.count(), 4);
    assert_eq!(status(&folder).value("mirror.sent"), 2);
}

#[test]
fn failing_or_silent_mirror_does_not_affect_requests() {
    let origin = named("a");
    let held = Arc::new(AtomicUsize::new(0));
    let count = held.clone();
    // Never answers, and keeps the connection.
    let mirror = TestOrigin::start(move |_, _| {
        count.fetch_add(1, SeqCst);
        true
    });
    let folder = TempFolder::new();
    let table = format!("{{ to = \"{}\", concurrency = 2 }}", mirror.url());
    let server = front(&origin, &folder, &table);
    let mut client = server.connect();
    for _ in 0..5 {
        assert_eq!(client.get("/", "").text(), "a");
    }
    // Two copies occupy the mirror; the others are skipped.
    wait_until("two copies", || (held.load(SeqCst) == 2).then_some(()));
    assert_eq!(status(&folder).value("mirror.skipped"), 3);

    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", closed.local_addr().expect("an address"));
    drop(closed);
    let folder = TempFolder::new();
    let server = front(&origin, &folder, &format!("\"{url}\""));
    assert_eq!(server.connect().get("/", "").text(), "a");
    status(&folder).wait_for("mirror.failed", 1);
    server.wait_for_error_line("a mirrored request failed");
}

#[test]
fn share_is_the_part_of_requests_that_is_copied() {
    let (origin, mirror) = (named("a"), named("b"));
    let folder = TempFolder::new();
    let table = format!("{{ to = \"{}\", share = \"25%\" }}", mirror.url());
    let server = front(&origin, &folder, &table);
    let mut client = server.connect();
    for _ in 0..400 {
        assert_eq!(client.get("/", "").text(), "a");
    }
    // 100 expected, with a standard deviation of 9.
    let sent = status(&folder).value("mirror.sent");
    assert!((50..150).contains(&sent), "{sent}");
}
