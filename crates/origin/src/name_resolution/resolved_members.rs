//! The addresses of a name that are members of a group; computes the changes for each answer of the resolver.

use std::net::SocketAddr;

/// The resolved addresses that are members.
pub struct ResolvedMembers {
    addresses: Vec<MemberAddress>,
    misses_max: u32,
    addresses_max: usize,
}

struct MemberAddress {
    address: SocketAddr,
    /// The number of successive answers without this address.
    misses: u32,
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

    /// Applies an answer, and returns the addresses that are no longer members.
    pub fn update(&mut self, answer: &[SocketAddr]) -> Vec<SocketAddr> {
        let mut removed = Vec::new();
        let misses_max = self.misses_max;
        self.addresses.retain_mut(|entry| {
            // A single answer without the address does not remove it.
            let is_missed = !answer.contains(&entry.address);
            // Some DNS servers return only a part of the addresses each time.
            entry.misses = if is_missed { entry.misses + 1 } else { 0 };
            let is_retained = entry.misses < misses_max;
            if !is_retained {
                removed.push(entry.address);
            }
            is_retained
        });
        let mut answer = answer.to_vec();
        // DNS servers rotate the order of addresses; sorted, the same addresses are selected each time.
        answer.sort_unstable();
        answer.dedup();
        for address in answer {
            let is_member = self.addresses.iter().any(|entry| entry.address == address);
            // Existing members are never replaced by new addresses, so that members do not alternate.
            if !is_member && self.addresses.len() < self.addresses_max {
                self.addresses.push(MemberAddress { address, misses: 0 });
            }
        }
        removed
    }

    /// Whether an address was missing in the last answer.
    pub fn has_misses(&self) -> bool {
        self.addresses.iter().any(|entry| entry.misses > 0)
    }

    /// The addresses that are members.
    pub fn iter(&self) -> impl Iterator<Item = SocketAddr> {
        self.addresses.iter().map(|it| it.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, number], 80))
    }

    #[test]
    fn addresses_are_added_once_and_removed_after_misses_max() {
        let mut members = ResolvedMembers::new(2, 3);
        let mut tell = |answer: &[u8]| {
            let answer: Vec<_> = answer.iter().map(|number| at(*number)).collect();
            let before: Vec<SocketAddr> = members.iter().collect();
            let removed = members.update(&answer).len();
            let added = members.iter().filter(|address| !before.contains(address));
            (added.collect::<Vec<_>>(), removed)
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
