//! Random walks from a seed through an origin with changing pages, requests, purges, failures and time. Each step
//! checks that nothing is published that must not be.

use super::*;
use std::collections::BTreeMap;

const PAGES: u64 = 40;
const LIFETIME_SECS: u64 = 20;
const STEPS: usize = 4000;

fn settings() -> LearnSettings {
    LearnSettings {
        published_max: 10,
        in_progress_max: 3,
        waiting_max: 5,
        parts_max: 1,
        keep_alive_parts_max: 1,
        ttl_secs: None,
        lifetime_secs_max: 24 * 3600,
        with_age: true,
        denied_secs: 10,
        denied_long_secs: 60,
        fetch_secs_max: 30,
        ..LearnSettings::default()
    }
}

/// A published response, as in the maps of the programs.
struct PublishedVersion {
    page: u64,
    version: u64,
    expires_ns: u64,
}

/// A fetch in progress; the origin may have responded already.
struct PendingFetch {
    page: u64,
    etag: Option<Vec<u8>>,
    answer: Option<Result<FetchedResponse, FetchError>>,
}

struct SimulatedOrigin {
    learner: ResponseLearner,
    now_ns: u64,
    random: u64,
    /// The origin's current version of each page.
    versions: Vec<u64>,
    /// Versions below this are from before a purge.
    version_min: Vec<u64>,
    pending: BTreeMap<FetchTicket, PendingFetch>,
    stored: BTreeMap<ResponseSerial, PublishedVersion>,
    serial_last: Option<ResponseSerial>,
    published: u64,
    extended: u64,
}

impl SimulatedOrigin {
    fn new(seed: u64) -> SimulatedOrigin {
        let pages = usize::try_from(PAGES).expect("few");
        SimulatedOrigin {
            learner: ResponseLearner::new(settings()),
            now_ns: 5000 * SECOND_NS,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            versions: vec![1; pages],
            version_min: vec![0; pages],
            pending: BTreeMap::new(),
            stored: BTreeMap::new(),
            serial_last: None,
            published: 0,
            extended: 0,
        }
    }

