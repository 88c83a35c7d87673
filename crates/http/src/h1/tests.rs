//! Tests of `H1Server` and `H1Client`: requests, responses, bodies, upgrades, and the repair of response heads.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::date;
use crate::fields::FieldLines;
use crate::head_writer::HeadWriter;
use crate::limits::RequestLimits;
use crate::method::Method;
use crate::protocol::{ServerProtocol, StreamId};
use crate::refusal::RequestRefusal;
use crate::status::StatusCode;
use alloc::format;

/// HTTP/1 ignores the stream identifier.
const STREAM: StreamId = StreamId(1);

/// A server with its unconsumed input and its output.
#[derive(Default)]
struct TestServer {
    connection: H1Server,
    received: Vec<u8>,
    sent: Vec<u8>,
}

impl TestServer {
    /// Receives bytes; returns the events as text.
    fn receive(&mut self, bytes: &str) -> Vec<String> {
        self.received.extend_from_slice(bytes.as_bytes());
        let mut events = Vec::new();
        loop {
            let (limits, mut head_slot) = (RequestLimits::default(), None);
            let (used, event) = match self
                .connection
                .next(&self.received, &limits, &mut head_slot)
            {
                Ok(step) => (step.used, step.event.as_ref().map(describe_server_event)),
                Err(refusal) => (
                    self.received.len(),
                    Some(format!("refused: {}", refusal.as_str())),
                ),
            };
            self.received.drain(..used);
            let is_over = event.is_none() && used == 0;
            events.extend(event);
            if is_over || self.received.is_empty() && self.connection.is_finished() {
                return events;
            }
        }
    }

    fn take_output(&mut self) -> String {
        let sent = core::mem::take(&mut self.sent);
        let date = String::from_utf8_lossy(&DATE).into_owned();
        String::from_utf8(sent)
            .expect("text")
            .replace(&format!("Date: {date}\r\n"), "")
    }

    fn respond(&mut self, status: StatusCode, body: &str) -> String {
        let len = BodyLen::Known(body.len() as u64);
        if self
            .connection
            .respond(status, b"", len, &DATE, &mut self.sent)
        {
            self.send_data(body);
        }
        self.connection
            .end(b"", &mut self.sent)
            .expect("all was sent");
        self.take_output()
    }

    fn send_data(&mut self, body: &str) {
        let should_send = self.connection.data(body.len() as u64, &mut self.sent);
        if should_send.expect("no more than announced") {
            self.sent.extend_from_slice(body.as_bytes());
            self.sent.extend_from_slice(self.connection.data_end());
        }
    }
}

const DATE: [u8; 29] = *b"Sun, 06 Nov 1994 08:49:37 GMT";

fn describe_server_event(event: &H1ServerEvent<'_, '_>) -> String {
    match event {
        H1ServerEvent::Request(head) => format!("request {}", String::from_utf8_lossy(head.line())),
        H1ServerEvent::Data(data) => format!("data {}", String::from_utf8_lossy(data)),
        H1ServerEvent::End { trailers } => match trailers.clone().count() {
            0 => "end".into(),
            count => format!("end with {count} trailers"),
        },
    }
}

#[test]
fn date_constant_is_a_valid_http_date() {
    assert_eq!(date::format(784_111_777), DATE);
}

#[test]
fn h1_server_is_at_most_24_bytes() {
    // Tens of thousands of idle connections may be open.
    assert!(size_of::<H1Server>() <= 24, "{}", size_of::<H1Server>());
}

#[test]
fn request_gets_its_response() {
    let mut server = TestServer::default();
    assert_eq!(server.receive("GET /a HTTP/1.1\r\nHost: h\r\n"), [""; 0]);
    assert!(server.connection.is_partial());
    assert_eq!(server.receive("\r\n"), ["request GET /a HTTP/1.1", "end"]);
    let response = server.respond(StatusCode::OK, "hello");
    assert_eq!(
        response,
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    );
    assert!(server.connection.is_idle() && !server.connection.is_finished());
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    // RFC 9112 §9.3.2: responses are in the order of the requests.
    let mut server = TestServer::default();
    let two = "GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nX";
    assert_eq!(server.receive(two), ["request GET /a HTTP/1.1", "end"]);
    assert_eq!(server.receive(""), [""; 0]);
    server.respond(StatusCode::OK, "");
    assert_eq!(server.receive(""), ["request GET /b HTTP/1.1", "end"]);
    let response = server.respond(StatusCode::NOT_FOUND, "no");
    assert_eq!(
        response,
        "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
    );
    // Input after the end is discarded.
    assert_eq!(
        server.receive("GET /c HTTP/1.1\r\nHost: h\r\n\r\n"),
        [""; 0]
    );
    assert!(server.connection.is_finished() && server.received.is_empty());
}

