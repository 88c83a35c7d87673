//! Fetch budget: each fetch costs the server a request, and only hits repay that. Fetches are charged, hits are
//! credited, and the budget may be overdrawn by the forecast hits. Once the budget is exhausted, fetching pauses; after
//! the pause it resumes with a small trial budget.

use super::hit_forecast::HitForecast;

const SECOND_NS: u64 = 1_000_000_000;

/// Average number of hits that a fetch must bring.
const HITS_PER_FETCH: u64 = 2;

/// Limits of fetches without hits, and pauses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchBudgetRules {
    /// Initial budget in fetches, large enough to learn a hot set without a pause. Default 512.
    pub initial_fetches: u64,
    /// Maximum balance, in fetches, that hits may build up. Default 2048.
    pub in_advance_max: u64,
    /// Budget in fetches after a pause. Default 32.
    pub after_pause_fetches: u64,
    /// The first pause; each later one is twice as long, until hits have repaid the debt. Default 1 s.
    pub pause_ns_min: u64,
    /// The longest pause. Default 5 min.
    pub pause_ns_max: u64,
}

impl Default for FetchBudgetRules {
    fn default() -> FetchBudgetRules {
        FetchBudgetRules {
            initial_fetches: 512,
            in_advance_max: 2048,
            after_pause_fetches: 32,
            pause_ns_min: SECOND_NS,
            pause_ns_max: 300 * SECOND_NS,
        }
    }
}

/// The budget.
#[derive(Debug)]
pub(super) struct FetchBudget {
    rules: FetchBudgetRules,
    /// Balance in hits; a negative balance is debt.
    hits: i64,
    /// Forecast hits, by which the balance may be overdrawn.
    forecast: HitForecast,
    paused_until_ns: Option<u64>,
    pause_ns_next: u64,
}

impl FetchBudget {
    pub(super) fn new(rules: FetchBudgetRules) -> FetchBudget {
        FetchBudget {
            hits: hits_for_fetches(rules.initial_fetches),
            forecast: HitForecast::default(),
            paused_until_ns: None,
            pause_ns_next: rules.pause_ns_min,
            rules,
        }
    }

    /// Whether a key without hits may be fetched. If not, a pause begins.
    pub(super) fn allows(&mut self, now_ns: u64) -> bool {
        if self.paused_until(now_ns).is_some() {
            return false;
        }
        if self.available_hits() >= hits_for_fetches(1) {
            return true;
        }
        // During the pause the programs report no misses, which saves events (`BypassControl::tick`).
        self.paused_until_ns = Some(now_ns.saturating_add(self.pause_ns_next));
        self.pause_ns_next = (self.pause_ns_next.saturating_mul(2)).min(self.rules.pause_ns_max);
        false
    }

    /// Whether this many hits alone pay for a fetch.
    pub(super) fn covers_fetch(hits: u64) -> bool {
        hits >= HITS_PER_FETCH
    }

    /// Charges a fetch.
    pub(super) fn charge(&mut self) {
        self.hits = self.hits.saturating_sub(hits_for_fetches(1));
    }

    /// Credits hits and their projection (`hit_forecast::project`).
    pub(super) fn credit(&mut self, hits: u64, projected: u64, now_ns: u64) {
        // Bounded, so that old hits do not pay for a crawl of a whole site.
        let hits_max = hits_for_fetches(self.rules.in_advance_max.max(self.rules.initial_fetches));
        self.hits = self.hits.saturating_add(signed(hits)).min(hits_max);
        self.forecast.add(projected, now_ns);
        // The balance has reached the initial budget again, so fetching pays off.
        if hits > 0 && self.available_hits() >= hits_for_fetches(self.rules.initial_fetches) {
            self.paused_until_ns = None;
            self.pause_ns_next = self.rules.pause_ns_min;
        }
    }

    /// Hits that may be spent on fetches.
    fn available_hits(&self) -> i64 {
        self.hits.saturating_add(signed(self.forecast.hits()))
    }

    /// End of the pause; `None` without a pause. A pause that is over ends with this call, which grants the trial
    /// budget.
    pub(super) fn paused_until(&mut self, now_ns: u64) -> Option<u64> {
        if self.paused_until_ns.is_some_and(|until| until <= now_ns) {
            self.try_again();
        }
        self.paused_until_ns
    }

    /// Ends a pause and writes off the debt; the next pause keeps its length.
    pub(super) fn try_again(&mut self) {
        self.paused_until_ns = None;
        // A balance above the trial budget stays.
        let missing =
            hits_for_fetches(self.rules.after_pause_fetches).saturating_sub(self.available_hits());
        self.hits = self.hits.saturating_add(missing.max(0));
    }

    /// Starts again with the initial budget.
    pub(super) fn reset(&mut self) {
        *self = FetchBudget::new(self.rules.clone());
    }
}

/// Cost of fetches, in hits.
fn hits_for_fetches(fetches: u64) -> i64 {
    signed(fetches.saturating_mul(HITS_PER_FETCH))
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetches(account: &mut FetchBudget, now_ns: u64) -> u64 {
        let mut count = 0;
        while account.allows(now_ns) {
            account.charge();
            count += 1;
        }
        count
    }

    #[test]
    fn pauses_double_without_hits() {
        let mut account = FetchBudget::new(FetchBudgetRules::default());
        assert_eq!(fetches(&mut account, 0), 512);
        let (mut now_ns, mut pauses_s) = (0, Vec::new());
        for _ in 0..11 {
            let until_ns = account.paused_until(now_ns).expect("a pause");
            pauses_s.push((until_ns - now_ns) / SECOND_NS);
            assert!(!account.allows(until_ns - 1));
            now_ns = until_ns;
            assert_eq!(fetches(&mut account, now_ns), 32);
        }
        assert_eq!(pauses_s, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    }

    #[test]
    fn hits_end_a_pause_and_reset_the_pause_length() {
        let mut account = FetchBudget::new(FetchBudgetRules::default());
        fetches(&mut account, 0);
        let until_ns = account.paused_until(0).expect("a pause");
        assert_eq!(fetches(&mut account, until_ns), 32);
        // 512 fetches cost 1,024 hits.
        account.credit(1023, 0, until_ns);
        assert!(account.paused_until(until_ns).is_some());
        account.credit(1, 0, until_ns);
        assert_eq!(fetches(&mut account, until_ns), 512);
        let pause_ns = account.paused_until(until_ns).map(|end| end - until_ns);
        assert_eq!(pause_ns, Some(SECOND_NS));
    }

    #[test]
    fn prepaid_fetches_are_bounded() {
        let mut account = FetchBudget::new(FetchBudgetRules::default());
        account.credit(u64::MAX, 0, 0);
        account.credit(u64::MAX, 0, 0);
        assert_eq!(fetches(&mut account, 0), 2048);
    }

    #[test]
    fn try_again_and_reset_end_a_pause() {
        let mut account = FetchBudget::new(FetchBudgetRules::default());
        fetches(&mut account, 0);
        account.try_again();
        assert_eq!(fetches(&mut account, 0), 32);
        account.reset();
        assert_eq!(fetches(&mut account, 0), 512);
    }
}
