//! Generated site traffic: a hot set, a scan, a scan followed by a hot set, and both at once. The learner's cost is
//! counted in fetches, its benefit in hits. Sites with many pages are in `many`.

use super::*;
use std::collections::{BTreeMap, HashMap};

const REQUESTS_PER_SECOND: u64 = 500;

/// Simulates the programs, which report repeated requests and count hits, and the server.
pub(super) struct Site {
    pub(super) learner: ResponseLearner,
    pub(super) now_ns: u64,
    random: u64,
    /// Published responses by page.
    published: HashMap<u64, ResponseSerial>,
    hits_of: HashMap<ResponseSerial, u64>,
    /// Requested pages, with the time before which they are not reported again.
    asked: BTreeMap<u64, u64>,
    scanned: u64,
    pub(super) hits: u64,
    requests: u64,
    pub(super) requests_per_second: u64,
    /// Lifetime of a response.
    pub(super) life_secs: u64,
}

impl Site {
    pub(super) fn new(seed: u64) -> Site {
        Site::with(seed, LearnSettings::default())
    }

    pub(super) fn with(seed: u64, settings: LearnSettings) -> Site {
        Site {
            learner: ResponseLearner::new(settings),
            now_ns: 5000 * SECOND_NS,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            published: HashMap::new(),
            hits_of: HashMap::new(),
            asked: BTreeMap::new(),
            scanned: 0,
            hits: 0,
            requests: 0,
            requests_per_second: REQUESTS_PER_SECOND,
            life_secs: 100,
        }
    }

    pub(super) fn draw(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) % bound
    }

    /// Requests one of this many pages.
    fn ask_hot(&mut self, pages: u64) {
        let page = self.draw(pages);
        self.request_page(page);
    }

    /// Requests a one-off page twice.
    fn ask_scan(&mut self) {
        self.request_scanned_page(2);
    }

    /// Requests a one-off page this many times.
    pub(super) fn request_scanned_page(&mut self, times: u64) {
        self.scanned += 1;
        (0..times).for_each(|_| self.request_page(1_000_000 + self.scanned));
    }

    /// Requests a page that can't be learned.
    pub(super) fn request_unlearnable(&mut self) {
        self.requests += 1;
        self.now_ns += SECOND_NS / self.requests_per_second;
    }

    pub(super) fn request_page(&mut self, page: u64) {
        self.request_unlearnable();
        if let Some(serial) = self.published.get(&page) {
            *self.hits_of.entry(*serial).or_default() += 1;
            self.hits += 1;
        } else {
            self.miss(page);
        }
        // Ten ticks a second.
        if self.requests.is_multiple_of(self.requests_per_second / 10) {
            let mut out = Vec::new();
            let hits_of = &self.hits_of;
            let hits = |serial, _: &RequestKey| hits_of.get(&serial).copied().unwrap_or(0);
            self.learner.tick(self.now_ns, hits, &mut out);
            self.act(out);
        }
    }

    fn miss(&mut self, page: u64) {
        // The programs don't remember requests while fetching is paused.
        if self.learner.paused_until(self.now_ns).is_some() {
            return;
        }
        // As the programs do: remembers the first request, reports the second, and then reports none for 2 s.
        let Some(not_before) = self.asked.insert(page, 0) else {
            return;
        };
        if not_before > self.now_ns {
            self.asked.insert(page, not_before);
            return;
        }
        self.asked.insert(page, self.now_ns + 2 * SECOND_NS);
        let mut out = Vec::new();
        let key = key_of(&format!("/{page}"), None);
        self.learner
            .process_request(key, page, self.now_ns, &mut out);
        self.act(out);
    }

    /// Carries out actions; the server responds immediately.
    fn act(&mut self, actions: Vec<LearnAction>) {
        for action in actions {
            match action {
                LearnAction::Fetch { ticket, .. } => {
                    let mut out = Vec::new();
                    let life = format!("max-age={}", self.life_secs);
                    let fields = [("Cache-Control", life.as_str()), ("ETag", "\"e\"")];
                    let fresh = response(200, &fields, "page", self.now_ns);
                    self.learner
                        .fetched(ticket, Ok(fresh), self.now_ns, &mut out);
                    self.act(out);
                }
                LearnAction::Publish { serial, hash, .. } => {
                    self.published.insert(hash, serial);
                }
                LearnAction::Retire { withdrawn: gone } => {
                    for one in gone {
                        // The response that replaces it may already be published.
                        if self.published.get(&one.hash) == Some(&one.serial) {
                            self.published.remove(&one.hash);
                        }
                    }
                }
                LearnAction::Extend { .. } | LearnAction::Deny { .. } => {}
            }
        }
    }

    pub(super) fn fetches(&self) -> u64 {
        self.learner.counters().fetches
    }

    /// Numbers of fetches, hits and requests while `what` runs.
    pub(super) fn during(&mut self, what: impl FnOnce(&mut Site)) -> (u64, u64, u64) {
        let before = (self.fetches(), self.hits, self.requests);
        what(self);
        (
            self.fetches() - before.0,
            self.hits - before.1,
            self.requests - before.2,
        )
    }
}

