//! Trials of requests: their outcome is that of the attached programs, and they leave the level unchanged.

mod common;

use std::net::{IpAddr, SocketAddr};

use common::bench::{Bench, missing_bench_requirement};
use common::frames::{ACK, PORT, PSH};
use common::requests::{self, RandomSource};
use common::responses::{RESPONSES, TestPublisher};
use lowroad_softirq::layout::{self, REASONS};
use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::level::events::EventRing;
use lowroad_softirq::level::publisher;
use lowroad_softirq::programs::loader::ProgramTier;
use lowroad_softirq::trial::ProgramTrial;
use lowroad_testkit::net::SERVER;
use lowroad_wire::key;
use lowroad_wire::segment_context::IgnoredFields;

const HOUR_NS: u64 = 3_600_000_000_000;
const BOTH: [(ProgramTier, bool); 4] = [
    (ProgramTier::Xdp, false),
    (ProgramTier::Xdp, true),
    (ProgramTier::Tc, false),
    (ProgramTier::Tc, true),
];

fn local(is_v6: bool) -> SocketAddr {
    let address: IpAddr = match is_v6 {
        true => SERVER.1.into(),
        false => SERVER.0.into(),
    };
    SocketAddr::new(address, PORT)
}

/// A bench with a level that learns and has the first response published.
fn bench_with_one(tier: ProgramTier, is_v6: bool) -> (Bench, TestPublisher) {
    let bench = Bench::new(tier);
    let settings = bench.level.control().settings;
    bench.level.set_settings(settings | layout::SETTING_LEARN);
    bench.beat(0);
    let mut shelf = TestPublisher::new(&bench.level);
    let key = RESPONSES[0].key_at(local(is_v6).ip());
    shelf.publish(&bench.level, &key, &RESPONSES[0].prepare(0), HOUR_NS);
    (bench, shelf)
}

/// All state of a level that a request could change.
fn traces(level: &SoftirqLevel) -> (Vec<u64>, Vec<u64>, usize, u32) {
    let mut events = 0;
    let ring = EventRing::new(level, |_| events += 1).expect("a ring");
    ring.take().expect("events");
    drop(ring);
    let hits = publisher::published(level);
    let hits = hits.iter().map(|one| one.hits).collect();
    let counters = level.counters().expect("counters");
    (counters, hits, level.connections().open, events)
}

