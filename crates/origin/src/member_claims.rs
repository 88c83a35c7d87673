//! The members of a group by address. The configuration, host names and operators can name the same address: it is one
//! member all the same, with the settings of its first source, so that it gets its share of the requests once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::address::ServerAddress;
use crate::group::{MemberId, NewMember};
use crate::upstream::Upstream;

/// A source of addresses, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimSource {
    /// The address at this index of the configuration.
    Configured(usize),
    /// The host name at this index of the configuration.
    Name(usize),
    /// An operator, while the server runs.
    Operator,
}

/// The change of the group that a claim has caused.
#[derive(Debug, PartialEq, Eq)]
pub enum ClaimChange<P> {
    /// The members are the same.
    None,
    /// The address has become a member.
    Added(MemberId),
    /// The member now has the settings and the target of another source. Its health, its mode and its requests stay.
    Replaced(MemberId),
    /// The address is no longer a member, which had this target.
    Removed(MemberId, P),
}

/// The addresses of a group with their sources. All are in their [canonical form](ServerAddress::canonical).
pub struct MemberClaims<P> {
    upstream: Weak<Upstream<P>>,
    addresses: Mutex<HashMap<ServerAddress, ClaimedAddress<P>>>,
}

/// The claims of one source.
pub struct SourceClaims<P> {
    /// The claims of all sources.
    pub claims: Arc<MemberClaims<P>>,
    /// The source.
    pub source: ClaimSource,
}

impl<P: Clone> SourceClaims<P> {
    /// The group.
    pub(crate) fn upstream(&self) -> &Weak<Upstream<P>> {
        &self.claims.upstream
    }

    /// See [`MemberClaims::set`].
    pub(crate) fn set(
        &self,
        address: ServerAddress,
        new: NewMember,
        create: impl FnOnce() -> P,
        now_ms: u64,
    ) -> ClaimChange<P> {
        self.claims.set(self.source, address, new, create, now_ms)
    }

    /// See [`MemberClaims::release`].
    pub(crate) fn release(&self, address: &ServerAddress) -> ClaimChange<P> {
        self.claims.release(self.source, address)
    }
}

struct ClaimedAddress<P> {
    member: MemberId,
    /// At least one, in order of precedence.
    claims: Vec<MemberClaim<P>>,
}

struct MemberClaim<P> {
    source: ClaimSource,
    new: NewMember,
    target: P,
}

impl<P: Clone> MemberClaims<P> {
    /// No addresses, for a group without members.
    pub fn new(upstream: &Arc<Upstream<P>>) -> MemberClaims<P> {
        MemberClaims {
            upstream: Arc::downgrade(upstream),
            addresses: Mutex::default(),
        }
    }

    /// Claims an address for a source, or changes its weight and priority. `create` makes the target of a new claim.
    pub fn set(
        &self,
        source: ClaimSource,
        address: ServerAddress,
        new: NewMember,
        create: impl FnOnce() -> P,
        now_ms: u64,
    ) -> ClaimChange<P> {
        let Some(upstream) = self.upstream.upgrade() else {
            return ClaimChange::None;
        };
        let mut addresses = self.lock();
        let Some(claimed) = addresses.get_mut(&address) else {
            let target = create();
            let member = upstream.with(|group| group.add(new.clone(), target.clone(), now_ms));
            let claims = vec![MemberClaim {
                source,
                new,
                target,
            }];
            addresses.insert(address, ClaimedAddress { member, claims });
            return ClaimChange::Added(member);
        };
        let leader = claimed.claims[0].source;
        match claimed.claims.iter_mut().find(|it| it.source == source) {
            Some(claim) => claim.new = new,
            None => {
                let at = claimed.claims.partition_point(|it| it.source < source);
                let target = create();
                let claim = MemberClaim {
                    source,
                    new,
                    target,
                };
                claimed.claims.insert(at, claim);
            }
        }
        claimed.update(&upstream, leader)
    }

