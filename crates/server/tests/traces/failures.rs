//! Collectors that are down, silent, overloaded, or that answer with garbage: requests are answered, spans are bounded
//! and counted, and the error log reports the failure and the recovery once.

use std::io::Write;
use std::net::TcpListener;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, wait_until};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use prost::Message;

use crate::support::{ACCEPTED, collector, counter, received, traced, wait_for_spans};

fn wait_for_counter(folder: &TempFolder, name: &str, value: u64) {
    wait_until(name, || (counter(folder, name) >= value).then_some(()));
}

/// A collector that gives the first request this answer, and accepts all others.
fn collector_with_first_answer(answer: &'static [u8], stays_open: bool) -> TestOrigin {
    TestOrigin::start(move |request, stream| {
        let is_first = request.number == 0;
        let answer = if is_first {
            answer
        } else {
            ACCEPTED.as_bytes()
        };
        stream.write_all(answer).is_ok() && (!is_first || stays_open)
    })
}

#[test]
fn spans_wait_for_an_overloaded_collector() {
    for answer in [
        &b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"[..],
        b"HTTP/1.1 429 Slow down\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n",
        // Neither HTTP nor anything else, and no response at all.
        b"\x16\x03\x01garbage\r\n\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
    ] {
        let folder = TempFolder::new();
        let collector = collector_with_first_answer(answer, answer.ends_with(b"\r\n\r\n"));
        let server = traced(&folder, &collector.url(), "timeout = \"2s\"", "");
        assert_eq!(server.get("/small").status, 200);
        server.wait_for_error_line("spans wait up to queue_max");
        server.wait_for_error_line("accepts spans again");
        // The first export and its repetition.
        let spans = wait_for_spans(&collector, 2);
        assert_eq!(spans[0].span, spans[1].span);
        wait_for_counter(&folder, "spans_exported", 1);
        assert!(counter(&folder, "span_export_failures") >= 1);
        assert_eq!(counter(&folder, "spans_refused"), 0);
    }
}

#[test]
fn refused_spans_are_counted_and_not_repeated() {
    let folder = TempFolder::new();
    let collector = collector_with_first_answer(
        b"HTTP/1.1 400 Bad\r\nContent-Length: 8\r\n\r\nno token",
        true,
    );
    let server = traced(&folder, &collector.url(), "", "");
    server.get("/small");
    let line = server.wait_for_error_line("refuses spans");
    assert!(line.contains("status 400: no token"), "{line}");
    wait_for_counter(&folder, "spans_refused", 1);
    server.get("/small");
    server.wait_for_error_line("accepts spans again");
    assert_eq!(counter(&folder, "spans_exported"), 1);
}

#[test]
fn partial_success_is_counted() {
    let folder = TempFolder::new();
    let partial = ExportTraceServiceResponse {
        partial_success: Some(ExportTracePartialSuccess {
            rejected_spans: 1,
            error_message: "too old".into(),
        }),
    };
    let body = partial.encode_to_vec();
    let collector = TestOrigin::start(move |_, stream| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), &body].concat()).is_ok()
    });
    let server = traced(&folder, &collector.url(), "", "");
    server.get("/small");
    let line = server.wait_for_error_line("refuses spans");
    assert!(line.contains("too old"), "{line}");
    wait_for_counter(&folder, "spans_refused", 1);
    assert_eq!(counter(&folder, "spans_exported"), 0);
}

#[test]
fn queue_is_bounded_while_the_collector_never_answers() {
    // Connections are accepted by the kernel, but never read.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", silent.local_addr().expect("an address"));
    let folder = TempFolder::new();
    let mut server = traced(&folder, &url, "queue_max = 16\ntimeout = \"100ms\"", "");
    let mut client = server.connect();
    for _ in 0..600 {
        assert_eq!(client.get("/small", "").status, 200);
    }
    let line = server.wait_for_error_line("spans wait up to queue_max");
    assert!(line.contains("no response in time"), "{line}");
    wait_for_counter(&folder, "spans_dropped", 1);
    let dropped = counter(&folder, "spans_dropped");
    client.get("/small", "");
    wait_for_counter(&folder, "spans_dropped", dropped + 1);
    // The end of the server does not wait for the collector.
    server.signal("TERM");
    assert!(server.wait_for_end().success());
}

#[test]
fn unreachable_collector_is_reported_once() {
    // A port on which nothing listens.
    let unused = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", unused.local_addr().expect("an address"));
    drop(unused);
    let folder = TempFolder::new();
    let server = traced(&folder, &url, "", "");
    server.get("/small");
    server.wait_for_error_line("Connection refused");
    wait_for_counter(&folder, "span_export_failures", 2);
}

#[test]
fn pending_spans_are_exported_at_the_end_of_the_server() {
    let (folder, collector) = (TempFolder::new(), collector());
    let mut server = traced(&folder, &collector.url(), "", "");
    let mut client = server.connect();
    for _ in 0..100 {
        assert_eq!(client.get("/small", "").status, 200);
    }
    drop(client);
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    assert_eq!(received(&collector).len(), 100);
}
