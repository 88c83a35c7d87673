//! The client addresses that may read the counters and the log.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Networks, as pairs of network address and mask.
#[derive(Default)]
pub struct TrustedNetworks(Vec<(u32, u32)>);

impl TrustedNetworks {
    /// Parses networks and addresses, for example `192.0.2.0/24` and `198.51.100.7`.
    ///
    /// # Errors
    /// If a network is invalid: a text for the operator.
    pub fn parse<'t>(networks: impl Iterator<Item = &'t str>) -> Result<TrustedNetworks, String> {
        networks
            .map(parse_network)
            .collect::<Result<_, _>>()
            .map(TrustedNetworks)
    }

    /// Whether no address is trusted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an address is trusted.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let bits = address.to_bits();
        self.0.iter().any(|(network, mask)| bits & mask == *network)
    }
}

fn parse_network(part: &str) -> Result<(u32, u32), String> {
    let invalid = || format!("`{part}` is not a network: write 192.0.2.0/24 or 192.0.2.7");
    let (address, prefix_len) = part.split_once('/').unwrap_or((part, "32"));
    let address: Ipv4Addr = address.parse().map_err(|_| invalid())?;
    let prefix_len: u32 = prefix_len.parse().map_err(|_| invalid())?;
    if prefix_len > 32 {
        return Err(invalid());
    }
    // For /0 the shift by 32 would overflow.
    let mask = u32::MAX.checked_shl(32 - prefix_len).unwrap_or(0);
    Ok((address.to_bits() & mask, mask))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(all: &[&str]) -> Result<TrustedNetworks, String> {
        TrustedNetworks::parse(all.iter().copied())
    }

    #[test]
    fn networks_and_single_addresses_are_matched() {
        let trusted = parse(&["192.0.2.0/24", "198.51.100.7"]).expect("networks");
        for (address, is_in) in [
            ("192.0.2.255", true),
            ("192.0.3.0", false),
            ("198.51.100.7", true),
            ("198.51.100.8", false),
        ] {
            assert_eq!(
                trusted.contains(address.parse().expect("one")),
                is_in,
                "{address}"
            );
        }
        assert!(
            parse(&["0.0.0.0/0"])
                .expect("all")
                .contains([1, 2, 3, 4].into())
        );
        assert!(parse(&[]).expect("none").is_empty());
        for wrong in ["1.2.3", "1.2.3.4/33", "1.2.3.4/x", "fe80::/10"] {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
    }
}
