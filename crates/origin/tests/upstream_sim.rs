//! Member groups in the simulator: health checks, name resolution, and retries. In every history, each request ends
//! exactly once, no connection or task is leaked, and retries and tasks are limited.
//!
//! Each case is a seed; a failure prints it.

#[path = "lines_sim/line.rs"]
mod line;
#[path = "lines_sim/peer.rs"]
mod peer;

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use line::{Lines, answer};
use lowroad_engine::WorkerHandle;
use lowroad_engine::driver::{DriverEvent, IoDriver};
use lowroad_engine_sim::{FaultRates, PeerBehavior, SharedWorld as World, SimDriver};
use lowroad_origin::checks::{
    self, CheckSettings, ConnectCheck, HealthChange, HealthCheck, RandomSource,
};
use lowroad_origin::group::{
    AttemptOutcome, BalancingPolicy, GroupSettings, MemberHealth, NewMember, NoMember,
    OperatorSettings, PickRequest,
};
use lowroad_origin::member_claims::{ClaimChange, ClaimSource, MemberClaims, SourceClaims};
use lowroad_origin::name_resolution::{self, HostName, MemberFactory, NameAnswer, NameResolver};
use lowroad_origin::retry::{BodyReplay, FailureStage, ResponseProgress, RetryLimits};
use lowroad_origin::{
    AcquireTimeouts, ConnectionPool, PoolLimits, PoolUnavailable, ServerAddress, Upstream,
};
use peer::{Manners, Server};

/// The precision of the timer wheel: timers are never early, and late by at most this.
const LATE_MS: u64 = 16;

/// Prints the seed if its case panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed is {}", self.0);
        }
    }
}

fn for_each_seed(seeds: std::ops::Range<u64>, run: impl Fn(u64)) {
    for seed in seeds {
        let _name = Seed(seed);
        run(seed);
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// One worker, and a server that listens at every address.
struct Case {
    world: World,
    driver: SimDriver,
    local: WorkerHandle,
    server: Server,
}

impl Case {
    fn new(seed: u64, manners: Manners) -> Case {
        let faults = FaultRates {
            piece_len_max: 5_000,
            delay_ms_max: 3,
            window_len: 100_000,
            clock_jumps: 0,
            accept_failures: 0,
            file_failures: 0,
            late_sends: 300,
        };
        let world = World::new(seed, faults);
        let driver = world.driver();
        Case {
            local: driver.worker_handle().clone(),
            server: Server::new(&world, manners),
            world,
            driver,
        }
    }

    fn random(&self) -> RandomSource {
        let world = self.world.clone();
        Arc::new(move || world.random_below(u64::MAX))
    }

    /// Lets this much time pass.
    fn run_for(&mut self, time_ms: u64) {
        let end_ms = self.world.now_ms() + time_ms;
        self.world.alarm(end_ms);
        // Bounded, so that a case without progress fails instead of hanging.
        for _ in 0..1_000_000 {
            if self.world.now_ms() >= end_ms {
                return;
            }
            let mut events = Vec::new();
            self.driver.wait(None, &mut events);
            for event in events {
                if let DriverEvent::UpstreamReady(news) = event {
                    self.local.sources.handle_event(news);
                }
            }
            self.local.run();
            self.server.step();
        }
        panic!("no end at {} ms", self.world.now_ms());
    }

    /// Checks that no connection is left after idle ones have expired.
    fn run_until_quiet(&mut self) {
        self.run_for(60_000);
        assert_eq!(self.world.open_count(), 0, "connections that nobody closes");
        assert_eq!(self.local.tasks.count(), 0, "tasks");
        assert_eq!(self.local.sources.count(), 0, "sockets' places");
        assert_eq!(self.local.timers.count(), 0, "timers");
    }
}

fn pool(local: &WorkerHandle, address: SocketAddr) -> Arc<ConnectionPool<Lines>> {
    let limits = PoolLimits {
        connections_max: 4,
        waiting_max: 1_000,
        idle_max: ms(2_000),
        age_max: Duration::MAX,
    };
    let workers = [local.clone()].into();
    Arc::new(ConnectionPool::new(
        ServerAddress::Tcp(address),
        Lines,
        limits,
        workers,
    ))
}

fn at(number: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, number as u8], 7))
}

