//! Pages of configurations, and their databases.

use std::sync::Arc;

use lowroad_config as config;
use lowroad_dynamic::Handler;
use lowroad_dynamic::limited::Limited;
pub use lowroad_dynamic::pages::counts;
use lowroad_dynamic::pages::{self, Key, Pages};

/// Signs what forms of pages carry; forms outlive a configuration.
pub struct Forms(Key);

/// The databases of a configuration.
pub struct Databases(Arc<pages::Databases>);

impl Forms {
    /// With a new key.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub fn new() -> Result<Forms, String> {
        Key::random().map(Forms)
    }

    /// The databases of a configuration; none is asked yet.
    ///
    /// # Errors
    /// A text for the operator.
    pub fn open(&self, config: &config::Config) -> Result<Databases, String> {
        let databases = pages::Databases::new(&config.databases)?;
        Ok(Databases(Arc::new(databases)))
    }

    /// What answers a route to pages.
    ///
    /// # Errors
    /// A text for the operator.
    pub fn handler(
        &self,
        rules: &config::Route,
        pages: &config::Pages,
        databases: &Databases,
    ) -> Result<Arc<dyn Handler>, String> {
        let handler = Pages::new(pages, databases.0.clone(), self.0.clone())?;
        let (timeout_ms, max) = (rules.timeout_ms, rules.concurrency_max);
        Ok(Arc::new(Limited::new(handler, timeout_ms, max)))
    }
}
