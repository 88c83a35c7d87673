//! FastCGI in the simulator: with any faults of server and network, every request gets exactly one response, or
//! its client notices the truncation; nothing leaks, no task spins, and time limits hold.
//!
//! Each case is a seed; a failure prints it.

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
use peer::{Manners, Wanted};

/// Timers are never early, and late by at most the timer wheel's precision.
const LATE_MS: u64 = 16;

/// A network without faults, and a server that responds.
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
        manners: Manners::default(),
    }
}

fn plan(number: usize) -> Plan {
    Plan {
        start_ms: 0,
        worker: 0,
        wanted: Wanted {
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

    /// Mostly 0, else up to `most`.
    fn rare(&mut self, most: u64) -> u64 {
        if self.chance(500) {
            0
        } else {
            self.below(most)
        }
    }
}

/// Networks that split data into pieces, down to single bytes, and delay it; unix sockets and TCP; one or more workers;
/// servers with and without multiplexing.
fn drawn(dice: &mut Dice) -> Setting {
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

fn drawn_plan(number: usize, setting: &Setting, dice: &mut Dice) -> Plan {
    let mut plan = plan(number);
    // Single bytes take long.
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
fn a_server_that_answers_is_never_an_error_however_slow_the_network() {
    for_each_seed(1..120, |seed| {
        let mut dice = Dice::new(seed);
        let setting = drawn(&mut dice);
        let mut case = Case::new(seed, &setting);
        for number in 0..25 {
            case.add(drawn_plan(number, &setting, &mut dice));
        }
        case.run();
        for number in 0..25 {
            let (outcome, _) = case.outcome(number);
            assert!(
                matches!(outcome, Outcome::Whole(_)),
                "{number}: {outcome:?}"
            );
        }
        let told = case.told();
        assert!(told.iter().all(|line| line.contains("oh dear")), "{told:?}");
    });
}

#[test]
fn whatever_goes_wrong_each_request_has_one_end_and_nothing_is_left() {
    for_each_seed(1000..1250, |seed| {
        let mut dice = Dice::new(seed);
        let mut setting = drawn(&mut dice);
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
            let mut plan = drawn_plan(number, &setting, &mut dice);
            plan.cut = plan.wanted.body_len > 0 && dice.chance(100);
            if dice.chance(200) {
                plan.leave_ms = Some(plan.start_ms + dice.below(3_000));
            }
            case.add(plan);
        }
        case.run();
    });
}

/// Few connections, several workers, everything within a few ms: clients leave just after they got a permit, a
/// connection or a response.
#[test]
fn who_leaves_in_a_crowd_takes_nothing_along() {
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

/// A reused connection that its server closes at the moment of reuse.
#[test]
fn servers_that_close_idle_connections_are_no_error_for_what_may_be_asked_twice() {
    for_each_seed(2000..2100, |seed| {
        let mut dice = Dice::new(seed);
        let mut setting = drawn(&mut dice);
        setting.manners.close = 300 + dice.below(700);
        setting.manners.multiplexes = false;
        let mut case = Case::new(seed, &setting);
        for number in 0..40 {
            let mut plan = drawn_plan(number, &setting, &mut dice);
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

/// The outcome of a single request with this setting, and its time in ms.
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
fn a_server_that_never_accepts_is_given_up_in_time() {
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
fn a_server_that_stalls_is_given_up_in_time_wherever_it_does() {
    for_each_seed(3100..3300, |seed| {
        let mut setting = calm();
        setting.silence_ms = 700 + seed % 50;
        setting.manners.stall = 1000;
        let mut plan = plan(0);
        // The longer one fills the buffers between server and client, so that the server has to wait.
        (setting.faults.piece_len_max, plan.wanted.len) = match seed % 2 {
            0 => (40, 3_000),
            _ => (5_000, 300_000),
        };
        let (outcome, after_ms) = single(seed, &setting, plan);
        match outcome {
            Outcome::Failed(504, _) | Outcome::Cut(_) => {}
            outcome => panic!("{outcome:?}"),
        }
        // Connecting, sending and receiving take up to 10 ms each, piece by piece; while a
        // response streams, time is counted in ticks of half a second.
        let silence_ms = setting.silence_ms;
        let most_ms = 500_u64.saturating_mul(silence_ms.div_ceil(500)) + 200 + 2 * LATE_MS;
        assert_in_time(&outcome, after_ms, silence_ms, most_ms);
    });
}

#[test]
fn who_waits_for_leave_gets_it_or_is_told_in_time() {
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
fn a_script_is_looked_for_by_helpers_and_then_known_for_half_a_second() {
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
    // A missing file is not cached, and a folder leads to its index.
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

/// On a shared connection, a client that blocks the others for too long loses its response, and only it.
#[test]
fn one_slow_client_on_a_shared_connection_holds_up_others_only_so_long() {
    let given_up = Cell::new(0);
    for_each_seed(3500..3520, |seed| {
        let mut setting = calm();
        setting.manners.multiplexes = true;
        // All requests are in progress when the connection stalls.
        setting.manners.slow = 1000;
        setting.connections_max = 1;
        let mut case = Case::new(seed, &setting);
        // By then the handler knows that the server multiplexes.
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
            // Five seconds of standstill, and the server's own time.
            assert!(after_ms < 12_000, "{after_ms} ms");
        }
        // Unless the others have finished before the limit.
        let (outcome, _) = case.outcome(1);
        given_up.set(given_up.get() + u32::from(matches!(outcome, Outcome::Cut(_))));
    });
    assert!(given_up.get() > 0);
}
