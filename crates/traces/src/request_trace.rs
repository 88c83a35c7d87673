//! The trace of one request: the decision to sample it, its spans, and the fields for the servers behind.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::context::{SpanId, TRACEPARENT, TraceContext, TraceId};
use crate::random::{IdGenerator, nth};
use crate::span::{Span, SpanKind};
use crate::span_queue::SpanQueue;
use crate::trace_state::{self, TRACESTATE};

/// The part of a request in traces.
#[derive(Clone, Debug, Default)]
pub enum RequestTracing {
    /// Nothing is recorded, and the client's trace context is passed on unchanged: traces are off, or the client does not
    /// sample the trace.
    #[default]
    Unchanged,
    /// Nothing is recorded. This context, which says so, is passed on instead of the client's.
    Unsampled(TraceContext),
    /// Spans are recorded.
    Sampled(Arc<RequestTrace>),
}

impl RequestTracing {
    /// The trace, and this server's span in it; `None` if this server adds no span.
    pub fn ids(&self) -> Option<(TraceId, SpanId)> {
        match self {
            RequestTracing::Unchanged => None,
            RequestTracing::Unsampled(context) => Some((context.trace_id, context.span_id)),
            RequestTracing::Sampled(trace) => Some((trace.trace_id, trace.span_id)),
        }
    }
}

/// The settings for new traces.
#[derive(Clone, Copy, Debug)]
pub struct TracePolicy {
    /// Whether a client's trace is continued, with its decision about sampling.
    pub accepts_parent: bool,
}

/// A request with recorded spans.
#[derive(Debug)]
pub struct RequestTrace {
    trace_id: TraceId,
    /// The span of the request in this server.
    span_id: SpanId,
    /// The client's span.
    parent_id: Option<SpanId>,
    trace_state: Option<Box<str>>,
    /// When the head of the request was complete, ns since 1970.
    start_unix_ns: u64,
    /// Generates the identifiers of further spans.
    seed: u64,
    span_count: AtomicU64,
    queue: Arc<SpanQueue>,
}

/// A span of a request to which further spans are added.
#[derive(Clone, Debug)]
pub struct TraceParent {
    trace: Arc<RequestTrace>,
    span_id: SpanId,
}

impl TracePolicy {
    /// Decides about a request with these fields. `unix_ns` reads the clock, only for a sampled request.
    pub fn begin<'f>(
        self,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
        ids: &mut IdGenerator,
        queue: &Arc<SpanQueue>,
        unix_ns: impl FnOnce() -> u64,
    ) -> RequestTracing {
        let parent = match self.accepts_parent {
            true => find_parent(fields.clone()),
            false => None,
        };
        let trace_id = match parent {
            Some(parent) if !parent.is_sampled => return RequestTracing::Unchanged,
            Some(parent) => parent.trace_id,
            None => ids.trace_id(),
        };
        let span_id = ids.span_id();
        if parent.is_none() && !queue.rate().current().samples(trace_id) {
            return RequestTracing::Unsampled(TraceContext {
                trace_id,
                span_id,
                is_sampled: false,
            });
        }
        let lines = fields.filter(|(name, _)| is_named(name, TRACESTATE));
        RequestTracing::Sampled(Arc::new(RequestTrace {
            trace_id,
            span_id,
            parent_id: parent.map(|parent| parent.span_id),
            // Without a valid traceparent, tracestate must not be used (§3.3).
            trace_state: parent.and_then(|_| trace_state::combine(lines.map(|(_, value)| value))),
            start_unix_ns: unix_ns(),
            seed: ids.next_u64(),
            span_count: AtomicU64::new(0),
            queue: queue.clone(),
        }))
    }
}

/// The client's context. Of several traceparent fields none is valid, since their order may have changed on the way.
fn find_parent<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Option<TraceContext> {
    let mut parents = fields.filter(|(name, _)| is_named(name, TRACEPARENT));
    let (_, value) = parents.next()?;
    match parents.next() {
        None => TraceContext::parse(value),
        Some(_) => None,
    }
}

