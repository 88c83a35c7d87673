//! The server's workers on simulated drivers, in front of a scripted origin. The workers are built as in `process`,
//! where the drivers use epoll. While a client waits, the workers take turns.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lowroad_config::Config;
use lowroad_engine::counters::WorkerCounters;
use lowroad_engine::helper_pool::HelperPool;
use lowroad_engine::mailbox::WorkerMailbox;
use lowroad_engine::worker::{MailboxMessage, Worker, WorkerMessage};
use lowroad_engine::{IoDriver, ListenerId, WorkerHandle};
use lowroad_engine_sim::{FaultRates, SharedWorld, SimDriver};
use lowroad_files::file_fetcher::FileFetcher;
use lowroad_files::file_loader::FileLoader;
use lowroad_limits::ConnectionLimit;
use lowroad_log::{ErrorLogger, LogDestination, LogLevel, LogWriter};
use lowroad_response_cache::calls::HandlerCalls;
use lowroad_response_cache::handler_outcome::OutcomeWaiter;
use lowroad_routes::route_builder::HandlerRuntime;
use lowroad_site::cache_counters::CacheCounters;
use lowroad_site::decision::SiteService;
use lowroad_site::listeners::ListenerSet;
use lowroad_site::sites::SiteTable;
use lowroad_store::SharedStore;
use lowroad_store::change_feed::ChangeFeed;
use lowroad_store::clock;
use lowroad_testkit::origin::OriginRequest;
use lowroad_tls_listener::TlsListeners;

use super::WORLD;
use crate::limits;

/// The address of the simulated listener. No real socket is bound.
const ADDRESS: &str = "192.0.2.1:80";
/// The origin's URL.
const ORIGIN: &str = "http://192.0.2.9:80";
/// The store's size in bytes.
const STORE_LEN: u64 = 16 << 20;
/// Maximum turns of workers until a client has its response.
const TURNS_MAX: usize = 1_000_000;

/// A script for an origin: writes a response, a part of one, or nothing. Returns whether the connection stays open.
pub type OriginScript = dyn Fn(&OriginRequest, &mut Vec<u8>) -> bool + Send + Sync;

/// A simulated network with the server's workers and an origin.
pub struct SimAccelerator {
    /// The simulated network and clock.
    pub world: SharedWorld,
    workers: Vec<RefCell<Worker<SimDriver, SiteService>>>,
    cache_counters: Vec<Arc<CacheCounters>>,
    turn: Cell<usize>,
    origin: RefCell<OriginPeers>,
    programs: RefCell<HandlerRuntime>,
}

/// The origin's side of all connections.
struct OriginPeers {
    script: Box<OriginScript>,
    asked: Arc<Mutex<Vec<OriginRequest>>>,
    open: Vec<(usize, Vec<u8>)>,
}

/// The objects that a server's workers share.
struct SharedParts {
    sites: Arc<SiteTable>,
    store: Arc<SharedStore>,
    fetcher: Arc<FileFetcher<OutcomeWaiter>>,
    changes: Arc<ChangeFeed>,
    logger: ErrorLogger,
}

impl SimAccelerator {
    /// Creates a simulated accelerator with a seed, a number of workers, a configuration, and a script for the origin.
    pub fn new(
        seed: u64,
        workers: usize,
        config: &Config,
        script: Box<OriginScript>,
        asked: Arc<Mutex<Vec<OriginRequest>>>,
    ) -> SimAccelerator {
        let world = SharedWorld::new(seed, faults(seed));
        WORLD.set(Some(world.clone()));
        // Code outside of the workers reads the global clock, which must show the simulated time.
        clock::replace(super::now_ms);
        let drivers: Vec<SimDriver> = (0..workers).map(|_| world.driver()).collect();
        let locals: Vec<WorkerHandle> = drivers
            .iter()
            .map(|driver| driver.worker_handle().clone())
            .collect();
        let programs = HandlerRuntime::start(logger(), locals).expect("threads");
        let parts = SharedParts::new(config, &programs);
        let (workers, cache_counters) = drivers
            .into_iter()
            .enumerate()
            .map(|(number, driver)| parts.worker(number, driver, config, &programs))
            .map(|(worker, counters)| (RefCell::new(worker), counters))
            .unzip();
        SimAccelerator {
            world,
            workers,
            cache_counters,
            turn: Cell::new(0),
            origin: RefCell::new(OriginPeers {
                script,
                asked,
                open: Vec::new(),
            }),
            programs: RefCell::new(programs),
        }
    }

