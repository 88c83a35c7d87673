//! Compresses handlers' responses where the configuration asks for it. It sits in front of the store, which thus keeps
//! compressed responses, one variant for each Accept-Encoding.
//!
//! A complete body is compressed at once. A streaming body is compressed as it arrives, and flushed when no more has
//! come for a moment. No compression runs on a worker.

pub mod fields;
mod stream;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use lowroad_config as config;
use lowroad_engine::stream::{BodyReceiver, StreamItem, stream};
use lowroad_files::compression::streaming::BodyEncoder;
use lowroad_handler::{
    Handler, HandlerFailure, HandlerRequest, HandlerResponse, HandlerResult, ResponseContent,
};
use lowroad_http::content_coding::{self, CodingSet, ContentCoding};
use lowroad_http::field_values::FieldLineValues;
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_limits::{ConcurrencyLimit, Permit};
use lowroad_site_rules::content_codings;

use crate::counts::increment;
use stream::CompressedStream;

/// Longer bodies are compressed in steps even if they are complete, so that other tasks get a turn in between.
const AT_ONCE_LEN_MAX: usize = 64 << 10;

/// The limit on concurrent compressions in one configuration, and counters of all.
pub struct CompressionLimits {
    turns: Arc<ConcurrencyLimit>,
    counts: Arc<CompressionCounters>,
}

/// Counters of compression.
#[derive(Default)]
pub struct CompressionCounters {
    compressed: AtomicU64,
    refused: AtomicU64,
}

impl CompressionCounters {
    /// Each number with its name.
    pub fn list(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("compressed", self.compressed.load(Relaxed)),
            ("compress_refused", self.refused.load(Relaxed)),
        ]
    }
}

impl CompressionLimits {
    /// Creates a limit of `max` compressions at a time.
    pub fn new(max: usize, counts: Arc<CompressionCounters>) -> CompressionLimits {
        CompressionLimits {
            turns: ConcurrencyLimit::new(max),
            counts,
        }
    }

    fn turn(&self) -> Option<Permit> {
        let turn = self.turns.try_acquire();
        // Without a permit, the response is sent uncompressed instead of waiting.
        increment(match turn {
            Some(_) => &self.counts.compressed,
            None => &self.counts.refused,
        });
        turn
    }
}

/// A handler that compresses another's responses.
pub struct CompressingHandler {
    inner: Arc<dyn Handler>,
    codings: CodingSet,
    len_min: u64,
    compressors: Arc<CompressionLimits>,
}

impl CompressingHandler {
    /// Wraps a route's handler, unless its responses are sent unchanged.
    pub fn around(
        inner: Arc<dyn Handler>,
        route: &config::RouteConfig,
        site: &config::CompressConfig,
        compressors: &Arc<CompressionLimits>,
    ) -> Arc<dyn Handler> {
        let codings = route.compress.as_ref().unwrap_or(&site.programs);
        // No wrapper, so no cost for the route.
        if codings.is_empty() {
            return inner;
        }
        Arc::new(CompressingHandler {
            inner,
            codings: content_codings(codings),
            len_min: site.len_min,
            compressors: compressors.clone(),
        })
    }

    async fn answer(
        self: Arc<Self>,
        answering: impl Future<Output = Result<HandlerResponse, HandlerFailure>>,
        asked: CompressionInput,
    ) -> Result<HandlerResponse, HandlerFailure> {
        let mut response = answering.await?;
        Ok(match self.turn(&mut response, &asked) {
            Some(turn) => compressed(response, asked.coding, turn).await,
            None => response,
        })
    }

    /// Adds Vary to a response if it depends on Accept-Encoding, and returns a permit if it is to be compressed.
    fn turn(&self, response: &mut HandlerResponse, asked: &CompressionInput) -> Option<Permit> {
        // The client's copy was compressed, so its tag is the weak form of the handler's.
        if response.status == StatusCode::NOT_MODIFIED {
            fields::mark_unchanged(&mut response.fields, &asked.weak_tags);
            return None;
        }
        let len = len_of(&response.content, asked.is_head);
        // A stream of unknown length may be long.
        let is_long = len.is_none_or(|len| len >= self.len_min);
        if !is_long || !is_body(&response.content) || !fields::allow(response) {
            return None;
        }
        // Also if this response is sent uncompressed: a cache must not give it to all clients (RFC 9110 §12.5.5).
        fields::vary(&mut response.fields);
        if asked.coding == ContentCoding::Identity {
            return None;
        }
        if asked.is_head {
            // Without a length, only the handler knows whether the body is long enough.
            let coding = len.map(|_| asked.coding);
            mark_head(response, coding);
            return None;
        }
        self.compressors.turn()
    }
}

impl Handler for CompressingHandler {
    fn within(&self) -> Option<&dyn Handler> {
        Some(&*self.inner)
    }

    fn begin(self: Arc<Self>, worker: usize, request: HandlerRequest) -> HandlerResult {
        let asked = CompressionInput::from_request(&request, self.codings);
        match self.inner.clone().begin(worker, request) {
            HandlerResult::Ready(Err(failure)) => HandlerResult::Ready(Err(failure)),
            HandlerResult::Ready(Ok(mut response)) => match self.turn(&mut response, &asked) {
                None => HandlerResult::Ready(Ok(response)),
                Some(turn) => HandlerResult::OnRuntime(Box::pin(async move {
                    Ok(compressed(response, asked.coding, turn).await)
                })),
            },
            HandlerResult::OnRuntime(answering) => {
                HandlerResult::OnRuntime(Box::pin(self.answer(answering, asked)))
            }
            HandlerResult::OnWorker(answering) => {
                HandlerResult::OnWorker(Box::pin(self.answer(answering, asked)))
            }
        }
    }
}

