//! The addresses of a name that are members of a group; computes the changes for each answer of the resolver.

use std::net::SocketAddr;

use crate::group::MemberId;

/// The resolved addresses that are members.
pub struct ResolvedMembers {
    addresses: Vec<MemberAddress>,
    misses_max: u32,
    addresses_max: usize,
}

struct MemberAddress {
    address: SocketAddr,
    member: MemberId,
    /// The number of successive answers without this address.
    misses: u32,
}

/// The changes that an answer requires.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MemberChanges {
    /// The addresses to be added.
    pub added: Vec<SocketAddr>,
    /// The members to be removed.
    pub removed: Vec<MemberId>,
}

impl ResolvedMembers {
    /// No addresses.
    pub fn new(misses_max: u32, addresses_max: usize) -> ResolvedMembers {
        ResolvedMembers {
            addresses: Vec::new(),
            misses_max: misses_max.max(1),
            addresses_max: addresses_max.max(1),
        }
    }

    /// Applies an answer, and returns the changes. The caller must call [`ResolvedMembers::add`] for each new address.
    pub fn update(&mut self, answer: &[SocketAddr]) -> MemberChanges {
        let mut changes = MemberChanges::default();
        let misses_max = self.misses_max;
        self.addresses.retain_mut(|entry| {
            // A single answer without the address does not remove it.
            let is_missed = !answer.contains(&entry.address);
            // Some DNS servers return only a part of the addresses each time.
            entry.misses = if is_missed { entry.misses + 1 } else { 0 };
            let is_retained = entry.misses < misses_max;
            if !is_retained {
                changes.removed.push(entry.member);
            }
            is_retained
        });
        let mut answer = answer.to_vec();
        // DNS servers rotate the order of addresses; sorted, the same addresses are selected each time.
        answer.sort_unstable();
        answer.dedup();
        for address in answer {
            let is_member = self.addresses.iter().any(|entry| entry.address == address);
            let count = self.addresses.len() + changes.added.len();
            // Existing members are never replaced by new addresses, so that members do not alternate.
            if !is_member && count < self.addresses_max {
                changes.added.push(address);
            }
        }
        changes
    }

    /// Whether an address was missing in the last answer.
    pub fn has_misses(&self) -> bool {
        self.addresses.iter().any(|entry| entry.misses > 0)
    }

    /// The addresses with their members.
    pub fn iter(&self) -> impl Iterator<Item = (SocketAddr, MemberId)> {
        self.addresses.iter().map(|it| (it.address, it.member))
    }

    /// Records that a new address is a member.
    pub fn add(&mut self, address: SocketAddr, member: MemberId) {
        self.addresses.push(MemberAddress {
            address,
            member,
            misses: 0,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::{GroupSettings, MemberGroup, NewMember};

    fn at(number: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, number], 80))
    }

    #[test]
    fn addresses_are_added_once_and_removed_after_misses_max() {
        let mut group = MemberGroup::new(GroupSettings::default());
        let mut members = ResolvedMembers::new(2, 3);
        let mut tell = |answer: &[u8]| {
            let answer: Vec<_> = answer.iter().map(|number| at(*number)).collect();
            let changes = members.update(&answer);
            for address in &changes.added {
                let new = NewMember {
                    name: address.to_string().into(),
                    weight: 1,
                    backup: false,
                };
                members.add(*address, group.add(new, (), 0));
            }
            (changes.added, changes.removed.len())
        };
        assert_eq!(tell(&[2, 1, 2]), (vec![at(1), at(2)], 0));
        assert_eq!(tell(&[1]), (vec![], 0));
        assert_eq!(tell(&[1, 2]), (vec![], 0));
        assert_eq!(tell(&[1]), (vec![], 0));
        assert_eq!(tell(&[1]), (vec![], 1));
        // At most three addresses, the lowest first.
        assert_eq!(tell(&[9, 8, 7, 1]), (vec![at(7), at(8)], 0));
        assert_eq!(tell(&[9, 8]), (vec![], 0));
        assert_eq!(tell(&[9, 8]), (vec![at(9)], 2));
    }
}
