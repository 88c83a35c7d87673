//! The handlers for CGI programs, FastCGI servers and origins.

use std::os::unix::process::CommandExt;
use std::sync::Arc;

use lowroad_child_processes::message::PacketChannel;
use lowroad_child_processes::process::helper_command;
use lowroad_config::{CgiConfig, Config, FastCgiConfig, OriginConfig, RouteConfig, RouteTo};
use lowroad_engine::WorkerHandle;
use lowroad_gateway::cgi::CgiHandler;
use lowroad_gateway::cgi::spawner::{self, CgiSpawner};
use lowroad_gateway::fastcgi::FastCgiHandler;
use lowroad_gateway::fastcgi::control::FASTCGI_ORIGIN;
use lowroad_gateway::fastcgi::server::FastCgiServers;
pub use lowroad_gateway::proxy::check_tls;
use lowroad_gateway::proxy::{OriginRegistry, ProxyHandler};
use lowroad_handler::Handler;
use lowroad_handler::operator_notice::OperatorNotice;
use lowroad_handler::origin_control::{
    AddedServer, KeptChange, OriginControl, OriginRefusal, OriginView, ServerChange,
};
use lowroad_handler::upstream_status::UpstreamReport;
use lowroad_privileges::account;
use lowroad_privileges::hide_process;

use crate::auth_routes;
use crate::handler_kinds::{HandlerKind, LabelledHandler, OpenContext, OpenedKind, RouteContext};

/// Connections to FastCGI servers and origins, and the spawner of CGI programs. Shared by all routes and
/// configurations.
pub struct GatewayConnections {
    spawner: Arc<CgiSpawner>,
    servers: FastCgiServers,
    origins: OriginRegistry,
}

impl GatewayConnections {
    /// `notice` receives reports that do not concern a particular route.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub fn new(
        workers: &[WorkerHandle],
        notice: OperatorNotice,
    ) -> Result<GatewayConnections, String> {
        let spawner = || {
            let mut command = helper_command("spawner");
            // The spawner has its own process group: signals from a terminal are for the server, which lets programs
            // finish.
            command.env_clear().process_group(0);
            command
        };
        Ok(GatewayConnections {
            spawner: CgiSpawner::new(spawner, notice),
            servers: FastCgiServers::new(workers),
            origins: OriginRegistry::new(workers)?,
        })
    }

    fn cgi(
        &self,
        cgi: &CgiConfig,
        route: &RouteContext<'_>,
        notice: OperatorNotice,
    ) -> BuiltHandler {
        let spawner = self.spawner.clone();
        let handler = CgiHandler::new(route.rules, cgi, route.symlinks, spawner, notice);
        let handler = handler.map_err(|error| error.to_string())?;
        let handler = match account::program_account(cgi.user.as_deref())? {
            // The spawner changes to this user for each program.
            Some((uid, gid)) => handler.as_user(uid, gid),
            None => handler,
        };
        Ok(Arc::new(handler.with_spools(route.spools.clone())))
    }

    fn fastcgi(
        &self,
        fastcgi: &FastCgiConfig,
        route: &RouteContext<'_>,
        notice: OperatorNotice,
    ) -> BuiltHandler {
        let (rules, servers) = (route.rules, &self.servers);
        let handler = FastCgiHandler::new(rules, fastcgi, route.symlinks, servers, notice);
        Ok(Arc::new(handler.with_spools(route.spools.clone())))
    }

    /// Creates a proxy handler; resolves the host names of the origin.
    fn origin(&self, origin: &OriginConfig, route: &RouteContext<'_>) -> BuiltHandler {
        // The reports get no label, since they already name the origin and the server.
        let (notice, spools) = (route.notice(None), route.spools.clone());
        let handler = ProxyHandler::new(route.rules, origin, &self.origins, notice, spools)?;
        Ok(Arc::new(handler))
    }
}

/// The origins of a configuration: of routes, and of access rules.
fn origins(config: &Config) -> impl Iterator<Item = &OriginConfig> {
    config.sites.iter().flat_map(|site| {
        let routes = site.routes.iter().flat_map(RouteConfig::origins);
        routes.chain(auth_routes::origins(site))
    })
}

/// The FastCGI servers of the routes of a configuration.
fn fastcgi_servers(config: &Config) -> impl Iterator<Item = &FastCgiConfig> {
    let routes = config.sites.iter().flat_map(|site| &site.routes);
    routes.filter_map(|route| match &route.to {
        RouteTo::FastCgi(fastcgi) => Some(fastcgi),
        _ => None,
    })
}

