//! The changes of operators to the servers of origins, by origin and address. They are applied to each server that appears
//! later: after a reload, or when its name resolves to it again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lowroad_handler::origin_control::{AddedServer, KeptChange, ServerChange, ServerMode};
use lowroad_origin::group::{MemberId, MemberMode, OperatorSettings};
use lowroad_origin::{ServerAddress, Upstream};

use super::servers::OriginEndpoint;

/// The changes of all origins.
#[derive(Default)]
pub struct LiveChanges(Mutex<HashMap<String, BTreeMap<String, ServerChanges>>>);

/// The changes of one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerChanges {
    pub mode: ServerMode,
    pub weight: Option<u32>,
    /// The weight of a server that was added, and whether it is a backup.
    pub added: Option<(u32, bool)>,
}

/// The state of the only server of a route or an origin, which has no group.
pub struct SharedMode(AtomicU8);

impl SharedMode {
    /// This state.
    pub fn new(mode: ServerMode) -> SharedMode {
        SharedMode(AtomicU8::new(mode as u8))
    }

    /// The current state.
    pub fn get(&self) -> ServerMode {
        // Relaxed suffices: a request may see the decision somewhat later.
        let index = usize::from(self.0.load(Relaxed));
        ServerMode::NAMES[index.min(ServerMode::NAMES.len() - 1)].0
    }

    /// Changes the state.
    pub fn set(&self, mode: ServerMode) {
        self.0.store(mode as u8, Relaxed);
    }
}

impl LiveChanges {
    /// The changes of a server.
    pub fn get(&self, origin: &str, address: &str) -> ServerChanges {
        let origins = self.lock();
        let state = origins
            .get(origin)
            .and_then(|servers| servers.get(address).copied());
        state.unwrap_or_default()
    }

    /// The servers that were added to an origin.
    pub fn added(&self, origin: &str) -> Vec<AddedServer> {
        let origins = self.lock();
        let servers = origins.get(origin).into_iter().flatten();
        let added = servers.filter_map(|(address, state)| {
            let (weight, is_backup) = state.added?;
            Some(AddedServer {
                address: address.clone(),
                weight,
                is_backup,
                mode: state.mode,
            })
        });
        added.collect()
    }

    /// Records a change, and returns the new state of the server.
    pub fn change(&self, origin: &str, address: &str, change: ServerChange) -> ServerChanges {
        self.update(origin, address, |state| {
            state.mode = change.mode.unwrap_or(state.mode);
            state.weight = change.weight.unwrap_or(state.weight);
        })
    }

    /// Records that a server was added.
    pub fn add(&self, origin: &str, server: &AddedServer) {
        self.update(origin, &server.address, |state| {
            state.added = Some((server.weight, server.is_backup));
            state.mode = server.mode;
            // An earlier change of a server at this address is not one of this server.
            state.weight = None;
        });
    }

    /// Records that the configuration has a server that was added. Its mode and weight stay.
    pub fn forget_added(&self, origin: &str, address: &str) {
        self.update(origin, address, |state| state.added = None);
    }

    /// Forgets a server.
    pub fn forget(&self, origin: &str, address: &str) {
        self.update(origin, address, |state| *state = ServerChanges::default());
    }

    fn update(
        &self,
        origin: &str,
        address: &str,
        act: impl FnOnce(&mut ServerChanges),
    ) -> ServerChanges {
        let mut origins = self.lock();
        let servers = origins.entry(origin.to_owned()).or_default();
        let mut state = servers.remove(address).unwrap_or_default();
        act(&mut state);
        // Only deviations are kept, so that the maps do not grow.
        if state != ServerChanges::default() {
            servers.insert(address.to_owned(), state);
        }
        if servers.is_empty() {
            origins.remove(origin);
        }
        state
    }

    /// All changes.
    pub fn list(&self) -> Vec<KeptChange> {
        let origins = self.lock();
        let servers = origins
            .iter()
            .flat_map(|(origin, servers)| servers.iter().map(move |server| (origin, server)));
        let changes = servers.map(|(origin, (address, state))| KeptChange {
            origin: origin.clone(),
            address: address.clone(),
            mode: state.mode,
            weight: state.weight,
            added: state.added,
        });
        changes.collect()
    }

