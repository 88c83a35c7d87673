//! The members of an origin's group: adds and removes servers, with the changes of operators and the health checks.

use std::sync::Arc;

use lowroad_config::OriginServer;
use lowroad_origin::ServerAddress;
use lowroad_origin::group::NewMember;
use lowroad_origin::member_claims::{ClaimChange, ClaimSource, MemberClaims};

use super::OriginTransport;
use crate::proxy::checks::HealthChecks;
use crate::proxy::live_changes::ChangedMembers;
use crate::proxy::servers::OriginEndpoint;

/// The members of a group.
pub struct GroupMembers {
    /// The addresses and their sources.
    pub claims: Arc<MemberClaims<Arc<OriginEndpoint>>>,
    pub(super) changed: ChangedMembers,
    pub(super) checks: Option<Arc<HealthChecks>>,
}

impl GroupMembers {
    /// Claims an address for a source.
    pub(super) fn set(
        &self,
        source: ClaimSource,
        server: &OriginServer,
        transport: &OriginTransport,
        address: ServerAddress,
    ) {
        let new = NewMember {
            name: server.url.to_string().into(),
            weight: server.weight,
            backup: server.backup,
            operator: self.changed.settings(&address),
        };
        let now_ms = transport.now_ms();
        let create = || transport.create_endpoint(address.clone(), false);
        let change = (self.claims).set(source, address.clone(), new, create, now_ms);
        self.follow(change, now_ms);
    }

    /// Completes the changes of operators to a new member, and starts or ends health checks.
    pub(super) fn follow(&self, change: ClaimChange<Arc<OriginEndpoint>>, now_ms: u64) {
        match change {
            ClaimChange::None => {}
            ClaimChange::Added(member) => {
                self.changed.apply(member, now_ms);
                self.checks.iter().for_each(|checks| checks.begin(member));
            }
            // The checks of the previous source have its Host field.
            ClaimChange::Replaced(member) => {
                if let Some(checks) = &self.checks {
                    checks.end(member);
                    checks.begin(member);
                }
            }
            // The pool is dropped with the last request that uses it, so no connection has to be closed here.
            ClaimChange::Removed(member, _) => {
                self.checks.iter().for_each(|checks| checks.end(member));
            }
        }
    }
}
