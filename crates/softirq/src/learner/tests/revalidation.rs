//! Tests validation before the end of the lifetime, and 304s.

use super::*;

#[test]
fn response_with_hits_is_validated_and_extended_by_a_304() {
    let mut bench = Bench::new(LearnSettings::default());
    let (serial, _) = only_publication(&bench.learn(&key_of("/", None), 7, &FRESH, "x"));
    // Validation is due at 80 % of the lifetime of 100 s.
    assert_eq!(bench.tick(79, 5), []);
    let actions = bench.tick(1, 5);
    let [
        LearnAction::Fetch {
            validators, ticket, ..
        },
    ] = actions.as_slice()
    else {
        panic!("{actions:?}");
    };
    assert_eq!(validators.etag.as_deref(), Some(b"\"e\"".as_slice()));
    let now_ns = bench.now_ns;
    let actions = bench.fetched(*ticket, Ok(response(304, &FRESH, "", now_ns)));
    let [
        LearnAction::Extend {
            serial: same,
            expires_ns,
            generated_ns: born_ns,
            ..
        },
    ] = actions.as_slice()
    else {
        panic!("{actions:?}");
    };
    assert_eq!((*same, *born_ns), (serial, now_ns));
    assert_eq!(*expires_ns, now_ns + 100 * SECOND_NS);
    // Without further hits, the response is not validated again.
    assert_eq!(bench.tick(90, 5), []);
    assert_eq!(retired_serials(&bench.tick(10, 5)), [serial]);
}

#[test]
fn changed_response_replaces_the_old_one() {
    let mut bench = Bench::new(LearnSettings::default());
    let (old, _) = only_publication(&bench.learn(&key_of("/", None), 7, &FRESH, "x"));
    let ticket = only_fetch(&bench.tick(80, 1));
    let now_ns = bench.now_ns;
    let actions = bench.fetched(ticket, Ok(response(200, &FRESH, "y", now_ns)));
    let [
        LearnAction::Publish {
            serial, replaces, ..
        },
        LearnAction::Retire { withdrawn: gone },
    ] = actions.as_slice()
    else {
        panic!("{actions:?}");
    };
    assert!(*serial > old);
    assert_eq!(*replaces, Some(old));
    assert_eq!(gone.iter().map(|g| g.serial).collect::<Vec<_>>(), [old]);
    assert_eq!(bench.learner.published(), 1);
}

#[test]
fn not_modified_with_changed_fields_republishes_the_old_body() {
    let mut bench = Bench::new(LearnSettings::default());
    bench.learn(&key_of("/", None), 7, &FRESH, "body");
    let ticket = only_fetch(&bench.tick(80, 1));
    let now_ns = bench.now_ns;
    // The weak form of the same entity tag matches.
    let fields = [("Cache-Control", "max-age=7"), ("ETag", "W/\"e\"")];
    let actions = bench.fetched(ticket, Ok(response(304, &fields, "", now_ns)));
    let [
        LearnAction::Publish {
            prepared,
            expires_ns,
            ..
        },
        LearnAction::Retire { .. },
    ] = actions.as_slice()
    else {
        panic!("{actions:?}");
    };
    assert_eq!(*expires_ns, now_ns + 7 * SECOND_NS);
    let text = String::from_utf8_lossy(&prepared.bytes);
    assert!(text.starts_with("HTTP/1.1 200 OK") && text.ends_with("\r\n\r\nbody"));
    assert!(text.contains("max-age=7") && !text.contains("max-age=100"));
}

#[test]
fn identical_200_extends_the_response() {
    let mut bench = Bench::new(LearnSettings::default());
    bench.learn(&key_of("/", None), 7, &FRESH, "x");
    let ticket = only_fetch(&bench.tick(80, 1));
    let now_ns = bench.now_ns;
    let actions = bench.fetched(ticket, Ok(response(200, &FRESH, "x", now_ns)));
    assert!(matches!(actions.as_slice(), [LearnAction::Extend { .. }]));
}

#[test]
fn failed_validation_keeps_the_response_and_is_retried() {
    let mut bench = Bench::new(LearnSettings::default());
    let (serial, _) = only_publication(&bench.learn(&key_of("/", None), 7, &FRESH, "x"));
    let first = only_fetch(&bench.tick(80, 1));
    assert_eq!(bench.fetched(first, Err(FetchError::Closed)), []);
    assert_eq!(bench.tick(9, 2), []);
    // Retried 10 s after the failure.
    let second = only_fetch(&bench.tick(1, 2));
    let now_ns = bench.now_ns;
    let other = [("ETag", "\"other\"")];
    let actions = bench.fetched(second, Ok(response(304, &other, "", now_ns)));
    assert_eq!(actions, [], "a 304 about something else is a failure");
    assert_eq!(retired_serials(&bench.tick(10, 2)), [serial]);
}

