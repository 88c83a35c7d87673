//! Exchanges, to be read from top to bottom.

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
const ONE: StreamId = StreamId(1);

/// A server with its unconsumed input and its output.
#[derive(Default)]
struct Host {
    server: H1Server,
    received: Vec<u8>,
    sent: Vec<u8>,
}

impl Host {
    /// Receives bytes; returns the events as text.
    fn gets(&mut self, bytes: &str) -> Vec<String> {
        self.received.extend_from_slice(bytes.as_bytes());
        let mut words = Vec::new();
        loop {
            let (limits, mut place) = (RequestLimits::default(), None);
            let (used, word) = match self.server.next(&self.received, &limits, &mut place) {
                Ok(step) => (step.used, step.event.as_ref().map(word)),
                Err(refusal) => (
                    self.received.len(),
                    Some(format!("refused: {}", refusal.as_str())),
                ),
            };
            self.received.drain(..used);
            let is_over = word.is_none() && used == 0;
            words.extend(word);
            if is_over || self.received.is_empty() && self.server.is_finished() {
                return words;
            }
        }
    }

    fn says(&mut self) -> String {
        let sent = core::mem::take(&mut self.sent);
        let date = String::from_utf8_lossy(&DATE).into_owned();
        String::from_utf8(sent)
            .expect("text")
            .replace(&format!("Date: {date}\r\n"), "")
    }

    fn answers(&mut self, status: StatusCode, body: &str) -> String {
        let len = BodyLen::Known(body.len() as u64);
        if self.server.respond(status, b"", len, &DATE, &mut self.sent) {
            self.part(body);
        }
        self.server.end(b"", &mut self.sent).expect("all was sent");
        self.says()
    }

    fn part(&mut self, body: &str) {
        let is_sent = self.server.data(body.len() as u64, &mut self.sent);
        if is_sent.expect("no more than announced") {
            self.sent.extend_from_slice(body.as_bytes());
            self.sent.extend_from_slice(self.server.data_end());
        }
    }
}

const DATE: [u8; 29] = *b"Sun, 06 Nov 1994 08:49:37 GMT";

