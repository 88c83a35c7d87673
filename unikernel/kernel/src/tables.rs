//! Finds the ACPI tables in memory, and extracts the values that are needed.

use lowroad_kernel::acpi::{self, IoController, PowerRegisters};
use lowroad_kernel::bytes::{u32_at, u64_at};

use crate::loader::{boot_memory, is_mapped};

/// Maximum length of a table; longer ones are ignored.
const TABLE_MAX: u32 = 4 << 20;
/// The usual I/O APIC of machines without ACPI, and the second one of QEMU's microvm.
const DEFAULT_IO_CONTROLLERS: [IoController; 2] = [
    IoController {
        address: 0xfec0_0000,
        line: 0,
    },
    IoController {
        address: 0xfec1_0000,
        line: 24,
    },
];

/// The information from the firmware.
pub struct FirmwareTables {
    /// The power registers; all 0 if unknown.
    pub power: PowerRegisters,
    /// The I/O APICs.
    pub controllers: [Option<IoController>; 4],
    /// The MADT, which also lists the processors.
    madt: &'static [u8],
}

impl FirmwareTables {
    /// The enabled processors, by APIC id.
    pub fn processors(&self) -> impl Iterator<Item = u32> + Clone {
        acpi::processors(self.madt)
    }
}

/// Reads the tables. Without an `rsdp` from the boot loader, searches the BIOS area for it.
pub fn read(rsdp: Option<[u8; 36]>) -> FirmwareTables {
    let mut firmware = FirmwareTables {
        power: PowerRegisters::default(),
        controllers: [
            Some(DEFAULT_IO_CONTROLLERS[0]),
            Some(DEFAULT_IO_CONTROLLERS[1]),
            None,
            None,
        ],
        madt: &[],
    };
    let Some((root, is_xsdt)) = rsdp.or_else(search).and_then(|rsdp| acpi::root(&rsdp)) else {
        return firmware;
    };
    let madt = find(root, is_xsdt, b"APIC");
    if let Some(madt) = madt {
        firmware.madt = madt;
        firmware.controllers = [None; 4];
        for (slot, controller) in firmware
            .controllers
            .iter_mut()
            .zip(acpi::io_controllers(madt))
        {
            *slot = Some(controller);
        }
    }
    if let Some((mut power, dsdt)) = find(root, is_xsdt, b"FACP").and_then(acpi::power) {
        if let Some(sleep_type) = table(dsdt).and_then(acpi::power_off_type) {
            power.sleep_type = sleep_type;
            // The FADT contains the ISA number, which the MADT may reroute.
            power.line = madt.map_or(power.line, |madt| acpi::line_of(madt, power.line));
            firmware.power = power;
        } else {
            // Without `_S5_` the machine can't be switched off, so only the timer is used.
            firmware.power = PowerRegisters {
                timer: power.timer,
                ..PowerRegisters::default()
            };
        }
    }
    firmware
}

fn search() -> Option<[u8; 36]> {
    // SAFETY: the BIOS area, which is never written.
    let area = unsafe { boot_memory(0xe_0000, 0x2_0000) };
    let n = area
        .chunks_exact(16)
        .position(|chunk| chunk.starts_with(b"RSD PTR "))?;
    area.get(n * 16..)?.first_chunk().copied()
}

fn find(root: u64, is_xsdt: bool, name: &[u8; 4]) -> Option<&'static [u8]> {
    let entries = table(root)?.get(acpi::HEAD_LEN..)?;
    let addresses = entries.chunks_exact(if is_xsdt { 8 } else { 4 });
    addresses
        .filter_map(|entry| {
            if is_xsdt {
                u64_at(entry, 0)
            } else {
                u32_at(entry, 0).map(u64::from)
            }
        })
        .filter_map(table)
        .find(|table| table.starts_with(name))
}

fn table(address: u64) -> Option<&'static [u8]> {
    if !is_mapped(address, 36) {
        return None;
    }
    // SAFETY: mapped; memory of the firmware, which the memory map does not list as usable, so it is not in the heap.
    let len = u32_at(unsafe { boot_memory(address, 36) }, 4)
        .filter(|len| (36..TABLE_MAX).contains(len))?;
    // SAFETY: as above.
    is_mapped(address, len.into()).then(|| unsafe { boot_memory(address, len as usize) })
}
