//! Tests which responses are compressed, their fields, and backpressure.

use std::io::Read;

use lowroad_handler::ResponseFields;

use super::*;

struct Nobody;

impl Handler for Nobody {
    fn begin(self: Arc<Self>, _: usize, _: HandlerRequest) -> HandlerResult {
        HandlerResult::Ready(Err(HandlerFailure::not_found()))
    }
}

fn compressing(at_a_time: usize) -> Arc<CompressingHandler> {
    let counts = Arc::default();
    Arc::new(CompressingHandler {
        inner: Arc::new(Nobody),
        codings: CodingSet::EMPTY.with(ContentCoding::Gzip),
        len_min: 20,
        compressors: Arc::new(CompressionLimits::new(at_a_time, counts)),
    })
}

const GET: CompressionInput = CompressionInput {
    coding: ContentCoding::Gzip,
    is_head: false,
    weak_tags: Vec::new(),
};

fn html(body: impl Into<Bytes>) -> HandlerResponse {
    HandlerResponse::new(StatusCode::OK, "text/html; charset=utf-8", body)
}

fn text() -> String {
    "a text that repeats itself\n".repeat(40)
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(work)
}

fn answered(response: HandlerResponse, asked: CompressionInput) -> HandlerResponse {
    let answer = compressing(9).await_and_compress(async { Ok(response) }, asked);
    run(answer).expect("a response")
}

fn lines(fields: &ResponseFields) -> String {
    let line =
        |(name, value): (&str, &[u8])| format!("{name}: {}\n", String::from_utf8_lossy(value));
    fields.iter().map(line).collect()
}

fn unzipped(bytes: &[u8]) -> String {
    let mut back = String::new();
    let read = flate2::read::GzDecoder::new(bytes).read_to_string(&mut back);
    read.expect("gzip");
    back
}

#[test]
fn a_body_that_is_there_keeps_a_length() {
    let given = html(text())
        .field("ETag", "\"a\"")
        .field("Accept-Ranges", "bytes")
        .field("Vary", "Cookie");
    let response = answered(given, GET);
    assert_eq!(
        lines(&response.fields),
        "Content-Type: text/html; charset=utf-8\nETag: W/\"a\"\nVary: Cookie\n\
         Vary: Accept-Encoding\nContent-Encoding: gzip\n"
    );
    let ResponseContent::Bytes(bytes) = response.content else {
        panic!("it is there at once");
    };
    assert_eq!(unzipped(&bytes), text());
}

#[test]
fn who_accepts_nothing_is_told_on_what_it_depends() {
    let plain = CompressionInput {
        coding: ContentCoding::Identity,
        ..GET
    };
    let response = answered(html(text()).field("ETag", "\"a\""), plain);
    assert_eq!(
        lines(&response.fields),
        "Content-Type: text/html; charset=utf-8\nETag: \"a\"\nVary: Accept-Encoding\n"
    );
    assert!(matches!(response.content, ResponseContent::Bytes(bytes) if bytes == text()));
}

#[test]
fn what_must_stay_as_it_is_does() {
    let with = |name, value: &str| html(text()).field(name, value);
    let of = |status, kind: &str| HandlerResponse::new(status, kind, text());
    for given in [
        with("Content-Encoding", "br"),
        with("Content-Range", "bytes 0-9/10"),
        with("Cache-Control", "public, No-Transform"),
        with("repr-digest", "sha-256=:AA==:"),
        of(StatusCode::PARTIAL_CONTENT, "text/html"),
        of(StatusCode::NO_CONTENT, "text/html"),
        of(StatusCode::OK, "text/event-stream; charset=utf-8"),
        of(StatusCode::OK, "image/png"),
        html("19 bytes are little"),
    ] {
        let before = lines(&given.fields);
        let response = answered(given, GET);
        assert_eq!(lines(&response.fields), before);
        assert!(
            matches!(response.content, ResponseContent::Bytes(_)),
            "{before}"
        );
    }
    // Noise does not get shorter, but the attempt depends on Accept-Encoding.
    let noise = html((0..=255).collect::<Vec<u8>>());
    let response = answered(noise, GET);
    assert!(!lines(&response.fields).contains("Content-Encoding"));
}

#[test]
fn head_says_what_get_would_as_far_as_that_is_known() {
    let (_, nothing) = stream(1);
    let of_len = |len| HandlerResponse {
        content: ResponseContent::Stream {
            len,
            stream: stream_from(Bytes::new()),
        },
        ..html("").field("ETag", "\"a\"")
    };
    drop(nothing);
    for (len, coding) in [(Some(1000), true), (None, false)] {
        let head = CompressionInput {
            is_head: true,
            ..GET
        };
        let response = answered(of_len(len), head);
        let said = lines(&response.fields);
        assert_eq!(said.contains("Content-Encoding: gzip\n"), coding, "{said}");
        assert!(said.contains("ETag: W/\"a\"\n") && said.contains("Vary: Accept-Encoding\n"));
        assert!(matches!(
            response.content,
            ResponseContent::Stream { len: None, .. }
        ));
    }
}