fn is_named(name: &[u8], expected: &str) -> bool {
    name.eq_ignore_ascii_case(expected.as_bytes())
}

/// Whether this is a field of the trace context, which a server replaces when it passes a request on.
pub fn is_context_field(name: &[u8]) -> bool {
    is_named(name, TRACEPARENT) || is_named(name, TRACESTATE)
}

/// Appends the field line of a context.
pub fn write_context(context: TraceContext, out: &mut Vec<u8>) {
    out.extend_from_slice(b"traceparent: ");
    out.extend_from_slice(&context.to_value());
    out.extend_from_slice(b"\r\n");
}

impl RequestTrace {
    /// The span of the request, without attributes and with the end at its start.
    pub fn server_span(&self) -> Span {
        Span {
            trace_id: self.trace_id,
            span_id: self.span_id,
            parent_id: self.parent_id,
            has_remote_parent: self.parent_id.is_some(),
            trace_state: self.trace_state.clone(),
            kind: SpanKind::Server,
            name: Cow::Borrowed(""),
            start_unix_ns: self.start_unix_ns,
            end_unix_ns: self.start_unix_ns,
            attributes: Vec::new(),
            failure: None,
        }
    }

    /// The span of the request as the parent of further spans.
    pub fn as_parent(self: &Arc<Self>) -> TraceParent {
        TraceParent {
            trace: self.clone(),
            span_id: self.span_id,
        }
    }

    /// Passes a span that has ended to the exporter.
    pub fn push(&self, span: Box<Span>) {
        self.queue.push(span);
    }
}

impl TraceParent {
    /// Starts a part of this span.
    pub fn child(&self, kind: SpanKind, name: impl Into<Cow<'static, str>>, unix_ns: u64) -> Span {
        let trace = &self.trace;
        let index = trace.span_count.fetch_add(1, Relaxed) + 1;
        Span {
            span_id: SpanId::from_random(nth(trace.seed, index)),
            parent_id: Some(self.span_id),
            has_remote_parent: false,
            kind,
            name: name.into(),
            start_unix_ns: unix_ns,
            end_unix_ns: unix_ns,
            ..trace.server_span()
        }
    }

    /// The given span of the same request as the parent of further spans.
    pub fn with_span(&self, span: &Span) -> TraceParent {
        TraceParent {
            trace: self.trace.clone(),
            span_id: span.span_id,
        }
    }

    /// Passes a span that has ended to the exporter.
    pub fn push(&self, span: Box<Span>) {
        self.trace.push(span);
    }

