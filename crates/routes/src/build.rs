//! Makes the programs of a configuration, and keeps the runtime that they work on.

use std::io;
use std::sync::Arc;

use lowroad_config as config;
use lowroad_config::RouteTo;
use lowroad_engine::Local;
use lowroad_handler::Handler;
use lowroad_handler::notice::Notice;
use lowroad_handler::spool::{Account, Buffered, Spools};
use lowroad_log::Logger;
use lowroad_store::SharedStore;
use lowroad_store::changes::Changes;
use rustix::process::{Resource, getrlimit};
use tokio::runtime::Handle;

use crate::compressing::{self, Compressing, Compressors};
use crate::conditions::{self, Varying};
use crate::lanes::Lanes;
use crate::modules::{self, Catalog, Modules};
use crate::pages::{self, Databases, Forms};
use crate::routes::{Route, Routes};
use crate::scripts::Scripts;

/// What programs need to run.
pub struct Programs {
    lanes: Lanes,
    logger: Logger,
    workers: Vec<Local>,
    modules: Modules,
    scripts: Scripts,
    forms: Forms,
    /// What waits between clients and programs, of all configurations.
    account: Arc<Account>,
    compressed: Arc<compressing::Counts>,
}

/// The programs of one configuration.
pub struct Opened<'p> {
    programs: &'p Programs,
    catalog: Catalog,
    databases: Databases,
    spools: Arc<Spools>,
    compressors: Arc<Compressors>,
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
            scripts: Scripts::new(&workers, notice),
            logger,
            workers,
            modules: Modules::default(),
            forms: Forms::new().map_err(io::Error::other)?,
            account: Arc::new(Account::new(temp_files_max())),
            compressed: Arc::default(),
        })
    }

    /// Where programs are waited for that a worker calls.
    pub fn runtime(&self, worker: usize) -> Handle {
        self.lanes.of(worker)
    }

    /// Has this store drop what is kept of pages whose templates change; who keeps copies is told by `changes`.
    pub fn drop_changed(&self, store: Arc<SharedStore>, changes: Arc<Changes>) {
        self.forms.drop_changed(store, changes);
    }

    /// Gives up what is under way.
    pub fn end(&mut self) {
        // Before the lanes, where they may have begun something.
        self.workers.iter().for_each(|worker| worker.tasks.end());
        self.lanes.end();
        self.scripts.end();
    }

    /// Opens what a configuration's routes name.
    ///
    /// # Errors
    /// When a program can't be made ready: which, why, and what to do about it.
    pub fn open(&self, config: &config::Config) -> Result<Opened<'_>, String> {
        let runtime = self.runtime(0);
        let _context = runtime.enter();
        let (workers, logger) = (self.workers.len(), self.logger.clone());
        let catalog = self.modules.open(config, workers, &logger, &runtime)?;
        let notice: Notice = Arc::new(move |text| logger.warn(format_args!("{text}")));
        let compressors = Compressors::new(config.limits.compressors_max, self.compressed.clone());
        Ok(Opened {
            programs: self,
            compressors: Arc::new(compressors),
            spools: Spools::open(&config.buffering, self.account.clone(), notice)?,
            catalog,
            databases: self.forms.open(config)?,
        })
    }

    /// The servers of origins, for people: each on a line.
    pub fn origins(&self) -> Vec<String> {
        self.scripts.status()
    }

    /// What happened, by kind: to WebAssembly modules, to pages, to what waits between clients and programs, and to what
    /// is compressed.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let waiting = self.account.list();
        let compressed = self.compressed.list();
        [self.modules.counts(), pages::counts(), waiting, compressed].concat()
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
            let (label, mut handler) = self.program(rules, site.symlinks)?;
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

    /// The modules themselves, once all routes are made.
    pub fn modules(self) -> Catalog {
        self.catalog
    }

    /// What takes a program's words to the log.
    fn notice(&self, label: &str) -> Notice {
        let (logger, label) = (self.programs.logger.clone(), label.to_string());
        Arc::new(move |text| logger.warn(format_args!("{label}: {text}")))
    }

    /// A route's program, and how to call it.
    fn program(
        &self,
        rules: &config::Route,
        symlinks: config::Symlinks,
    ) -> Result<(String, Arc<dyn Handler>), String> {
        let spools = rules.response_buffering.then(|| self.spools.clone());
        match &rules.to {
            RouteTo::Module(name) => {
                let handler = modules::handler(&self.catalog, name, rules, spools)?;
                Ok((format!("module {name}"), handler))
            }
            RouteTo::Cgi(cgi) => {
                let label = match &cgi.path {
                    Some(path) => format!("cgi {}", path.display()),
                    None => "cgi".to_string(),
                };
                let (scripts, notice) = (&self.programs.scripts, self.notice(&label));
                let handler = scripts.cgi(rules, cgi, symlinks, notice, spools);
                let handler = handler.map_err(|problem| format!("{label}: {problem}"))?;
                Ok((label, handler))
            }
            RouteTo::FastCgi(fastcgi) => {
                let names: Vec<String> = fastcgi.servers.iter().map(ToString::to_string).collect();
                let label = format!("fastcgi {}", names.join(", "));
                let (scripts, notice) = (&self.programs.scripts, self.notice(&label));
                let handler = scripts.fastcgi(rules, fastcgi, symlinks, notice, spools);
                let handler = handler.map_err(|problem| format!("{label}: {problem}"))?;
                Ok((label, handler))
            }
            RouteTo::Origin(origin) => {
                let label = format!("origin {}", origin.name);
                // What it says of itself names it already, and the server of it that is meant.
                let logger = self.programs.logger.clone();
                let notice: Notice = Arc::new(move |text| logger.warn(format_args!("{text}")));
                let scripts = &self.programs.scripts;
                let handler = scripts.origin(rules, origin, notice, spools)?;
                Ok((label, handler))
            }
            RouteTo::Pages(pages) => {
                let forms = &self.programs.forms;
                let handler = forms.handler(rules, pages, &self.databases)?;
                Ok(("pages".into(), handler))
            }
        }
    }
}

/// How many bodies may wait in files: a quarter of the descriptors, of which connections need most.
fn temp_files_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 4
}
