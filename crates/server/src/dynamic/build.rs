//! Makes the programs of a configuration, and keeps the runtime that they work on.

use std::io;
use std::sync::Arc;

use lowroad_config as config;
use lowroad_dynamic::Handler;
use lowroad_log::Logger;
use tokio::runtime::{Handle, Runtime};

use crate::dynamic::routes::{Route, Routes};

/// What programs need to run.
pub struct Programs {
    runtime: Runtime,
    logger: Logger,
}

impl Programs {
    /// Starts the threads that programs are waited for on.
    ///
    /// # Errors
    /// When the machine gives no threads.
    pub fn start(logger: Logger) -> io::Result<Programs> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("programs")
            .enable_all()
            .build()?;
        Ok(Programs { runtime, logger })
    }

    /// Where programs are waited for.
    pub fn runtime(&self) -> Handle {
        self.runtime.handle().clone()
    }

    /// The routes of a site.
    ///
    /// # Errors
    /// When a program can't be made ready: which, why, and what to do about it.
    pub fn routes(&self, site: &config::Site, config: &config::Config) -> Result<Routes, String> {
        let routes = site.routes.iter().map(|rules| {
            let (label, handler) = self.program(rules, config)?;
            Ok(Route::new(rules, label, handler))
        });
        routes.collect::<Result<_, String>>().map(Routes::new)
    }

    /// A route's program, and how to call it.
    fn program(
        &self,
        rules: &config::Route,
        _config: &config::Config,
    ) -> Result<(String, Arc<dyn Handler>), String> {
        let _ = &self.logger;
        Err(format!(
            "{:?}: this kind of route is still to come",
            rules.to
        ))
    }
}
