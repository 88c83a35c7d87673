//! Compresses the responses of handlers, as configured. This happens before responses are stored, so the store contains
//! compressed responses, one variant for each Accept-Encoding.
//!
//! A complete body is compressed in one step. A streamed body is compressed as it arrives, and flushed if no more bytes
//! arrive for a moment. Compression never runs on a worker.

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

/// Longer bodies are compressed in steps even if they are complete, so that other tasks can run in between.
const WHOLE_LEN_MAX: usize = 64 << 10;

/// The limit for concurrent compressions of one configuration, and the counters of all configurations.
pub struct CompressionLimits {
    limit: Arc<ConcurrencyLimit>,
    counts: Arc<CompressionCounters>,
}

/// Counters of compression.
#[derive(Default)]
pub struct CompressionCounters {
    compressed: AtomicU64,
    refused: AtomicU64,
}

impl CompressionCounters {
    /// The counters with their names.
    pub fn list(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("compressed", self.compressed.load(Relaxed)),
            ("compress_refused", self.refused.load(Relaxed)),
        ]
    }
}

impl CompressionLimits {
    /// Creates a limit of `max` concurrent compressions.
    pub fn new(max: usize, counts: Arc<CompressionCounters>) -> CompressionLimits {
        CompressionLimits {
            limit: ConcurrencyLimit::new(max),
            counts,
        }
    }

    fn try_acquire(&self) -> Option<Permit> {
        let permit = self.limit.try_acquire();
        // Without a permit, the response is sent uncompressed; nothing waits.
        increment(match permit {
            Some(_) => &self.counts.compressed,
            None => &self.counts.refused,
        });
        permit
    }
}

/// A handler that compresses the responses of another handler.
pub struct CompressingHandler {
    inner: Arc<dyn Handler>,
    codings: CodingSet,
    len_min: u64,
    compressors: Arc<CompressionLimits>,
}

impl CompressingHandler {
    /// Wraps the handler of a route, unless its responses are never compressed.
    pub fn wrap(
        inner: Arc<dyn Handler>,
        route: &config::RouteConfig,
        site: &config::CompressConfig,
        compressors: &Arc<CompressionLimits>,
    ) -> Arc<dyn Handler> {
        let codings = route.compress.as_ref().unwrap_or(&site.programs);
        // Without a wrapper, the route has no additional cost.
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

    async fn await_and_compress(
        self: Arc<Self>,
        future: impl Future<Output = Result<HandlerResponse, HandlerFailure>>,
        input: CompressionInput,
    ) -> Result<HandlerResponse, HandlerFailure> {
        let mut response = future.await?;
        Ok(match self.admit(&mut response, &input) {
            Some(permit) => compress(response, input.coding, permit).await,
            None => response,
        })
    }

    /// Adds Vary if the response depends on Accept-Encoding; returns a permit if the response is to be compressed.
    fn admit(&self, response: &mut HandlerResponse, input: &CompressionInput) -> Option<Permit> {
        // If the response that the client has stored was compressed, its entity tag is the weak form of the handler's.
        if response.status == StatusCode::NOT_MODIFIED {
            fields::mark_unchanged(&mut response.fields, &input.weak_tags);
            return None;
        }
        let len = len_of(&response.content, input.is_head);
        // A stream of unknown length may be long.
        let is_long = len.is_none_or(|len| len >= self.len_min);
        if !is_long || !is_body(&response.content) || !fields::may_compress(response) {
            return None;
        }
        // Vary is needed even if this response is not compressed: a cache must not send it to all clients (RFC 9110
        // §12.5.5).
        fields::vary(&mut response.fields);
        if input.coding == ContentCoding::Identity {
            return None;
        }
        if input.is_head {
            // Without a length, it is unknown whether the body of a GET response would be compressed.
            let coding = len.map(|_| input.coding);
            mark_head(response, coding);
            return None;
        }
        self.compressors.try_acquire()
    }
}

impl Handler for CompressingHandler {
    fn inner_handler(&self) -> Option<&dyn Handler> {
        Some(&*self.inner)
    }

