//! Detects netfilter rules that may filter this machine's input. Only the kernel can tell whether a certain client
//! passes the rules.
//!
//! Other filters are not detected, such as foreign eBPF programs or blackhole routes.

use std::fs;
use std::io;

use crate::machine::netlink::{self, attribute};

/// Attributes of a chain and of its hook (nf_tables.h).
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_USE: u16 = 6;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;

/// Constants of netfilter.h.
const FAMILY_INET: u8 = 1;
const FAMILY_V4: u8 = 2;
const FAMILY_NETDEV: u8 = 5;
const FAMILY_V6: u8 = 10;
const HOOK_PREROUTING: u32 = 0;
const HOOK_INPUT: u32 = 1;
const HOOK_INET_INGRESS: u32 = 5;
const HOOK_NETDEV_INGRESS: u32 = 0;
const POLICY_DROP: u32 = 0;

/// The input rules at one point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirewallRules {
    /// Whether there are any input rules.
    pub has_rules: bool,
    /// Changes with each change of nftables rules, but not with those of legacy iptables.
    generation: u32,
}

impl FirewallRules {
    /// Reads the rules of the thread's network namespace; returns `previous` if they have not changed.
    ///
    /// # Errors
    /// If the kernel does not report the rules.
    pub fn read_since(previous: Option<FirewallRules>) -> io::Result<FirewallRules> {
        let generation = netlink::generation()?;
        let has_legacy = has_old_tables();
        // Legacy tables have no generation, so their rules are read each time.
        if let Some(previous) = previous.filter(|before| before.generation == generation)
            && !has_legacy
        {
            return Ok(previous);
        }
        Ok(FirewallRules {
            has_rules: has_legacy || netlink::chains()?.iter().any(|chain| may_drop_input(chain)),
            generation,
        })
    }
}

impl FirewallRules {
    /// The state to assume if the rules can't be read: input is filtered.
    #[must_use]
    pub fn unknown() -> FirewallRules {
        FirewallRules {
            has_rules: true,
            generation: 0,
        }
    }
}

/// Whether legacy iptables has filtering tables; the current iptables uses nftables.
fn has_old_tables() -> bool {
    ["ip_tables_names", "ip6_tables_names"].iter().any(|name| {
        let names = fs::read_to_string(format!("/proc/thread-self/net/{name}"));
        names.is_ok_and(|names| names.lines().any(|table| table != "nat"))
    })
}

/// Whether a chain may drop input: it has rules, or the policy drop.
fn may_drop_input(chain: &[u8]) -> bool {
    // struct nfgenmsg: family, version, resource id.
    let Some((head, attributes)) = chain.split_at_checked(4) else {
        return false;
    };
    let number = |bytes: &[u8], kind| {
        let value = attribute(bytes, kind)?.first_chunk()?;
        Some(u32::from_be_bytes(*value))
    };
    let hook = attribute(attributes, CHAIN_HOOK).and_then(|hook| number(hook, HOOK_NUMBER));
    let is_before_sockets = matches!(
        (head[0], hook),
        (
            FAMILY_INET | FAMILY_V4 | FAMILY_V6,
            Some(HOOK_PREROUTING | HOOK_INPUT)
        ) | (FAMILY_INET, Some(HOOK_INET_INGRESS))
            | (FAMILY_NETDEV, Some(HOOK_NETDEV_INGRESS))
    );
    // Chains for address translation do not filter.
    let is_nat = attribute(attributes, CHAIN_TYPE).is_some_and(|kind| kind.starts_with(b"nat"));
    // Without the count of rules, assume that there are some.
    let has_rules = number(attributes, CHAIN_USE).is_none_or(|count| count > 0);
    let drops = number(attributes, CHAIN_POLICY) == Some(POLICY_DROP);
    is_before_sockets && !is_nat && (has_rules || drops)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(kind: u16, value: &[u8]) -> Vec<u8> {
        let len = u16::try_from(4 + value.len()).expect("short");
        let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn chain(family: u8, hook: u32, kind: &str, policy: u32, rules: u32) -> Vec<u8> {
        [
            vec![family, 0, 0, 0],
            with(CHAIN_HOOK, &with(HOOK_NUMBER, &hook.to_be_bytes())),
            with(CHAIN_POLICY, &policy.to_be_bytes()),
            with(CHAIN_USE, &rules.to_be_bytes()),
            with(CHAIN_TYPE, kind.as_bytes()),
        ]
        .concat()
    }

    #[test]
    fn input_chains_with_rules_or_drop_policy_are_detected() {
        for (family, hook) in [(1, 1), (2, 1), (10, 0), (1, 5), (5, 0)] {
            assert!(may_drop_input(&chain(family, hook, "filter", 1, 3)));
            assert!(may_drop_input(&chain(family, hook, "filter", 0, 0)));
            assert!(!may_drop_input(&chain(family, hook, "filter", 1, 0)));
            assert!(!may_drop_input(&chain(family, hook, "nat", 1, 3)));
        }
        // Hooks for forwarding and output; families ARP and bridge.
        for (family, hook) in [(1, 2), (2, 3), (3, 0), (7, 1)] {
            assert!(!may_drop_input(&chain(family, hook, "filter", 0, 3)));
        }
        assert!(!may_drop_input(&[2, 0, 0, 0]) && !may_drop_input(&[]));
    }
}
