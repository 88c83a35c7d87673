//! Tests the state machine with fixed times and responses. Validation and 304s are tested in `revalidation`, random
//! walks in `simulated`, and site traffic in `traffic` and `many`.

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

    fn request(&mut self, key: &RequestKey, hash: u64) -> Vec<LearnAction> {
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

    /// Advances the clock by seconds and ticks once; the hit counter of each response is `hits`.
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
        let ticket = only_fetch(&self.request(key, hash));
        let now_ns = self.now_ns;
        self.fetched(ticket, Ok(response(200, fields, body, now_ns)))
    }
}

/// The ticket of the only action, a fetch.
fn only_fetch(actions: &[LearnAction]) -> FetchTicket {
    match actions {
        [LearnAction::Fetch { ticket, .. }] => *ticket,
        other => panic!("not one fetch: {other:?}"),
    }
}

/// Serial and expiry of the only action, a publication.
fn only_publication(actions: &[LearnAction]) -> (ResponseSerial, u64) {
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

fn only_denial(actions: &[LearnAction]) -> (&FetchDenial, u64) {
    match actions {
        [
            LearnAction::Deny {
                reason, until_ns, ..
            },
        ] => (reason, *until_ns),
        other => panic!("not one denial: {other:?}"),
    }
}

fn retired_serials(actions: &[LearnAction]) -> Vec<ResponseSerial> {
    match actions {
        [LearnAction::Retire { withdrawn: gone }] => gone.iter().map(|g| g.serial).collect(),
        other => panic!("nothing retired alone: {other:?}"),
    }
}

#[test]
fn requested_key_is_fetched_once_and_published_until_it_expires() {
    let mut bench = Bench::new(LearnSettings::default());
    let key = key_of("/", None);
    let actions = bench.request(&key, 7);
    assert_eq!(bench.request(&key, 7), [], "under way");
    bench.now_ns += SECOND_NS / 2;
    let now_ns = bench.now_ns;
    let actions = bench.fetched(only_fetch(&actions), Ok(response(200, &FRESH, "x", now_ns)));
    let (serial, expires_ns) = only_publication(&actions);
    // The fetch took half a second.
    assert_eq!(expires_ns, now_ns + 99_500 * MILLISECOND_NS);
    assert_eq!(bench.request(&key, 7), [], "published");
    assert_eq!(bench.tick(99, 0), []);
    assert_eq!(retired_serials(&bench.tick(1, 0)), [serial]);
    only_fetch(&bench.request(&key, 7));
}

#[test]
fn generation_time_may_precede_the_monotonic_clock() {
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
    // Age is truncated to whole seconds, so half a second is added.
    let age_ns = 5000 * SECOND_NS + SECOND_NS / 2;
    assert_eq!(bench.now_ns.wrapping_sub(*born_ns), age_ns);
    assert_eq!(*expires_ns, bench.now_ns + 9000 * SECOND_NS - age_ns);
}

#[test]
fn lifetime_is_limited_by_the_settings() {
    let mut bench = Bench::new(LearnSettings {
        lifetime_secs_max: 50,
        ..LearnSettings::default()
    });
    let actions = bench.learn(&key_of("/", None), 7, &FRESH, "");
    assert_eq!(only_publication(&actions).1, bench.now_ns + 50 * SECOND_NS);
}

#[test]
fn age_never_exceeds_five_digits() {
    let mut bench = Bench::new(LearnSettings {
        lifetime_secs_max: u64::MAX,
        ..LearnSettings::default()
    });
    let fields = [("Cache-Control", "max-age=31536000"), ("Age", "99000")];
    let actions = bench.learn(&key_of("/", None), 7, &fields, "");
    // Five digits express at most 99,999 s; half a second is added to the truncated Age.
    let left_ns = 999 * SECOND_NS - SECOND_NS / 2;
    assert_eq!(only_publication(&actions).1, bench.now_ns + left_ns);
    let fields = [("Cache-Control", "max-age=31536000"), ("Age", "99999")];
    let actions = bench.learn(&key_of("/b", None), 8, &fields, "");
    assert_eq!(only_denial(&actions).0.label(), "stale");
}

#[test]
fn unstorable_response_is_denied_for_ten_seconds() {
    let mut bench = Bench::new(LearnSettings::default());
    let key = key_of("/", None);
    let actions = bench.learn(&key, 7, &[("Cache-Control", "no-store")], "");
    let (reason, until_ns) = only_denial(&actions);
    assert_eq!(*reason, FetchDenial::NotStorable(StorageRefusal::NoStore));
    assert_eq!(until_ns, bench.now_ns + 10 * SECOND_NS);
    assert_eq!(bench.request(&key, 7), []);
    assert_eq!(bench.tick(10, 0), []);
    only_fetch(&bench.request(&key, 7));
    assert_eq!(bench.learner.counters().denied["no-store"], 1);
}

#[test]
fn denial_length_depends_on_the_failure() {
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
        let ticket = only_fetch(&bench.request(&key_of(&format!("/{at}"), None), at as u64));
        let actions = bench.fetched(ticket, result);
        let (reason, until_ns) = only_denial(&actions);
        assert_eq!(reason.label(), label);
        assert_eq!(until_ns, now_ns + secs * SECOND_NS, "{label}");
    }
}

