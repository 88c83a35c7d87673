//! Hit forecast: estimates future hits from recent ones. The estimate bounds the number of fetches made in advance of
//! hits.
//!
//! Only hits of recently published responses predict the value of the next fetch, so only the first few hits of each
//! response count. Hits in the first second do not: a page requested three times in a row is often not requested again.

const SECOND_NS: u64 = 1_000_000_000;

/// Number of a response's first hits that count.
const HITS_MAX: u64 = 8;
/// Minimum age of a response for its hits to count.
const AGE_NS_MIN: u64 = SECOND_NS;
/// The current hit rate is projected this far ahead, but not beyond the response's lifetime.
const FORECAST_SECS_MAX: u64 = 60;
/// Time over which past hits decay.
const DECAY_SECS: u64 = 8;

/// Projects new hits of a response, in hits times seconds: the number of hits times the seconds for which that rate is
/// expected to continue. `earlier_hits`: the response's hits before the new ones; `age_ns`: the time since its
/// publication.
pub(super) fn project(earlier_hits: u64, new: u64, age_ns: u64, lifetime_ns: u64) -> u64 {
    if age_ns < AGE_NS_MIN {
        return 0;
    }
    // The new hits that are among the response's first ones.
    let counted = HITS_MAX.saturating_sub(earlier_hits).min(new);
    counted * (lifetime_ns / SECOND_NS).min(FORECAST_SECS_MAX)
}

/// A decaying sum of projections.
#[derive(Debug, Default)]
pub(super) struct HitForecast {
    /// Projections of the last [`DECAY_SECS`]; older ones weigh less.
    projected: u64,
    at_ns: u64,
}

impl HitForecast {
    /// Adds the projections since the last call.
    pub(super) fn add(&mut self, projected: u64, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.at_ns);
        self.at_ns = now_ns;
        let memory_ns = DECAY_SECS * SECOND_NS;
        // The decay is linear; the product needs more than 64 bits.
        let decayed = u128::from(memory_ns.saturating_sub(elapsed_ns));
        let decayed = u128::from(self.projected) * decayed / u128::from(memory_ns);
        let decayed = u64::try_from(decayed).unwrap_or(u64::MAX);
        self.projected = decayed.saturating_add(projected);
    }

    /// Expected hits.
    pub(super) fn hits(&self) -> u64 {
        self.projected / DECAY_SECS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_hits_count_after_the_first_second() {
        let minute = 60 * SECOND_NS;
        assert_eq!(project(0, 3, AGE_NS_MIN - 1, minute), 0);
        assert_eq!(project(0, 3, AGE_NS_MIN, minute), 3 * 60);
        assert_eq!(project(6, 3, AGE_NS_MIN, 5 * SECOND_NS), 2 * 5);
        assert_eq!(project(8, 3, AGE_NS_MIN, minute), 0);
        assert_eq!(project(u64::MAX, 1, u64::MAX, u64::MAX), 0);
        assert_eq!(project(0, u64::MAX, u64::MAX, u64::MAX), 8 * 60);
    }

    #[test]
    fn steady_hit_rate_is_forecast_and_decays() {
        let mut forecast = HitForecast::default();
        // Ten hits a second, each projected for a minute.
        for tick in 1..=600 {
            forecast.add(60, tick * SECOND_NS / 10);
        }
        assert!(
            (590..=610).contains(&forecast.hits()),
            "{}",
            forecast.hits()
        );
        for tick in 601..=1200 {
            forecast.add(0, tick * SECOND_NS / 10);
        }
        assert!(forecast.hits() < 2, "{}", forecast.hits());
        forecast.add(u64::MAX, 0);
        forecast.add(u64::MAX, u64::MAX);
        assert_eq!(forecast.hits(), u64::MAX / DECAY_SECS);
    }
}
