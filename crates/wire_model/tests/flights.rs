//! Answers of several segments to a simulated client, over links that lose, delay and duplicate segments: each answer
//! arrives complete, and its request is acknowledged at the end. A failure prints its seed.

mod sim;

use sim::client::{Client, Habits};
use sim::world::{REQUEST, REQUEST_CLOSE, Values};
use sim::{Course, Link, Run};

/// The number of bytes of an answer in a segment.
const SEGMENT_LEN: usize = 1448;
const TEN_PARTS: usize = 10 * SEGMENT_LEN - 100;

/// A connection with a number of requests for a response of a given length.
#[derive(Clone, Copy, Debug)]
struct Case {
    len: usize,
    requests: usize,
    closes: bool,
    habits: Habits,
}

const DEFAULT_CASE: Case = Case {
    len: TEN_PARTS,
    requests: 1,
    closes: false,
    habits: Habits {
        has_sack: false,
        repeats_all: false,
        at_a_time: 0,
        ends_early: false,
    },
};

fn run_case(case: Case, link: Link) -> Result<Course, String> {
    let world = Values::new(case.len);
    let last = if case.closes { REQUEST_CLOSE } else { REQUEST };
    let mut data = REQUEST.repeat(case.requests - 1);
    data.extend(last);
    let wanted = world.response.repeat(case.requests);
    let client = Client::new(data, wanted.len(), case.closes, case.habits);
    let mut run = Run::new(client, world, link);
    let course = run.finish().map_err(|fault| {
        let tried = run.client.tried;
        format!("{case:?}: {fault} after {tried} timers")
    })?;
    match run.client.got == wanted {
        true => Ok(course),
        false => Err(format!("{case:?}: other bytes")),
    }
}

#[test]
fn answer_takes_one_round_trip_on_a_good_link() {
    // One round trip for the handshake and one for the answer.
    for len in [
        SEGMENT_LEN + 1,
        2 * SEGMENT_LEN,
        2 * SEGMENT_LEN + 1,
        3 * SEGMENT_LEN,
        TEN_PARTS,
        10 * SEGMENT_LEN,
    ] {
        for closes in [false, true] {
            let case = Case {
                len,
                closes,
                ..DEFAULT_CASE
            };
            let course = run_case(case, Link::good(1)).expect("all of it");
            assert_eq!(course.sent, len.div_ceil(SEGMENT_LEN), "{case:?}");
            assert!(course.took_ms <= 100, "{case:?}: {course:?}");
        }
    }
}

#[test]
fn answer_recovers_from_one_or_two_lost_server_segments() {
    for has_sack in [false, true] {
        for closes in [false, true] {
            let habits = Habits {
                has_sack,
                ..DEFAULT_CASE.habits
            };
            let case = Case {
                closes,
                habits,
                ..DEFAULT_CASE
            };
            // Retransmissions may be lost, too.
            for one in 0..12 {
                for other in one..12 {
                    let link = Link {
                        lost: vec![one, other],
                        ..Link::good(1)
                    };
                    let course = run_case(case, link)
                        .unwrap_or_else(|fault| panic!("{one} and {other}: {fault}"));
                    assert!(course.took_ms < 2000, "{one} and {other}: {course:?}");
                    assert!(course.sent <= 20, "{one} and {other}: {course:?}");
                }
            }
        }
    }
}

#[test]
fn answer_recovers_from_the_loss_of_nearly_all_parts() {
    // Then only the client's timer can start the recovery.
    for first in [0, 1] {
        let link = Link {
            lost: (first..10).collect(),
            ..Link::good(1)
        };
        let course = run_case(DEFAULT_CASE, link).expect("all of it");
        assert!(course.took_ms < 1000 && course.sent <= 30, "{course:?}");
    }
}

#[test]
fn client_may_half_close_before_it_has_the_answer() {
    // The FIN is buffered until the answer is acknowledged.
    let habits = Habits {
        ends_early: true,
        ..DEFAULT_CASE.habits
    };
    for closes in [false, true] {
        let case = Case {
            habits,
            closes,
            ..DEFAULT_CASE
        };
        let course = run_case(case, Link::good(1)).expect("all of it");
        assert!(course.sent == 10 && course.took_ms < 100, "{course:?}");
    }
}

#[test]
fn answer_recovers_from_one_or_two_lost_client_segments() {
    for closes in [false, true] {
        let case = Case {
            closes,
            ..DEFAULT_CASE
        };
        for one in 0..12 {
            for other in one..12 {
                let link = Link {
                    lost_of_client: vec![one, other],
                    ..Link::good(1)
                };
                let course = run_case(case, link)
                    .unwrap_or_else(|fault| panic!("{one} and {other}: {fault}"));
                assert!(course.took_ms < 3000, "{one} and {other}: {course:?}");
            }
        }
    }
}

fn random_link(seed: u64) -> Link {
    let mut link = Link::good(seed);
    link.loses = 1 + link.draws.word() % 30;
    link.delays = link.draws.word() % 40;
    link.doubles = link.draws.word() % 20;
    link
}

#[test]
fn answers_are_complete_over_random_links() {
    // On a very bad link a reset is acceptable, but wrong bytes never are.
    let lens = [1500, 2921, 5000, TEN_PARTS];
    let mut resets = 0;
    let seeds = 600;
    for seed in 0..seeds {
        let mut link = random_link(seed);
        let mut draw = |below: u64| usize::try_from(link.draws.word() % below).expect("few");
        let case = Case {
            len: lens[draw(4)],
            requests: 1 + draw(3),
            closes: draw(2) == 0,
            habits: Habits {
                has_sack: draw(2) == 0,
                repeats_all: draw(4) == 0,
                at_a_time: REQUEST.len(),
                ends_early: draw(4) == 0,
            },
        };
        let is_migrated = case.requests > 2 || case.requests > 1 && case.habits.ends_early;
        match run_case(case, link) {
            Ok(_) => {}
            // Two buffered requests are migrated, and so is a request with FIN.
            Err(fault) if fault.contains("Up") && is_migrated => {}
            // After seven timeouts without progress the connection is reset.
            Err(fault) if fault.contains("reset") => resets += 1,
            Err(fault) => panic!("seed {seed}: {fault}"),
        }
    }
    assert!(resets * 100 < seeds, "{resets} resets");
}
