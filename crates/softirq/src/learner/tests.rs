//! Tests the state machine with fixed times and responses. Validation and 304s are in `revalidation`, random walks in
//! `simulated`, sites in `traffic` and `many`.

use super::*;
use lowroad_cache::excluded_paths::ExcludedPaths;
use lowroad_cache::storage_policy::StorageRefusal;
use lowroad_http::date;
use lowroad_wire::key::{ConnectionClass, KeyParts};

mod many;
mod revalidation;
mod simulated;
mod traffic;

/// The wall clock at monotonic time 0.
const EPOCH_SECS: u64 = 1_795_000_000;

pub(super) fn key_of(target: &str, if_none_match: Option<&str>) -> RequestKey {
    let parts = KeyParts {
        class: ConnectionClass::default(),
        address: [192, 0, 2, 1].into(),
        port: 80,
        target: target.as_bytes(),
        host: b"h",
        accept_encoding: None,
        if_none_match: if_none_match.map(str::as_bytes),
        if_modified_since: None,
    };
    RequestKey::build(&parts).expect("a key")
}

/// A response that arrives when the monotonic clock shows `now_ns`.
fn response(status: u16, fields: &[(&str, &str)], body: &str, now_ns: u64) -> FetchedResponse {
    let at_unix_secs = EPOCH_SECS + now_ns / SECOND_NS;
    let owned = |(n, v): &(&str, &str)| (n.as_bytes().to_vec(), v.as_bytes().to_vec());
    let mut fields: Vec<_> = fields.iter().map(owned).collect();
    fields.push((b"Date".to_vec(), date::format(at_unix_secs).to_vec()));
    FetchedResponse {
        status,
        reason: b"OK".to_vec(),
        fields,
        body: body.into(),
        at_unix_secs,
    }
}

const FRESH: [(&str, &str); 2] = [("Cache-Control", "max-age=100"), ("ETag", "\"e\"")];

/// A learner and its clock.
struct Bench {
    learner: ResponseLearner,
    now_ns: u64,
}

impl Bench {
    fn new(settings: LearnSettings) -> Bench {
        Bench {
            learner: ResponseLearner::new(settings),
            now_ns: 1000 * SECOND_NS,
        }
    }

    fn asked(&mut self, key: &RequestKey, hash: u64) -> Vec<LearnAction> {
        let mut out = Vec::new();
        let now_ns = self.now_ns;
        self.learner
            .process_request(key.clone(), hash, now_ns, &mut out);
        out
    }

    fn fetched(
        &mut self,
        ticket: FetchTicket,
        result: Result<FetchedResponse, FetchError>,
    ) -> Vec<LearnAction> {
        let mut out = Vec::new();
        self.learner.fetched(ticket, result, self.now_ns, &mut out);
        out
    }

    /// Advances by seconds and ticks once; each response has had this many hits.
    fn tick(&mut self, secs: u64, hits: u64) -> Vec<LearnAction> {
        self.now_ns += secs * SECOND_NS;
        let mut out = Vec::new();
        self.learner.tick(self.now_ns, |_, _| hits, &mut out);
        out
    }

    fn purge(&mut self, pattern: &str) -> Vec<LearnAction> {
        let pattern = RequestPattern::parse(pattern).expect(pattern);
        let mut out = Vec::new();
        self.learner.purge(&pattern, &mut out);
        out
    }

    /// Requests a key and delivers the response. Returns the actions.
    fn learn(
        &mut self,
        key: &RequestKey,
        hash: u64,
        fields: &[(&str, &str)],
        body: &str,
    ) -> Vec<LearnAction> {
        let ticket = ticket(&self.asked(key, hash));
        let now_ns = self.now_ns;
        self.fetched(ticket, Ok(response(200, fields, body, now_ns)))
    }
}

/// The ticket of the only action.
fn ticket(actions: &[LearnAction]) -> FetchTicket {
    match actions {
        [LearnAction::Fetch { ticket, .. }] => *ticket,
        other => panic!("not one fetch: {other:?}"),
    }
}

