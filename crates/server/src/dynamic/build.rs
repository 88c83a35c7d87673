//! Makes the programs of a configuration, and keeps the runtime that they work on.

use std::io;
use std::sync::{Arc, OnceLock};

use lowroad_config as config;
use lowroad_config::RouteTo;
use lowroad_dynamic::Handler;
use lowroad_dynamic::cgi::CgiHandler;
use lowroad_dynamic::module::{Catalog, Limits, open_native};
use lowroad_dynamic::script::talk::Notice;
use lowroad_dynamic::wasm;
use lowroad_log::Logger;
use tokio::runtime::{Handle, Runtime};

use crate::dynamic::routes::{Route, Routes};

/// Threads that wait for programs; those that compute have their own.
const THREADS: usize = 2;

/// What programs need to run.
pub struct Programs {
    runtime: Runtime,
    logger: Logger,
    workers: usize,
    /// From the first configuration with such a module on.
    wasm: OnceLock<Arc<wasm::Runtime>>,
}

/// The programs of one configuration.
pub struct Opened {
    catalog: Catalog,
    logger: Logger,
}

impl Programs {
    /// Starts the threads that programs are waited for on; as many workers will call.
    ///
    /// # Errors
    /// When the machine gives no threads.
    pub fn start(logger: Logger, workers: usize) -> io::Result<Programs> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("programs")
            .enable_all()
            .build()?;
        Ok(Programs {
            runtime,
            logger,
            workers,
            wasm: OnceLock::new(),
        })
    }

    /// Where programs are waited for.
    pub fn runtime(&self) -> Handle {
        self.runtime.handle().clone()
    }

    /// Opens what a configuration's routes name.
    ///
    /// # Errors
    /// When a program can't be made ready: which, why, and what to do about it.
    pub fn open(&self, config: &config::Config) -> Result<Opened, String> {
        let _context = self.runtime.enter();
        let linked = lowroad_linked::modules();
        let mut catalog = Catalog::default();
        for module in &config.modules {
            let logger = Some(self.logger.clone());
            let opened = match open_native(module, &linked, self.workers, logger.clone())? {
                Some(opened) => opened,
                None => wasm::open(&self.wasm()?, module, self.workers, logger)?,
            };
            catalog.insert(&module.name, opened);
        }
        let logger = self.logger.clone();
        Ok(Opened { catalog, logger })
    }

    fn wasm(&self) -> Result<Arc<wasm::Runtime>, String> {
        if let Some(runtime) = self.wasm.get() {
            return Ok(runtime.clone());
        }
        let runtime = wasm::Runtime::new(wasm::Limits::default())?;
        Ok(self.wasm.get_or_init(|| runtime).clone())
    }
}

impl Opened {
    /// The routes of a site.
    ///
    /// # Errors
    /// As for [`Programs::open`].
    pub fn routes(&self, site: &config::Site) -> Result<Routes, String> {
        let routes = site.routes.iter().map(|rules| {
            let (label, handler) = self.program(rules, site.symlinks)?;
            Ok(Route::new(rules, label, handler))
        });
        routes.collect::<Result<_, String>>().map(Routes::new)
    }

    /// What takes a program's words to the log.
    fn notice(&self, label: &str) -> Notice {
        let (logger, label) = (self.logger.clone(), label.to_string());
        Arc::new(move |text| logger.warn(format_args!("{label}: {text}")))
    }

    /// A route's program, and how to call it.
    fn program(
        &self,
        rules: &config::Route,
        symlinks: config::Symlinks,
    ) -> Result<(String, Arc<dyn Handler>), String> {
        match &rules.to {
            RouteTo::Module(name) => {
                let handler = self.catalog.handler(name, Limits::of_route(rules));
                let handler = handler.ok_or_else(|| format!("there is no module {name}"))?;
                Ok((format!("module {name}"), handler))
            }
            RouteTo::Cgi(cgi) => {
                let label = format!("cgi {}", cgi.folder.display());
                let handler = CgiHandler::new(rules, cgi, symlinks, self.notice(&label));
                let handler = handler.map_err(|error| format!("{label}: {error}"))?;
                Ok((label, Arc::new(handler)))
            }
            other => Err(format!("{other:?}: this kind of route is still to come")),
        }
    }
}
