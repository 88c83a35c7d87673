//! Requests to the admin service over TCP: tokens, invalid requests, operations.

use std::net::IpAddr;
use std::process::Command;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::status::scrape;
use lowroad_testkit::{ClientResponse, TestClient, wait_until};

use crate::support::{FULL, ObservedServer, PROGRAM, READ, run};

/// Operations that require the full token.
const COMMANDS: [&str; 3] = ["/v1/purge?target=all", "/v1/reload", "/v1/stop"];

/// Asserts that a response is a problem with this status; returns its detail.
fn problem(response: &ClientResponse, status: u16) -> String {
    assert_eq!(response.status, status, "{}", response.text());
    let kind = response.field("content-type");
    assert_eq!(kind, Some("application/problem+json"));
    assert_eq!(response.field("cache-control"), Some("no-store"));
    let problem: serde_json::Value = serde_json::from_slice(&response.body).expect("JSON");
    assert_eq!(problem["status"], status);
    assert!(problem["title"].is_string() && problem["type"].is_string());
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(!detail.is_empty(), "{problem}");
    detail.to_owned()
}

#[test]
fn read_token_does_not_permit_commands() {
    let observed = ObservedServer::start();
    for token in ["", "wrong-0123456789abcdef"] {
        for path in ["/metrics", "/v1/status", "/no/such/path"] {
            let response = observed.call("GET", path, token);
            problem(&response, 401);
            let scheme = response.field("www-authenticate").unwrap_or_default();
            assert!(scheme.starts_with("Bearer"), "{scheme}");
        }
    }
    for path in COMMANDS {
        let detail = problem(&observed.call("POST", path, READ), 403);
        assert!(detail.contains("read_token"), "{detail}");
    }
    for token in [READ, FULL] {
        for path in ["/metrics", "/v1/status", "/v1/snapshot", "/openapi.json"] {
            assert_eq!(observed.call("GET", path, token).status, 200, "{path}");
        }
    }
    let refused = observed
        .scrape()
        .sum("lowroad_admin_requests_refused_total", &[]);
    assert_eq!(refused, 6.0 + 3.0);
}

#[test]
fn invalid_requests_get_problem_details() {
    let observed = ObservedServer::start();
    let detail = problem(&observed.call("GET", "/no/such/path", READ), 404);
    assert!(detail.contains("/openapi.json"), "{detail}");
    for (method, path, allow) in [
        ("POST", "/metrics", "GET, HEAD"),
        ("DELETE", "/v1/status", "GET, HEAD"),
        ("GET", "/v1/reload", "POST"),
        ("HEAD", "/v1/stop", "POST"),
    ] {
        let response = observed.call(method, path, FULL);
        if method == "HEAD" {
            assert_eq!(response.status, 405);
        } else {
            problem(&response, 405);
        }
        assert_eq!(response.field("allow"), Some(allow), "{method} {path}");
    }
    for (method, target, status) in [
        ("GET", "/v1/explain", 400),
        ("GET", "/v1/explain?url=http://192.0.2.1/", 404),
        ("POST", "/v1/purge", 400),
        ("POST", "/v1/purge?target=word", 400),
        ("POST", "/v1/purge?target=all&soft=2", 400),
        ("POST", "/v1/purge?target=all&port=1", 404),
        ("POST", "/v1/purge?target=http://a.example/../x", 400),
        ("POST", "/v1/purge?target=http://a.example/%25zz", 400),
    ] {
        problem(&observed.call(method, target, FULL), status);
    }
}

#[test]
fn wrong_tokens_of_an_address_are_rate_limited() {
    let observed = ObservedServer::start();
    let wrong = "wrong-0123456789abcdef";
    for _ in 0..10 {
        problem(&observed.call("GET", "/metrics", wrong), 401);
    }
    for token in [wrong, READ, FULL] {
        let response = observed.call("GET", "/metrics", token);
        problem(&response, 429);
        let wait_s = response
            .field("retry-after")
            .and_then(|it| it.parse::<u64>().ok());
        assert!(
            wait_s.is_some_and(|wait_s| (1..=60).contains(&wait_s)),
            "{wait_s:?}"
        );
    }
    // The Unix socket requires no token and has no such rate limit.
    let text = scrape(&observed.socket());
    assert!(
        text.contains("\nlowroad_admin_requests_refused_total 13\n"),
        "{text}"
    );
}

