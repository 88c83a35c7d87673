//! Client access to the fast path: denied, dropped and allowed prefixes, the local addresses, and whether clients must
//! have been admitted by the kernel. Independent of the policy behind them.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::PoisonError;

use libbpf_rs::{MapCore, MapFlags};

use crate::error::LevelError;
use crate::layout;

use super::SoftirqLevel;

/// A prefix length and an address; IPv4 as `::ffff:a.b.c.d`.
pub type ClientPrefix = (u32, [u8; 16]);

impl SoftirqLevel {
    /// Leaves clients with this prefix (IPv4 as `::ffff:0:0/96`) to the server.
    ///
    /// # Errors
    /// If the map is full.
    pub fn deny_prefix(&self, bits: u32, address: [u8; 16]) -> Result<(), LevelError> {
        self.set_prefix(&prefix_key(&(bits, address)), layout::PREFIX_DENIED)
    }

    fn set_prefix(&self, key: &[u8], access: u32) -> Result<(), LevelError> {
        self.denied
            .update(key, &access.to_ne_bytes(), MapFlags::ANY)
            .map_err(LevelError::bpf("a prefix of clients"))
    }

    /// Denies clients with the `denied` prefixes and allows those with the `allowed` ones. The longest matching prefix
    /// decides; a prefix in both lists is denied. Prefixes of an earlier daemon are removed.
    ///
    /// # Errors
    /// If the map is full.
    pub fn set_clients(
        &self,
        denied: &[ClientPrefix],
        allowed: &[ClientPrefix],
    ) -> Result<(), LevelError> {
        let allowed = allowed
            .iter()
            .map(|prefix| (prefix, layout::PREFIX_ALLOWED));
        // Denials come last, so that they replace equal prefixes.
        let denied = denied.iter().map(|prefix| (prefix, layout::PREFIX_DENIED));
        self.set_prefixes(allowed.chain(denied))
    }

    /// Drops the SYNs of clients with these prefixes, instead of earlier ones; all other clients are answered.
    ///
    /// # Errors
    /// If the map is full.
    pub fn set_dropped_clients(&self, dropped: &[ClientPrefix]) -> Result<(), LevelError> {
        let dropped_rules = dropped
            .iter()
            .map(|prefix| (prefix, layout::PREFIX_DROPPED));
        self.set_prefixes(dropped_rules)?;
        self.change_setting(layout::SETTING_DENY, !dropped.is_empty());
        Ok(())
    }

    fn set_prefixes<'p>(
        &self,
        rules: impl Iterator<Item = (&'p ClientPrefix, u32)>,
    ) -> Result<(), LevelError> {
        let wanted: BTreeMap<Vec<u8>, u32> = rules
            .map(|(prefix, access)| (prefix_key(prefix), access))
            .collect();
        // Only superfluous prefixes are removed, so that the others apply without a gap. They are listed first: the
        // kernel continues a listing at the start if its current key was removed.
        let existing: Vec<Vec<u8>> = self.denied.keys().collect();
        for key in existing.iter().filter(|key| !wanted.contains_key(*key)) {
            self.denied
                .delete(key)
                .map_err(LevelError::bpf("a prefix of clients"))?;
        }
        wanted
            .iter()
            .try_for_each(|(key, access)| self.set_prefix(key, *access))
    }

    /// Sets whether only clients that the kernel has admitted are answered.
    pub fn set_admission(&self, is_required: bool) {
        self.change_setting(layout::SETTING_ADMIT, is_required);
    }

    /// Sets or clears one of the SETTING_ bits.
    fn change_setting(&self, bit: u32, is_set: bool) {
        let lock = self.settings_lock.lock();
        let _lock = lock.unwrap_or_else(PoisonError::into_inner);
        let settings = self.control().settings;
        let new_settings = match is_set {
            true => settings | bit,
            false => settings & !bit,
        };
        self.set_settings(new_settings);
    }

    /// Invalidates admissions made before this time.
    pub fn forget_admitted(&self, now_ns: u64) {
        self.set(offset_of!(layout::control, rules_ns), now_ns);
    }

    /// Sets the local addresses; the programs answer only SYNs to these. IPv4 as `::ffff:a.b.c.d`.
    ///
    /// # Errors
    /// If the map is full.
    pub fn set_addresses(&self, new_addresses: &[[u8; 16]]) -> Result<(), LevelError> {
        let failed = || LevelError::bpf("the addresses of this machine");
        // Only superfluous addresses are removed, so that the others stay without a gap.
        for existing in self.addresses.keys() {
            if !new_addresses
                .iter()
                .any(|address| address[..] == existing[..])
            {
                self.addresses.delete(&existing).map_err(failed())?;
            }
        }
        for address in new_addresses {
            self.addresses
                .update(address, &1u32.to_ne_bytes(), MapFlags::ANY)
                .map_err(failed())?;
        }
        Ok(())
    }
}

/// Encodes a prefix as a key of the map.
pub(crate) fn prefix_key((bits, address): &ClientPrefix) -> Vec<u8> {
    [bits.to_ne_bytes().as_slice(), address].concat()
}
