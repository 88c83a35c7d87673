//! Modules where they are not built in.

use std::sync::Arc;

use lowroad_config::{Config, Feature, Route};
use lowroad_handler::Handler;
use lowroad_handler::spool::Spools;
use lowroad_log::Logger;
use tokio::runtime::Handle;

use crate::lacks;

/// The modules of a configuration: none.
#[derive(Default)]
pub struct Catalog;

impl Catalog {
    /// No counters.
    pub fn counts(&self) -> Vec<(&str, Vec<(&'static str, u64)>)> {
        Vec::new()
    }
}

/// What modules share: nothing.
#[derive(Default)]
pub struct Modules(());

impl Modules {
    /// Opens none.
    pub fn open(
        &self,
        config: &Config,
        _: usize,
        _: &Logger,
        _: &Handle,
    ) -> Result<Catalog, String> {
        match config.modules.first() {
            Some(module) => lacking(&module.name),
            None => Ok(Catalog),
        }
    }

    /// No counters.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Refuses a route.
pub fn handler(
    _: &Catalog,
    name: &str,
    _: &Route,
    _: Option<Arc<Spools>>,
) -> Result<Arc<dyn Handler>, String> {
    lacking(name)
}

/// There are none that could be wrong.
pub fn check(_: &Config) -> Result<(), String> {
    Ok(())
}

/// Refuses to be a module's process.
pub fn host() -> Result<(), String> {
    lacks(Feature::Modules, "lowroad module-host")
}

fn lacking<T>(name: &str) -> Result<T, String> {
    lacks(Feature::Modules, &format!("module {name}"))
}
