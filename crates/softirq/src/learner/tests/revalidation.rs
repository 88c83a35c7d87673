//! Validation before the end of the lifetime, and 304s.

use super::*;

#[test]
fn what_was_hit_is_asked_after_and_a_304_extends_it() {
    let mut bench = Bench::new(LearnSettings::default());
    let (serial, _) = published(&bench.learn(&key_of("/", None), 7, &FRESH, "x"));
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
    // Without further hits it is not validated again.
    assert_eq!(bench.tick(90, 5), []);
    assert_eq!(retired(&bench.tick(10, 5)), [serial]);
}

#[test]
fn a_changed_response_takes_the_place_of_the_old_one() {
    let mut bench = Bench::new(LearnSettings::default());
    let (old, _) = published(&bench.learn(&key_of("/", None), 7, &FRESH, "x"));
    let ticket = ticket(&bench.tick(80, 1));
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
fn a_304_with_other_fields_publishes_anew_with_the_old_body() {
    let mut bench = Bench::new(LearnSettings::default());
    bench.learn(&key_of("/", None), 7, &FRESH, "body");
    let ticket = ticket(&bench.tick(80, 1));
    let now_ns = bench.now_ns;
    // The weak form of the same entity tag still matches.
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
fn the_same_bytes_in_a_200_extend_as_well() {
    let mut bench = Bench::new(LearnSettings::default());
    bench.learn(&key_of("/", None), 7, &FRESH, "x");
    let ticket = ticket(&bench.tick(80, 1));
    let now_ns = bench.now_ns;
    let actions = bench.fetched(ticket, Ok(response(200, &FRESH, "x", now_ns)));
    assert!(matches!(actions.as_slice(), [LearnAction::Extend { .. }]));
}

#[test]
fn an_origin_in_trouble_leaves_what_is_fresh_and_is_asked_again() {
    let mut bench = Bench::new(LearnSettings::default());
    let (serial, _) = published(&bench.learn(&key_of("/", None), 7, &FRESH, "x"));
    let first = ticket(&bench.tick(80, 1));
    assert_eq!(bench.fetched(first, Err(FetchError::Closed)), []);
    assert_eq!(bench.tick(9, 2), []);
    // Retried 10 s after the failure.
    let second = ticket(&bench.tick(1, 2));
    let now_ns = bench.now_ns;
    let other = [("ETag", "\"other\"")];
    let actions = bench.fetched(second, Ok(response(304, &other, "", now_ns)));
    assert_eq!(actions, [], "a 304 about something else is a failure");
    assert_eq!(retired(&bench.tick(10, 2)), [serial]);
}

#[test]
fn an_answer_that_may_not_be_stored_ends_the_old_one() {
    let mut bench = Bench::new(LearnSettings::default());
    let (serial, _) = published(&bench.learn(&key_of("/", None), 7, &FRESH, "x"));
    let ticket = ticket(&bench.tick(80, 1));
    let now_ns = bench.now_ns;
    let private = [("Cache-Control", "private")];
    let actions = bench.fetched(ticket, Ok(response(200, &private, "x", now_ns)));
    let (retire, deny) = actions.split_at(1);
    assert_eq!(retired(retire), [serial]);
    assert_eq!(denied(deny).0.label(), "private");
}

#[test]
fn conditional_keys_are_asked_as_they_are_and_their_304_is_published() {
    let mut bench = Bench::new(LearnSettings {
        ttl_secs: Some(5),
        ..LearnSettings::default()
    });
    let key = key_of("/", Some("\"e\""));
    let actions = bench.asked(&key, 7);
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
    assert_eq!(published(&actions).1, now_ns + 5 * SECOND_NS);
}

#[test]
fn a_304_that_nobody_asked_for_is_stored_for_nobody() {
    let mut bench = Bench::new(LearnSettings::default());
    let ticket = ticket(&bench.asked(&key_of("/", None), 7));
    let now_ns = bench.now_ns;
    let actions = bench.fetched(ticket, Ok(response(304, &FRESH, "", now_ns)));
    assert_eq!(*denied(&actions).0, FetchDenial::NotAskedAfter);
}

#[test]
fn a_revalidation_overtaken_by_a_purge_is_asked_without_conditions() {
    let mut bench = Bench::new(LearnSettings::default());
    bench.learn(&key_of("/", None), 7, &FRESH, "x");
    let overtaken = ticket(&bench.tick(80, 1));
    bench.purge("all");
    let now_ns = bench.now_ns;
    let actions = bench.fetched(overtaken, Ok(response(304, &FRESH, "", now_ns)));
    // The stored response was purged, so there is nothing to validate.
    let [LearnAction::Fetch { validators, .. }] = actions.as_slice() else {
        panic!("{actions:?}");
    };
    assert!(validators.is_empty());
}

#[test]
fn a_304_in_another_order_extends_as_well() {
    let mut bench = Bench::new(LearnSettings::default());
    let [control, etag] = FRESH;
    let long = [("Server", "s"), control, ("Accept-Ranges", "bytes"), etag];
    bench.learn(&key_of("/", None), 7, &long, "x");
    let ticket = ticket(&bench.tick(80, 1));
    let now_ns = bench.now_ns;
    // A 304 may leave fields out, and its hop-by-hop fields do not count.
    let short = [etag, ("Server", "s"), ("Keep-Alive", "max=9")];
    let actions = bench.fetched(ticket, Ok(response(304, &short, "", now_ns)));
    let [LearnAction::Extend { expires_ns, .. }] = actions.as_slice() else {
        panic!("{actions:?}");
    };
    assert_eq!(*expires_ns, now_ns + 100 * SECOND_NS);
}

#[test]
fn a_response_that_grew_too_long_ends_the_old_one() {
    let mut bench = Bench::new(LearnSettings::default());
    let (serial, _) = published(&bench.learn(&key_of("/", None), 7, &FRESH, "x"));
    let ticket = ticket(&bench.tick(80, 1));
    let too_long = FetchError::TooLong { len_max: 65_536 };
    let actions = bench.fetched(ticket, Err(too_long));
    let (retire, deny) = actions.split_at(1);
    assert_eq!(retired(retire), [serial]);
    assert_eq!(denied(deny).1, bench.now_ns + 60 * SECOND_NS);
}

#[test]
fn asking_after_leaves_room_for_new_keys() {
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
    assert_eq!(bench.learner.busy(), (1, 2));
    assert_eq!(bench.asked(&key_of("/new", None), 99), []);
    assert_eq!(bench.learner.busy(), (1, 3));
}
