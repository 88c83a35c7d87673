//! Origins by the admin service and by `lowroad origin`: states, weights, added servers; conditions, refusals, the audit.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{ClientResponse, wait_until};
use serde_json::{Value, json};

use crate::support::{FULL, ObservedServer, PROGRAM, READ};

/// An origin with its name in each response; responses are never stored.
fn origin(name: &'static str) -> TestOrigin {
    TestOrigin::with_response(move |_| response(name))
}

fn response(text: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    )
}

/// The tables of a site and of its origin `app` with these servers and further keys.
fn tables(servers: &[&str], keys: &str) -> String {
    format!(
        "[[site]]\nlisten = \"127.0.0.1:0\"\n[[site.route]]\npattern = \"/**\"\norigin = \"app\"\n\
         [[origin]]\nname = \"app\"\nservers = {servers:?}\n{keys}\n"
    )
}

/// A server with two servers, `a` and `b`, of the origin `app`.
struct Balanced {
    observed: ObservedServer,
    b: TestOrigin,
}

impl Balanced {
    fn start(keys: &str) -> Balanced {
        let (a, b) = (origin("a"), origin("b"));
        let tables = tables(&[&a.url(), &b.url()], keys);
        Balanced {
            observed: ObservedServer::with(&tables, a),
            b,
        }
    }

    fn addresses(&self) -> [String; 2] {
        [&self.observed.origin, &self.b].map(address)
    }

    /// The names of the servers that have answered some requests, sorted.
    fn answers(&self) -> String {
        let mut names: Vec<String> = (0..12)
            .map(|_| self.observed.server.get("/").text())
            .collect();
        names.sort();
        names.dedup();
        names.concat()
    }

    fn patch(&self, address: &str, body: &Value) -> ClientResponse {
        let target = format!("/v1/origins/app/servers/{address}");
        self.observed
            .call_with_json("PATCH", &target, "", &body.to_string())
    }

    /// Runs `lowroad origin`; returns its output.
    fn command(&self, arguments: &[&str]) -> String {
        let client = StatusClient::new(PROGRAM, self.observed.socket());
        client.command(&[&["origin"], arguments].concat())
    }

    fn server(&self, address: &str) -> Value {
        let target = format!("/v1/origins/app/servers/{address}");
        json_of(&self.observed.call("GET", &target, READ))
    }
}

fn address(origin: &TestOrigin) -> String {
    origin.url().trim_start_matches("http://").to_owned()
}

/// Sends a request with a JSON body and the full token.
fn json_of(response: &ClientResponse) -> Value {
    let text = response.text();
    assert!([200, 201].contains(&response.status), "{text}");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn server_is_drained_taken_down_and_forced() {
    let balanced = Balanced::start("");
    let [a, b] = balanced.addresses();
    assert_eq!(balanced.answers(), "ab");
    let list = balanced.command(&["list"]);
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(
        list.contains(&format!("app {a}: state ready, health up, weight 1,")),
        "{list}"
    );

    for state in ["drain", "down"] {
        let line = balanced.command(&[state, "app", &a]);
        assert!(line.starts_with(&format!("app {a}: ")), "{line}");
        assert_eq!(balanced.answers(), "b");
        assert_eq!(balanced.server(&a)["state"], state);
        // Its health is known nevertheless.
        assert_eq!(balanced.server(&a)["is_available"], true);
        assert_eq!(balanced.server(&b)["state"], "ready");
        let scrape = balanced.observed.scrape();
        for (metric, sum) in [
            ("lowroad_upstream_up", 2.0),
            ("lowroad_upstream_in_rotation", 1.0),
        ] {
            assert_eq!(scrape.sum(metric, &[]), sum, "{metric}");
        }
        balanced.command(&["ready", "app", &a]);
        assert_eq!(balanced.answers(), "ab");
    }
    // All servers, if the operator says so: a request gets 503, and the log has the reason.
    let client = StatusClient::new(PROGRAM, balanced.observed.socket());
    let refused = client.run(&["origin", "down", "app"]);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("--all") && !refused.status.success()
    );
    assert_eq!(balanced.answers(), "ab");
    balanced.command(&["down", "app", "--all"]);
    assert_eq!(balanced.observed.server.get("/").status, 503);
    let line = balanced
        .observed
        .server
        .wait_for_error_line("drained or out of service");
    assert!(line.contains("origin app"), "{line}");
    balanced.command(&["force", "app", &b]);
    assert_eq!(balanced.answers(), "b");
}