/// The properties of a request that compression depends on.
struct CompressionInput {
    /// The client's preferred coding among the route's.
    coding: ContentCoding,
    is_head: bool,
    /// If-None-Match, if it has a weak tag.
    weak_tags: Vec<u8>,
}

impl CompressionInput {
    fn from_request(request: &HandlerRequest, codings: CodingSet) -> CompressionInput {
        let accepted = joined(request, b"accept-encoding");
        let mut weak_tags = joined(request, b"if-none-match");
        // Only weak tags may have been made here.
        if !weak_tags.windows(2).any(|two| two == b"W/") {
            weak_tags.clear();
        }
        CompressionInput {
            coding: content_coding::choose(&FieldLineValues::one(&accepted), codings),
            is_head: request.method == Method::Head,
            weak_tags,
        }
    }
}

/// The values of a field as one list.
fn joined(request: &HandlerRequest, name: &[u8]) -> Vec<u8> {
    let lines = request
        .fields()
        .filter(|(known, _)| known.eq_ignore_ascii_case(name));
    let values: Vec<&[u8]> = lines.map(|(_, value)| value).collect();
    values.join(&b","[..])
}

fn is_body(content: &ResponseContent) -> bool {
    matches!(
        content,
        ResponseContent::Bytes(_) | ResponseContent::Stream { .. }
    )
}

/// The length of a body, if known.
fn len_of(content: &ResponseContent, is_head: bool) -> Option<u64> {
    match content {
        ResponseContent::Stream { len: Some(len), .. } => Some(*len),
        // The body here is that of HEAD, not of GET.
        _ if is_head => None,
        ResponseContent::Bytes(bytes) => Some(bytes.len() as u64),
        ResponseContent::Stream { stream, .. } => stream.len_of_rest().map(|len| len as u64),
        ResponseContent::Stored(_) | ResponseContent::Upgrade(_) | ResponseContent::Local(_) => {
            None
        }
    }
}

/// Gives the response to HEAD the fields of GET's, as far as they are known.
fn mark_head(response: &mut HandlerResponse, coding: Option<ContentCoding>) {
    fields::mark(&mut response.fields, coding);
    if let ResponseContent::Stream { len, .. } = &mut response.content {
        *len = None;
    }
}

/// Compresses the body, at once or as it arrives.
async fn compressed(
    mut response: HandlerResponse,
    coding: ContentCoding,
    turn: Permit,
) -> HandlerResponse {
    if let Some(whole) = take_whole(&mut response.content) {
        let given = whole.clone();
        // On the runtime, never on a worker.
        let job = tokio::spawn(async move {
            let _turn = turn;
            at_once(&given, coding)
        });
        response.content = ResponseContent::Bytes(match job.await {
            Ok(Some(short)) => {
                fields::mark(&mut response.fields, Some(coding));
                short
            }
            // Incompressible, or the task panicked.
            _ => whole,
        });
        return response;
    }
    // Uncompressed is always valid.
    let Ok(encoder) = BodyEncoder::new(coding) else {
        return response;
    };
    let (from, len) = match response.content {
        ResponseContent::Stream { stream, len } => (stream, len),
        ResponseContent::Bytes(bytes) => (stream_of(bytes), None),
        other => {
            response.content = other;
            return response;
        }
    };
    fields::mark(&mut response.fields, Some(coding));
    let (to, stream) = stream(stream::WAITING_LEN_MAX);
    // On the runtime: compression would delay a worker's other connections.
    tokio::spawn(CompressedStream::new(from, len, to, encoder, turn).run());
    response.content = ResponseContent::Stream { len: None, stream };
    response
}

/// Takes the body if it is complete and short enough to be compressed at once.
fn take_whole(content: &mut ResponseContent) -> Option<Bytes> {
    match content {
        ResponseContent::Bytes(bytes) if bytes.len() <= AT_ONCE_LEN_MAX => {
            Some(std::mem::take(bytes))
        }
        // Bytes have no trailers, so a body with trailers stays a stream.
        ResponseContent::Stream { stream, len } if !stream.has_trailers() => {
            let here = stream.len_of_rest()?;
            // A body shorter than announced must remain cut.
            let is_all = len.is_none_or(|len| len == here as u64);
            (is_all && here <= AT_ONCE_LEN_MAX).then(|| drained(stream, here))
        }
        _ => None,
    }
}

/// Reads a stream that has ended.
fn drained(stream: &BodyReceiver, len: usize) -> Bytes {
    let mut context = Context::from_waker(Waker::noop());
    let mut all: Vec<u8> = Vec::new();
    loop {
        match stream.poll_next(&mut context) {
            Poll::Ready(StreamItem::Bytes(bytes)) if bytes.len() == len => return bytes,
            Poll::Ready(StreamItem::Bytes(bytes)) => all.extend_from_slice(&bytes),
            _ => return all.into(),
        }
    }
}

fn stream_of(bytes: Bytes) -> BodyReceiver {
    let (to, stream) = stream(0);
    // It can't fail: the receiver is alive.
    let _ = to.push(bytes);
    to.end();
    stream
}

/// The compressed body, unless it is not shorter.
fn at_once(body: &[u8], coding: ContentCoding) -> Option<Bytes> {
    let mut encoder = BodyEncoder::new(coding).ok()?;
    encoder.write(body).ok()?;
    let short = encoder.finish().ok()?;
    // Incompressible content is sent unchanged.
    (short.len() < body.len()).then(|| short.into())
}

#[cfg(test)]
mod tests;