fn new_member(number: usize) -> NewMember {
    NewMember {
        name: at(number).to_string().into(),
        weight: 1,
        backup: false,
        operator: OperatorSettings::default(),
    }
}

fn standings<P: Clone>(upstream: &Upstream<P>, now_ms: u64) -> Vec<MemberHealth> {
    let status = upstream.with(|group| group.status(now_ms));
    status.into_iter().map(|status| status.health).collect()
}

/// A member's response to a health check.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    Ill,
    Silent,
}

/// A check with scripted results, which counts its calls and the concurrent ones.
struct Scripted {
    mood: Mutex<Mood>,
    asked: AtomicUsize,
    at_a_time: AtomicUsize,
}

impl HealthCheck<usize> for Scripted {
    async fn check(&self, _: &usize, local: &WorkerHandle) -> Result<(), String> {
        struct Leaving<'a>(&'a AtomicUsize);
        impl Drop for Leaving<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Relaxed);
            }
        }
        self.asked.fetch_add(1, Relaxed);
        assert_eq!(
            self.at_a_time.fetch_add(1, Relaxed),
            0,
            "two questions at a time"
        );
        let _leaving = Leaving(&self.at_a_time);
        local.timers.sleep(ms(50)).await;
        let mood = *self.mood.lock().expect("a lock");
        match mood {
            Mood::Well => Ok(()),
            Mood::Ill => Err("it says so".into()),
            Mood::Silent => pending().await,
        }
    }
}

#[test]
fn health_checks_change_the_health_in_time() {
    for_each_seed(0..40, |seed| {
        let mut case = Case::new(seed, Manners::default());
        let upstream = Upstream::new(GroupSettings::default(), RetryLimits::default());
        let member = upstream.with(|group| group.add(new_member(1), 1, 0));
        let check = Arc::new(Scripted {
            mood: Mutex::new(Mood::Well),
            asked: AtomicUsize::new(0),
            at_a_time: AtomicUsize::new(0),
        });
        let changes: Arc<Mutex<Vec<HealthChange>>> = Arc::default();
        let to = changes.clone();
        let checking = CheckSettings {
            interval: ms(1_000),
            timeout: ms(300),
            jitter_percent: 20,
        };
        let (local, random) = (case.local.clone(), case.random());
        let tell = move |_, change| to.lock().expect("a lock").extend(change);
        let task = checks::begin(
            &upstream,
            member,
            check.clone(),
            checking,
            &local,
            random,
            tell,
        );
        case.run_for(10_000);
        assert_eq!(changes.lock().expect("a lock").len(), 0);
        let asked = check.asked.load(Relaxed);
        // 10 s at an interval of 1 s, with up to 20 % jitter.
        assert!((8..=12).contains(&asked), "{asked}");
        // Three failed checks, each within an interval, its jitter and the time limit.
        let (mood, why) = match seed % 2 {
            0 => (Mood::Ill, "it says so"),
            _ => (Mood::Silent, "no response in time"),
        };
        *check.mood.lock().expect("a lock") = mood;
        // The longest interval with jitter, the time limit of a check, and the precision of both timers.
        case.run_for(3 * (1_200 + 300 + 2 * LATE_MS));
        let down = [HealthChange::Down(why.into())];
        assert_eq!(*changes.lock().expect("a lock"), down);
        assert_eq!(
            standings(&upstream, case.world.now_ms()),
            [MemberHealth::Down]
        );
        *check.mood.lock().expect("a lock") = Mood::Well;
        case.run_for(3 * (1_200 + 300 + 2 * LATE_MS));
        assert_eq!(
            changes.lock().expect("a lock").last(),
            Some(&HealthChange::Up)
        );
        assert_ne!(
            standings(&upstream, case.world.now_ms()),
            [MemberHealth::Down]
        );
        // The task ends when its handle is dropped, or its member or group is removed.
        match seed % 3 {
            0 => drop(task),
            1 => {
                upstream.with(|group| group.remove(member));
                task.detach();
            }
            _ => {
                drop(upstream);
                task.detach();
            }
        }
        case.run_until_quiet();
    });
}

