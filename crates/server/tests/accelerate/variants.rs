//! Stored responses if the response or its route depends on fields that proxies set.

use std::net::{IpAddr, Ipv4Addr};

use lowroad_testkit::origin::{OriginRequest, TestOrigin};
use lowroad_testkit::{TempFolder, TestClient, TestServer};

use crate::front::{PROGRAM, response};

const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

fn get(server: &TestServer, from: IpAddr, fields: &str) -> String {
    TestClient::connect_from(from, server.address())
        .get("/page", fields)
        .text()
}

/// A site that trusts one proxy, with these routes.
fn start(routes: &str) -> TestServer {
    let config = format!(
        "[server]\nworkers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\ntrusted_proxies = \"{PROXY}\"\n{routes}"
    );
    TestServer::run(PROGRAM, &TempFolder::new(), &config)
}

fn route(origin: &TestOrigin, lines: &str) -> String {
    let url = origin.url();
    format!("[[site.route]]\npattern = \"/**\"\norigin = \"{url}\"\n{lines}\n")
}

fn named(name: &'static str) -> TestOrigin {
    TestOrigin::with_response(move |_| response("200 OK", "Cache-Control: max-age=60\r\n", name))
}

#[test]
fn stored_response_of_one_route_does_not_answer_another() {
    for report in ["X-Forwarded-Proto: https", "X-Scheme: https"] {
        let (secure, plain) = (named("secure"), named("plain"));
        let condition = format!("header = \"{report}\"");
        let server = start(&(route(&secure, &condition) + &route(&plain, "")));
        let mut client = TestClient::connect_from(STRANGER, server.address());
        client.send(format!(
            "GET /page HTTP/1.1\r\nHost: test\r\n{report}\r\n\r\n"
        ));
        assert_eq!(client.response().text(), "secure", "{report}");
        assert_eq!(get(&server, STRANGER, ""), "plain", "{report}");
    }
}

#[test]
fn host_of_absolute_target_selects_the_route() {
    let (secure, plain) = (named("secure"), named("plain"));
    let condition = "header = \"Host: b\"";
    let server = start(&(route(&secure, condition) + &route(&plain, "")));
    for (target, host, expected) in [
        ("http://test/page", "b", "plain"),
        ("http://b/page", "test", "secure"),
        ("http://test/page", "test", "plain"),
    ] {
        let mut client = TestClient::connect_from(STRANGER, server.address());
        client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.response().text(), expected, "{target} {host}");
    }
}

#[test]
fn response_that_varies_by_forwarded_port_is_not_stored() {
    let origin = TestOrigin::with_response(|request: &OriginRequest| {
        let fields = "Cache-Control: max-age=60\r\nVary: X-Forwarded-Port\r\n";
        response(
            "200 OK",
            fields,
            request.field("x-forwarded-port").unwrap_or("-"),
        )
    });
    let server = start(&route(&origin, ""));
    let report = |port: &str| {
        format!(
            "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Host: test:9\r\nX-Forwarded-Port: {port}\r\n"
        )
    };
    assert_eq!(get(&server, PROXY, &report("7")), "7");
    assert_eq!(get(&server, PROXY, &report("9")), "9");
    assert_eq!(get(&server, PROXY, "X-Forwarded-Port: 80\r\n"), "80");
    assert_eq!(get(&server, STRANGER, ""), "-");
}
