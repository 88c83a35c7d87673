//! Selects published responses by a purge pattern. The patterns are defined in the crate `lowroad-cache`.

use lowroad_wire::key::RequestKey;

pub use lowroad_cache::pattern::{RequestPattern, RequestPatternError, decode_escapes};

/// Whether the pattern matches the response with this key, at any address.
#[must_use]
pub fn matches_pattern(pattern: &RequestPattern, key: &RequestKey) -> bool {
    let parts = key.parts();
    pattern.matches(parts.host, Some(parts.port), parts.target)
}
