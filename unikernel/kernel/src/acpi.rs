//! ACPI tables: power off, interrupt controllers, processors. Parses bytes only; the caller finds the tables. AML is
//! not interpreted, except that the DSDT is searched for the numbers of `_S5_`.
//!
//! Read first: ACPI 6.5, 5.2.5 (RSDP), 5.2.9 (FADT), 5.2.12 (MADT), 7.4.2 (`_S5`).

use crate::bytes::{u16_at, u32_at, u64_at};

/// Length of the header that all tables have.
pub const HEAD_LEN: usize = 36;

/// Whether the ACPI checksum is correct: the sum of all bytes is 0.
#[must_use]
pub fn has_valid_checksum(bytes: &[u8]) -> bool {
    bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)) == 0
}

/// The root table (RSDT or XSDT): its address, and whether its entries have 8 bytes each.
#[must_use]
pub fn root(rsdp: &[u8]) -> Option<(u64, bool)> {
    // The checksum of version 1 covers 20 bytes.
    if !rsdp.starts_with(b"RSD PTR ") || !has_valid_checksum(rsdp.get(..20)?) {
        return None;
    }
    match u64_at(rsdp, 24) {
        // From revision 2 on there is an XSDT, which can refer to addresses above 4 GiB.
        Some(xsdt) if rsdp[15] >= 2 && xsdt != 0 => Some((xsdt, true)),
        _ => Some((u32_at(rsdp, 16)?.into(), false)),
    }
}

/// The power registers of the FADT, as port numbers; 0 if absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PowerRegisters {
    /// Writing `acpi_enable` to this port transfers control of the buttons from the firmware.
    pub smi_command: u16,
    /// The value to write to `smi_command`.
    pub acpi_enable: u8,
    /// The port of the event block: the status bits, and 2 bytes behind them the interrupt enable bits.
    pub event: u16,
    /// The port of the control register for sleep states.
    pub control: u16,
    /// The port of the PM timer, which counts at 3.579545 MHz.
    pub timer: u16,
    /// The interrupt line of ACPI (SCI).
    pub line: u32,
    /// The sleep type that switches the machine off.
    pub sleep_type: u8,
    /// The memory address of the sleep control register, for hardware-reduced machines, which have no `control`.
    pub sleep_address: u64,
}

/// Parses the FADT. Leaves out `sleep_type`, and also returns the address of the DSDT, which contains that.
#[must_use]
pub fn power(fadt: &[u8]) -> Option<(PowerRegisters, u64)> {
    let port = |at| {
        u32_at(fadt, at)
            .and_then(|port| u16::try_from(port).ok())
            .unwrap_or_default()
    };
    // HW_REDUCED_ACPI.
    let reduced = u32_at(fadt, 112)? & 1 << 20 != 0;
    let dsdt = match u64_at(fadt, 140) {
        // X_DSDT replaces the 32-bit field.
        Some(address) if address != 0 => address,
        _ => u32_at(fadt, 40)?.into(),
    };
    let power = if reduced {
        // Address space 0 is system memory.
        let in_memory = fadt.get(244) == Some(&0);
        PowerRegisters {
            sleep_address: u64_at(fadt, 248).filter(|_| in_memory).unwrap_or_default(),
            ..PowerRegisters::default()
        }
    } else {
        PowerRegisters {
            smi_command: port(48),
            acpi_enable: fadt[52],
            event: port(56),
            control: port(64),
            timer: port(76),
            line: u16_at(fadt, 46)?.into(),
            ..PowerRegisters::default()
        }
    };
    Some((power, dsdt))
}

/// The sleep type for power off, from `Name (_S5_, Package () { off, … })` in the DSDT.
#[must_use]
pub fn power_off_type(dsdt: &[u8]) -> Option<u8> {
    let at = dsdt.windows(5).position(|window| window == b"_S5_\x12")?;
    // The package's length takes 1 to 4 bytes, as given by its first two bits; the number of elements follows.
    let len_len = usize::from(dsdt.get(at + 5)? >> 6) + 1;
    // A byte prefix (0x0a) and a number, or one of the constants ZeroOp and OneOp.
    match *dsdt.get(at + 5 + len_len + 1..)? {
        [0x0a, number, ..] => Some(number),
        [number @ (0 | 1), ..] => Some(number),
        _ => None,
    }
}

/// An I/O interrupt controller (I/O APIC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoController {
    /// Physical address of the controller's registers.
    pub address: u64,
    /// The number of the controller's first interrupt line (GSI base).
    pub line: u32,
}

/// The I/O APICs of a MADT.
pub fn io_controllers(madt: &[u8]) -> impl Iterator<Item = IoController> {
    entries(madt)
        .filter(|entry| entry[0] == 1)
        .filter_map(|entry| {
            Some(IoController {
                address: u32_at(entry, 4)?.into(),
                line: u32_at(entry, 8)?,
            })
        })
}

