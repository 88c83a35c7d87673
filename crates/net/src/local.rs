//! The local IP address and its network.

use core::net::Ipv4Addr;

/// The local IP address, its prefix length and the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalAddress {
    pub address: u32,
    pub prefix_len: u8,
    pub gateway: Option<u32>,
}

impl LocalAddress {
    /// Converts from the API's types.
    pub(crate) fn new(
        address: Ipv4Addr,
        prefix_len: u8,
        gateway: Option<Ipv4Addr>,
    ) -> LocalAddress {
        LocalAddress {
            address: address.to_bits(),
            prefix_len,
            gateway: gateway.map(Ipv4Addr::to_bits),
        }
    }

    fn mask(self) -> u32 {
        u32::MAX
            .checked_shl(32 - u32::from(self.prefix_len.min(32)))
            .unwrap_or(0)
    }

    /// Whether an address is on the local network.
    pub(crate) fn is_on_link(self, address: u32) -> bool {
        (address ^ self.address) & self.mask() == 0
    }

    /// Whether an address is a broadcast address of the local network. Networks of /31 and /32 have none (RFC 3021).
    pub(crate) fn is_broadcast(self, address: u32) -> bool {
        address == u32::MAX
            || (self.prefix_len < 31
                && self.is_on_link(address)
                && address | self.mask() == u32::MAX)
    }

    /// The next hop to an address; `None` if the address is not on the local network and there is no gateway.
    pub(crate) fn next_hop(self, to: u32) -> Option<u32> {
        match self.is_on_link(to) {
            true => Some(to),
            false => self.gateway,
        }
    }
}
