//! Decides how a stored response may be reused: fresh, stale, after validation, or not at all. Times are milliseconds
//! of a monotonic clock. Read RFC 9111 §4.2.4, §5.2 and RFC 5861.
//!
//! A response with both `s-maxage` and a window of RFC 5861 may be reused stale in that window, since the window is
//! explicit. `s-maxage` alone forbids stale reuse, as `must-revalidate` always does.

use crate::freshness::Freshness;
use crate::request::RequestDirectives;
use lowroad_http::fields::FieldNames;

/// The decision to store a response, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoragePlan {
    /// The lifetime and the age on arrival.
    pub freshness: Freshness,
    /// Each use needs validation.
    pub no_cache: bool,
    /// No stale reuse, except in a window that the response gives itself.
    pub must_revalidate: bool,
    /// The time after the lifetime in which it may be reused during validation.
    pub swr_secs: u64,
    /// The time after the lifetime in which it may be reused if validation fails.
    pub sie_secs: u64,
    /// It does not change within its lifetime.
    pub immutable: bool,
    /// Fields that are not stored.
    pub excluded_fields: FieldNames,
    /// A 206 with parts of the representation.
    pub is_partial: bool,
}

/// The times of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreshnessLifetime {
    /// The time of its origin, computed from its age on arrival or at the last validation. May precede the clock's
    /// start.
    pub generated_ms: i64,
    /// The end of its freshness.
    pub until_ms: u64,
    /// The end of reuse during validation.
    pub swr_until_ms: u64,
    /// The end of reuse after a failed validation.
    pub sie_until_ms: u64,
    /// Each use needs validation.
    pub no_cache: bool,
    /// No stale reuse, except until `swr_until_ms` and `sie_until_ms`.
    pub must_revalidate: bool,
    /// On arrival it could be reused without validation, perhaps stale.
    pub was_reusable: bool,
}

/// How a stored response may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reusability {
    /// Reuse it.
    Fresh,
    /// Reuse it stale, as the client permits.
    Stale,
    /// Reuse it, and validate it in the background.
    StaleWhileRevalidate,
    /// Validate it at the origin first.
    Validate,
    /// 504: the client sent `only-if-cached`.
    Unusable,
}

impl StoragePlan {
    /// Whether storing it is useful; `validates` if it can be validated.
    pub(crate) fn is_useful(&self, validates: bool) -> bool {
        let remaining_ms = self.freshness.remaining_ms() + (self.swr_secs + self.sie_secs) * 1000;
        validates || (remaining_ms > 0 && !self.no_cache)
    }

    /// The times to store if it arrived at `now_ms`.
    #[must_use]
    pub fn lifetime(&self, now_ms: u64) -> FreshnessLifetime {
        let lifetime_ms = self.freshness.lifetime_secs.saturating_mul(1000);
        let remaining_ms = self.freshness.remaining_ms();
        // Time for which it was stale on arrival counts against the windows.
        let stale_ms = self.freshness.age_ms.saturating_sub(lifetime_ms);
        let window = |secs: u64| {
            let window_ms = secs.saturating_mul(1000);
            now_ms.saturating_add(remaining_ms.saturating_add(window_ms.saturating_sub(stale_ms)))
        };
        // The lifetime may have ended before the arrival.
        let until_ms = now_ms.saturating_add(remaining_ms).saturating_sub(stale_ms);
        let swr_until_ms = window(self.swr_secs);
        FreshnessLifetime {
            generated_ms: generated_ms(now_ms, self.freshness.age_ms),
            until_ms,
            swr_until_ms,
            sie_until_ms: window(self.sie_secs),
            no_cache: self.no_cache,
            must_revalidate: self.must_revalidate,
            was_reusable: !self.no_cache && until_ms.max(swr_until_ms) > now_ms,
        }
    }
}

/// The time of origin of a response with this age.
#[must_use]
pub fn generated_ms(now_ms: u64, age_ms: u64) -> i64 {
    signed(now_ms).saturating_sub(signed(age_ms))
}

