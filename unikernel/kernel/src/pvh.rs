//! The start information of PVH. Returns the addresses in it, but does not read the memory at these addresses.
//!
//! Read first: Xen's `xen/include/public/arch-x86/hvm/start_info.h`.

use crate::bytes::{u32_at, u64_at};
use crate::regions::MemoryRegion;

/// Bytes of the start information, version 1.
pub const START_INFO_LEN: usize = 56;
/// Bytes of an entry of the memory map.
pub const MAP_ENTRY_LEN: usize = 24;
/// Bytes of an entry of the module list.
pub const MODULE_LEN: usize = 32;

/// The fields in use; all addresses are physical.
#[derive(Debug, PartialEq, Eq)]
pub struct StartInfo {
    /// The address of the first module's entry, which has [`MODULE_LEN`] bytes.
    pub module: Option<u64>,
    /// The address of the command line, which ends with a zero byte.
    pub command_line: Option<u64>,
    /// The address of the ACPI root pointer.
    pub rsdp: Option<u64>,
    /// The address of the memory map, and the number of its entries.
    pub map: Option<(u64, u32)>,
}

/// Parses the start information.
#[must_use]
pub fn start_info(bytes: &[u8]) -> Option<StartInfo> {
    if u32_at(bytes, 0)? != 0x336e_c578 {
        return None;
    }
    let version = u32_at(bytes, 4)?;
    let modules = u32_at(bytes, 12)?;
    let nonzero = |address: u64| (address != 0).then_some(address);
    Some(StartInfo {
        module: nonzero(u64_at(bytes, 16)?).filter(|_| modules > 0),
        command_line: nonzero(u64_at(bytes, 24)?),
        rsdp: nonzero(u64_at(bytes, 32)?),
        map: if version >= 1 {
            nonzero(u64_at(bytes, 40)?).zip(u32_at(bytes, 48))
        } else {
            None
        },
    })
}

/// Parses an entry of the memory map; `None` if the entry is not usable memory.
#[must_use]
pub fn map_entry(bytes: &[u8]) -> Option<MemoryRegion> {
    (u32_at(bytes, 16)? == 1).then_some(MemoryRegion::new(u64_at(bytes, 0)?, u64_at(bytes, 8)?))
}

/// Parses a module's entry.
#[must_use]
pub fn module(bytes: &[u8]) -> Option<MemoryRegion> {
    Some(MemoryRegion::new(u64_at(bytes, 0)?, u64_at(bytes, 8)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_info_of_both_versions_is_parsed() {
        let mut bytes = [0; START_INFO_LEN];
        bytes[..4].copy_from_slice(&0x336e_c578_u32.to_le_bytes());
        bytes[24] = 7;
        bytes[40] = 8;
        bytes[48] = 2;
        let old = start_info(&bytes).unwrap();
        assert_eq!(
            old,
            StartInfo {
                module: None,
                command_line: Some(7),
                rsdp: None,
                map: None
            }
        );
        bytes[4] = 1;
        assert_eq!(start_info(&bytes).unwrap().map, Some((8, 2)));
        bytes[0] = 0;
        assert_eq!(start_info(&bytes), None);
        assert_eq!(start_info(&[]), None);
    }
}
