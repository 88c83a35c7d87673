//! Address prefixes (CIDR): `192.0.2.1`, `10.0.0.0/8`, `2001:db8::/32`.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use foldhash::fast::FixedState;

use crate::value::InvalidValue;

/// All addresses of one IP version that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPrefix {
    address: IpAddr,
    /// The length of the prefix, at most the number of bits in the address.
    bits: u32,
}

impl AddressPrefix {
    /// Reads an address, with an optional number of bits after a slash.
    ///
    /// # Errors
    /// Refuses any other text, and more bits than the address has.
    pub fn parse(text: &str) -> Result<AddressPrefix, InvalidValue> {
        let refused = InvalidValue {
            expected: "an address or a prefix",
            allowed: "ADDRESS or ADDRESS/BITS: 127.0.0.1, 10.0.0.0/8, ::1, 2001:db8::/32",
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let Ok(address) = address.parse::<IpAddr>() else {
            return Err(refused);
        };
        let bits_max = len(address);
        // `str::parse` would accept a plus sign.
        let is_digits = |bits: &&str| bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits = match bits {
            None => Some(bits_max),
            Some(bits) => Some(bits)
                .filter(is_digits)
                .and_then(|bits| bits.parse().ok()),
        };
        match bits.filter(|bits| *bits <= bits_max) {
            Some(bits) => Ok(AddressPrefix { address, bits }),
            None => Err(refused),
        }
    }

    /// The same prefix with its host bits cleared: 10.0.0.0/8 for 10.0.0.1/8.
    #[must_use]
    pub fn network(&self) -> AddressPrefix {
        AddressPrefix {
            address: *self.range().start(),
            bits: self.bits,
        }
    }

    /// The first and the last address of the prefix.
    #[must_use]
    pub fn range(&self) -> RangeInclusive<IpAddr> {
        match self.address {
            IpAddr::V4(address) => {
                // `>>` by the full width would overflow: a prefix of full length has no host bits.
                let host_mask = u32::MAX.checked_shr(self.bits).unwrap_or(0);
                let first = address.to_bits() & !host_mask;
                Ipv4Addr::from(first).into()..=Ipv4Addr::from(first | host_mask).into()
            }
            IpAddr::V6(address) => {
                let host_mask = u128::MAX.checked_shr(self.bits).unwrap_or(0);
                let first = address.to_bits() & !host_mask;
                Ipv6Addr::from(first).into()..=Ipv6Addr::from(first | host_mask).into()
            }
        }
    }

    /// The number of bits and the first address in IPv6 form: IPv4 as `::ffff:a.b.c.d`.
    #[must_use]
    pub fn mapped(&self) -> (u32, [u8; 16]) {
        match *self.range().start() {
            IpAddr::V4(address) => (96 + self.bits, address.to_ipv6_mapped().octets()),
            IpAddr::V6(address) => (self.bits, address.octets()),
        }
    }

    /// Whether the prefix contains an address; an IPv4-mapped IPv6 address counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        // A dual-stack socket reports IPv4 clients as IPv4-mapped addresses.
        let address = address.to_canonical();
        let differ = match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(candidate)) => {
                // The difference is shifted to the top bits, so that `leading_zeros` counts the equal bits for both
                // families.
                u128::from(network.to_bits() ^ candidate.to_bits()) << 96
            }
            (IpAddr::V6(network), IpAddr::V6(candidate)) => network.to_bits() ^ candidate.to_bits(),
            _ => return false,
        };
        differ.leading_zeros() >= self.bits
    }
}

/// The prefixes that are a part of another one: the index of each, and the index of the other one.
pub(crate) fn contained(prefixes: &[AddressPrefix]) -> Vec<(usize, usize)> {
    let mut order: Vec<usize> = (0..prefixes.len()).collect();
    // A prefix precedes all of its parts, and equal ones have the order of the list.
    order.sort_by_key(|index| (*prefixes[*index].range().start(), prefixes[*index].bits));
    let mut found = Vec::new();
    let mut widest: Option<usize> = None;
    for index in order {
        let start = *prefixes[index].range().start();
        match widest.filter(|it| prefixes[*it].range().contains(&start)) {
            Some(widest) => found.push((index, widest)),
            None => widest = Some(index),
        }
    }
    found
}

/// The union of many prefixes; a look-up takes logarithmic time.
#[derive(Clone, Debug, Default)]
pub struct PrefixSet {
    /// The ranges in ascending order; none of them overlap.
    ranges: Vec<RangeInclusive<IpAddr>>,
}

impl PrefixSet {
    /// The union of these prefixes.
    #[must_use]
    pub fn new(prefixes: &[AddressPrefix]) -> PrefixSet {
        let mut sorted: Vec<RangeInclusive<IpAddr>> =
            prefixes.iter().map(AddressPrefix::range).collect();
        // Ranges are sorted and merged, so that a look-up is one binary search.
        sorted.sort_unstable_by_key(|range| *range.start());
        let mut ranges: Vec<RangeInclusive<IpAddr>> = Vec::new();
        for range in sorted {
            match ranges.last_mut() {
                // Two prefixes overlap only if one contains the other.
                Some(last) if range.start() <= last.end() => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                _ => ranges.push(range),
            }
        }
        PrefixSet { ranges }
    }

    /// Whether the set contains no addresses.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether one of the prefixes contains an address, as [`AddressPrefix::contains`] does.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        // Ranges do not overlap, so only the last range that starts at or before the address can contain it.
        let index = self
            .ranges
            .partition_point(|range| *range.start() <= address);
        let last = index
            .checked_sub(1)
            .and_then(|last_index| self.ranges.get(last_index));
        last.is_some_and(|range| range.contains(&address))
    }
}