/// The interrupt line to which an ISA interrupt is routed, according to a MADT.
#[must_use]
pub fn line_of(madt: &[u8], isa: u32) -> u32 {
    entries(madt)
        .filter(|entry| {
            entry[0] == 2 && entry.get(3).is_some_and(|source| u32::from(*source) == isa)
        })
        .find_map(|entry| u32_at(entry, 4))
        .unwrap_or(isa)
}

/// The APIC ids of the enabled processors of a MADT, without duplicates. On most machines, the first one is the boot
/// processor.
pub fn processors(madt: &[u8]) -> impl Iterator<Item = u32> + Clone {
    entries(madt)
        .enumerate()
        .filter_map(|(n, entry)| Some((n, processor(entry)?)))
        .filter(|(n, id)| {
            entries(madt)
                .take(*n)
                .all(|entry| processor(entry) != Some(*id))
        })
        .map(|(_, id)| id)
}

/// The APIC id of an enabled processor: a local APIC (5.2.12.2) or a local x2APIC (5.2.12.12) entry.
fn processor(entry: &[u8]) -> Option<u32> {
    let (id, flags) = match entry[0] {
        0 => (u32::from(*entry.get(3)?), u32_at(entry, 4)?),
        9 => (u32_at(entry, 4)?, u32_at(entry, 8)?),
        _ => return None,
    };
    (flags & 1 != 0).then_some(id)
}

/// The entries of a MADT; each begins with its type and its length.
fn entries(madt: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    let mut rest = madt.get(HEAD_LEN + 8..).unwrap_or_default();
    core::iter::from_fn(move || {
        // At least 2, since an entry of length 0 would cause an endless loop.
        let len = usize::from(*rest.get(1)?).max(2);
        let (entry, remaining) = rest.split_at_checked(len)?;
        rest = remaining;
        Some(entry)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_off_type_is_found_in_aml() {
        assert_eq!(power_off_type(b"junk\x08_S5_\x12\x06\x04\0\0\0\0"), Some(0));
        assert_eq!(
            power_off_type(b"\x08_S5_\x12\x0a\x04\x0a\x05\x0a\x05\0\0"),
            Some(5)
        );
        assert_eq!(power_off_type(b"\x08_S5_\x12\x41\x00\x04\x01"), Some(1));
        assert_eq!(power_off_type(b"\x08_S5_\x12"), None);
        assert_eq!(power_off_type(b""), None);
    }

    #[test]
    fn madt_lists_io_apics_and_interrupt_overrides() {
        let mut madt = vec![0; HEAD_LEN + 8];
        madt.extend([0, 8, 0, 0, 1, 0, 0, 0]);
        madt.extend([1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 24, 0, 0, 0]);
        madt.extend([2, 10, 0, 9, 20, 0, 0, 0, 0x0d, 0]);
        let all: Vec<_> = io_controllers(&madt).collect();
        assert_eq!(
            all,
            [IoController {
                address: 0xfec0_0000,
                line: 24
            }]
        );
        assert_eq!(line_of(&madt, 9), 20);
        assert_eq!(line_of(&madt, 5), 5);
        madt.extend([1, 200, 0]);
        assert_eq!(io_controllers(&madt).count(), 1);
        assert_eq!(io_controllers(&madt[..10]).count(), 0);
    }

    #[test]
    fn enabled_processors_are_listed_once() {
        let mut madt = vec![0; HEAD_LEN + 8];
        madt.extend([0, 8, 0, 0, 1, 0, 0, 0]);
        madt.extend([0, 8, 1, 2, 1, 0, 0, 0]);
        // Disabled, but could be hot-plugged.
        madt.extend([0, 8, 2, 3, 2, 0, 0, 0]);
        madt.extend([1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 24, 0, 0, 0]);
        // A duplicate as an x2APIC, and an id that only an x2APIC can have.
        madt.extend([9, 16, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
        madt.extend([9, 16, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0]);
        let all: Vec<_> = processors(&madt).collect();
        assert_eq!(all, [0, 2, 256]);
        // Entries that are too short for their type.
        madt.extend([0, 4, 0, 9]);
        madt.extend([9, 8, 0, 0, 9, 0, 0, 0]);
        madt.extend([0, 0]);
        assert_eq!(processors(&madt).count(), 3);
        for len in 0..madt.len() {
            assert!(processors(&madt[..len]).count() <= 3);
        }
    }

    #[test]
    fn root_pointer_needs_a_valid_checksum() {
        let mut rsdp = *b"RSD PTR \0LOWRD\0\0\x34\x12\0\0";
        rsdp[8] = rsdp.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte));
        assert_eq!(root(&rsdp), Some((0x1234, false)));
        rsdp[8] ^= 1;
        assert_eq!(root(&rsdp), None);
    }
}