#[test]
fn request_body_is_returned_in_parts() {
    let mut server = TestServer::default();
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n";
    assert_eq!(
        server.receive(&format!("{head}ab")),
        ["request POST / HTTP/1.1", "data ab"]
    );
    assert_eq!(server.receive("cdefGET"), ["data cdef", "end"]);
    server.respond(StatusCode::NO_CONTENT, "");
    assert_eq!(server.received, b"GET");

    let mut server = TestServer::default();
    let head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(server.receive(head), ["request POST / HTTP/1.1"]);
    assert_eq!(server.receive("3\r\nabc\r\n1"), ["data abc"]);
    assert_eq!(server.receive("\r\nd\r\n0\r\nA: b"), ["data d"]);
    assert_eq!(server.receive("\r\n\r\n"), ["end with 1 trailers"]);
}

#[test]
fn expect_100_continue_is_answered_once() {
    let head = "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n";
    let mut server = TestServer::default();
    server.receive(head);
    assert!(server.connection.expects_continue(STREAM));
    server.connection.interim(
        STREAM,
        StatusCode::CONTINUE,
        FieldLines::NONE,
        &mut server.sent,
    );
    assert_eq!(server.take_output(), "HTTP/1.1 100 Continue\r\n\r\n");
    assert!(!server.connection.expects_continue(STREAM));
    assert_eq!(server.receive("x"), ["data x", "end"]);
    // A client that sends a part of the body does not wait for 100 (Continue).
    let mut server = TestServer::default();
    server.receive(&format!("{head}x"));
    assert!(!server.connection.expects_continue(STREAM));
    // Nor does a client that has received its response.
    let mut server = TestServer::default();
    server.receive(head);
    server.connection.discard_body(STREAM, &mut server.sent);
    let response = server.respond(StatusCode::CONTENT_TOO_LARGE, "");
    assert!(
        response.ends_with("\r\nConnection: close\r\n\r\n"),
        "{response}"
    );
    assert!(server.connection.is_finished() && !server.connection.expects_continue(STREAM));
}

#[test]
fn interim_response_is_not_sent_to_http_10_client() {
    // RFC 9110 §15.2.
    let mut server = TestServer::default();
    server.receive("GET / HTTP/1.0\r\n\r\n");
    server.connection.interim(
        STREAM,
        StatusCode::CONTINUE,
        FieldLines::new(b"Link: </a>\r\n"),
        &mut server.sent,
    );
    assert_eq!(server.take_output(), "");
}