/// Serial and expiry of the only action.
fn published(actions: &[LearnAction]) -> (ResponseSerial, u64) {
    match actions {
        [
            LearnAction::Publish {
                serial,
                expires_ns,
                replaces: None,
                ..
            },
        ] => (*serial, *expires_ns),
        other => panic!("not one publication: {other:?}"),
    }
}

fn denied(actions: &[LearnAction]) -> (&FetchDenial, u64) {
    match actions {
        [
            LearnAction::Deny {
                reason, until_ns, ..
            },
        ] => (reason, *until_ns),
        other => panic!("not one denial: {other:?}"),
    }
}

fn retired(actions: &[LearnAction]) -> Vec<ResponseSerial> {
    match actions {
        [LearnAction::Retire { withdrawn: gone }] => gone.iter().map(|g| g.serial).collect(),
        other => panic!("nothing retired alone: {other:?}"),
    }
}

#[test]
fn what_is_asked_for_is_fetched_once_and_published_until_its_end() {
    let mut bench = Bench::new(LearnSettings::default());
    let key = key_of("/", None);
    let actions = bench.asked(&key, 7);
    assert_eq!(bench.asked(&key, 7), [], "under way");
    bench.now_ns += SECOND_NS / 2;
    let now_ns = bench.now_ns;
    let actions = bench.fetched(ticket(&actions), Ok(response(200, &FRESH, "x", now_ns)));
    let (serial, expires_ns) = published(&actions);
    // Half a second passed on the way.
    assert_eq!(expires_ns, now_ns + 99_500 * MILLISECOND_NS);
    assert_eq!(bench.asked(&key, 7), [], "published");
    assert_eq!(bench.tick(99, 0), []);
    assert_eq!(retired(&bench.tick(1, 0)), [serial]);
    ticket(&bench.asked(&key, 7));
}

#[test]
fn an_old_response_may_be_born_before_the_clock() {
    let mut bench = Bench::new(LearnSettings::default());
    let fields = [("Cache-Control", "max-age=9000"), ("Age", "5000")];
    let actions = bench.learn(&key_of("/", None), 7, &fields, "");
    let [
        LearnAction::Publish {
            generated_ns: born_ns,
            expires_ns,
            ..
        },
    ] = actions.as_slice()
    else {
        panic!("{actions:?}");
    };
    // An Age is cut to whole seconds: half a second is added.
    let age_ns = 5000 * SECOND_NS + SECOND_NS / 2;
    assert_eq!(bench.now_ns.wrapping_sub(*born_ns), age_ns);
    assert_eq!(*expires_ns, bench.now_ns + 9000 * SECOND_NS - age_ns);
}

#[test]
fn no_lifetime_is_longer_than_the_operator_allows() {
    let mut bench = Bench::new(LearnSettings {
        lifetime_secs_max: 50,
        ..LearnSettings::default()
    });
    let actions = bench.learn(&key_of("/", None), 7, &FRESH, "");
    assert_eq!(published(&actions).1, bench.now_ns + 50 * SECOND_NS);
}

#[test]
fn no_age_outgrows_its_digits() {
    let mut bench = Bench::new(LearnSettings {
        lifetime_secs_max: u64::MAX,
        ..LearnSettings::default()
    });
    let fields = [("Cache-Control", "max-age=31536000"), ("Age", "99000")];
    let actions = bench.learn(&key_of("/", None), 7, &fields, "");
    // Five digits express 99,999 s at most; half a second passes on the way.
    let left_ns = 999 * SECOND_NS - SECOND_NS / 2;
    assert_eq!(published(&actions).1, bench.now_ns + left_ns);
    let fields = [("Cache-Control", "max-age=31536000"), ("Age", "99999")];
    let actions = bench.learn(&key_of("/b", None), 8, &fields, "");
    assert_eq!(denied(&actions).0.label(), "stale");
}

