//! Whether fetches pay: each is a request to the server above, which only hits bring back. Hits pay in,
//! fetches take out, and what hits are to come may be owed; with nothing left, fetching pauses, and tries again
//! with a few. It knows nothing of what is fetched.

use super::outlook::Outlook;

const SECOND_NS: u64 = 1_000_000_000;

/// Hits that a fetch must bring on average.
const HITS_PER_FETCH: u64 = 2;

/// How much is fetched without hits, and how long fetching pauses then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Fetches on trust at the beginning, so that a hot set is learnt at once. Default 512.
    pub on_trust: u64,
    /// Fetches that hits may have paid for in advance, at most. Default 2048.
    pub in_advance_max: u64,
    /// Fetches on trust after a pause. Default 32.
    pub on_trial: u64,
    /// The first pause; each after it is twice as long, until hits have paid for what was lent. Default 1 s.
    pub pause_ns_min: u64,
    /// No pause is longer. Default 5 min.
    pub pause_ns_max: u64,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            on_trust: 512,
            in_advance_max: 2048,
            on_trial: 32,
            pause_ns_min: SECOND_NS,
            pause_ns_max: 300 * SECOND_NS,
        }
    }
}

/// The account.
#[derive(Debug)]
pub(super) struct Account {
    rules: Rules,
    /// Hits that are not used up; less than 0 are owed.
    hits: i64,
    /// Up to which they may be.
    outlook: Outlook,
    paused_until_ns: Option<u64>,
    pause_ns_next: u64,
}

impl Account {
    pub(super) fn new(rules: Rules) -> Account {
        Account {
            hits: price(rules.on_trust),
            outlook: Outlook::default(),
            paused_until_ns: None,
            pause_ns_next: rules.pause_ns_min,
            rules,
        }
    }

    /// Whether something may be fetched on trust. If not, a pause begins.
    pub(super) fn allows(&mut self, now_ns: u64) -> bool {
        if self.paused_until(now_ns).is_some() {
            return false;
        }
        if self.left() >= price(1) {
            return true;
        }
        self.paused_until_ns = Some(now_ns.saturating_add(self.pause_ns_next));
        self.pause_ns_next = (self.pause_ns_next.saturating_mul(2)).min(self.rules.pause_ns_max);
        false
    }

    /// Whether so many hits have paid for a fetch themselves.
    pub(super) fn is_paid_by(hits: u64) -> bool {
        hits >= HITS_PER_FETCH
    }

    /// Something is fetched.
    pub(super) fn take(&mut self) {
        self.hits = self.hits.saturating_sub(price(1));
    }

    /// So many hits came, and promise so much: [`super::outlook::promise`].
    pub(super) fn pay(&mut self, hits: u64, promised: u64, now_ns: u64) {
        let most = price(self.rules.in_advance_max.max(self.rules.on_trust));
        self.hits = self.hits.saturating_add(signed(hits)).min(most);
        self.outlook.add(promised, now_ns);
        if hits > 0 && self.left() >= price(self.rules.on_trust) {
            self.paused_until_ns = None;
            self.pause_ns_next = self.rules.pause_ns_min;
        }
    }

    /// Hits that may be spent.
    fn left(&self) -> i64 {
        self.hits.saturating_add(signed(self.outlook.hits()))
    }

    /// Until when nothing is fetched on trust. A pause that is over leaves a little to try with.
    pub(super) fn paused_until(&mut self, now_ns: u64) -> Option<u64> {
        if self.paused_until_ns.is_some_and(|until| until <= now_ns) {
            self.try_again();
        }
        self.paused_until_ns
    }

    /// Ends a pause; how long the next one is stays. What was owed is as good as lost.
    pub(super) fn try_again(&mut self) {
        self.paused_until_ns = None;
        let missing = price(self.rules.on_trial).saturating_sub(self.left());
        self.hits = self.hits.saturating_add(missing.max(0));
    }

    /// Trusts as at the beginning.
    pub(super) fn begin_anew(&mut self) {
        *self = Account::new(self.rules.clone());
    }
}

/// What so many fetches cost, in hits.
fn price(fetches: u64) -> i64 {
    signed(fetches.saturating_mul(HITS_PER_FETCH))
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetches(account: &mut Account, now_ns: u64) -> u64 {
        let mut count = 0;
        while account.allows(now_ns) {
            account.take();
            count += 1;
        }
        count
    }

    #[test]
    fn pauses_grow_while_nothing_is_hit() {
        let mut account = Account::new(Rules::default());
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
    fn hits_end_a_pause_and_make_the_next_one_short() {
        let mut account = Account::new(Rules::default());
        fetches(&mut account, 0);
        let until_ns = account.paused_until(0).expect("a pause");
        assert_eq!(fetches(&mut account, until_ns), 32);
        account.pay(1023, 0, until_ns);
        assert!(account.paused_until(until_ns).is_some());
        account.pay(1, 0, until_ns);
        assert_eq!(fetches(&mut account, until_ns), 512);
        let pause_ns = account.paused_until(until_ns).map(|end| end - until_ns);
        assert_eq!(pause_ns, Some(SECOND_NS));
    }

    #[test]
    fn what_is_paid_in_advance_is_bounded() {
        let mut account = Account::new(Rules::default());
        account.pay(u64::MAX, 0, 0);
        account.pay(u64::MAX, 0, 0);
        assert_eq!(fetches(&mut account, 0), 2048);
    }

    #[test]
    fn somebody_may_end_a_pause() {
        let mut account = Account::new(Rules::default());
        fetches(&mut account, 0);
        account.try_again();
        assert_eq!(fetches(&mut account, 0), 32);
        account.begin_anew();
        assert_eq!(fetches(&mut account, 0), 512);
    }
}