const SEEDS: std::ops::RangeInclusive<u64> = 1..=2;

#[test]
fn hot_set_is_learned_without_a_pause() {
    for seed in SEEDS {
        let mut site = Site::new(seed);
        site.during(|site| (0..5000).for_each(|_| site.ask_hot(400)));
        let (fetches, hits, requests) =
            site.during(|site| (0..20_000).for_each(|_| site.ask_hot(400)));
        assert!(hits * 100 >= requests * 99, "{hits} of {requests}");
        assert!(fetches * 10 < hits, "{fetches} for {hits}");
    }
}

#[test]
fn scan_exhausts_the_budget_and_is_hardly_fetched() {
    for seed in SEEDS {
        let mut site = Site::new(seed);
        site.during(|site| (0..5000).for_each(|_| site.ask_scan()));
        let (fetches, hits, requests) =
            site.during(|site| (0..40_000).for_each(|_| site.ask_scan()));
        assert_eq!(hits, 0);
        assert!(fetches * 100 < requests, "{fetches} of {requests}");
        assert!(site.learner.counters().paused > 0);
    }
}

#[test]
fn pauses_begin_with_a_scan_and_end_with_a_hot_set() {
    for seed in SEEDS {
        let mut site = Site::new(seed);
        site.during(|site| (0..20_000).for_each(|_| site.ask_hot(200)));
        let (fetches, _, requests) = site.during(|site| (0..40_000).for_each(|_| site.ask_scan()));
        assert!(fetches * 20 < requests, "{fetches} of {requests}");
        // The longest pause is five minutes, and hits end it.
        site.during(|site| (0..310 * REQUESTS_PER_SECOND).for_each(|_| site.ask_hot(200)));
        let (_, hits, requests) = site.during(|site| (0..20_000).for_each(|_| site.ask_hot(200)));
        assert!(hits * 100 >= requests * 99, "{hits} of {requests}");
    }
}

#[test]
fn hot_set_is_answered_during_a_scan() {
    for seed in SEEDS {
        let mut site = Site::new(seed);
        let both = |site: &mut Site, count| {
            for _ in 0..count {
                match site.draw(4) {
                    0 => site.ask_scan(),
                    _ => site.ask_hot(200),
                }
            }
        };
        site.during(|site| both(site, 10_000));
        let (fetches, hits, requests) = site.during(|site| both(site, 20_000));
        assert!(hits * 10 >= requests * 5, "{hits} of {requests}");
        assert!(fetches * 2 <= hits, "{fetches} for {hits}");
    }
}

#[test]
fn hot_responses_are_validated_while_fetching_pauses() {
    for seed in SEEDS {
        let mut site = Site::new(seed);
        site.during(|site| (0..5000).for_each(|_| site.ask_hot(20)));
        // One request in a hundred is for the hot set: too few to pay for fetching the scan.
        let (_, hits, _) = site.during(|site| {
            for _ in 0..3000 {
                site.ask_hot(20);
                (0..50).for_each(|_| site.ask_scan());
            }
        });
        assert!(site.learner.counters().paused > 0);
        assert!(hits > 2900, "{hits} of 3000");
    }
}

#[test]
fn scan_with_repeated_requests_does_not_evict_the_hot_set() {
    for seed in SEEDS {
        let settings = LearnSettings {
            // Little more than the hot set.
            published_max: 256,
            ..LearnSettings::default()
        };
        let mut site = Site::with(seed, settings);
        let both = |site: &mut Site, count| {
            for _ in 0..count {
                site.ask_hot(200);
                site.ask_hot(200);
                site.ask_scan();
            }
        };
        site.during(|site| both(site, 5000));
        let (_, hits, requests) = site.during(|site| both(site, 5000));
        assert!(site.learner.counters().evicted > 1000);
        assert!(
            hits * 100 >= requests / 2 * 80,
            "{hits} of {}",
            requests / 2
        );
    }
}
