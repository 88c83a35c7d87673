//! Metrics: threads record values without locks, and a scrape reads them.
//!
//! Each worker has its own counters and histograms ([`latency_histogram`]); for a scrape they are added up into a
//! [`MetricSnapshot`], which [`exposition`] writes in the formats of Prometheus and OpenMetrics. [`heavy_hitters`] finds
//! the most frequent keys. The crate uses no sockets or clocks.

#![forbid(unsafe_code)]

pub mod exposition;
pub mod heavy_hitters;
pub mod latency_histogram;
pub mod scope_registry;
pub mod snapshot;

pub use exposition::ExpositionFormat;
pub use heavy_hitters::{HeavyHitters, HitterEstimate, HitterLimits, HitterSnapshot};
pub use latency_histogram::{LatencyDistribution, LatencyHistogram};
pub use scope_registry::{MetricScope, ScopeLabels, ScopeRegistry};
pub use snapshot::{MetricFamily, MetricKind, MetricSample, MetricSnapshot, SampleValue};
