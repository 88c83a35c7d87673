//! The servers of origins for operators: lists them, takes them out of rotation, adds and removes some.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use lowroad_config::{OriginConfig, OriginServer, OriginUrl, server_address};
use lowroad_handler::origin_control::{
    AddedServer, KeptChange, OriginControl, OriginRefusal, OriginView, ServerChange, ServerMode,
    ServerView,
};
use lowroad_origin::ServerAddress;
use lowroad_origin::member_claims::ClaimSource;

use super::{
    OriginInUse, OriginLocation, OriginRegistry, OriginTransport, address_of, lock,
    modification_times,
};
use crate::proxy::live_changes::{self, ServerChanges};
use crate::proxy::servers::{
    OnlyServer, OriginEndpoint, OriginGroup, OriginMembers, OriginServers, server_mode,
};

/// The refusal of an address that is neither one of a network nor one of a socket.
const NO_ADDRESS: &str = "a server's address is ADDRESS:PORT or unix:/PATH; names are configured";

/// How many servers may be added to an origin.
const ADDED_MAX: usize = 256;

/// A server that was added, and how it is reached.
pub(super) type AddedMember = (OriginServer, OriginTransport, ServerAddress);

impl OriginRegistry {
    /// The servers that operators have added to an origin, except those at configured addresses.
    ///
    /// # Errors
    /// As for `OriginRegistry::get`.
    pub(super) fn added_members(&self, origin: &OriginConfig) -> Result<Vec<AddedMember>, String> {
        let added = self.changes.added(&origin.name);
        let configured = configured_addresses(origin);
        let members = added
            .iter()
            .filter_map(|server| added_server(origin, server).ok())
            .filter(|(_, address)| !configured.contains(&address.to_string()))
            .map(|(server, address)| {
                let transport = self.build_transport(origin, &server)?;
                Ok((server, transport, address))
            });
        members.collect()
    }

    /// The origins of a configuration that is now in force: removes changes of other origins, and added servers
    /// that the configuration contains now.
    pub fn set_in_force<'o>(&self, origins: impl Iterator<Item = &'o OriginConfig>) {
        let origins: Vec<&OriginConfig> = origins.collect();
        let mut named: Vec<OriginInUse> = Vec::new();
        for origin in &origins {
            // The routes of an origin share its servers.
            if named.iter().any(|(known, _)| known == *origin) {
                continue;
            }
            named.extend(
                self.newest(origin)
                    .map(|servers| ((*origin).clone(), servers)),
            );
            for address in configured_addresses(origin) {
                self.changes.forget_added(&origin.name, &address);
            }
        }
        let names = origins.iter().map(|origin| &*origin.name).collect();
        self.changes.retain(&names);
        *lock(&self.in_force) = named;
    }

    /// The servers of an origin: those with the present TLS files, if there are several.
    fn newest(&self, origin: &OriginConfig) -> Option<Weak<OriginServers>> {
        let times = modification_times(&origin.tls);
        let origins = lock(&self.origins);
        let mut same = origins
            .iter()
            .filter(|((known, _), servers)| known == origin && servers.strong_count() > 0);
        let present = same.clone().find(|((_, known), _)| *known == times);
        // A file may have been replaced since the servers were created.
        present
            .or_else(|| same.next())
            .map(|(_, servers)| servers.clone())
    }

    /// The origins in force with this name: several if routes have different settings for it.
    fn named(&self, name: &str) -> Result<Vec<(OriginConfig, Arc<OriginServers>)>, OriginRefusal> {
        let (named, others): (Vec<_>, Vec<_>) = self
            .in_force()
            .into_iter()
            .partition(|(origin, _)| origin.name == name);
        if named.is_empty() {
            let names = others.into_iter().map(|(origin, _)| origin.name);
            let names: BTreeSet<String> = names.collect();
            return Err(OriginRefusal::UnknownOrigin(names.into_iter().collect()));
        }
        Ok(named)
    }

    /// The origins of the configuration in force.
    fn in_force(&self) -> Vec<(OriginConfig, Arc<OriginServers>)> {
        let origins = lock(&self.in_force);
        let in_use = origins
            .iter()
            .filter_map(|(origin, servers)| Some((origin.clone(), servers.upgrade()?)));
        in_use.collect()
    }

    /// The origins with this name that any request may use.
    fn all_named(&self, name: &str) -> Vec<(OriginConfig, Arc<OriginServers>)> {
        // A reload keeps the servers of the previous configuration until its last request has ended; they are changed, too.
        let mut in_use = self.in_use();
        in_use.retain(|(origin, _)| origin.name == name);
        in_use
    }

    fn in_use(&self) -> Vec<(OriginConfig, Arc<OriginServers>)> {
        let origins = lock(&self.origins);
        let in_use = origins
            .iter()
            .filter_map(|((origin, _), servers)| Some((origin.clone(), Weak::upgrade(servers)?)));
        in_use.collect()
    }

    fn now_ms(&self) -> u64 {
        self.workers[0].timers.now_ms()
    }

    fn add_views(&self, servers: &OriginServers, views: &mut BTreeMap<String, ServerView>) {
        let group = match servers.members() {
            OriginMembers::One(only) => {
                let view = only_view(only);
                views.entry(view.address.clone()).or_insert(view);
                return;
            }
            OriginMembers::Group(group) => group,
        };
        for view in group_views(group, self.now_ms()) {
            let requests = view.requests;
            let merged = views.entry(view.address.clone()).or_insert(ServerView {
                requests: None,
                ..view
            });
            // The requests of routes with different settings for the origin are counted apart.
            merged.requests = Some(merged.requests.unwrap_or(0) + requests.unwrap_or(0));
        }
    }
}

