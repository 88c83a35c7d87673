//! One test case: a simulated network with a seed, workers, a server and requests. Runs them to the end, and checks the
//! invariants.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lowroad_engine::tasks::TaskHandle;
use lowroad_engine_sim::{FaultRates, PeerBehavior, SharedWorld, SimWorkers, turn_until};
use lowroad_origin::{
    AcquireTimeouts, ConnectionPool, Lease, PoolLimits, PoolUnavailable, ServerAddress,
};

use crate::line::{Lines, answer};
use crate::peer::{Manners, Server};

/// The time after which idle connections must be closed, virtual ms.
const QUIET_MS: u64 = 30_000;

/// The parameters of a case.
#[derive(Clone, Debug)]
pub struct Setting {
    pub workers: usize,
    pub tcp: bool,
    pub limits: PoolLimits,
    pub patience: AcquireTimeouts,
    /// The time limit of a response.
    pub answer_max: Duration,
    /// Whether a request that fails on a reused connection is retried on a new one.
    pub again: bool,
    pub faults: FaultRates,
    pub elsewhere: PeerBehavior,
    pub manners: Manners,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub start_ms: u64,
    pub worker: usize,
    pub number: usize,
    pub len: usize,
    pub leave_ms: Option<u64>,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Right,
    TooManyWait,
    NoneFree,
    ConnectTimeout,
    Refused,
    /// The connection was lost.
    Lost,
    /// The response took too long.
    Slow,
}

/// A request in progress.
struct Client {
    plan: Plan,
    task: Option<TaskHandle>,
    left: bool,
    outcome: Arc<Mutex<Option<(Outcome, u64)>>>,
}

/// One case.
pub struct Case {
    pub world: SharedWorld,
    pub server: Server,
    pub pool: Arc<ConnectionPool<Lines>>,
    setting: Setting,
    clients: Vec<Client>,
    pub workers: SimWorkers,
    leased: Arc<AtomicUsize>,
}

impl Case {
    pub fn new(seed: u64, setting: &Setting) -> Case {
        let world = SharedWorld::new(seed, setting.faults.clone());
        world.set_peer_behavior(setting.elsewhere.clone());
        let workers = SimWorkers::new(&world, setting.workers);
        let address = match setting.tcp {
            true => ServerAddress::Tcp("192.0.2.9:7".parse().expect("an address")),
            false => ServerAddress::Unix("/run/lines".into()),
        };
        let pool = ConnectionPool::new(address, Lines, setting.limits, workers.locals().clone());
        Case {
            server: Server::new(&world, setting.manners.clone()),
            world,
            pool: Arc::new(pool),
            setting: setting.clone(),
            clients: Vec::new(),
            workers,
            leased: Arc::default(),
        }
    }

    /// Adds a request; times are relative to now.
    pub fn add(&mut self, mut plan: Plan) {
        let now_ms = self.world.now_ms();
        plan.start_ms += now_ms;
        plan.leave_ms = plan.leave_ms.map(|leave_ms| now_ms + leave_ms);
        self.world.alarm(plan.start_ms);
        let leave = plan.leave_ms.into_iter();
        leave.for_each(|leave_ms| self.world.alarm(leave_ms));
        self.clients.push(Client {
            plan,
            task: None,
            left: false,
            outcome: Arc::default(),
        });
    }

    /// Runs until all requests have ended, and then until no event is left; returns the outcomes, with the time in ms.
    /// `None`: cancelled.
    pub fn run(&mut self) -> Vec<Option<(Outcome, u64)>> {
        self.turn_until(|case| case.clients.iter().all(Client::is_over));
        self.run_until_quiet();
        let clients = self.clients.iter();
        clients
            .map(|client| {
                let outcome = *client.outcome.lock().expect("a lock");
                // A waiting worker has not noticed a jump of the clock yet.
                let after_ms = |end_ms: u64| end_ms.saturating_sub(client.plan.start_ms);
                outcome.map(|(outcome, end_ms)| (outcome, after_ms(end_ms)))
            })
            .collect()
    }

    /// Lets time pass until all connections should be closed, and checks it.
    pub fn run_until_quiet(&mut self) {
        // The alarm makes the virtual clock advance even if no event is pending.
        let end_ms = self.world.now_ms() + QUIET_MS;
        self.world.alarm(end_ms);
        self.turn_until(|case| case.world.now_ms() >= end_ms);
        let counts = self.pool.counts();
        assert_eq!(counts.in_use, 0, "a permit that was lost");
        assert_eq!((counts.idle, counts.waiting), (0, 0), "kept for ever");
        assert_eq!(self.world.open_count(), 0, "connections that nobody closes");
        self.workers.check_all_released();
    }

