//! How a stored response may be used: as it is, stale, after validation, or not at all. It knows no clock: times are
//! milliseconds of one that never goes back. Read RFC 9111 §4.2.4, §5.2 and RFC 5861.
//!
//! A response that has both `s-maxage` and a window of RFC 5861 may be used stale in that window: its author said so
//! in as many words. `s-maxage` alone forbids stale use, as `must-revalidate` does in any case.

use crate::freshness::Freshness;
use crate::request::Asked;
use lowroad_http::fields::FieldNames;

/// That a response may be stored, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storing {
    /// Its lifetime and age.
    pub freshness: Freshness,
    /// Each use has to be validated.
    pub no_cache: bool,
    /// It may not be used stale, but in a window that it gives itself.
    pub must_revalidate: bool,
    /// For so long after its lifetime it may be used while it is validated.
    pub swr_secs: u64,
    /// For so long after its lifetime it may be used if validation fails.
    pub sie_secs: u64,
    /// It will not change in its lifetime.
    pub immutable: bool,
    /// Fields that are not stored with it.
    pub left_out: FieldNames,
    /// It is 206: it has only parts of the representation.
    pub is_partial: bool,
}

/// What is kept with a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// When it was made, by its age when it came or was last validated. That may be before the clock began.
    pub born_ms: i64,
    /// Until when it is fresh.
    pub until_ms: u64,
    /// Until when it may be used while it is validated.
    pub swr_until_ms: u64,
    /// Until when it may be used if validation fails.
    pub sie_until_ms: u64,
    /// Each use has to be validated.
    pub no_cache: bool,
    /// It may not be used stale but until `swr_until_ms` and `sie_until_ms`.
    pub must_revalidate: bool,
    /// It could be used without validation when it came, be it stale.
    pub was_useful: bool,
}

/// What may be done with a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It is the answer.
    Fresh,
    /// It is the answer, for the client takes a stale one.
    Stale,
    /// It is the answer, and is to be validated meanwhile.
    StaleWhileRevalidate,
    /// The origin is to be asked whether it still holds.
    Validate,
    /// 504: the client wants nothing that the origin has to be asked for.
    Unusable,
}

impl Storing {
    /// Whether it is of any use in the store, to one who `validates` it if it can be.
    pub(crate) fn is_useful(&self, validates: bool) -> bool {
        let left_ms = self.freshness.left_ms() + (self.swr_secs + self.sie_secs) * 1000;
        validates || (left_ms > 0 && !self.no_cache)
    }

    /// What is kept of it if it came at `now_ms`.
    #[must_use]
    pub fn lifetime(&self, now_ms: u64) -> Lifetime {
        let lifetime_ms = self.freshness.lifetime_secs.saturating_mul(1000);
        let left_ms = self.freshness.left_ms();
        // What it was stale for on arrival counts against the windows.
        let over_ms = self.freshness.age_ms.saturating_sub(lifetime_ms);
        let window = |secs: u64| {
            let whole_ms = secs.saturating_mul(1000);
            now_ms.saturating_add(left_ms.saturating_add(whole_ms.saturating_sub(over_ms)))
        };
        // It may have ended before the response came.
        let until_ms = now_ms.saturating_add(left_ms).saturating_sub(over_ms);
        let swr_until_ms = window(self.swr_secs);
        Lifetime {
            born_ms: born_ms(now_ms, self.freshness.age_ms),
            until_ms,
            swr_until_ms,
            sie_until_ms: window(self.sie_secs),
            no_cache: self.no_cache,
            must_revalidate: self.must_revalidate,
            was_useful: !self.no_cache && until_ms.max(swr_until_ms) > now_ms,
        }
    }
}

/// When something was made that is so old now.
#[must_use]
pub fn born_ms(now_ms: u64, age_ms: u64) -> i64 {
    signed(now_ms).saturating_sub(signed(age_ms))
}

/// How old something is that was made then.
#[must_use]
#[inline]
pub fn age_ms(born_ms: i64, now_ms: u64) -> u64 {
    signed(now_ms)
        .saturating_sub(born_ms)
        .max(0)
        .cast_unsigned()
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

impl Lifetime {
    /// Whether it may be used for a request that says nothing to caches: [`Use::Fresh`] for [`Asked::GET`].
    #[must_use]
    #[inline]
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        !self.no_cache && now_ms < self.until_ms
    }

    /// Its age, which the field Age says in whole seconds.
    #[must_use]
    #[inline]
    pub fn age_ms(&self, now_ms: u64) -> u64 {
        age_ms(self.born_ms, now_ms)
    }

    /// What a soft purge leaves of it: its lifetime ends now at the latest, and its windows begin then.
    #[must_use]
    #[inline]
    pub fn expired(self, now_ms: u64) -> Lifetime {
        let early_ms = self.until_ms.saturating_sub(now_ms);
        Lifetime {
            until_ms: self.until_ms - early_ms,
            swr_until_ms: self.swr_until_ms.saturating_sub(early_ms),
            sie_until_ms: self.sie_until_ms.saturating_sub(early_ms),
            ..self
        }
    }

    /// What may be done with it for a request.
    #[must_use]
    pub fn use_for(&self, asked: &Asked, now_ms: u64) -> Use {
        match self.without_origin(asked, now_ms) {
            Some(verdict) => verdict,
            None if asked.only_if_cached => Use::Unusable,
            None => Use::Validate,
        }
    }

    fn without_origin(&self, asked: &Asked, now_ms: u64) -> Option<Use> {
        let age_max_ms = asked
            .max_age_secs
            .map_or(u64::MAX, |secs| secs.saturating_mul(1000));
        let is_older = match asked.max_age_secs {
            Some(0) => true,
            _ => self.age_ms(now_ms) > age_max_ms,
        };
        if self.no_cache || asked.no_cache || is_older {
            return None;
        }
        let left_ms = self.until_ms.saturating_sub(now_ms);
        if left_ms > 0 {
            let is_fresh = left_ms >= asked.min_fresh_secs.saturating_mul(1000);
            return is_fresh.then_some(Use::Fresh);
        }
        if asked.min_fresh_secs > 0 {
            return None;
        }
        // A client that gives a limit does not take what is stale, unless it says so.
        let is_bound = asked.max_age_secs.is_some();
        if now_ms < self.swr_until_ms && !is_bound {
            return Some(Use::StaleWhileRevalidate);
        }
        let stale_ms = now_ms.saturating_sub(self.until_ms);
        let takes = stale_ms < asked.max_stale_secs.saturating_mul(1000);
        (takes && !self.must_revalidate).then_some(Use::Stale)
    }

    /// Whether it may be the answer after the origin failed: by a 500, 502, 503 or 504, or by no answer at all.
    #[must_use]
    pub fn stands_in(&self, asked: &Asked, now_ms: u64) -> bool {
        if self.no_cache || asked.no_cache || asked.min_fresh_secs > 0 && now_ms >= self.until_ms {
            return false;
        }
        let asked_ms = asked.stale_if_error_secs.saturating_mul(1000);
        let by_client = !self.must_revalidate && now_ms < self.until_ms.saturating_add(asked_ms);
        now_ms < self.sie_until_ms || by_client
    }
}

#[cfg(test)]
mod tests;
