//! How many hits are to come, judged by those that came lately: what may be fetched before it is paid for.
//! It knows nothing of what is fetched, nor of what is paid.
//!
//! Only hits of what was published not long ago say what the next response will bring, so of each response its
//! first hits count. Those that come at once do not: a page that is asked for three times in a row is
//! often not asked for again.

const SECOND_NS: u64 = 1_000_000_000;

/// Hits of a response that count.
const HITS_MAX: u64 = 8;
/// Hits of a response that is younger do not count.
const AGE_NS_MIN: u64 = SECOND_NS;
/// So long it goes on as it did lately, but no longer than a response lives.
const AHEAD_SECS_MAX: u64 = 60;
/// What came before is forgotten over this time.
const MEMORY_SECS: u64 = 8;

/// What new hits of a response promise, in hits times seconds: how many came, for how long such go on.
/// `before`: how many hits it had. `age_ns`: since it was published.
pub(super) fn promise(before: u64, new: u64, age_ns: u64, life_ns: u64) -> u64 {
    if age_ns < AGE_NS_MIN {
        return 0;
    }
    let counted = HITS_MAX.saturating_sub(before).min(new);
    counted * (life_ns / SECOND_NS).min(AHEAD_SECS_MAX)
}

/// What is to come.
#[derive(Debug, Default)]
pub(super) struct Outlook {
    /// Promises of the last [`MEMORY_SECS`], older ones less and less.
    promised: u64,
    at_ns: u64,
}

impl Outlook {
    /// So much was promised since the last time.
    pub(super) fn add(&mut self, promised: u64, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        self.at_ns = now_ns;
        let memory_ns = MEMORY_SECS * SECOND_NS;
        let kept = u128::from(memory_ns.saturating_sub(passed_ns));
        let kept = u128::from(self.promised) * kept / u128::from(memory_ns);
        let kept = u64::try_from(kept).unwrap_or(u64::MAX);
        self.promised = kept.saturating_add(promised);
    }

    /// Hits to come.
    pub(super) fn hits(&self) -> u64 {
        self.promised / MEMORY_SECS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hits_count_unless_they_come_at_once() {
        let minute = 60 * SECOND_NS;
        assert_eq!(promise(0, 3, AGE_NS_MIN - 1, minute), 0);
        assert_eq!(promise(0, 3, AGE_NS_MIN, minute), 3 * 60);
        assert_eq!(promise(6, 3, AGE_NS_MIN, 5 * SECOND_NS), 2 * 5);
        assert_eq!(promise(8, 3, AGE_NS_MIN, minute), 0);
        assert_eq!(promise(u64::MAX, 1, u64::MAX, u64::MAX), 0);
        assert_eq!(promise(0, u64::MAX, u64::MAX, u64::MAX), 8 * 60);
    }

    #[test]
    fn what_comes_steadily_is_what_is_to_come() {
        let mut outlook = Outlook::default();
        // Ten hits a second, each for a minute.
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
