//! A span of a trace that ends with this value, whether its work was completed or cancelled.

use std::borrow::Cow;
use std::time::SystemTime;

use lowroad_http::status::StatusCode;
use lowroad_traces::{AttributeValue, Span, SpanKind, TraceParent};

use crate::handler::{HandlerFailure, HandlerResult, PendingResponse};
use crate::response::HandlerResponse;

/// A part of the work for a request that is recorded.
pub struct ActiveSpan {
    parent: TraceParent,
    /// `None` after the end.
    span: Option<Box<Span>>,
}

impl ActiveSpan {
    /// Starts a part of the work of `parent`.
    pub fn begin(
        parent: &TraceParent,
        kind: SpanKind,
        name: impl Into<Cow<'static, str>>,
    ) -> ActiveSpan {
        ActiveSpan {
            parent: parent.clone(),
            span: Some(Box::new(parent.child(kind, name, unix_ns()))),
        }
    }

    /// Adds an attribute.
    pub fn set(&mut self, name: &'static str, value: impl Into<AttributeValue>) {
        if let Some(span) = &mut self.span {
            span.set(name, value);
        }
    }

    /// This span as the parent of others.
    pub fn as_parent(&self) -> TraceParent {
        match &self.span {
            Some(span) => self.parent.with_span(span),
            None => self.parent.clone(),
        }
    }

    /// Ends the span with a response. It counts as failed from the status `failure_status` on.
    pub fn end_with_status(mut self, status: StatusCode, failure_status: u16) {
        if let Some(mut span) = self.span.take() {
            let code = status.code();
            span.set("http.response.status_code", code);
            if code >= failure_status {
                span.fail(code.to_string(), Cow::Borrowed(""));
            }
            self.push(span);
        }
    }

    /// Ends the span without a response. `error_type` is one of few words (semantic conventions, `error.type`).
    pub fn end_with_failure(
        mut self,
        failure: &HandlerFailure,
        error_type: impl Into<AttributeValue>,
    ) {
        if let Some(mut span) = self.span.take() {
            let detail = lowroad_traces::span::truncated(failure.detail.clone());
            span.fail(error_type, Cow::Owned(detail));
            self.push(span);
        }
    }

    /// Ends the span of a handler with its result, now or when its future is ready.
    pub fn follow(self, result: HandlerResult) -> HandlerResult {
        match result {
            HandlerResult::Ready(answer) => {
                self.end_with_answer(&answer);
                HandlerResult::Ready(answer)
            }
            HandlerResult::OnRuntime(pending) => {
                HandlerResult::OnRuntime(self.follow_future(pending))
            }
            HandlerResult::OnWorker(pending) => {
                HandlerResult::OnWorker(self.follow_future(pending))
            }
        }
    }

    fn follow_future(self, pending: PendingResponse) -> PendingResponse {
        Box::pin(async move {
            let answer = pending.await;
            self.end_with_answer(&answer);
            answer
        })
    }

    fn end_with_answer(self, answer: &Result<HandlerResponse, HandlerFailure>) {
        // As for servers: a status below 500 is the client's fault.
        const FAILURE_STATUS: u16 = 500;
        match answer {
            Ok(response) => self.end_with_status(response.status, FAILURE_STATUS),
            // The status is that of the error page for the client; the handler itself has sent none.
            Err(failure) => match failure.reason {
                Some(reason) => self.end_with_failure(failure, reason.as_str()),
                None => self.end_with_failure(failure, failure.status.code().to_string()),
            },
        }
    }

    fn push(&self, mut span: Box<Span>) {
        span.end_unix_ns = unix_ns();
        self.parent.push(span);
    }
}

impl Drop for ActiveSpan {
    fn drop(&mut self) {
        // The future was dropped before its end: the client has disconnected.
        if let Some(mut span) = self.span.take() {
            span.fail("cancelled", Cow::Borrowed(""));
            self.push(span);
        }
    }
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64) // until 2554
}
