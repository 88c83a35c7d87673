//! CGI, FastCGI and origins where they are not built in.

use std::sync::Arc;

use lowroad_config::{Cgi, FastCgi, Feature, Origin, Route, Symlinks};
use lowroad_engine::Local;
use lowroad_handler::Handler;
use lowroad_handler::notice::Notice;
use lowroad_handler::spool::Spools;

use crate::lacks;

/// What programs share: nothing.
pub struct Scripts;

impl Scripts {
    /// Nothing.
    pub fn new(_: &[Local], _: Notice) -> Scripts {
        Scripts
    }

    /// Nothing.
    pub fn end(&self) {}

    /// Nothing.
    pub fn status(&self) -> Vec<String> {
        Vec::new()
    }

    /// Refuses a route.
    pub fn cgi(
        &self,
        _: &Route,
        _: &Cgi,
        _: Symlinks,
        _: Notice,
        _: Option<Arc<Spools>>,
    ) -> Result<Arc<dyn Handler>, String> {
        lacks(Feature::Programs, "cgi")
    }

    /// Refuses a route.
    pub fn fastcgi(
        &self,
        _: &Route,
        _: &FastCgi,
        _: Symlinks,
        _: Notice,
        _: Option<Arc<Spools>>,
    ) -> Result<Arc<dyn Handler>, String> {
        lacks(Feature::Programs, "fastcgi")
    }

    /// Refuses a route.
    pub fn origin(
        &self,
        _: &Route,
        _: &Origin,
        _: Notice,
        _: Option<Arc<Spools>>,
    ) -> Result<Arc<dyn Handler>, String> {
        lacks(Feature::Programs, "origin")
    }
}

/// Refuses to start programs.
pub fn spawner() -> Result<(), String> {
    lacks(Feature::Programs, "lowroad spawner")
}

/// There is nothing to check: a configuration that names an origin was refused.
///
/// # Errors
/// None.
pub fn check_tls(_: &Origin) -> Result<(), String> {
    Ok(())
}
