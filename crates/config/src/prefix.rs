//! Addresses that begin alike: `192.0.2.1`, `10.0.0.0/8`, `2001:db8::/32`. Knows nothing of what they are for.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use crate::value::Refused;

/// All addresses of one kind whose first bits are these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    /// At most as many as the address has.
    bits: u32,
}

impl Prefix {
    /// Reads an address, with or without a number of bits behind a slash.
    ///
    /// # Errors
    /// Any other text, and more bits than the address has.
    pub fn parse(text: &str) -> Result<Prefix, Refused> {
        let refused = Refused {
            what: "an address or a prefix",
            allowed: "ADDRESS or ADDRESS/BITS: 127.0.0.1, 10.0.0.0/8, ::1, 2001:db8::/32",
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let Ok(address) = address.parse::<IpAddr>() else {
            return Err(refused);
        };
        let most = len(address);
        let is_digits = |bits: &&str| bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits = match bits {
            None => Some(most),
            Some(bits) => Some(bits)
                .filter(is_digits)
                .and_then(|bits| bits.parse().ok()),
        };
        match bits.filter(|bits| *bits <= most) {
            Some(bits) => Ok(Prefix { address, bits }),
            None => Err(refused),
        }
    }

    /// The first and the last address.
    #[must_use]
    pub fn range(&self) -> RangeInclusive<IpAddr> {
        match self.address {
            IpAddr::V4(address) => {
                let rest = u32::MAX.checked_shr(self.bits).unwrap_or(0);
                let first = address.to_bits() & !rest;
                Ipv4Addr::from(first).into()..=Ipv4Addr::from(first | rest).into()
            }
            IpAddr::V6(address) => {
                let rest = u128::MAX.checked_shr(self.bits).unwrap_or(0);
                let first = address.to_bits() & !rest;
                Ipv6Addr::from(first).into()..=Ipv6Addr::from(first | rest).into()
            }
        }
    }

    /// Whether it has an address; one of IPv4 that came by IPv6 counts as what it is.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let differ = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                u128::from(own.to_bits() ^ other.to_bits()) << 96
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => own.to_bits() ^ other.to_bits(),
            _ => return false,
        };
        differ.leading_zeros() >= self.bits
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bits == len(self.address) {
            true => self.address.fmt(f),
            false => write!(f, "{}/{}", self.address, self.bits),
        }
    }
}

fn len(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_have_what_begins_so() {
        for (prefix, address, has) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("127.0.0.1", "::ffff:127.0.0.1", true),
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "::1", false),
            ("2001:db8::/32", "2001:db8:1::", true),
            ("2001:db8::/32", "2001:db9::", false),
            ("::/0", "::1", true),
        ] {
            let prefix = Prefix::parse(prefix).expect(prefix);
            let parsed: IpAddr = address.parse().expect(address);
            assert_eq!(
                prefix.range().contains(&parsed.to_canonical()),
                has,
                "{address}"
            );
            assert_eq!(
                prefix.has(address.parse().expect(address)),
                has,
                "{address}"
            );
        }
        for wrong in [
            "",
            "a",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "::/129",
            "10.0/8",
        ] {
            assert!(Prefix::parse(wrong).is_err(), "{wrong}");
        }
    }
}
