//! Reads `[site.route.cache]`: settings that override how an origin's responses are cached.

use crate::CacheConfig;
use crate::CookieStorage;
use crate::named::DAY_MS;
use crate::reader::ConfigSection;

/// The maximum lifetime, which is beyond any sensible value.
const LIFETIME_MS_MAX: u64 = 10 * 365 * DAY_MS;

/// Reads the cache settings of a route.
pub(crate) fn caching(section: ConfigSection<'_>) -> CacheConfig {
    let default = CacheConfig::default();
    let secs = |key, default_s: u64| {
        // Delta-seconds are whole seconds (RFC 9111 §1.2.2).
        section.duration_ms(key, default_s * 1000, 0..=LIFETIME_MS_MAX) / 1000
    };
    let cookies = [
        ("shared", CookieStorage::Shared),
        ("never", CookieStorage::Never),
        ("always", CookieStorage::Always),
    ];
    let caching = CacheConfig {
        ttl_s: section
            .optional_duration_ms("ttl", 0..=LIFETIME_MS_MAX)
            .map(|ms| ms / 1000),
        stale_while_revalidate_s: secs("stale_while_revalidate", default.stale_while_revalidate_s),
        stale_if_error_s: secs("stale_if_error", default.stale_if_error_s),
        cookies: section.choice("cookies", &cookies, default.cookies),
        request_directives: section.flag("request_directives", default.request_directives),
        status_field: section.flag("status_field", default.status_field),
        ..default
    };
    section.finish();
    caching
}
