//! Parses the cache directives of a request. Read RFC 9111 §5.2.1, §5.4 and RFC 5861 §4.

use lowroad_http::equals_lower;

use crate::cache_control::{CacheDirectives, DeltaSeconds};

/// The parts of a request that determine which stored responses it accepts, and whether the response may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestDirectives {
    /// The method is GET.
    pub is_get: bool,
    /// Authorization is present.
    pub is_authorized: bool,
    /// `no-store`
    pub no_store: bool,
    /// `no-cache`, or `Pragma: no-cache` without Cache-Control.
    pub no_cache: bool,
    /// `only-if-cached`
    pub only_if_cached: bool,
    /// `max-age`; 0 if it is not a number.
    pub max_age_secs: Option<u64>,
    /// `min-fresh`
    pub min_fresh_secs: u64,
    /// `max-stale`; without an argument, any staleness is accepted.
    pub max_stale_secs: u64,
    /// `stale-if-error`
    pub stale_if_error_secs: u64,
}

impl RequestDirectives {
    /// A GET without directives.
    pub const GET: RequestDirectives = RequestDirectives {
        is_get: true,
        is_authorized: false,
        no_store: false,
        no_cache: false,
        only_if_cached: false,
        max_age_secs: None,
        min_fresh_secs: 0,
        max_stale_secs: 0,
        stale_if_error_secs: 0,
    };

    /// Reads the directives of a request. If `is_honoured` is false, all are ignored except `no-store`, which keeps
    /// content private.
    pub fn read<'f>(
        is_get: bool,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        is_honoured: bool,
    ) -> RequestDirectives {
        let mut directives = RequestDirectives {
            is_get,
            ..RequestDirectives::GET
        };
        let (mut has_control, mut pragma) = (false, false);
        for (name, value) in fields {
            if equals_lower(name, b"authorization") {
                directives.is_authorized = true;
            } else if equals_lower(name, b"cache-control") {
                has_control = true;
                CacheDirectives::new(value)
                    .flatten()
                    .for_each(|(n, a)| directives.add(n, a));
            } else if equals_lower(name, b"pragma") {
                let is_no_cache = |member: &[u8]| equals_lower(member.trim_ascii(), b"no-cache");
                pragma |= value.split(|b| *b == b',').any(is_no_cache);
            }
        }
        // RFC 9111 §5.4: Pragma counts only without Cache-Control.
        directives.no_cache |= pragma && !has_control;
        match is_honoured {
            true => directives,
            false => RequestDirectives {
                is_get,
                is_authorized: directives.is_authorized,
                no_store: directives.no_store,
                ..RequestDirectives::GET
            },
        }
    }

    /// Adds a directive. Of repeated `max-age` or `min-fresh`, the stricter value counts.
    fn add(&mut self, name: &[u8], argument: Option<&[u8]>) {
        let secs = DeltaSeconds::Absent.combine(argument).secs();
        self.no_store |= equals_lower(name, b"no-store");
        self.no_cache |= equals_lower(name, b"no-cache");
        self.only_if_cached |= equals_lower(name, b"only-if-cached");
        if equals_lower(name, b"max-age") {
            let previous = self.max_age_secs.unwrap_or(u64::MAX);
            self.max_age_secs = Some(previous.min(secs.unwrap_or(0)));
        } else if equals_lower(name, b"min-fresh") {
            // An invalid argument counts as the strictest value: no response is fresh for that long.
            self.min_fresh_secs = self.min_fresh_secs.max(secs.unwrap_or(u64::MAX));
        } else if equals_lower(name, b"max-stale") {
            // RFC 9111 §5.2.1.2: without an argument, any staleness is accepted.
            let unlimited = argument.is_none().then_some(u64::MAX);
            self.max_stale_secs = unlimited.or(secs).unwrap_or(0);
        } else if equals_lower(name, b"stale-if-error") {
            self.stale_if_error_secs = secs.unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(control: &'static str) -> RequestDirectives {
        RequestDirectives::read(true, [(&b"Cache-Control"[..], control.as_bytes())], true)
    }

    #[test]
    fn invalid_or_repeated_directives_take_the_strictest_value() {
        // An invalid value must not extend the reuse of stored responses.
        let directives = read("no-store, ONLY-IF-CACHED, max-age=9, max-age=5, min-fresh=x");
        assert!(directives.no_store && directives.only_if_cached && !directives.no_cache);
        assert_eq!(
            (directives.max_age_secs, directives.min_fresh_secs),
            (Some(5), u64::MAX)
        );
        assert_eq!(read("max-age=no").max_age_secs, Some(0));
        assert_eq!(read("max-stale").max_stale_secs, u64::MAX);
        assert_eq!(read("max-stale=x").max_stale_secs, 0);
    }

    #[test]
    fn pragma_no_cache_counts_without_cache_control() {
        let pragma = (&b"Pragma"[..], &b"no-cache"[..]);
        assert!(RequestDirectives::read(true, [pragma], true).no_cache);
        let both = [pragma, (b"Cache-Control", b"max-age=5")];
        assert!(!RequestDirectives::read(true, both, true).no_cache);
    }

    #[test]
    fn ignored_directives_still_include_no_store() {
        // `no-store` protects the client's data.
        let fields = [
            (&b"cache-control"[..], &b"no-store, no-cache"[..]),
            (b"authorization", b"x"),
        ];
        let directives = RequestDirectives::read(true, fields, false);
        assert!(directives.no_store && directives.is_authorized && !directives.no_cache);
    }
}
