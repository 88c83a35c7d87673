//! The export of traces to an OpenTelemetry collector.

use std::path::PathBuf;

use crate::OriginUrl;

/// Traces of requests, sent to a collector. `[traces]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracesConfig {
    /// The URL for spans: OTLP over HTTP. Default `http://127.0.0.1:4318/v1/traces`.
    pub endpoint: TracesEndpoint,
    /// A PEM file with the certificate authorities of the collector; None = the system's. Key `ca`.
    pub authorities: Option<PathBuf>,
    /// Fields of each export request. `[traces.headers]`
    pub headers: Vec<(String, String)>,
    /// Fields with values in files. `[traces.header_files]`
    pub header_files: Vec<(String, PathBuf)>,
    /// The share of new traces that are recorded, in millionths. Default all. Key `sample`.
    pub sample_millionths: u32,
    /// Whether traces of clients are continued, with their decision about sampling. Default true.
    pub accept_parent: bool,
    /// The attribute `service.name`. Default `lowroad`.
    pub service_name: String,
    /// Further attributes of the server. `[traces.resource]`
    pub resource: Vec<(String, String)>,
    /// The timeout of an export request. 100 ms to 1 minute. Default 10,000. Key `timeout`.
    pub timeout_ms: u64,
    /// The number of spans that wait for the export, 16 to 1,048,576. Default 8,192. Key `queue_max`.
    pub queue_len_max: usize,
}

impl Default for TracesConfig {
    fn default() -> TracesConfig {
        TracesConfig {
            endpoint: TracesEndpoint::default(),
            authorities: None,
            headers: Vec::new(),
            header_files: Vec::new(),
            sample_millionths: 1_000_000,
            accept_parent: true,
            service_name: "lowroad".into(),
            resource: Vec::new(),
            timeout_ms: 10_000,
            queue_len_max: 8_192,
        }
    }
}

/// The URL of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracesEndpoint {
    /// Scheme, host and port.
    pub server: OriginUrl,
    /// The path, and the query if there is one.
    pub target: String,
}

impl Default for TracesEndpoint {
    fn default() -> TracesEndpoint {
        TracesEndpoint {
            server: OriginUrl::Http {
                encrypted: false,
                host: "127.0.0.1".into(),
                port: 4318,
            },
            target: "/v1/traces".into(),
        }
    }
}

impl std::fmt::Display for TracesEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.server, self.target)
    }
}
