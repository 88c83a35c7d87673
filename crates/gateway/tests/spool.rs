//! Spools without a server: data arrives intact if either side is slow, and handlers get a request when its body is
//! complete.

mod cgi_support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use lowroad_config::BufferConfig;
use lowroad_engine::stream::{StreamItem, stream};
use lowroad_handler::executor::ResponseExecutor;
use lowroad_handler::spool::{BufferingHandler, SpoolAccount, SpoolLimits};
use lowroad_handler::{
    Handler, HandlerFailure, HandlerRequest, HandlerResponse, HandlerResult, RequestBody,
    ResponseContent, ResponseFields,
};
use lowroad_http::status::StatusCode;

use cgi_support::{get, runtime, until};

/// Responds with the declared length, the body itself, and the value of a trailer.
#[derive(Default)]
struct Echo(AtomicUsize);

impl Handler for Echo {
    fn begin(self: Arc<Self>, _: usize, mut request: HandlerRequest) -> HandlerResult {
        self.0.fetch_add(1, Relaxed);
        HandlerResult::OnRuntime(Box::pin(async move {
            let said = request.body.len.map(|len| format!("{len}|"));
            let mut all = said.unwrap_or_default().into_bytes();
            let body = request.body.read(usize::MAX).await;
            all.extend(body.map_err(|_| HandlerFailure::new(StatusCode::BAD_REQUEST, "cut"))?);
            let trailers = request.body.take_trailers().unwrap_or_default();
            trailers.values("X-Sum").for_each(|value| all.extend(value));
            Ok(HandlerResponse::new(StatusCode::OK, "text/plain", all))
        }))
    }
}

fn spools(limits: &BufferConfig, files_max: u64) -> (Arc<SpoolLimits>, Arc<SpoolAccount>) {
    let account = Arc::new(SpoolAccount::new(files_max));
    let spools = SpoolLimits::open(limits, account.clone(), Arc::new(|_, _| {}));
    (spools.expect("a folder for files"), account)
}

fn number(account: &SpoolAccount, name: &str) -> u64 {
    let mut list = account.list().into_iter();
    list.find(|(known, _)| *known == name).expect("it counts").1
}

async fn nothing_is_left(account: &SpoolAccount) {
    until("the end of all files", || {
        let left = number(account, "spool_files") + number(account, "spool_bytes");
        (left == 0).then_some(())
    })
    .await;
}

/// Distinguishable bytes: consecutive numbers.
fn counted(len: usize) -> Vec<u8> {
    (0_u32..).flat_map(u32::to_be_bytes).take(len).collect()
}

async fn answer(
    handler: &Arc<BufferingHandler>,
    request: HandlerRequest,
) -> Result<Vec<u8>, HandlerFailure> {
    let answer = match handler.clone().begin(0, request) {
        HandlerResult::Ready(answer) => answer,
        HandlerResult::OnWorker(answering) | HandlerResult::OnRuntime(answering) => answering.await,
    };
    match answer?.content {
        ResponseContent::Bytes(bytes) => Ok(bytes.to_vec()),
        _ => panic!("it answers with bytes"),
    }
}

#[test]
fn request_bodies_of_any_length_are_buffered_completely() {
    runtime().block_on(async {
        let (spools, account) = spools(&BufferConfig::default(), 10);
        let handler = Arc::new(BufferingHandler::new(Arc::new(Echo::default()), spools));
        for len in [0, 1, 16_384, 16_385, 100_000, 1_000_000] {
            for part_len in [1000, 70_000] {
                let (sender, receiver) = stream(64 << 10);
                let mut request = get(Path::new("/"), "/");
                request.body = RequestBody {
                    len: None,
                    stream: Some(receiver),
                };
                let all = counted(len);
                let body = all.clone();
                tokio::spawn(async move {
                    for part in body.chunks(part_len) {
                        let part = Bytes::copy_from_slice(part);
                        sender.send(part).await.expect("it is taken");
                        tokio::task::yield_now().await;
                    }
                    sender.end_with(Some(trailers()));
                });
                let got = answer(&handler, request).await.expect("an answer");
                let want = [format!("{len}|").as_bytes(), &all, b"1"].concat();
                assert!(got == want, "{len} in parts of {part_len}");
            }
        }
        assert!(number(&account, "spool_requests") > 0);
        nothing_is_left(&account).await;
    });
}

