//! Caching of an origin's responses, beyond their own caching fields.

use super::RequestConditions;

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
            status_field: true,
            guessed_s_max: 24 * 3600,
            refusals: true,
            encoding_in_key: false,
            bypass: None,
        }
    }
}
