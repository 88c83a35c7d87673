//! WebAssembly modules where they are not built in.

use lowroad_config::{Config, Feature, Module};
use lowroad_log::Logger;
use lowroad_module_host::module::Opened;

use crate::lacks;

/// What all of them share: nothing.
#[derive(Default)]
pub struct Wasm;

impl Wasm {
    /// Refuses a module.
    pub fn open(&self, module: &Module, _: usize, _: &Logger) -> Result<Box<dyn Opened>, String> {
        lacks(Feature::Wasm, &format!("module {}", module.name))
    }

    /// No counters.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// There are none that could be wrong.
pub fn check(_: &Config) -> Result<(), String> {
    Ok(())
}