#[test]
fn a_304_names_the_tag_that_the_client_has() {
    let unchanged =
        || HandlerResponse::new(StatusCode::NOT_MODIFIED, "text/html", "").field("ETag", "\"a\"");
    let asked = |tags: &str| CompressionInput {
        weak_tags: tags.into(),
        ..GET
    };
    let said = |tags| lines(&answered(unchanged(), asked(tags)).fields);
    assert!(said("\"b\", W/\"a\"").ends_with("ETag: W/\"a\"\nVary: Accept-Encoding\n"));
    assert!(said("W/\"b\"").ends_with("ETag: \"a\"\n"));
    // A tag may have commas in it.
    assert!(said("W/\"x,W/\"a\"").ends_with("ETag: \"a\"\n"));
    let comma =
        || HandlerResponse::new(StatusCode::NOT_MODIFIED, "text/html", "").field("ETag", "\"a,b\"");
    let response = answered(comma(), asked("W/\"a,b\""));
    assert!(lines(&response.fields).contains("ETag: W/\"a,b\"\n"));
}

#[test]
fn beyond_the_limit_bodies_are_sent_as_they_come() {
    let compressing = compressing(0);
    let answer = compressing
        .clone()
        .await_and_compress(async { Ok(html(text())) }, GET);
    let response = run(answer).expect("a response");
    assert!(lines(&response.fields).ends_with("Vary: Accept-Encoding\n"));
    assert!(matches!(response.content, ResponseContent::Bytes(bytes) if bytes == text()));
    let counts = compressing.compressors.counts.list();
    assert_eq!(counts, [("compressed", 0), ("compress_refused", 1)]);
}

/// Reads a stream to its end.
async fn read(stream: &BodyReceiver) -> (Vec<u8>, StreamItem) {
    let mut all = Vec::new();
    loop {
        match stream.next().await {
            StreamItem::Bytes(bytes) => all.extend_from_slice(&bytes),
            end => return (all, end),
        }
    }
}

fn streamed(len: Option<u64>) -> (lowroad_engine::stream::BodySender, HandlerResponse) {
    let (to, stream) = stream(64 << 10);
    let content = ResponseContent::Stream { len, stream };
    (
        to,
        HandlerResponse {
            content,
            ..html("")
        },
    )
}

fn stream_in(response: HandlerResponse) -> BodyReceiver {
    match response.content {
        ResponseContent::Stream { stream, len: None } => stream,
        _ => panic!("it comes, and nobody knows its length"),
    }
}

#[test]
fn a_part_arrives_before_the_next_is_made() {
    run(async {
        let (to, given) = streamed(None);
        let answer = compressing(1).await_and_compress(async { Ok(given) }, GET);
        let stream = stream_in(answer.await.expect("a response"));
        to.push("the first part".into()).expect("it is read");
        let StreamItem::Bytes(first) = stream.next().await else {
            panic!("nothing came");
        };
        let mut decoder = flate2::write::GzDecoder::new(Vec::new());
        std::io::Write::write_all(&mut decoder, &first).expect("gzip");
        std::io::Write::flush(&mut decoder).expect("gzip");
        assert_eq!(decoder.get_ref(), b"the first part");
        to.push(", and the last".into()).expect("it is read");
        to.end();
        let (rest, end) = read(&stream).await;
        assert_eq!(end, StreamItem::End);
        let all = [&first[..], &rest].concat();
        assert_eq!(unzipped(&all), "the first part, and the last");
    });
}

#[test]
fn a_body_that_was_cut_or_is_too_short_is_cut() {
    run(async {
        for (len, ends) in [(None, false), (Some(5000), true)] {
            let (to, given) = streamed(len);
            let answer = compressing(1).await_and_compress(async { Ok(given) }, GET);
            let stream = stream_in(answer.await.expect("a response"));
            to.push("the beginning".into()).expect("it is read");
            match ends {
                true => to.end(),
                false => drop(to),
            }
            assert_eq!(read(&stream).await.1, StreamItem::Cut);
        }
    });
}

#[test]
fn who_makes_it_waits_for_who_reads_it_and_hears_when_that_is_gone() {
    run(async {
        let (to, given) = streamed(None);
        let answer = compressing(1).await_and_compress(async { Ok(given) }, GET);
        let stream = stream_in(answer.await.expect("a response"));
        // Incompressible data has the same length on the other side.
        let mut state = 1_u64;
        let mut noise = || {
            let step = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 56) as u8
            };
            std::iter::repeat_with(step)
                .take(8 << 10)
                .collect::<Vec<u8>>()
        };
        let mut sent_len = 0;
        loop {
            // The compressor continues as far as it can.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let mut context = Context::from_waker(Waker::noop());
            if to.poll_room(&mut context).is_pending() {
                break;
            }
            let piece = noise();
            sent_len += piece.len();
            to.push(piece.into()).expect("it is read");
            assert!(sent_len < 1 << 20, "nothing holds it back");
        }
        drop(stream);
        std::future::poll_fn(|context| to.poll_closed(context)).await;
    });
}

#[test]
fn a_long_body_that_is_there_flows() {
    run(async {
        let long = text().repeat(200);
        let answer = compressing(1).await_and_compress(async { Ok(html(long.clone())) }, GET);
        let stream = stream_in(answer.await.expect("a response"));
        let (all, end) = read(&stream).await;
        assert_eq!(end, StreamItem::End);
        assert_eq!(unzipped(&all), long);
    });
}
