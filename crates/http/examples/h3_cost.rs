//! Receives requests of an HTTP/3 connection, and sends a prebuilt head and 1 KB of body for each, N times 32 streams,
//! to count instructions under callgrind. The counterpart of `h2_cost`:
//!
//! ```text
//! cargo build --release -p lowroad-http --example h3_cost
//! valgrind --tool=callgrind target/release/examples/h3_cost 100
//! ```
//!
//! With a second argument `chromium` it sends requests like a browser's, each with another path.

use std::hint::black_box;

use lowroad_http::fields::{FieldLines, FieldName, StandardHeader};
use lowroad_http::h1::BodyLen;
use lowroad_http::h3::{
    FieldSection, GlitchCounters, H3Server, H3ServerEvent, H3Settings, H3Turn, StreamBytes,
    StreamId, frames,
};
use lowroad_http::{Request, StatusCode};

const DATE: [u8; 29] = *b"Sun, 06 Nov 1994 08:49:37 GMT";
const STREAMS: u64 = 32;
const CONTROL: u64 = 2;
const ENCODER: u64 = 6;
/// The fields of a request for a subresource of a page.
const FIELDS: [(&str, &str); 14] = [
    (":authority", "www.example.com"),
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

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds: u64 = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1);
    let is_chromium = arguments.next().is_some_and(|it| it == "chromium");
    let (settings, mut counters) = (H3Settings::default(), GlitchCounters::default());
    let (mut control, mut decoder) = (Vec::new(), Vec::new());
    let mut turn = H3Turn {
        now_ms: 1,
        settings: &settings,
        control: &mut control,
        decoder: &mut decoder,
        counters: &mut counters,
    };
    let mut server = H3Server::new(&mut turn);
    let inserted: &[(&str, &str)] = match is_chromium {
        true => &FIELDS,
        false => &[
            (":authority", "localhost:8080"),
            ("user-agent", "h2load nghttp"),
        ],
    };
    open(&mut server, inserted, &mut turn);
    let fields = [(
        FieldName::Known(StandardHeader::ContentType),
        &b"text/html"[..],
    )];
    let section = FieldSection::new(StatusCode::OK, fields, BodyLen::Known(1024));
    let (body, mut text) = (vec![b'x'; 1024], Vec::new());
    let (mut input, mut encoded) = (Vec::new(), Vec::new());
    let mut out = Vec::with_capacity(64 * 1024);
    for number in 0..rounds * STREAMS {
        input.clear();
        encoded.clear();
        put_section(number, inserted.len(), is_chromium, &mut encoded);
        frames::put_frame(frames::kind::HEADERS, &encoded, &mut input);
        take(
            &mut server,
            number,
            black_box(&input),
            &mut text,
            &section,
            &mut out,
            &mut turn,
        );
        // A worker sends when all input is consumed.
        if number % STREAMS == STREAMS - 1 {
            send(&mut server, &body, &mut out);
            black_box(&out);
            out.clear();
            turn.decoder.clear();
        }
    }
    println!("{} streams", server.streams());
}

/// Opens the client's control and encoder stream, and inserts fields into the dynamic table.
fn open(server: &mut H3Server, fields: &[(&str, &str)], turn: &mut H3Turn<'_>) {
    let mut control = vec![0];
    frames::put_frame(frames::kind::SETTINGS, &[], &mut control);
    // The type, and a capacity of 4,096 bytes.
    let mut encoder = vec![2, 0x3f, 0xe1, 0x1f];
    for (name, value) in fields {
        encoder.push(0x40 | name.len() as u8 & 0x1f);
        encoder.extend_from_slice(name.as_bytes());
        match value.len() {
            len @ ..127 => encoder.push(len as u8),
            len => encoder.extend_from_slice(&[127, (len - 127) as u8]),
        }
        encoder.extend_from_slice(value.as_bytes());
    }
    for (stream_id, bytes) in [(CONTROL, &control), (ENCODER, &encoder)] {
        let input = StreamBytes {
            bytes,
            is_end: false,
        };
        let (mut text, mut head_slot) = (Vec::new(), None);
        let step = server.next(stream_id, input, &mut text, &mut head_slot, turn);
        assert!(step.is_ok());
    }
}

/// A field section with all inserted fields by their index, and the path as h2load or a browser sends it.
fn put_section(number: u64, count: usize, is_chromium: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(&[count as u8 + 1, 0, 0xd1, 0xd7]);
    match is_chromium {
        true => {
            let path = format!("\x51\x19/images/levels-{:05}.avif", number % 100_000);
            out.extend_from_slice(path.as_bytes());
        }
        false => out.push(0xc1),
    }
    out.extend((0..count as u8).rev().map(|index| 0x80 | index));
}

/// Processes a received stream as a worker does.
#[inline(never)]
fn take(
    server: &mut H3Server,
    number: u64,
    bytes: &[u8],
    text: &mut Vec<u8>,
    section: &FieldSection,
    out: &mut Vec<u8>,
    turn: &mut H3Turn<'_>,
) {
    let mut used = 0;
    loop {
        let mut head_slot = None;
        let input = StreamBytes {
            bytes: &bytes[used..],
            is_end: true,
        };
        let step = match server.next(number * 4, input, text, &mut head_slot, turn) {
            Ok(step) => step,
            Err(fault) => panic!("{fault:?}"),
        };
        used += step.used;
        if let Some(H3ServerEvent::Request(head)) = step.event {
            let stream = head.stream;
            answer(server, stream, &head.request, section, out);
        } else if step.event.is_none() && step.used == 0 {
            break;
        }
    }
}

/// Responds to a request as a service does.
#[inline(never)]
fn answer(
    server: &mut H3Server,
    stream: StreamId,
    request: &Request<'_>,
    section: &FieldSection,
    out: &mut Vec<u8>,
) {
    black_box(request.target);
    let lines = FieldLines::NONE;
    if server.respond_prebuilt(stream, section, 1024, &DATE, lines, out) {
        assert!(server.whole_body(stream, 1024).is_ok());
    }
}

/// Sends bodies as a worker does when all input is consumed.
#[inline(never)]
fn send(server: &mut H3Server, body: &[u8], out: &mut Vec<u8>) {
    while let Some(piece) = server.send(16_384, out) {
        out.extend_from_slice(&body[..piece.len as usize]);
    }
}
