//! The modules of a configuration, by name. Each module is opened once and can be used by several routes.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use lowroad_config::schema::{ModuleCode, ModuleConfig, RouteConfig};
use lowroad_handler::Handler;
use lowroad_handler::spool::SpoolLimits;
use lowroad_log::ErrorLogger;
use lowroad_module::builtin::LinkedModule;
use tokio::runtime::Handle;

use super::builtin::LinkedCode;
use super::call_loop::{CallLimits, ModuleHandler};
use super::identity::ModuleIdentity;
use super::library::LibraryCode;
use super::out_of_process::SeparateCode;
use super::{ModuleBackend, counts::ModuleCounters};

/// An opened module of any kind.
pub trait ModuleHandle: Send + Sync {
    /// Creates the handler of a route. Responses to slow clients are buffered in `spools`.
    fn handler(&self, limits: CallLimits, spools: Option<Arc<SpoolLimits>>) -> Arc<dyn Handler>;
    /// The counters of the module's calls, on all routes.
    fn counts(&self) -> &ModuleCounters;
}

/// A module's code and identity.
pub struct ModuleEntry<C> {
    /// The code.
    pub code: Arc<C>,
    /// The module's name, settings and log.
    pub identity: Arc<ModuleIdentity>,
}

impl<C: ModuleBackend> ModuleHandle for ModuleEntry<C> {
    fn handler(&self, limits: CallLimits, spools: Option<Arc<SpoolLimits>>) -> Arc<dyn Handler> {
        let (code, identity) = (self.code.clone(), self.identity.clone());
        Arc::new(ModuleHandler::new(code, identity, limits).with_spools(spools))
    }

    fn counts(&self) -> &ModuleCounters {
        &self.identity.counts
    }
}

impl CallLimits {
    /// The limits of a route.
    pub fn from_route(route: &RouteConfig) -> CallLimits {
        CallLimits {
            timeout_ms: route.timeout_ms,
            concurrency_max: route.concurrency_max,
            ..CallLimits::default()
        }
    }
}

/// Opens a built-in module or a library. `None` for the other kinds: WebAssembly, and libraries in a separate process.
///
/// # Errors
/// A message for the operator.
pub fn open_native(
    module: &ModuleConfig,
    linked: &[LinkedModule],
    workers: usize,
    logger: Option<ErrorLogger>,
) -> Result<Option<Box<dyn ModuleHandle>>, String> {
    let identity = Arc::new(ModuleIdentity::from_config(module, logger));
    let handle: Box<dyn ModuleHandle> = match &module.code {
        ModuleCode::Linked(name) => {
            let code = Arc::new(open_linked(name, linked, &identity, workers)?);
            Box::new(ModuleEntry { code, identity })
        }
        ModuleCode::Library(path) if !module.separate => {
            let code = LibraryCode::open(path, &identity, workers)?;
            Box::new(ModuleEntry { code, identity })
        }
        ModuleCode::Library(_) | ModuleCode::Wasm(_) => return Ok(None),
    };
    Ok(Some(handle))
}

/// Opens a library in a separate process, and waits until it has started. `command` returns the command of a program
/// that calls `out_of_process::serve` with its standard input.
///
/// # Errors
/// A message for the operator.
pub fn open_separate(
    module: &ModuleConfig,
    workers: usize,
    logger: Option<ErrorLogger>,
    runtime: &Handle,
    command: impl Fn() -> Command + Send + Sync + 'static,
) -> Result<Box<dyn ModuleHandle>, String> {
    let identity = Arc::new(ModuleIdentity::from_config(module, logger));
    let ModuleCode::Library(path) = &module.code else {
        return Err(format!(
            "module {}: only a library may be separate",
            module.name
        ));
    };
    let code = SeparateCode::open(path, &identity, workers, runtime, command)?;
    let code = Arc::new(code);
    Ok(Box::new(ModuleEntry { code, identity }))
}

fn open_linked(
    name: &str,
    linked: &[LinkedModule],
    identity: &Arc<ModuleIdentity>,
    workers: usize,
) -> Result<LinkedCode, String> {
    // The built-in modules are known at compile time, so the message lists them.
    let Some(found) = linked.iter().find(|module_entry| module_entry.name == name) else {
        let names: Vec<_> = linked
            .iter()
            .map(|module_entry| module_entry.name)
            .collect();
        return Err(format!(
            "module {}: {name} is not built in; the built-in modules are: {} (see crates/builtin_modules)",
            identity.name,
            names.join(", ")
        ));
    };
    LinkedCode::start(found, identity, workers)
}

/// The modules, by the names that routes use.
#[derive(Default)]
pub struct ModuleCatalog(BTreeMap<String, Box<dyn ModuleHandle>>);

impl ModuleCatalog {
    /// Adds a module.
    pub fn insert(&mut self, name: &str, handle: Box<dyn ModuleHandle>) {
        self.0.insert(name.to_string(), handle);
    }

    /// Creates the handler of a route, like `ModuleHandle::handler`; `None` if no module has this name.
    pub fn handler(
        &self,
        name: &str,
        limits: CallLimits,
        spools: Option<Arc<SpoolLimits>>,
    ) -> Option<Arc<dyn Handler>> {
        let handle = self.0.get(name)?;
        Some(handle.handler(limits, spools))
    }

    /// All counters, by module and counter name.
    pub fn counts(&self) -> Vec<(&str, Vec<(&'static str, u64)>)> {
        let all = self.0.iter();
        all.map(|(name, handle)| (name.as_str(), handle.counts().list()))
            .collect()
    }
}
