//! Which responses are compressed, their header fields, and backpressure.

use std::io::Read;

use lowroad_handler::ResponseFields;

use super::*;

struct NotFoundHandler;

impl Handler for NotFoundHandler {
    fn begin(self: Arc<Self>, _: usize, _: HandlerRequest) -> HandlerResult {
        HandlerResult::Ready(Err(HandlerFailure::not_found()))
    }
}

fn compressing(at_a_time: usize) -> Arc<CompressingHandler> {
    let counts = Arc::default();
    Arc::new(CompressingHandler {
        inner: Arc::new(NotFoundHandler),
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
fn complete_body_is_compressed_with_known_length() {
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
fn uncompressed_response_has_vary_accept_encoding() {
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
fn uncompressible_responses_are_unchanged() {
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
    // Noise is incompressible, but whether compression is attempted depends on Accept-Encoding.
    let noise = html((0..=255).collect::<Vec<u8>>());
    let response = answered(noise, GET);
    assert!(!lines(&response.fields).contains("Content-Encoding"));
}

#[test]
fn head_response_has_fields_of_compressed_get() {
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
fn not_modified_has_weak_etag_if_client_sent_it() {
    let unchanged =
        || HandlerResponse::new(StatusCode::NOT_MODIFIED, "text/html", "").field("ETag", "\"a\"");
    let asked = |tags: &str| CompressionInput {
        weak_tags: tags.into(),
        ..GET
    };
    let said = |tags| lines(&answered(unchanged(), asked(tags)).fields);
    assert!(said("\"b\", W/\"a\"").ends_with("ETag: W/\"a\"\nVary: Accept-Encoding\n"));
    assert!(said("W/\"b\"").ends_with("ETag: \"a\"\n"));
    // An entity tag may contain commas.
    assert!(said("W/\"x,W/\"a\"").ends_with("ETag: \"a\"\n"));
    let comma =
        || HandlerResponse::new(StatusCode::NOT_MODIFIED, "text/html", "").field("ETag", "\"a,b\"");
    let response = answered(comma(), asked("W/\"a,b\""));
    assert!(lines(&response.fields).contains("ETag: W/\"a,b\"\n"));
}

#[test]
fn responses_beyond_compression_limit_are_not_compressed() {
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
fn compressed_stream_is_flushed_when_input_pauses() {
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
fn truncated_or_short_input_truncates_compressed_stream() {
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
fn compressed_stream_applies_backpressure_and_reports_closed_reader() {
    run(async {
        let (to, given) = streamed(None);
        let answer = compressing(1).await_and_compress(async { Ok(given) }, GET);
        let stream = stream_in(answer.await.expect("a response"));
        // Incompressible data keeps its length, so the output fills the buffer.
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
            // Lets the compressor run as far as it can.
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
fn long_complete_body_is_compressed_as_stream() {
    run(async {
        let long = text().repeat(200);
        let answer = compressing(1).await_and_compress(async { Ok(html(long.clone())) }, GET);
        let stream = stream_in(answer.await.expect("a response"));
        let (all, end) = read(&stream).await;
        assert_eq!(end, StreamItem::End);
        assert_eq!(unzipped(&all), long);
    });
}
