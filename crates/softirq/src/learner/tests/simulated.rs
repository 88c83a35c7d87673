//! Random walks from a seed: an origin with changing pages, clients, purges, failures and time. Each step checks that
//! nothing is published that must not be.

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

/// A published response, as in the packet program's maps.
struct Held {
    page: u64,
    version: u64,
    expires_ns: u64,
}

/// A fetch in progress: the origin may have responded, but the response has not arrived.
struct Demand {
    page: u64,
    etag: Option<Vec<u8>>,
    answer: Option<Result<FetchedResponse, FetchError>>,
}

struct World {
    learner: ResponseLearner,
    now_ns: u64,
    random: u64,
    /// The origin: the version of each page.
    versions: Vec<u64>,
    /// Lower versions are from before a purge.
    version_min: Vec<u64>,
    asked: BTreeMap<FetchTicket, Demand>,
    held: BTreeMap<ResponseSerial, Held>,
    serial_last: Option<ResponseSerial>,
    published: u64,
    extended: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let pages = usize::try_from(PAGES).expect("few");
        World {
            learner: ResponseLearner::new(settings()),
            now_ns: 5000 * SECOND_NS,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            versions: vec![1; pages],
            version_min: vec![0; pages],
            asked: BTreeMap::new(),
            held: BTreeMap::new(),
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

    /// A page; the first few get most requests.
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
            8..12 => self.origin_answers(),
            12..16 => self.answer_arrives(&mut out),
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
        assert!(self.held.values().all(|h| h.expires_ns > now_ns), "expired");
    }

    /// The origin responds to one of the fetches with its present state.
    fn origin_answers(&mut self) {
        let Some(ticket) = self.any_ticket() else {
            return;
        };
        let kind = self.draw(30);
        let asked = self.asked.get_mut(&ticket).expect("known");
        let version = self.versions[usize::try_from(asked.page).expect("few")];
        let etag = format!("\"{version}\"");
        let lifetime = format!("max-age={LIFETIME_SECS}");
        let fields = [
            ("ETag", etag.as_str()),
            ("Cache-Control", lifetime.as_str()),
        ];
        let unchanged = asked.etag.as_deref() == Some(etag.as_bytes());
        let of = |status, fields, body: &str| Ok(response(status, fields, body, self.now_ns));
        let answer = match kind {
            0 => Err(FetchError::Closed),
            1 => of(503, &fields, "trouble"),
            2 => of(200, &[("Cache-Control", "private")], "yours"),
            3 => of(200, &fields, &"x".repeat(2000)),
            _ if unchanged => of(304, &fields, ""),
            _ => of(200, &fields, &version.to_string()),
        };
        // The origin answers each fetch once.
        asked.answer.get_or_insert(answer);
    }

    fn answer_arrives(&mut self, out: &mut Vec<LearnAction>) {
        let Some(ticket) = self.any_ticket() else {
            return;
        };
        if self.asked[&ticket].answer.is_none() {
            return;
        }
        let asked = self.asked.remove(&ticket).expect("known");
        let answer = asked.answer.expect("looked at");
        self.learner.fetched(ticket, answer, self.now_ns, out);
    }

    fn any_ticket(&mut self) -> Option<FetchTicket> {
        let len = self.asked.len() as u64;
        (len > 0).then_some(())?;
        let at = usize::try_from(self.draw(len)).expect("few");
        self.asked.keys().nth(at).copied()
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
                let asked = Demand {
                    page: page_of(&key),
                    etag: validators.etag,
                    answer: None,
                };
                assert!(self.asked.insert(ticket, asked).is_none());
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
                // A page is published at most once, so its successor must name it.
                let same = self.held.iter().find(|(_, h)| h.page == page);
                assert_eq!(same.map(|(s, _)| *s), replaces);
                let body = &prepared.bytes[usize::from(prepared.head_len)..];
                // Publishable bodies are version numbers; all others must have been refused.
                let version = std::str::from_utf8(body).expect("ASCII").parse();
                let held = Held {
                    page,
                    version: version.expect("a version: nothing else may be stored"),
                    expires_ns,
                };
                self.check_end(expires_ns);
                self.held.insert(serial, held);
                self.published += 1;
            }
            LearnAction::Extend {
                serial, expires_ns, ..
            } => {
                self.check_end(expires_ns);
                let held = self.held.get_mut(&serial).expect("published");
                held.expires_ns = expires_ns;
                self.extended += 1;
            }
            LearnAction::Retire { withdrawn: gone } => {
                assert!(!gone.is_empty());
                for one in gone {
                    let held = self.held.remove(&one.serial).expect("published");
                    assert_eq!(held.page, page_of(&one.key));
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
        let (under_way, waiting) = self.learner.busy();
        assert!(under_way <= settings().in_progress_max && waiting <= settings().waiting_max);
        assert!(self.held.len() <= settings().published_max);
        assert_eq!(self.held.len(), self.learner.published());
        for held in self.held.values() {
            let at = usize::try_from(held.page).expect("few");
            let range = self.version_min[at]..=self.versions[at];
            assert!(range.contains(&held.version), "from before a purge");
        }
        let mut pages: Vec<u64> = self.held.values().map(|h| h.page).collect();
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages.len(), self.held.len(), "one page twice");
    }
}

fn page_of(key: &RequestKey) -> u64 {
    let target = std::str::from_utf8(&key.parts().target[1..]).expect("ASCII");
    target.parse().expect("a page")
}

#[test]
fn nothing_is_published_that_must_not_be() {
    let (mut published, mut extended) = (0, 0);
    let mut counters = LearnCounters::default();
    for seed in 1..=50 {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        published += world.published;
        extended += world.extended;
        let own = world.learner.counters();
        assert_eq!(own.published, world.published);
        counters.evicted += own.evicted;
        counters.outdated += own.outdated;
        counters.replaced += own.replaced;
        counters.expired += own.expired;
    }
    // The walks must reach all cases, or they would prove nothing.
    assert!(published > 5000 && extended > 100, "{published} {extended}");
    let everywhere = [
        counters.evicted,
        counters.outdated,
        counters.replaced,
        counters.expired,
    ];
    assert!(everywhere.iter().all(|n| *n > 50), "{everywhere:?}");
}