/// Values by prefix; a look-up takes time proportional to the number of distinct prefix lengths.
#[derive(Clone, Debug)]
pub struct PrefixMap<T> {
    /// The prefixes of IPv4, and those of IPv6.
    families: [Vec<PrefixesOfLength<T>>; 2],
}

/// The prefixes of one length.
#[derive(Clone, Debug)]
struct PrefixesOfLength<T> {
    /// Has the bits of the prefix set.
    mask: u128,
    /// The values, by network. Clients can't choose the networks, so the hash needs no secret.
    values: HashMap<u128, Vec<T>, FixedState>,
}

impl<T> Default for PrefixMap<T> {
    fn default() -> Self {
        PrefixMap {
            families: Default::default(),
        }
    }
}

impl<T> PrefixMap<T> {
    /// Adds a value for a prefix.
    pub fn insert(&mut self, prefix: &AddressPrefix, value: T) {
        let (family, address) = number(prefix.address);
        // A shift by the full width would overflow: a prefix of no bits has all addresses.
        let unused = len(prefix.address) - prefix.bits;
        let mask = u128::MAX.checked_shl(unused).unwrap_or(0);
        let lengths = &mut self.families[family];
        // There are few distinct lengths, so a linear search is fast enough.
        let position = lengths.iter().position(|it| it.mask == mask);
        let position = position.unwrap_or_else(|| {
            let values = HashMap::default();
            lengths.push(PrefixesOfLength { mask, values });
            lengths.len() - 1
        });
        let values = &mut lengths[position].values;
        values.entry(address & mask).or_default().push(value);
    }

    /// The values of all prefixes that contain an address, as [`AddressPrefix::contains`] does.
    pub fn get(&self, address: IpAddr) -> impl Iterator<Item = &T> {
        // A dual-stack socket reports IPv4 clients as IPv4-mapped addresses.
        let (family, address) = number(address.to_canonical());
        // Each length in use takes one look-up.
        let lengths = self.families[family].iter();
        lengths.flat_map(move |it| match it.values.get(&(address & it.mask)) {
            Some(values) => values.as_slice(),
            None => &[],
        })
    }
}

/// The index of an address's family, and the address.
fn number(address: IpAddr) -> (usize, u128) {
    match address {
        IpAddr::V4(address) => (0, address.to_bits().into()),
        IpAddr::V6(address) => (1, address.to_bits()),
    }
}

impl fmt::Display for AddressPrefix {
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
    fn prefix_set_and_map_agree_with_linear_search() {
        let texts = [
            "10.0.0.0/8",
            "10.1.0.0/16",
            "192.0.2.7",
            "192.0.2.8/31",
            "::1",
            "2001:db8::/32",
            "2001:db8:1::/48",
            "::ffff:198.51.100.0/120",
        ];
        let prefixes = texts.map(|text| AddressPrefix::parse(text).expect(text));
        let set = PrefixSet::new(&prefixes);
        let mut map = PrefixMap::default();
        for (number, prefix) in prefixes.iter().enumerate() {
            map.insert(prefix, number);
        }
        for address in [
            "0.0.0.0",
            "9.255.255.255",
            "10.0.0.0",
            "10.1.2.3",
            "10.255.255.255",
            "11.0.0.0",
            "192.0.2.6",
            "192.0.2.7",
            "192.0.2.8",
            "192.0.2.9",
            "192.0.2.10",
            "198.51.100.1",
            "255.255.255.255",
            "::",
            "::1",
            "::2",
            "::ffff:10.0.0.1",
            "2001:db7:ffff::",
            "2001:db8::",
            "2001:db8:1::1",
            "2001:db8:ffff::",
            "2001:db9::",
            "ffff::",
        ] {
            let address: IpAddr = address.parse().expect(address);
            let expected = prefixes.iter().any(|prefix| prefix.contains(address));
            assert_eq!(set.contains(address), expected, "{address}");
            let mut found: Vec<usize> = map.get(address).copied().collect();
            found.sort_unstable();
            let having = (0..prefixes.len()).filter(|number| prefixes[*number].contains(address));
            assert!(having.eq(found), "{address}");
        }
        assert!(PrefixSet::new(&[]).is_empty() && !set.is_empty());
        let all = PrefixSet::new(&[AddressPrefix::parse("0.0.0.0/0").expect("all")]);
        assert!(all.contains([255; 4].into()) && !all.contains("::1".parse().expect("an address")));
    }

    #[test]
    fn parts_of_prefixes_are_found() {
        let texts = [
            "10.1.0.0/16",
            "10.0.0.1/8",
            "11.0.0.0",
            "10.2.3.4",
            "11.0.0.0",
            "::/0",
        ];
        let prefixes = texts.map(|text| AddressPrefix::parse(text).expect(text));
        assert_eq!(contained(&prefixes), [(0, 1), (3, 1), (4, 2)]);
    }

    #[test]
    fn prefix_contains_addresses_with_equal_leading_bits() {
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
            let prefix = AddressPrefix::parse(prefix).expect(prefix);
            let parsed: IpAddr = address.parse().expect(address);
            assert_eq!(
                prefix.range().contains(&parsed.to_canonical()),
                has,
                "{address}"
            );
            assert_eq!(
                prefix.contains(address.parse().expect(address)),
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
            assert!(AddressPrefix::parse(wrong).is_err(), "{wrong}");
        }
    }
}
