//! The sites of requests that the softirq level answers: the level knows only the requested host.

use std::net::SocketAddr;
use std::sync::Arc;

use lowroad_engine::ListenerId;
use lowroad_metrics::{MetricScope, ScopeLabels};
use lowroad_site::sites::SiteTable;

use crate::running_server::RunningServer;

/// The sites of a configuration, by port and host.
pub struct LevelSites {
    sites: Arc<SiteTable>,
    addresses: Vec<(ListenerId, SocketAddr)>,
    labels: Vec<ScopeLabels>,
}

impl LevelSites {
    /// The sites of the running server.
    pub fn new(running: &RunningServer) -> LevelSites {
        LevelSites {
            sites: running.sites.clone(),
            addresses: running.listeners.addresses.clone(),
            labels: running.sites.scopes.labels(),
        }
    }

    /// The scope of the site for a requested host, which names the port unless it is 80.
    pub fn scope(&self, host: &str) -> MetricScope {
        let port = match host.rsplit_once(':') {
            // The colons of an IPv6 address are in brackets.
            Some((_, port)) if !port.ends_with(']') => port.parse().ok(),
            _ => Some(80),
        };
        let mut addresses = self.addresses.iter();
        let scope = addresses.find_map(|(listener, address)| {
            let sites = (port == Some(address.port())).then_some(&self.sites)?;
            let found = sites.find(*listener, Some(host.as_bytes()), &mut [0; 256])?;
            Some(found.site.metric_scope)
        });
        scope.unwrap_or(MetricScope::NO_SITE)
    }

    /// The name of the site for a requested host, as in [`LevelSites::scope`]; empty without a site.
    pub fn label(&self, host: &str) -> &str {
        let labels = self.labels.get(self.scope(host).index());
        labels.map_or("", |labels| &labels.site)
    }
}
