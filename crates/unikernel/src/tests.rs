//! Requests and responses over simulated connections.

mod pages;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use lowroad_http::content_coding::ContentCoding;
use lowroad_net::{
    ConnectionEnd, ConnectionId, ConnectionInitiator, SendPiece, SendQueueFull, StackCalls,
    TcpService,
};

use crate::archive::{ArchiveBuilder, NewVariant, SiteArchive};
use crate::counters::UnikernelCounter;
use crate::machine_view::MachineView;
use crate::pages::PageEngine;
use crate::server::CurrentTime;
use crate::trusted_networks::TrustedNetworks;
use crate::web::WebService;

const CLIENT: ConnectionId = ConnectionId {
    index: 3,
    generation: 9,
};
const PEER: SocketAddrV4 = SocketAddrV4::new(core::net::Ipv4Addr::new(192, 0, 2, 9), 4321);

/// Simulated connections, which record everything that the server sends.
#[derive(Default)]
struct RecordingCalls {
    sent: BTreeMap<u32, Vec<u8>>,
    closed: Vec<ConnectionId>,
    aborted: Vec<ConnectionId>,
    resumed: Vec<ConnectionId>,
    connects: u32,
    waiting: usize,
    is_full: bool,
}

impl StackCalls for RecordingCalls {
    fn now_us(&self) -> u64 {
        0
    }

    fn send(&mut self, id: ConnectionId, piece: SendPiece<'_>) -> Result<(), SendQueueFull> {
        if self.is_full {
            return Err(SendQueueFull);
        }
        let bytes = match piece {
            SendPiece::Copied(bytes) => bytes,
            SendPiece::Lasting { bytes, .. } => bytes,
        };
        self.sent.entry(id.index).or_default().extend(bytes);
        Ok(())
    }

    fn unsent_len(&self, _: ConnectionId) -> usize {
        0
    }

    fn waiting_len(&self, _: ConnectionId) -> usize {
        self.waiting
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("net_frames", 7)]
    }

    fn close(&mut self, id: ConnectionId) {
        self.closed.push(id);
    }

    fn abort(&mut self, id: ConnectionId) {
        self.aborted.push(id);
    }

    fn resume(&mut self, id: ConnectionId) {
        self.resumed.push(id);
    }

    fn connect(&mut self, _: SocketAddrV4) -> Result<ConnectionId, SendQueueFull> {
        self.connects += 1;
        Ok(ConnectionId {
            index: 10 + self.connects,
            generation: 0,
        })
    }
}

struct TestService {
    web: WebService,
    calls: RecordingCalls,
}

fn variant(encoding: ContentCoding, body: &[u8]) -> NewVariant {
    NewVariant {
        encoding,
        shared_fields: b"Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nETag: \"e\"\r\n".to_vec(),
        content_fields: b"Content-Type: text/plain\r\nAccept-Ranges: bytes\r\n".to_vec(),
        etag: "\"e\"".into(),
        content_type: "text/plain".into(),
        last_modified_s: Some(784_111_777),
        body: body.to_vec(),
    }
}

fn long() -> Vec<u8> {
    (0..5000_u32).map(|at| b'a' + (at % 23) as u8).collect()
}

fn site(page: &str) -> SiteArchive {
    let mut builder = ArchiveBuilder::new();
    let file = |encoding, body: &[u8]| variant(encoding, body);
    builder
        .file(
            &[b"/", b"/index.html"],
            vec![file(ContentCoding::Identity, b"<p>Hello")],
        )
        .expect("a file");
    builder
        .file(&[b"/long"], vec![file(ContentCoding::Identity, &long())])
        .expect("a file");
    builder.redirect(b"/sub", "/sub/").expect("a redirect");
    builder.forbidden(b"/sub/").expect("a folder");
    builder
        .page(b"/page.lrp", "page.lrp", page)
        .expect("a page");
    builder.setting("status.from", "192.0.2.0/24");
    builder.setting("database.address", "192.0.2.1:3306");
    let bytes = builder.finish().expect("an archive");
    SiteArchive::open(Vec::leak(bytes)).expect("an archive")
}

