//! Metrics: what threads record without locks, and how a scrape shows it.
//!
//! Each worker records into values of its own ([`latency_histogram`]); a scrape adds them up into a
//! [`MetricSnapshot`], which [`exposition`] writes in the formats of Prometheus and OpenMetrics. Knows no socket, clock
//! or server.

#![forbid(unsafe_code)]

pub mod exposition;
pub mod latency_histogram;
pub mod scope_registry;
pub mod snapshot;

pub use exposition::ExpositionFormat;
pub use latency_histogram::{LatencyDistribution, LatencyHistogram};
pub use scope_registry::{MetricScope, ScopeRegistry};
pub use snapshot::{MetricFamily, MetricKind, MetricSample, MetricSnapshot, SampleValue};
