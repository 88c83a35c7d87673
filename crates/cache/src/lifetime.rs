//! Decides how a stored response may be reused: fresh, stale, after validation, or not at all. Times are milliseconds
//! of a monotonic clock. Read RFC 9111 §4.2.4, §5.2 and RFC 5861.
//!
//! `s-maxage` forbids stale reuse, except for the time that the response's own `stale-while-revalidate` or
//! `stale-if-error` allows. `must-revalidate` forbids stale reuse without exception.

use crate::freshness::Freshness;
use crate::request::RequestDirectives;
use lowroad_http::fields::FieldNames;

/// The parameters with which a response is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoragePlan {
    /// The freshness lifetime, and the age on arrival.
    pub freshness: Freshness,
    /// Each use needs validation.
    pub no_cache: bool,
    /// Stale reuse is limited to `swr_secs` and `sie_secs`, even if the client accepts more. Set for `must-revalidate`
    /// (then both are 0), for `s-maxage`, and for a freshness lifetime of 0.
    pub must_revalidate: bool,
    /// `stale-while-revalidate`: for this time after the end of freshness, the response is reused while it is validated
    /// in the background.
    pub swr_secs: u64,
    /// `stale-if-error`: for this time after the end of freshness, the response is reused if the origin fails.
    pub sie_secs: u64,
    /// The `immutable` directive: the response does not change while it is fresh.
    pub immutable: bool,
    /// Header fields that are not stored.
    pub excluded_fields: FieldNames,
    /// The response is a 206 with a part of the representation.
    pub is_partial: bool,
}

/// The times that limit the reuse of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReuseDeadlines {
    /// When the origin server generated or last validated the response, computed from its age. Negative if this time is
    /// before the start of the clock.
    pub generated_ms: i64,
    /// The end of freshness.
    pub fresh_until_ms: u64,
    /// The end of `stale-while-revalidate`.
    pub swr_until_ms: u64,
    /// The end of `stale-if-error`.
    pub sie_until_ms: u64,
    /// Each use needs validation.
    pub no_cache: bool,
    /// Stale reuse ends at `swr_until_ms` and `sie_until_ms`, even if the client accepts more.
    pub must_revalidate: bool,
    /// The response could be reused without validation when it arrived: fresh, or within `stale-while-revalidate`.
    pub was_reusable_on_arrival: bool,
}

/// How a stored response may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reusability {
    /// Fresh: reuse it.
    Fresh,
    /// Stale, but the client's `max-stale` accepts it: reuse it.
    Stale,
    /// Stale: reuse it, and validate it in the background.
    StaleWhileRevalidate,
    /// Validate it at the origin first.
    Validate,
    /// It needs validation, but the client sent `only-if-cached`: respond with 504.
    Unusable,
}

impl StoragePlan {
    /// Whether the stored response could ever be reused. `can_validate`: whether stale responses can be validated.
    pub(crate) fn is_useful(&self, can_validate: bool) -> bool {
        let remaining_ms = self.freshness.remaining_ms() + (self.swr_secs + self.sie_secs) * 1000;
        can_validate || (remaining_ms > 0 && !self.no_cache)
    }

    /// The deadlines of the response if it arrived at `now_ms`.
    #[must_use]
    pub fn reuse_deadlines(&self, now_ms: u64) -> ReuseDeadlines {
        let lifetime_ms = self.freshness.lifetime_secs.saturating_mul(1000);
        let remaining_ms = self.freshness.remaining_ms();
        // A response that arrives stale has used up a part of stale-while-revalidate and stale-if-error.
        let stale_ms = self.freshness.age_ms.saturating_sub(lifetime_ms);
        let deadline_ms = |secs: u64| {
            let window_ms = secs.saturating_mul(1000);
            now_ms.saturating_add(remaining_ms.saturating_add(window_ms.saturating_sub(stale_ms)))
        };
        // The end of freshness; it lies before `now_ms` if the response arrived stale.
        let until_ms = now_ms.saturating_add(remaining_ms).saturating_sub(stale_ms);
        let swr_until_ms = deadline_ms(self.swr_secs);
        ReuseDeadlines {
            generated_ms: generated_ms(now_ms, self.freshness.age_ms),
            fresh_until_ms: until_ms,
            swr_until_ms,
            sie_until_ms: deadline_ms(self.sie_secs),
            no_cache: self.no_cache,
            must_revalidate: self.must_revalidate,
            was_reusable_on_arrival: !self.no_cache && until_ms.max(swr_until_ms) > now_ms,
        }
    }
}

