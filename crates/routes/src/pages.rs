//! Pages of configurations, and their databases.

use std::sync::Arc;

use lowroad_config as config;
use lowroad_handler::Handler;
use lowroad_handler::limited::Limited;
pub use lowroad_sql_pages::counts;
use lowroad_sql_pages::{Key, Pages, Sites};

use lowroad_store::SharedStore;
use lowroad_store::changes::Changes;
use lowroad_store::purging::{Kind, Purge};

/// What pages of all configurations share: the key that signs what forms carry, since forms outlive a configuration, and
/// the templates, since what is kept of them does, too.
pub struct Forms {
    key: Key,
    sites: Arc<Sites>,
}

/// The databases of a configuration.
pub struct Databases(Arc<lowroad_sql_pages::Databases>);

impl Forms {
    /// With a new key, and no templates yet.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub fn new() -> Result<Forms, String> {
        Ok(Forms {
            key: Key::random()?,
            sites: Arc::default(),
        })
    }

    /// Has this store drop what is kept of pages whose templates change; who keeps copies is told by `changes`.
    pub fn drop_changed(&self, store: Arc<SharedStore>, changes: Arc<Changes>) {
        self.sites.tell(Box::new(move |name| {
            store.purge(&Purge::Tag(name.as_bytes()), Kind::Hard);
            changes.tell();
        }));
    }

    /// The databases of a configuration; none is asked yet.
    ///
    /// # Errors
    /// A text for the operator.
    pub fn open(&self, config: &config::Config) -> Result<Databases, String> {
        let databases = lowroad_sql_pages::Databases::new(&config.databases)?;
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
        let handler = Pages::new(
            pages,
            databases.0.clone(),
            self.key.clone(),
            self.sites.clone(),
        )?;
        let (timeout_ms, max) = (rules.timeout_ms, rules.concurrency_max);
        Ok(Arc::new(Limited::new(handler, timeout_ms, max)))
    }
}
