//! The relay of `lowroad dashboard`, without a browser.

use lowroad_testkit::{ClientResponse, TestClient, wait_until};

use crate::subject::{Dashboard, Subject};

/// An open session: the cookie, and the path below which requests are permitted.
struct Session<'d> {
    dashboard: &'d Dashboard,
    cookie: String,
    folder: String,
}

impl Session<'_> {
    fn open(dashboard: &Dashboard) -> Session<'_> {
        let response = ask(dashboard, &format!("GET {}", dashboard.link_target()), "");
        assert_eq!(response.status, 200, "{}", response.head);
        let cookie = response.field("Set-Cookie").expect("a cookie").to_owned();
        let (value, attributes) = cookie.split_once("; ").expect("attributes");
        let path = attributes.strip_prefix("Path=").expect("a path");
        let (folder, rest) = path.split_once("/;").expect("a folder");
        assert_eq!(rest, " HttpOnly; SameSite=Strict");
        assert!(response.text().contains(&format!("url={folder}/dashboard")));
        Session {
            dashboard,
            cookie: format!("Cookie: {value}\r\n"),
            folder: folder.to_owned(),
        }
    }

    fn ask(&self, method: &str, path: &str, fields: &str) -> ClientResponse {
        let line = format!("{method} {}{path}", self.folder);
        ask(self.dashboard, &line, &format!("{}{fields}", self.cookie))
    }
}

fn request(dashboard: &Dashboard, line: &str, fields: &str) -> TestClient {
    let address = dashboard.address();
    let mut client = TestClient::connect(address);
    client.send(format!(
        "{line} HTTP/1.1\r\nHost: {address}\r\n{fields}\r\n"
    ));
    client
}

fn ask(dashboard: &Dashboard, line: &str, fields: &str) -> ClientResponse {
    request(dashboard, line, fields).response()
}

#[test]
fn a_link_works_once_and_its_session_only_with_the_cookie() {
    let subject = Subject::start();
    let dashboard = subject.dashboard(&[]);
    let without = ask(&dashboard, "GET /dashboard", "");
    assert_eq!(without.status, 401);
    let session = Session::open(&dashboard);
    let again = ask(
        &dashboard,
        &format!("GET {}", dashboard.link_target()),
        &session.cookie,
    );
    assert_eq!(again.status, 401, "{}", again.text());

    let page = session.ask("GET", "/dashboard", "");
    assert_eq!(page.status, 200);
    let policy = page.field("Content-Security-Policy").expect("a policy");
    for part in [
        "default-src 'none'",
        "connect-src 'self'",
        "form-action 'none'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.field("Referrer-Policy"), Some("no-referrer"));

    let line = format!("GET {}/v1/snapshot", session.folder);
    assert_eq!(ask(&dashboard, &line, "").status, 401);
    let guessed = "Cookie: lowroad_dashboard=00000000000000000000000000000000\r\n";
    assert_eq!(ask(&dashboard, &line, guessed).status, 401);
    let root = ask(&dashboard, "GET /v1/snapshot", &session.cookie);
    assert_eq!(root.status, 401);
}

#[test]
fn other_sites_can_not_use_a_session() {
    let subject = Subject::start();
    let dashboard = subject.dashboard(&[]);
    let session = Session::open(&dashboard);
    let mut client = TestClient::connect(dashboard.address());
    let (folder, cookie) = (&session.folder, &session.cookie);
    client.send(format!(
        "GET {folder}/v1/snapshot HTTP/1.1\r\nHost: rebound.example\r\n{cookie}\r\n"
    ));
    assert_eq!(client.response().status, 421);
    let target = "/v1/purge?target=all";
    let other = session.ask("POST", target, "Origin: http://127.0.0.1:1\r\n");
    assert_eq!(other.status, 403);
    assert_eq!(session.ask("POST", target, "").status, 403);
    let own = format!("Origin: http://{}\r\n", dashboard.address());
    let purged = session.ask("POST", target, &format!("{own}Content-Length: 0\r\n"));
    assert_eq!(purged.status, 200, "{}", purged.text());
    let stopped = session.ask("POST", "/v1/stop", &own);
    assert_eq!(stopped.status, 403);
}

#[test]
fn a_read_only_dashboard_does_not_purge() {
    let subject = Subject::start();
    let dashboard = subject.dashboard(&["--read-only"]);
    let session = Session::open(&dashboard);
    let own = format!("Origin: http://{}\r\n", dashboard.address());
    let refused = session.ask("POST", "/v1/purge?target=all", &own);
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("--read-only"), "{}", refused.text());
    let state = session.ask("GET", "/v1/relay", "");
    assert!(state.text().contains("\"is_read_only\":true"));
}

#[test]
fn events_pass_as_they_come() {
    let subject = Subject::start();
    let dashboard = subject.dashboard(&[]);
    let session = Session::open(&dashboard);
    let line = format!("GET {}/v1/events", session.folder);
    let mut stream = request(&dashboard, &line, &session.cookie);
    let count = |received: &[u8]| {
        let text = String::from_utf8_lossy(received).into_owned();
        text.matches("data: {").count()
    };
    while count(&stream.received) < 2 {
        assert!(stream.receive_once(), "the stream has ended");
    }
}

#[test]
fn idle_connections_make_room_for_requests() {
    let subject = Subject::start();
    let dashboard = subject.dashboard(&[]);
    let session = Session::open(&dashboard);
    let _idle: Vec<TestClient> = (0..100)
        .map(|_| TestClient::connect(dashboard.address()))
        .collect();
    // The threads of evicted connections may not have ended yet.
    wait_until("a place", || {
        (session.ask("GET", "/v1/status", "").status == 200).then_some(())
    });
}

#[test]
fn connections_with_requests_are_bounded_and_return() {
    let subject = Subject::start();
    let dashboard = subject.dashboard(&[]);
    let session = Session::open(&dashboard);
    let line = format!("GET {}/v1/events", session.folder);
    let streams: Vec<TestClient> = (0..32)
        .map(|_| {
            let mut stream = request(&dashboard, &line, &session.cookie);
            // Connections without a request would be evicted.
            assert!(stream.receive_once(), "the stream has ended");
            stream
        })
        .collect();
    wait_until("a refusal", || {
        (session.ask("GET", "/v1/status", "").status == 503).then_some(())
    });
    drop(streams);
    wait_until("a place", || {
        (session.ask("GET", "/v1/status", "").status == 200).then_some(())
    });
}

#[test]
fn a_server_that_has_ended_is_reported() {
    let mut subject = Subject::start();
    let dashboard = subject.dashboard(&[]);
    let session = Session::open(&dashboard);
    subject.server.signal("TERM");
    subject.server.wait_for_end();
    let response = session.ask("GET", "/v1/snapshot", "");
    assert_eq!(response.status, 502, "{}", response.text());
}
