//! Traces over real sockets: the spans that a collector receives, decoded with OpenTelemetry's own messages; the trace
//! context behind the server; and collectors that fail.

mod failures;
mod propagation;
mod spans;
mod support;
