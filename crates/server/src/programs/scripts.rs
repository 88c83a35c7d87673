//! CGI programs, FastCGI servers and origins of configurations.

use std::sync::Arc;

use lowroad_config as config;
use lowroad_dynamic::Handler;
use lowroad_dynamic::cgi::CgiHandler;
use lowroad_dynamic::fastcgi::FastCgiHandler;
use lowroad_dynamic::fastcgi::server::Servers;
use lowroad_dynamic::notice::Notice;
use lowroad_dynamic::proxy::{Origins, ProxyHandler};
use lowroad_dynamic::spool::Spools;
use lowroad_engine::Local;

use crate::user;

/// Connections to FastCGI servers and origins, which routes and configurations share.
pub struct Scripts {
    servers: Servers,
    origins: Origins,
}

impl Scripts {
    /// For these workers.
    pub fn new(workers: &[Local]) -> Scripts {
        Scripts {
            servers: Servers::new(workers),
            origins: Origins::new(workers),
        }
    }

    /// The servers of origins, for people.
    pub fn status(&self) -> Vec<String> {
        self.origins.status()
    }

    /// What answers a route to a folder of programs.
    ///
    /// # Errors
    /// A text for the operator.
    pub fn cgi(
        &self,
        rules: &config::Route,
        cgi: &config::Cgi,
        symlinks: config::Symlinks,
        notice: Notice,
        spools: Option<Arc<Spools>>,
    ) -> Result<Arc<dyn Handler>, String> {
        let handler =
            CgiHandler::new(rules, cgi, symlinks, notice).map_err(|error| error.to_string())?;
        let handler = match user::of_programs(cgi.user.as_deref())? {
            Some(user) => handler.as_user(user),
            None => handler,
        };
        Ok(Arc::new(handler.with_spools(spools)))
    }

    /// What answers a route to a FastCGI server.
    ///
    /// # Errors
    /// A text for the operator.
    pub fn fastcgi(
        &self,
        rules: &config::Route,
        fastcgi: &config::FastCgi,
        symlinks: config::Symlinks,
        notice: Notice,
        spools: Option<Arc<Spools>>,
    ) -> Result<Arc<dyn Handler>, String> {
        let handler = FastCgiHandler::new(rules, fastcgi, symlinks, &self.servers, notice);
        Ok(Arc::new(handler.with_spools(spools)))
    }

    /// What answers a route to an origin. Looks its name up.
    ///
    /// # Errors
    /// A text for the operator.
    pub fn origin(
        &self,
        rules: &config::Route,
        origin: &config::Origin,
        notice: Notice,
        spools: Option<Arc<Spools>>,
    ) -> Result<Arc<dyn Handler>, String> {
        let handler = ProxyHandler::new(rules, origin, &self.origins, notice, spools)?;
        Ok(Arc::new(handler))
    }
}
