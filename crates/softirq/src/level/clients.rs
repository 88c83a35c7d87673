//! Client access to the fast path: denied and allowed prefixes, the local addresses, and whether clients must have been
//! admitted by the kernel. Independent of the policy behind them.

use std::mem::offset_of;

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
        self.set_prefix(&(bits, address), layout::PREFIX_DENIED)
    }

    fn set_prefix(&self, prefix: &ClientPrefix, access: u32) -> Result<(), LevelError> {
        self.denied
            .update(&prefix_key(prefix), &access.to_ne_bytes(), MapFlags::ANY)
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
        // Only superfluous prefixes are removed, so that the others apply without a gap.
        for existing in self.denied.keys() {
            let is_wanted = denied
                .iter()
                .chain(allowed)
                .any(|prefix| prefix_key(prefix) == existing);
            if !is_wanted {
                self.denied
                    .delete(&existing)
                    .map_err(LevelError::bpf("a prefix of clients"))?;
            }
        }
        // Denials are written last, so that they overwrite equal prefixes.
        let allow = |prefix| self.set_prefix(prefix, layout::PREFIX_ALLOWED);
        allowed.iter().try_for_each(allow)?;
        let deny = |prefix| self.set_prefix(prefix, layout::PREFIX_DENIED);
        denied.iter().try_for_each(deny)
    }

    /// Sets whether only clients that the kernel has admitted are answered.
    pub fn set_admission(&self, is_required: bool) {
        let settings = self.control().settings;
        let new_settings = match is_required {
            true => settings | layout::SETTING_ADMIT,
            false => settings & !layout::SETTING_ADMIT,
        };
        self.set(offset_of!(layout::control, settings), new_settings);
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
