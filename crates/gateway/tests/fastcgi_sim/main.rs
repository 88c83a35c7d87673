//! FastCGI in the simulator. Under any faults of the server and the network, every request gets exactly one response,
//! or its client notices the truncation; nothing leaks, no task spins, and timeouts are exact.
//!
//! Each case is defined by a seed, which a failure prints.

mod case;
#[path = "../cgi_support/mod.rs"]
mod cgi_support;
mod client;
#[path = "../fastcgi_support/mod.rs"]
mod fastcgi_support;
mod peer;

use std::cell::Cell;

use lowroad_engine_sim::{FaultRates, PeerBehavior, for_each_seed};

use case::{Case, Setting};
use client::{Outcome, Plan};
use peer::{RequestedBody, ServerBehavior};

/// Timers never fire early, and late by at most the precision of the timer wheel.
const LATE_MS: u64 = 16;

/// A network without faults, and a server that always responds.
fn calm() -> Setting {
    Setting {
        workers: 1,
        tcp: true,
        connections_max: 4,
        silence_ms: 30_000,
        looks: false,
        faults: FaultRates {
            piece_len_max: 5_000,
            delay_ms_max: 5,
            window_len: 100_000,
            clock_jumps: 0,
            accept_failures: 0,
            file_failures: 0,
            late_sends: 300,
        },
        elsewhere: PeerBehavior::default(),
        manners: ServerBehavior::default(),
    }
}

fn plan(number: usize) -> Plan {
    Plan {
        start_ms: 0,
        worker: 0,
        wanted: RequestedBody {
            number,
            len: 100,
            body_len: 0,
        },
        path: "/index.php",
        idempotent: true,
        send_pause_ms: 0,
        read_pause_ms: 0,
        cut: false,
        leave_ms: None,
    }
}

/// A random generator for settings and plans.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % below
    }

    fn chance(&mut self, of_1000: u64) -> bool {
        self.below(1000) < of_1000
    }

    /// Mostly 0, otherwise up to `most`.
    fn rare(&mut self, most: u64) -> u64 {
        if self.chance(500) {
            0
        } else {
            self.below(most)
        }
    }
}

/// A random setting: a network that splits data into pieces (down to single bytes) and delays them; Unix sockets or
/// TCP; one or more workers; a server with or without multiplexing.
fn random_setting(dice: &mut Dice) -> Setting {
    let mut setting = calm();
    setting.workers = 1 + dice.below(3) as usize;
    setting.tcp = dice.chance(500);
    setting.connections_max = 1 + dice.below(6) as usize;
    setting.faults.piece_len_max = [1, 7, 300, 70_000][dice.below(4) as usize];
    setting.faults.delay_ms_max = [0, 3, 50][dice.below(3) as usize];
    setting.faults.window_len = [500, 9_000, 300_000][dice.below(3) as usize];
    setting.looks = dice.chance(300);
    setting.elsewhere.queue_full = dice.rare(300);
    setting.manners.multiplexes = dice.chance(500);
    if !setting.manners.multiplexes && dice.chance(300) {
        setting.manners.processes = 1 + dice.below(3) as usize;
    }
    setting.manners.slow = dice.rare(500);
    setting.manners.deaf = dice.rare(200);
    setting.manners.complain = dice.rare(300);
    setting
}

fn random_plan(number: usize, setting: &Setting, dice: &mut Dice) -> Plan {
    let mut plan = plan(number);
    // Transfers in single bytes take long.
    let most = match setting.faults.piece_len_max {
        ..=7 => 3_000,
        _ => 200_000,
    };
    let long = dice.chance(100);
    plan.start_ms = dice.below(8_000);
    plan.worker = dice.below(setting.workers as u64) as usize;
    plan.wanted.len = dice.below(if long { most } else { 2_000 }) as usize;
    if dice.chance(300) {
        let long = dice.chance(200);
        plan.wanted.body_len = 1 + dice.below(if long { most } else { 2_000 }) as usize;
    }
    plan.idempotent = dice.chance(700);
    if dice.chance(200) {
        plan.send_pause_ms = dice.below(30);
        plan.read_pause_ms = dice.below(60);
    }
    plan
}

#[test]
fn slow_network_never_fails_requests() {
    for_each_seed(1..120, |seed| {
        let mut dice = Dice::new(seed);
        let setting = random_setting(&mut dice);
        let mut case = Case::new(seed, &setting);
        for number in 0..25 {
            case.add(random_plan(number, &setting, &mut dice));
        }
        case.run();
        for number in 0..25 {
            let (outcome, _) = case.outcome(number);
            assert!(
                matches!(outcome, Outcome::Whole(_)),
                "{number}: {outcome:?}"
            );
        }
        let told = case.notices_so_far();
        assert!(told.iter().all(|line| line.contains("oh dear")), "{told:?}");
    });
}

