//! Policies of a whole site: other origins, maintenance, the canonical URL.

use std::path::PathBuf;

use super::RequestConditions;
use crate::PathPattern;

/// The origins that may read responses. `[[site.cors]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsConfig {
    /// The paths. Default: all.
    pub pattern: PathPattern,
    /// The origins; never empty. Key `origins`.
    pub origins: Vec<CorsOrigin>,
    /// The methods of requests. Default GET, HEAD, POST. Key `methods`.
    pub methods: Vec<String>,
    /// The fields of requests. By default only those that browsers always send. Key `headers`.
    pub headers: CorsHeaders,
    /// The fields of responses that scripts may read, in addition to the common ones. Key `expose`.
    pub expose: Vec<String>,
    /// Whether requests have cookies and passwords. Default false. Key `credentials`.
    pub credentials: bool,
    /// For how many seconds browsers keep the answer to a preflight; `None`: their default. Key `max_age`.
    pub max_age_s: Option<u64>,
}

/// Origins (RFC 6454), as browsers write them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorsOrigin {
    /// All. `"*"`
    All,
    /// This one. `"https://app.example"`
    Exact(String),
    /// All hosts below one. `"https://*.example.com"`
    Subdomains {
        /// The scheme with `://`.
        scheme: String,
        /// The end of the origin, from the dot.
        suffix: String,
    },
}

/// Names of request fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorsHeaders {
    /// All. `"*"`
    All,
    /// These.
    Names(Vec<String>),
}

impl CorsConfig {
    /// Whether all origins are allowed.
    #[must_use]
    pub fn is_for_all(&self) -> bool {
        self.origins.contains(&CorsOrigin::All)
    }
}

/// The maintenance mode. `[site.maintenance]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaintenanceConfig {
    /// The mode is on while there is a file at this path. Key `file`.
    pub file: Option<PathBuf>,
    /// The value of Retry-After, in seconds. Default 300. Key `retry_after`.
    pub retry_after_s: u64,
    /// Requests that are answered in spite of the maintenance mode. Key `except`.
    pub exceptions: Vec<RequestConditions>,
}

impl Default for MaintenanceConfig {
    fn default() -> MaintenanceConfig {
        MaintenanceConfig {
            file: None,
            retry_after_s: 300,
            exceptions: Vec::new(),
        }
    }
}

/// The form of paths without a file. Key `trailing_slash`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrailingSlash {
    /// As requested. `"keep"`
    #[default]
    Keep,
    /// With a slash at the end. `"add"`
    Add,
    /// Without one. `"remove"`
    Remove,
}