/// The time at which a response of this age was generated.
#[must_use]
pub fn generated_ms(now_ms: u64, age_ms: u64) -> i64 {
    signed(now_ms).saturating_sub(signed(age_ms))
}

/// The age of a response that was generated at this time.
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

impl ReuseDeadlines {
    /// Whether the response is fresh for a request without cache directives: equivalent to `Reusability::Fresh` for
    /// `RequestDirectives::GET`.
    #[must_use]
    #[inline]
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        !self.no_cache && now_ms < self.fresh_until_ms
    }

    /// The current age; the Age field reports it in whole seconds.
    #[must_use]
    #[inline]
    pub fn age_ms(&self, now_ms: u64) -> u64 {
        age_ms(self.generated_ms, now_ms)
    }

    /// The deadlines after a soft purge at `now_ms`: freshness ends at `now_ms` at the latest, and the time for
    /// `stale-while-revalidate` and `stale-if-error` begins at the end of freshness.
    #[must_use]
    #[inline]
    pub fn after_soft_purge(self, now_ms: u64) -> ReuseDeadlines {
        // If the response is stale already, this is 0, and the deadlines are unchanged.
        let remaining_ms = self.fresh_until_ms.saturating_sub(now_ms);
        ReuseDeadlines {
            fresh_until_ms: self.fresh_until_ms - remaining_ms,
            swr_until_ms: self.swr_until_ms.saturating_sub(remaining_ms),
            sie_until_ms: self.sie_until_ms.saturating_sub(remaining_ms),
            ..self
        }
    }

    /// Decides how the response may be reused for a request.
    #[must_use]
    pub fn reusability_for(&self, directives: &RequestDirectives, now_ms: u64) -> Reusability {
        match self.decide_without_origin(directives, now_ms) {
            Some(verdict) => verdict,
            None if directives.only_if_cached => Reusability::Unusable,
            None => Reusability::Validate,
        }
    }

    /// The decision, unless the response must be validated at the origin (`None`).
    fn decide_without_origin(
        &self,
        directives: &RequestDirectives,
        now_ms: u64,
    ) -> Option<Reusability> {
        let age_max_ms = directives
            .max_age_secs
            .map_or(u64::MAX, |secs| secs.saturating_mul(1000));
        // A response of age 0 does not exceed `max-age=0`, but must be validated, too.
        let exceeds_max_age = match directives.max_age_secs {
            Some(0) => true,
            _ => self.age_ms(now_ms) > age_max_ms,
        };
        if self.no_cache || directives.no_cache || exceeds_max_age {
            return None;
        }
        let remaining_ms = self.fresh_until_ms.saturating_sub(now_ms);
        if remaining_ms > 0 {
            // A response that is fresh, but for less time than min-fresh requires, is validated.
            let is_fresh = remaining_ms >= directives.min_fresh_secs.saturating_mul(1000);
            return is_fresh.then_some(Reusability::Fresh);
        }
        // min-fresh asks for freshness, which excludes stale reuse.
        if directives.min_fresh_secs > 0 {
            return None;
        }
        // A client that sends max-age accepts a stale response only if it also sends max-stale.
        let has_max_age = directives.max_age_secs.is_some();
        if now_ms < self.swr_until_ms && !has_max_age {
            return Some(Reusability::StaleWhileRevalidate);
        }
        let stale_ms = now_ms.saturating_sub(self.fresh_until_ms);
        let accepts_stale = stale_ms < directives.max_stale_secs.saturating_mul(1000);
        // RFC 9111 §5.2.2.2: max-stale does not override must-revalidate.
        (accepts_stale && !self.must_revalidate).then_some(Reusability::Stale)
    }

    /// Whether the response may be reused after the origin failed with 500, 502, 503 or 504, or did not respond.
    #[must_use]
    pub fn is_usable_on_error(&self, directives: &RequestDirectives, now_ms: u64) -> bool {
        if self.no_cache
            || directives.no_cache
            || directives.min_fresh_secs > 0 && now_ms >= self.fresh_until_ms
        {
            return false;
        }
        let stale_if_error_ms = directives.stale_if_error_secs.saturating_mul(1000);
        let client_allows =
            !self.must_revalidate && now_ms < self.fresh_until_ms.saturating_add(stale_if_error_ms);
        now_ms < self.sie_until_ms || client_allows
    }
}

#[cfg(test)]
mod tests;