#[test]
fn each_request_ends_once_without_leaks_under_random_faults() {
    for_each_seed(1000..1250, |seed| {
        let mut dice = Dice::new(seed);
        let mut setting = random_setting(&mut dice);
        setting.silence_ms = 500 + dice.below(3_000);
        setting.faults.clock_jumps = dice.rare(2);
        setting.faults.file_failures = dice.rare(300);
        setting.elsewhere.refused = dice.rare(300);
        setting.elsewhere.unanswered = dice.rare(100);
        let manners = &mut setting.manners;
        manners.cut = dice.rare(300);
        manners.stall = dice.rare(200);
        manners.nonsense = dice.rare(200);
        manners.early = dice.rare(300);
        manners.close = dice.rare(800);
        let mut case = Case::new(seed, &setting);
        for number in 0..40 {
            let mut plan = random_plan(number, &setting, &mut dice);
            plan.cut = plan.wanted.body_len > 0 && dice.chance(100);
            if dice.chance(200) {
                plan.leave_ms = Some(plan.start_ms + dice.below(3_000));
            }
            case.add(plan);
        }
        case.run();
    });
}

/// Few connections, several workers, and everything within a few ms: clients disconnect just after they got a permit, a
/// connection or a response.
#[test]
fn cancelled_requests_under_contention_leak_nothing() {
    for_each_seed(1500..1700, |seed| {
        let mut dice = Dice::new(seed);
        let mut setting = calm();
        setting.workers = 2;
        setting.tcp = dice.chance(500);
        setting.connections_max = 1 + dice.below(2) as usize;
        setting.faults.delay_ms_max = dice.below(2);
        setting.manners.multiplexes = dice.chance(200);
        setting.manners.close = dice.rare(300);
        let mut case = Case::new(seed, &setting);
        for number in 0..50 {
            let mut plan = plan(number);
            plan.worker = number % 2;
            plan.start_ms = dice.below(20);
            if dice.chance(600) {
                plan.leave_ms = Some(plan.start_ms + dice.below(50));
            }
            case.add(plan);
        }
        case.run();
    });
}

/// The server closes an idle connection at the moment of its reuse.
#[test]
fn idle_close_by_server_never_fails_idempotent_requests() {
    for_each_seed(2000..2100, |seed| {
        let mut dice = Dice::new(seed);
        let mut setting = random_setting(&mut dice);
        setting.manners.close = 300 + dice.below(700);
        setting.manners.multiplexes = false;
        let mut case = Case::new(seed, &setting);
        for number in 0..40 {
            let mut plan = random_plan(number, &setting, &mut dice);
            (plan.wanted.body_len, plan.idempotent) = (0, true);
            case.add(plan);
        }
        case.run();
        for number in 0..40 {
            let (outcome, _) = case.outcome(number);
            assert!(
                matches!(outcome, Outcome::Whole(_)),
                "{number}: {outcome:?}"
            );
        }
    });
}

/// The outcome of a single request with a setting, and its duration in ms.
fn single(seed: u64, setting: &Setting, plan: Plan) -> (Outcome, u64) {
    let mut case = Case::new(seed, setting);
    case.add(plan);
    case.run();
    case.outcome(0)
}

fn assert_in_time(outcome: &Outcome, after_ms: u64, least_ms: u64, most_ms: u64) {
    let right = least_ms..=most_ms;
    assert!(right.contains(&after_ms), "{after_ms} ms: {outcome:?}");
}

#[test]
fn connect_timeout_is_exact() {
    for_each_seed(3000..3020, |seed| {
        let mut setting = calm();
        setting.silence_ms = 700 + seed;
        setting.elsewhere.unanswered = 1000;
        let (outcome, after_ms) = single(seed, &setting, plan(0));
        assert!(matches!(outcome, Outcome::Failed(503, _)), "{outcome:?}");
        let silence_ms = setting.silence_ms;
        assert_in_time(&outcome, after_ms, silence_ms, silence_ms + LATE_MS);
        setting.tcp = false;
        setting.elsewhere.queue_full = 1000;
        let (outcome, after_ms) = single(seed, &setting, plan(0));
        assert!(matches!(outcome, Outcome::Failed(503, _)), "{outcome:?}");
        assert_in_time(&outcome, after_ms, silence_ms, silence_ms + LATE_MS);
    });
}

