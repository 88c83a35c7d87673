//! WebAssembly modules: sandboxed code. If it traps, loops or allocates without end, its request gets 500, and the
//! server is not affected.
//!
//! `WasmRuntime` is shared by all modules, `file` has a module's newest version, `code` is one compiled version, and
//! `instance` runs it. An instance serves one request and is new (`fresh`), or was reset to its start state
//! (`snapshot`); or each worker keeps one for all its requests (`retained_instance`). [`crate::module`] defines calls
//! and how they wait.

mod changes;
mod code;
mod counts;
mod file;
mod fresh;
mod guest;
mod host;
mod instance;
mod kept;
mod memory;
mod problem;
mod resting;
mod runtime;
mod share;
mod shared;
mod snapshot;
mod ticker;
mod wasi;

use std::path::Path;
use std::sync::Arc;

use lowroad_config::schema::{Module, ModuleCode};
use lowroad_handler::Failure;
use lowroad_log::Logger;
use lowroad_module::{Event, Next};

use crate::module::{self, Call, Identity, Opened, Ready};
pub use counts::Counts;
use file::File;
use fresh::Fresh;
use kept::{Keeper, Kept};
use resting::Resting;
pub use runtime::{Limits, Runtime};
pub use shared::Own;
use shared::Shared;

/// The code of a WebAssembly module.
pub struct Wasm {
    shared: Arc<Shared>,
    keeper: Option<Keeper>,
}

impl Wasm {
    /// Compiles a module's file and tries it; takes long. Later versions of the file are picked up automatically.
    ///
    /// # Errors
    /// A text for the operator: the file, its fault, and the remedy.
    pub fn open(
        runtime: &Arc<Runtime>,
        path: &Path,
        identity: Arc<Identity>,
        own: Own,
        workers: usize,
    ) -> Result<Wasm, String> {
        let file = File::open(runtime, path, own.memory_len_max, &identity)?;
        let shared = Arc::new(Shared {
            runtime: runtime.clone(),
            identity,
            file,
            own,
            resting: Resting::new(workers),
        });
        let keeper = own.keep.then(|| Keeper::new(workers));
        Ok(Wasm { shared, keeper })
    }
}

/// Opens a configured module.
///
/// # Errors
/// A text for the operator; also if the module is of another kind.
pub fn open(
    runtime: &Arc<Runtime>,
    module: &Module,
    workers: usize,
    logger: Option<Logger>,
) -> Result<Box<dyn Opened>, String> {
    let ModuleCode::Wasm(path) = &module.code else {
        return Err(format!("module {} is not WebAssembly", module.name));
    };
    let identity = Arc::new(Identity::of(module, logger));
    let own = Own {
        memory_len_max: module.memory_len_max,
        compute_ms_max: module.compute_ms_max,
        keep: module.keep,
    };
    let code = Wasm::open(runtime, path, identity.clone(), own, workers)
        .map_err(|problem| format!("module {}: {problem}", module.name))?;
    let code = Arc::new(code);
    Ok(Box::new(Ready { code, identity }))
}

/// Checks a configured module without a server; `Ok` for modules of other kinds.
///
/// # Errors
/// As [`open`].
pub fn check(runtime: &Arc<Runtime>, module: &Module) -> Result<(), String> {
    match &module.code {
        ModuleCode::Wasm(path) => file::check(runtime, path, module.memory_len_max)
            .map_err(|problem| format!("module {}: {problem}", module.name)),
        _ => Ok(()),
    }
}

impl module::Code for Wasm {
    type Instance = Instance;

    fn instance(&self, worker: usize, call: Call) -> Result<Instance, Failure> {
        counts::one(&self.shared.runtime.counts.requests);
        Ok(match &self.keeper {
            None => Instance::Fresh(Fresh::new(&self.shared, call)),
            Some(keeper) => Instance::Kept(Box::new(keeper.call(&self.shared, worker, call))),
        })
    }
}

/// An instance with one call.
pub enum Instance {
    /// Used by this call only.
    #[doc(hidden)]
    Fresh(Fresh),
    /// Shared with other calls of the worker.
    #[doc(hidden)]
    Kept(Box<Kept>),
}

impl module::Instance for Instance {
    fn call(&mut self) -> &mut Call {
        match self {
            Instance::Fresh(fresh) => fresh.call(),
            Instance::Kept(kept) => kept.call(),
        }
    }

    async fn handle(&mut self, event: Event) -> Result<Next, Failure> {
        match self {
            Instance::Fresh(fresh) => fresh.handle(event).await,
            Instance::Kept(kept) => kept.handle(event).await,
        }
    }
}