#[test]
fn what_may_not_be_stored_is_denied_for_a_while() {
    let mut bench = Bench::new(LearnSettings::default());
    let key = key_of("/", None);
    let actions = bench.learn(&key, 7, &[("Cache-Control", "no-store")], "");
    let (reason, until_ns) = denied(&actions);
    assert_eq!(*reason, FetchDenial::NotStorable(StorageRefusal::NoStore));
    assert_eq!(until_ns, bench.now_ns + 10 * SECOND_NS);
    assert_eq!(bench.asked(&key, 7), []);
    assert_eq!(bench.tick(10, 0), []);
    ticket(&bench.asked(&key, 7));
    assert_eq!(bench.learner.counters().denied["no-store"], 1);
}

#[test]
fn failures_are_denied_by_their_kind() {
    let mut bench = Bench::new(LearnSettings::default());
    let long = "x".repeat(15_000);
    let now_ns = bench.now_ns;
    let too_long = FetchError::TooLong { len_max: 1 };
    for (at, (result, label, secs)) in [
        (Ok(response(503, &FRESH, "", now_ns)), "server-error", 10),
        (Err(FetchError::TimedOut), "origin-timeout", 10),
        (Err(too_long), "too-long", 60),
        (Ok(response(200, &FRESH, &long, now_ns)), "too-long", 60),
        (Ok(response(200, &[], "", now_ns)), "no-lifetime", 10),
    ]
    .into_iter()
    .enumerate()
    {
        let ticket = ticket(&bench.asked(&key_of(&format!("/{at}"), None), at as u64));
        let actions = bench.fetched(ticket, result);
        let (reason, until_ns) = denied(&actions);
        assert_eq!(reason.label(), label);
        assert_eq!(until_ns, now_ns + secs * SECOND_NS, "{label}");
    }
}

#[test]
fn fetches_and_waits_are_bounded() {
    let mut bench = Bench::new(LearnSettings {
        in_progress_max: 2,
        waiting_max: 3,
        ..LearnSettings::default()
    });
    let mut tickets = Vec::new();
    for at in 0..2 {
        tickets.push(ticket(&bench.asked(&key_of(&format!("/{at}"), None), at)));
    }
    for at in 2..5 {
        assert_eq!(bench.asked(&key_of(&format!("/{at}"), None), at), []);
    }
    // Two fetches run and three keys wait: there is no room for a sixth.
    let actions = bench.asked(&key_of("/5", None), 5);
    assert_eq!(*denied(&actions).0, FetchDenial::Busy);
    assert_eq!(bench.learner.busy(), (2, 3));
    let actions = bench.fetched(tickets[0], Err(FetchError::Closed));
    assert!(matches!(
        actions.as_slice(),
        [LearnAction::Deny { .. }, LearnAction::Fetch { .. }]
    ));
    assert_eq!(bench.learner.busy(), (2, 2));
}

#[test]
fn a_fetch_that_never_ends_has_failed() {
    let mut bench = Bench::new(LearnSettings::default());
    let ticket = ticket(&bench.asked(&key_of("/", None), 7));
    assert_eq!(bench.tick(30, 0), []);
    assert_eq!(denied(&bench.tick(1, 0)).0.label(), "origin-timeout");
    let now_ns = bench.now_ns;
    // A late result is ignored.
    let late = bench.fetched(ticket, Ok(response(200, &FRESH, "", now_ns)));
    assert_eq!(late, []);
}

#[test]
fn a_purge_retires_and_overtakes_what_is_under_way() {
    let mut bench = Bench::new(LearnSettings::default());
    let (a, b) = (key_of("/a", None), key_of("/b", None));
    let (serial, _) = published(&bench.learn(&a, 1, &FRESH, "x"));
    let under_way = ticket(&bench.asked(&b, 2));
    assert_eq!(retired(&bench.purge("http://h/*")), [serial]);
    let now_ns = bench.now_ns;
    // The result from before the purge is discarded, and the key is fetched again.
    let again = bench.fetched(under_way, Ok(response(200, &FRESH, "old", now_ns)));
    let actions = bench.fetched(ticket(&again), Ok(response(200, &FRESH, "new", now_ns)));
    published(&actions);
    assert_eq!(bench.learner.counters().outdated, 1);
}