#[test]
fn clients_without_a_token_leave_the_unix_socket_usable() {
    let observed = ObservedServer::start();
    // As many connections as TCP may have, from as few addresses as possible; each stays open after its refusal.
    let sources = [[127, 0, 0, 5], [127, 0, 0, 6]].map(IpAddr::from);
    let held: Vec<TestClient> = sources
        .into_iter()
        .flat_map(|source| std::iter::repeat_n(source, 128))
        .map(|source| {
            let mut client = TestClient::connect_from(source, observed.admin);
            problem(&client.get("/metrics", ""), 401);
            client
        })
        .collect();
    assert_eq!(held.len(), 256);
    let text = scrape(&observed.socket());
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
}

#[test]
fn admin_operations_work_over_tcp() {
    let mut observed = ObservedServer::start();
    let status = observed.call("GET", "/v1/status", READ);
    assert!(status.text().contains("cache_hits"), "{}", status.text());
    let port = observed.server.address().port();
    let target = format!("/v1/explain?url=http://a.example:{port}/app/stored&header=X:%20y");
    let explained = observed.call("GET", &target, READ).text();
    assert!(explained.contains("origin http://"), "{explained}");

    for expected in [1, 1] {
        assert_eq!(observed.get("a.example", "/app/stored"), 200);
        assert_eq!(observed.origin.count(), expected);
    }
    let purged = observed.call("POST", "/v1/purge?target=host:a.example", FULL);
    assert_eq!(purged.status, 200, "{}", purged.text());
    assert_eq!(observed.get("a.example", "/app/stored"), 200);
    assert_eq!(observed.origin.count(), 2);

    observed
        .configure("[[site]]\nnames = \"b.example\"\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n");
    let reloaded = observed.call("POST", "/v1/reload", FULL);
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    assert_eq!(observed.get("b.example", "/"), 200);
    observed.configure("[[site]]\nroot = \"missing\"\n");
    let detail = problem(&observed.call("POST", "/v1/reload", FULL), 409);
    assert!(detail.contains("missing"), "{detail}");
    assert_eq!(observed.get("b.example", "/"), 200);

    let stopped = observed.call("POST", "/v1/stop", FULL);
    let process = observed.server.pid().to_string();
    assert_eq!((stopped.status, stopped.text().trim()), (200, &*process));
    assert!(observed.server.wait_for_end().success());
}

#[test]
fn event_stream_has_a_snapshot_each_second() {
    let observed = ObservedServer::start();
    let mut client = TestClient::connect(observed.admin);
    client.send(format!(
        "GET /v1/events HTTP/1.1\r\nHost: admin\r\nAuthorization: Bearer {READ}\r\n\r\n"
    ));
    wait_until("two events", || {
        assert!(client.receive_once(), "the stream ended");
        let text = String::from_utf8_lossy(&client.received);
        (text.matches("data: {").count() >= 2).then_some(())
    });
    let text = String::from_utf8_lossy(&client.received).into_owned();
    assert!(text.contains("Content-Type: text/event-stream"), "{text}");
    assert!(text.contains("lowroad_open_connections"), "{text}");
}

#[test]
fn changed_admin_address_needs_a_restart() {
    // Without TLS, because a reload might not be permitted to read the files of the local authority.
    let site = "[[site]]\nnames = \"a.example\"\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n";
    let observed = ObservedServer::with(site, TestOrigin::with_response(|_| String::new()));
    let file = observed.folder.path().join("lowroad.toml");
    let config = std::fs::read_to_string(file).expect("a configuration");
    observed.folder.file(
        "lowroad.toml",
        config.replace("read_token_file = \"read.token\"\n", ""),
    );
    let reloaded = observed.call("POST", "/v1/reload", FULL);
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    observed
        .server
        .wait_for_error_line("these changes need `lowroad upgrade`: admin.read_token_file");
    assert!(
        reloaded
            .text()
            .contains("need `lowroad upgrade`: admin.read_token_file"),
        "{}",
        reloaded.text()
    );
    assert_eq!(observed.call("GET", "/metrics", READ).status, 200);
}

