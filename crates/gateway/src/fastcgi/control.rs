//! The FastCGI servers of all routes for operators: lists them, and takes them out of rotation. They are one origin,
//! because routes share the servers by address.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lowroad_config::FastCgiConfig;
use lowroad_handler::origin_control::{
    AddedServer, KeptChange, OriginControl, OriginRefusal, OriginView, ServerChange, ServerMode,
    ServerView,
};
use lowroad_origin::group::{MemberId, MemberStatus, OperatorSettings};
use lowroad_origin::{ServerAddress, Upstream};

use super::backends::BackendSet;
use super::server::{FastCgiServer, FastCgiServers, RouteServer};
use crate::proxy::live_changes::LiveChanges;
use crate::proxy::servers::server_mode;

/// The name of the origin. No configured origin has it, since their names contain no colon.
pub const FASTCGI_ORIGIN: &str = "fastcgi:";

/// The changes of operators to FastCGI servers, and the routes that use these.
#[derive(Default)]
pub struct FastCgiChanges {
    changes: LiveChanges,
    routes: Mutex<Vec<RouteBackends>>,
    /// The settings of the configuration in force.
    in_force: Mutex<Vec<FastCgiConfig>>,
}

/// The servers of a route, as long as the route exists.
struct RouteBackends {
    fastcgi: FastCgiConfig,
    servers: Weak<BackendSet>,
}

impl FastCgiChanges {
    /// The state of the server at an address.
    pub fn mode(&self, address: &ServerAddress) -> ServerMode {
        self.changes.get(FASTCGI_ORIGIN, &address.to_string()).mode
    }

    /// The settings of the group's member at an address.
    pub fn settings(&self, address: &ServerAddress) -> OperatorSettings {
        let changes = self.changes.get(FASTCGI_ORIGIN, &address.to_string());
        changes.operator_settings()
    }

    /// Applies the recorded changes to a new member: those that were made after its settings were read.
    pub(super) fn apply(
        &self,
        upstream: &Upstream<Arc<RouteServer>>,
        member: MemberId,
        now_ms: u64,
    ) {
        let server = upstream.with(|group| group.target(member).cloned());
        if let Some(server) = server {
            let mode = self.settings(server.server.pool.address()).mode;
            upstream.with(|group| group.set_mode(member, mode, now_ms));
        }
    }

    /// Adds the servers of a new route, which get further changes.
    pub(super) fn add_route(&self, fastcgi: &FastCgiConfig, servers: &Arc<BackendSet>) {
        let mut routes = lock(&self.routes);
        // Removes the routes of earlier configurations.
        routes.retain(|route| route.servers.strong_count() > 0);
        routes.push(RouteBackends {
            fastcgi: fastcgi.clone(),
            servers: Arc::downgrade(servers),
        });
        drop(routes);
        // Those that were made after the servers were created.
        for (server, _) in servers.statuses() {
            let address = server.server.pool.address();
            servers.set_mode(&address.to_string(), self.mode(address));
        }
    }

    fn routes(&self) -> Vec<(FastCgiConfig, Arc<BackendSet>)> {
        let routes = lock(&self.routes);
        let in_use = routes
            .iter()
            .filter_map(|route| Some((route.fastcgi.clone(), route.servers.upgrade()?)));
        in_use.collect()
    }

    fn servers(&self) -> BTreeMap<String, ServerView> {
        // A waiting request keeps the route of an earlier configuration, but its servers are not listed.
        let in_force = lock(&self.in_force);
        let mut views = BTreeMap::<String, ServerView>::new();
        for (fastcgi, servers) in self.routes() {
            if !in_force.contains(&fastcgi) {
                continue;
            }
            for (server, status) in servers.statuses() {
                let view = self.view(&server.server, status.as_ref());
                let merged = views.entry(view.address.clone()).or_insert(ServerView {
                    requests: None,
                    ..view.clone()
                });
                // Each route counts requests and ejects servers separately.
                if let Some(requests) = view.requests {
                    merged.requests = Some(merged.requests.unwrap_or(0) + requests);
                }
                if merged.is_available && !view.is_available {
                    (merged.is_available, merged.health) = (false, view.health);
                }
            }
        }
        views
    }

    fn view(&self, server: &FastCgiServer, status: Option<&MemberStatus>) -> ServerView {
        let address = server.pool.address();
        let counts = server.pool.counts();
        let health = status.map(|status| status.health);
        ServerView {
            address: address.to_string(),
            mode: status.map_or_else(|| self.mode(address), |it| server_mode(it.mode)),
            health: health.map_or_else(|| "not checked".to_owned(), |it| it.to_string()),
            is_available: health.is_none_or(|it| it.is_available()),
            is_backup: false,
            is_added: false,
            weight: 1,
            configured_weight: 1,
            requests: status.map(|status| status.requests),
            connections: counts.in_use as u64,
            idle_connections: counts.idle as u64,
            latest_failure: None,
        }
    }
}

impl FastCgiServers {
    /// The settings of all routes of the configuration that is now in force: without any, all changes are removed.
    pub fn set_in_force<'c>(&self, routes: impl Iterator<Item = &'c FastCgiConfig>) {
        let changes = self.changes();
        let routes: Vec<FastCgiConfig> = routes.cloned().collect();
        if routes.is_empty() {
            changes.changes.retain(&HashSet::new());
        }
        *lock(&changes.in_force) = routes;
    }
}

impl OriginControl for FastCgiServers {
    fn views(&self) -> Vec<OriginView> {
        let servers: Vec<ServerView> = self.changes().servers().into_values().collect();
        let view = (!servers.is_empty()).then(|| OriginView {
            name: FASTCGI_ORIGIN.to_owned(),
            servers,
        });
        view.into_iter().collect()
    }

    fn change_server(
        &self,
        origin: &str,
        address: &str,
        change: ServerChange,
    ) -> Result<(), OriginRefusal> {
        let changes = self.changes();
        let servers = changes.servers();
        if !servers.contains_key(address) {
            return Err(OriginRefusal::UnknownServer(servers.into_keys().collect()));
        }
        if change.weight.is_some() {
            return Err(OriginRefusal::FastCgi);
        }
        // Recorded first: a member that appears meanwhile gets the change when it is added, or below.
        let state = changes.changes.change(origin, address, change);
        for (_, servers) in changes.routes() {
            servers.set_mode(address, state.mode);
        }
        Ok(())
    }

    fn add_server(&self, _: &str, _: &AddedServer) -> Result<String, OriginRefusal> {
        Err(OriginRefusal::FastCgi)
    }

    fn remove_server(&self, _: &str, address: &str) -> Result<(), OriginRefusal> {
        let servers = self.changes().servers();
        Err(match servers.contains_key(address) {
            true => OriginRefusal::IsConfigured,
            false => OriginRefusal::UnknownServer(servers.into_keys().collect()),
        })
    }

    fn kept_changes(&self) -> Vec<KeptChange> {
        self.changes().changes.list()
    }

    fn restore_changes(&self, changes: &[KeptChange]) {
        self.changes().changes.restore(changes);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