    /// A random number below `bound`.
    fn draw(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) % bound
    }

    /// Draws a page; the first few get most requests.
    fn page(&mut self) -> u64 {
        let bound = if self.draw(3) == 0 { PAGES } else { 6 };
        self.draw(bound)
    }

    fn step(&mut self) {
        let mut out = Vec::new();
        match self.draw(20) {
            0..8 => {
                let page = self.page();
                let key = key_of(&format!("/{page}"), None);
                self.learner
                    .process_request(key, page, self.now_ns, &mut out);
            }
            8..12 => self.origin_responds(),
            12..16 => self.response_arrives(&mut out),
            16..19 => {
                self.now_ns += self.draw(1500) * MILLISECOND_NS;
                self.tick(&mut out);
            }
            _ => self.change(&mut out),
        }
        for action in out {
            self.apply(action);
        }
        self.check();
    }

    fn tick(&mut self, out: &mut Vec<LearnAction>) {
        let seconds = self.now_ns / SECOND_NS;
        // The first pages get hits all the time.
        let hits = |_, key: &RequestKey| match key.parts().target {
            [b'/', b'0'..=b'5'] => seconds,
            _ => 0,
        };
        self.learner.tick(self.now_ns, hits, out);
        for action in out.drain(..) {
            self.apply(action);
        }
        let now_ns = self.now_ns;
        assert!(
            self.stored.values().all(|h| h.expires_ns > now_ns),
            "expired"
        );
    }

    /// Lets the origin respond to one of the fetches with its present state.
    fn origin_responds(&mut self) {
        let Some(ticket) = self.any_ticket() else {
            return;
        };
        let kind = self.draw(30);
        let pending = self.pending.get_mut(&ticket).expect("known");
        let version = self.versions[usize::try_from(pending.page).expect("few")];
        let etag = format!("\"{version}\"");
        let lifetime = format!("max-age={LIFETIME_SECS}");
        let fields = [
            ("ETag", etag.as_str()),
            ("Cache-Control", lifetime.as_str()),
        ];
        let unchanged = pending.etag.as_deref() == Some(etag.as_bytes());
        let of = |status, fields, body: &str| Ok(response(status, fields, body, self.now_ns));
        let answer = match kind {
            0 => Err(FetchError::Closed),
            1 => of(503, &fields, "trouble"),
            2 => of(200, &[("Cache-Control", "private")], "yours"),
            3 => of(200, &fields, &"x".repeat(2000)),
            _ if unchanged => of(304, &fields, ""),
            _ => of(200, &fields, &version.to_string()),
        };
        // The origin responds to each fetch only once.
        pending.answer.get_or_insert(answer);
    }

    fn response_arrives(&mut self, out: &mut Vec<LearnAction>) {
        let Some(ticket) = self.any_ticket() else {
            return;
        };
        if self.pending[&ticket].answer.is_none() {
            return;
        }
        let pending = self.pending.remove(&ticket).expect("known");
        let answer = pending.answer.expect("looked at");
        self.learner.fetched(ticket, answer, self.now_ns, out);
    }

    fn any_ticket(&mut self) -> Option<FetchTicket> {
        let len = self.pending.len() as u64;
        (len > 0).then_some(())?;
        let at = usize::try_from(self.draw(len)).expect("few");
        self.pending.keys().nth(at).copied()
    }

    /// Changes a page, and sometimes purges it.
    fn change(&mut self, out: &mut Vec<LearnAction>) {
        let page = self.page();
        let at = usize::try_from(page).expect("few");
        self.versions[at] += 1;
        match self.draw(8) {
            0 => {
                self.version_min.clone_from(&self.versions);
                self.learner.purge(&RequestPattern::All, out);
            }
            1..4 => {
                self.version_min[at] = self.versions[at];
                let url = format!("http://h/{page}");
                let pattern = RequestPattern::parse(&url).expect("a URL");
                self.learner.purge(&pattern, out);
            }
            _ => {}
        }
    }

    fn apply(&mut self, action: LearnAction) {
        match action {
            LearnAction::Fetch {
                ticket,
                key,
                validators,
            } => {
                let pending = PendingFetch {
                    page: page_of(&key),
                    etag: validators.etag,
                    answer: None,
                };
                assert!(self.pending.insert(ticket, pending).is_none());
            }
            LearnAction::Publish {
                serial,
                key,
                prepared,
                expires_ns,
                replaces,
                ..
            } => {
                assert!(self.serial_last < Some(serial));
                self.serial_last = Some(serial);
                let page = page_of(&key);
                // A page is published at most once, so `replaces` must name the response of the same page.
                let same = self.stored.iter().find(|(_, h)| h.page == page);
                assert_eq!(same.map(|(s, _)| *s), replaces);
                let body = &prepared.bytes[usize::from(prepared.head_len)..];
                // The bodies of publishable responses are version numbers; all others must have been rejected.
                let version = std::str::from_utf8(body).expect("ASCII").parse();
                let stored = PublishedVersion {
                    page,
                    version: version.expect("a version: nothing else may be stored"),
                    expires_ns,
                };
                self.check_end(expires_ns);
                self.stored.insert(serial, stored);
                self.published += 1;
            }
            LearnAction::Extend {
                serial, expires_ns, ..
            } => {
                self.check_end(expires_ns);
                let stored = self.stored.get_mut(&serial).expect("published");
                stored.expires_ns = expires_ns;
                self.extended += 1;
            }
            LearnAction::Retire { withdrawn: gone } => {
                assert!(!gone.is_empty());
                for one in gone {
                    let stored = self.stored.remove(&one.serial).expect("published");
                    assert_eq!(stored.page, page_of(&one.key));
                }
            }
            LearnAction::Deny { until_ns, .. } => assert!(until_ns > self.now_ns),
        }
    }

    fn check_end(&self, expires_ns: u64) {
        assert!(expires_ns > self.now_ns, "stale when published");
        let end_ns = self.now_ns + LIFETIME_SECS * SECOND_NS;
        assert!(expires_ns <= end_ns, "longer than its lifetime");
    }

    fn check(&self) {
        let (under_way, waiting) = self.learner.fetch_counts();
        assert!(under_way <= settings().in_progress_max && waiting <= settings().waiting_max);
        assert!(self.stored.len() <= settings().published_max);
        assert_eq!(self.stored.len(), self.learner.published());
        for stored in self.stored.values() {
            let at = usize::try_from(stored.page).expect("few");
            let range = self.version_min[at]..=self.versions[at];
            assert!(range.contains(&stored.version), "from before a purge");
        }
        let mut pages: Vec<u64> = self.stored.values().map(|h| h.page).collect();
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages.len(), self.stored.len(), "one page twice");
    }
}

fn page_of(key: &RequestKey) -> u64 {
    let target = std::str::from_utf8(&key.parts().target[1..]).expect("ASCII");
    target.parse().expect("a page")
}

#[test]
fn random_walks_publish_only_fresh_unpurged_responses() {
    let (mut published, mut extended) = (0, 0);
    let mut counters = LearnCounters::default();
    for seed in 1..=50 {
        let mut origin = SimulatedOrigin::new(seed);
        for _ in 0..STEPS {
            origin.step();
        }
        published += origin.published;
        extended += origin.extended;
        let own = origin.learner.counters();
        assert_eq!(own.published, origin.published);
        counters.evicted += own.evicted;
        counters.outdated += own.outdated;
        counters.replaced += own.replaced;
        counters.expired += own.expired;
    }
    // The walks must reach all cases; otherwise they would prove nothing.
    assert!(published > 5000 && extended > 100, "{published} {extended}");
    let reached = [
        counters.evicted,
        counters.outdated,
        counters.replaced,
        counters.expired,
    ];
    assert!(reached.iter().all(|n| *n > 50), "{reached:?}");
}