    /// Runs a turn of the next worker, then the origin. Skips a worker that was interrupted in the middle of its turn.
    pub fn turn(&self) {
        let number = (self.turn.get() + 1) % self.workers.len();
        self.turn.set(number);
        // The worker is borrowed if its own, interrupted turn is on the stack.
        let Ok(mut worker) = self.workers[number].try_borrow_mut() else {
            return;
        };
        // Nothing but this worker stays borrowed: during this turn, `run_during_interruption` may run turns of other
        // workers.
        let runtime = self.programs.borrow().runtime(number);
        let _lane = runtime.enter();
        worker.turn();
        drop(worker);
        self.origin.borrow_mut().step(&self.world);
    }

    /// Runs `others` while the current worker is interrupted, and then restores the current worker's number.
    pub fn run_during_interruption(&self, others: impl FnOnce()) {
        let number = self.turn.get();
        self.world.stop(number, true);
        others();
        self.world.stop(number, false);
        self.turn.set(number);
    }

    /// The sums of all workers' cache counters.
    pub fn cache_counters(&self) -> BTreeMap<&'static str, u64> {
        let mut sums = BTreeMap::new();
        for (name, value) in self.cache_counters.iter().flat_map(|of| of.list()) {
            *sums.entry(name).or_default() += value;
        }
        sums
    }

    /// Runs turns until `look` returns a value. `what` describes the value in the failure message.
    pub fn run_until<T>(&self, what: &str, mut look: impl FnMut(&SharedWorld) -> Option<T>) -> T {
        for _ in 0..TURNS_MAX {
            if let Some(found) = look(&self.world) {
                return found;
            }
            self.turn();
        }
        panic!("waited in vain for {what}");
    }
}

impl Drop for SimAccelerator {
    fn drop(&mut self) {
        self.programs.get_mut().end();
        // The workers are dropped before `WORLD` is cleared, because their clock needs it.
        self.workers.clear();
        WORLD.set(None);
    }
}

impl OriginPeers {
    /// Accepts new connections, and answers complete requests.
    fn step(&mut self, world: &SharedWorld) {
        let dialed = world.dialed();
        self.open
            .extend(dialed.into_iter().map(|id| (id, Vec::new())));
        let (script, all) = (&self.script, &self.asked);
        self.open.retain_mut(|(id, input)| {
            // Input may contain a part of a request, or several requests.
            input.extend(world.take_read(*id));
            while let Some(asked) = OriginRequest::take(input) {
                let asked = asked.record(&mut lock(all));
                let mut answer = Vec::new();
                let is_kept = script(&asked, &mut answer);
                world.send(*id, &answer);
                if !is_kept {
                    world.end(*id);
                    return false;
                }
            }
            !world.is_over(*id)
        });
    }
}

impl SharedParts {
    fn new(config: &Config, programs: &HandlerRuntime) -> SharedParts {
        let store = SharedStore::new(STORE_LEN).expect("memory");
        let store = Arc::new(store.with_interleaving(super::interrupt));
        let changes = Arc::<ChangeFeed>::default();
        let loader = FileLoader::new(store.clone(), None, changes.clone(), 0);
        SharedParts {
            sites: Arc::new(sites(config, programs, None)),
            store,
            fetcher: Arc::new(FileFetcher::new(Arc::new(loader), helpers())),
            changes,
            logger: logger(),
        }
    }