    pub fn turn_until(&mut self, done: impl Fn(&Case) -> bool) {
        let world = self.world.clone();
        turn_until(&world, self, Case::turn, done);
    }

    /// One event loop turn of the next worker, and all that follows. Returns whether anything happened.
    fn turn(&mut self) -> bool {
        let has_progress = self.workers.turn();
        self.begin_and_leave();
        let connections_max = self.pool.counts().connections_max;
        // The limit on connections is checked at every step, not only at the end.
        assert!(self.leased.load(Relaxed) <= connections_max);
        if !self.setting.again {
            // A request that needs a new connection must not use an idle one.
            assert!(self.world.open_count() <= connections_max);
        }
        self.server.step() || has_progress
    }

    fn begin_and_leave(&mut self) {
        let now_ms = self.world.now_ms();
        for client in &mut self.clients {
            let plan = client.plan;
            if client.task.is_none() && now_ms >= plan.start_ms && !client.left {
                let (setting, pool) = (self.setting.clone(), self.pool.clone());
                let (leased, to) = (self.leased.clone(), client.outcome.clone());
                let local = self.workers.locals()[plan.worker].clone();
                let timers = local.timers.clone();
                client.task = Some(local.tasks.start(async move {
                    let outcome = run_request(plan, &setting, &pool, &leased).await;
                    let mut to = to.lock().expect("a lock");
                    let before = to.replace((outcome, timers.now_ms()));
                    // An outcome must be reported once only.
                    assert!(before.is_none(), "two ends");
                }));
            }
            if plan.leave_ms.is_some_and(|leave_ms| now_ms >= leave_ms) && !client.is_over() {
                // Dropping the task cancels the request wherever it waits.
                (client.left, client.task) = (true, None);
            }
        }
    }
}

impl Client {
    fn is_over(&self) -> bool {
        self.left || self.outcome.lock().expect("a lock").is_some()
    }
}

/// Counts the leases that are not dropped yet.
struct Leased<'a>(&'a AtomicUsize);

impl Drop for Leased<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

async fn run_request(
    plan: Plan,
    setting: &Setting,
    pool: &Arc<ConnectionPool<Lines>>,
    leased: &AtomicUsize,
) -> Outcome {
    for fresh in [false, true] {
        let lease = match pool.lease(plan.worker, fresh, setting.patience).await {
            Ok(lease) => lease,
            Err(why) => return unavailable(&why),
        };
        leased.fetch_add(1, Relaxed);
        let _leased = Leased(leased);
        // The second attempt must not use a connection that may be stale, too.
        assert!(!(fresh && lease.is_reused), "it was to be new");
        let (kept, mut heard) = (lease.is_reused, false);
        let timers = &pool.worker_handle(plan.worker).timers;
        let talk = exchange_line(plan, lease, pool, &mut heard);
        match timers.timeout(setting.answer_max, talk).await {
            Err(_) => return Outcome::Slow,
            Ok(Some(())) => return Outcome::Right,
            // Without a response, the server may have closed the connection before it read the request.
            Ok(None) if kept && !heard && setting.again => {}
            Ok(None) => return Outcome::Lost,
        }
    }
    Outcome::Lost
}

/// `None` if the connection was lost.
async fn exchange_line(
    plan: Plan,
    mut lease: Lease<Lines>,
    pool: &Arc<ConnectionPool<Lines>>,
    heard: &mut bool,
) -> Option<()> {
    lease.connection.ask(plan.number, plan.len).await.ok()?;
    lease.connection.hear().await.ok()?;
    lease.mark_proven();
    *heard = true;
    let line = lease.connection.read().await.ok()?;
    // A wrong line would be the response to another request.
    assert!(line == answer(plan.number, plan.len), "another's: {plan:?}");
    pool.release(lease);
    Some(())
}

fn unavailable(why: &PoolUnavailable) -> Outcome {
    match why {
        PoolUnavailable::TooManyWait => Outcome::TooManyWait,
        PoolUnavailable::NoneFree => Outcome::NoneFree,
        PoolUnavailable::ConnectTimeout => Outcome::ConnectTimeout,
        PoolUnavailable::Failed(_) => Outcome::Refused,
    }
}
