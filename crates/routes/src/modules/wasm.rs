//! The WebAssembly modules of configurations, and the runtime that they share.

use std::sync::{Arc, OnceLock};

use lowroad_config::{Config, ModuleCode, ModuleConfig};
use lowroad_log::ErrorLogger;
use lowroad_module_host::module::ModuleHandle;
use lowroad_module_host::wasm;

/// The runtime; created for the first configuration that has a WebAssembly module.
#[derive(Default)]
pub struct SharedWasmRuntime(OnceLock<Arc<wasm::WasmRuntime>>);

impl SharedWasmRuntime {
    /// Opens a module for a number of workers.
    ///
    /// # Errors
    /// A text for the operator.
    pub fn open(
        &self,
        module: &ModuleConfig,
        workers: usize,
        logger: &ErrorLogger,
    ) -> Result<Box<dyn ModuleHandle>, String> {
        wasm::open(&self.runtime()?, module, workers, Some(logger.clone()))
    }

    /// The counters of all modules; empty if there has never been one.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let runtime = self.0.get();
        runtime.map_or(Vec::new(), |runtime| runtime.counts().list())
    }

    fn runtime(&self) -> Result<Arc<wasm::WasmRuntime>, String> {
        if let Some(runtime) = self.0.get() {
            return Ok(runtime.clone());
        }
        let runtime = wasm::WasmRuntime::new(wasm::RuntimeLimits::default())?;
        Ok(self.0.get_or_init(|| runtime).clone())
    }
}

/// Compiles the WebAssembly modules of a configuration. Native modules are not loaded, because loading would run their
/// code.
///
/// # Errors
/// The errors of the modules, one per line.
pub fn check(config: &Config) -> Result<(), String> {
    let is_wasm = |module: &&ModuleConfig| matches!(module.code, ModuleCode::Wasm(_));
    let modules: Vec<_> = config.modules.iter().filter(is_wasm).collect();
    if modules.is_empty() {
        return Ok(());
    }
    let runtime = wasm::WasmRuntime::new(wasm::RuntimeLimits::default())?;
    let faults = modules
        .iter()
        .filter_map(|module| wasm::check(&runtime, module).err());
    let lines: Vec<_> = faults.collect();
    match lines.is_empty() {
        true => Ok(()),
        false => Err(lines.join("\n")),
    }
}
