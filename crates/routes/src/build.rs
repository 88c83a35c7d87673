//! Makes the programs of a configuration, and keeps the runtime that they work on.

use std::io;
use std::sync::Arc;

use lowroad_config as config;
use lowroad_config::RouteTo;
use lowroad_engine::Local;
use lowroad_handler::notice::Notice;
use lowroad_handler::spool::{Account, Buffered, Spools};
use lowroad_log::Logger;
use lowroad_store::SharedStore;
use lowroad_store::changes::Changes;
use rustix::process::{Resource, getrlimit};
use tokio::runtime::Handle;

use crate::compressing::{self, Compressing, Compressors};
use crate::conditions::{self, Varying};
use crate::kinds::{self, HandlerKind, LabelledHandler, OpenContext, OpenedKind, RouteContext};
use crate::lanes::Lanes;
use crate::routes::{Route, Routes};

/// What programs need to run.
pub struct Programs {
    lanes: Lanes,
    logger: Logger,
    workers: Vec<Local>,
    kinds: Vec<Arc<dyn HandlerKind>>,
    /// What waits between clients and programs, of all configurations.
    account: Arc<Account>,
    compressed: Arc<compressing::Counts>,
}

/// The programs of one configuration.
pub struct Opened<'p> {
    programs: &'p Programs,
    kinds: OpenedKinds,
    spools: Arc<Spools>,
    compressors: Arc<Compressors>,
}

/// The kinds of handlers of a configuration, as long as it is in force.
pub struct OpenedKinds(Vec<Box<dyn OpenedKind>>);

impl OpenedKinds {
    /// Counters, by module.
    pub fn counts(&self) -> Vec<(&str, Vec<(&'static str, u64)>)> {
        self.0.iter().flat_map(|kind| kind.counts()).collect()
    }
}

impl Programs {
    /// Starts the threads that programs are waited for on, one for each of these workers.
    ///
    /// # Errors
    /// When the machine gives no threads.
    pub fn start(logger: Logger, workers: Vec<Local>) -> io::Result<Programs> {
        let hears = logger.clone();
        let notice: Notice = Arc::new(move |text| hears.warn(format_args!("{text}")));
        Ok(Programs {
            lanes: Lanes::start(workers.len())?,
            kinds: kinds::built_in(&workers, notice).map_err(io::Error::other)?,
            logger,
            workers,
            account: Arc::new(Account::new(temp_files_max())),
            compressed: Arc::default(),
        })
    }

    /// Where programs are waited for that a worker calls.
    pub fn runtime(&self, worker: usize) -> Handle {
        self.lanes.of(worker)
    }

    /// Has this store drop what is kept of pages whose templates change; who keeps copies is told by `changes`.
    pub fn drop_changed(&self, store: &Arc<SharedStore>, changes: &Arc<Changes>) {
        let kinds = self.kinds.iter();
        kinds.for_each(|kind| kind.drop_changed(store, changes));
    }

    /// Gives up what is under way.
    pub fn end(&mut self) {
        // Before the lanes, where they may have begun something.
        self.workers.iter().for_each(|worker| worker.tasks.end());
        self.lanes.end();
        self.kinds.iter().for_each(|kind| kind.end());
    }

    /// Opens what a configuration's routes name.
    ///
    /// # Errors
    /// When a program can't be made ready: which, why, and what to do about it.
    pub fn open(&self, config: &config::Config) -> Result<Opened<'_>, String> {
        let runtime = self.runtime(0);
        let _context = runtime.enter();
        let context = OpenContext {
            workers: self.workers.len(),
            logger: &self.logger,
            runtime: &runtime,
        };
        let kinds = self.kinds.iter().cloned();
        let kinds = kinds.map(|kind| kind.open(config, &context));
        let kinds = OpenedKinds(kinds.collect::<Result<_, _>>()?);
        let logger = self.logger.clone();
        let notice: Notice = Arc::new(move |text| logger.warn(format_args!("{text}")));
        let compressors = Compressors::new(config.limits.compressors_max, self.compressed.clone());
        Ok(Opened {
            programs: self,
            compressors: Arc::new(compressors),
            spools: Spools::open(&config.buffering, self.account.clone(), notice)?,
            kinds,
        })
    }

    /// The servers of origins, for people: each on a line.
    pub fn origins(&self) -> Vec<String> {
        self.kinds.iter().flat_map(|kind| kind.origins()).collect()
    }

    /// What happened, by kind: to WebAssembly modules, to pages, to what waits between clients and programs, and to what
    /// is compressed.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let waiting = self.account.list();
        let compressed = self.compressed.list();
        let kinds = self.kinds.iter().flat_map(|kind| kind.counts());
        kinds.chain(waiting).chain(compressed).collect()
    }
}

impl Opened<'_> {
    /// The routes of a site.
    ///
    /// # Errors
    /// As for [`Programs::open`].
    pub fn routes(&self, site: &config::Site) -> Result<Routes, String> {
        let vary = conditions::vary(&site.routes);
        let read_reports = conditions::read_reports(&site.routes);
        let routes = site.routes.iter().map(|rules| {
            let (label, mut handler) = self.handler(rules, site.symlinks)?;
            if let Some(vary) = vary.clone() {
                let inner = handler;
                handler = Arc::new(Varying { inner, vary });
            }
            let needs_length = matches!(rules.to, RouteTo::Cgi(_) | RouteTo::FastCgi(_));
            if !rules.request_buffering && needs_length {
                handler = Arc::new(Buffered::without_length(handler, self.spools.clone()));
            }
            if rules.request_buffering {
                handler = Arc::new(Buffered::new(handler, self.spools.clone()));
            }
            let handler = Compressing::around(handler, rules, &site.compress, &self.compressors);
            let spools = rules.response_buffering.then(|| self.spools.clone());
            let mut route = Route::new(rules, label, handler, spools);
            route.keeps_nothing |= read_reports;
            Ok(route)
        });
        let routes = routes.collect::<Result<_, String>>()?;
        Ok(Routes::new(routes, &site.routes))
    }

    /// The kinds of handlers, once all routes are made.
    pub fn kinds(self) -> OpenedKinds {
        self.kinds
    }

    /// A route's handler, and how to call it.
    fn handler(
        &self,
        rules: &config::Route,
        symlinks: config::Symlinks,
    ) -> Result<LabelledHandler, String> {
        let route = RouteContext {
            rules,
            symlinks,
            logger: &self.programs.logger,
            spools: rules.response_buffering.then(|| self.spools.clone()),
        };
        let mut found = self.kinds.0.iter().filter_map(|kind| kind.handler(&route));
        let lacking = || Err("a route to what this build lacks".into());
        found.next().unwrap_or_else(lacking)
    }
}

/// How many bodies may wait in files: a quarter of the descriptors, of which connections need most.
fn temp_files_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 4
}