#[test]
fn a_purge_of_something_else_changes_nothing() {
    let mut bench = Bench::new(LearnSettings::default());
    bench.learn(&key_of("/a", None), 1, &FRESH, "x");
    let under_way = ticket(&bench.asked(&key_of("/b", None), 2));
    assert_eq!(bench.purge("http://h/c"), []);
    let now_ns = bench.now_ns;
    let actions = bench.fetched(under_way, Ok(response(200, &FRESH, "", now_ns)));
    published(&actions);
}

#[test]
fn room_is_made_before_it_is_needed() {
    let mut bench = Bench::new(LearnSettings {
        published_max: 2,
        ..LearnSettings::default()
    });
    for at in 0..2 {
        bench.learn(&key_of(&format!("/{at}"), None), at, &FRESH, "x");
    }
    let actions = bench.learn(&key_of("/2", None), 2, &FRESH, "x");
    assert!(matches!(
        actions.as_slice(),
        [LearnAction::Retire { .. }, LearnAction::Publish { .. }]
    ));
    assert_eq!(bench.learner.published(), 2);
    let mut none = Bench::new(LearnSettings {
        published_max: 0,
        ..LearnSettings::default()
    });
    let actions = none.learn(&key_of("/", None), 1, &FRESH, "x");
    assert_eq!(*denied(&actions).0, FetchDenial::Busy);
}

#[test]
fn excluded_paths_are_not_even_fetched() {
    let excluded = ExcludedPaths::read(&["/intern".to_owned()]).expect("a path");
    let mut bench = Bench::new(LearnSettings {
        excluded,
        ..LearnSettings::default()
    });
    // Prefixes are compared with the decoded path.
    let actions = bench.asked(&key_of("/%49ntern/x", None), 7);
    let (reason, until_ns) = denied(&actions);
    assert_eq!(*reason, FetchDenial::Excluded("/intern".to_owned()));
    assert_eq!(until_ns, bench.now_ns + 60 * SECOND_NS);
    assert_eq!(bench.learner.counters().denied["excluded"], 1);
    ticket(&bench.asked(&key_of("/extern", None), 8));
}

#[test]
fn a_response_that_may_have_been_cut_ends_what_was_before() {
    let mut bench = Bench::new(LearnSettings::default());
    let (serial, _) = published(&bench.learn(&key_of("/", None), 7, &FRESH, "x"));
    let ticket = ticket(&bench.tick(90, 1));
    // No failure of the origin, but a new response, which replaces the old one.
    let actions = bench.fetched(ticket, Err(FetchError::Unframed));
    assert_eq!(retired(&actions[..1]), [serial]);
    let (reason, _) = denied(&actions[1..]);
    assert_eq!(reason.label(), "unframed");
}

#[test]
fn one_hash_is_one_key() {
    let mut bench = Bench::new(LearnSettings::default());
    bench.learn(&key_of("/a", None), 7, &FRESH, "x");
    assert_eq!(bench.asked(&key_of("/b", None), 7), []);
    assert_eq!(bench.learner.counters().collisions, 1);
}

#[test]
fn who_is_asked_for_at_its_end_is_fetched_without_a_tick() {
    let mut bench = Bench::new(LearnSettings::default());
    let key = key_of("/", None);
    let (serial, expires_ns) = published(&bench.learn(&key, 7, &FRESH, "x"));
    // Expired, but before the next tick.
    bench.now_ns = expires_ns;
    let actions = bench.asked(&key, 7);
    let (retire, fetch) = actions.split_at(1);
    assert_eq!(retired(retire), [serial]);
    ticket(fetch);
}
