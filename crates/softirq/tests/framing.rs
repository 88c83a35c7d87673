//! The ends of requests and responses on kernel connections, as the programs derive them from passing segments.
//! Tracking must stop at anything that the programs do not understand.

mod common;

use common::bench::{self, Bench, FrameEffect};
use common::frames::{ACK, PSH, ReceivedSegment, SYN, SentSegment, receive};
use lowroad_softirq::layout;
use lowroad_softirq::programs::loader::ProgramTier;
use lowroad_testkit::skip;

const ISN: u32 = 0xffff_ff00;

/// The same values as in response_tracking.h.
const FOLLOWED: u16 = 1;
const FOLLOWED_END: u16 = 4;
const FOLLOWED_LENGTH: u16 = 0xf000;

const GET: &str = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n";

/// A client with a first request that was punted.
struct Exchange<'b> {
    bench: &'b Bench,
    is_v6: bool,
    port: u16,
    /// The sequence number of the server's first byte.
    begin: u32,
}

impl Exchange<'_> {
    fn new<'b>(bench: &'b Bench, is_v6: bool, port: u16, request: &[u8]) -> Exchange<'b> {
        let syn = SentSegment {
            is_v6,
            port,
            flags: SYN,
            seq: ISN,
            window: 64_000,
            options: vec![2, 4, 5, 180],
            ..SentSegment::default()
        };
        let FrameEffect::Reply(reply) = bench.run(&syn.frame()) else {
            panic!("no SYN-ACK");
        };
        let answer: ReceivedSegment = receive(&reply, &syn.frame()).expect("a SYN-ACK");
        let exchange = Exchange {
            bench,
            is_v6,
            port,
            begin: answer.seq.wrapping_add(1),
        };
        let sent = SentSegment {
            flags: ACK | PSH,
            seq: ISN.wrapping_add(1),
            ack: exchange.begin,
            options: Vec::new(),
            payload: request.to_vec(),
            ..syn
        };
        bench.run(&sent.frame());
        exchange
    }

    /// Passes a segment of the server with this payload, at an offset from its first byte.
    fn respond(&self, at: usize, payload: &[u8]) {
        let at = u32::try_from(at).expect("short");
        let sent = SentSegment {
            is_v6: self.is_v6,
            port: self.port,
            flags: ACK,
            seq: self.begin.wrapping_add(at),
            ack: ISN.wrapping_add(1),
            window: 500,
            payload: payload.to_vec(),
            ..SentSegment::default()
        };
        assert!(self.bench.passes_egress(&sent.reversed()), "it passes");
    }

    fn connection(&self) -> layout::connection {
        let found = self.bench.connection(self.is_v6, self.port);
        found.expect("a connection").2
    }

    /// The length of the request; `None` if it is unknown.
    fn request_len(&self) -> Option<usize> {
        let connection = self.connection();
        let is_known = connection.answer_len & FOLLOWED != 0;
        let len = connection.request_len | connection.answer_len & FOLLOWED_LENGTH;
        is_known.then_some(len.into())
    }

    /// The length of the response; `None` if it is unknown.
    fn response_len(&self) -> Option<usize> {
        let connection = self.connection();
        let is_known = connection.answer_len & FOLLOWED_END != 0;
        let len = connection.answer.wrapping_sub(self.begin);
        is_known.then(|| usize::try_from(len).expect("64 bits"))
    }
}

fn on_bench(test: &str, run: impl Fn(&Bench) + Sync) {
    if let Some(reason) = bench::missing_bench_requirement() {
        return skip(test, &reason);
    }
    let bench = Bench::new(ProgramTier::Tc);
    bench.beat(0);
    bench
        .level
        .prepare(layout::SETTING_LEARN, 60, 1500)
        .expect("keys");
    bench.namespace.enter(|| run(&bench));
}