    /// Adds the changes of another process.
    pub fn restore(&self, changes: &[KeptChange]) {
        for change in changes {
            self.update(&change.origin, &change.address, |state| {
                *state = ServerChanges {
                    mode: change.mode,
                    weight: change.weight,
                    added: change.added,
                };
            });
        }
    }

    /// Forgets the changes of all origins except these.
    pub fn retain(&self, names: &HashSet<&str>) {
        self.lock().retain(|name, _| names.contains(&**name));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, BTreeMap<String, ServerChanges>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerChanges {
    /// The settings of the member.
    pub fn operator_settings(self) -> OperatorSettings {
        OperatorSettings {
            mode: member_mode(self.mode),
            weight: self.weight,
        }
    }
}

/// The changes of the members of a group.
#[derive(Clone)]
pub struct ChangedMembers {
    pub changes: Arc<LiveChanges>,
    pub origin: String,
    pub upstream: Weak<Upstream<Arc<OriginEndpoint>>>,
}

impl ChangedMembers {
    /// The settings of the member at an address.
    pub fn settings(&self, address: &ServerAddress) -> OperatorSettings {
        let changes = self.changes.get(&self.origin, &address.to_string());
        changes.operator_settings()
    }

    /// Applies the recorded changes to a new member: those that were made after its settings were read.
    pub fn apply(&self, member: MemberId, now_ms: u64) {
        let Some(upstream) = self.upstream.upgrade() else {
            return;
        };
        let endpoint = upstream.with(|group| group.target(member).cloned());
        let Some(endpoint) = endpoint else { return };
        let settings = self.settings(endpoint.pool().address());
        set_member(&upstream, member, settings, now_ms);
    }
}

/// Sets the operator's settings of a member.
pub fn set_member(
    upstream: &Upstream<Arc<OriginEndpoint>>,
    member: MemberId,
    settings: OperatorSettings,
    now_ms: u64,
) {
    // Under one lock, so that no request sees the mode without the weight.
    upstream.with(|group| {
        group.set_mode(member, settings.mode, now_ms);
        group.set_live_weight(member, settings.weight);
    });
}

/// The mode of a member.
pub fn member_mode(mode: ServerMode) -> MemberMode {
    match mode {
        ServerMode::Ready => MemberMode::Ready,
        ServerMode::Force => MemberMode::Force,
        ServerMode::Drain => MemberMode::Drain,
        ServerMode::Down => MemberMode::Down,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_deviations_are_kept() {
        let changes = LiveChanges::default();
        let drain = ServerChange {
            mode: Some(ServerMode::Drain),
            weight: None,
        };
        changes.change("app", "a:1", drain);
        let weight = ServerChange {
            mode: None,
            weight: Some(Some(3)),
        };
        let state = changes.change("app", "a:1", weight);
        assert_eq!((state.mode, state.weight), (ServerMode::Drain, Some(3)));
        let other = LiveChanges::default();
        other.restore(&changes.list());
        assert_eq!(other.get("app", "a:1"), state);
        let reset = ServerChange {
            mode: Some(ServerMode::Ready),
            weight: Some(None),
        };
        changes.change("app", "a:1", reset);
        assert_eq!(changes.list(), []);
        changes.forget_added("app", "a:2");
        assert!(changes.lock().is_empty());
        other.retain(&HashSet::from(["web"]));
        assert_eq!(other.list(), []);
    }

    #[test]
    fn added_server_keeps_its_changes_until_it_is_removed() {
        let changes = LiveChanges::default();
        let server = AddedServer {
            address: "a:1".into(),
            weight: 2,
            is_backup: true,
            mode: ServerMode::Drain,
        };
        changes.add("app", &server);
        assert_eq!(changes.added("app"), std::slice::from_ref(&server));
        assert_eq!(changes.added("web"), []);
        // A server that is added again has no earlier weight, and keeps its mode when it is configured.
        changes.change(
            "app",
            "a:1",
            ServerChange {
                mode: None,
                weight: Some(Some(9)),
            },
        );
        changes.add("app", &server);
        assert_eq!(changes.get("app", "a:1").weight, None);
        changes.forget_added("app", "a:1");
        let state = changes.get("app", "a:1");
        assert_eq!((state.mode, state.added), (ServerMode::Drain, None));
        changes.forget("app", "a:1");
        assert_eq!(changes.list(), []);
    }
}