impl OriginControl for OriginRegistry {
    fn views(&self) -> Vec<OriginView> {
        // Sorted, so that two listings of the same state have the same order and the same tag.
        let mut origins = BTreeMap::<String, BTreeMap<String, ServerView>>::new();
        for (origin, servers) in self.in_force() {
            let views = origins.entry(origin.name).or_default();
            self.add_views(&servers, views);
        }
        let views = origins.into_iter().map(|(name, servers)| OriginView {
            name,
            servers: servers.into_values().collect(),
        });
        views.collect()
    }

    fn change_server(
        &self,
        origin: &str,
        address: &str,
        change: ServerChange,
    ) -> Result<(), OriginRefusal> {
        let named = self.named(origin)?;
        let addresses: Vec<String> = named
            .iter()
            .flat_map(|(_, servers)| addresses(servers))
            .collect();
        if !addresses.iter().any(|known| known == address) {
            return Err(OriginRefusal::UnknownServer(addresses));
        }
        let has_group = named.iter().any(|(_, servers)| servers.group().is_some());
        if change.weight.is_some() && !has_group {
            return Err(OriginRefusal::NoGroup);
        }
        // Recorded first: a member that appears meanwhile gets the change when it is added, or below.
        let state = self.changes.change(origin, address, change);
        for (_, servers) in &self.all_named(origin) {
            apply(servers, address, state, self.now_ms());
        }
        Ok(())
    }

    fn add_server(&self, origin: &str, server: &AddedServer) -> Result<String, OriginRefusal> {
        let named = self.named(origin)?;
        let (config, _) = &named[0];
        let (_, address) = added_server(config, server).map_err(OriginRefusal::InvalidAddress)?;
        // The form in which addresses are listed.
        let server = AddedServer {
            address: address.to_string(),
            ..server.clone()
        };
        if named
            .iter()
            .any(|(_, servers)| addresses(servers).contains(&server.address))
        {
            return Err(OriginRefusal::Exists);
        }
        if !named.iter().all(|(_, servers)| servers.group().is_some()) {
            return Err(OriginRefusal::NoGroup);
        }
        if self.changes.added(origin).len() >= ADDED_MAX {
            return Err(OriginRefusal::TooMany(ADDED_MAX));
        }
        // Recorded first, so that a group that is created meanwhile has the server.
        self.changes.add(origin, &server);
        for (config, servers) in &self.all_named(origin) {
            if let (Some(group), Ok((added, address))) =
                (servers.group(), added_server(config, &server))
                // The files of TLS were read for the other servers; one that has vanished since is reported by a reload.
                && let Ok(mut transport) = self.build_transport(config, &added)
            {
                transport.sticky = group.sticky.clone();
                let source = ClaimSource::Operator;
                group.members.set(source, &added, &transport, address);
            }
        }
        Ok(server.address)
    }

    fn remove_server(&self, origin: &str, address: &str) -> Result<(), OriginRefusal> {
        let named = self.named(origin)?;
        let sources: Vec<ClaimSource> = named
            .iter()
            .filter_map(|(_, servers)| {
                let members = &servers.group()?.members;
                let (_, source) = members.claims.find(&find_address(servers, address)?)?;
                Some(source)
            })
            .collect();
        if !sources.contains(&ClaimSource::Operator) {
            let addresses: Vec<String> = named
                .iter()
                .flat_map(|(_, servers)| addresses(servers))
                .collect();
            return Err(match addresses.iter().any(|known| known == address) {
                true => OriginRefusal::IsConfigured,
                false => OriginRefusal::UnknownServer(addresses),
            });
        }
        // Forgotten first, so that no group that is created meanwhile gets it again.
        self.changes.forget(origin, address);
        for (_, servers) in &self.all_named(origin) {
            let Some(group) = servers.group() else {
                continue;
            };
            let Some(address) = find_address(servers, address) else {
                continue;
            };
            let change = group
                .members
                .claims
                .release(ClaimSource::Operator, &address);
            group.members.follow(change, self.now_ms());
        }
        Ok(())
    }

