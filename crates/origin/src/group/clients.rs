//! Which clients found out something, as far as that can be kept in one word: a set of 64 classes of clients.

use std::net::IpAddr;

use super::hash::hash_of;

/// A set of classes of clients. An address is always of the same class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientSet(u64);

impl ClientSet {
    /// All clients: of what does not depend on the request.
    pub const ALL: ClientSet = ClientSet(u64::MAX);

    /// The client at an address; of IPv6 all of its network of 64 bits, which one client may have to itself.
    pub fn of_address(address: IpAddr) -> ClientSet {
        let hash = match address.to_canonical() {
            IpAddr::V4(address) => hash_of(&address.octets()),
            IpAddr::V6(address) => hash_of(&address.octets()[..8]),
        };
        ClientSet(1 << (hash % 64))
    }

    /// Those of both sets.
    #[must_use]
    pub fn union(self, other: ClientSet) -> ClientSet {
        ClientSet(self.0 | other.0)
    }

    /// How many there are, at least.
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_client_and_mapped_addresses_are_those_of_ipv4() {
        let of = |text: &str| ClientSet::of_address(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        let many = (0..=255).map(|last| of(&format!("192.0.2.{last}")));
        let all = many.fold(ClientSet::default(), ClientSet::union);
        assert!(all.len() > 50, "{all:?}");
        assert_eq!(of("192.0.2.1").len(), 1);
    }
}
