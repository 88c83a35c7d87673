//! Makes the programs of a configuration, and keeps the runtime that they work on.

use std::io;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use lowroad_config as config;
use lowroad_config::{ModuleCode, RouteTo, Upstream};
use lowroad_dynamic::Handler;
use lowroad_dynamic::cgi::CgiHandler;
use lowroad_dynamic::fastcgi::FastCgiHandler;
use lowroad_dynamic::fastcgi::server::Servers;
use lowroad_dynamic::limited::Limited;
use lowroad_dynamic::module::{Catalog, Limits, open_native, open_separate};
use lowroad_dynamic::notice::Notice;
use lowroad_dynamic::pages::{Databases, Key, Pages};
use lowroad_dynamic::spool::{Account, Buffered, Spools};
use lowroad_dynamic::wasm;
use lowroad_engine::Local;
use lowroad_log::Logger;
use lowroad_module::linked::Linked;
use rustix::process::{Resource, getrlimit};
use tokio::runtime::Handle;

use crate::programs::lanes::Lanes;
use crate::programs::routes::{Route, Routes};
use crate::user;

/// What programs need to run.
pub struct Programs {
    lanes: Lanes,
    logger: Logger,
    workers: Vec<Local>,
    /// From the first configuration with such a module on.
    wasm: OnceLock<Arc<wasm::Runtime>>,
    /// Connections to FastCGI servers, which routes and configurations share.
    servers: Servers,
    /// Signs what forms of pages carry; forms outlive a configuration.
    key: Key,
    /// What waits between clients and programs, of all configurations.
    account: Arc<Account>,
}

/// The programs of one configuration.
pub struct Opened<'p> {
    programs: &'p Programs,
    catalog: Catalog,
    databases: Arc<Databases>,
    spools: Arc<Spools>,
}

impl Programs {
    /// Starts the threads that programs are waited for on, one for each of these workers.
    ///
    /// # Errors
    /// When the machine gives no threads.
    pub fn start(logger: Logger, workers: Vec<Local>) -> io::Result<Programs> {
        Ok(Programs {
            lanes: Lanes::start(workers.len())?,
            servers: Servers::new(&workers),
            logger,
            workers,
            wasm: OnceLock::new(),
            key: Key::random().map_err(io::Error::other)?,
            account: Arc::new(Account::new(temp_files_max())),
        })
    }

    /// Where programs are waited for that a worker calls.
    pub fn runtime(&self, worker: usize) -> Handle {
        self.lanes.of(worker)
    }

    /// Gives up what is under way.
    pub fn end(&mut self) {
        // Before the lanes, where they may have begun something.
        self.workers.iter().for_each(|worker| worker.tasks.end());
        self.lanes.end();
    }

    /// Opens what a configuration's routes name.
    ///
    /// # Errors
    /// When a program can't be made ready: which, why, and what to do about it.
    pub fn open(&self, config: &config::Config) -> Result<Opened<'_>, String> {
        let runtime = self.runtime(0);
        let _context = runtime.enter();
        let linked = lowroad_linked::modules();
        let mut catalog = Catalog::default();
        for module in &config.modules {
            catalog.insert(&module.name, self.module(module, &linked)?);
        }
        let (limits, logger) = (&config.buffering, self.logger.clone());
        let notice: Notice = Arc::new(move |text| logger.warn(format_args!("{text}")));
        Ok(Opened {
            programs: self,
            spools: Spools::open(limits, self.account.clone(), notice)?,
            catalog,
            databases: Arc::new(Databases::new(&config.databases)?),
        })
    }

    fn module(
        &self,
        module: &config::Module,
        linked: &[Linked],
    ) -> Result<Box<dyn lowroad_dynamic::module::Opened>, String> {
        let (workers, logger) = (self.workers.len(), Some(self.logger.clone()));
        match &module.code {
            ModuleCode::Wasm(_) => wasm::open(&self.wasm()?, module, workers, logger),
            ModuleCode::Library(_) if module.separate => {
                let host = || {
                    let mut command = Command::new("/proc/self/exe");
                    command.arg("module-host");
                    command
                };
                open_separate(module, workers, logger, &self.runtime(0), host)
            }
            _ => open_native(module, linked, workers, logger)?
                .ok_or_else(|| format!("module {}: no such kind", module.name)),
        }
    }

    /// What waits between clients and programs, and what became of it.
    pub fn spool_counts(&self) -> Vec<(&'static str, u64)> {
        self.account.list()
    }

    /// What happened to all WebAssembly modules; empty where there never was one.
    pub fn wasm_counts(&self) -> Vec<(&'static str, u64)> {
        let runtime = self.wasm.get();
        runtime.map_or(Vec::new(), |runtime| runtime.counts().list())
    }

    fn wasm(&self) -> Result<Arc<wasm::Runtime>, String> {
        if let Some(runtime) = self.wasm.get() {
            return Ok(runtime.clone());
        }
        let runtime = wasm::Runtime::new(wasm::Limits::default())?;
        Ok(self.wasm.get_or_init(|| runtime).clone())
    }
}

impl Opened<'_> {
    /// The routes of a site.
    ///
    /// # Errors
    /// As for [`Programs::open`].
    pub fn routes(&self, site: &config::Site) -> Result<Routes, String> {
        let routes = site.routes.iter().map(|rules| {
            let (label, mut handler) = self.program(rules, site.symlinks)?;
            if rules.request_buffering {
                handler = Arc::new(Buffered::new(handler, self.spools.clone()));
            }
            let spools = rules.response_buffering.then(|| self.spools.clone());
            Ok(Route::new(rules, label, handler, spools))
        });
        routes.collect::<Result<_, String>>().map(Routes::new)
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
                let limits = Limits::of_route(rules);
                let handler = self.catalog.handler(name, limits, spools);
                let handler = handler.ok_or_else(|| format!("there is no module {name}"))?;
                Ok((format!("module {name}"), handler))
            }
            RouteTo::Cgi(cgi) => {
                let label = format!("cgi {}", cgi.folder.display());
                let handler = CgiHandler::new(rules, cgi, symlinks, self.notice(&label));
                let handler = handler.map_err(|error| format!("{label}: {error}"))?;
                let user = user::of_programs(cgi.user.as_deref());
                let handler = match user.map_err(|problem| format!("{label}: {problem}"))? {
                    Some(user) => handler.as_user(user),
                    None => handler,
                };
                Ok((label, Arc::new(handler.with_spools(spools))))
            }
            RouteTo::FastCgi(fastcgi) => {
                let label = format!("fastcgi {}", shown(&fastcgi.address));
                let (servers, notice) = (&self.programs.servers, self.notice(&label));
                let handler = FastCgiHandler::new(rules, fastcgi, symlinks, servers, notice);
                Ok((label, Arc::new(handler.with_spools(spools))))
            }
            RouteTo::Pages(pages) => {
                let (databases, key) = (self.databases.clone(), self.programs.key.clone());
                let handler = Pages::new(pages, databases, key)?;
                let (timeout_ms, max) = (rules.timeout_ms, rules.concurrency_max);
                Ok((
                    "pages".into(),
                    Arc::new(Limited::new(handler, timeout_ms, max)),
                ))
            }
        }
    }
}

/// How many bodies may wait in files: a quarter of the descriptors, of which connections need most.
fn temp_files_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 4
}

fn shown(address: &Upstream) -> String {
    match address {
        Upstream::Unix(path) => format!("unix:{}", path.display()),
        Upstream::Tcp(address) => address.to_string(),
    }
}