    fn worker(
        &self,
        number: usize,
        driver: SimDriver,
        config: &Config,
        programs: &HandlerRuntime,
    ) -> (Worker<SimDriver, SiteService>, Arc<CacheCounters>) {
        let mailbox: WorkerMailbox<WorkerMessage<SimDriver, SiteService>> =
            WorkerMailbox::new(driver.waker());
        let (own, interims) = (mailbox.clone(), mailbox.clone());
        let calls = HandlerCalls {
            worker: number,
            runtime: programs.runtime(number),
            worker_handle: driver.worker_handle().clone(),
            post: Arc::new(move |id, outcome| own.post(MailboxMessage::Outcome(id, outcome))),
            post_interim: Arc::new(move |id, interim| {
                interims.post(MailboxMessage::Interim(id, Box::new(interim)));
            }),
            store: self.store.clone(),
            fetcher: self.fetcher.clone(),
            changes: self.changes.clone(),
            records_tries: false,
            last_site: RefCell::default(),
        };
        let web = SiteService::new(self.sites.clone(), calls, self.logger.clone(), None);
        // The simulated driver needs no socket.
        mailbox.post(MailboxMessage::Listen(ListenerId(0), ()));
        let settings = Arc::new(limits::settings(config, &ListenerSet::default(), 1 << 16));
        let (admission, counters) = (
            Arc::<ConnectionLimit>::default(),
            Arc::<WorkerCounters>::default(),
        );
        let cache_counters = web.cache_counters();
        let worker = Worker::new(driver, web, mailbox, settings, admission, counters);
        (worker, cache_counters)
    }
}

/// Derives the rates of network faults from a seed.
fn faults(seed: u64) -> FaultRates {
    let pick = |at: u64, from: [usize; 4]| from[(seed >> at) as usize % 4];
    FaultRates {
        piece_len_max: pick(0, [70_000, 300, 7, 1]),
        delay_ms_max: pick(1, [3, 0, 20, 1]) as u64,
        window_len: pick(2, [300_000, 9_000, 500, 30_000]),
        // Time advances only where scripts wait, because most scripts test freshness lifetimes.
        clock_jumps: 0,
        accept_failures: 0,
        file_failures: 0,
        late_sends: pick(1, [0, 300, 1000, 0]) as u64,
    }
}

/// A configuration with one site. `site` has lines of `[[site]]` before the route to the origin, `caching` has lines of
/// `[site.route.cache]`.
pub fn config(site: &str, caching: &str) -> Config {
    let text = format!(
        "[[site]]\nlisten = \"{ADDRESS}\"\n{site}\n[[site.route]]\npattern = \"/**\"\norigin = \"{ORIGIN}\"\n\
         [site.route.cache]\n{caching}\n"
    );
    lowroad_config::parse(&text, Path::new("/simulated.toml")).expect("a configuration")
}

/// Builds the sites of a configuration for [`ADDRESS`], as a reload does if `before` are the previous sites.
pub fn sites(config: &Config, programs: &HandlerRuntime, before: Option<&SiteTable>) -> SiteTable {
    let opened = programs.open(config).expect("programs");
    let tls = TlsListeners::start(config, &logger(), None, None, None).expect("no TLS");
    let listeners = ListenerSet::with_address(ADDRESS.parse().expect("an address"));
    SiteTable::new(config, &listeners, &tls, &opened, before).expect("sites")
}

/// The helper threads that all tests share; the simulation does not use them.
fn helpers() -> HelperPool {
    static HELPERS: OnceLock<HelperPool> = OnceLock::new();
    HELPERS
        .get_or_init(|| HelperPool::start(1).expect("a thread"))
        .clone()
}

/// A logger that writes to /dev/null: tests check responses, not messages about origins.
pub fn logger() -> ErrorLogger {
    static WRITER: OnceLock<LogWriter> = OnceLock::new();
    let open = || LogWriter::open(&LogDestination::File("/dev/null".into())).expect("a log");
    ErrorLogger::new(WRITER.get_or_init(open).sink(), LogLevel::Error)
}

/// Locks shared data, even after a panic of another thread.
pub fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
