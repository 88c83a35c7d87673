//! Stored responses after a reload with another configuration.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, TestClient, TestServer, wait_until};

use crate::front::{PROGRAM, TestAccelerator, response};

/// An origin with storable responses that contain its name.
fn named(name: &'static str) -> TestOrigin {
    TestOrigin::with_response(move |_| response("200 OK", "Cache-Control: max-age=600\r\n", name))
}

/// A configuration with the upstream "app", with this origin as its server, and with additional lines.
fn config(origin: &TestOrigin, more: &str) -> String {
    format!(
        "[server]\nworkers = 4\n[[site]]\nlisten = \"127.0.0.1:0\"\n[[site.route]]\npattern = \"/**\"\norigin = \"app\"\n\
         {more}[[origin]]\nname = \"app\"\nservers = \"{}\"\n",
        origin.url()
    )
}

/// Reloads the server with another configuration, and waits until that is in force.
fn reload(server: &TestServer, folder: &TempFolder, config: String) {
    folder.file("lowroad.toml", config);
    server.signal("HUP");
    server.wait_for_error_line("is in force");
}

#[test]
fn reload_with_other_origin_does_not_use_stored_responses() {
    let (one, other) = (named("one"), named("other"));
    let folder = TempFolder::new();
    let server = TestServer::run(PROGRAM, &folder, &config(&one, ""));
    // Persistent connections that are distributed over the workers.
    let mut clients: Vec<TestClient> = (0..16).map(|_| server.connect()).collect();
    let mut all_get = |name: &str| {
        for client in &mut clients {
            assert_eq!(client.get("/", "").text(), name);
        }
    };
    all_get("one");
    let asked = one.count();
    reload(
        &server,
        &folder,
        // A change that does not concern the origin keeps the stored responses.
        config(&one, "") + "[log]\nlevel = \"info\"\n",
    );
    all_get("one");
    assert_eq!(one.count(), asked, "it stays");
    // After the reload was reported, no worker answers from the previous configuration.
    reload(&server, &folder, config(&other, ""));
    all_get("other");
    reload(&server, &folder, config(&one, ""));
    all_get("one");
    assert!(one.count() > asked, "it was asked anew");
    // First the route has the origin's URL; then the origin is a member of a group.
    let url = config(&one, "").replace("\"app\"\n[[", &format!("\"{}\"\n[[", other.url()));
    reload(&server, &folder, url);
    all_get("other");
}

#[test]
fn fetch_in_progress_during_reload_is_not_stored_for_new_origin() {
    let (go, waits) = channel::<()>();
    let waits = Mutex::new(waits);
    let slow = TestOrigin::start(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 3\r\n\r\no";
        let begun = stream.write_all(head.as_bytes()).is_ok();
        let _ = waits.lock().expect("a lock").recv();
        begun && stream.write_all(b"ne").is_ok()
    });
    let other = named("other");
    let folder = TempFolder::new();
    let server = TestServer::run(PROGRAM, &folder, &config(&slow, ""));
    let mut begun = server.connect();
    begun.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    wait_until("the request", || (slow.count() == 1).then_some(()));
    reload(&server, &folder, config(&other, ""));
    // Another worker may fetch it before the first one has stored it.
    let get = || {
        let got = server.connect().get("/", "");
        assert_eq!(got.text(), "other");
        got.field("Cache-Status")
            .unwrap_or_default()
            .contains("hit")
    };
    wait_until("a stored one", || get().then_some(()));
    go.send(()).expect("the origin waits");
    assert_eq!(
        begun.response().text(),
        "one",
        "whoever asked before gets it"
    );
    assert!(get(), "it is stored");
}

#[test]
fn released_followers_are_subject_to_concurrency_limit() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, highest) = (now.clone(), most.clone());
    let (go, waits) = channel::<()>();
    let waits = Mutex::new(waits);
    let origin = TestOrigin::start(move |request, stream| {
        let count = counted.fetch_add(1, SeqCst) + 1;
        highest.fetch_max(count, SeqCst);
        if request.number == 0 {
            let _ = waits.lock().expect("a lock").recv();
        } else {
            // Gives other requests time to arrive, if they were admitted.
            thread::yield_now();
        }
        counted.fetch_sub(1, SeqCst);
        let text = response("200 OK", "Cache-Control: no-store\r\n", "mine");
        stream.write_all(text.as_bytes()).is_ok()
    });
    // One client may use the whole limit, since all requests come from this machine.
    let front = TestAccelerator::with_route_settings(origin, "concurrency = 2\nclient_share = 100");
    let mut clients: Vec<TestClient> = (0..12).map(|_| front.connect()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    wait_until("all to wait", || {
        front
            .run_command(&["status"])
            .contains("11 by another request's call")
            .then_some(())
    });
    go.send(()).expect("the origin waits");
    let statuses: Vec<u16> = clients
        .iter_mut()
        .map(|client| client.response().status)
        .collect();
    assert!(
        statuses.iter().all(|status| matches!(status, 200 | 503)),
        "{statuses:?}"
    );
    // The released followers make their own requests, within the route's limit.
    assert!(most.load(SeqCst) <= 2, "{}", most.load(SeqCst));
    assert_eq!(now.load(SeqCst), 0);
}