#[test]
fn complete_or_truncated_body_needs_no_wait() {
    runtime().block_on(async {
        let (spools, account) = spools(&BufferConfig::default(), 10);
        let echo = Arc::new(Echo::default());
        let handler = Arc::new(BufferingHandler::new(echo.clone(), spools));
        let (sender, receiver) = stream(64 << 10);
        sender.push(counted(50_000).into()).expect("it is taken");
        let mut request = get(Path::new("/"), "/");
        request.body = RequestBody {
            len: None,
            stream: Some(receiver),
        };
        drop(sender);
        let failure = answer(&handler, request).await.expect_err("it is cut");
        assert_eq!(failure.status, StatusCode::BAD_REQUEST);
        assert_eq!(echo.0.load(Relaxed), 0, "nobody was asked");
        nothing_is_left(&account).await;
        let (sender, receiver) = stream(64 << 10);
        sender.push(counted(50_000).into()).expect("it is taken");
        sender.end();
        let mut request = get(Path::new("/"), "/");
        request.body = RequestBody {
            len: None,
            stream: Some(receiver),
        };
        let got = answer(&handler, request).await.expect("an answer");
        assert!(got == [b"50000|", &counted(50_000)[..]].concat());
        assert_eq!(number(&account, "spool_requests"), 0, "in no file");
    });
}

#[test]
fn spool_files_beyond_limit_are_refused() {
    runtime().block_on(async {
        let (spools, account) = spools(&BufferConfig::default(), 0);
        let handler = Arc::new(BufferingHandler::new(Arc::new(Echo::default()), spools));
        let (sender, receiver) = stream(1 << 20);
        sender.push(counted(500_000).into()).expect("it is taken");
        let mut request = get(Path::new("/"), "/");
        request.body.stream = Some(receiver);
        let failure = answer(&handler, request).await.expect_err("too many");
        assert_eq!(failure.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(failure.detail.contains("file descriptors"), "{failure:?}");
        assert_eq!(number(&account, "spool_refused"), 1);
    });
}

/// Passes a response through a spool to a reader that pauses after some pieces.
async fn passed(
    limits: &BufferConfig,
    len: usize,
    end: bool,
    pause_after: usize,
) -> (Vec<u8>, StreamItem) {
    let (spools, account) = spools(limits, 10);
    let (client, from) = stream(64 << 10);
    let sender = spools.spool_for(client, &ResponseExecutor::Runtime);
    let all = counted(len);
    let made = tokio::spawn(async move {
        for part in all.chunks(30_011) {
            sender
                .send(Bytes::copy_from_slice(part))
                .await
                .expect("it is taken");
        }
        if end {
            sender.end_with(Some(trailers()));
        }
    });
    if limits.temp_file_len_max > len as u64 {
        made.await.expect("nobody holds it up");
    }
    let (mut got, mut pieces) = (Vec::new(), 0);
    let last = loop {
        pieces += 1;
        if pieces == pause_after {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        match from.next().await {
            StreamItem::Bytes(bytes) => got.extend_from_slice(&bytes),
            last => break last,
        }
    };
    let known = (last == StreamItem::End).then(trailers);
    assert_eq!(from.take_trailers(), known, "they come through");
    nothing_is_left(&account).await;
    (got, last)
}

fn trailers() -> Box<ResponseFields> {
    let mut fields = ResponseFields::new();
    fields.push("X-Sum", b"1");
    Box::new(fields)
}

#[test]
fn spooled_responses_are_unchanged() {
    runtime().block_on(async {
        let all = BufferConfig::default();
        let short = BufferConfig {
            temp_file_len_max: 128 << 10,
            ..BufferConfig::default()
        };
        let none = BufferConfig {
            temp_file_len_max: 0,
            ..BufferConfig::default()
        };
        for limits in [&all, &short, &none] {
            for len in [0, 10, 100_000, 300_000, 3_000_000] {
                for pause_after in [1, 3, 10] {
                    let (got, last) = passed(limits, len, true, pause_after).await;
                    assert!(got == counted(len), "{len}: {}", got.len());
                    assert_eq!(last, StreamItem::End);
                }
            }
            let (got, last) = passed(limits, 1_000_000, false, 2).await;
            assert!(got == counted(1_000_000), "{}", got.len());
            assert_eq!(last, StreamItem::Cut);
        }
    });
}