#[test]
fn weight_is_changed_until_it_is_reset() {
    let balanced = Balanced::start("");
    let [a, _] = balanced.addresses();
    let share = || {
        let names = (0..40).map(|_| balanced.observed.server.get("/").text());
        names.filter(|name| name == "a").count()
    };
    let changed = balanced.patch(&a, &json!({ "weight": 3 }));
    let server = json_of(&changed);
    assert_eq!(
        (&server["weight"], &server["configured_weight"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(share(), 30);
    let line = balanced.command(&["weight", "app", &a, "configured"]);
    assert!(line.contains("weight 1,"), "{line}");
    assert_eq!(share(), 20);
}

#[test]
fn requests_in_progress_go_on_and_sessions_stay_while_a_server_drains() {
    let (release, wait): (Sender<()>, Receiver<()>) = channel();
    let (begun, has_begun) = channel();
    let (wait, begun) = (Mutex::new(wait), Mutex::new(begun));
    let a = TestOrigin::start(move |request, stream| {
        if request.target == "/slow" {
            begun
                .lock()
                .expect("a lock")
                .send(())
                .expect("the test waits");
            let _ = wait.lock().expect("a lock").recv();
        }
        stream.write_all(response("a").as_bytes()).is_ok()
    });
    let b = origin("b");
    let tables = tables(&[&a.url(), &b.url()], "sticky = true");
    let observed = ObservedServer::with(&tables, a);
    let balanced = Balanced { observed, b };
    let [a, _] = balanced.addresses();
    // A session at a.
    let cookie = wait_until("a session at a", || {
        let response = balanced.observed.server.get("/");
        let cookie = response.field("set-cookie")?.split(';').next()?.to_owned();
        (response.text() == "a").then_some(cookie)
    });
    let get = |path: &str| {
        let mut client = balanced.observed.server.connect();
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        ));
        client
    };
    let mut slow = get("/slow");
    has_begun.recv().expect("a request");
    assert_eq!(balanced.server(&a)["requests"], 1);
    balanced.command(&["drain", "app", &a]);
    assert_eq!(balanced.answers(), "b");
    assert_eq!(get("/").response().text(), "a");
    // Out of service, the session moves; the request in progress is still answered.
    balanced.command(&["down", "app", &a]);
    assert_eq!(get("/").response().text(), "b");
    let client = StatusClient::new(PROGRAM, balanced.observed.socket());
    let late = client.run(&["origin", "down", "app", &a, "--wait", "1ms"]);
    assert_eq!(late.status.code(), Some(3));
    let error = String::from_utf8_lossy(&late.stderr).into_owned();
    assert!(error.contains("still has 1 request after"), "{error}");
    release.send(()).expect("the origin waits");
    assert_eq!(slow.response().text(), "a");
    balanced.command(&["down", "app", &a, "--wait"]);
    assert_eq!(balanced.server(&a)["requests"], 0);
}

#[test]
fn changes_survive_reloads_while_the_origin_is_configured() {
    let balanced = Balanced::start("");
    let [a, b] = balanced.addresses();
    let urls = [&a, &b].map(|address| format!("http://{address}"));
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    balanced.command(&["down", "app", &a]);
    let reload = |tables: &str| {
        balanced.observed.configure(tables);
        let reloaded = balanced.observed.call("POST", "/v1/reload", FULL);
        assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    };
    // The same settings keep the servers; others make new ones, to which the changes are applied.
    for keys in ["", "tries = 2", "balance = \"random\""] {
        reload(&tables(&urls, keys));
        assert_eq!(balanced.answers(), "b", "{keys}");
    }
    // A single server without a group has a state, too.
    reload(&tables(&urls[..1], ""));
    assert_eq!(balanced.observed.server.get("/").status, 503);
    balanced.command(&["ready", "app", &a]);
    assert_eq!(balanced.answers(), "a");
    balanced.command(&["drain", "app", &a]);
    // A refused configuration changes nothing.
    balanced
        .observed
        .configure("[[site]]\nroot = \"missing\"\n");
    assert_eq!(
        balanced.observed.call("POST", "/v1/reload", FULL).status,
        409
    );
    assert_eq!(balanced.server(&a)["state"], "drain");
    // Without the origin, its changes are forgotten.
    reload("[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n");
    reload(&tables(&urls, ""));
    assert_eq!(balanced.answers(), "ab");
}

#[test]
fn server_is_added_and_removed() {
    let balanced = Balanced::start("");
    let c = origin("c");
    let address = address(&c);
    let added = balanced.command(&["add", "app", &address, "--weight", "2"]);
    assert!(
        added.contains(&format!(
            "app {address}: state ready, health up, added, weight 2"
        )),
        "{added}"
    );
    assert_eq!(balanced.answers(), "abc");
    let target = "/v1/origins/app/servers";
    let body = json!({ "address": address }).to_string();
    let again = balanced.observed.call_with_json("POST", target, "", &body);
    assert_eq!(again.status, 409, "{}", again.text());
    // A reload keeps it, also if the origin gets other settings.
    let urls = [balanced.observed.origin.url(), balanced.b.url()];
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    balanced.observed.configure(&tables(&urls, "tries = 2"));
    assert_eq!(
        balanced.observed.call("POST", "/v1/reload", FULL).status,
        200
    );
    assert_eq!(balanced.answers(), "abc");
    balanced.command(&["remove", "app", &address]);
    assert_eq!(balanced.answers(), "ab");
    let [a, _] = balanced.addresses();
    let configured = format!("/v1/origins/app/servers/{a}");
    let refused = balanced.observed.call("DELETE", &configured, FULL);
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert_eq!(balanced.answers(), "ab");
}

#[test]
fn added_server_that_is_configured_later_is_one_server() {
    let balanced = Balanced::start("");
    let c = origin("c");
    let address = address(&c);
    balanced.command(&["add", "app", &address, "--weight", "9"]);
    balanced.command(&["force", "app", &address]);
    let urls = [&balanced.observed.origin, &balanced.b, &c].map(TestOrigin::url);
    let reload = |urls: &[String]| {
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        balanced.observed.configure(&tables(&urls, ""));
        let reloaded = balanced.observed.call("POST", "/v1/reload", FULL);
        assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    };
    reload(&urls);
    let server = balanced.server(&address);
    assert_eq!(
        (&server["added"], &server["weight"], &server["state"]),
        (&json!(false), &json!(1), &json!("force"))
    );
    assert_eq!(balanced.command(&["show", "app"]).lines().count(), 3);
    let names = (0..30).map(|_| balanced.observed.server.get("/").text());
    assert_eq!(names.filter(|name| name == "c").count(), 10);
    let target = format!("/v1/origins/app/servers/{address}");
    let removed = balanced.observed.call("DELETE", &target, FULL);
    assert_eq!(removed.status, 409, "{}", removed.text());
    // The configuration decides from now on.
    reload(&urls[..2]);
    assert_eq!(balanced.answers(), "ab");
    assert_eq!(balanced.observed.call("GET", &target, READ).status, 404);
}

#[test]
fn waiting_request_keeps_no_servers_of_an_earlier_configuration_in_the_lists() {
    let (release, wait): (Sender<()>, Receiver<()>) = channel();
    let (begun, has_begun) = channel();
    let (wait, begun) = (Mutex::new(wait), Mutex::new(begun));
    let a = TestOrigin::start(move |request, stream| {
        if request.target == "/slow" {
            begun
                .lock()
                .expect("a lock")
                .send(())
                .expect("the test waits");
            let _ = wait.lock().expect("a lock").recv();
        }
        stream.write_all(response("a").as_bytes()).is_ok()
    });
    let (b, c) = (origin("b"), origin("c"));
    let before = tables(&[&a.url()], "");
    let balanced = Balanced {
        observed: ObservedServer::with(&before, a),
        b,
    };
    let [a, b] = balanced.addresses();
    let mut slow = balanced.observed.server.connect();
    slow.send("GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    has_begun.recv().expect("a request");
    let (b_url, c_url) = (balanced.b.url(), c.url());
    balanced
        .observed
        .configure(&tables(&[&b_url, &c_url], "tries = 2"));
    let reload = balanced.observed.call("POST", "/v1/reload", FULL);
    assert_eq!(reload.status, 200, "{}", reload.text());
    let list = balanced.command(&["list"]);
    assert!(!list.contains(&a) && list.lines().count() == 2, "{list}");
    assert_eq!(balanced.patch(&a, &json!({ "state": "down" })).status, 404);
    // The single server of the earlier configuration does not refuse another one.
    let added = balanced.command(&["add", "app", &a]);
    assert!(
        added.contains(&format!("app {a}: state ready, health up, added")),
        "{added}"
    );
    balanced.command(&["down", "app", &b]);
    assert_eq!(balanced.answers(), "ac");
    release.send(()).expect("the origin waits");
    assert_eq!(slow.response().text(), "a");
}

#[test]
fn bad_changes_are_refused_and_counted_and_change_nothing() {
    let balanced = Balanced::start("");
    let [a, _] = balanced.addresses();
    let target = format!("/v1/origins/app/servers/{a}");
    let before = balanced.observed.call("GET", &target, READ);
    let tag = before.field("etag").expect("a tag").to_owned();
    let observed = &balanced.observed;
    let drain = "{\"state\":\"drain\"}";
    let stale = "If-Match: \"0000000000000000\"\r\n";
    for (method, target, fields, body, status) in [
        ("PATCH", &*target, "", "", 400),
        ("PATCH", &target, "", "{\"state\":\"drain\"", 400),
        ("PATCH", &target, "", "{\"state\":\"gone\"}", 400),
        (
            "PATCH",
            &target,
            "",
            "{\"state\":\"drain\",\"wait\":1}",
            400,
        ),
        ("PATCH", &target, "", "{}", 400),
        ("PATCH", &target, "", "[\"down\"]", 400),
        ("PATCH", &target, "", "[null,5]", 400),
        ("PATCH", &target, "", "{\"state\":{\"down\":null}}", 400),
        (
            "POST",
            "/v1/origins/app/servers",
            "",
            "[\"192.0.2.1:80\"]",
            400,
        ),
        ("PATCH", "/v1/log", "", "[\"debug\"]", 400),
        ("POST", "/v1/purge?target=all", stale, "", 400),
        (
            "PATCH",
            &target,
            "Authorization: Bearer other\r\n",
            drain,
            400,
        ),
        (
            "POST",
            "/v1/origins/app/servers",
            "",
            "{\"address\":\"192.0.2.1:0\"}",
            400,
        ),
        ("PATCH", &target, "", "{\"weight\":0}", 400),
        ("PATCH", &target, "", "{\"weight\":1001}", 400),
        ("PATCH", &target, "Content-Type: text/plain\r\n", drain, 415),
        ("PATCH", &target, stale, drain, 412),
        (
            "PATCH",
            "/v1/origins/app/servers/192.0.2.1:1",
            "",
            drain,
            404,
        ),
        (
            "PATCH",
            "/v1/origins/none/servers/192.0.2.1:1",
            "",
            drain,
            404,
        ),
        ("PUT", &target, "", drain, 405),
        (
            "POST",
            "/v1/origins/app/servers",
            "",
            "{\"address\":\"app.example:80\"}",
            400,
        ),
        (
            "POST",
            "/v1/origins/app/servers",
            "",
            "{\"address\":\"unix:x\"}",
            400,
        ),
    ] {
        let response = observed.call_with_json(method, target, fields, body);
        assert_eq!(
            response.status,
            status,
            "{method} {target} {body}: {}",
            response.text()
        );
        let kind = response.field("content-type");
        assert_eq!(kind, Some("application/problem+json"));
    }
    let read = format!(
        "Authorization: Bearer {READ}\r\nContent-Length: {}\r\n",
        drain.len()
    );
    assert_eq!(
        observed
            .call_with_body("PATCH", &target, &read, drain)
            .status,
        403
    );
    let long = " ".repeat(65 << 10);
    assert_eq!(
        observed.call_with_json("PATCH", &target, "", &long).status,
        413
    );

    let after = observed.call("GET", &target, READ);
    assert_eq!(after.field("etag"), Some(&*tag));
    assert_eq!(balanced.answers(), "ab");
    let scrape = observed.scrape();
    for (reason, count) in [
        ("malformed", 17.0),
        ("body", 2.0),
        ("stale", 1.0),
        ("not_found", 2.0),
        ("method", 1.0),
        ("permission", 1.0),
    ] {
        let counted = scrape.sum("lowroad_admin_problems_total", &[("reason", reason)]);
        assert_eq!(counted, count, "{reason}");
    }
    // The tag that was read permits one change, and not a second one.
    let fields = format!("If-Match: {tag}\r\n");
    assert_eq!(
        observed
            .call_with_json("PATCH", &target, &fields, drain)
            .status,
        200
    );
    let again = observed.call_with_json("PATCH", &target, &fields, "{\"state\":\"force\"}");
    assert_eq!(again.status, 412, "{}", again.text());
    assert_eq!(balanced.server(&a)["state"], "drain");
    // Several lines of a field are one list.
    let tag = observed.call("GET", &target, READ);
    let tag = tag.field("etag").expect("a tag").to_owned();
    let fields = format!("{stale}If-Match: {tag}\r\n");
    assert_eq!(
        observed
            .call_with_json("PATCH", &target, &fields, drain)
            .status,
        200
    );
    // Changes that were refused before their operation are in the audit, with the client if it is known.
    for (method, text, by) in [
        ("PUT", "\"status\":405", "token from 127.0.0.1"),
        ("PATCH", "\"status\":403", "a client from 127.0.0.1"),
        ("PATCH", "\"status\":413", "token from 127.0.0.1"),
    ] {
        let line = observed.server.wait_for_error_line(text);
        assert!(
            line.contains(" audit ") && line.contains(&format!("\"by\":\"{by}")),
            "{line}"
        );
        assert!(line.contains(&format!("\"{method} {target}")), "{line}");
    }
}

#[test]
fn audit_of_refused_changes_is_limited_and_shows_no_control_characters() {
    let balanced = Balanced::start("");
    let observed = &balanced.observed;
    for number in 0..30 {
        let target = format!("/v1/purge?target=%C2%9B{number}");
        assert_eq!(observed.call("POST", &target, "").status, 401);
    }
    let body = json!({ "level": "a\u{9b}2Jb" }).to_string();
    assert_eq!(
        observed
            .call_with_json("PATCH", "/v1/log", "", &body)
            .status,
        400
    );
    let mut refused = 0;
    let last = loop {
        let line = observed.server.wait_for_error_line(" audit ");
        assert!(!line.chars().any(char::is_control), "{line:?}");
        match line.contains("\"status\":401") {
            true => refused += 1,
            false => break line,
        }
    };
    assert!(last.contains("2Jb"), "{last}");
    assert_eq!(refused, 10);
}

#[test]
fn second_reload_is_refused_while_one_waits() {
    let balanced = Balanced::start("");
    let observed = &balanced.observed;
    let urls = balanced
        .addresses()
        .map(|address| format!("http://{address}"));
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    // An application that never gets ready.
    let application = "[[application]]\nname = \"late\"\ncommand = [\"sleep\", \"30\"]\n\
        ready = \"http://127.0.0.1:1\"\nstart_timeout = \"60s\"";
    observed.configure(&tables(&urls, application));
    // More clients than helper threads; one of them waits until the end of this test.
    let (answered, statuses) = channel();
    let request = format!(
        "POST /v1/reload HTTP/1.1\r\nHost: admin\r\nAuthorization: Bearer {FULL}\r\n\
         Connection: close\r\nContent-Length: 0\r\n\r\n"
    );
    for _ in 0..9 {
        let (answered, request) = (answered.clone(), request.clone());
        let mut stream = TcpStream::connect(observed.admin).expect("the admin service");
        std::thread::spawn(move || {
            stream.write_all(request.as_bytes()).expect("room");
            let mut status = [0; 12];
            // Fails when the server is killed.
            let _ = stream.read_exact(&mut status);
            let _ = answered.send(String::from_utf8_lossy(&status).into_owned());
        });
    }
    for _ in 0..8 {
        assert_eq!(statuses.recv().expect("a response"), "HTTP/1.1 409");
    }
    assert_eq!(observed.call("GET", "/v1/log", READ).status, 200);
    let upgrade = observed.call("POST", "/v1/upgrade", FULL);
    assert_eq!(upgrade.status, 409, "{}", upgrade.text());
    assert!(upgrade.text().contains("reload is in progress"));
    assert!(statuses.try_recv().is_err(), "the first reload still waits");
}

#[test]
fn changes_are_audited_at_every_log_level() {
    let balanced = Balanced::start("");
    let [a, b] = balanced.addresses();
    let level = json!({ "level": "error" }).to_string();
    assert_eq!(
        balanced
            .observed
            .call_with_json("PATCH", "/v1/log", "", &level)
            .status,
        200
    );
    balanced.patch(&a, &json!({ "state": "drain" }));
    balanced.command(&["weight", "app", &b, "7"]);
    balanced.patch(&a, &json!({ "weight": 0 }));
    balanced.observed.call("POST", "/v1/purge?target=all", FULL);
    let audit = |text: &str| {
        let line = balanced.observed.server.wait_for_error_line(text);
        let (_, json) = line.split_once(" audit ").expect("a line of the audit");
        serde_json::from_str::<Value>(json).expect("JSON")
    };
    let drained = audit("\"drain\"");
    assert_eq!(drained["by"], "token from 127.0.0.1");
    assert_eq!(
        drained["request"],
        format!("PATCH /v1/origins/app/servers/{a}")
    );
    assert_eq!(drained["result"], "done");
    assert_eq!(
        (&drained["before"]["state"], &drained["after"]["state"]),
        (&json!("ready"), &json!("drain"))
    );
    let weighted = audit("\"weight\":7");
    let user = own_user();
    assert_eq!(weighted["by"], format!("uid {user}"));
    let refused = audit("weight 0");
    assert_eq!(
        (&refused["result"], &refused["status"]),
        (&json!("refused"), &json!(400))
    );
    assert_eq!(audit("/v1/purge")["result"], "done");
    let scrape = balanced.observed.scrape();
    let operation = "PATCH /v1/origins/{origin}/servers/{address}";
    for (result, count) in [("done", 2.0), ("refused", 1.0)] {
        let labels = [("operation", operation), ("result", result)];
        assert_eq!(scrape.sum("lowroad_admin_changes_total", &labels), count);
    }
}

/// The user of this process.
fn own_user() -> u32 {
    std::fs::metadata("/proc/self").expect("proc").uid()
}

#[test]
fn body_that_arrives_slowly_occupies_no_helper_thread() {
    let balanced = Balanced::start("");
    let [a, _] = balanced.addresses();
    let body = "{\"state\":\"drain\"}";
    // More clients than helper threads, each with half of its body.
    let clients: Vec<UnixStream> = (0..8)
            .map(|_| {
                let mut stream = UnixStream::connect(balanced.observed.socket()).expect("the socket");
                let head = format!(
                    "PATCH /v1/origins/app/servers/{a} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}",
                    body.len(),
                    &body[..5]
                );
                stream.write_all(head.as_bytes()).expect("room");
                stream
            })
            .collect();
    assert_eq!(balanced.server(&a)["state"], "ready");
    for mut stream in clients {
        stream.write_all(&body.as_bytes()[5..]).expect("room");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("a response");
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    }
    assert_eq!(balanced.server(&a)["state"], "drain");
}

/// FastCGI servers that close each connection.
fn closing_servers() -> [String; 2] {
    [(); 2].map(|()| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let address = listener.local_addr().expect("bound").to_string();
        std::thread::spawn(move || listener.incoming().for_each(drop));
        address
    })
}

#[test]
fn fastcgi_servers_have_states() {
    let [only, other] = closing_servers();
    let tables = |settings: &str| {
        format!(
            "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n\
             [[site.route]]\npattern = \"/one/**\"\nfastcgi = \"{only}\"\nscript = \"\"\n{settings}\n\
             [[site.route]]\npattern = \"/two/**\"\nfastcgi = [\"{only}\", \"{other}\"]\nscript = \"\"\n"
        )
    };
    let origin = TestOrigin::with_response(|_| String::new());
    let observed = ObservedServer::with(&tables(""), origin);
    let client = StatusClient::new(PROGRAM, observed.socket());
    let run = |arguments: &[&str]| client.command(&[&["origin"], arguments].concat());
    let status = |path: &str| observed.server.get(path).status;
    let list = run(&["list"]);
    assert!(
        list.contains(&format!("fastcgi: {only}: state ready, ")),
        "{list}"
    );
    assert_eq!(list.lines().count(), 2, "{list}");
    assert_eq!(status("/one/x"), 502);

    // Each route with the server obeys.
    run(&["down", "fastcgi:", &only, "--wait"]);
    assert_eq!(status("/one/x"), 503);
    let line = observed.server.wait_for_error_line("out of service");
    assert!(line.contains("FastCGI"), "{line}");
    assert_eq!(status("/two/x"), 502);
    run(&["down", "fastcgi:", "--all"]);
    assert_eq!(status("/two/x"), 503);
    // Also those of the next configuration.
    observed.configure(&tables("keep_connections = true"));
    assert_eq!(observed.call("POST", "/v1/reload", FULL).status, 200);
    assert_eq!((status("/one/x"), status("/two/x")), (503, 503));
    run(&["ready", "fastcgi:", "--all"]);
    assert_eq!(status("/one/x"), 502);

    let target = format!("/v1/origins/fastcgi:/servers/{only}");
    for (method, target, body) in [
        ("PATCH", &*target, "{\"weight\":2}"),
        (
            "POST",
            "/v1/origins/fastcgi:/servers",
            "{\"address\":\"127.0.0.1:1\"}",
        ),
        ("DELETE", &*target, ""),
    ] {
        let refused = observed.call_with_json(method, target, "", body);
        assert_eq!(refused.status, 409, "{method}: {}", refused.text());
    }
    let unknown = "/v1/origins/fastcgi:/servers/127.0.0.1:1";
    assert_eq!(observed.call("GET", unknown, READ).status, 404);
}

#[test]
fn ejection_names_its_reason_and_the_latest_failure_its_time() {
    let failing = TestOrigin::with_response(|_| {
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_owned()
    });
    let b = origin("b");
    let tables = tables(&[&failing.url(), &b.url()], "");
    let balanced = Balanced {
        observed: ObservedServer::with(&tables, failing),
        b,
    };
    let [a, _] = balanced.addresses();
    wait_until("the ejection", || {
        balanced.observed.server.get("/");
        (balanced.server(&a)["health"] == "ejected").then_some(())
    });
    let line = balanced
        .observed
        .server
        .wait_for_error_line(": ejected for ");
    assert!(line.contains("answered with status 503"), "{line}");
    let server = balanced.server(&a);
    assert!(
        server["latest_failure_s"].as_u64() > Some(1_700_000_000),
        "{server}"
    );
    let shown = balanced.command(&["show", "app"]);
    assert!(shown.contains("answered with status 503 (20"), "{shown}");
}
