//! A set of clients in one word, approximate: 64 classes of clients.

use std::net::IpAddr;

use super::hash::hash_of;

/// A set of client classes. An address always has the same class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientSet(u64);

impl ClientSet {
    /// All clients: for results independent of the request.
    pub const ALL: ClientSet = ClientSet(u64::MAX);

    /// The client at an address; for IPv6 its whole /64 network, since one client may use all of it.
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

    /// Whether no client is in both sets.
    pub fn is_disjoint(self, other: ClientSet) -> bool {
        self.0 & other.0 == 0
    }

    /// The number of clients, at least.
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_client_and_mapped_addresses_are_those_of_ipv4() {
        let of = |text: &str| ClientSet::from_address(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        let many = (0..=255).map(|last| of(&format!("192.0.2.{last}")));
        let all = many.fold(ClientSet::default(), ClientSet::union);
        assert!(all.len() > 50, "{all:?}");
        assert_eq!(of("192.0.2.1").len(), 1);
    }
}