#[test]
fn member_without_connections_is_down_until_one_succeeds() {
    for_each_seed(100..120, |seed| {
        let mut case = Case::new(seed, Manners::default());
        let upstream = Upstream::new(GroupSettings::default(), RetryLimits::default());
        let pool = pool(&case.local, at(1));
        let member = upstream.with(|group| group.add(new_member(1), pool, 0));
        let (local, random, checking) =
            (case.local.clone(), case.random(), CheckSettings::default());
        let check = Arc::new(ConnectCheck);
        let task = checks::begin(
            &upstream,
            member,
            check,
            checking,
            &local,
            random,
            |_, _| (),
        );
        let refused = |refused| PeerBehavior {
            refused,
            ..PeerBehavior::default()
        };
        case.world.set_peer_behavior(refused(1000));
        // Enough for `fall` checks at the default interval.
        case.run_for(30_000);
        assert_eq!(
            standings(&upstream, case.world.now_ms()),
            [MemberHealth::Down]
        );
        case.world.set_peer_behavior(refused(0));
        case.run_for(30_000);
        assert_eq!(
            standings(&upstream, case.world.now_ms()),
            [MemberHealth::Up]
        );
        drop(task);
        case.run_until_quiet();
    });
}

/// A resolver with random answers; `None` is a failure, or never completes.
struct Drawn {
    world: World,
    /// The last two of all answers.
    given: Mutex<Vec<Vec<SocketAddr>>>,
    failures: AtomicU64,
}

impl NameResolver for Drawn {
    async fn resolve(&self, name: &HostName, _: &WorkerHandle) -> io::Result<NameAnswer> {
        assert_eq!((&*name.host, name.port), ("origin.example", 7));
        let drawn = self.world.random_below(8);
        if drawn < 3 {
            self.failures.fetch_add(1, Relaxed);
        }
        match drawn {
            0 => Err(io::ErrorKind::NotFound.into()),
            1 => Ok(NameAnswer::default()),
            2 => pending().await,
            _ => {
                let any = |_: &usize| self.world.random_below(3) > 0;
                let mut answer: Vec<_> = (1..6).filter(any).map(at).collect();
                answer.push(at(6));
                self.given.lock().expect("a lock").push(answer.clone());
                Ok(answer.into())
            }
        }
    }
}

/// Records the current members.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<SocketAddr>>>);

impl MemberFactory<SocketAddr> for Noted {
    fn create(&mut self, address: SocketAddr) -> SocketAddr {
        address
    }

    fn on_change(&mut self, change: ClaimChange<SocketAddr>, address: SocketAddr) {
        let mut noted = self.0.lock().expect("a lock");
        match change {
            ClaimChange::None => {}
            ClaimChange::Added(_) => noted.push(address),
            ClaimChange::Replaced(_) => panic!("another source"),
            ClaimChange::Removed(_, target) => {
                assert_eq!(target, address);
                let at = noted.iter().position(|known| *known == address);
                noted.remove(at.expect("it was there"));
            }
        }
    }
}

/// The claims of a name, the only source of members.
fn claims<P: Clone>(upstream: &Arc<Upstream<P>>) -> SourceClaims<P> {
    SourceClaims {
        claims: Arc::new(MemberClaims::new(upstream)),
        source: ClaimSource::Name(0),
    }
}

