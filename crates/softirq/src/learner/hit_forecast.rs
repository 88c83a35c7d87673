//! Hit forecast: estimates future hits from recent ones, which bounds the fetches that may be made in advance of hits.
//!
//! Only hits of recently published responses predict the value of the next fetch, so the first hits of each response
//! count. Immediate hits do not: a page that is requested three times in a row is often not requested again.

const SECOND_NS: u64 = 1_000_000_000;

/// Number of hits of a response that count.
const HITS_MAX: u64 = 8;
/// Minimum age of a response at which its hits count.
const AGE_NS_MIN: u64 = SECOND_NS;
/// How far ahead the current hit rate is projected, but no longer than the response lives.
const AHEAD_SECS_MAX: u64 = 60;
/// Time over which past hits decay.
const MEMORY_SECS: u64 = 8;

/// Projection of new hits of a response, in hits times seconds: number of hits, and for how long that rate continues.
/// `earlier_hits`: earlier hits of the response. `age_ns`: since its publication.
pub(super) fn project(earlier_hits: u64, new: u64, age_ns: u64, lifetime_ns: u64) -> u64 {
    if age_ns < AGE_NS_MIN {
        return 0;
    }
    // The new ones among the first hits of the response.
    let counted = HITS_MAX.saturating_sub(earlier_hits).min(new);
    counted * (lifetime_ns / SECOND_NS).min(AHEAD_SECS_MAX)
}

/// A decaying sum of projections.
#[derive(Debug, Default)]
pub(super) struct HitForecast {
    /// Projections of the last [`MEMORY_SECS`], older ones weighing less.
    projected: u64,
    at_ns: u64,
}

impl HitForecast {
    /// Adds the projections since the last call.
    pub(super) fn add(&mut self, projected: u64, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.at_ns);
        self.at_ns = now_ns;
        let memory_ns = MEMORY_SECS * SECOND_NS;
        // Linear decay; the product needs more than 64 bits.
        let decayed = u128::from(memory_ns.saturating_sub(elapsed_ns));
        let decayed = u128::from(self.projected) * decayed / u128::from(memory_ns);
        let decayed = u64::try_from(decayed).unwrap_or(u64::MAX);
        self.projected = decayed.saturating_add(projected);
    }

    /// Expected hits.
    pub(super) fn hits(&self) -> u64 {
        self.projected / MEMORY_SECS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hits_count_unless_they_come_at_once() {
        let minute = 60 * SECOND_NS;
        assert_eq!(project(0, 3, AGE_NS_MIN - 1, minute), 0);
        assert_eq!(project(0, 3, AGE_NS_MIN, minute), 3 * 60);
        assert_eq!(project(6, 3, AGE_NS_MIN, 5 * SECOND_NS), 2 * 5);
        assert_eq!(project(8, 3, AGE_NS_MIN, minute), 0);
        assert_eq!(project(u64::MAX, 1, u64::MAX, u64::MAX), 0);
        assert_eq!(project(0, u64::MAX, u64::MAX, u64::MAX), 8 * 60);
    }

    #[test]
    fn what_comes_steadily_is_what_is_to_come() {
        let mut outlook = HitForecast::default();
        // Ten hits a second, each projected for a minute.
        for tick in 1..=600 {
            outlook.add(60, tick * SECOND_NS / 10);
        }
        assert!((590..=610).contains(&outlook.hits()), "{}", outlook.hits());
        for tick in 601..=1200 {
            outlook.add(0, tick * SECOND_NS / 10);
        }
        assert!(outlook.hits() < 2, "{}", outlook.hits());
        outlook.add(u64::MAX, 0);
        outlook.add(u64::MAX, u64::MAX);
        assert_eq!(outlook.hits(), u64::MAX / MEMORY_SECS);
    }
}
