//! The modules of a configuration: opened, put behind routes, checked, and run in processes of their own.

#[cfg_attr(not(feature = "wasm"), path = "without/wasm.rs")]
mod wasm;

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use lowroad_children::process::helper_command;
use lowroad_config::{Config, Module, ModuleCode, Route};
use lowroad_handler::Handler;
use lowroad_handler::spool::Spools;
use lowroad_log::Logger;
use lowroad_module::linked::Linked;
pub use lowroad_module_host::module::Catalog;
use lowroad_module_host::module::{Limits, Opened, open_native, open_separate, separate};
use tokio::runtime::Handle;

use lowroad_privileges::hide_process;
use wasm::Wasm;
pub use wasm::check;

/// What modules of all configurations share.
#[derive(Default)]
pub struct Modules {
    wasm: Wasm,
}

impl Modules {
    /// Opens the modules of a configuration, for so many workers.
    ///
    /// # Errors
    /// When one can't be made ready: which, why, and what to do about it.
    pub fn open(
        &self,
        config: &Config,
        workers: usize,
        logger: &Logger,
        runtime: &Handle,
    ) -> Result<Catalog, String> {
        let linked = lowroad_linked::modules();
        let mut catalog = Catalog::default();
        for module in &config.modules {
            let opened = self.one(module, &linked, workers, logger, runtime)?;
            catalog.insert(&module.name, opened);
        }
        Ok(catalog)
    }

    fn one(
        &self,
        module: &Module,
        linked: &[Linked],
        workers: usize,
        logger: &Logger,
        runtime: &Handle,
    ) -> Result<Box<dyn Opened>, String> {
        match &module.code {
            ModuleCode::Wasm(_) => self.wasm.open(module, workers, logger),
            ModuleCode::Library(_) if module.separate => {
                let host = || helper_command("module-host");
                open_separate(module, workers, Some(logger.clone()), runtime, host)
            }
            _ => open_native(module, linked, workers, Some(logger.clone()))?
                .ok_or_else(|| format!("module {}: no such kind", module.name)),
        }
    }

    /// What happened to all WebAssembly modules; empty where there never was one.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        self.wasm.counts()
    }
}

/// What answers a route to a module.
///
/// # Errors
/// When there is no such module.
pub fn handler(
    catalog: &Catalog,
    name: &str,
    rules: &Route,
    spools: Option<Arc<Spools>>,
) -> Result<Arc<dyn Handler>, String> {
    let handler = catalog.handler(name, Limits::of_route(rules), spools);
    handler.ok_or_else(|| format!("there is no module {name}"))
}

/// Serves a module over the socket that is the standard input.
///
/// # Errors
/// A text for the log.
pub fn host() -> Result<(), String> {
    hide_process()?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    socket
        .map(UnixStream::from)
        .and_then(separate::serve)
        .map_err(|error| error.to_string())
}
