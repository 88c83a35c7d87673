//! An approximate set of clients in one word: each client address is hashed to one of 64 classes.

use std::net::IpAddr;

use super::hash::hash_of;

/// A set of client classes. An address always has the same class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientSet(u64);

impl ClientSet {
    /// All clients, for outcomes that do not depend on the client.
    pub const ALL: ClientSet = ClientSet(u64::MAX);

    /// The set with the client at an address. For IPv6, the whole /64 network is one client, since one client may use
    /// all of it.
    pub fn from_address(address: IpAddr) -> ClientSet {
        let hash = match address.to_canonical() {
            IpAddr::V4(address) => hash_of(&address.octets()),
            IpAddr::V6(address) => hash_of(&address.octets()[..8]),
        };
        ClientSet(1 << (hash % 64))
    }

    /// The clients of both sets.
    #[must_use]
    pub fn union(self, other: ClientSet) -> ClientSet {
        ClientSet(self.0 | other.0)
    }

    /// Whether the sets have no client in common.
    pub fn is_disjoint(self, other: ClientSet) -> bool {
        self.0 & other.0 == 0
    }

    /// A lower bound of the number of clients.
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_network_is_one_client_and_mapped_addresses_are_ipv4() {
        let of = |text: &str| ClientSet::from_address(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        let many = (0..=255).map(|last| of(&format!("192.0.2.{last}")));
        let all = many.fold(ClientSet::default(), ClientSet::union);
        assert!(all.len() > 50, "{all:?}");
        assert_eq!(of("192.0.2.1").len(), 1);
    }
}
