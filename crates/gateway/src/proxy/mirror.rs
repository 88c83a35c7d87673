//! Request mirroring: a share of a route's requests is copied to another origin. Responses to copies are discarded.
//!
//! A copy never delays or fails its request: it runs in a separate task, and begins only when the request's body has
//! been received. Copies in progress are bounded by their number, and each by the length of its body; requests beyond
//! are not copied, and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lowroad_config::{MirrorConfig, RouteConfig};
use lowroad_engine::WorkerHandle;
use lowroad_engine::stream::{StreamItem, stream};
use lowroad_handler::interim_responses::InterimSink;
use lowroad_handler::operator_notice::{NoticeLimit, OperatorNotice};
use lowroad_handler::request::RequestExtra;
use lowroad_handler::{
    Handler, HandlerFailure, HandlerRequest, HandlerResponse, RequestBody, ResponseContent,
};

use super::ProxyHandler;
use super::origins::OriginRegistry;
use super::servers::{mixed, random_seed};

/// The copies of requests, over all routes.
#[derive(Default)]
pub struct MirrorCounters {
    sent: AtomicU64,
    failed: AtomicU64,
    skipped: AtomicU64,
    too_large: AtomicU64,
}

impl MirrorCounters {
    /// The counters by their names in the status.
    pub fn list(&self) -> [(&'static str, u64); 4] {
        [
            ("mirror.sent", &self.sent),
            ("mirror.failed", &self.failed),
            ("mirror.skipped", &self.skipped),
            ("mirror.too_large", &self.too_large),
        ]
        .map(|(name, count)| (name, count.load(Relaxed)))
    }
}

/// The mirror of a route.
pub struct RequestMirror {
    handler: Arc<ProxyHandler>,
    config: MirrorConfig,
    workers: Arc<[WorkerHandle]>,
    /// The time for a response, with its body.
    timeout: Duration,
    in_progress: AtomicUsize,
    random_state: AtomicU64,
    counters: Arc<MirrorCounters>,
    notice: OperatorNotice,
    notices: NoticeLimit,
}

/// The copy of a request during the receipt of its body.
pub struct PendingCopy {
    permit: CopyPermit,
    request: HandlerRequest,
    worker: usize,
    /// The body so far, copied: the pieces of a client that sends single bytes would take a hundred times their length.
    body: BytesMut,
}

/// Counts a copy in progress until it is dropped.
struct CopyPermit(Arc<RequestMirror>);

impl Drop for CopyPermit {
    fn drop(&mut self) {
        self.0.in_progress.fetch_sub(1, Relaxed);
    }
}

impl RequestMirror {
    /// The mirror of a route.
    ///
    /// # Errors
    /// As for [`ProxyHandler::new`].
    pub fn new(
        route: &RouteConfig,
        config: &MirrorConfig,
        origins: &OriginRegistry,
        notice: &OperatorNotice,
    ) -> Result<RequestMirror, String> {
        let handler =
            ProxyHandler::without_mirror(route, &config.to, origins, notice.clone(), None)?;
        Ok(RequestMirror {
            handler: Arc::new(handler),
            config: config.clone(),
            workers: origins.worker_handles().clone(),
            timeout: Duration::from_millis(route.timeout_ms),
            in_progress: AtomicUsize::new(0),
            random_state: AtomicU64::new(random_seed()),
            counters: origins.mirror_counters().clone(),
            notice: notice.clone(),
            notices: NoticeLimit::default(),
        })
    }

    /// The mirror in words, for `explain`.
    pub fn description(&self) -> String {
        let percent = f64::from(self.config.share) / 100.0;
        let methods = self.config.methods.join(", ");
        format!(
            "{percent} % of requests ({methods}) are also sent to origin {}",
            self.config.to.name
        )
    }