#[test]
fn request_length_is_derived_from_head() {
    on_bench("request_length_is_derived_from_head", |bench| {
        let with = |fields: &str| format!("GET /x HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let post = |fields: &str| format!("POST /x HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let whole = |text: String| {
            let len = text.len();
            (text, Some(len))
        };
        let length = |text: String, body: usize| {
            let len = text.len() + body;
            (text, Some(len))
        };
        let cases = [
            whole(GET.to_owned()),
            whole(GET.replace("GET", "HEAD")),
            whole(with("Cookie: a=b\r\n")),
            whole(with("Range: bytes=0-1\r\nConnection: Keep-Alive\r\n")),
            whole(with("Content-Length: 0\r\nContent-Type: a/b\r\n")),
            length(with("Content-Length: 7\r\n"), 7),
            length(post("Content-Type: a/b\r\ncontent-length: 1000\r\n"), 1000),
            whole(post("Content-Length: 3\r\n") + "abc"),
            length(post("Content-Length: 9\r\n") + "abc", 6),
            length(post("Content-Length: 60000\r\n"), 60_000),
            // More data than Content-Length, and a length that exceeds the field in the table.
            (post("Content-Length: 2\r\n") + "abc", None),
            (post("Content-Length: 65536\r\n"), None),
            (
                post("Content-Length: 3\r\nContent-Length: 3\r\n") + "abc",
                None,
            ),
            // Syntax that different parsers interpret in different ways.
            (post("Content-Length : 3\r\n") + "abc", None),
            (post("Content-Length:3\r\n") + "abc", None),
            (post("Content-Length: +3\r\n") + "abc", None),
            (post("Content-Length: 3, 3\r\n") + "abc", None),
            (post("Content-Length: 3\t\r\n") + "abc", None),
            (post("Content-Length:\t3\r\n") + "abc", None),
            (
                with("Content-Length: 0\r\n").replace("Host: h", "Host: h\t"),
                None,
            ),
            (
                with("Content-Length: 0\r\n").replace("Host: h", "Host:\th"),
                None,
            ),
            (post("Content-Length: 1234567890\r\n"), None),
            (post("Content-Length: \r\n"), None),
            // Transfer codings, also after obsolete line folding and after a bare LF.
            (post("Transfer-Encoding: chunked\r\n") + "0\r\n\r\n", None),
            (post("Transfer-Encoding : chunked\r\n") + "0\r\n\r\n", None),
            (post("A: b\r\n Transfer-Encoding: chunked\r\n"), None),
            (post("A: b\nTransfer-Encoding: chunked\r\n"), None),
            // Fields that change the protocol or authenticate the connection.
            (post("Expect: 100-continue\r\nContent-Length: 3\r\n"), None),
            (with("Cookie: a\r\nUpgrade: h2c\r\n"), None),
            (with("Cookie: a\r\nConnection: close\r\n"), None),
            (with("Cookie: a\r\nConnection: keep-alive, TE\r\n"), None),
            (with("Cookie: a\r\nauthorization: Basic YTpi\r\n"), None),
            (with("Cookie: a\r\nProxy-Authorization: a\r\n"), None),
            (with("Cookie: a\r\nHTTP2-Settings: a\r\n"), None),
            // A second request, an incomplete head, other methods and versions.
            (with("Cookie: a\r\n") + GET, None),
            (with("Cookie: a\r\n").replace("\r\n\r\n", "\r\n"), None),
            (GET.replace("GET", "PUT"), None),
            (post("A: b\r\n").replace("HTTP/1.1", "HTTP/1.0"), None),
            (post("A: b\r\n").replace(" HTTP", "  HTTP"), None),
        ];
        for ((request, len), port) in cases.into_iter().zip(20_000..) {
            for is_v6 in [false, true] {
                let exchange = Exchange::new(bench, is_v6, port, request.as_bytes());
                assert_eq!(exchange.request_len(), len, "{request:?}");
            }
        }
    });
}

/// A head with these fields, and its length.
fn head(status: &str, fields: &str) -> (Vec<u8>, usize) {
    let head = format!("HTTP/1.1 {status}\r\nServer: s\r\n{fields}\r\n");
    let len = head.len();
    (head.into_bytes(), len)
}

#[test]
fn response_length_is_derived_from_head() {
    on_bench("response_length_is_derived_from_head", |bench| {
        let cases = [
            ("200 OK", "Content-Length: 5000\r\n", Some(5000)),
            ("404 Not Found", "content-length: 0\r\n", Some(0)),
            (
                "200 OK",
                "Connection: keep-alive\r\nContent-Length: 1\r\n",
                Some(1),
            ),
            ("200 OK", "Content-Length: 999999999\r\n", Some(999_999_999)),
            // No body, regardless of Content-Length (RFC 9112 §6.3).
            ("204 No Content", "", Some(0)),
            ("304 Not Modified", "Content-Length: 77\r\n", Some(0)),
            // Bodies that end with the connection, connections that do not persist, and another protocol.
            ("200 OK", "", None),
            ("200 OK", "Connection: close\r\nContent-Length: 5\r\n", None),
            (
                "200 OK",
                "Connection: Upgrade\r\nContent-Length: 5\r\n",
                None,
            ),
            ("101 Switching Protocols", "Content-Length: 5\r\n", None),
            // Ambiguous or unusual framing.
            ("200 OK", "Content-Length: 5\r\nContent-Length: 5\r\n", None),
            ("200 OK", "Content-Length: 5x\r\n", None),
            ("200 OK", "Content-Length:5\r\n", None),
            (
                "200 OK",
                "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                None,
            ),
            ("200 OK", "Transfer-Encoding: gzip, chunked\r\n", None),
            ("200 OK", "Content-Length: 5\r\n folded\r\n", None),
            // Invalid status codes.
            ("700 What", "Content-Length: 5\r\n", None),
            ("20 OK", "Content-Length: 5\r\n", None),
        ];
        for ((status, fields, body), port) in cases.into_iter().zip(20_000..) {
            for is_v6 in [false, true] {
                let exchange = Exchange::new(bench, is_v6, port, GET.as_bytes());
                let (bytes, head_len) = head(status, fields);
                exchange.respond(0, &bytes);
                let len = body.map(|body| head_len + body);
                assert_eq!(exchange.response_len(), len, "{status}, {fields:?}");
                let state = u32::from(exchange.connection().state);
                assert_eq!(state, layout::STATE_KERNEL, "its socket lives");
            }
        }
        let exchange = Exchange::new(bench, false, 21_000, GET.replace("GET", "HEAD").as_bytes());
        let (bytes, len) = head("200 OK", "Content-Length: 5000\r\n");
        exchange.respond(0, &bytes);
        assert_eq!(exchange.response_len(), Some(len), "to a HEAD");
    });
}

#[test]
fn response_in_several_segments_is_tracked() {
    let test = "response_in_several_segments_is_tracked";
    on_bench(test, |bench| {
        let next = |port| Exchange::new(bench, false, port, GET.as_bytes());
        let (bytes, head_len) = head("200 OK", "Content-Length: 1000\r\n");
        let len = head_len + 1000;
        // Head and body, and retransmissions of both.
        let exchange = next(22_000);
        exchange.respond(0, &bytes);
        exchange.respond(head_len, &[b'x'; 600]);
        exchange.respond(head_len + 600, &[b'x'; 400]);
        exchange.respond(head_len, &[b'x'; 1000]);
        exchange.respond(0, &bytes);
        assert_eq!(exchange.response_len(), Some(len));
        // One byte more than Content-Length.
        exchange.respond(len, b"x");
        assert_eq!(exchange.response_len(), None);
        // The same in one segment.
        let exchange = next(22_001);
        exchange.respond(0, &[&bytes[..], &[b'x'; 1001]].concat());
        assert_eq!(exchange.response_len(), None);
        // A head in two segments.
        let exchange = next(22_002);
        exchange.respond(0, &bytes[..30]);
        exchange.respond(30, &bytes[30..]);
        assert_eq!(exchange.response_len(), None);
        // A segment without the first byte of the response.
        let exchange = next(22_003);
        exchange.respond(1, &bytes);
        assert_eq!(exchange.response_len(), None);
        // After an interim response: both in one segment, or in two.
        let (hints, hints_len) = head("103 Early Hints", "Link: <a>\r\n");
        let exchange = next(22_004);
        exchange.respond(0, &[&hints[..], &bytes].concat());
        assert_eq!(exchange.response_len(), Some(hints_len + len));
        let exchange = next(22_005);
        exchange.respond(0, &hints);
        assert_eq!(exchange.response_len(), None);
        exchange.respond(hints_len, &bytes);
        assert_eq!(exchange.response_len(), Some(hints_len + len));
    });
}

#[test]
fn chunked_response_length_is_derived_from_chunks() {
    on_bench("chunked_response_length_is_derived_from_chunks", |bench| {
        let (head, head_len) = head("200 OK", "Transfer-Encoding: chunked\r\n");
        let cases: [(&[&str], Option<usize>); 14] = [
            (&["3\r\nabc\r\n0\r\n\r\n"], Some(13)),
            (&["0\r\n\r\n"], Some(5)),
            (
                &["3\r\nabc\r\n", "A\r\n0123456789\r\n", "0\r\n\r\n"],
                Some(28),
            ),
            (&["3\r\na", "bc", "\r\n", "0\r\n\r\n"], Some(13)),
            (&["00c\r\n0123456789ab\r\n0\r\n\r\n"], Some(24)),
            // Incomplete or malformed chunks, a split chunk size, extensions, trailers, excess data.
            (&["3\r\nabc\r\n"], None),
            (&["3\r\nabc\r\n0\r\n"], None),
            (&["3\r", "\nabc\r\n0\r\n\r\n"], None),
            (&["3;a=b\r\nabc\r\n0\r\n\r\n"], None),
            (&["g\r\nabc\r\n0\r\n\r\n"], None),
            (&["\r\n0\r\n\r\n"], None),
            (&["12345678\r\nabc\r\n0\r\n\r\n"], None),
            (&["0\r\nTrailer: x\r\n\r\n"], None),
            (&["0\r\n\r\nx"], None),
        ];
        for ((pieces, len), port) in cases.into_iter().zip(23_000..) {
            for is_at_once in [false, true] {
                let exchange = Exchange::new(bench, is_at_once, port, GET.as_bytes());
                let mut at = head_len;
                match is_at_once {
                    true => {
                        let first = [&head[..], pieces[0].as_bytes()].concat();
                        exchange.respond(0, &first);
                        at += pieces[0].len();
                    }
                    false => exchange.respond(0, &head),
                }
                for piece in &pieces[usize::from(is_at_once)..] {
                    exchange.respond(at, piece.as_bytes());
                    at += piece.len();
                }
                let len = len.map(|len| head_len + len);
                assert_eq!(exchange.response_len(), len, "{pieces:?}");
            }
        }
    });
}