type BuiltHandler = Result<Arc<dyn Handler>, String>;

impl GatewayConnections {
    fn control_of(&self, origin: &str) -> &dyn OriginControl {
        match origin {
            FASTCGI_ORIGIN => &self.servers,
            _ => &self.origins,
        }
    }
}

impl OriginControl for GatewayConnections {
    fn views(&self) -> Vec<OriginView> {
        let mut views = self.origins.views();
        views.extend(self.servers.views());
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views
    }

    fn change_server(
        &self,
        origin: &str,
        address: &str,
        change: ServerChange,
    ) -> Result<(), OriginRefusal> {
        let control = self.control_of(origin);
        control.change_server(origin, address, change)
    }

    fn add_server(&self, origin: &str, server: &AddedServer) -> Result<String, OriginRefusal> {
        self.control_of(origin).add_server(origin, server)
    }

    fn remove_server(&self, origin: &str, address: &str) -> Result<(), OriginRefusal> {
        self.control_of(origin).remove_server(origin, address)
    }

    fn kept_changes(&self) -> Vec<KeptChange> {
        let mut changes = self.origins.kept_changes();
        changes.extend(self.servers.kept_changes());
        changes
    }

    fn restore_changes(&self, changes: &[KeptChange]) {
        let (of_fastcgi, of_origins): (Vec<KeptChange>, Vec<KeptChange>) = changes
            .iter()
            .cloned()
            .partition(|change| change.origin == FASTCGI_ORIGIN);
        self.servers.restore_changes(&of_fastcgi);
        self.origins.restore_changes(&of_origins);
    }
}

impl HandlerKind for GatewayConnections {
    fn open(
        self: Arc<Self>,
        config: &Config,
        context: &OpenContext<'_>,
    ) -> Result<Box<dyn OpenedKind>, String> {
        self.origins.set_runtime(context.runtime);
        // All names are looked up at the same time, and not with the routes one after another.
        self.origins.begin_lookups(origins(config));
        self.servers.begin_lookups(fastcgi_servers(config));
        Ok(Box::new(self))
    }

    fn origins(&self) -> UpstreamReport {
        self.origins.status()
    }

    fn origin_control(&self) -> Option<&dyn OriginControl> {
        Some(self)
    }

    fn config_applied(&self, config: &Config) {
        self.origins.set_in_force(origins(config));
        self.servers.set_in_force(fastcgi_servers(config));
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.origins.counts()
    }

    fn session_key(&self) -> Option<Vec<u8>> {
        Some(self.origins.session_key().into())
    }

    fn set_session_key(&self, key: &[u8]) {
        if let Ok(key) = key.try_into() {
            self.origins.set_session_key(key);
        }
    }

    /// Ends the spawner of CGI programs, and with it the programs.
    fn end(&self) {
        self.spawner.end();
    }
}

impl OpenedKind for Arc<GatewayConnections> {
    fn handler(&self, route: &RouteContext<'_>) -> Option<Result<LabelledHandler, String>> {
        let (label, handler) = match &route.rules.to {
            RouteTo::Cgi(cgi) => {
                let label = match &cgi.path {
                    Some(path) => format!("cgi {}", path.display()),
                    None => "cgi".to_string(),
                };
                let notice = route.notice(Some(&label));
                let handler = self.cgi(cgi, route, notice);
                (label, handler)
            }
            RouteTo::FastCgi(fastcgi) => {
                let names: Vec<String> = fastcgi.servers.iter().map(ToString::to_string).collect();
                let label = format!("fastcgi {}", names.join(", "));
                let notice = route.notice(Some(&label));
                let handler = self.fastcgi(fastcgi, route, notice);
                (label, handler)
            }
            RouteTo::Origin(origin) => {
                let handler = self.origin(origin, route);
                return Some(handler.map(|handler| (format!("origin {}", origin.name), handler)));
            }
            RouteTo::Module(_) | RouteTo::Pages(_) => return None,
        };
        Some(match handler {
            Ok(handler) => Ok((label, handler)),
            Err(problem) => Err(format!("{label}: {problem}")),
        })
    }
}

/// The main function of the spawner process: starts CGI programs for the server, with standard input as the channel.
///
/// # Errors
/// A text for the log.
pub fn spawner() -> Result<(), String> {
    // CGI programs of the same user must not be able to inspect or control this process.
    hide_process()?;
    let result = PacketChannel::to_parent().and_then(spawner::serve);
    result.map_err(|error| error.to_string())
}