    fn begin(self: Arc<Self>, worker: usize, request: HandlerRequest) -> HandlerResult {
        let input = CompressionInput::from_request(&request, self.codings);
        match self.inner.clone().begin(worker, request) {
            HandlerResult::Ready(Err(failure)) => HandlerResult::Ready(Err(failure)),
            HandlerResult::Ready(Ok(mut response)) => match self.admit(&mut response, &input) {
                None => HandlerResult::Ready(Ok(response)),
                Some(permit) => HandlerResult::OnRuntime(Box::pin(async move {
                    Ok(compress(response, input.coding, permit).await)
                })),
            },
            HandlerResult::OnRuntime(future) => {
                HandlerResult::OnRuntime(Box::pin(self.await_and_compress(future, input)))
            }
            HandlerResult::OnWorker(future) => {
                HandlerResult::OnWorker(Box::pin(self.await_and_compress(future, input)))
            }
        }
    }
}

/// The properties of a request on which compression depends.
struct CompressionInput {
    /// The coding that the client prefers among those of the route.
    coding: ContentCoding,
    is_head: bool,
    /// The value of If-None-Match, if it contains a weak entity tag.
    weak_tags: Vec<u8>,
}

impl CompressionInput {
    fn from_request(request: &HandlerRequest, codings: CodingSet) -> CompressionInput {
        let accepted = joined(request, b"accept-encoding");
        let mut weak_tags = joined(request, b"if-none-match");
        // Responses compressed here never have a strong tag.
        if !weak_tags.windows(2).any(|pair| pair == b"W/") {
            weak_tags.clear();
        }
        CompressionInput {
            coding: content_coding::choose(&FieldLineValues::from_value(&accepted), codings),
            is_head: request.method == Method::Head,
            weak_tags,
        }
    }
}

/// The values of a field as one list.
fn joined(request: &HandlerRequest, name: &[u8]) -> Vec<u8> {
    let lines = request
        .fields()
        .filter(|(field_name, _)| field_name.eq_ignore_ascii_case(name));
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
        // The content of a HEAD response does not have the length of the body for GET.
        _ if is_head => None,
        ResponseContent::Bytes(bytes) => Some(bytes.len() as u64),
        ResponseContent::Stream { stream, .. } => stream.remaining_len().map(|len| len as u64),
        ResponseContent::Stored(_)
        | ResponseContent::Upgrade(_)
        | ResponseContent::LocalRedirect(_) => None,
    }
}

/// Sets the fields of a HEAD response to those for GET, as far as these are known.
fn mark_head(response: &mut HandlerResponse, coding: Option<ContentCoding>) {
    fields::mark(&mut response.fields, coding);
    if let ResponseContent::Stream { len, .. } = &mut response.content {
        *len = None;
    }
}

/// Compresses a body, in one step or as it arrives.
async fn compress(
    mut response: HandlerResponse,
    coding: ContentCoding,
    permit: Permit,
) -> HandlerResponse {
    if let Some(body) = take_complete_body(&mut response.content) {
        let input = body.clone();
        // Compression runs on the runtime, never on a worker.
        let job = tokio::spawn(async move {
            let _permit = permit;
            compress_whole(&input, coding)
        });
        response.content = ResponseContent::Bytes(match job.await {
            Ok(Some(short)) => {
                fields::mark(&mut response.fields, Some(coding));
                short
            }
            // The body is incompressible, or the task panicked.
            _ => body,
        });
        return response;
    }
    // A response without compression is always valid.
    let Ok(encoder) = BodyEncoder::new(coding) else {
        return response;
    };
    let (from, len) = match response.content {
        ResponseContent::Stream { stream, len } => (stream, len),
        ResponseContent::Bytes(bytes) => (stream_from(bytes), None),
        other => {
            response.content = other;
            return response;
        }
    };
    fields::mark(&mut response.fields, Some(coding));
    let (to, stream) = stream(stream::BUFFERED_LEN_MAX);
    // The task runs on the runtime: on a worker, compression would delay other connections.
    tokio::spawn(CompressedStream::new(from, len, to, encoder, permit).run());
    response.content = ResponseContent::Stream { len: None, stream };
    response
}

/// Takes the body if it is complete and short enough to be compressed in one step.
fn take_complete_body(content: &mut ResponseContent) -> Option<Bytes> {
    match content {
        ResponseContent::Bytes(bytes) if bytes.len() <= WHOLE_LEN_MAX => {
            Some(std::mem::take(bytes))
        }
        // Bytes cannot have trailers, so a body with trailers remains a stream.
        ResponseContent::Stream { stream, len } if !stream.has_trailers() => {
            let available_len = stream.remaining_len()?;
            // A body that is shorter than declared must remain truncated.
            let is_complete = len.is_none_or(|len| len == available_len as u64);
            (is_complete && available_len <= WHOLE_LEN_MAX).then(|| drain(stream, available_len))
        }
        _ => None,
    }
}

/// Reads a stream after all its bytes have arrived.
fn drain(stream: &BodyReceiver, len: usize) -> Bytes {
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

fn stream_from(bytes: Bytes) -> BodyReceiver {
    let (to, stream) = stream(0);
    // Cannot fail: the receiver exists.
    let _ = to.push(bytes);
    to.end();
    stream
}

/// Compresses a body; `None` if the result is not shorter.
fn compress_whole(body: &[u8], coding: ContentCoding) -> Option<Bytes> {
    let mut encoder = BodyEncoder::new(coding).ok()?;
    encoder.write(body).ok()?;
    let short = encoder.finish().ok()?;
    // Incompressible content is sent unchanged.
    (short.len() < body.len()).then(|| short.into())
}

#[cfg(test)]
mod tests;
