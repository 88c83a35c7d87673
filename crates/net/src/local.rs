//! The address of the machine, and what is near it. It knows no frames.

use core::net::Ipv4Addr;

/// Our place in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    pub address: u32,
    pub prefix_len: u8,
    pub gateway: Option<u32>,
}

impl Local {
    /// As the API has it.
    pub(crate) fn new(address: Ipv4Addr, prefix_len: u8, gateway: Option<Ipv4Addr>) -> Local {
        Local {
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

    /// Whether it is reached without a gateway.
    pub(crate) fn is_near(self, address: u32) -> bool {
        (address ^ self.address) & self.mask() == 0
    }

    /// Whether it means all machines of the network.
    pub(crate) fn is_broadcast(self, address: u32) -> bool {
        address == u32::MAX
            || (self.prefix_len < 31 && self.is_near(address) && address | self.mask() == u32::MAX)
    }

    /// Who carries what is for that address.
    pub(crate) fn next_hop(self, to: u32) -> Option<u32> {
        match self.is_near(to) {
            true => Some(to),
            false => self.gateway,
        }
    }
}