#[test]
fn fetches_and_waiting_keys_are_bounded() {
    let mut bench = Bench::new(LearnSettings {
        in_progress_max: 2,
        waiting_max: 3,
        ..LearnSettings::default()
    });
    let mut tickets = Vec::new();
    for at in 0..2 {
        tickets.push(only_fetch(
            &bench.request(&key_of(&format!("/{at}"), None), at),
        ));
    }
    for at in 2..5 {
        assert_eq!(bench.request(&key_of(&format!("/{at}"), None), at), []);
    }
    // Two fetches are running and three keys are waiting, so there is no room for a sixth.
    let actions = bench.request(&key_of("/5", None), 5);
    assert_eq!(*only_denial(&actions).0, FetchDenial::Busy);
    assert_eq!(bench.learner.fetch_counts(), (2, 3));
    let actions = bench.fetched(tickets[0], Err(FetchError::Closed));
    assert!(matches!(
        actions.as_slice(),
        [LearnAction::Deny { .. }, LearnAction::Fetch { .. }]
    ));
    assert_eq!(bench.learner.fetch_counts(), (2, 2));
}

#[test]
fn fetch_without_result_times_out() {
    let mut bench = Bench::new(LearnSettings::default());
    let ticket = only_fetch(&bench.request(&key_of("/", None), 7));
    assert_eq!(bench.tick(30, 0), []);
    assert_eq!(only_denial(&bench.tick(1, 0)).0.label(), "origin-timeout");
    let now_ns = bench.now_ns;
    // The late result is ignored.
    let late = bench.fetched(ticket, Ok(response(200, &FRESH, "", now_ns)));
    assert_eq!(late, []);
}

#[test]
fn purge_retires_responses_and_outdates_fetches() {
    let mut bench = Bench::new(LearnSettings::default());
    let (a, b) = (key_of("/a", None), key_of("/b", None));
    let (serial, _) = only_publication(&bench.learn(&a, 1, &FRESH, "x"));
    let under_way = only_fetch(&bench.request(&b, 2));
    assert_eq!(retired_serials(&bench.purge("http://h/*")), [serial]);
    let now_ns = bench.now_ns;
    // The result from before the purge is discarded, and the key is fetched again.
    let again = bench.fetched(under_way, Ok(response(200, &FRESH, "old", now_ns)));
    let actions = bench.fetched(only_fetch(&again), Ok(response(200, &FRESH, "new", now_ns)));
    only_publication(&actions);
    assert_eq!(bench.learner.counters().outdated, 1);
}

#[test]
fn purge_without_match_changes_nothing() {
    let mut bench = Bench::new(LearnSettings::default());
    bench.learn(&key_of("/a", None), 1, &FRESH, "x");
    let under_way = only_fetch(&bench.request(&key_of("/b", None), 2));
    assert_eq!(bench.purge("http://h/c"), []);
    let now_ns = bench.now_ns;
    let actions = bench.fetched(under_way, Ok(response(200, &FRESH, "", now_ns)));
    only_publication(&actions);
}

#[test]
fn eviction_precedes_publication() {
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
    assert_eq!(*only_denial(&actions).0, FetchDenial::Busy);
}

#[test]
fn excluded_paths_are_not_fetched() {
    let excluded = ExcludedPaths::read(&["/intern".to_owned()]).expect("a path");
    let mut bench = Bench::new(LearnSettings {
        excluded,
        ..LearnSettings::default()
    });
    // Prefixes are compared with the decoded path.
    let actions = bench.request(&key_of("/%49ntern/x", None), 7);
    let (reason, until_ns) = only_denial(&actions);
    assert_eq!(*reason, FetchDenial::Excluded("/intern".to_owned()));
    assert_eq!(until_ns, bench.now_ns + 60 * SECOND_NS);
    assert_eq!(bench.learner.counters().denied["excluded"], 1);
    only_fetch(&bench.request(&key_of("/extern", None), 8));
}

#[test]
fn unframed_response_retires_the_previous_one() {
    let mut bench = Bench::new(LearnSettings::default());
    let (serial, _) = only_publication(&bench.learn(&key_of("/", None), 7, &FRESH, "x"));
    let ticket = only_fetch(&bench.tick(90, 1));
    // This is not a failure of the origin, but a new response, which replaces the old one.
    let actions = bench.fetched(ticket, Err(FetchError::Unframed));
    assert_eq!(retired_serials(&actions[..1]), [serial]);
    let (reason, _) = only_denial(&actions[1..]);
    assert_eq!(reason.label(), "unframed");
}

#[test]
fn second_key_with_the_same_hash_is_not_fetched() {
    let mut bench = Bench::new(LearnSettings::default());
    bench.learn(&key_of("/a", None), 7, &FRESH, "x");
    assert_eq!(bench.request(&key_of("/b", None), 7), []);
    assert_eq!(bench.learner.counters().collisions, 1);
}

#[test]
fn expired_response_is_fetched_again_on_request() {
    let mut bench = Bench::new(LearnSettings::default());
    let key = key_of("/", None);
    let (serial, expires_ns) = only_publication(&bench.learn(&key, 7, &FRESH, "x"));
    // The response has expired, but the next tick has not removed it.
    bench.now_ns = expires_ns;
    let actions = bench.request(&key, 7);
    let (retire, fetch) = actions.split_at(1);
    assert_eq!(retired_serials(retire), [serial]);
    only_fetch(fetch);
}
