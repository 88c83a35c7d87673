//! Caching of an origin's responses, beyond their own caching fields.

use std::fmt;

use super::RequestConditions;
use crate::PathPattern;

/// How the responses of a route's origin are stored and reused. `[site.route.cache]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// The freshness lifetime in seconds of responses without one; `None`: heuristic freshness (RFC 9111 §4.2.2), a
    /// tenth of the time since Last-Modified, a day at most. Key `ttl`.
    pub ttl_s: Option<u64>,
    /// Seconds of stale use during validation (RFC 5861 §3), for responses that do not set it. Default 0. Key
    /// `stale_while_revalidate`.
    pub stale_while_revalidate_s: u64,
    /// Seconds of stale use when the origin fails (RFC 5861 §4), for responses that do not set it. Default 3600. Key
    /// `stale_if_error`.
    pub stale_if_error_s: u64,
    /// Which responses with Set-Cookie are stored. Key `cookies`.
    pub cookies: CookieStorage,
    /// Whether Cache-Control in requests is honored, so that any client can force a request to the origin. Default
    /// false; `no-store` is always honored. Key `request_directives`.
    pub request_directives: bool,
    /// Responses have the field Cache-Status (RFC 9211). Default true. Key `status_field`.
    pub status_field: bool,
    /// The names of query arguments that are not part of the key; a `*` at the end stands for any text. By default none.
    /// Key `ignore_arguments`.
    pub ignored_arguments: Vec<String>,
    /// Whether query arguments are sorted by name in the key. Default false. Key `sort_arguments`.
    pub sorts_arguments: bool,
    /// Requests that meet one of these sets of conditions are always answered by the handler, and the responses are not
    /// stored. By default none. Key `bypass`.
    pub bypass_conditions: Vec<RequestConditions>,
    /// Lifetimes and exceptions for some responses; the first rule that matches applies. By default none, at most
    /// [`CACHE_RULES_MAX`]. Key `rule`.
    pub rules: Vec<CacheRule>,
    /// Upper bound of a heuristic lifetime from Last-Modified, in seconds. Default a day. Not in files.
    pub guessed_s_max: u64,
    /// Whether responses 403, 429 and 451 are stored. Default true. Not in files.
    pub refusals: bool,
    /// Whether Accept-Encoding is part of the cache key, as if every response named it in Vary. Default false. Not in
    /// files.
    pub encoding_in_key: bool,
    /// Requests that bypass the cache. Default none apart from RFC 9111. Not in files: `attach`, in front of another
    /// web server, sets it from its command line.
    pub bypass: Option<CacheBypass>,
}

/// The maximum number of rules of a route's cache.
pub const CACHE_RULES_MAX: usize = 64;

/// A rule about the storage of some responses. `[[site.route.cache.rule]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheRule {
    /// The paths; empty: all. Key `pattern`.
    pub patterns: Vec<PathPattern>,
    /// The statuses of responses; empty: all. Key `status`.
    pub statuses: Vec<StatusRange>,
    /// The conditions on the request that gets the response.
    pub conditions: RequestConditions,
    /// The effect.
    pub action: CacheRuleAction,
}

/// The effect of a rule on a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheRuleAction {
    /// The response is not stored. `no_store = true`
    NoStore,
    /// Its freshness lifetime. Key `ttl`.
    Lifetime {
        /// The lifetime in seconds.
        ttl_s: u64,
        /// Whether it replaces a lifetime of the response. Default false. Key `override`.
        overrides: bool,
    },
}

/// A status, or a hundred of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusRange {
    /// `404`
    Exact(u16),
    /// `"4xx"`, as 4.
    Class(u16),
}

impl StatusRange {
    /// Whether its statuses are those of errors.
    #[must_use]
    pub fn contains_errors(self) -> bool {
        match self {
            StatusRange::Exact(status) => status >= 400,
            StatusRange::Class(class) => class >= 4,
        }
    }

    /// Whether the status is in the range.
    #[must_use]
    pub fn contains(self, status: u16) -> bool {
        match self {
            StatusRange::Exact(exact) => exact == status,
            StatusRange::Class(class) => class == status / 100,
        }
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatusRange::Exact(status) => write!(f, "{status}"),
            StatusRange::Class(class) => write!(f, "{class}xx"),
        }
    }
}

/// Requests that the origin always answers; their responses are not stored. They include requests with credentials,
/// and requests with a field in which a proxy describes another original request (X-Forwarded-Proto and the like).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheBypass {
    /// Requests with Cookie.
    pub cookies: bool,
    /// Requests with Cache-Control or Pragma.
    pub cache_control: bool,
    /// Requests for paths with these prefixes, in any spelling.
    pub paths: Vec<String>,
}

/// Which responses with Set-Cookie are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CookieStorage {
    /// Those with an explicit permission for shared caches: `public`, `s-maxage`, CDN-Cache-Control.
    #[default]
    Shared,
    /// None.
    Never,
    /// All that RFC 9111 lets a cache store.
    Always,
}

impl Default for CacheConfig {
    fn default() -> CacheConfig {
        CacheConfig {
            ttl_s: None,
            stale_while_revalidate_s: 0,
            stale_if_error_s: 3600,
            cookies: CookieStorage::default(),
            request_directives: false,
            ignored_arguments: Vec::new(),
            sorts_arguments: false,
            bypass_conditions: Vec::new(),
            rules: Vec::new(),
            status_field: true,
            guessed_s_max: 24 * 3600,
            refusals: true,
            encoding_in_key: false,
            bypass: None,
        }
    }
}
