//! Receives requests of an HTTP/2 connection, as `h2load` sends them, and sends a prebuilt head and 1 KB of body for
//! each, N times 32 streams, to count instructions under callgrind:
//!
//! ```text
//! cargo build --release -p lowroad-http --example h2_cost
//! valgrind --tool=callgrind target/release/examples/h2_cost 100
//! ```
//!
//! Run it with two values of N; the difference divided by 32 times the difference of N is the cost of one exchange.
//! With a second argument `chromium` it sends requests like a browser's, each with another path.

use std::hint::black_box;

use lowroad_http::fields::{FieldLines, FieldName, StandardHeader};
use lowroad_http::h1::BodyLen;
use lowroad_http::h2::{
    ConnectionTurn, FieldBlock, GlitchCounters, H2Server, H2ServerEvent, H2Settings, PREFACE,
    StreamId, frame,
};
use lowroad_http::{Request, StatusCode};

const DATE: [u8; 29] = *b"Sun, 06 Nov 1994 08:49:37 GMT";
const STREAMS: u32 = 32;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds: u32 = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1);
    let is_chromium = arguments.next().is_some_and(|it| it == "chromium");
    let (settings, mut counters) = (H2Settings::default(), GlitchCounters::default());
    let mut out = Vec::with_capacity(64 * 1024);
    let mut turn = ConnectionTurn {
        now_ms: 1,
        settings: &settings,
        out: &mut out,
        counters: &mut counters,
    };
    let mut server = H2Server::new(&mut turn);
    let mut input = PREFACE.to_vec();
    frame::put_settings(&[(4, 1 << 30)], &mut input);
    frame::put_window_update(0, 1 << 30, &mut input);
    let fields = [(
        FieldName::Known(StandardHeader::ContentType),
        &b"text/html"[..],
    )];
    let block = FieldBlock::new(StatusCode::OK, fields, BodyLen::Known(1024));
    let (body, mut text, mut id) = (vec![b'x'; 1024], Vec::new(), 1);
    for round in 0..rounds {
        for _ in 0..STREAMS {
            match is_chromium {
                true => put_browser(id, &mut input),
                false => put_h2load(id, &mut input),
            }
            id += 2;
        }
        if round % 1000 == 999 {
            frame::put_window_update(0, 1024 * 1000 * STREAMS, &mut input);
        }
        take(
            &mut server,
            black_box(&input),
            &mut text,
            &block,
            &body,
            &mut turn,
        );
        black_box(&turn.out);
        turn.out.clear();
        input.clear();
    }
    println!("{} streams", id / 2);
}

/// The first request adds the fields to the dynamic table; the others use their indexes.
fn put_h2load(id: u32, input: &mut Vec<u8>) {
    let block: &[u8] = match id {
        1 => b"\x82\x86\x41\x0elocalhost:8080\x85\x7a\x0dh2load nghttp",
        _ => b"\x82\x86\xbf\x85\xbe",
    };
    frame::put_head(frame::kind::HEADERS, 5, id, block.len(), input);
    input.extend_from_slice(block);
}

/// A request for a subresource of a page: after the first request, all fields except the path are in the dynamic table.
fn put_browser(id: u32, input: &mut Vec<u8>) {
    const FIELDS: [(&str, &str); 13] = [
        ("sec-ch-ua-platform", "\"Linux\""),
        (
            "user-agent",
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
        ),
        (
            "sec-ch-ua",
            "\"Chromium\";v=\"142\", \"Not_A Brand\";v=\"99\"",
        ),
        ("sec-ch-ua-mobile", "?0"),
        (
            "accept",
            "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8",
        ),
        ("sec-fetch-site", "same-origin"),
        ("sec-fetch-mode", "no-cors"),
        ("sec-fetch-dest", "image"),
        ("referer", "https://www.example.com/articles/levels.html"),
        ("accept-encoding", "gzip, deflate, br, zstd"),
        ("accept-language", "en-US,en;q=0.9"),
        ("cookie", "session=0123456789abcdef"),
        ("priority", "u=2, i"),
    ];
    let mut block = b"\x82\x87".to_vec();
    match id {
        1 => {
            block.extend_from_slice(b"\x41\x0fwww.example.com");
            for (name, value) in FIELDS {
                block.extend_from_slice(&[0x40, name.len() as u8]);
                block.extend_from_slice(name.as_bytes());
                block.push(value.len() as u8);
                block.extend_from_slice(value.as_bytes());
            }
        }
        _ => block.extend((0..14).rev().map(|number| 0xbe + number)),
    }
    // The path is a literal without indexing, as browsers send it.
    let path = format!("\x04\x19/images/levels-{:05}.avif", id % 100_000);
    block.splice(2..2, path.bytes());
    frame::put_head(frame::kind::HEADERS, 5, id, block.len(), input);
    input.extend_from_slice(&block);
}

/// Processes received bytes as a worker does.
#[inline(never)]
fn take(
    server: &mut H2Server,
    input: &[u8],
    text: &mut Vec<u8>,
    block: &FieldBlock,
    body: &[u8],
    turn: &mut ConnectionTurn<'_>,
) {
    let mut used = 0;
    while used < input.len() {
        let mut head_slot = None;
        let step = match server.next(&input[used..], text, &mut head_slot, turn) {
            Ok(step) => step,
            Err(fault) => panic!("{fault:?}"),
        };
        used += step.used;
        if let Some(H2ServerEvent::Request(head)) = step.event {
            let stream = head.stream;
            answer(server, stream, &head.request, block, turn);
        } else if step.event.is_none() && step.used == 0 {
            break;
        }
    }
    send(server, body, turn);
}

/// Responds to a request as a service does.
#[inline(never)]
fn answer(
    server: &mut H2Server,
    stream: StreamId,
    request: &Request<'_>,
    block: &FieldBlock,
    turn: &mut ConnectionTurn<'_>,
) {
    black_box(request.target);
    let has_body =
        server.respond_prebuilt(stream, block, 1024, (&DATE, FieldLines::NONE), turn.out);
    if has_body {
        assert!(server.whole_body(stream, 1024).is_ok());
    }
}

/// Sends bodies as a worker does when all input is consumed.
#[inline(never)]
fn send(server: &mut H2Server, body: &[u8], turn: &mut ConnectionTurn<'_>) {
    while let Some(piece) = server.send(16_384, turn.out) {
        turn.out.extend_from_slice(&body[..piece.len as usize]);
    }
}
