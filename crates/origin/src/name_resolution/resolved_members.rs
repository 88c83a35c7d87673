//! The addresses of a name that are members, and the changes by each answer. Pure.

use std::net::SocketAddr;

use crate::group::MemberId;

/// The addresses that are members.
pub struct ResolvedMembers {
    addresses: Vec<MemberAddress>,
    misses_max: u32,
    addresses_max: usize,
}

struct MemberAddress {
    address: SocketAddr,
    member: MemberId,
    /// Successive answers without it.
    misses: u32,
}

/// The changes by an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MemberChanges {
    /// To be added.
    pub added: Vec<SocketAddr>,
    /// To be removed.
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

    /// Applies an answer. The caller must add the new addresses.
    pub fn update(&mut self, answer: &[SocketAddr]) -> MemberChanges {
        let mut changes = MemberChanges::default();
        let misses_max = self.misses_max;
        self.addresses.retain_mut(|entry| {
            // A single answer without the address may come from an incomplete server.
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
        // DNS servers rotate the order of addresses; sorted, the same ones fall below the bound each time.
        answer.sort_unstable();
        answer.dedup();
        for address in answer {
            let is_member = self.addresses.iter().any(|entry| entry.address == address);
            let count = self.addresses.len() + changes.added.len();
            // Known addresses keep their places, so that members do not alternate.
            if !is_member && count < self.addresses_max {
                changes.added.push(address);
            }
        }
        changes
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
    fn addresses_come_once_and_go_when_they_were_missed_often_enough() {
        let mut group = MemberGroup::new(GroupSettings::default());
        let mut known = ResolvedMembers::new(2, 3);
        let mut tell = |answer: &[u8]| {
            let answer: Vec<_> = answer.iter().map(|number| at(*number)).collect();
            let changes = known.update(&answer);
            for address in &changes.added {
                let new = NewMember {
                    name: address.to_string().into(),
                    weight: 1,
                    backup: false,
                };
                known.add(*address, group.add(new, (), 0));
            }
            (changes.added, changes.removed.len())
        };
        assert_eq!(tell(&[2, 1, 2]), (vec![at(1), at(2)], 0));
        assert_eq!(tell(&[1]), (vec![], 0));
        assert_eq!(tell(&[1, 2]), (vec![], 0));
        assert_eq!(tell(&[1]), (vec![], 0));
        assert_eq!(tell(&[1]), (vec![], 1));
        // At most three, the lowest first.
        assert_eq!(tell(&[9, 8, 7, 1]), (vec![at(7), at(8)], 0));
        assert_eq!(tell(&[9, 8]), (vec![], 0));
        assert_eq!(tell(&[9, 8]), (vec![at(9)], 2));
    }
}
