//! Proxies that report their clients by the PROXY protocol.

use std::net::IpAddr;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, TestClient, TestServer, wait_until};

use crate::front::{PROGRAM, TestAccelerator, response};

const HEADER: &str = "PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\r\n";

/// An accelerator with an origin that answers with the client's address.
fn front_with_client_address(more: &[&str]) -> TestAccelerator {
    let name = |request: &lowroad_testkit::origin::OriginRequest| {
        let named = request.field("x-forwarded-for").unwrap_or_default();
        response("200 OK", "", named)
    };
    TestAccelerator::with_arguments(name, &[&["--proxy-protocol", "127.0.0.1"], more].concat())
}

#[test]
fn proxy_header_determines_the_client() {
    let front = front_with_client_address(&["--log", "--purge-from", "192.0.2.7"]);
    let mut client = front.connect();
    client.send(HEADER);
    assert_eq!(client.get("/a", "").text(), "192.0.2.7");
    assert_eq!(
        client.get("/b", "X-Forwarded-For: 1.2.3.4\r\n").text(),
        "192.0.2.7"
    );
    client.send("PURGE /a HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(client.response().status, 200);
    let line = front.server.wait_for_line("/a");
    assert!(line.starts_with("192.0.2.7 "), "{line}");
}

#[test]
fn trusted_proxy_reports_scheme_in_addition_to_proxy_header() {
    let origin = TestOrigin::with_response(|request| {
        let field = |name: &str| request.field(name).unwrap_or("-").to_owned();
        let fields = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-port"];
        response("200 OK", "", &fields.map(field).join(" "))
    });
    let folder = TempFolder::new();
    let config = format!(
        "[server]\nworkers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\nproxy_protocol = \"127.0.0.1\"\n\
         trusted_proxies = \"127.0.0.1\"\n[[site.route]]\npattern = \"/**\"\norigin = \"{}\"\n",
        origin.url()
    );
    let server = TestServer::run(PROGRAM, &folder, &config);
    let fields =
        "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 443\r\n";
    let mut client = server.connect();
    client.send(HEADER);
    assert_eq!(client.get("/", fields).text(), "192.0.2.7 https 443");
    // This client connects without the proxy.
    let other = IpAddr::from([127, 0, 0, 2]);
    let mut client = TestClient::connect_from(other, server.address());
    assert_eq!(client.get("/", fields).text(), "127.0.0.2 http -");
}

/// A user's page never reaches another client, even if that client sends the fields of the proxy with the user's name.
#[test]
fn forwarded_fields_of_clients_do_not_select_stored_responses() {
    for name in ["X-Forwarded-User", "X-Forwarded-For"] {
        let origin = TestOrigin::with_response(move |request| {
            let fields = format!("Cache-Control: max-age=60\r\nVary: {name}\r\n");
            response("200 OK", &fields, request.field(name).unwrap_or("nobody"))
        });
        let folder = TempFolder::new();
        let config = format!(
            "[server]\nworkers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\ntrusted_proxies = \"127.0.0.1\"\n\
             [[site.route]]\npattern = \"/**\"\norigin = \"{}\"\n",
            origin.url()
        );
        let server = TestServer::run(PROGRAM, &folder, &config);
        let other = IpAddr::from([127, 0, 0, 2]);
        let report = "X-Forwarded-User: alice\r\nX-Forwarded-For: 192.0.2.7\r\n";
        let get = |path: &str, is_trusted: bool| {
            let mut client = match is_trusted {
                true => server.connect(),
                false => TestClient::connect_from(other, server.address()),
            };
            client.get(path, report).text()
        };
        let (reported, forged) = match name {
            "X-Forwarded-User" => ("alice", "nobody"),
            _ => ("192.0.2.7", "127.0.0.2"),
        };
        // The stored page was neither sent nor replaced.
        assert_eq!(
            (get("/a", true), get("/a", false)),
            (reported.into(), forged.into())
        );
        assert_eq!(
            (get("/b", false), get("/b", true)),
            (forged.into(), reported.into())
        );
    }
}

#[test]
fn proxy_header_and_request_arrive_together_or_in_single_bytes() {
    let front = front_with_client_address(&[]);
    let mut client = front.connect();
    client.send(format!("{HEADER}GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_eq!(client.response().text(), "192.0.2.7");
    let mut client = front.connect();
    for byte in format!("{HEADER}GET / HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes() {
        client.send([*byte]);
    }
    assert_eq!(client.response().text(), "192.0.2.7");
}

#[test]
fn connection_without_proxy_header_is_closed_counted_and_logged() {
    let front = front_with_client_address(&[]);
    let mut client = front.connect();
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    client.wait_for_close();
    assert_eq!(client.received, b"");
    front.server.wait_for_error_line(
        "connection from 127.0.0.1 closed: the connection does not begin with a PROXY header",
    );
    wait_until("the counter", || {
        let status = front.run_command(&["status"]);
        let line = status
            .lines()
            .find(|line| line.contains("proxy_headers_refused"))?;
        line.ends_with(" 1").then_some(())
    });
    assert_eq!(front.origin.count(), 0);
}

#[test]
fn proxy_header_of_other_clients_is_refused() {
    let front = front_with_client_address(&[]);
    let other = IpAddr::from([127, 0, 0, 2]);
    let connect = || TestClient::connect_from(other, front.server.address());
    let mut client = connect();
    client.send(format!("{HEADER}GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_eq!(client.response().status, 400);
    assert_eq!(connect().get("/", "").text(), "127.0.0.2");
}

#[test]
fn accelerator_sends_proxy_header_to_next_accelerator() {
    let behind = TestOrigin::with_response(|request| {
        let named = request.field("x-forwarded-for").unwrap_or_default();
        response("200 OK", "", named)
    });
    let arguments = ["--listen", "127.0.0.1:0", "--workers", "1"];
    let url = behind.url();
    let proxied = ["accelerate", &url, "--proxy-protocol", "127.0.0.0/8"];
    let second = TestServer::start(PROGRAM, &[&proxied[..], &arguments].concat());
    for version in ["v1", "v2"] {
        let folder = TempFolder::new();
        let config = format!(
            "[server]\nworkers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\nproxy_protocol = \"127.0.0.1\"\n\
             [[site.route]]\npattern = \"/**\"\norigin = \"next\"\n[[origin]]\nname = \"next\"\n\
             servers = \"http://{}\"\nproxy_protocol = \"{version}\"\n",
            second.address()
        );
        let first = TestServer::run(PROGRAM, &folder, &config);
        let mut client = first.connect();
        client.send("PROXY TCP6 2001:db8::7 2001:db8::1 1 2\r\n");
        assert_eq!(client.get("/", "").text(), "2001:db8::7", "{version}");
    }
}

#[test]
fn softirq_level_with_proxy_protocol_is_refused() {
    let mut command = std::process::Command::new(PROGRAM);
    command.args([
        "serve",
        "--softirq",
        "auto",
        "--proxy-protocol",
        "127.0.0.1",
    ]);
    let output = command.output().expect("the program starts");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("reads no PROXY header"), "{said}");
}

#[test]
fn x_forwarded_fields_of_trusted_proxies_are_used() {
    let report = |request: &lowroad_testkit::origin::OriginRequest| {
        let names = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"];
        let fields = names.map(|name| request.field(name).unwrap_or_default());
        response("200 OK", "", &fields.join(" "))
    };
    let fields =
        "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: a.example\r\n";
    let front = TestAccelerator::with_arguments(report, &["--trusted-proxies", "127.0.0.0/8"]);
    assert_eq!(front.get("/a", fields).text(), "192.0.2.7 https a.example");
    let front = TestAccelerator::with_arguments(report, &["--trusted-proxies", "192.0.2.0/24"]);
    let text = front.get("/a", fields).text();
    assert!(text.starts_with("127.0.0.1 http "), "{text}");
}
