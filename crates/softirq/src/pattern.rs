//! Matches published responses with purge patterns, which the crate `lowroad-cache` defines.

use lowroad_wire::key::RequestKey;

pub use lowroad_cache::pattern::{RequestPattern, RequestPatternError, decode_escapes};

/// Whether the pattern matches the response with this key, regardless of the local address.
#[must_use]
pub fn matches_pattern(pattern: &RequestPattern, key: &RequestKey) -> bool {
    let parts = key.parts();
    pattern.matches(parts.host, Some(parts.port), parts.target)
}
