//! WebAssembly modules where they are not built in.

use lowroad_config::{Config, Feature, Module};
use lowroad_dynamic::module::Opened;
use lowroad_log::Logger;

use crate::features;

/// What all of them share: nothing.
#[derive(Default)]
pub struct Wasm;

impl Wasm {
    /// Refuses a module.
    pub fn open(&self, module: &Module, _: usize, _: &Logger) -> Result<Box<dyn Opened>, String> {
        let what = format!("module {}", module.name);
        features::need(Feature::Wasm, &what).and(Err(what))
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