#[test]
fn resolved_addresses_are_the_members_and_failures_change_nothing() {
    for_each_seed(200..260, |seed| {
        let mut case = Case::new(seed, Manners::default());
        let upstream = Upstream::new(GroupSettings::default(), RetryLimits::default());
        let resolver = Arc::new(Drawn {
            world: case.world.clone(),
            given: Mutex::default(),
            failures: AtomicU64::new(0),
        });
        let noted = Noted::default();
        let name = HostName::new("origin.example", 7);
        let following = name_resolution::watch_name(
            claims(&upstream),
            name,
            resolver.clone(),
            noted.clone(),
            &case.local,
        );
        for _ in 0..40 {
            case.run_for(3_700);
            let given = resolver.given.lock().expect("a lock");
            let mut members: Vec<SocketAddr> = upstream
                .with(|group| group.status(0))
                .iter()
                .map(|status| status.name.parse().expect("an address"))
                .collect();
            members.sort_unstable();
            // The members are the addresses in one of the last two answers.
            let mut right: Vec<_> = given.iter().rev().take(2).flatten().copied().collect();
            right.sort_unstable();
            right.dedup();
            assert_eq!(members, right);
            let noted = noted.0.lock().expect("a lock");
            let mut noted = noted.clone();
            noted.sort_unstable();
            assert_eq!(noted, right);
        }
        let resolved = following.status();
        assert_eq!(
            resolved.answers as usize,
            resolver.given.lock().expect("a lock").len()
        );
        let asked_in_vain = resolver.failures.load(Relaxed);
        assert!((0..=1).contains(&(asked_in_vain - resolved.failures)));
        assert!(resolved.answers > 2);
        drop(following);
        case.run_until_quiet();
    });
}

/// Closes the pools of removed addresses.
struct Pools(Arc<dyn Fn(SocketAddr) -> Arc<ConnectionPool<Lines>> + Send + Sync>);

impl MemberFactory<Arc<ConnectionPool<Lines>>> for Pools {
    fn create(&mut self, address: SocketAddr) -> Arc<ConnectionPool<Lines>> {
        (self.0)(address)
    }

    fn on_change(&mut self, change: ClaimChange<Arc<ConnectionPool<Lines>>>, _: SocketAddr) {
        if let ClaimChange::Removed(_, pool) = change {
            pool.disable_reuse();
        }
    }
}

/// The results of requests.
#[derive(Default)]
struct Tally {
    right: AtomicUsize,
    failed: AtomicUsize,
    tries: AtomicUsize,
}

/// One request with its retries.
async fn request(
    number: usize,
    upstream: Arc<Upstream<Arc<ConnectionPool<Lines>>>>,
    local: WorkerHandle,
    random: RandomSource,
    tally: Arc<Tally>,
) {
    let mut tried = Vec::new();
    loop {
        let now_ms = local.timers.now_ms();
        let request = PickRequest {
            key: Some(number as u64 % 7),
            client: None,
            tried: &tried,
            session: None,
        };
        let attempt = match upstream.attempt(&request, now_ms, random()) {
            Ok(attempt) => attempt,
            Err(NoMember::AllTried | NoMember::Empty | NoMember::AllFull) => break,
            Err(why) => panic!("{why:?}"),
        };
        tally.tries.fetch_add(1, Relaxed);
        assert!(!tried.contains(&attempt.member));
        tried.push(attempt.member);
        let (outcome, failed) = run_attempt(number, attempt, &local).await;
        if outcome == AttemptOutcome::Answered {
            tally.right.fetch_add(1, Relaxed);
            return;
        }
        let failed = FailureStage {
            tries: tried.len() as u32,
            ..failed
        };
        if upstream.may_retry(&failed, local.timers.now_ms()).is_err() {
            break;
        }
    }
    tally.failed.fetch_add(1, Relaxed);
}

