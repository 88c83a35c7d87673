//! CGI programs, FastCGI servers and origins of configurations.

use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::sync::Arc;

use lowroad_children::process::helper_command;
use lowroad_config as config;
use lowroad_engine::Local;
use lowroad_gateway::cgi::CgiHandler;
use lowroad_gateway::cgi::spawner::{self, Spawner};
use lowroad_gateway::fastcgi::FastCgiHandler;
use lowroad_gateway::fastcgi::server::Servers;
pub use lowroad_gateway::proxy::check_tls;
use lowroad_gateway::proxy::{Origins, ProxyHandler};
use lowroad_handler::Handler;
use lowroad_handler::notice::Notice;
use lowroad_handler::spool::Spools;
use lowroad_privileges::account;
use lowroad_privileges::hide_process;

/// Connections to FastCGI servers and origins, and who starts CGI programs, which routes and configurations share.
pub struct Scripts {
    spawner: Arc<Spawner>,
    servers: Servers,
    origins: Origins,
}

impl Scripts {
    /// For these workers. `notice` hears of what concerns no route.
    pub fn new(workers: &[Local], notice: Notice) -> Scripts {
        let spawner = || {
            let mut command = helper_command("spawner");
            // Signals of the terminal are for the server, which may let programs end in their time.
            command.env_clear().process_group(0);
            command
        };
        Scripts {
            spawner: Spawner::new(spawner, notice),
            servers: Servers::new(workers),
            origins: Origins::new(workers),
        }
    }

    /// Ends the process that starts CGI programs, and them.
    pub fn end(&self) {
        self.spawner.end();
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
        let spawner = self.spawner.clone();
        let handler = CgiHandler::new(rules, cgi, symlinks, spawner, notice);
        let handler = handler.map_err(|error| error.to_string())?;
        let handler = match account::of_programs(cgi.user.as_deref())? {
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

/// Starts CGI programs for the server at the other end of the socket that is the standard input.
///
/// # Errors
/// A text for the log.
pub fn spawner() -> Result<(), String> {
    hide_process()?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    socket
        .and_then(spawner::serve)
        .map_err(|error| error.to_string())
}