/// The age of a response with this time of origin.
#[must_use]
#[inline]
pub fn age_ms(generated_ms: i64, now_ms: u64) -> u64 {
    signed(now_ms)
        .saturating_sub(generated_ms)
        .max(0)
        .cast_unsigned()
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

impl FreshnessLifetime {
    /// Whether it may be reused for a request without cache directives: equivalent to `Reusability::Fresh` for
    /// `RequestDirectives::GET`.
    #[must_use]
    #[inline]
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        !self.no_cache && now_ms < self.until_ms
    }

    /// Its age, which Age reports in whole seconds.
    #[must_use]
    #[inline]
    pub fn age_ms(&self, now_ms: u64) -> u64 {
        age_ms(self.generated_ms, now_ms)
    }

    /// The times after a soft purge: the lifetime ends now at the latest, and the windows begin then.
    #[must_use]
    #[inline]
    pub fn expired(self, now_ms: u64) -> FreshnessLifetime {
        // 0 if the response is stale already: then the times are unchanged.
        let remaining_ms = self.until_ms.saturating_sub(now_ms);
        FreshnessLifetime {
            until_ms: self.until_ms - remaining_ms,
            swr_until_ms: self.swr_until_ms.saturating_sub(remaining_ms),
            sie_until_ms: self.sie_until_ms.saturating_sub(remaining_ms),
            ..self
        }
    }

    /// Decides how it may be reused for a request.
    #[must_use]
    pub fn reusability_for(&self, directives: &RequestDirectives, now_ms: u64) -> Reusability {
        match self.decide_without_origin(directives, now_ms) {
            Some(verdict) => verdict,
            None if directives.only_if_cached => Reusability::Unusable,
            None => Reusability::Validate,
        }
    }

    fn decide_without_origin(
        &self,
        directives: &RequestDirectives,
        now_ms: u64,
    ) -> Option<Reusability> {
        let age_max_ms = directives
            .max_age_secs
            .map_or(u64::MAX, |secs| secs.saturating_mul(1000));
        // `max-age=0` always asks for validation, even of a response without age.
        let is_older = match directives.max_age_secs {
            Some(0) => true,
            _ => self.age_ms(now_ms) > age_max_ms,
        };
        if self.no_cache || directives.no_cache || is_older {
            return None;
        }
        let remaining_ms = self.until_ms.saturating_sub(now_ms);
        if remaining_ms > 0 {
            let is_fresh = remaining_ms >= directives.min_fresh_secs.saturating_mul(1000);
            return is_fresh.then_some(Reusability::Fresh);
        }
        // min-fresh asks for freshness, which excludes stale reuse.
        if directives.min_fresh_secs > 0 {
            return None;
        }
        // A client with max-age accepts a stale response only with max-stale.
        let has_max_age = directives.max_age_secs.is_some();
        if now_ms < self.swr_until_ms && !has_max_age {
            return Some(Reusability::StaleWhileRevalidate);
        }
        let stale_ms = now_ms.saturating_sub(self.until_ms);
        let accepts_stale = stale_ms < directives.max_stale_secs.saturating_mul(1000);
        // RFC 9111 §5.2.2.2: max-stale does not override must-revalidate.
        (accepts_stale && !self.must_revalidate).then_some(Reusability::Stale)
    }

    /// Whether it may be reused after the origin failed: with a 500, 502, 503 or 504, or without a response.
    #[must_use]
    pub fn is_usable_on_error(&self, directives: &RequestDirectives, now_ms: u64) -> bool {
        if self.no_cache
            || directives.no_cache
            || directives.min_fresh_secs > 0 && now_ms >= self.until_ms
        {
            return false;
        }
        let stale_if_error_ms = directives.stale_if_error_secs.saturating_mul(1000);
        let client_allows =
            !self.must_revalidate && now_ms < self.until_ms.saturating_add(stale_if_error_ms);
        now_ms < self.sie_until_ms || client_allows
    }
}

#[cfg(test)]
mod tests;
