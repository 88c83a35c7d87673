//! The trace of a call: the span of the handler, and the fields by which the handler continues the trace.

use lowroad_engine::Exchange;
use lowroad_handler::HandlerResult;
use lowroad_handler::active_span::ActiveSpan;
use lowroad_http::fields::FieldLines;
use lowroad_routes::routes::Route;
use lowroad_traces::request_trace::{is_context_field, write_context};
use lowroad_traces::{RequestTracing, SpanKind, TraceParent};

/// The spans of a call, if its request is traced.
pub struct CallTrace {
    /// The span that the handler's work is part of.
    parent: Option<TraceParent>,
    /// The span of the handler; origins have a span for each attempt instead.
    span: Option<ActiveSpan>,
}

impl CallTrace {
    /// Starts the span of a call.
    pub fn begin(exchange: &Exchange, route: &Route) -> CallTrace {
        let RequestTracing::Sampled(trace) = &exchange.tracing else {
            return CallTrace {
                parent: None,
                span: None,
            };
        };
        let request = trace.as_parent();
        if route.is_origin {
            return CallTrace {
                parent: Some(request),
                span: None,
            };
        }
        let span = ActiveSpan::begin(&request, SpanKind::Internal, route.label.clone());
        CallTrace {
            parent: Some(span.as_parent()),
            span: Some(span),
        }
    }

    /// The span that the handler's work is part of.
    pub fn parent(&self) -> Option<TraceParent> {
        self.parent.clone()
    }

    /// The field lines for the handler, if they differ from the client's. Those of an origin get the context with each
    /// attempt.
    pub fn replace_context(&self, exchange: &Exchange, lines: &[u8]) -> Option<Vec<u8>> {
        if matches!(exchange.tracing, RequestTracing::Unchanged) {
            return None;
        }
        let mut out = Vec::with_capacity(lines.len() + 128);
        for (name, value) in FieldLines::new(lines).filter(|(name, _)| !is_context_field(name)) {
            for part in [name, b": ", value, b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
        match (&exchange.tracing, &self.span, &self.parent) {
            (RequestTracing::Unsampled(context), _, _) => write_context(*context, &mut out),
            (_, Some(_), Some(parent)) => parent.write_fields(&mut out),
            _ => {}
        }
        Some(out)
    }

    /// Ends the handler's span with its result.
    pub fn follow(self, result: HandlerResult) -> HandlerResult {
        match self.span {
            Some(span) => span.follow(result),
            None => result,
        }
    }
}
