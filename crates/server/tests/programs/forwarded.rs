//! Forwarding fields are trusted only from trusted proxies, by programs, origins, redirects and the log alike.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use lowroad_testkit::origin::{OriginRequest, TestOrigin};
use lowroad_testkit::{TempFolder, TestClient, TestServer, wait_until};

use crate::host::PROGRAM;

/// A trusted proxy's fields.
const REPORTS: &str = "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\n\
    X-Forwarded-Host: shop.example\r\nX-Forwarded-Port: 8443\r\nX-Forwarded-User: eve\r\n\
    X-Original-URL: /admin\r\nForwarded: for=192.0.2.8\r\n";

/// An origin that returns the forwarding fields it got, in storable responses.
fn origin() -> TestOrigin {
    TestOrigin::with_response(|asked: &OriginRequest| {
        let names = ["for", "proto", "host", "port", "user"];
        let reports = names.map(|name| {
            let value = asked.field(&format!("x-forwarded-{name}"));
            value.unwrap_or("-").to_owned()
        });
        let others = ["x-original-url", "forwarded"].map(|name| asked.field(name).is_some());
        let body = format!("{} {others:?}", reports.join(" "));
        let len = body.len();
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {len}\r\n\r\n{body}"
        )
    })
}

/// A server that trusts 127.0.0.1, with a script that prints its environment, a page, and an origin.
fn start(folder: &TempFolder, origin: &TestOrigin) -> TestServer {
    let script = folder.file(
        "root/env.cgi",
        "#!/bin/sh\nall=$(env)\n\
         printf 'Content-Type: text/plain\\nContent-Length: %d\\n\\n%s' ${#all} \"$all\"\n",
    );
    fs::set_permissions(script, Permissions::from_mode(0o755)).expect("a mode");
    folder.file(
        "root/fields.lrp",
        "{{ request.host }} {{ request.peer }} {{ request.fields['x-forwarded-proto'] or '-' }} \
         {{ request.fields['x-forwarded-user'] or '-' }} {{ request.fields['host'] }}",
    );
    let path = folder.path().display();
    let text = format!(
        "[server]\nworkers = 1\n[log]\naccess = \"{path}/access.log\"\nformat = \"extended\"\n\
         [[database]]\nname = \"db\"\nurl = \"sqlite:{path}/db\"\n\
         [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{path}/root\"\ntrusted_proxies = \"127.0.0.1\"\n\
         [[site.route]]\npattern = \"*.cgi\"\ncgi = true\n\
         [[site.route]]\npattern = \"*.lrp\"\npages = \"db\"\n\
         [[site.route]]\npattern = \"/**\"\norigin = \"{}\"\n",
        origin.url()
    );
    TestServer::run(PROGRAM, folder, &text)
}

/// A client with an untrusted address.
fn untrusted_client(server: &TestServer) -> TestClient {
    TestClient::connect_from([127, 0, 0, 2].into(), server.address())
}

#[test]
fn trusted_proxy_fields_reach_programs() {
    let (folder, origin) = (TempFolder::new(), origin());
    let server = start(&folder, &origin);
    let mut proxy = server.connect();
    let environment = proxy.get("/env.cgi", REPORTS).text();
    for variable in [
        "REMOTE_ADDR=192.0.2.7",
        "REQUEST_SCHEME=https",
        "HTTPS=on",
        "SERVER_PORT=8443",
        "SERVER_NAME=shop.example",
        "HTTP_HOST=shop.example",
        "HTTP_X_FORWARDED_FOR=192.0.2.7",
        "HTTP_X_FORWARDED_PROTO=https",
        "HTTP_X_FORWARDED_HOST=shop.example",
        "HTTP_X_FORWARDED_PORT=8443",
        "HTTP_X_FORWARDED_USER=eve",
    ] {
        assert!(
            environment.lines().any(|line| line == variable),
            "{variable}: {environment}"
        );
    }
    assert!(!environment.contains("ORIGINAL_URL"), "{environment}");
    assert!(!environment.contains("HTTP_FORWARDED"), "{environment}");
    let fields = proxy.get("/fields.lrp", REPORTS).text();
    assert_eq!(fields, "shop.example 192.0.2.7 https eve shop.example");
    let told = "192.0.2.7 https shop.example 8443 eve [false, false]";
    assert_eq!(proxy.get("/app", REPORTS).text(), told);
    let log = wait_until("the log", || {
        let log = fs::read_to_string(folder.path().join("access.log")).ok()?;
        log.contains("/app").then_some(log)
    });
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines.iter().all(|line| line.contains("192.0.2.7")), "{log}");
    assert!(
        lines.iter().all(|line| line.contains("shop.example")),
        "{log}"
    );
}

#[test]
fn untrusted_forwarding_fields_are_removed() {
    let (folder, origin) = (TempFolder::new(), origin());
    let server = start(&folder, &origin);
    let port = server.address().port();
    let mut client = untrusted_client(&server);
    let environment = client.get("/env.cgi", REPORTS).text();
    for name in ["HTTP_X_", "HTTP_FORWARDED", "HTTPS=", "shop.example", "eve"] {
        assert!(!environment.contains(name), "{name}: {environment}");
    }
    for variable in [
        "REQUEST_SCHEME=http".to_owned(),
        format!("SERVER_PORT={port}"),
    ] {
        assert!(
            environment.lines().any(|line| line == variable),
            "{variable}: {environment}"
        );
    }
    assert_eq!(
        client.get("/fields.lrp", REPORTS).text(),
        "test 127.0.0.2 - - test"
    );
    let told = "127.0.0.2 http test - - [false, false]";
    assert_eq!(client.get("/app", REPORTS).text(), told);
}

#[test]
fn stored_responses_are_keyed_by_scheme_host_and_port() {
    let (folder, origin) = (TempFolder::new(), origin());
    let server = start(&folder, &origin);
    let mut proxy = server.connect();
    let report = |proto: &str, host: &str, port: &str| {
        format!(
            "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: {proto}\r\nX-Forwarded-Host: {host}\r\n\
             X-Forwarded-Port: {port}\r\n"
        )
    };
    let requests = [
        report("https", "a.example", "443"),
        report("http", "a.example", "80"),
        report("https", "b.example", "443"),
        report("https", "a.example", "8443"),
    ];
    for (number, fields) in requests.iter().enumerate() {
        let first = proxy.get("/stored", fields).text();
        assert_eq!(origin.count(), number + 1, "{fields}");
        assert_eq!(proxy.get("/stored", fields).text(), first);
        assert_eq!(origin.count(), number + 1, "{fields}");
    }
    // An unsafe request through one scheme invalidates the stored responses of all schemes of the authority.
    let body = format!(
        "POST /stored HTTP/1.1\r\nHost: test\r\n{}Content-Length: 0\r\n\r\n",
        requests[0]
    );
    proxy.send(body);
    assert_eq!(proxy.response().status, 200);
    let count = origin.count();
    proxy.get("/stored", &requests[1]);
    assert_eq!(origin.count(), count + 1);
    proxy.get("/stored", &requests[2]);
    assert_eq!(origin.count(), count + 1);
}