    /// Appends the field lines for a server behind. The spans of that server are parts of this span.
    pub fn write_fields(&self, out: &mut Vec<u8>) {
        let context = TraceContext {
            trace_id: self.trace.trace_id,
            span_id: self.span_id,
            is_sampled: true,
        };
        write_context(context, out);
        if let Some(trace_state) = &self.trace.trace_state {
            out.extend_from_slice(b"tracestate: ");
            out.extend_from_slice(trace_state.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    type Field = (&'static [u8], &'static [u8]);
    const SAMPLED: Field = (
        b"TraceParent",
        b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    );
    const UNSAMPLED: Field = (
        b"traceparent",
        b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
    );
    const STATE: Field = (b"tracestate", b"rojo=00f067aa0ba902b7");

    /// A span of a request that begins a trace.
    pub(crate) fn span() -> Span {
        match begin(&[], 1_000_000, true) {
            RequestTracing::Sampled(trace) => trace.server_span(),
            other => panic!("{other:?}"),
        }
    }

    fn begin(fields: &[Field], millionths: u32, accepts_parent: bool) -> RequestTracing {
        let policy = TracePolicy { accepts_parent };
        let (queue, _) = SpanQueue::new(2);
        queue.rate().set_millionths(millionths);
        let mut ids = IdGenerator::new([7, 8]);
        policy.begin(fields.iter().copied(), &mut ids, &queue, || 5)
    }

    fn fields_behind(tracing: &RequestTracing) -> String {
        let mut out = Vec::new();
        match tracing {
            RequestTracing::Sampled(trace) => trace.as_parent().write_fields(&mut out),
            other => panic!("{other:?}"),
        }
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn sampled_trace_of_a_client_is_continued_at_any_rate() {
        let tracing = begin(&[SAMPLED, STATE, (b"tracestate", b"b=2")], 0, true);
        let RequestTracing::Sampled(trace) = &tracing else {
            panic!("{tracing:?}");
        };
        let span = trace.server_span();
        assert_eq!(tracing.ids(), Some((span.trace_id, span.span_id)));
        assert_eq!(
            format!("{:?}", span.trace_id),
            "0af7651916cd43dd8448eb211c80319c"
        );
        assert_eq!(format!("{:?}", span.parent_id), "Some(b7ad6b7169203331)");
        assert!(span.has_remote_parent);
        let expected = format!(
            "traceparent: 00-0af7651916cd43dd8448eb211c80319c-{:?}-01\r\n\
             tracestate: rojo=00f067aa0ba902b7,b=2\r\n",
            span.span_id
        );
        assert_eq!(fields_behind(&tracing), expected);
    }

    #[test]
    fn unsampled_trace_of_a_client_is_passed_on() {
        let tracing = begin(&[UNSAMPLED, STATE], 1_000_000, true);
        assert!(matches!(tracing, RequestTracing::Unchanged));
        assert!(tracing.ids().is_none());
    }

    #[test]
    fn invalid_parent_begins_a_new_trace_without_tracestate() {
        let zeros = b"00-00000000000000000000000000000000-b7ad6b7169203331-01";
        let version_ff = b"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        for fields in [
            &[SAMPLED, SAMPLED, STATE][..],
            &[(b"traceparent", zeros), STATE],
            &[(b"traceparent", version_ff), STATE],
            &[STATE],
        ] {
            let fields_behind = fields_behind(&begin(fields, 1_000_000, true));
            assert!(!fields_behind.contains("0af7651916cd43dd8448eb211c80319c"));
            assert!(!fields_behind.contains("tracestate"));
            let tracing = begin(fields, 0, true);
            match &tracing {
                RequestTracing::Unsampled(context) => assert!(!context.is_sampled),
                other => panic!("{other:?}"),
            }
            assert!(tracing.ids().is_some());
        }
    }

    #[test]
    fn invalid_tracestate_does_not_affect_traceparent() {
        let fields = [SAMPLED, (&b"tracestate"[..], &b"rojo"[..])];
        let fields_behind = fields_behind(&begin(&fields, 0, true));
        assert!(fields_behind.contains("0af7651916cd43dd8448eb211c80319c"));
        assert!(!fields_behind.contains("tracestate"));
    }

    #[test]
    fn parent_is_ignored_if_it_is_not_accepted() {
        let fields_behind = fields_behind(&begin(&[SAMPLED, STATE], 1_000_000, false));
        assert!(!fields_behind.contains("0af7651916cd43dd8448eb211c80319c"));
        let tracing = begin(&[SAMPLED], 0, false);
        assert!(matches!(tracing, RequestTracing::Unsampled(_)));
    }

    #[test]
    fn children_have_their_own_identifiers() {
        let RequestTracing::Sampled(trace) = begin(&[SAMPLED], 0, true) else {
            panic!("sampled");
        };
        let parent = trace.as_parent();
        let first = parent.child(SpanKind::Internal, "a", 6);
        let second = parent.child(SpanKind::Client, "b", 7);
        let inner = parent.with_span(&first).child(SpanKind::Client, "c", 8);
        let server = trace.server_span();
        assert_eq!(first.parent_id, Some(server.span_id));
        assert_eq!(inner.parent_id, Some(first.span_id));
        assert!(!first.has_remote_parent);
        assert_ne!(first.span_id, second.span_id);
        assert_ne!(first.span_id, inner.span_id);
        assert_eq!(second.trace_id, server.trace_id);
        assert_eq!((second.start_unix_ns, second.end_unix_ns), (7, 7));
    }
}
