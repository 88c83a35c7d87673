//! The servers of origins for operators: lists them, takes them out of rotation, adds and removes some.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use lowroad_config::{OriginConfig, OriginServer, OriginUrl};
use lowroad_handler::origin_control::{
    AddedServer, KeptChange, OriginControl, OriginRefusal, OriginView, ServerChange, ServerMode,
    ServerView,
};
use lowroad_origin::ServerAddress;
use lowroad_origin::group::{MemberHealth, MemberId, MemberMode, NewMember};

use super::{OriginRegistry, OriginTransport, address_of, lock};
use crate::proxy::live_changes::{self, ServerChanges};
use crate::proxy::servers::{
    OnlyServer, OriginEndpoint, OriginGroup, OriginMembers, OriginServers,
};

/// How many servers may be added to an origin.
const ADDED_MAX: usize = 256;

/// A server that was added, and how it is reached.
pub(super) type AddedMember = (OriginServer, OriginTransport, ServerAddress);

impl OriginRegistry {
    /// The servers that operators have added to an origin.
    ///
    /// # Errors
    /// As for `OriginRegistry::get`.
    pub(super) fn added_members(&self, origin: &OriginConfig) -> Result<Vec<AddedMember>, String> {
        let added = self.changes.added(&origin.name);
        let members = added
            .iter()
            .filter_map(|server| added_server(origin, server))
            .map(|(server, address)| {
                let transport = self.build_transport(origin, &server)?;
                Ok((server, transport, address))
            });
        members.collect()
    }