/// One attempt, with its report.
async fn run_attempt(
    number: usize,
    mut attempt: lowroad_origin::UpstreamAttempt<Arc<ConnectionPool<Lines>>>,
    local: &WorkerHandle,
) -> (AttemptOutcome, FailureStage) {
    let pool = attempt.target.clone();
    let mut failed = FailureStage {
        tries: 1,
        is_idempotent: true,
        sent: false,
        body: BodyReplay::Whole,
        response: ResponseProgress::Nothing,
        timed_out: false,
    };
    let outcome = match pool
        .lease(0, false, AcquireTimeouts::from_total(ms(1_000)))
        .await
    {
        Err(PoolUnavailable::Failed(_) | PoolUnavailable::ConnectTimeout) => {
            AttemptOutcome::ConnectFailed
        }
        Err(_) => AttemptOutcome::Cancelled,
        Ok(mut lease) => {
            attempt.mark_connected();
            failed.sent = true;
            let talk = async {
                lease.connection.ask(number, 10).await.ok()?;
                lease.connection.hear().await.ok()?;
                lease.mark_proven();
                lease.connection.read().await.ok()
            };
            match local.timers.timeout(ms(1_000), talk).await {
                Ok(Some(line)) => {
                    assert!(line == answer(number, 10), "another's");
                    pool.release(lease);
                    AttemptOutcome::Answered
                }
                Ok(None) => AttemptOutcome::Lost,
                Err(_) => {
                    failed.timed_out = true;
                    AttemptOutcome::TimedOut
                }
            }
        }
    };
    attempt.report(outcome, local.timers.now_ms());
    (outcome, failed)
}

/// Members are added and removed; connections are refused, truncated and stalled; clients cancel. Each request ends
/// once, retries are limited, and in the end no request or connection is left.
#[test]
fn failed_requests_are_retried_and_nothing_leaks() {
    for_each_seed(300..360, |seed| {
        let manners = Manners {
            cut: 60,
            stall: 20,
            slow: 200,
            close: 100,
            ..Manners::default()
        };
        let mut case = Case::new(seed, manners);
        case.world.set_peer_behavior(PeerBehavior {
            refused: 100,
            ..PeerBehavior::default()
        });
        let policies = [
            BalancingPolicy::RoundRobin,
            BalancingPolicy::LeastConnections,
            BalancingPolicy::RandomOfTwo,
            BalancingPolicy::ConsistentHash {
                load_percent_max: 125,
            },
        ];
        let settings = GroupSettings {
            policy: policies[seed as usize % 4],
            ..GroupSettings::default()
        };
        let retry = RetryLimits::default();
        let upstream = Upstream::new(settings, retry);
        let resolver = Arc::new(Drawn {
            world: case.world.clone(),
            given: Mutex::default(),
            failures: AtomicU64::new(0),
        });
        let local = case.local.clone();
        let pools = Pools(Arc::new(move |address| pool(&local, address)));
        let name = HostName {
            interval: ms(1_000),
            ..HostName::new("origin.example", 7)
        };
        let claims = claims(&upstream);
        let following = name_resolution::watch_name(claims, name, resolver, pools, &case.local);
        while upstream.with(|group| group.status(0).is_empty()) {
            case.run_for(100);
        }
        let (tally, mut left, mut begun) = (Arc::new(Tally::default()), 0, 0);
        for number in 0..200 {
            let (of, local) = (upstream.clone(), case.local.clone());
            let asking = request(number, of, local, case.random(), tally.clone());
            let task = case.local.tasks.spawn(asking);
            case.run_for(case.world.random_below(40) + 1);
            let ended = || tally.right.load(Relaxed) + tally.failed.load(Relaxed);
            begun += 1;
            if case.world.random_below(10) == 0 {
                let before = ended();
                drop(task);
                assert_eq!(ended(), before);
                left += 1;
            } else {
                task.detach();
            }
        }
        case.run_for(10_000);
        drop(following);
        let (right, failed) = (tally.right.load(Relaxed), tally.failed.load(Relaxed));
        assert!(right + failed <= begun && right + failed + left >= begun);
        assert!(
            right * 100 >= (begun - left) * 95,
            "{right} of {begun}, {left} left"
        );
        assert!(tally.tries.load(Relaxed) <= begun * 3);
        let status = upstream.with(|group| group.status(case.world.now_ms()));
        for status in &status {
            assert_eq!((status.requests, status.pending), (0, 0), "{status:?}");
        }
        case.run_until_quiet();
    });
}