#[test]
fn unusable_token_is_a_configuration_problem() {
    let observed = ObservedServer::start();
    observed.folder.file("read.token", "short");
    let file = observed.folder.path().join("lowroad.toml");
    let mut check = Command::new(PROGRAM);
    let output = run(check.args(["check", "-c"]).arg(file), "");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("read.token") && text.contains("at least 16"),
        "{text}"
    );
}

#[test]
fn log_level_is_changed_while_the_server_runs() {
    // Without TLS, because a reload might not be permitted to read the files of the local authority.
    let site = "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n";
    let observed = ObservedServer::with(site, TestOrigin::with_response(|_| String::new()));
    let patch = |body: &str, status: u16| {
        let response = observed.call_with_json("PATCH", "/v1/log", "", body);
        assert_eq!(response.status, status, "{body}: {}", response.text());
        response.text()
    };
    let shown = observed.call("GET", "/v1/log", READ).text();
    assert_eq!(shown, "{\"level\":\"info\",\"trace_sample\":null}");
    patch("{\"level\":\"error\"}", 200);
    assert_eq!(observed.call("POST", "/v1/reload", FULL).status, 200);
    patch("{\"level\":\"info\"}", 200);
    assert_eq!(observed.call("POST", "/v1/reload", FULL).status, 200);
    // The line of the first reload was not written.
    let line = observed.server.wait_for_error_line(" info reload ");
    assert!(line.contains(" info reload 2: "), "{line}");
    for (body, status) in [
        ("{\"level\":\"loud\"}", 400),
        ("{\"trace_sample\":2}", 400),
        ("{}", 400),
        // There are no traces.
        ("{\"trace_sample\":0.5,\"level\":\"debug\"}", 409),
    ] {
        patch(body, status);
    }
    assert_eq!(observed.call("GET", "/v1/log", READ).text(), shown);

    let site = "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n\
                [traces]\nendpoint = \"http://127.0.0.1:1/v1/traces\"\nsample = 0.5\n";
    let traced = ObservedServer::with(site, TestOrigin::with_response(|_| String::new()));
    let body = "{\"trace_sample\":0.25}";
    let changed = traced.call_with_json("PATCH", "/v1/log", "", body);
    assert_eq!(changed.text(), "{\"level\":\"info\",\"trace_sample\":0.25}");
    let line = traced.server.wait_for_error_line(" audit ");
    assert!(
        line.contains("\"trace_sample\":0.5}") && line.contains("\"trace_sample\":0.25}"),
        "{line}"
    );
}

#[test]
fn sites_and_certificates_are_listed() {
    let observed = ObservedServer::start();
    let json = |path: &str| -> serde_json::Value {
        let response = observed.call("GET", path, READ);
        assert_eq!(response.status, 200, "{}", response.text());
        serde_json::from_slice(&response.body).expect("JSON")
    };
    let sites = json("/v1/sites");
    let site = &sites["sites"][0];
    assert_eq!(
        (&site["name"], &site["names"][0]),
        (&"a.example".into(), &"a.example".into())
    );
    assert_eq!(site["is_in_maintenance"], false);
    let route = site["routes"][1]["name"].as_str().expect("a route");
    assert!(route.starts_with("/down/** to origin down"), "{route}");
    let address = observed.server.address().to_string();
    let addresses = sites["addresses"].as_array().expect("addresses");
    assert!(addresses.iter().any(|it| *it == *address), "{sites}");

    let certificates = json("/v1/certificates");
    let certificate = &certificates["certificates"][0];
    assert_eq!(certificate["source"], "local");
    let names = certificate["names"].as_array().expect("names");
    assert!(names.contains(&"a.example".into()), "{certificates}");
    assert!(certificate["not_after_s"].is_u64(), "{certificates}");
    // This server can renew only certificates that it obtains by ACME.
    for (name, status) in [("a.example", 409), ("none.example", 404)] {
        let path = format!("/v1/certificates/{name}/renew");
        problem(&observed.call("POST", &path, FULL), status);
        problem(&observed.call("POST", &path, READ), 403);
    }
}