    /// The origins in use with this name: several if routes or configurations have different settings for it.
    fn named(&self, name: &str) -> Result<Vec<(OriginConfig, Arc<OriginServers>)>, OriginRefusal> {
        let in_use = self.in_use();
        // A reload keeps the servers of the previous configuration until its last request has ended; they are changed, too.
        let (named, others): (Vec<_>, Vec<_>) = in_use
            .into_iter()
            .partition(|(origin, _)| origin.name == name);
        if named.is_empty() {
            let names = others.into_iter().map(|(origin, _)| origin.name);
            let names: BTreeSet<String> = names.collect();
            return Err(OriginRefusal::UnknownOrigin(names.into_iter().collect()));
        }
        Ok(named)
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

    fn add_views(
        &self,
        origin: &OriginConfig,
        servers: &OriginServers,
        views: &mut BTreeMap<String, ServerView>,
    ) {
        let group = match servers.members() {
            OriginMembers::One(only) => {
                let view = only_view(only);
                views.entry(view.address.clone()).or_insert(view);
                return;
            }
            OriginMembers::Group(group) => group,
        };
        for view in group_views(group, self.now_ms()) {
            let is_added = self
                .changes
                .get(&origin.name, &view.address)
                .added
                .is_some();
            let requests = view.requests;
            let merged = views.entry(view.address.clone()).or_insert(ServerView {
                requests: None,
                ..view
            });
            merged.is_added = is_added;
            // The requests of routes with different settings for the origin are counted apart.
            merged.requests = Some(merged.requests.unwrap_or(0) + requests.unwrap_or(0));
        }
    }
}

impl OriginControl for OriginRegistry {
    fn views(&self) -> Vec<OriginView> {
        // Sorted, so that two listings of the same state have the same order and the same tag.
        let mut origins = BTreeMap::<String, BTreeMap<String, ServerView>>::new();
        for (origin, servers) in self.in_use() {
            let views = origins.entry(origin.name.clone()).or_default();
            self.add_views(&origin, &servers, views);
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
        for (_, servers) in &named {
            apply(servers, address, state, self.now_ms());
        }
        Ok(())
    }

    fn add_server(&self, origin: &str, server: &AddedServer) -> Result<(), OriginRefusal> {
        let named = self.named(origin)?;
        let (config, _) = &named[0];
        let Some((_, address)) = added_server(config, server) else {
            return Err(OriginRefusal::InvalidAddress);
        };
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
        for (config, servers) in &named {
            if let (Some(group), Some((added, address))) =
                (servers.group(), added_server(config, &server))
                // The files of TLS were read for the other servers; one that has vanished since is reported by a reload.
                && let Ok(transport) = self.build_transport(config, &added)
            {
                add_member(
                    group,
                    (added, transport, address),
                    server.mode,
                    self.now_ms(),
                );
            }
        }
        Ok(())
    }

    fn remove_server(&self, origin: &str, address: &str) -> Result<(), OriginRefusal> {
        let named = self.named(origin)?;
        if self.changes.get(origin, address).added.is_none() {
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
        for group in named.iter().filter_map(|(_, servers)| servers.group()) {
            let removed = group.upstream.with(|members| {
                let member = members.find(|endpoint| has_address(endpoint, address))?;
                members.remove(member)?;
                Some(member)
            });
            if let (Some(member), Some(checks)) = (removed, &group.checks) {
                checks.end(member);
            }
        }
        Ok(())
    }

    fn kept_changes(&self) -> Vec<KeptChange> {
        self.changes.list()
    }

    fn restore_changes(&self, changes: &[KeptChange]) {
        self.changes.restore(changes);
    }

    fn retain_changes(&self, names: &HashSet<&str>) {
        self.changes.retain(names);
    }
}

/// The configuration of an added server, with its address; `None` if the address is malformed.
fn added_server(
    origin: &OriginConfig,
    added: &AddedServer,
) -> Option<(OriginServer, ServerAddress)> {
    let (url, address) = match added.address.strip_prefix("unix:") {
        Some(path) if path.starts_with('/') => {
            let path = PathBuf::from(path);
            (OriginUrl::Unix(path.clone()), ServerAddress::Unix(path))
        }
        Some(_) => return None,
        // Only names in the configuration are looked up.
        None => {
            let address: SocketAddr = added.address.parse().ok()?;
            let url = OriginUrl::Http {
                encrypted: origin.is_encrypted(),
                host: address.ip().to_string(),
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
    Some((server, address))
}

fn add_member(group: &OriginGroup, added: AddedMember, mode: ServerMode, now_ms: u64) {
    let (server, mut transport, address) = added;
    transport.sticky = group.sticky.clone();
    let new = NewMember {
        name: server.url.to_string().into(),
        weight: server.weight,
        backup: server.backup,
    };
    let endpoint = transport.create_endpoint(address, false);
    let mode = live_changes::member_mode(mode);
    let member = group.upstream.with(|members| {
        let member = members.add(new, endpoint, now_ms);
        members.set_mode(member, mode, now_ms);
        member
    });
    group.checks.iter().for_each(|checks| checks.begin(member));
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

/// Applies a change to all members at an address: a name and an address may both be configured.
fn apply(servers: &OriginServers, address: &str, state: ServerChanges, now_ms: u64) {
    match servers.members() {
        OriginMembers::One(only) => {
            if has_address(&only.endpoint, address) {
                only.set_mode(state.mode);
            }
        }
        OriginMembers::Group(group) => {
            // A name may resolve to the address of another server of the origin.
            let members: Vec<MemberId> = group.upstream.with(|members| {
                let statuses = members.status(now_ms);
                let at_address = statuses.iter().filter(|it| {
                    let target = members.target(it.member);
                    target.is_some_and(|endpoint| has_address(endpoint, address))
                });
                at_address.map(|it| it.member).collect()
            });
            for member in members {
                live_changes::set_member(&group.upstream, member, state, now_ms);
            }
        }
    }
}

fn only_view(only: &OnlyServer) -> ServerView {
    let mode = only.mode();
    let state = match mode {
        ServerMode::Auto | ServerMode::Up => MemberHealth::Up,
        ServerMode::Drain => MemberHealth::Draining,
        ServerMode::Down => MemberHealth::OutOfService,
    };
    ServerView {
        is_available: state == MemberHealth::Up,
        state: state.to_string(),
        ..endpoint_view(&only.endpoint, mode)
    }
}

fn group_views(group: &OriginGroup, now_ms: u64) -> Vec<ServerView> {
    let members: Vec<_> = group.upstream.with(|members| {
        let statuses = members.status(now_ms).into_iter();
        let with_endpoint =
            statuses.filter_map(|it| Some((members.target(it.member)?.clone(), it)));
        with_endpoint.collect()
    });
    let views = members.into_iter().map(|(endpoint, status)| {
        // The two crates have no type in common.
        let mode = match status.mode {
            MemberMode::Auto => ServerMode::Auto,
            MemberMode::Up => ServerMode::Up,
            MemberMode::Drain => ServerMode::Drain,
            MemberMode::Down => ServerMode::Down,
        };
        ServerView {
            is_available: status.health.is_available(),
            state: status.health.to_string(),
            is_backup: status.backup,
            weight: status.weight,
            configured_weight: status.configured_weight,
            requests: Some(status.requests),
            ..endpoint_view(&endpoint, mode)
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
        state: String::new(),
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
