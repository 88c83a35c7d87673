//! Receives a request and sends a prebuilt response of 1 KB, N times, to count instructions under callgrind:
//!
//! ```text
//! cargo build --release -p lowroad-http --example h1_cost
//! valgrind --tool=callgrind target/release/examples/h1_cost 10000
//! ```
//!
//! Run it with two values of N; the difference divided by the difference of N is the cost of one exchange.

use std::hint::black_box;

use lowroad_http::h1::{H1Server, H1ServerEvent};
use lowroad_http::head_writer::{HeadWriter, date_offset};
use lowroad_http::{Request, RequestLimits, StatusCode};

const HEAD: &[u8] = b"GET /index.html HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: loadgen/1.0\r\nAccept: */*\r\n\r\n";
const DATE: [u8; 29] = *b"Sun, 06 Nov 1994 08:49:37 GMT";

fn main() {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok());
    let (mut server, limits) = (H1Server::default(), RequestLimits::default());
    let built = built();
    let mut out = Vec::with_capacity(2048);
    for _ in 0..rounds.unwrap_or(1_u32) {
        out.clear();
        take(&mut server, black_box(HEAD), &limits, &built, &mut out);
        black_box(&out);
    }
    println!("{} bytes", out.len());
}

/// Processes received bytes as a worker does.
#[inline(never)]
fn take(
    server: &mut H1Server,
    input: &[u8],
    limits: &RequestLimits,
    built: &[u8],
    out: &mut Vec<u8>,
) {
    let mut used = 0;
    while used < input.len() {
        let mut head_slot = None;
        let step = match server.next(&input[used..], limits, &mut head_slot) {
            Ok(step) => step,
            Err(refusal) => panic!("{refusal:?}"),
        };
        used += step.used;
        match step.event {
            Some(H1ServerEvent::Request(head)) => answer(server, &head.request, built, out),
            Some(H1ServerEvent::Data(_) | H1ServerEvent::End { .. }) => {}
            None if step.used > 0 => {}
            None => return,
        }
    }
}

/// Responds to a request as a service does.
#[inline(never)]
fn answer(server: &mut H1Server, request: &Request<'_>, built: &[u8], out: &mut Vec<u8>) {
    black_box(request.target);
    if !server.is_request_whole() {
        server.close();
    }
    let start = out.len();
    if server.accepts_prebuilt() {
        out.extend_from_slice(built);
    }
    let date_at = start + date_offset(StatusCode::OK);
    out[date_at..date_at + 29].copy_from_slice(&DATE);
    server.end_sent_body();
}

/// A response of 1 KB.
fn built() -> Vec<u8> {
    let mut built = Vec::new();
    let mut head = HeadWriter::start(&mut built, StatusCode::OK, &DATE);
    head.field("Content-Type", b"text/html")
        .field_u64("Content-Length", 1024);
    head.finish();
    built.resize(built.len() + 1024, b'x');
    built
}