#[test]
fn response_of_unknown_length_is_chunked_or_ends_by_close() {
    let mut server = TestServer::default();
    server.receive("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let len = BodyLen::Unknown;
    assert!(
        server
            .connection
            .respond(StatusCode::OK, b"A: b\r\n", len, &DATE, &mut server.sent)
    );
    server.send_data("0123456789abcdefg");
    server.send_data("h");
    server
        .connection
        .end(b"C: d\r\n", &mut server.sent)
        .expect("whole");
    assert_eq!(
        server.take_output(),
        "HTTP/1.1 200 OK\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n\
         11\r\n0123456789abcdefg\r\n1\r\nh\r\n0\r\nC: d\r\n\r\n"
    );
    // An HTTP/1.0 client detects the end of the body by the end of the connection.
    let mut server = TestServer::default();
    server.receive("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert!(
        server
            .connection
            .respond(StatusCode::OK, b"", len, &DATE, &mut server.sent)
    );
    server.send_data("abc");
    server.connection.end(b"", &mut server.sent).expect("whole");
    assert_eq!(
        server.take_output(),
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc"
    );
    assert!(server.connection.is_finished());
}

#[test]
fn responses_to_head_and_204_304_have_no_body() {
    // RFC 9112 §6.3: a body here would be taken for the next response.
    for (method, status, response) in [
        (
            "HEAD",
            StatusCode::OK,
            "200 OK\r\nContent-Length: 3\r\n\r\n",
        ),
        ("GET", StatusCode::NO_CONTENT, "204 No Content\r\n\r\n"),
        ("GET", StatusCode::NOT_MODIFIED, "304 Not Modified\r\n\r\n"),
    ] {
        let mut server = TestServer::default();
        server.receive(&format!("{method} / HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_eq!(
            server.respond(status, "abc"),
            format!("HTTP/1.1 {response}")
        );
    }
}

#[test]
fn response_without_body_has_content_length_0() {
    let mut server = TestServer::default();
    server.receive("POST / HTTP/1.1\r\nHost: h\r\n\r\n");
    let none = BodyLen::None;
    assert!(
        !server
            .connection
            .respond(StatusCode::CREATED, b"", none, &DATE, &mut server.sent)
    );
    server
        .connection
        .end(b"", &mut server.sent)
        .expect("nothing was announced");
    assert_eq!(
        server.take_output(),
        "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
    );
}

#[test]
fn body_length_mismatch_is_an_error() {
    // After a body of the wrong length the client could not find the next response.
    let mut server = TestServer::default();
    server.receive("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let len = BodyLen::Known(2);
    assert!(
        server
            .connection
            .respond(StatusCode::OK, b"", len, &DATE, &mut server.sent)
    );
    assert_eq!(
        server.connection.data(3, &mut server.sent),
        Err(BodyLengthMismatch)
    );
    let mut server = TestServer::default();
    server.receive("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    server
        .connection
        .respond(StatusCode::OK, b"", len, &DATE, &mut server.sent);
    server.send_data("a");
    assert_eq!(
        server.connection.end(b"", &mut server.sent),
        Err(BodyLengthMismatch)
    );
}

#[test]
fn malformed_request_is_answered_then_connection_closes() {
    // After malformed framing the start of the next request is unknown.
    let mut server = TestServer::default();
    assert_eq!(
        server.receive("GET / HTTP/9.9\r\n\r\n"),
        [format!("refused: {}", RequestRefusal::Version.as_str())]
    );
    let response = server.respond(StatusCode::VERSION_NOT_SUPPORTED, "sorry");
    assert!(
        response.ends_with("Connection: close\r\n\r\nsorry"),
        "{response}"
    );
    assert!(server.connection.is_finished());
    // Framing may also be malformed in the middle of a body.
    let mut server = TestServer::default();
    let events =
        server.receive("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nx");
    assert_eq!(
        events[1],
        format!("refused: {}", RequestRefusal::ChunkSize.as_str())
    );
    assert!(
        server
            .respond(StatusCode::BAD_REQUEST, "")
            .contains("close")
    );
}

#[test]
fn discarded_body_closes_the_connection() {
    // RFC 9112 §9.3: the unread rest of the body would be parsed as the next request.
    let mut server = TestServer::default();
    server.receive("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nab");
    server.connection.discard_body(STREAM, &mut server.sent);
    let response = server.respond(StatusCode::FORBIDDEN, "");
    assert!(response.contains("Connection: close"), "{response}");
    assert_eq!(server.receive("cdef"), [""; 0]);
    assert!(server.connection.is_finished());
}

#[test]
fn short_body_remainder_is_drained_after_early_response() {
    // A long remainder, or one that may never arrive, is not drained.
    let post = |fields: &str| format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n");
    for (head, drains) in [
        (post("Content-Length: 65536"), true),
        (post("Content-Length: 65537") + "x", true),
        (post("Content-Length: 65537"), false),
        (post("Content-Length: 3\r\nExpect: 100-continue"), false),
        (
            post("Content-Length: 3\r\nExpect: 100-continue") + "x",
            true,
        ),
        (post("Transfer-Encoding: chunked"), false),
    ] {
        let mut server = TestServer::default();
        server.receive(&head);
        assert_eq!(server.connection.drains_body(), drains, "{head:?}");
    }
    let mut server = TestServer::default();
    server.receive(&post("Content-Length: 4"));
    let response = server.respond(StatusCode::FORBIDDEN, "");
    assert!(!response.contains("Connection: close"), "{response}");
    let next = format!("abcd{}", post("Content-Length: 0"));
    let events = server.receive(&next);
    assert_eq!(
        events,
        ["data abcd", "end", "request POST / HTTP/1.1", "end"]
    );
}

#[test]
fn body_over_limit_is_refused_after_its_head() {
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 999999999\r\n\r\n";
    let mut server = TestServer::default();
    let events = server.receive(head);
    let refused = format!("refused: {}", RequestRefusal::BodyTooLarge.as_str());
    assert_eq!(events, ["request POST / HTTP/1.1", &refused]);
    assert!(
        server
            .respond(StatusCode::CONTENT_TOO_LARGE, "")
            .contains("close")
    );
}

#[test]
fn contains_request_end_detects_a_complete_body() {
    for (framing, body) in [
        ("Content-Length: 3", "abc"),
        ("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"),
    ] {
        let mut server = TestServer::default();
        let head = format!("POST / HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n");
        assert_eq!(server.receive(&head), ["request POST / HTTP/1.1"]);
        let (whole, truncated) = (body.as_bytes(), &body.as_bytes()[..body.len() - 1]);
        assert!(
            server.connection.contains_request_end(whole)
                && !server.connection.contains_request_end(truncated)
        );
        assert!(
            server
                .connection
                .contains_request_end(&[whole, b"GET"].concat())
        );
        assert_eq!(server.receive(body), ["data abc", "end"]);
        assert!(server.connection.contains_request_end(b""));
    }
}

#[test]
fn request_body_may_arrive_after_the_response() {
    let mut server = TestServer::default();
    server.receive("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nab");
    let response = server.respond(StatusCode::OK, "");
    assert_eq!(response, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert!(server.connection.is_idle() && !server.connection.is_request_whole());
    let events = server.receive("cdGET /b HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(events, ["data cd", "end", "request GET /b HTTP/1.1", "end"]);
}

/// A client with its unconsumed input and its output.
#[derive(Default)]
struct TestClient {
    connection: H1Client,
    received: Vec<u8>,
    sent: Vec<u8>,
}

impl TestClient {
    fn send_request(&mut self, method: Method) {
        let result =
            self.connection
                .request(method, b"/a", b"Host: h\r\n", BodyLen::None, &mut self.sent);
        assert_eq!(result, Ok(false));
    }

    fn receive(&mut self, bytes: &str) -> Vec<String> {
        self.received.extend_from_slice(bytes.as_bytes());
        let mut events = Vec::new();
        loop {
            let limits = RequestLimits::default();
            let (used, event) = match self.connection.next(&self.received, &limits) {
                Ok(InputStep {
                    event: Some(H1ClientEvent::RepairableHead),
                    ..
                }) => {
                    self.received = repair_head(&self.received).expect("it is whole");
                    continue;
                }
                Ok(InputStep {
                    event: Some(H1ClientEvent::RepairableTrailers),
                    used,
                }) => {
                    self.received =
                        repair_trailers(&self.received[used..]).expect("they are whole");
                    continue;
                }
                Ok(step) => (step.used, step.event.as_ref().map(describe_client_event)),
                Err(fault) => {
                    self.received.clear();
                    events.push(format!("fault: {}", fault.as_str()));
                    return events;
                }
            };
            self.received.drain(..used);
            let is_over = event.is_none() && used == 0;
            events.extend(event);
            if is_over {
                return events;
            }
        }
    }
}

fn describe_client_event(event: &H1ClientEvent<'_>) -> String {
    match event {
        H1ClientEvent::RepairableHead | H1ClientEvent::RepairableTrailers => {
            unreachable!("it is mended")
        }
        H1ClientEvent::Interim(head) => format!("interim {}", head.status.code()),
        H1ClientEvent::Upgraded(_) => "upgraded".into(),
        H1ClientEvent::Response(head) => {
            let fields = head.fields.clone().count();
            format!("response {} with {fields} fields", head.status.code())
        }
        H1ClientEvent::Data(data) => format!("data {}", String::from_utf8_lossy(data)),
        H1ClientEvent::End { trailers } => match trailers.clone().count() {
            0 => "end".into(),
            count => format!("end with {count} trailers"),
        },
    }
}

#[test]
fn client_sends_one_request_at_a_time() {
    let mut client = TestClient::default();
    client.send_request(Method::Get);
    assert_eq!(client.sent, b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(client.connection.is_unanswered() && !client.connection.is_idle());
    let none = client
        .connection
        .request(Method::Get, b"/", b"", BodyLen::None, &mut client.sent);
    assert_eq!(none, Err(BodyLengthMismatch));
    assert_eq!(
        client.receive("HTTP/1.1 103 \r\nLink: </a>\r\n\r\n"),
        ["interim 103"]
    );
    assert_eq!(client.receive("HTTP/1.1 200 OK\r\nContent-Le"), [""; 0]);
    assert_eq!(
        client.receive("ngth: 4\r\n\r\nab"),
        ["response 200 with 1 fields", "data ab"]
    );
    assert_eq!(client.receive("cd"), ["data cd", "end"]);
    assert!(client.connection.is_idle());
}

#[test]
fn take_remaining_body_needs_known_length_and_complete_input() {
    for (head, received, rest) in [
        ("Content-Length: 4\r\n", "abcd", Some("abcd")),
        ("Content-Length: 4\r\n", "abcdef", Some("abcd")),
        ("Content-Length: 4\r\n", "abc", None),
        ("Content-Length: 0\r\n", "", Some("")),
        ("Transfer-Encoding: chunked\r\n", "0\r\n\r\n", None),
        ("", "abcd", None),
    ] {
        let mut client = H1Client::default();
        let result = client.request(Method::Get, b"/", b"", BodyLen::None, &mut Vec::new());
        assert_eq!(result, Ok(false));
        assert_eq!(
            client.take_remaining_body(b""),
            None,
            "the head comes first"
        );
        let head = format!("HTTP/1.1 200 OK\r\n{head}\r\n");
        let step = client.next(head.as_bytes(), &RequestLimits::default());
        assert!(step.is_ok_and(|step| step.used == head.len()));
        let taken = client.take_remaining_body(received.as_bytes());
        assert_eq!(taken, rest.map(str::as_bytes), "{head}{received}");
        assert_eq!(client.is_idle(), rest.is_some());
    }
}

#[test]
fn request_body_of_unknown_length_is_chunked() {
    let mut client = TestClient::default();
    let (client, sent) = (&mut client.connection, &mut client.sent);
    assert_eq!(
        client.request(Method::Post, b"/", b"", BodyLen::Unknown, sent),
        Ok(true)
    );
    client.data(3, sent).expect("any length");
    sent.extend_from_slice(b"abc");
    sent.extend_from_slice(client.data_end());
    client.end(b"", sent).expect("any length");
    assert_eq!(
        sent,
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    );
}

#[test]
fn response_framing_and_connection_reuse() {
    // RFC 9112 §6.3, with the repairable heads and chunks that common servers send.
    for (method, response, events, reusable) in [
        (
            Method::Head,
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
            &["response 200 with 1 fields", "end"][..],
            true,
        ),
        (
            Method::Get,
            "HTTP/1.1 304 \r\nContent-Length: 9\r\n\r\n",
            &["response 304 with 1 fields", "end"],
            true,
        ),
        (
            Method::Get,
            // Many servers omit the space after the code.
            "HTTP/1.1 204\r\n\r\n",
            &["response 204 with 0 fields", "end"],
            true,
        ),
        (
            Method::Get,
            "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na",
            &["response 200 with 1 fields", "data a", "end"],
            false,
        ),
        (
            Method::Get,
            "HTTP/1.1 200 OK\r\nConnection: x, CLOSE\r\nContent-Length: 0\r\n\r\n",
            &["response 200 with 2 fields", "end"],
            false,
        ),
        (
            Method::Get,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nA: b\r\n\r\n",
            &[
                "response 200 with 1 fields",
                "data a",
                "end with 1 trailers",
            ],
            true,
        ),
        (
            Method::Get,
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
            &["response 200 with 2 fields", "data a", "end"],
            true,
        ),
        (
            Method::Get,
            // RFC 9110 §8.6: equal values may be combined.
            "HTTP/1.1 200 OK\r\nContent-Length: 1 ,1\r\n\r\na",
            &["response 200 with 1 fields", "data a", "end"],
            true,
        ),
        (
            Method::Get,
            // RFC 9110 §2.5.
            "HTTP/1.9 200 OK\r\nContent-Length: 1\r\n\r\na",
            &["response 200 with 1 fields", "data a", "end"],
            true,
        ),
        (
            Method::Get,
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            &["response 200 with 2 fields", "data a", "end"],
            false,
        ),
        (
            Method::Get,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1 \t\r\na\r\n0 ;x \r\n\r\n",
            &["response 200 with 1 fields", "data a", "end"],
            true,
        ),
        (
            Method::Get,
            "HTTP/1.1 200 OK\r\nA : b\r\nContent-Length\t : 1\r\n\r\na",
            &["response 200 with 2 fields", "data a", "end"],
            true,
        ),
        (
            Method::Get,
            // Bare LFs and a folded line (RFC 9112 §2.2, §5.2).
            "HTTP/1.1 200 OK\nA: b\n\tc\r\n d\nContent-Length: 1\n\na",
            &["response 200 with 2 fields", "data a", "end"],
            true,
        ),
        (
            Method::Get,
            "HTTP/1.1 200 OK\r\n A: b\r\nContent-Length: 1\r\n\r\na",
            &["response 200 with 1 fields", "data a", "end"],
            true,
        ),
        (
            Method::Get,
            "HTTP/1.1 103 \n\nHTTP/1.1 204 \n\n",
            &["interim 103", "response 204 with 0 fields", "end"],
            true,
        ),
    ] {
        for piece in [1, 7, response.len()] {
            let mut client = TestClient::default();
            client.send_request(method);
            let mut got = Vec::new();
            for part in response.as_bytes().chunks(piece) {
                got.extend(client.receive(core::str::from_utf8(part).expect("ASCII")));
            }
            assert_eq!(got, events, "{response:?} in pieces of {piece}");
            assert_eq!(client.connection.is_idle(), reusable, "{response:?}");
        }
    }
}

#[test]
fn eof_ends_only_a_body_without_framing() {
    // Only a body without a length or chunks may be ended by EOF.
    let mut client = TestClient::default();
    client.send_request(Method::Get);
    let events = client.receive("HTTP/1.1 200 OK\r\n\r\nabc");
    assert_eq!(events, ["response 200 with 0 fields", "data abc"]);
    assert_eq!(client.connection.handle_eof(), Ok(true));
    assert!(!client.connection.is_idle());
    for truncated in [
        "",
        "HTTP/1.1 2",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na",
    ] {
        let mut client = TestClient::default();
        client.send_request(Method::Get);
        client.receive(truncated);
        assert_eq!(
            client.connection.handle_eof(),
            Err(ResponseFault::Truncated),
            "{truncated:?}"
        );
    }
}

#[test]
fn ambiguous_responses_are_faults() {
    // A downstream cache or client could split such a response differently.
    let head = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
    for (bytes, fault) in [
        (
            head("Content-Length: 1\r\nContent-Length: 2\r\n"),
            ResponseFault::Malformed(RequestRefusal::LengthRepeated),
        ),
        (
            head("Content-Length: 1, 2\r\n"),
            ResponseFault::Malformed(RequestRefusal::LengthRepeated),
        ),
        (
            head("Content-Length: 1,\r\n"),
            ResponseFault::Malformed(RequestRefusal::LengthInvalid),
        ),
        (
            head("Content-Length: +1\r\n"),
            ResponseFault::Malformed(RequestRefusal::LengthInvalid),
        ),
        (
            head("Transfer-Encoding: gzip, chunked\r\n"),
            ResponseFault::Malformed(RequestRefusal::CodingUnknown),
        ),
        (
            head("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
            ResponseFault::Malformed(RequestRefusal::CodingNotLast),
        ),
        (
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".into(),
            ResponseFault::Malformed(RequestRefusal::TransferCodingInHttp10),
        ),
        (
            head("A b: c\r\n"),
            ResponseFault::Malformed(RequestRefusal::FieldName),
        ),
        (
            head("A: b\rB: c\r\n"),
            ResponseFault::Malformed(RequestRefusal::BareCr),
        ),
        (
            head("A: \0\r\n"),
            ResponseFault::Malformed(RequestRefusal::Nul),
        ),
        ("HTTP/1.1 2000 OK\r\n\r\n".into(), ResponseFault::StatusLine),
        ("HTTP/1.1 200OK\r\n\r\n".into(), ResponseFault::StatusLine),
        ("HTTP/1.1 099 OK\r\n\r\n".into(), ResponseFault::StatusLine),
        ("HTTP/1.1  200 OK\r\n\r\n".into(), ResponseFault::StatusLine),
        ("HTTP/2.0 200 OK\r\n\r\n".into(), ResponseFault::Version),
        // A server of another protocol at the origin's port.
        ("SSH-2.0-OpenSSH_9.2\r\n".into(), ResponseFault::StatusLine),
        ("HTTP/1.1 101 \r\n\r\n".into(), ResponseFault::Upgrade),
        (head("").repeat(2), ResponseFault::Unsolicited),
    ] {
        let mut client = TestClient::default();
        client.send_request(if fault == ResponseFault::Unsolicited {
            Method::Head
        } else {
            Method::Get
        });
        let events = client.receive(&bytes);
        let last = events.last().map(String::as_str).unwrap_or_default();
        assert_eq!(last, format!("fault: {}", fault.as_str()), "{bytes:?}");
        assert!(!client.connection.is_idle());
    }
}

#[test]
fn number_of_interim_responses_is_limited() {
    let mut client = TestClient::default();
    client.send_request(Method::Get);
    let events = client.receive(&"HTTP/1.1 100 \r\n\r\n".repeat(100));
    assert_eq!(events.len(), 17);
    assert_eq!(
        events[16],
        format!("fault: {}", ResponseFault::TooManyInterim.as_str())
    );
}

#[test]
fn unsolicited_response_is_a_fault() {
    // Such bytes could otherwise be taken for the response to the next request.
    let mut client = TestClient::default();
    assert_eq!(
        client.receive("HTTP/1.1 200 OK\r\n\r\n"),
        [format!("fault: {}", ResponseFault::Unsolicited.as_str())]
    );
}

/// Each side parses the output of the other side to the same message.
#[test]
fn client_and_server_parse_each_others_output() {
    for (len, body) in [
        (BodyLen::Known(5), "hello"),
        (BodyLen::Unknown, "hello"),
        (BodyLen::Known(0), ""),
        (BodyLen::Unknown, ""),
    ] {
        let (mut client, mut server) = (TestClient::default(), TestServer::default());
        for _ in 0..3 {
            let has_body = client
                .connection
                .request(Method::Put, b"/a", b"Host: h\r\n", len, &mut client.sent)
                .expect("idle");
            if has_body {
                if !body.is_empty() {
                    client
                        .connection
                        .data(body.len() as u64, &mut client.sent)
                        .expect("as announced");
                    client.sent.extend_from_slice(body.as_bytes());
                    client.sent.extend_from_slice(client.connection.data_end());
                }
                client
                    .connection
                    .end(b"", &mut client.sent)
                    .expect("as announced");
            }
            let request = String::from_utf8(core::mem::take(&mut client.sent)).expect("text");
            let events = server.receive(&request);
            assert_eq!(
                events.first().map(String::as_str),
                Some("request PUT /a HTTP/1.1")
            );
            assert_eq!(events.contains(&format!("data {body}")), !body.is_empty());
            server
                .connection
                .respond(StatusCode::OK, b"", len, &DATE, &mut server.sent);
            if !body.is_empty() {
                server.send_data(body);
            }
            server
                .connection
                .end(b"", &mut server.sent)
                .expect("as announced");
            let response = String::from_utf8(core::mem::take(&mut server.sent)).expect("text");
            let got = client.receive(&response);
            assert_eq!(
                got.contains(&format!("data {body}")),
                !body.is_empty(),
                "{response}"
            );
            assert_eq!(got.last().map(String::as_str), Some("end"));
            assert!(client.connection.is_idle() && server.connection.is_idle());
        }
    }
}

/// A request for an upgrade to WebSocket.
const UPGRADE_REQUEST: &str =
    "GET /chat HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

impl TestServer {
    fn upgrade(&mut self) -> String {
        assert!(self.connection.can_upgrade());
        HeadWriter::start(&mut self.sent, StatusCode::SWITCHING_PROTOCOLS, &DATE)
            .lines(b"A: b\r\n");
        self.connection.finish_upgrade(b"websocket", &mut self.sent);
        self.take_output()
    }
}

#[test]
fn upgraded_connection_passes_bytes_unchanged() {
    let mut server = TestServer::default();
    assert_eq!(
        server.receive(&format!("{UPGRADE_REQUEST}early")),
        ["request GET /chat HTTP/1.1", "end"]
    );
    assert_eq!(
        server.upgrade(),
        "HTTP/1.1 101 Switching Protocols\r\nA: b\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
    );
    assert!(server.connection.is_tunnel() && !server.connection.is_idle());
    assert_eq!(
        server.receive(""),
        ["data early"],
        "what came behind the head"
    );
    assert_eq!(
        server.receive("GET / HTTP/1.1\r\n\r\n"),
        ["data GET / HTTP/1.1\r\n\r\n"]
    );
    server.send_data("hello");
    assert_eq!(server.take_output(), "hello", "as it is");
    assert!(!server.connection.is_finished());
}

#[test]
fn tunnel_directions_end_independently() {
    // A half-closed tunnel still carries bytes in the other direction.
    let mut server = TestServer::default();
    server.receive(UPGRADE_REQUEST);
    server.upgrade();
    server.connection.handle_client_eof();
    server.send_data("more");
    assert!(!server.connection.is_finished());
    assert_eq!(server.connection.end(b"", &mut server.sent), Ok(()));
    assert!(server.connection.is_finished());

    let mut server = TestServer::default();
    server.receive(UPGRADE_REQUEST);
    server.upgrade();
    assert_eq!(server.connection.end(b"", &mut server.sent), Ok(()));
    assert!(!server.connection.is_finished());
    assert_eq!(server.receive("more"), ["data more"]);
    server.connection.handle_client_eof();
    assert!(server.connection.is_finished());
}

#[test]
fn upgrade_is_refused_for_head_http_10_and_pending_body() {
    // HEAD has no content, HTTP/1.0 has no Upgrade, and a pending body would be mixed with the new protocol.
    for (request, can_upgrade) in [
        (UPGRADE_REQUEST.to_owned(), true),
        (UPGRADE_REQUEST.replace("GET", "HEAD"), false),
        (UPGRADE_REQUEST.replace("HTTP/1.1", "HTTP/1.0"), false),
        (
            UPGRADE_REQUEST.replace("\r\n\r\n", "\r\nContent-Length: 5\r\n\r\nhe"),
            false,
        ),
    ] {
        let mut server = TestServer::default();
        server.receive(&request);
        assert_eq!(server.connection.can_upgrade(), can_upgrade, "{request}");
    }
}

#[test]
fn client_upgrades_to_websocket() {
    let mut client = TestClient::default();
    let result =
        client
            .connection
            .request_upgrade(b"/chat", b"Host: h\r\n", b"websocket", &mut client.sent);
    assert_eq!(result, Ok(()));
    let sent = String::from_utf8_lossy(&client.sent).replace("upgrade", "Upgrade");
    assert_eq!(sent, UPGRADE_REQUEST);
    let early = "HTTP/1.1 103 \r\n\r\n";
    let switching = "HTTP/1.1 101 \r\nUpgrade: websocket\r\n\r\nhi";
    assert_eq!(
        client.receive(&format!("{early}{switching}")),
        ["interim 103", "upgraded", "data hi"]
    );
    assert!(!client.connection.is_idle());
    let mut sent = Vec::new();
    assert_eq!(client.connection.data(5, &mut sent), Ok(()));
    assert_eq!(client.connection.end(b"", &mut sent), Ok(()));
    assert!(sent.is_empty(), "said as it is");
    assert_eq!(client.receive("there"), ["data there"]);
    assert_eq!(client.connection.handle_eof(), Ok(true));
}

#[test]
fn server_may_ignore_upgrade() {
    // RFC 9110 §7.8: Upgrade may be ignored.
    let mut client = TestClient::default();
    let request_upgrade = |client: &mut TestClient| {
        let sent = &mut client.sent;
        client.connection.request_upgrade(b"/", b"", b"h2c", sent)
    };
    assert_eq!(request_upgrade(&mut client), Ok(()));
    assert_eq!(
        client.receive("HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n"),
        ["response 200 with 1 fields", "end"]
    );
    assert!(client.connection.is_idle());
    client.send_request(Method::Get);
    let events = client.receive("HTTP/1.1 101 \r\nUpgrade: h2c\r\n\r\n");
    assert_eq!(events, ["fault: an upgrade that was not requested"]);
}

#[test]
fn repair_head_normalizes_line_ends_folds_and_whitespace() {
    for (head, repaired) in [
        ("HTTP/1.1 200 OK\n\nbody\n", "HTTP/1.1 200 OK\r\n\r\nbody\n"),
        (
            "HTTP/1.1 200 a : b\r\nA \t: b : c\r\n\r\n",
            "HTTP/1.1 200 a : b\r\nA: b : c\r\n\r\n",
        ),
        (
            "HTTP/1.1 200 OK\r\n x: y\r\nA: b\r\n \t c\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b c\r\n\r\n",
        ),
    ] {
        let bytes = repair_head(head.as_bytes()).expect(head);
        assert_eq!(String::from_utf8_lossy(&bytes), repaired);
        assert_eq!(repair_head(&bytes), Some(bytes), "{head:?}");
    }
    assert_eq!(repair_head(b"HTTP/1.1 200 OK\nA: b\r\n"), None);
    let folded = b"HTTP/1.1 200 OK\nA\n :b\n\n";
    let repaired = repair_head(folded).expect("it is whole");
    assert_eq!(repaired, b"HTTP/1.1 200 OK\r\nA:b\r\n\r\n");
}

#[test]
fn repair_trailers_normalizes_line_ends_folds_and_whitespace() {
    for (section, repaired) in [
        ("\nrest\n", "\r\nrest\n"),
        ("A \t: b : c\r\n\r\n", "A: b : c\r\n\r\n"),
        (" x: y\r\nA: b\r\n \t c\n\n", "A: b c\r\n\r\n"),
    ] {
        let bytes = repair_trailers(section.as_bytes()).expect(section);
        assert_eq!(String::from_utf8_lossy(&bytes), repaired);
        assert_eq!(repair_trailers(&bytes), Some(bytes), "{section:?}");
    }
    assert_eq!(repair_trailers(b"A: b\n"), None);
}

/// Repaired like the fields of the head (RFC 9112 §2.2, §5.1, §5.2). Lines that are not fields remain a fault.
#[test]
fn repairable_trailers_are_accepted_whole_and_in_pieces() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: , chunked,\r\n\r\n2\r\nok\r\n0\r\n";
    for (section, last) in [
        ("A: b\r\nC: d\r\n\r\n", "end with 2 trailers"),
        ("A : b\r\n\r\n", "end with 1 trailers"),
        ("A: b\r\n c\r\nD: e\r\n\r\n", "end with 2 trailers"),
        ("A: b\n\n", "end with 1 trailers"),
        ("\n", "end"),
        (" A: b\r\n\r\n", "end"),
        ("A b: c\r\n\r\n", "fault: a trailer field is malformed"),
        ("A: b\r\n: c\r\n\r\n", "fault: a trailer field is malformed"),
        ("A: b\0\r\n\r\n", "fault: a trailer field is malformed"),
    ] {
        let response = format!("{head}{section}");
        for len in [1, 3, response.len()] {
            let mut client = TestClient::default();
            client.send_request(Method::Get);
            let mut events = Vec::new();
            for piece in response.as_bytes().chunks(len) {
                events.extend(client.receive(core::str::from_utf8(piece).expect("ASCII")));
                if events
                    .last()
                    .is_some_and(|event| event.starts_with("fault"))
                {
                    break;
                }
            }
            assert_eq!(
                events.last().map(String::as_str),
                Some(last),
                "{section:?} by {len}"
            );
        }
    }
}
