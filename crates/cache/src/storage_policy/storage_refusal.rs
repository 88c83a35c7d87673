//! The reasons for which a response is not stored.

use alloc::string::String;
use core::fmt;

/// The reason for not storing a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageRefusal {
    /// The status is interim, or depends on more than the cache key.
    Status(u16),
    /// The status is not heuristically cacheable, and there is no explicit freshness lifetime.
    StatusNeedsLifetime(u16),
    /// `must-understand`, and the caching rules of the status are not implemented.
    NotUnderstood(u16),
    /// `no-store`
    NoStore,
    /// `private`
    Private,
    /// `no-cache`: each use would need validation.
    NoCache,
    /// The response sets a cookie.
    SetCookie,
    /// Vary names a field that is not part of the key, or `*`.
    Vary(String),
    /// Cache-Control cannot be parsed.
    Malformed,
    /// There is no explicit freshness lifetime, and `must-revalidate` rules out a heuristic one.
    MustRevalidate,
    /// There is no freshness lifetime: neither explicit nor heuristic nor set by the operator.
    NoLifetime,
    /// The response is stale on arrival.
    Stale,
    /// The response has no explicit freshness lifetime, and changed so recently that its heuristic one is over on
    /// arrival. A later response may be storable.
    JustChanged,
    /// The request's method is not GET.
    Method,
    /// The request has `no-store`.
    RequestNoStore,
    /// The request has Authorization, and the response does not permit sharing (§3.5).
    Authorization,
    /// The response needs validation before use, and has no validator.
    NoValidator,
    /// The operator requires that responses are explicitly meant for shared caches, and this one is not.
    NotShared,
    /// A rule of the operator excludes it.
    Rule,
}

impl StorageRefusal {
    /// A short name for counters.
    pub fn label(&self) -> &'static str {
        match self {
            StorageRefusal::Status(_) => "status",
            StorageRefusal::StatusNeedsLifetime(_) => "status-without-lifetime",
            StorageRefusal::NotUnderstood(_) => "must-understand",
            StorageRefusal::NoStore => "no-store",
            StorageRefusal::Private => "private",
            StorageRefusal::NoCache => "no-cache",
            StorageRefusal::SetCookie => "set-cookie",
            StorageRefusal::Vary(_) => "vary",
            StorageRefusal::Malformed => "cache-control-malformed",
            StorageRefusal::MustRevalidate => "must-revalidate",
            StorageRefusal::NoLifetime => "no-lifetime",
            StorageRefusal::Stale | StorageRefusal::JustChanged => "stale",
            StorageRefusal::Method => "method",
            StorageRefusal::RequestNoStore => "request-no-store",
            StorageRefusal::Authorization => "authorization",
            StorageRefusal::NoValidator => "no-validator",
            StorageRefusal::NotShared => "not-shared",
            StorageRefusal::Rule => "rule",
        }
    }
}

impl fmt::Display for StorageRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageRefusal::Status(status) => {
                write!(f, "responses with status {status} are never stored")
            }
            StorageRefusal::StatusNeedsLifetime(status) => write!(
                f,
                "status {status} needs an explicit lifetime to be stored; set Cache-Control: max-age"
            ),
            StorageRefusal::NotUnderstood(status) => write!(
                f,
                "Cache-Control has must-understand, and the caching requirements of status \
                 {status} are unknown here"
            ),
            StorageRefusal::NoStore => f.write_str("Cache-Control has no-store"),
            StorageRefusal::Private => f.write_str("Cache-Control has private, and this is a shared cache"),
            StorageRefusal::NoCache => f.write_str(
                "Cache-Control (or Pragma) has no-cache: each use would need validation; use max-age instead",
            ),
            StorageRefusal::SetCookie => f.write_str("the response sets a cookie"),
            StorageRefusal::Vary(name) => write!(
                f,
                "Vary names {name:?}; only Accept-Encoding is supported"
            ),
            StorageRefusal::Malformed => f.write_str("Cache-Control is malformed"),
            StorageRefusal::MustRevalidate => f.write_str(
                "Cache-Control has must-revalidate, and the response has no freshness lifetime; add max-age",
            ),
            StorageRefusal::NoLifetime => f.write_str(
                "the response has no freshness lifetime; set Cache-Control: max-age, or a ttl for such responses",
            ),
            StorageRefusal::Stale => f.write_str(
                "the response is already stale on arrival (a lifetime of 0, an Expires in the \
                 past or invalid, or an Age beyond it)",
            ),
            StorageRefusal::JustChanged => f.write_str(
                "the response has no freshness lifetime, and was modified a moment ago, so its \
                 heuristic lifetime is 0; set Cache-Control: max-age, or a ttl for such responses",
            ),
            StorageRefusal::Method => f.write_str("only responses to GET are stored"),
            StorageRefusal::RequestNoStore => f.write_str("the request's Cache-Control has no-store"),
            StorageRefusal::Authorization => f.write_str(
                "the request has Authorization; send public, s-maxage or must-revalidate if other \
                 clients may receive the response",
            ),
            StorageRefusal::NoValidator => f.write_str(
                "the response needs validation before each use, and has neither ETag nor Last-Modified",
            ),
            StorageRefusal::NotShared => f.write_str(
                "the route stores only responses marked for shared caches; send public or s-maxage",
            ),
            StorageRefusal::Rule => f.write_str("a rule of the route's cache has no_store"),
        }
    }
}

impl core::error::Error for StorageRefusal {}
