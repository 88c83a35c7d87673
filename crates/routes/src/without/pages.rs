//! Pages where they are not built in.

use std::sync::Arc;

use lowroad_config::{Config, Feature, Pages, Route};
use lowroad_handler::Handler;
use lowroad_store::SharedStore;
use lowroad_store::changes::Changes;

use crate::lacks;

/// What pages share: nothing.
pub struct Forms;

/// The databases of a configuration: none.
pub struct Databases;

impl Forms {
    /// Nothing.
    pub fn new() -> Result<Forms, String> {
        Ok(Forms)
    }

    /// Nothing is kept of any.
    pub fn drop_changed(&self, _: Arc<SharedStore>, _: Arc<Changes>) {}

    /// Opens none.
    pub fn open(&self, config: &Config) -> Result<Databases, String> {
        match config.databases.first() {
            Some(base) => lacks(Feature::Sql, &format!("database {}", base.name)),
            None => Ok(Databases),
        }
    }

    /// Refuses a route.
    pub fn handler(&self, _: &Route, _: &Pages, _: &Databases) -> Result<Arc<dyn Handler>, String> {
        lacks(Feature::Sql, "pages")
    }
}

/// No counters.
pub fn counts() -> Vec<(&'static str, u64)> {
    Vec::new()
}
