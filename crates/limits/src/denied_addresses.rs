//! Denied client addresses: an immutable set, compiled when an operator changes it and shared by all workers.

use std::net::IpAddr;
use std::ops::RangeInclusive;

/// The addresses of one prefix, and the end of their denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedPrefix {
    /// The first and the last address; both of the same version.
    pub addresses: RangeInclusive<IpAddr>,
    /// The end in seconds since 1970; `None`: no end.
    pub until_s: Option<u64>,
}

impl DeniedPrefix {
    fn is_in_force(&self, unix_s: u64) -> bool {
        self.until_s.is_none_or(|until_s| unix_s < until_s)
    }
}

/// A set of denied prefixes. Two prefixes are disjoint or nested, so a look-up is a binary search for the last one that
/// begins before the address, followed by the prefixes around it: at most one for each bit of an address.
#[derive(Debug, Default)]
pub struct DeniedAddresses {
    /// Sorted by the first address, the wider one first.
    prefixes: Box<[DeniedPrefix]>,
    /// The index of the narrowest prefix around each prefix.
    parents: Box<[Option<u32>]>,
}

impl DeniedAddresses {
    /// Compiles the set. IPv4 addresses must not be in IPv6-mapped form.
    #[must_use]
    pub fn new(mut prefixes: Vec<DeniedPrefix>) -> DeniedAddresses {
        // A prefix then precedes all prefixes within it.
        prefixes.sort_by(|a, b| {
            let (a, b) = (&a.addresses, &b.addresses);
            a.start().cmp(b.start()).then(b.end().cmp(a.end()))
        });
        let mut parents: Vec<Option<u32>> = Vec::with_capacity(prefixes.len());
        for (index, prefix) in prefixes.iter().enumerate() {
            // The predecessor is around this prefix, or one of the prefixes around the predecessor is, or none.
            let mut parent = index.checked_sub(1);
            while let Some(outer) = parent
                && !prefixes[outer].addresses.contains(prefix.addresses.start())
            {
                parent = parents[outer].map(|outer| outer as usize);
            }
            parents.push(parent.map(|parent| parent as u32));
        }
        DeniedAddresses {
            prefixes: prefixes.into(),
            parents: parents.into(),
        }
    }

    /// Whether the set has no prefixes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Whether an address is denied at `unix_s`, in seconds since 1970. An IPv4-mapped address counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr, unix_s: u64) -> bool {
        // The usual case, decided without a search.
        if self.prefixes.is_empty() {
            return false;
        }
        let address = address.to_canonical();
        let after = self
            .prefixes
            .partition_point(|prefix| *prefix.addresses.start() <= address);
        let mut candidate = after.checked_sub(1);
        while let Some(index) = candidate {
            let prefix = &self.prefixes[index];
            if prefix.addresses.contains(&address) && prefix.is_in_force(unix_s) {
                return true;
            }
            // The prefix may lie before the address, or have ended; a wider one may still deny the address.
            candidate = self.parents[index].map(|outer| outer as usize);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(first: &str, last: &str, until_s: Option<u64>) -> DeniedPrefix {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        DeniedPrefix {
            addresses: address(first)..=address(last),
            until_s,
        }
    }

    #[test]
    fn addresses_of_nested_prefixes_are_denied_until_their_end() {
        let set = DeniedAddresses::new(vec![
            prefix("10.1.0.0", "10.1.255.255", Some(50)),
            prefix("192.0.2.7", "192.0.2.7", None),
            prefix("10.0.0.0", "10.255.255.255", Some(100)),
            prefix("10.1.2.0", "10.1.2.255", Some(10)),
            prefix("10.1.2.0", "10.1.2.255", Some(150)),
            prefix("2001:db8::", "2001:db8::ffff", None),
        ]);
        let is_denied = |address: &str, unix_s| set.contains(address.parse().expect("it"), unix_s);
        for (address, end_s) in [
            ("10.0.0.0", 100),
            ("10.1.1.1", 100),
            ("10.1.2.3", 150),
            ("10.1.3.0", 100),
            ("10.255.255.255", 100),
            ("192.0.2.7", u64::MAX),
            ("::ffff:192.0.2.7", u64::MAX),
            ("2001:db8::1", u64::MAX),
            ("9.255.255.255", 0),
            ("11.0.0.0", 0),
            ("192.0.2.6", 0),
            ("192.0.2.8", 0),
            ("2001:db8::1:0", 0),
            ("::1", 0),
        ] {
            // Entries without an end are denied at every time.
            assert_eq!(is_denied(address, end_s), end_s == u64::MAX, "{address}");
            assert!(end_s == 0 || is_denied(address, end_s - 1), "{address}");
        }
    }

    #[test]
    fn set_agrees_with_a_search_of_all_prefixes() {
        // All prefixes of four bits at the end of an address, in every combination of 3 out of 31.
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let all: Vec<_> = (0..5u32)
            .flat_map(|bits| {
                let len = 16u8 >> bits;
                (0..16 / len).map(move |at| address(at * len)..=address(at * len + (len - 1)))
            })
            .collect();
        for seed in 0..all.len() * all.len() * all.len() {
            let chosen = [0, 1, 2].map(|digit| seed / all.len().pow(digit) % all.len());
            let prefixes = chosen.map(|index| DeniedPrefix {
                addresses: all[index].clone(),
                until_s: Some(index as u64),
            });
            let set = DeniedAddresses::new(prefixes.to_vec());
            for last in 0..17 {
                let is_denied = prefixes.iter().any(|prefix| {
                    prefix.addresses.contains(&address(last)) && prefix.is_in_force(8)
                });
                assert_eq!(set.contains(address(last), 8), is_denied, "{prefixes:?}");
            }
        }
    }
}