impl TestService {
    fn new(page: &str) -> TestService {
        let site = site(page);
        let pages = PageEngine::new(&site, [1; 32], 16 << 20, 1).expect("pages");
        let trusted = TrustedNetworks::parse(site.settings("status.from"));
        let web = WebService::new(
            site,
            64,
            1 << 16,
            pages,
            trusted.expect("networks"),
            1,
            MachineView(None),
        );
        let mut net = TestService {
            web,
            calls: RecordingCalls::default(),
        };
        net.web.set_now(CurrentTime {
            mono_us: 1_000_000,
            unix_s: 784_111_800,
        });
        net.open();
        net
    }

    fn open(&mut self) {
        let opened = ConnectionInitiator {
            peer: PEER,
            port: 80,
            is_active_open: false,
        };
        self.web.opened(&mut self.calls, CLIENT, opened);
    }

    /// Passes bytes to the server, repeatedly while it consumes a part of them. Returns the responses.
    fn send(&mut self, mut bytes: &[u8]) -> Vec<String> {
        let mut answers = Vec::new();
        loop {
            let taken = self.web.input(&mut self.calls, CLIENT, bytes);
            bytes = &bytes[taken..];
            self.calls.waiting = bytes.len();
            let sent = self.calls.sent.remove(&CLIENT.index).unwrap_or_default();
            if !sent.is_empty() {
                answers.push(String::from_utf8(sent).expect("text"));
                self.web.sent(&mut self.calls, CLIENT);
            }
            // Bytes that are not consumed must wait for further bytes.
            if bytes.is_empty() || taken == 0 {
                return answers;
            }
        }
    }

    fn send_request(&mut self, line: &str, fields: &str) -> String {
        let request = format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut answers = self.send(request.as_bytes());
        assert_eq!(answers.len(), 1, "{request}");
        answers.remove(0)
    }
}

fn head(answer: &str) -> &str {
    &answer[..answer.find("\r\n\r\n").expect("a head")]
}

fn body(answer: &str) -> &str {
    &answer[answer.find("\r\n\r\n").expect("a head") + 4..]
}

#[test]
fn file_response_has_the_current_date() {
    let mut net = TestService::new("");
    let answer = net.send_request("GET /", "");
    assert_eq!(
        answer,
        "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:50:00 GMT\r\n\
         Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nETag: \"e\"\r\n\
         Content-Type: text/plain\r\nAccept-Ranges: bytes\r\nContent-Length: 8\r\n\r\n<p>Hello"
    );
    assert_eq!(
        net.send_request("HEAD /", ""),
        format!("{}\r\n\r\n", head(&answer))
    );
    assert_eq!(body(&net.send_request("GET /long", "")).as_bytes(), long());
    assert!(net.calls.closed.is_empty());
}

#[test]
fn memoized_request_is_answered_and_logged_like_the_first() {
    let mut net = TestService::new("");
    let fields = "User-Agent: tests\r\nReferer: there\r\n";
    let first = net.send_request("GET /long", fields);
    for _ in 0..3 {
        assert_eq!(net.send_request("GET /long", fields), first);
    }
    // With other fields or further bytes, the request is not the memoized one.
    let answer = net.send_request("GET /long", "User-Agent: tests\r\nRange: bytes=0-0\r\n");
    assert_eq!(body(&answer), "a");
    // Two pipelined requests are not found in the memo.
    let request = format!("GET /long HTTP/1.1\r\nHost: a\r\n{fields}\r\n").repeat(2);
    assert_eq!(net.send(request.as_bytes()), [first.clone(), first]);
    let log = MachineView(None).log(&net.web.journal);
    let line = "\"GET /long HTTP/1.1\" 200 5000 \"there\" \"tests\" 0\n";
    // All except the range request, whether parsed or found in the memo.
    assert_eq!(log.matches(line).count(), 6, "{log}");
    assert_eq!(net.web.counters[UnikernelCounter::Requests], 7);
}