    /// Copies a request, if it belongs to the share. Without a body the copy is sent at once; otherwise the result is to
    /// get the body.
    pub fn copy(self: &Arc<Self>, worker: usize, request: &HandlerRequest) -> Option<PendingCopy> {
        let method = request.method.as_str();
        let is_mirrored = self.config.methods.iter().any(|it| it == method);
        // Relaxed suffices: the numbers only have to be distinct.
        let draw = || mixed(self.random_state.fetch_add(1, Relaxed)) % 10_000;
        if !is_mirrored || request.upgrade().is_some() || draw() >= u64::from(self.config.share) {
            return None;
        }
        if request
            .body
            .len
            .is_some_and(|len| len > self.config.body_len_max)
        {
            self.counters.too_large.fetch_add(1, Relaxed);
            return None;
        }
        // Counted before the check, so that two workers can't both take the last place.
        let count = self.in_progress.fetch_add(1, Relaxed);
        let permit = CopyPermit(self.clone());
        if count >= self.config.concurrency_max {
            self.counters.skipped.fetch_add(1, Relaxed);
            return None;
        }
        let copy = PendingCopy {
            permit,
            request: without_body(request),
            worker,
            body: BytesMut::new(),
        };
        // The body is not received yet: the request itself reads it.
        if request.body.stream.is_some() {
            return Some(copy);
        }
        copy.send();
        None
    }

    async fn run(&self, worker: usize, request: HandlerRequest) {
        let worker_handle = &self.workers[worker % self.workers.len()];
        let handler = self.handler.clone();
        let exchange = async {
            discard(handler.begin(worker, request).answer().await?).await;
            Ok::<_, HandlerFailure>(())
        };
        let failure = match worker_handle.timers.timeout(self.timeout, exchange).await {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure.detail,
            Err(_) => format!(
                "origin {} took longer than {} ms",
                self.config.to.name,
                self.timeout.as_millis()
            ),
        };
        // The number of notices is limited: a mirror that is down would fill the log.
        self.counters.failed.fetch_add(1, Relaxed);
        let text = format!("a mirrored request failed: {failure}");
        if let Some(text) = self.notices.admit(&text, worker_handle.timers.now_ms()) {
            (self.notice)(&text, None);
        }
    }
}

impl PendingCopy {
    /// Adds a piece of the body. Returns false if the body is longer than the limit: the copy is then given up.
    pub fn push(&mut self, piece: &Bytes) -> bool {
        let mirror = &self.permit.0;
        // A chunked body has no announced length, so each piece is counted.
        let len = self.body.len() as u64 + piece.len() as u64;
        if len > mirror.config.body_len_max {
            mirror.counters.too_large.fetch_add(1, Relaxed);
            return false;
        }
        self.body.extend_from_slice(piece);
        true
    }

    /// Sends the copy in a task of the request's worker.
    pub fn send(mut self) {
        if !self.body.is_empty() {
            let body = std::mem::take(&mut self.body).freeze();
            let len = body.len() as u64;
            let (sender, stream) = stream(usize::MAX);
            // `push` cannot fail: this function holds the receiver.
            let _ = sender.push(body);
            sender.end();
            self.request.body = RequestBody {
                len: Some(len),
                stream: Some(stream),
            };
        }
        let mirror = self.permit.0.clone();
        mirror.counters.sent.fetch_add(1, Relaxed);
        let tasks = &mirror.workers[self.worker % mirror.workers.len()].tasks;
        // The request is not waited for, and its task holds the permit until it ends.
        let task = tasks.spawn(async move {
            let PendingCopy {
                permit,
                request,
                worker,
                ..
            } = self;
            permit.0.run(worker, request).await;
        });
        task.detach();
    }
}

/// A copy of a request without its body, that sends nothing to the client.
fn without_body(request: &HandlerRequest) -> HandlerRequest {
    HandlerRequest {
        method: request.method,
        version: request.version,
        head: request.head.clone(),
        peer: request.peer,
        peer_port: request.peer_port,
        local: request.local,
        tls: request.tls.clone(),
        forwarded: request.forwarded.clone(),
        root: request.root.clone(),
        objects: request.objects.clone(),
        body: RequestBody::none(),
        interims: InterimSink::none(),
        // The trace and the log are those of the original request.
        extra: RequestExtra {
            trace: None,
            upstream_tries: None,
            ..request.extra.clone()
        },
    }
}

/// Reads the body of a response to its end, so that the connection can be reused.
async fn discard(response: HandlerResponse) {
    if let ResponseContent::Stream { stream, .. } = response.content {
        while let StreamItem::Bytes(_) = stream.next().await {}
    }
}