fn word(event: &H1ServerEvent<'_, '_>) -> String {
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
fn the_date_is_one() {
    assert_eq!(date::format(784_111_777), DATE);
}

#[test]
fn idle_connections_take_little_memory() {
    // Tens of thousands of idle connections are kept.
    assert!(size_of::<H1Server>() <= 24, "{}", size_of::<H1Server>());
}

#[test]
fn a_request_and_its_response() {
    let mut host = Host::default();
    assert_eq!(host.gets("GET /a HTTP/1.1\r\nHost: h\r\n"), [""; 0]);
    assert!(host.server.is_partial());
    assert_eq!(host.gets("\r\n"), ["request GET /a HTTP/1.1", "end"]);
    let said = host.answers(StatusCode::OK, "hello");
    assert_eq!(said, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    assert!(host.server.is_idle() && !host.server.is_finished());
}

#[test]
fn pipelined_requests_are_answered_one_after_the_other() {
    // RFC 9112 §9.3.2: responses are in the order of the requests.
    let mut host = Host::default();
    let two = "GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nX";
    assert_eq!(host.gets(two), ["request GET /a HTTP/1.1", "end"]);
    assert_eq!(host.gets(""), [""; 0]);
    host.answers(StatusCode::OK, "");
    assert_eq!(host.gets(""), ["request GET /b HTTP/1.1", "end"]);
    let said = host.answers(StatusCode::NOT_FOUND, "no");
    assert_eq!(
        said,
        "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
    );
    // Input after the end is discarded.
    assert_eq!(host.gets("GET /c HTTP/1.1\r\nHost: h\r\n\r\n"), [""; 0]);
    assert!(host.server.is_finished() && host.received.is_empty());
}

#[test]
fn bodies_come_in_parts() {
    let mut host = Host::default();
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n";
    assert_eq!(
        host.gets(&format!("{head}ab")),
        ["request POST / HTTP/1.1", "data ab"]
    );
    assert_eq!(host.gets("cdefGET"), ["data cdef", "end"]);
    host.answers(StatusCode::NO_CONTENT, "");
    assert_eq!(host.received, b"GET");

    let mut host = Host::default();
    let head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(host.gets(head), ["request POST / HTTP/1.1"]);
    assert_eq!(host.gets("3\r\nabc\r\n1"), ["data abc"]);
    assert_eq!(host.gets("\r\nd\r\n0\r\nA: b"), ["data d"]);
    assert_eq!(host.gets("\r\n\r\n"), ["end with 1 trailers"]);
}

#[test]
fn who_asks_for_leave_to_send_a_body_gets_it_once() {
    let head = "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n";
    let mut host = Host::default();
    host.gets(head);
    assert!(host.server.expects_continue(ONE));
    host.server
        .interim(ONE, StatusCode::CONTINUE, FieldLines::NONE, &mut host.sent);
    assert_eq!(host.says(), "HTTP/1.1 100 Continue\r\n\r\n");
    assert!(!host.server.expects_continue(ONE));
    assert_eq!(host.gets("x"), ["data x", "end"]);
    // A client that sends a part of the body does not wait.
    let mut host = Host::default();
    host.gets(&format!("{head}x"));
    assert!(!host.server.expects_continue(ONE));
    // Nor does a client that has its response.
    let mut host = Host::default();
    host.gets(head);
    host.server.discard_body(ONE, &mut host.sent);
    let said = host.answers(StatusCode::CONTENT_TOO_LARGE, "");
    assert!(said.ends_with("\r\nConnection: close\r\n\r\n"), "{said}");
    assert!(host.server.is_finished() && !host.server.expects_continue(ONE));
}

#[test]
fn interim_responses_are_not_for_http_1_0() {
    // RFC 9110 §15.2.
    let mut host = Host::default();
    host.gets("GET / HTTP/1.0\r\n\r\n");
    host.server.interim(
        ONE,
        StatusCode::CONTINUE,
        FieldLines::new(b"Link: </a>\r\n"),
        &mut host.sent,
    );
    assert_eq!(host.says(), "");
}

#[test]
fn a_response_of_unknown_length() {
    let mut host = Host::default();
    host.gets("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let len = BodyLen::Unknown;
    assert!(
        host.server
            .respond(StatusCode::OK, b"A: b\r\n", len, &DATE, &mut host.sent)
    );
    host.part("0123456789abcdefg");
    host.part("h");
    host.server.end(b"C: d\r\n", &mut host.sent).expect("whole");
    assert_eq!(
        host.says(),
        "HTTP/1.1 200 OK\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n\
         11\r\n0123456789abcdefg\r\n1\r\nh\r\n0\r\nC: d\r\n\r\n"
    );
    // A client of HTTP/1.0 has to see the end of the connection.
    let mut host = Host::default();
    host.gets("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert!(
        host.server
            .respond(StatusCode::OK, b"", len, &DATE, &mut host.sent)
    );
    host.part("abc");
    host.server.end(b"", &mut host.sent).expect("whole");
    assert_eq!(
        host.says(),
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc"
    );
    assert!(host.server.is_finished());
}

#[test]
fn what_has_no_body_gets_none() {
    // RFC 9112 §6.3: a body here would be taken for the next response.
    for (method, status, said) in [
        (
            "HEAD",
            StatusCode::OK,
            "200 OK\r\nContent-Length: 3\r\n\r\n",
        ),
        ("GET", StatusCode::NO_CONTENT, "204 No Content\r\n\r\n"),
        ("GET", StatusCode::NOT_MODIFIED, "304 Not Modified\r\n\r\n"),
    ] {
        let mut host = Host::default();
        host.gets(&format!("{method} / HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_eq!(host.answers(status, "abc"), format!("HTTP/1.1 {said}"));
    }
}

#[test]
fn the_absence_of_a_body_is_said_where_it_could_be() {
    let mut host = Host::default();
    host.gets("POST / HTTP/1.1\r\nHost: h\r\n\r\n");
    let none = BodyLen::None;
    assert!(
        !host
            .server
            .respond(StatusCode::CREATED, b"", none, &DATE, &mut host.sent)
    );
    host.server
        .end(b"", &mut host.sent)
        .expect("nothing was announced");
    assert_eq!(
        host.says(),
        "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
    );
}

#[test]
fn who_makes_more_or_less_than_announced_breaks_the_connection() {
    // The client could not find the next response.
    let mut host = Host::default();
    host.gets("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let len = BodyLen::Known(2);
    assert!(
        host.server
            .respond(StatusCode::OK, b"", len, &DATE, &mut host.sent)
    );
    assert_eq!(host.server.data(3, &mut host.sent), Err(BodyLengthMismatch));
    let mut host = Host::default();
    host.gets("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    host.server
        .respond(StatusCode::OK, b"", len, &DATE, &mut host.sent);
    host.part("a");
    assert_eq!(
        host.server.end(b"", &mut host.sent),
        Err(BodyLengthMismatch)
    );
}

#[test]
fn what_is_no_request_gets_one_response() {
    // After malformed framing the start of a next request is unknown.
    let mut host = Host::default();
    assert_eq!(
        host.gets("GET / HTTP/9.9\r\n\r\n"),
        [format!("refused: {}", RequestRefusal::Version.as_str())]
    );
    let said = host.answers(StatusCode::VERSION_NOT_SUPPORTED, "sorry");
    assert!(said.ends_with("Connection: close\r\n\r\nsorry"), "{said}");
    assert!(host.server.is_finished());
    // In the middle of a body, too.
    let mut host = Host::default();
    let words = host.gets("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nx");
    assert_eq!(
        words[1],
        format!("refused: {}", RequestRefusal::ChunkSize.as_str())
    );
    assert!(host.answers(StatusCode::BAD_REQUEST, "").contains("close"));
}

#[test]
fn a_body_that_nobody_reads_ends_the_connection() {
    // RFC 9112 §9.3: the unread rest would be parsed as the next request.
    let mut host = Host::default();
    host.gets("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nab");
    host.server.discard_body(ONE, &mut host.sent);
    let said = host.answers(StatusCode::FORBIDDEN, "");
    assert!(said.contains("Connection: close"), "{said}");
    assert_eq!(host.gets("cdef"), [""; 0]);
    assert!(host.server.is_finished());
}

#[test]
fn a_short_rest_of_a_body_is_read_after_an_early_response() {
    // A rest that is long, or that may never come, is not waited for.
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
        let mut host = Host::default();
        host.gets(&head);
        assert_eq!(host.server.drains_body(), drains, "{head:?}");
    }
    let mut host = Host::default();
    host.gets(&post("Content-Length: 4"));
    let said = host.answers(StatusCode::FORBIDDEN, "");
    assert!(!said.contains("Connection: close"), "{said}");
    let next = format!("abcd{}", post("Content-Length: 0"));
    let words = host.gets(&next);
    assert_eq!(
        words,
        ["data abcd", "end", "request POST / HTTP/1.1", "end"]
    );
}

#[test]
fn a_body_that_is_too_long_is_refused_when_it_is_read() {
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 999999999\r\n\r\n";
    let mut host = Host::default();
    let words = host.gets(head);
    let refused = format!("refused: {}", RequestRefusal::BodyTooLarge.as_str());
    assert_eq!(words, ["request POST / HTTP/1.1", &refused]);
    assert!(
        host.answers(StatusCode::CONTENT_TOO_LARGE, "")
            .contains("close")
    );
}

#[test]
fn whether_a_body_is_at_hand_is_known_before_it_is_read() {
    for (framing, body) in [
        ("Content-Length: 3", "abc"),
        ("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"),
    ] {
        let mut host = Host::default();
        let head = format!("POST / HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n");
        assert_eq!(host.gets(&head), ["request POST / HTTP/1.1"]);
        let (whole, cut) = (body.as_bytes(), &body.as_bytes()[..body.len() - 1]);
        assert!(host.server.contains_request_end(whole) && !host.server.contains_request_end(cut));
        assert!(host.server.contains_request_end(&[whole, b"GET"].concat()));
        assert_eq!(host.gets(body), ["data abc", "end"]);
        assert!(host.server.contains_request_end(b""));
    }
}

#[test]
fn a_body_may_come_after_the_response() {
    let mut host = Host::default();
    host.gets("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nab");
    let said = host.answers(StatusCode::OK, "");
    assert_eq!(said, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert!(host.server.is_idle() && !host.server.is_request_whole());
    let words = host.gets("cdGET /b HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(words, ["data cd", "end", "request GET /b HTTP/1.1", "end"]);
}

/// A client with its unconsumed input and its output.
#[derive(Default)]
struct Visitor {
    client: H1Client,
    received: Vec<u8>,
    sent: Vec<u8>,
}

impl Visitor {
    fn asks(&mut self, method: Method) {
        let asked =
            self.client
                .request(method, b"/a", b"Host: h\r\n", BodyLen::None, &mut self.sent);
        assert_eq!(asked, Ok(false));
    }

    fn gets(&mut self, bytes: &str) -> Vec<String> {
        self.received.extend_from_slice(bytes.as_bytes());
        let mut words = Vec::new();
        loop {
            let limits = RequestLimits::default();
            let (used, word) = match self.client.next(&self.received, &limits) {
                Ok(InputStep {
                    event: Some(H1ClientEvent::Irregular),
                    ..
                }) => {
                    self.received = repair_head(&self.received).expect("it is whole");
                    continue;
                }
                Ok(InputStep {
                    event: Some(H1ClientEvent::IrregularTrailers),
                    used,
                }) => {
                    self.received =
                        repair_trailers(&self.received[used..]).expect("they are whole");
                    continue;
                }
                Ok(step) => (step.used, step.event.as_ref().map(client_word)),
                Err(fault) => {
                    self.received.clear();
                    words.push(format!("fault: {}", fault.as_str()));
                    return words;
                }
            };
            self.received.drain(..used);
            let is_over = word.is_none() && used == 0;
            words.extend(word);
            if is_over {
                return words;
            }
        }
    }
}

fn client_word(event: &H1ClientEvent<'_>) -> String {
    match event {
        H1ClientEvent::Irregular | H1ClientEvent::IrregularTrailers => unreachable!("it is mended"),
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
fn requests_are_sent_and_answered_in_turn() {
    let mut visitor = Visitor::default();
    visitor.asks(Method::Get);
    assert_eq!(visitor.sent, b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(visitor.client.is_unanswered() && !visitor.client.is_idle());
    let none = visitor
        .client
        .request(Method::Get, b"/", b"", BodyLen::None, &mut visitor.sent);
    assert_eq!(none, Err(BodyLengthMismatch));
    assert_eq!(
        visitor.gets("HTTP/1.1 103 \r\nLink: </a>\r\n\r\n"),
        ["interim 103"]
    );
    assert_eq!(visitor.gets("HTTP/1.1 200 OK\r\nContent-Le"), [""; 0]);
    assert_eq!(
        visitor.gets("ngth: 4\r\n\r\nab"),
        ["response 200 with 1 fields", "data ab"]
    );
    assert_eq!(visitor.gets("cd"), ["data cd", "end"]);
    assert!(visitor.client.is_idle());
}

#[test]
fn the_rest_of_a_body_is_taken_at_once_if_it_is_there() {
    for (head, came, rest) in [
        ("Content-Length: 4\r\n", "abcd", Some("abcd")),
        ("Content-Length: 4\r\n", "abcdef", Some("abcd")),
        ("Content-Length: 4\r\n", "abc", None),
        ("Content-Length: 0\r\n", "", Some("")),
        ("Transfer-Encoding: chunked\r\n", "0\r\n\r\n", None),
        ("", "abcd", None),
    ] {
        let mut client = H1Client::default();
        let asked = client.request(Method::Get, b"/", b"", BodyLen::None, &mut Vec::new());
        assert_eq!(asked, Ok(false));
        assert_eq!(
            client.take_remaining_body(b""),
            None,
            "the head comes first"
        );
        let head = format!("HTTP/1.1 200 OK\r\n{head}\r\n");
        let step = client.next(head.as_bytes(), &RequestLimits::default());
        assert!(step.is_ok_and(|step| step.used == head.len()));
        let taken = client.take_remaining_body(came.as_bytes());
        assert_eq!(taken, rest.map(str::as_bytes), "{head}{came}");
        assert_eq!(client.is_idle(), rest.is_some());
    }
}

#[test]
fn a_body_is_sent_as_announced() {
    let mut visitor = Visitor::default();
    let (client, sent) = (&mut visitor.client, &mut visitor.sent);
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
fn responses_end_as_they_say() {
    // RFC 9112 §6.3, with the irregular heads and chunks that common servers send.
    for (method, response, words, reusable) in [
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
            let mut visitor = Visitor::default();
            visitor.asks(method);
            let mut got = Vec::new();
            for part in response.as_bytes().chunks(piece) {
                got.extend(visitor.gets(core::str::from_utf8(part).expect("ASCII")));
            }
            assert_eq!(got, words, "{response:?} in pieces of {piece}");
            assert_eq!(visitor.client.is_idle(), reusable, "{response:?}");
        }
    }
}

#[test]
fn a_body_may_end_with_the_connection() {
    // Only such a body may end early without a fault.
    let mut visitor = Visitor::default();
    visitor.asks(Method::Get);
    let words = visitor.gets("HTTP/1.1 200 OK\r\n\r\nabc");
    assert_eq!(words, ["response 200 with 0 fields", "data abc"]);
    assert_eq!(visitor.client.handle_eof(), Ok(true));
    assert!(!visitor.client.is_idle());
    for cut in [
        "",
        "HTTP/1.1 2",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na",
    ] {
        let mut visitor = Visitor::default();
        visitor.asks(Method::Get);
        visitor.gets(cut);
        assert_eq!(
            visitor.client.handle_eof(),
            Err(ResponseFault::Cut),
            "{cut:?}"
        );
    }
}

#[test]
fn what_could_be_read_in_two_ways_is_a_fault() {
    // A downstream cache or client could split the response differently.
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
            ResponseFault::Malformed(RequestRefusal::CodingIn10),
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
        // Another protocol on the origin's port.
        ("SSH-2.0-OpenSSH_9.2\r\n".into(), ResponseFault::StatusLine),
        ("HTTP/1.1 101 \r\n\r\n".into(), ResponseFault::Upgrade),
        (head("").repeat(2), ResponseFault::Unasked),
    ] {
        let mut visitor = Visitor::default();
        visitor.asks(if fault == ResponseFault::Unasked {
            Method::Head
        } else {
            Method::Get
        });
        let words = visitor.gets(&bytes);
        let last = words.last().map(String::as_str).unwrap_or_default();
        assert_eq!(last, format!("fault: {}", fault.as_str()), "{bytes:?}");
        assert!(!visitor.client.is_idle());
    }
}

#[test]
fn interim_responses_do_not_go_on_without_end() {
    let mut visitor = Visitor::default();
    visitor.asks(Method::Get);
    let words = visitor.gets(&"HTTP/1.1 100 \r\n\r\n".repeat(100));
    assert_eq!(words.len(), 17);
    assert_eq!(
        words[16],
        format!("fault: {}", ResponseFault::TooManyInterim.as_str())
    );
}

#[test]
fn nothing_may_come_unasked() {
    // Such bytes could otherwise be taken for the response to the next request.
    let mut visitor = Visitor::default();
    assert_eq!(
        visitor.gets("HTTP/1.1 200 OK\r\n\r\n"),
        [format!("fault: {}", ResponseFault::Unasked.as_str())]
    );
}

/// Each side parses the output of the other side to the same message.
#[test]
fn both_ends_understand_each_other() {
    for (len, body) in [
        (BodyLen::Known(5), "hello"),
        (BodyLen::Unknown, "hello"),
        (BodyLen::Known(0), ""),
        (BodyLen::Unknown, ""),
    ] {
        let (mut visitor, mut host) = (Visitor::default(), Host::default());
        for _ in 0..3 {
            let has_body = visitor
                .client
                .request(Method::Put, b"/a", b"Host: h\r\n", len, &mut visitor.sent)
                .expect("idle");
            if has_body {
                if !body.is_empty() {
                    visitor
                        .client
                        .data(body.len() as u64, &mut visitor.sent)
                        .expect("as announced");
                    visitor.sent.extend_from_slice(body.as_bytes());
                    visitor.sent.extend_from_slice(visitor.client.data_end());
                }
                visitor
                    .client
                    .end(b"", &mut visitor.sent)
                    .expect("as announced");
            }
            let request = String::from_utf8(core::mem::take(&mut visitor.sent)).expect("text");
            let heard = host.gets(&request);
            assert_eq!(
                heard.first().map(String::as_str),
                Some("request PUT /a HTTP/1.1")
            );
            assert_eq!(heard.contains(&format!("data {body}")), !body.is_empty());
            host.server
                .respond(StatusCode::OK, b"", len, &DATE, &mut host.sent);
            if !body.is_empty() {
                host.part(body);
            }
            host.server.end(b"", &mut host.sent).expect("as announced");
            let response = String::from_utf8(core::mem::take(&mut host.sent)).expect("text");
            let got = visitor.gets(&response);
            assert_eq!(
                got.contains(&format!("data {body}")),
                !body.is_empty(),
                "{response}"
            );
            assert_eq!(got.last().map(String::as_str), Some("end"));
            assert!(visitor.client.is_idle() && host.server.is_idle());
        }
    }
}

/// The request of a client that asks for another protocol.
const ASKS: &str =
    "GET /chat HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

impl Host {
    fn upgrades(&mut self) -> String {
        assert!(self.server.can_upgrade());
        HeadWriter::start(&mut self.sent, StatusCode::SWITCHING_PROTOCOLS, &DATE)
            .lines(b"A: b\r\n");
        self.server.finish_upgrade(b"websocket", &mut self.sent);
        self.says()
    }
}

#[test]
fn another_protocol_is_bytes_both_ways() {
    let mut host = Host::default();
    assert_eq!(
        host.gets(&format!("{ASKS}early")),
        ["request GET /chat HTTP/1.1", "end"]
    );
    assert_eq!(
        host.upgrades(),
        "HTTP/1.1 101 Switching Protocols\r\nA: b\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
    );
    assert!(host.server.is_tunnel() && !host.server.is_idle());
    assert_eq!(host.gets(""), ["data early"], "what came behind the head");
    assert_eq!(
        host.gets("GET / HTTP/1.1\r\n\r\n"),
        ["data GET / HTTP/1.1\r\n\r\n"]
    );
    host.part("hello");
    assert_eq!(host.says(), "hello", "as it is");
    assert!(!host.server.is_finished());
}

#[test]
fn each_way_of_another_protocol_ends_by_itself() {
    // A half-closed tunnel still carries bytes in the other direction.
    let mut host = Host::default();
    host.gets(ASKS);
    host.upgrades();
    host.server.handle_client_eof();
    host.part("more");
    assert!(!host.server.is_finished());
    assert_eq!(host.server.end(b"", &mut host.sent), Ok(()));
    assert!(host.server.is_finished());

    let mut host = Host::default();
    host.gets(ASKS);
    host.upgrades();
    assert_eq!(host.server.end(b"", &mut host.sent), Ok(()));
    assert!(!host.server.is_finished());
    assert_eq!(host.gets("more"), ["data more"]);
    host.server.handle_client_eof();
    assert!(host.server.is_finished());
}

#[test]
fn not_every_request_can_be_upgraded() {
    // HEAD has no content, HTTP/1.0 no Upgrade, and a pending body would be mixed with the new protocol.
    for (request, can) in [
        (ASKS.to_owned(), true),
        (ASKS.replace("GET", "HEAD"), false),
        (ASKS.replace("HTTP/1.1", "HTTP/1.0"), false),
        (
            ASKS.replace("\r\n\r\n", "\r\nContent-Length: 5\r\n\r\nhe"),
            false,
        ),
    ] {
        let mut host = Host::default();
        host.gets(&request);
        assert_eq!(host.server.can_upgrade(), can, "{request}");
    }
}

#[test]
fn a_client_gets_the_protocol_that_it_asked_for() {
    let mut visitor = Visitor::default();
    let asked =
        visitor
            .client
            .request_upgrade(b"/chat", b"Host: h\r\n", b"websocket", &mut visitor.sent);
    assert_eq!(asked, Ok(()));
    let sent = String::from_utf8_lossy(&visitor.sent).replace("upgrade", "Upgrade");
    assert_eq!(sent, ASKS);
    let early = "HTTP/1.1 103 \r\n\r\n";
    let switching = "HTTP/1.1 101 \r\nUpgrade: websocket\r\n\r\nhi";
    assert_eq!(
        visitor.gets(&format!("{early}{switching}")),
        ["interim 103", "upgraded", "data hi"]
    );
    assert!(!visitor.client.is_idle());
    let mut sent = Vec::new();
    assert_eq!(visitor.client.data(5, &mut sent), Ok(()));
    assert_eq!(visitor.client.end(b"", &mut sent), Ok(()));
    assert!(sent.is_empty(), "said as it is");
    assert_eq!(visitor.gets("there"), ["data there"]);
    assert_eq!(visitor.client.handle_eof(), Ok(true));
}

#[test]
fn a_server_may_keep_to_its_protocol() {
    // RFC 9110 §7.8: Upgrade may be ignored.
    let mut visitor = Visitor::default();
    let ask = |visitor: &mut Visitor| {
        let sent = &mut visitor.sent;
        visitor.client.request_upgrade(b"/", b"", b"h2c", sent)
    };
    assert_eq!(ask(&mut visitor), Ok(()));
    assert_eq!(
        visitor.gets("HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n"),
        ["response 200 with 1 fields", "end"]
    );
    assert!(visitor.client.is_idle());
    visitor.asks(Method::Get);
    let unasked = visitor.gets("HTTP/1.1 101 \r\nUpgrade: h2c\r\n\r\n");
    assert_eq!(unasked, ["fault: an upgrade that was not requested"]);
}

#[test]
fn a_mended_head_is_regular() {
    for (head, mended) in [
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
        assert_eq!(String::from_utf8_lossy(&bytes), mended);
        assert_eq!(repair_head(&bytes), Some(bytes), "{head:?}");
    }
    assert_eq!(repair_head(b"HTTP/1.1 200 OK\nA: b\r\n"), None);
    let folded = b"HTTP/1.1 200 OK\nA\n :b\n\n";
    let mended = repair_head(folded).expect("it is whole");
    assert_eq!(mended, b"HTTP/1.1 200 OK\r\nA:b\r\n\r\n");
}

#[test]
fn mended_trailers_are_regular() {
    for (section, mended) in [
        ("\nrest\n", "\r\nrest\n"),
        ("A \t: b : c\r\n\r\n", "A: b : c\r\n\r\n"),
        (" x: y\r\nA: b\r\n \t c\n\n", "A: b c\r\n\r\n"),
    ] {
        let bytes = repair_trailers(section.as_bytes()).expect(section);
        assert_eq!(String::from_utf8_lossy(&bytes), mended);
        assert_eq!(repair_trailers(&bytes), Some(bytes), "{section:?}");
    }
    assert_eq!(repair_trailers(b"A: b\n"), None);
}

/// Mended like the fields of the head (RFC 9112 §2.2, §5.1, §5.2). Lines that are not fields stay a fault.
#[test]
fn irregular_trailers_of_a_response_are_mended_whole_and_in_pieces() {
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
            let mut visitor = Visitor::default();
            visitor.asks(Method::Get);
            let mut words = Vec::new();
            for piece in response.as_bytes().chunks(len) {
                words.extend(visitor.gets(core::str::from_utf8(piece).expect("ASCII")));
                if words.last().is_some_and(|word| word.starts_with("fault")) {
                    break;
                }
            }
            assert_eq!(
                words.last().map(String::as_str),
                Some(last),
                "{section:?} by {len}"
            );
        }
    }
}
