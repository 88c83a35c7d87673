//! WebAssembly modules run in a sandbox: if a module traps, loops endlessly or allocates too much memory, only its
//! request fails with 500.
//!
//! `WasmRuntime` is shared by all modules, `file` holds a module's newest version, `code` is one compiled version, and
//! `instance` runs it. By default an instance serves one request; the instance is new or has been reset to its state
//! after the start (`fresh`, `snapshot`). Optionally, each worker keeps one instance for all of its requests
//! (`retained_instance`). [`crate::module`] defines calls and how they wait.

mod code;
mod counts;
mod file;
mod fresh;
mod guest;
mod host;
mod idle_instances;
mod instance;
mod memory;
mod memory_share;
mod retained_instance;
mod runtime;
mod shared;
mod snapshot;
mod ticker;
mod trap;
mod wasi;
mod write_analysis;

use std::path::Path;
use std::sync::Arc;

use lowroad_config::schema::{ModuleCode, ModuleConfig};
use lowroad_handler::HandlerFailure;
use lowroad_log::ErrorLogger;
use lowroad_module::{CallEvent, CallStep};

use crate::module::{self, HostedCall, ModuleEntry, ModuleHandle, ModuleIdentity};
pub use counts::WasmCounters;
use file::CodeFile;
use fresh::FreshInstance;
use idle_instances::IdleInstances;
use retained_instance::{RetainedCall, RetainedInstances};
pub use runtime::{RuntimeLimits, WasmRuntime};
use shared::WasmContext;
pub use shared::WasmModuleLimits;

/// A WebAssembly module, used by all workers.
pub struct WasmCode {
    shared: Arc<WasmContext>,
    retained: Option<RetainedInstances>,
}

impl WasmCode {
    /// Compiles a module's file and tests it; takes long. Later versions of the file are loaded automatically.
    ///
    /// # Errors
    /// A message for the operator: the file, its problem, and the remedy.
    pub fn open(
        runtime: &Arc<WasmRuntime>,
        path: &Path,
        identity: Arc<ModuleIdentity>,
        limits: WasmModuleLimits,
        workers: usize,
    ) -> Result<WasmCode, String> {
        let file = CodeFile::open(runtime, path, limits.memory_len_max, &identity)?;
        let shared = Arc::new(WasmContext {
            runtime: runtime.clone(),
            identity,
            file,
            limits,
            idle_instances: IdleInstances::new(workers),
        });
        let keeper = limits.keep.then(|| RetainedInstances::new(workers));
        Ok(WasmCode {
            shared,
            retained: keeper,
        })
    }
}

/// Opens a configured module.
///
/// # Errors
/// A message for the operator; also if the module is of another kind.
pub fn open(
    runtime: &Arc<WasmRuntime>,
    module: &ModuleConfig,
    workers: usize,
    logger: Option<ErrorLogger>,
) -> Result<Box<dyn ModuleHandle>, String> {
    let ModuleCode::Wasm(path) = &module.code else {
        return Err(format!("module {} is not WebAssembly", module.name));
    };
    let identity = Arc::new(ModuleIdentity::from_config(module, logger));
    let limits = WasmModuleLimits {
        memory_len_max: module.memory_len_max,
        compute_ms_max: module.compute_ms_max,
        keep: module.keep,
    };
    let code = WasmCode::open(runtime, path, identity.clone(), limits, workers)
        .map_err(|problem| format!("module {}: {problem}", module.name))?;
    let code = Arc::new(code);
    Ok(Box::new(ModuleEntry { code, identity }))
}

/// Checks a configured module without a server; `Ok` for modules of other kinds.
///
/// # Errors
/// As for [`open`].
pub fn check(runtime: &Arc<WasmRuntime>, module: &ModuleConfig) -> Result<(), String> {
    match &module.code {
        ModuleCode::Wasm(path) => file::check(runtime, path, module.memory_len_max)
            .map_err(|problem| format!("module {}: {problem}", module.name)),
        _ => Ok(()),
    }
}

impl module::ModuleBackend for WasmCode {
    type CallInstance = Instance;

    fn instance(&self, worker: usize, call: HostedCall) -> Result<Instance, HandlerFailure> {
        counts::increment(&self.shared.runtime.counts.requests);
        Ok(match &self.retained {
            None => Instance::Fresh(FreshInstance::new(&self.shared, call)),
            Some(keeper) => Instance::Retained(Box::new(keeper.call(&self.shared, worker, call))),
        })
    }
}

/// An instance, with the call that it serves here.
pub enum Instance {
    /// An instance that serves only this call.
    #[doc(hidden)]
    Fresh(FreshInstance),
    /// An instance that other calls of the worker use, too.
    #[doc(hidden)]
    Retained(Box<RetainedCall>),
}

impl module::Instance for Instance {
    fn call(&mut self) -> &mut HostedCall {
        match self {
            Instance::Fresh(fresh) => fresh.call(),
            Instance::Retained(retained) => retained.call(),
        }
    }

    async fn handle(&mut self, event: CallEvent) -> Result<CallStep, HandlerFailure> {
        match self {
            Instance::Fresh(fresh) => fresh.handle(event).await,
            Instance::Retained(retained) => retained.handle(event).await,
        }
    }
}
