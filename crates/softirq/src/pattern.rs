//! Which published responses a purge means. What a purge says is in the crate `lowroad-cache`.

use lowroad_wire::key::Key;

pub use lowroad_cache::pattern::{Pattern, PatternError, decode_escapes};

/// Whether a purge means the response with this key, at whatever address.
#[must_use]
pub fn is_meant(pattern: &Pattern, key: &Key) -> bool {
    let parts = key.parts();
    pattern.takes(parts.host, Some(parts.port), parts.target)
}