    fn kept_changes(&self) -> Vec<KeptChange> {
        self.changes.list()
    }

    fn restore_changes(&self, changes: &[KeptChange]) {
        self.changes.restore(changes);
    }
}

/// The fixed addresses in the configuration of an origin, in the form in which they are listed.
fn configured_addresses(origin: &OriginConfig) -> Vec<String> {
    let locations = origin
        .servers
        .iter()
        .map(|server| OriginLocation::new(&server.url, origin.from));
    let addresses = locations.filter_map(|location| match location {
        OriginLocation::Address(address) => Some(address.to_string()),
        OriginLocation::Name(..) => None,
    });
    addresses.collect()
}

/// The configuration of an added server, with its address.
///
/// # Errors
/// Why the address can't be used.
fn added_server(
    origin: &OriginConfig,
    added: &AddedServer,
) -> Result<(OriginServer, ServerAddress), &'static str> {
    let (url, address) = match added.address.strip_prefix("unix:") {
        Some(path) => {
            let path = server_address::unix_path(path)?;
            (OriginUrl::Unix(path.clone()), ServerAddress::Unix(path))
        }
        // Only names in the configuration are looked up.
        None => {
            let address: SocketAddr = added.address.parse().map_err(|_| NO_ADDRESS)?;
            server_address::check(address.ip(), address.port())?;
            let url = OriginUrl::Http {
                encrypted: origin.is_encrypted(),
                host: address.ip().to_canonical().to_string(),
                port: address.port(),
            };
            (url, address_of(address, origin.from))
        }
    };
    let server = OriginServer {
        url,
        weight: added.weight,
        backup: added.is_backup,
    };
    Ok((server, address))
}

/// The address of the member with this text.
fn find_address(servers: &OriginServers, address: &str) -> Option<ServerAddress> {
    let upstream = &servers.group()?.upstream;
    upstream.with(|group| {
        let member = group.find(|endpoint| has_address(endpoint, address))?;
        Some(group.target(member)?.pool().address().clone())
    })
}

fn has_address(endpoint: &OriginEndpoint, address: &str) -> bool {
    endpoint.pool().address().to_string() == address
}

/// The addresses of all servers.
fn addresses(servers: &OriginServers) -> Vec<String> {
    match servers.members() {
        OriginMembers::One(only) => vec![only.endpoint.pool().address().to_string()],
        OriginMembers::Group(group) => group.upstream.with(|members| {
            let statuses = members.status(0);
            let targets = statuses.iter().filter_map(|it| members.target(it.member));
            targets.map(|it| it.pool().address().to_string()).collect()
        }),
    }
}

/// Applies a change to the member at an address.
fn apply(servers: &OriginServers, address: &str, state: ServerChanges, now_ms: u64) {
    match servers.members() {
        OriginMembers::One(only) => {
            if has_address(&only.endpoint, address) {
                only.mode.set(state.mode);
            }
        }
        OriginMembers::Group(group) => {
            let find = |endpoint: &Arc<OriginEndpoint>| has_address(endpoint, address);
            if let Some(member) = group.upstream.with(|members| members.find(find)) {
                let settings = state.operator_settings();
                live_changes::set_member(&group.upstream, member, settings, now_ms);
            }
        }
    }
}

fn only_view(only: &OnlyServer) -> ServerView {
    endpoint_view(&only.endpoint, only.mode.get())
}

fn group_views(group: &OriginGroup, now_ms: u64) -> Vec<ServerView> {
    let members: Vec<_> = group.upstream.with(|members| {
        let statuses = members.status(now_ms).into_iter();
        let with_endpoint =
            statuses.filter_map(|it| Some((members.target(it.member)?.clone(), it)));
        with_endpoint.collect()
    });
    let views = members.into_iter().map(|(endpoint, status)| {
        let source = group.members.claims.find(endpoint.pool().address());
        ServerView {
            is_added: source.is_some_and(|(_, source)| source == ClaimSource::Operator),
            is_available: status.health.is_available(),
            health: status.health.to_string(),
            is_backup: status.backup,
            weight: status.weight,
            configured_weight: status.configured_weight,
            requests: Some(status.requests),
            ..endpoint_view(&endpoint, server_mode(status.mode))
        }
    });
    views.collect()
}

/// The part of a view that does not depend on the group.
fn endpoint_view(endpoint: &OriginEndpoint, mode: ServerMode) -> ServerView {
    let counts = endpoint.pool().counts();
    ServerView {
        address: endpoint.pool().address().to_string(),
        mode,
        health: "not checked".to_owned(),
        is_available: true,
        is_backup: false,
        is_added: false,
        weight: 1,
        configured_weight: 1,
        requests: None,
        connections: counts.in_use as u64,
        idle_connections: counts.idle as u64,
        latest_failure: endpoint.latest_failure(),
    }
}

#[cfg(test)]
mod tests;