#[test]
fn trial_leaves_level_unchanged() {
    if let Some(reason) = missing_bench_requirement() {
        return lowroad_testkit::skip("trial_leaves_level_unchanged", &reason);
    }
    for (tier, is_v6) in BOTH {
        let (bench, _shelf) = bench_with_one(tier, is_v6);
        let trial = ProgramTrial::new(&bench.level, tier).expect("programs");
        let ask = |head: &str| {
            trial
                .run_request(head.as_bytes(), local(is_v6))
                .expect("a trial")
        };
        let before = traces(&bench.level);

        let hit = ask("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(hit.reason(), None, "{tier:?} {:?}", hit.exits);
        let key = hit.response.expect("the response").key;
        assert_eq!(key, RESPONSES[0].key_at(local(is_v6).ip()));

        let head = "GET /b HTTP/1.1\r\nHost: h\r\nAccept-Encoding: br\r\n\r\n";
        let miss = ask(head);
        assert_eq!(miss.reason(), Some("up_miss"), "{tier:?} {:?}", miss.exits);
        let read = key::read(head.as_bytes(), local(is_v6), IgnoredFields::default());
        assert_eq!(miss.key, read.ok().map(|reading| reading.key));
        assert!(miss.response.is_none());

        assert_eq!(traces(&bench.level), before, "{tier:?}");
    }
}

#[test]
fn trial_of_punted_request_names_the_field() {
    if let Some(reason) = missing_bench_requirement() {
        return lowroad_testkit::skip("trial_of_punted_request_names_the_field", &reason);
    }
    let (bench, _shelf) = bench_with_one(ProgramTier::Tc, false);
    let trial = ProgramTrial::new(&bench.level, ProgramTier::Tc).expect("programs");
    let long = format!("Accept-Encoding: {}", "x".repeat(440));
    for (line, reason) in [
        ("Cookie: a=b", "up_cookie"),
        ("Range: bytes=0-1", "up_field"),
        ("CF-Visitor: x", "up_field"),
        ("Host: other", "up_host"),
        ("If-None-Match:  x", "up_syntax"),
        ("X_Y: z", "up_syntax"),
        (long.as_str(), "up_long"),
    ] {
        let head = format!("GET /a HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n{line}\r\nA: b\r\n\r\n");
        let outcome = trial
            .run_request(head.as_bytes(), local(false))
            .expect("a trial");
        assert_eq!(outcome.reason(), Some(reason), "{line}");
        let field = outcome.field.as_deref();
        // A head without any field lines has the same outcome, so no line is named.
        let expected = (reason != "up_host").then_some(line);
        assert_eq!(field, expected, "{line}");
    }
    for (head, reason) in [
        ("POST / HTTP/1.1\r\nHost: h\r\n\r\n", "up_method"),
        ("GET * HTTP/1.1\r\nHost: h\r\n\r\n", "up_target"),
        ("GET / HTTP/2.0\r\nHost: h\r\n\r\n", "up_version"),
        ("GET / HTTP/1.1\r\n\r\n", "up_host"),
        ("GET / HTTP/1.1\r\nHost: h\r\n\r\nx", "up_more"),
    ] {
        let outcome = trial
            .run_request(head.as_bytes(), local(false))
            .expect("a trial");
        assert_eq!(
            (outcome.reason(), outcome.field),
            (Some(reason), None),
            "{head}"
        );
    }
}

#[test]
fn trial_and_program_agree_on_random_requests() {
    if let Some(reason) = missing_bench_requirement() {
        return lowroad_testkit::skip("trial_and_program_agree_on_random_requests", &reason);
    }
    for (tier, is_v6) in [(ProgramTier::Xdp, false), (ProgramTier::Tc, true)] {
        let (bench, mut shelf) = bench_with_one(tier, is_v6);
        let trial = ProgramTrial::new(&bench.level, tier).expect("programs");
        let mut draws = RandomSource::new(7);
        let mut request = Vec::new();
        let (mut answered, mut others) = (0, 0);
        for case in 0..400u16 {
            bench.beat(0);
            requests::write_random_request(&mut draws, &mut request);
            // A request must fit into one segment.
            if request.is_empty() || request.len() > 1400 {
                continue;
            }
            // Half of the answerable requests get a published response, of one segment or of two.
            if let Ok(reading) = key::read(&request, local(is_v6), IgnoredFields::default())
                && case % 2 == 0
            {
                let mut what = RESPONSES[0].prepare(0);
                let more = usize::from(case % 3) * 1000;
                what.bytes.resize(what.bytes.len() + more, b'x');
                shelf.publish(&bench.level, reading.key.as_bytes(), &what, HOUR_NS);
            }
            let outcome = trial.run_request(&request, local(is_v6)).expect("a trial");
            let exit = exit_of(&bench, is_v6, 1024 + case, &request);
            let trial_exit = outcome.reason().unwrap_or("answer_hit");
            assert_eq!(trial_exit, exit, "case {case}: {}", request.escape_ascii());
            answered += u32::from(exit == "answer_hit");
            others += u32::from(exit != "answer_hit");
        }
        assert!(answered > 40 && others > 40, "{answered} and {others}");
    }
}

/// The exit that the level's own program counts for a request on a new connection.
fn exit_of(bench: &Bench, is_v6: bool, port: u16, request: &[u8]) -> &'static str {
    bench.namespace.enter(|| {
        let mut sent = bench.connect(is_v6, port);
        sent.flags = ACK | PSH;
        sent.payload = request.to_vec();
        let before = bench.level.counters().expect("counters");
        bench.run(&sent.frame());
        let after = bench.level.counters().expect("counters");
        let grown = REASONS.iter().zip(before.iter().zip(&after));
        let mut named = grown.filter(|((name, _), (before, after))| {
            let is_exit = ["answer_", "up_"]
                .iter()
                .any(|begin| name.starts_with(begin));
            is_exit && after > before
        });
        named.next().expect("an exit").0.0
    })
}
