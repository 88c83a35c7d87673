//! Cache bypass: requests that an operator excludes from a shared cache. The origin answers them, and their responses
//! are not stored. Other modules apply the exclusions of RFC 9111.

use lowroad_http::forwarding;

use crate::excluded_paths::ExcludedPaths;

/// Selects the requests that bypass the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BypassRules {
    /// Requests with Cookie.
    pub cookies: bool,
    /// Requests with Cache-Control or Pragma.
    pub cache_control: bool,
    /// Requests for these paths.
    pub excluded: ExcludedPaths,
}

impl BypassRules {
    /// Whether a request bypasses the cache. Apart from the operator's exclusions these are requests with credentials,
    /// and requests with a field, outside the cache key, by which a proxy describes another original request.
    pub fn has<'f>(
        &self,
        target: &[u8],
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
    ) -> bool {
        let is_meant = |name: &[u8]| {
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            self.cookies && is("cookie")
                || self.cache_control && (is("cache-control") || is("pragma"))
                || is("authorization")
                || forwarding::tells_other_request(name)
        };
        fields.into_iter().any(|(name, _)| is_meant(name))
            || self.excluded.prefix_of(target).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;

    #[test]
    fn fields_and_paths_bypass_as_they_were_named() {
        let all = BypassRules {
            cookies: true,
            cache_control: true,
            excluded: ExcludedPaths::read(&["/private".to_owned()]).expect("paths"),
        };
        let none = BypassRules::default();
        let has = |bypass: &BypassRules, target: &str, name: &str| {
            bypass.has(target.as_bytes(), [(name.as_bytes(), &b"x"[..])])
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
        // Always, without a rule of the operator.
        for name in ["Authorization", "X-Forwarded-Proto"] {
            assert!(has(&none, "/", name), "{name}");
        }
        assert!(!has(&all, "/public", "Accept"));
    }
}