#[test]
fn conditional_and_range_requests_get_304_206_412_416() {
    let mut net = TestService::new("");
    let answer = net.send_request("GET /", "If-None-Match: \"e\"\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 304 ") && answer.contains("ETag: \"e\""),
        "{answer}"
    );
    assert_eq!(body(&answer), "");
    let answer = net.send_request("GET /long", "Range: bytes=1-3\r\n");
    assert!(
        answer.contains("Content-Range: bytes 1-3/5000\r\n"),
        "{answer}"
    );
    assert_eq!(body(&answer), "bcd");
    let answer = net.send_request("GET /long", "Range: bytes=0-0,4999-\r\n");
    assert_eq!(body(&answer).matches("Content-Range: bytes ").count(), 2);
    let answer = net.send_request("GET /long", "Range: bytes=9000-\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 416 ") && answer.contains("bytes */5000"),
        "{answer}"
    );
    let answer = net.send_request("GET /", "If-Match: \"f\"\r\n");
    assert!(answer.starts_with("HTTP/1.1 412 "), "{answer}");
}

#[test]
fn missing_resources_and_other_methods_get_their_status() {
    let mut net = TestService::new("");
    for (line, status) in [
        ("GET /nothing", "404"),
        ("GET /sub/", "403"),
        ("POST /", "405"),
        ("OPTIONS *", "204"),
    ] {
        let answer = net.send_request(line, "");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{line}: {answer}"
        );
    }
    let answer = net.send_request("GET /sub?a=1", "");
    assert!(
        answer.contains("301 ") && answer.contains("Location: /sub/?a=1\r\n"),
        "{answer}"
    );
    assert!(net.calls.closed.is_empty());
}

#[test]
fn connection_closes_after_close_errors_and_unread_bodies() {
    for (request, expected) in [
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            "Connection: close",
        ),
        ("GET / HTTP/1.0\r\n\r\n", "Connection: close"),
        (
            // The body is not read, so the connection can't be reused.
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
            "Connection: close",
        ),
        ("GET / HTTP/1.1\r\n\r\n", "400 Bad Request"),
        ("nonsense\r\n\r\n", "400 Bad Request"),
        (
            // An encoded dot segment: other parsers may understand the target differently.
            "GET /%2e%2e/x HTTP/1.1\r\nHost: a\r\n\r\n",
            "Connection: close",
        ),
        (
            "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nConnection: close\r\n\r\n",
            "405 ",
        ),
    ] {
        let mut net = TestService::new("");
        let answers = net.send(request.as_bytes());
        assert!(answers[0].contains(expected), "{request}: {}", answers[0]);
        assert_eq!(net.calls.closed, [CLIENT], "{request}");
    }
    let mut net = TestService::new("");
    let answers = net.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert!(
        answers[0].contains("Connection: keep-alive\r\n"),
        "{}",
        answers[0]
    );
    assert!(net.calls.closed.is_empty());
}

#[test]
fn get_request_body_is_skipped() {
    let next = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = |fields: &str| format!("GET /long HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    for (fields, body) in [
        ("Content-Length: 5\r\n", "GET /"),
        ("Transfer-Encoding: chunked\r\n", "5\r\nGET /\r\n0\r\n\r\n"),
    ] {
        let mut net = TestService::new("");
        let request = [head(fields).as_bytes(), body.as_bytes(), next].concat();
        let answers = net.send(&request);
        assert_eq!(answers.len(), 2, "{fields}");
        assert_eq!(body_of(&answers[0]), long());
        assert!(answers[1].ends_with("<p>Hello"), "{answers:?}");
        assert!(net.calls.closed.is_empty());
    }
    // The server waits for the rest of a body, without parsing it again after each part.
    let mut net = TestService::new("");
    let request = [head("Content-Length: 3000\r\n").as_bytes(), &[b'x'; 3000]].concat();
    for len in [0, 60, 61, 2000, request.len() - 1] {
        assert!(net.send(&request[..len]).is_empty(), "{len}");
    }
    assert_eq!(net.send(&request).len(), 1);
    assert_eq!(net.send(next).len(), 1);
    // The connection is closed after the response if the end of the body is unknown or too far away.
    for (fields, rest) in [
        // Longer than the input buffer.
        ("Content-Length: 20000\r\n", ""),
        // The client sends the body only after 100 (Continue).
        ("Content-Length: 5\r\nExpect: 100-continue\r\n", ""),
        ("Transfer-Encoding: chunked\r\n", "5\r\nGET"),
    ] {
        let mut net = TestService::new("");
        let answers = net.send((head(fields) + rest).as_bytes());
        assert!(answers[0].starts_with("HTTP/1.1 200 "), "{fields}");
        assert!(answers[0].contains("\r\nConnection: close\r\n"), "{fields}");
        assert_eq!(net.calls.closed, [CLIENT]);
    }
    for (fields, rest, status) in [
        ("Content-Length: 1048577\r\n", "", "413"),
        ("Transfer-Encoding: chunked\r\n", "zz\r\n", "400"),
    ] {
        let mut net = TestService::new("");
        let answers = net.send((head(fields) + rest).as_bytes());
        let line = format!("HTTP/1.1 {status} ");
        assert!(answers[0].starts_with(&line), "{answers:?}");
        assert_eq!(net.calls.closed, [CLIENT]);
    }
}