#[test]
fn stalled_server_times_out_at_any_point() {
    for_each_seed(3100..3300, |seed| {
        let mut setting = calm();
        setting.silence_ms = 700 + seed % 50;
        setting.manners.stall = 1000;
        let mut plan = plan(0);
        // The longer body fills the buffers between server and client, so that the server has to wait.
        (setting.faults.piece_len_max, plan.wanted.len) = match seed % 2 {
            0 => (40, 3_000),
            _ => (5_000, 300_000),
        };
        let (outcome, after_ms) = single(seed, &setting, plan);
        match outcome {
            Outcome::Failed(504, _) | Outcome::Cut(_) => {}
            outcome => panic!("{outcome:?}"),
        }
        // Connecting, sending and receiving take up to 10 ms per piece. While a response is streamed, time is measured
        // in ticks of half a second.
        let silence_ms = setting.silence_ms;
        let most_ms = 500_u64.saturating_mul(silence_ms.div_ceil(500)) + 200 + 2 * LATE_MS;
        assert_in_time(&outcome, after_ms, silence_ms, most_ms);
    });
}

#[test]
fn waiting_for_connection_permit_times_out() {
    for_each_seed(3400..3420, |seed| {
        let mut setting = calm();
        (setting.silence_ms, setting.connections_max) = (1_000, 1);
        setting.manners.stall = 1000;
        let mut case = Case::new(seed, &setting);
        for number in 0..5 {
            case.add(plan(number));
        }
        case.run();
        for number in 0..5 {
            let (outcome, after_ms) = case.outcome(number);
            assert!(!matches!(outcome, Outcome::Whole(_)), "{outcome:?}");
            assert_in_time(&outcome, after_ms, 1_000, 2_500);
        }
        assert_eq!(case.server.connections_max, 1);
    });
}

#[test]
fn script_lookup_uses_helpers_and_is_cached() {
    let mut setting = calm();
    setting.looks = true;
    let mut case = Case::new(1, &setting);
    // The first look-up takes up to 5 ms; its result is cached until 500 ms after its start.
    for (number, start_ms) in [0, 10, 100, 490, 600, 700].into_iter().enumerate() {
        case.add(Plan {
            start_ms,
            ..plan(number)
        });
    }
    case.run();
    for number in 0..6 {
        let (outcome, _) = case.outcome(number);
        assert!(matches!(outcome, Outcome::Whole(_)), "{outcome:?}");
    }
    assert_eq!(case.world.helper_jobs(), 2);
    // A missing file is not cached; a folder leads to its index file.
    let mut case = Case::new(1, &setting);
    for (number, path) in ["/none.php", "/none.php", "/"].into_iter().enumerate() {
        case.add(Plan {
            path,
            start_ms: 10 * number as u64,
            ..plan(number)
        });
    }
    case.run();
    let status = |number| match case.outcome(number).0 {
        Outcome::Failed(status, _) => status,
        _ => 200,
    };
    assert_eq!([status(0), status(1), status(2)], [404, 404, 200]);
    assert_eq!(case.world.helper_jobs(), 3);
    setting.faults.file_failures = 1000;
    let (outcome, _) = single(1, &setting, plan(0));
    assert!(matches!(outcome, Outcome::Failed(503, _)), "{outcome:?}");
}

/// On a multiplexed connection, a client that blocks others for too long loses its response; no other client does.
#[test]
fn slow_client_blocks_multiplexed_connection_for_bounded_time() {
    let given_up = Cell::new(0);
    for_each_seed(3500..3520, |seed| {
        let mut setting = calm();
        setting.manners.multiplexes = true;
        // All requests are in progress when the connection stalls.
        setting.manners.slow = 1000;
        setting.connections_max = 1;
        let mut case = Case::new(seed, &setting);
        // The handler then knows that the server multiplexes.
        case.add(plan(0));
        let mut slow = plan(1);
        slow.start_ms = 1_000;
        slow.wanted.len = 3_000_000;
        slow.read_pause_ms = 20_000;
        case.add(slow);
        for number in 2..6 {
            let mut plan = plan(number);
            plan.start_ms = 1_000;
            plan.wanted.len = 1_500;
            case.add(plan);
        }
        case.run();
        for number in 2..6 {
            let (outcome, after_ms) = case.outcome(number);
            assert!(matches!(outcome, Outcome::Whole(_)), "{outcome:?}");
            // Five seconds of stall, and the time of the server itself.
            assert!(after_ms < 12_000, "{after_ms} ms");
        }
        // Unless the other requests have finished before the limit.
        let (outcome, _) = case.outcome(1);
        given_up.set(given_up.get() + u32::from(matches!(outcome, Outcome::Cut(_))));
    });
    assert!(given_up.get() > 0);
}

#[test]
fn reload_changes_the_limit_of_connections() {
    let mut case = Case::new(1, &calm());
    case.add(plan(1));
    case.run();
    for connections_max in [6, 2] {
        case.reload(connections_max);
        assert_eq!(case.connections_max(), connections_max);
    }
    case.add(plan(2));
    case.run();
}