    /// Ends the claim of a source.
    pub fn release(&self, source: ClaimSource, address: &ServerAddress) -> ClaimChange<P> {
        let Some(upstream) = self.upstream.upgrade() else {
            return ClaimChange::None;
        };
        let mut addresses = self.lock();
        let Some(claimed) = addresses.get_mut(address) else {
            return ClaimChange::None;
        };
        let leader = claimed.claims[0].source;
        claimed.claims.retain(|it| it.source != source);
        if !claimed.claims.is_empty() {
            return claimed.update(&upstream, leader);
        }
        let member = claimed.member;
        addresses.remove(address);
        match upstream.with(|group| group.remove(member)) {
            Some(target) => ClaimChange::Removed(member, target),
            None => ClaimChange::None,
        }
    }

    /// The member at an address, and the source of its settings.
    pub fn find(&self, address: &ServerAddress) -> Option<(MemberId, ClaimSource)> {
        let addresses = self.lock();
        let claimed = addresses.get(address)?;
        Some((claimed.member, claimed.claims[0].source))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ServerAddress, ClaimedAddress<P>>> {
        self.addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Clone> ClaimedAddress<P> {
    /// Gives the member the settings of the first claim. `leader`: the source of its present settings.
    fn update(&self, upstream: &Upstream<P>, leader: ClaimSource) -> ClaimChange<P> {
        let first = &self.claims[0];
        upstream.with(|group| {
            group.set_weight(self.member, first.new.weight);
            group.set_backup(self.member, first.new.backup);
            if first.source == leader {
                return ClaimChange::None;
            }
            // The sources may differ in the name of the server's certificate, and in the Host field.
            group.set_target(self.member, first.target.clone());
            ClaimChange::Replaced(self.member)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::{GroupSettings, OperatorSettings};
    use crate::retry::RetryLimits;

    fn new(weight: u32) -> NewMember {
        NewMember {
            name: "a".into(),
            weight,
            backup: false,
            operator: OperatorSettings::default(),
        }
    }

    #[test]
    fn first_source_determines_the_settings_of_the_only_member() {
        let upstream = Upstream::new(GroupSettings::default(), RetryLimits::default());
        let claims = MemberClaims::new(&upstream);
        let at = |text: &str| ServerAddress::Tcp(text.parse().expect("an address")).canonical();
        let (plain, mapped) = (at("192.0.2.1:80"), at("[::ffff:192.0.2.1]:80"));
        let set = |source, address: &ServerAddress, weight, target| {
            claims.set(source, address.clone(), new(weight), || target, 0)
        };
        let member = || {
            upstream.with(|group| {
                let statuses = group.status(0);
                assert_eq!(statuses.len(), 1);
                (
                    statuses[0].weight,
                    *group.target(statuses[0].member).expect("a target"),
                )
            })
        };
        let (named, configured) = (ClaimSource::Name(1), ClaimSource::Configured(0));
        let ClaimChange::Added(id) = set(ClaimSource::Operator, &plain, 7, 'o') else {
            panic!("not added");
        };
        assert_eq!(set(named, &mapped, 5, 'n'), ClaimChange::Replaced(id));
        assert_eq!(member(), (5, 'n'));
        assert_eq!(set(configured, &plain, 3, 'c'), ClaimChange::Replaced(id));
        // A source that is not the first one changes nothing.
        assert_eq!(set(named, &plain, 9, 'n'), ClaimChange::None);
        assert_eq!(claims.find(&mapped), Some((id, configured)));
        assert_eq!(
            claims.release(ClaimSource::Operator, &plain),
            ClaimChange::None
        );
        assert_eq!(member(), (3, 'c'));
        assert_eq!(
            claims.release(configured, &mapped),
            ClaimChange::Replaced(id)
        );
        assert_eq!(member(), (9, 'n'));
        assert_eq!(claims.release(named, &plain), ClaimChange::Removed(id, 'n'));
        assert_eq!(claims.release(named, &plain), ClaimChange::None);
        assert!(upstream.with(|group| group.status(0).is_empty()));
    }
}