fn body_of(answer: &str) -> Vec<u8> {
    body(answer).as_bytes().to_vec()
}

#[test]
fn split_and_pipelined_requests_are_answered() {
    let request = b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut net = TestService::new("");
    for len in 0..request.len() {
        assert!(net.send(&request[..len]).is_empty(), "{len}");
    }
    assert_eq!(net.send(request).len(), 1);
    let answers = net.send(&request.repeat(3));
    assert_eq!(answers.len(), 3);
    assert!(
        answers
            .iter()
            .all(|answer| body(answer).as_bytes() == long())
    );
}

#[test]
fn head_over_16_kib_gets_431() {
    let mut net = TestService::new("");
    // One such field is below the limit of 16 KiB; three exceed it.
    let field = format!("Cookie: {}\r\n", "c".repeat(8000));
    assert!(
        net.send_request("GET /", &field)
            .starts_with("HTTP/1.1 200 ")
    );
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{}", field.repeat(3));
    let answers = net.send(&request.as_bytes()[..16_384]);
    assert!(answers[0].starts_with("HTTP/1.1 431 "), "{}", answers[0]);
    assert_eq!(net.calls.closed, [CLIENT]);
}

#[test]
fn half_closed_client_gets_its_responses() {
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut net = TestService::new("");
    net.web.input(&mut net.calls, CLIENT, request);
    net.web.finished(&mut net.calls, CLIENT);
    assert!(net.calls.closed.is_empty());
    // The connection is closed after the response is acknowledged.
    net.web.sent(&mut net.calls, CLIENT);
    assert_eq!(net.calls.closed, [CLIENT]);
    let mut net = TestService::new("");
    net.web.finished(&mut net.calls, CLIENT);
    assert_eq!(net.calls.closed, [CLIENT]);
}

#[test]
fn incomplete_head_times_out_with_408() {
    let mut net = TestService::new("");
    net.web.input(&mut net.calls, CLIENT, b"GET / HT");
    let next_us = net.web.tick(&mut net.calls);
    assert!(next_us.is_some_and(|us| us <= 11_000_000));
    net.web.set_now(CurrentTime {
        // The timeout of 10 seconds for a head has passed.
        mono_us: 11_000_001,
        unix_s: 784_111_810,
    });
    net.web.tick(&mut net.calls);
    let sent = net.calls.sent.remove(&CLIENT.index).expect("an answer");
    assert!(sent.starts_with(b"HTTP/1.1 408 "));
    assert_eq!(net.calls.closed, [CLIENT]);
}

#[test]
fn connection_is_reset_without_a_free_buffer() {
    let mut net = TestService::new("");
    net.calls.is_full = true;
    net.web
        .input(&mut net.calls, CLIENT, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(net.calls.aborted, [CLIENT]);
}

#[test]
fn trusted_client_can_read_counters_and_log() {
    let mut net = TestService::new("");
    net.send_request("GET /", "User-Agent: tests\r\n");
    let answer = net.send_request("GET /.lowroad/status", "");
    assert!(body(&answer).contains("http_requests"), "{answer}");
    assert!(body(&answer).contains("net_frames"), "{answer}");
    let answer = net.send_request("GET /.lowroad/status.json", "");
    assert!(body(&answer).starts_with("{\"uptime_s\":1,"), "{answer}");
    let answer = net.send_request("GET /.lowroad/log", "");
    assert!(
        body(&answer).contains("\"GET / HTTP/1.1\" 200 8 \"-\" \"tests\""),
        "{answer}"
    );
}