#[test]
fn unstorable_response_retires_the_old_one() {
    let mut bench = Bench::new(LearnSettings::default());
    let (serial, _) = only_publication(&bench.learn(&key_of("/", None), 7, &FRESH, "x"));
    let ticket = only_fetch(&bench.tick(80, 1));
    let now_ns = bench.now_ns;
    let private = [("Cache-Control", "private")];
    let actions = bench.fetched(ticket, Ok(response(200, &private, "x", now_ns)));
    let (retire, deny) = actions.split_at(1);
    assert_eq!(retired_serials(retire), [serial]);
    assert_eq!(only_denial(deny).0.label(), "private");
}

#[test]
fn conditional_key_is_fetched_unchanged_and_its_304_published() {
    let mut bench = Bench::new(LearnSettings {
        ttl_secs: Some(5),
        ..LearnSettings::default()
    });
    let key = key_of("/", Some("\"e\""));
    let actions = bench.request(&key, 7);
    let [
        LearnAction::Fetch {
            validators, ticket, ..
        },
    ] = actions.as_slice()
    else {
        panic!("{actions:?}");
    };
    assert!(validators.is_empty());
    let now_ns = bench.now_ns;
    let actions = bench.fetched(*ticket, Ok(response(304, &[("ETag", "\"e\"")], "", now_ns)));
    assert_eq!(only_publication(&actions).1, now_ns + 5 * SECOND_NS);
}

#[test]
fn unsolicited_304_is_denied() {
    let mut bench = Bench::new(LearnSettings::default());
    let ticket = only_fetch(&bench.request(&key_of("/", None), 7));
    let now_ns = bench.now_ns;
    let actions = bench.fetched(ticket, Ok(response(304, &FRESH, "", now_ns)));
    assert_eq!(*only_denial(&actions).0, FetchDenial::UnexpectedNotModified);
}

#[test]
fn purge_during_validation_leads_to_an_unconditional_fetch() {
    let mut bench = Bench::new(LearnSettings::default());
    bench.learn(&key_of("/", None), 7, &FRESH, "x");
    let outdated = only_fetch(&bench.tick(80, 1));
    bench.purge("all");
    let now_ns = bench.now_ns;
    let actions = bench.fetched(outdated, Ok(response(304, &FRESH, "", now_ns)));
    // The stored response was purged, so there is nothing to validate.
    let [LearnAction::Fetch { validators, .. }] = actions.as_slice() else {
        panic!("{actions:?}");
    };
    assert!(validators.is_empty());
}

#[test]
fn not_modified_with_reordered_fields_extends_the_response() {
    let mut bench = Bench::new(LearnSettings::default());
    let [control, etag] = FRESH;
    let long = [("Server", "s"), control, ("Accept-Ranges", "bytes"), etag];
    bench.learn(&key_of("/", None), 7, &long, "x");
    let ticket = only_fetch(&bench.tick(80, 1));
    let now_ns = bench.now_ns;
    // A 304 may omit fields, and its hop-by-hop fields do not count.
    let short = [etag, ("Server", "s"), ("Keep-Alive", "max=9")];
    let actions = bench.fetched(ticket, Ok(response(304, &short, "", now_ns)));
    let [LearnAction::Extend { expires_ns, .. }] = actions.as_slice() else {
        panic!("{actions:?}");
    };
    assert_eq!(*expires_ns, now_ns + 100 * SECOND_NS);
}

#[test]
fn too_long_response_retires_the_old_one() {
    let mut bench = Bench::new(LearnSettings::default());
    let (serial, _) = only_publication(&bench.learn(&key_of("/", None), 7, &FRESH, "x"));
    let ticket = only_fetch(&bench.tick(80, 1));
    let too_long = FetchError::TooLong { len_max: 65_536 };
    let actions = bench.fetched(ticket, Err(too_long));
    let (retire, deny) = actions.split_at(1);
    assert_eq!(retired_serials(retire), [serial]);
    assert_eq!(only_denial(deny).1, bench.now_ns + 60 * SECOND_NS);
}

#[test]
fn validations_leave_room_for_new_keys() {
    let mut bench = Bench::new(LearnSettings {
        in_progress_max: 1,
        waiting_max: 4,
        ..LearnSettings::default()
    });
    for at in 0..10 {
        bench.learn(&key_of(&format!("/{at}"), None), at, &FRESH, "x");
    }
    bench.tick(80, 1);
    bench.tick(0, 1);
    // Validations fill only half of the queue of four.
    assert_eq!(bench.learner.fetch_counts(), (1, 2));
    assert_eq!(bench.request(&key_of("/new", None), 99), []);
    assert_eq!(bench.learner.fetch_counts(), (1, 3));
}
