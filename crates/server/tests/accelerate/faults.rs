//! Misbehaving origins: the responses that clients get, and that no wrong response is stored.

use std::io::{Read, Write};
use std::net::IpAddr;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TestClient, TestServer, wait_until};

use crate::applications::free_port;
use crate::front::{PROGRAM, TestAccelerator, response};

/// The status that the client gets if an origin sends these bytes and closes the connection.
fn status(said: &'static str) -> u16 {
    let front = TestAccelerator::new(TestOrigin::start(move |_, stream| {
        let _ = stream.write_all(said.as_bytes());
        false
    }));
    front.get("/", "").status
}

#[test]
fn malformed_response_is_502() {
    for said in [
        "",
        "garbage\r\n\r\n",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA b: c\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: a\rB: b\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ] {
        assert_eq!(status(said), 502, "{said:?}");
    }
}

/// Whether a client with `Connection: close` can send more bytes after the response without a reset.
fn survives_late_bytes(front: &TestAccelerator) -> bool {
    let mut client = front.connect();
    client.send("GET /long HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    assert!(client.wait_for_close(), "it ends in order");
    // Between sockets of one machine, a reset arrives before the first call returns.
    let mut stream = client.stream();
    stream.write_all(b"late").is_ok() && stream.write_all(b"later").is_ok()
}

#[test]
fn late_request_bytes_do_not_reset_the_response() {
    const TRIES: usize = 20;
    for fields in [
        "Cache-Control: no-store\r\n",
        "Cache-Control: max-age=60\r\n",
    ] {
        let body = "x".repeat(1 << 20);
        let front =
            TestAccelerator::with_arguments(move |_| response("200 OK", fields, &body), &[]);
        // The server lingers for 2 s, which a busy machine may exceed, so there are several attempts.
        assert!((0..TRIES).any(|_| survives_late_bytes(&front)), "{fields}");
    }
}

#[test]
fn incomplete_response_is_not_completed_and_not_stored() {
    let front = TestAccelerator::new(TestOrigin::start(|request, stream| {
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 100000\r\n\r\n",
        );
        let len = if request.number == 0 { 70_000 } else { 100_000 };
        let _ = stream.write_all(&vec![b'x'; len]);
        request.number > 0
    }));
    let mut client = front.connect();
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(client.whole_response().is_none(), "it is visibly cut");
    assert_eq!(front.get("/", "").body.len(), 100_000);
    assert_eq!(front.get("/", "").body.len(), 100_000);
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn post_is_not_retried_on_closed_connection() {
    let front = TestAccelerator::new(TestOrigin::start(|request, stream| {
        if request.number == 0 {
            return stream
                .write_all(response("200 OK", "", "ok").as_bytes())
                .is_ok();
        }
        // The origin reads the second request on the persistent connection and closes the connection without a
        // response.
        false
    }));
    let mut client = front.connect();
    assert_eq!(client.get("/", "").text(), "ok");
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(client.response().status, 502);
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn idempotent_request_is_retried_with_body_and_trailers() {
    const LEN: usize = 64 << 10;
    let body = |len: usize| format!("Content-Length: {len}\r\n\r\n{}", "x".repeat(len));
    let chunks = "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n";
    for (method, rest, status) in [
        ("PUT", body(1), 200),
        ("PUT", body(LEN), 200),
        ("DELETE", body(3), 200),
        ("GET", body(3), 200),
        ("PROPFIND", body(3), 200),
        ("PUT", chunks.to_string(), 200),
        ("PUT", body(LEN + 1), 502),
        ("POST", body(3), 502),
        ("PATCH", body(3), 502),
    ] {
        let front = TestAccelerator::new(TestOrigin::start(|request, stream| {
            // Closes the persistent connection at the second request.
            request.number != 1
                && stream
                    .write_all(response("200 OK", "", "ok").as_bytes())
                    .is_ok()
        }));
        let mut client = front.connect();
        assert_eq!(client.get("/", "").text(), "ok");
        client.send(format!("{method} / HTTP/1.1\r\nHost: h\r\n{rest}"));
        let name = format!("{method} with {} bytes", rest.len());
        assert_eq!(client.response().status, status, "{name}");
        let requests = front.origin.requests();
        assert_eq!(requests.len(), if status == 200 { 3 } else { 2 }, "{name}");
        let (first, last) = (&requests[1], requests.last().expect("one"));
        assert_eq!(
            (&first.head, &first.body, &first.trailers),
            (&last.head, &last.body, &last.trailers),
            "{name}"
        );
    }
}

#[test]
fn request_with_body_above_replay_limit_is_not_retried() {
    let chunked = |len: usize| {
        let body = "x".repeat(len);
        format!("Transfer-Encoding: chunked\r\n\r\n{len:x}\r\n{body}\r\n0\r\n\r\n")
    };
    let sized = |len: usize| format!("Content-Length: {len}\r\n\r\n{}", "x".repeat(len));
    for (limit, method, rest, status, unrepeated) in [
        ("4K", "PUT", sized(4096), 200, 0),
        ("4K", "PUT", chunked(4096), 200, 0),
        ("4K", "PUT", sized(4097), 502, 1),
        ("4K", "PUT", chunked(4097), 502, 1),
        ("0", "DELETE", sized(1), 502, 1),
        ("0", "DELETE", "\r\n".into(), 200, 0),
        ("1M", "PUT", sized(1 << 20), 200, 0),
        // A POST is not retried, so its body does not matter.
        ("4K", "POST", sized(4097), 502, 0),
    ] {
        let origin = TestOrigin::start(|request, stream| {
            // Closes the persistent connection at the second request.
            request.number != 1
                && stream
                    .write_all(response("200 OK", "", "ok").as_bytes())
                    .is_ok()
        });
        let front =
            TestAccelerator::with_route_settings(origin, &format!("retry_body_max = \"{limit}\""));
        let mut client = front.connect();
        assert_eq!(client.get("/", "").text(), "ok");
        client.send(format!("{method} / HTTP/1.1\r\nHost: h\r\n{rest}"));
        let name = format!("{limit}: {method} with {} bytes", rest.len());
        assert_eq!(client.response().status, status, "{name}");
        let counted = format!(", {unrepeated} requests not retried (body too large)");
        let said = front.run_command(&["status"]);
        assert!(said.contains(&counted), "{name}: {said}");
    }
}

#[test]
fn unreachable_origin_is_502() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let server = TestServer::start(PROGRAM, &["accelerate", &url, "--listen", "127.0.0.1:0"]);
    for _ in 0..5 {
        assert_eq!(server.get("/").status, 502);
    }
    server.wait_for_error_line("502 at /: ");
    server.wait_for_error_line(&format!("502 of origin {url}, and 4 more"));
}

#[test]
fn each_cause_of_502_is_logged() {
    let front = TestAccelerator::new(TestOrigin::start(|request, stream| {
        let said = ["garbage\r\n\r\n", "HTTP/1.1 200 OK\r\nA b: c\r\n\r\n"];
        let _ = stream.write_all(said[request.number % 2].as_bytes());
        false
    }));
    for _ in 0..4 {
        assert_eq!(front.get("/", "").status, 502);
    }
    for _ in 0..2 {
        front.server.wait_for_error_line("502 at /: ");
    }
    for _ in 0..2 {
        front.server.wait_for_error_line(", and 1 more");
    }
}

#[test]
fn request_is_not_retried_after_first_response_byte() {
    for said in ["garbage\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-"] {
        let front = TestAccelerator::new(TestOrigin::start(move |request, stream| {
            if request.number == 0 {
                let said = response("200 OK", "", "ok");
                return stream.write_all(said.as_bytes()).is_ok();
            }
            let _ = stream.write_all(said.as_bytes());
            false
        }));
        let mut client = front.connect();
        assert_eq!(client.get("/", "").text(), "ok");
        assert_eq!(client.get("/", "").status, 502, "{said:?}");
        assert_eq!(front.origin.count(), 2, "{said:?}");
    }
}

#[test]
fn client_share_limits_unanswered_requests_of_one_client() {
    let origin = TestOrigin::start(|request, stream| {
        if request.target.starts_with("/silent") {
            let _ = stream.read(&mut [0]);
            return false;
        }
        stream
            .write_all(response("200 OK", "", "ok").as_bytes())
            .is_ok()
    });
    let front = TestAccelerator::with_route_settings(origin, "concurrency = 8");
    let silent = |number: usize| {
        let mut client = front.connect();
        client.send(format!("GET /silent/{number} HTTP/1.1\r\nHost: h\r\n\r\n"));
        client
    };
    let _open: Vec<TestClient> = (0..6)
        .map(|number| {
            let client = silent(number);
            wait_until("the request", || {
                (front.origin.count() > number).then_some(())
            });
            client
        })
        .collect();
    assert_eq!(silent(6).response().status, 503);
    let other = IpAddr::from([127, 0, 0, 2]);
    let mut client = TestClient::connect_from(other, front.server.address());
    assert_eq!(client.get("/", "").text(), "ok");
    let line = front.server.wait_for_error_line("client_share");
    assert!(
        line.contains("the client uses its share of the 8 requests"),
        "{line}"
    );
    assert!(
        front
            .run_command(&["status"])
            .contains("1 refused by concurrency")
    );
}
