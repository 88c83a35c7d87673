//! Cache bypass: requests that the operator excludes from a shared cache. They are sent to the origin, and their
//! responses are not stored. The rules of RFC 9111 are applied in other modules.

use lowroad_http::equals_lower;
use lowroad_http::forwarding;

use crate::excluded_paths::ExcludedPaths;

/// Selects the requests that bypass the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BypassRules {
    /// Whether requests with Cookie bypass the cache.
    pub cookies: bool,
    /// Whether requests with Cache-Control or Pragma bypass the cache.
    pub cache_control: bool,
    /// Requests for these paths bypass the cache.
    pub excluded: ExcludedPaths,
}

impl BypassRules {
    /// Whether a request bypasses the cache. Regardless of the rules, this is true for requests with credentials, and
    /// for requests with a field that describes the client's original request to a proxy but is not part of the cache
    /// key (X-Forwarded-Proto).
    pub fn matches<'f>(
        &self,
        target: &[u8],
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
    ) -> bool {
        let is_bypass_field = |name: &[u8]| {
            self.cookies && equals_lower(name, b"cookie")
                || self.cache_control
                    && (equals_lower(name, b"cache-control") || equals_lower(name, b"pragma"))
                || equals_lower(name, b"authorization")
                || forwarding::describes_other_request(name)
        };
        fields.into_iter().any(|(name, _)| is_bypass_field(name))
            || self.excluded.matching_prefix(target).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;

    #[test]
    fn configured_fields_and_paths_bypass_the_cache() {
        let all = BypassRules {
            cookies: true,
            cache_control: true,
            excluded: ExcludedPaths::read(&["/private".to_owned()]).expect("paths"),
        };
        let none = BypassRules::default();
        let has = |bypass: &BypassRules, target: &str, name: &str| {
            bypass.matches(target.as_bytes(), [(name.as_bytes(), &b"x"[..])])
        };
        for (target, name) in [
            ("/", "Cookie"),
            ("/", "cache-control"),
            ("/", "PRAGMA"),
            ("/a/../private/x", "Accept"),
        ] {
            assert!(has(&all, target, name), "{target} {name}");
            assert!(!has(&none, target, name), "{target} {name}");
        }
        // These bypass the cache without any rule.
        for name in ["Authorization", "X-Forwarded-Proto"] {
            assert!(has(&none, "/", name), "{name}");
        }
        assert!(!has(&all, "/public", "Accept"));
    }
}
