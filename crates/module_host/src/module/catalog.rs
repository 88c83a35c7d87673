//! The modules of a configuration by name: each is opened once and used by any number of routes.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use lowroad_config::schema::{Module, ModuleCode, Route};
use lowroad_handler::Handler;
use lowroad_handler::spool::Spools;
use lowroad_log::Logger;
use lowroad_module::linked::Linked;
use tokio::runtime::Handle;

use super::identity::Identity;
use super::library::LibraryCode;
use super::linked::LinkedCode;
use super::run::{Limits, Running};
use super::separate::SeparateCode;
use super::{Code, counts::Counts};

/// An opened module of any kind.
pub trait Opened: Send + Sync {
    /// Makes a handler for a route. Responses wait in `spools` if their clients are slow.
    fn handler(&self, limits: Limits, spools: Option<Arc<Spools>>) -> Arc<dyn Handler>;
    /// The counters of its calls on all routes.
    fn counts(&self) -> &Counts;
}

/// A module's code and identity.
pub struct Ready<C> {
    /// The code.
    pub code: Arc<C>,
    /// Its name, settings and log.
    pub identity: Arc<Identity>,
}

impl<C: Code> Opened for Ready<C> {
    fn handler(&self, limits: Limits, spools: Option<Arc<Spools>>) -> Arc<dyn Handler> {
        let (code, identity) = (self.code.clone(), self.identity.clone());
        Arc::new(Running::new(code, identity, limits).with_spools(spools))
    }

    fn counts(&self) -> &Counts {
        &self.identity.counts
    }
}

impl Limits {
    /// The limits of a route.
    pub fn of_route(route: &Route) -> Limits {
        Limits {
            timeout_ms: route.timeout_ms,
            concurrency_max: route.concurrency_max,
            ..Limits::default()
        }
    }
}

/// Opens a built-in module or a library. `None` for the other kinds: WebAssembly, and libraries in a separate process.
///
/// # Errors
/// A text for the operator.
pub fn open_native(
    module: &Module,
    linked: &[Linked],
    workers: usize,
    logger: Option<Logger>,
) -> Result<Option<Box<dyn Opened>>, String> {
    let identity = Arc::new(Identity::of(module, logger));
    let opened: Box<dyn Opened> = match &module.code {
        ModuleCode::Linked(name) => {
            let code = Arc::new(open_linked(name, linked, &identity, workers)?);
            Box::new(Ready { code, identity })
        }
        ModuleCode::Library(path) if !module.separate => {
            let code = LibraryCode::open(path, &identity, workers)?;
            Box::new(Ready { code, identity })
        }
        ModuleCode::Library(_) | ModuleCode::Wasm(_) => return Ok(None),
    };
    Ok(Some(opened))
}

/// Opens a library in a separate process and waits until it has started. `command` makes the command of a program that
/// calls `out_of_process::serve` with its standard input.
///
/// # Errors
/// A text for the operator.
pub fn open_separate(
    module: &Module,
    workers: usize,
    logger: Option<Logger>,
    runtime: &Handle,
    command: impl Fn() -> Command + Send + Sync + 'static,
) -> Result<Box<dyn Opened>, String> {
    let identity = Arc::new(Identity::of(module, logger));
    let ModuleCode::Library(path) = &module.code else {
        return Err(format!(
            "module {}: only a library may be separate",
            module.name
        ));
    };
    let code = SeparateCode::open(path, &identity, workers, runtime, command)?;
    let code = Arc::new(code);
    Ok(Box::new(Ready { code, identity }))
}

fn open_linked(
    name: &str,
    linked: &[Linked],
    identity: &Arc<Identity>,
    workers: usize,
) -> Result<LinkedCode, String> {
    let Some(found) = linked.iter().find(|known| known.name == name) else {
        let known: Vec<_> = linked.iter().map(|known| known.name).collect();
        return Err(format!(
            "module {}: no module {name} is linked in; there are: {}. crates/linked has the list",
            identity.name,
            known.join(", ")
        ));
    };
    LinkedCode::start(found, identity, workers)
}

/// Modules by the names that routes use.
#[derive(Default)]
pub struct Catalog(BTreeMap<String, Box<dyn Opened>>);

impl Catalog {
    /// Adds a module.
    pub fn insert(&mut self, name: &str, opened: Box<dyn Opened>) {
        self.0.insert(name.to_string(), opened);
    }

    /// Makes a handler for a route, as `ModuleHandle::handler`; `None` if there is no module of this name.
    pub fn handler(
        &self,
        name: &str,
        limits: Limits,
        spools: Option<Arc<Spools>>,
    ) -> Option<Arc<dyn Handler>> {
        let opened = self.0.get(name)?;
        Some(opened.handler(limits, spools))
    }

    /// All counters, by module and counter name.
    pub fn counts(&self) -> Vec<(&str, Vec<(&'static str, u64)>)> {
        let all = self.0.iter();
        all.map(|(name, opened)| (name.as_str(), opened.counts().list()))
            .collect()
    }
}
