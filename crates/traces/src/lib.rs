//! Distributed traces: the W3C trace context, sampling, spans, their queue, and the OTLP messages for a collector.
//!
//! The crate uses no sockets and no clocks: times and randomness are arguments. A worker starts a [`RequestTrace`] for
//! each sampled request, spans wait in a [`SpanQueue`], and a thread of the server encodes them (`otlp`) and sends them
//! as [`export_policy`] decides.

#![forbid(unsafe_code)]

pub mod context;
pub mod export_policy;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod random;
pub mod request_trace;
pub mod sampling;
pub mod span;
pub mod span_queue;
pub mod trace_state;

pub use context::{SpanId, TraceContext, TraceId};
pub use random::IdGenerator;
pub use request_trace::{RequestTrace, RequestTracing, TraceParent};
pub use sampling::{SampleRate, SharedSampleRate};
pub use span::{AttributeValue, Span, SpanKind};
pub use span_queue::{SpanQueue, SpanReceiver};
