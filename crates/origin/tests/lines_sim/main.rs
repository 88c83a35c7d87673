//! Connection pools in the simulator, with a minimal protocol. With any faults of server and network, every request
//! ends exactly once, with the right response if any; limits and timeouts are observed, no connection is leaked, and no
//! task spins.
//!
//! Each case is a seed; a failure prints it.

mod case;
mod line;
mod peer;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use case::{Case, Outcome, Plan, Setting};
use line::Line;
use lowroad_engine::WorkerHandle;
use lowroad_engine_sim::{FaultRates, PeerBehavior, SharedWorld as World, for_each_seed};
use lowroad_limits::Permit;
use lowroad_origin::{AcquireTimeouts, MultiplexedConnection, PoolLimits, SharedConnections};
use peer::Manners;

/// The precision of the timer wheel: timers are never early, and late by at most this.
const LATE_MS: u64 = 16;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A network without faults, and a server that responds.
fn faultless_setting() -> Setting {
    Setting {
        workers: 1,
        tcp: true,
        limits: PoolLimits {
            connections_max: 2,
            waiting_max: 1000,
            idle_max: ms(2_000),
            age_max: Duration::MAX,
        },
        patience: AcquireTimeouts::from_total(ms(60_000)),
        answer_max: ms(60_000),
        again: false,
        faults: FaultRates {
            piece_len_max: 5_000,
            delay_ms_max: 3,
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
        number,
        len: 10,
        leave_ms: None,
    }
}

/// A random generator for settings and plans.
fn dice(seed: u64) -> impl Fn(u64) -> u64 {
    let world = World::new(!seed, faultless_setting().faults);
    move |below| world.random_below(below)
}

/// A random setting: segments down to single bytes, delays, unix sockets and TCP, one or more workers, servers with few
/// processes.
fn random_setting(dice: &impl Fn(u64) -> u64) -> Setting {
    let rare = |most: u64| dice(2) * dice(most);
    let mut setting = faultless_setting();
    setting.workers = 1 + dice(3) as usize;
    setting.tcp = dice(2) == 0;
    setting.limits.connections_max = 1 + dice(4) as usize;
    setting.faults.piece_len_max = [1, 7, 70_000][dice(3) as usize];
    setting.faults.delay_ms_max = [0, 3, 50][dice(3) as usize];
    setting.elsewhere.queue_full = rare(300);
    setting.manners.slow = rare(500);
    setting.manners.processes = (dice(2) * dice(3)) as usize;
    setting
}

fn random_plan(number: usize, setting: &Setting, dice: &impl Fn(u64) -> u64) -> Plan {
    Plan {
        start_ms: dice(4_000),
        worker: dice(setting.workers as u64) as usize,
        len: dice(1_000) as usize,
        ..plan(number)
    }
}

/// More requests than connections, and servers with fewer processes than connections.
#[test]
fn all_requests_are_answered_without_faults() {
    for_each_seed(1..200, |seed| {
        let dice = dice(seed);
        let setting = random_setting(&dice);
        let mut case = Case::new(seed, &setting);
        for number in 0..30 {
            case.add(random_plan(number, &setting, &dice));
        }
        let ends = case.run();
        let right = |end: &Option<(Outcome, u64)>| matches!(end, Some((Outcome::Right, _)));
        assert!(ends.iter().all(right), "{ends:?}");
        let counts = case.pool.counts();
        // Pool and server must count the same connections.
        assert_eq!(counts.opened as usize, case.server.came);
        // Without faults each request uses exactly one connection, new or reused.
        assert_eq!(counts.opened + counts.reused, 30, "{counts:?}");
    });
}

#[test]
fn with_faults_each_request_ends_once_and_nothing_leaks() {
    for_each_seed(1000..1400, |seed| {
        let dice = dice(seed);
        let rare = |most: u64| dice(2) * dice(most);
        let mut setting = random_setting(&dice);
        setting.again = dice(2) == 0;
        setting.patience = AcquireTimeouts {
            total: ms(500 + dice(3_000)),
            connecting: ms(200 + dice(3_000)),
        };
        setting.answer_max = ms(500 + dice(3_000));
        setting.limits.waiting_max = dice(20) as usize;
        setting.limits.age_max = ms(1 + dice(3_000));
        setting.faults.clock_jumps = rare(2);
        setting.elsewhere.refused = rare(300);
        setting.elsewhere.unanswered = rare(100);
        let manners = &mut setting.manners;
        (manners.silent, manners.cut) = (rare(100), rare(300));
        (manners.stall, manners.close) = (rare(200), rare(800));
        let mut case = Case::new(seed, &setting);
        for number in 0..50 {
            let mut plan = random_plan(number, &setting, &dice);
            // A fifth of the requests is cancelled, most before the response.
            if dice(5) == 0 {
                plan.leave_ms = Some(plan.start_ms + dice(2_000));
            }
            case.add(plan);
        }
        case.run();
    });
}

/// Few connections, two workers, everything within a few ms: requests are cancelled just after they got a permit, a
/// connection or a response.
#[test]
fn cancelled_requests_leak_no_permits_or_connections() {
    for_each_seed(1500..1700, |seed| {
        let dice = dice(seed);
        let mut setting = faultless_setting();
        (setting.workers, setting.tcp) = (2, dice(2) == 0);
        setting.limits.connections_max = 1 + dice(2) as usize;
        setting.faults.delay_ms_max = dice(2);
        setting.manners.close = dice(300);
        let mut case = Case::new(seed, &setting);
        for number in 0..50 {
            let mut plan = plan(number);
            (plan.worker, plan.start_ms) = (number % 2, dice(20));
            // More than half of the requests are cancelled, within 50 ms of their start.
            plan.leave_ms = (dice(10) < 6).then(|| plan.start_ms + dice(50));
            case.add(plan);
        }
        case.run();
    });
}

/// A reused connection that its server closes at the moment of reuse.
#[test]
fn request_lost_on_a_reused_connection_is_retried_on_a_new_one() {
    for_each_seed(2000..2100, |seed| {
        let dice = dice(seed);
        let mut setting = random_setting(&dice);
        (setting.again, setting.manners.close) = (true, 300 + dice(700));
        let mut case = Case::new(seed, &setting);
        for number in 0..40 {
            case.add(random_plan(number, &setting, &dice));
        }
        let ends = case.run();
        let right = |end: &Option<(Outcome, u64)>| matches!(end, Some((Outcome::Right, _)));
        assert!(ends.iter().all(right), "{ends:?}");
    });
}

/// The outcome of a single request, and its time in ms.
fn single(seed: u64, setting: &Setting) -> (Outcome, u64) {
    let mut case = Case::new(seed, setting);
    case.add(plan(0));
    case.run()[0].expect("it did not leave")
}

#[test]
fn each_connect_failure_has_its_time_and_error() {
    for_each_seed(3000..3020, |seed| {
        let mut setting = faultless_setting();
        setting.patience = AcquireTimeouts {
            total: ms(2_000),
            connecting: ms(700 + seed % 100),
        };
        let connecting_ms = 700 + seed % 100;
        setting.elsewhere.refused = 1000;
        let (outcome, after_ms) = single(seed, &setting);
        assert_eq!(outcome, Outcome::Refused);
        // A refused connection is reported immediately, not after the connect timeout.
        assert!(after_ms < 100, "{after_ms} ms");
        setting.elsewhere.refused = 0;
        let in_time = |(outcome, after_ms): (Outcome, u64)| {
            assert_eq!(outcome, Outcome::ConnectTimeout);
            let right = connecting_ms..=connecting_ms + LATE_MS;
            assert!(right.contains(&after_ms), "{after_ms} ms");
        };
        setting.elsewhere.unanswered = 1000;
        in_time(single(seed, &setting));
        // A TCP handshake that never ends.
        (setting.elsewhere.unanswered, setting.manners.silent) = (0, 1000);
        in_time(single(seed, &setting));
        // A backlog that is always full.
        (setting.tcp, setting.elsewhere.queue_full) = (false, 1000);
        in_time(single(seed, &setting));
    });
}

#[test]
fn waiting_request_gets_a_connection_or_times_out() {
    for_each_seed(3100..3120, |seed| {
        let mut setting = faultless_setting();
        setting.patience = AcquireTimeouts::from_total(ms(1_000));
        setting.limits.waiting_max = 3;
        setting.manners.stall = 1000;
        let mut case = Case::new(seed, &setting);
        (0..6).for_each(|number| case.add(plan(number)));
        let ends = case.run();
        let ends: Vec<_> = ends
            .into_iter()
            .map(|end| end.expect("none left"))
            .collect();
        let count = |outcome| ends.iter().filter(|end| end.0 == outcome).count();
        assert_eq!(count(Outcome::Slow), 2, "{ends:?}");
        assert_eq!(count(Outcome::NoneFree), 3, "{ends:?}");
        assert_eq!(count(Outcome::TooManyWait), 1, "{ends:?}");
        for (outcome, after_ms) in ends {
            let right = match outcome {
                Outcome::TooManyWait => 0..=LATE_MS,
                Outcome::NoneFree => 1_000..=1_000 + LATE_MS,
                _ => 60_000..=61_000,
            };
            assert!(right.contains(&after_ms), "{outcome:?} after {after_ms} ms");
        }
    });
}

#[test]
fn connection_beyond_age_max_is_not_kept() {
    let mut setting = faultless_setting();
    setting.limits.age_max = ms(1_000);
    let mut case = Case::new(1, &setting);
    for number in 0..20 {
        let start_ms = 100 * number as u64;
        case.add(Plan {
            start_ms,
            ..plan(number)
        });
    }
    case.run();
    let counts = case.pool.counts();
    assert!((2..=3).contains(&counts.opened), "{counts:?}");
    assert_eq!(counts.opened + counts.reused, 20);
}

/// A multiplexed connection with room for two requests, which last until the connection is dropped.
struct Pair {
    worker: usize,
    taken: AtomicUsize,
    _connection: Mutex<Line>,
    _permit: Permit,
}

impl Pair {
    fn start(connection: Line, permit: Permit, worker: usize, _: &WorkerHandle) -> Arc<Pair> {
        Arc::new(Pair {
            worker,
            taken: AtomicUsize::new(0),
            _connection: Mutex::new(connection),
            _permit: permit,
        })
    }
}

impl MultiplexedConnection for Pair {
    fn worker(&self) -> usize {
        self.worker
    }

    fn has_room(&self) -> bool {
        self.taken.load(Relaxed) < 2
    }

    fn is_closed(&self) -> bool {
        false
    }

    fn requests(&self) -> usize {
        self.taken.load(Relaxed)
    }
}

/// Concurrent requests use first the connections of their worker, then new ones up to the limit, then those of other
/// workers; then they wait until the timeout.
#[test]
fn requests_share_multiplexed_connections() {
    for_each_seed(4000..4020, |seed| {
        let mut setting = faultless_setting();
        setting.workers = 2;
        setting.patience = AcquireTimeouts::from_total(ms(1_000));
        let mut case = Case::new(seed, &setting);
        let shared: Arc<SharedConnections<Pair>> = Arc::new(SharedConnections::new(2));
        let got = Arc::new(Mutex::new(Vec::new()));
        // One request on worker 1; then four on worker 0, two of which fill its connection.
        for (count, worker) in [(1, 1), (5, 0)] {
            let before = got.lock().expect("a lock").len();
            for _ in before..count {
                let (pool, shared, got) = (case.pool.clone(), shared.clone(), got.clone());
                let patience = setting.patience;
                let asking = async move {
                    let pair = shared.get(&pool, worker, false, patience, Pair::start);
                    let of = pair.await.ok().map(|pair| {
                        pair.taken.fetch_add(1, Relaxed);
                        pair.worker
                    });
                    got.lock().expect("a lock").push(of);
                };
                case.workers.locals()[worker].tasks.spawn(asking).detach();
            }
            case.turn_until(|_| got.lock().expect("a lock").len() == count);
        }
        assert_eq!(case.server.came, 2);
        let got = got.lock().expect("a lock").clone();
        assert_eq!(got, [Some(1), Some(0), Some(0), Some(1), None]);
        drop(shared);
        case.run_until_quiet();
    });
}
