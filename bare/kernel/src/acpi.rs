//! ACPI's tables: how to switch off, where the interrupt controllers are. Reads bytes; where they lie is the caller's
//! affair. AML is not run: of the DSDT only the numbers of `_S5_` are looked for.
//!
//! Read first: ACPI 6.5, 5.2.5 (RSDP), 5.2.9 (FADT), 5.2.12 (MADT), 7.4.2 (`_S5`).

use crate::bytes::{u16_at, u32_at, u64_at};

/// Bytes of the head that all tables have.
pub const HEAD_LEN: usize = 36;

/// Whether the bytes add up to 0, as ACPI wants.
#[must_use]
pub fn sums_up(bytes: &[u8]) -> bool {
    bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)) == 0
}

/// The table of tables: its address, and whether addresses in it have 8 bytes.
#[must_use]
pub fn root(rsdp: &[u8]) -> Option<(u64, bool)> {
    if !rsdp.starts_with(b"RSD PTR ") || !sums_up(rsdp.get(..20)?) {
        return None;
    }
    match u64_at(rsdp, 24) {
        Some(xsdt) if rsdp[15] >= 2 && xsdt != 0 => Some((xsdt, true)),
        _ => Some((u32_at(rsdp, 16)?.into(), false)),
    }
}

/// What the fixed table says about power. Port numbers; 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Power {
    /// Hands the buttons over from the firmware, when `acpi_enable` is written to it.
    pub smi_command: u16,
    /// See `smi_command`.
    pub acpi_enable: u8,
    /// The buttons' event: what has come, and 2 bytes behind it what interrupts.
    pub event: u16,
    /// Where sleep is written to.
    pub control: u16,
    /// Counts at 3.579545 MHz.
    pub timer: u16,
    /// The interrupt's line.
    pub line: u32,
    /// Written to `control` for the machine to switch off.
    pub off: u8,
    /// Memory address that takes the same on machines without `control`.
    pub sleep_address: u64,
}

/// Reads the FADT; `off` is not in it. Gives the address of the DSDT too.
#[must_use]
pub fn power(fadt: &[u8]) -> Option<(Power, u64)> {
    let port = |at| {
        u32_at(fadt, at)
            .and_then(|port| u16::try_from(port).ok())
            .unwrap_or_default()
    };
    let reduced = u32_at(fadt, 112)? & 1 << 20 != 0;
    let dsdt = match u64_at(fadt, 140) {
        Some(address) if address != 0 => address,
        _ => u32_at(fadt, 40)?.into(),
    };
    let power = if reduced {
        let in_memory = fadt.get(244) == Some(&0);
        Power {
            sleep_address: u64_at(fadt, 248).filter(|_| in_memory).unwrap_or_default(),
            ..Power::default()
        }
    } else {
        Power {
            smi_command: port(48),
            acpi_enable: fadt[52],
            event: port(56),
            control: port(64),
            timer: port(76),
            line: u16_at(fadt, 46)?.into(),
            ..Power::default()
        }
    };
    Some((power, dsdt))
}

/// The number that means "off", out of `Name (_S5_, Package () { off, … })` in the DSDT.
#[must_use]
pub fn off(dsdt: &[u8]) -> Option<u8> {
    let at = dsdt.windows(5).position(|window| window == b"_S5_\x12")?;
    // The package's length takes 1 to 4 bytes as its first two bits say; then comes the number of its members.
    let len_len = usize::from(dsdt.get(at + 5)? >> 6) + 1;
    match *dsdt.get(at + 5 + len_len + 1..)? {
        [0x0a, number, ..] => Some(number),
        [number @ (0 | 1), ..] => Some(number),
        _ => None,
    }
}

/// An I/O interrupt controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoController {
    /// Of its registers.
    pub address: u64,
    /// Its first line.
    pub line: u32,
}

/// The I/O interrupt controllers of a MADT.
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

/// The line to which a line of old (ISA) leads, by a MADT.
#[must_use]
pub fn line_of(madt: &[u8], isa: u32) -> u32 {
    entries(madt)
        .filter(|entry| {
            entry[0] == 2 && entry.get(3).is_some_and(|source| u32::from(*source) == isa)
        })
        .find_map(|entry| u32_at(entry, 4))
        .unwrap_or(isa)
}

/// The processors of a MADT that are there and may be used, by the number of their interrupt controller, each once; the
/// first is in most machines the one that boots.
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

/// The number of an enabled processor: a local APIC (5.2.12.2) or a local x2APIC (5.2.12.12).
fn processor(entry: &[u8]) -> Option<u32> {
    let (id, flags) = match entry[0] {
        0 => (u32::from(*entry.get(3)?), u32_at(entry, 4)?),
        9 => (u32_at(entry, 4)?, u32_at(entry, 8)?),
        _ => return None,
    };
    (flags & 1 != 0).then_some(id)
}

/// Each has its kind and its length in front.
fn entries(madt: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    let mut rest = madt.get(HEAD_LEN + 8..).unwrap_or_default();
    core::iter::from_fn(move || {
        let len = usize::from(*rest.get(1)?).max(2);
        let (entry, others) = rest.split_at_checked(len)?;
        rest = others;
        Some(entry)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_is_found_in_aml() {
        assert_eq!(off(b"junk\x08_S5_\x12\x06\x04\0\0\0\0"), Some(0));
        assert_eq!(off(b"\x08_S5_\x12\x0a\x04\x0a\x05\x0a\x05\0\0"), Some(5));
        assert_eq!(off(b"\x08_S5_\x12\x41\x00\x04\x01"), Some(1));
        assert_eq!(off(b"\x08_S5_\x12"), None);
        assert_eq!(off(b""), None);
    }

    #[test]
    fn controllers_and_lines() {
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
    fn processors_that_may_be_used() {
        let mut madt = vec![0; HEAD_LEN + 8];
        madt.extend([0, 8, 0, 0, 1, 0, 0, 0]);
        madt.extend([0, 8, 1, 2, 1, 0, 0, 0]);
        // Not enabled; it could be plugged in.
        madt.extend([0, 8, 2, 3, 2, 0, 0, 0]);
        madt.extend([1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 24, 0, 0, 0]);
        // Once more, as an x2APIC, and one that only an x2APIC can name.
        madt.extend([9, 16, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
        madt.extend([9, 16, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0]);
        let all: Vec<_> = processors(&madt).collect();
        assert_eq!(all, [0, 2, 256]);
        // Too short for what they claim to be.
        madt.extend([0, 4, 0, 9]);
        madt.extend([9, 8, 0, 0, 9, 0, 0, 0]);
        madt.extend([0, 0]);
        assert_eq!(processors(&madt).count(), 3);
        for len in 0..madt.len() {
            assert!(processors(&madt[..len]).count() <= 3);
        }
    }

    #[test]
    fn a_root_must_add_up() {
        let mut rsdp = *b"RSD PTR \0LOWRD\0\0\x34\x12\0\0";
        rsdp[8] = rsdp.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte));
        assert_eq!(root(&rsdp), Some((0x1234, false)));
        rsdp[8] ^= 1;
        assert_eq!(root(&rsdp), None);
    }
}
