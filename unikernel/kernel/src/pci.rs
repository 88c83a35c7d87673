//! PCI devices, found and configured through the two I/O ports that every PC has. The 256 bytes of configuration space
//! that these reach suffice for virtio devices.
//!
//! Read first: PCI Local Bus Specification 3.0, 3.2.2.3.2 (ports), 6.2 (header), 6.8.2 (MSI-X).

use crate::cpu::{DeviceRegisters, in8};
use crate::cpu::{in32, out8, out16, out32};
use crate::mapping;

/// A PCI function.
#[derive(Clone, Copy, Debug)]
pub struct PciFunction {
    config_address: u32,
}

const BRIDGE: u8 = 1;
const BUSES_MAX: usize = 64;

/// Calls `visit` for every function until it returns a result.
pub fn find<T>(mut visit: impl FnMut(PciFunction) -> Option<T>) -> Option<T> {
    let mut buses = [0_u8; BUSES_MAX];
    let (mut next, mut count) = (0, 1);
    while next < count {
        for device in 0..32_u32 {
            for number in 0..8_u32 {
                let function = PciFunction {
                    config_address: 1 << 31
                        | u32::from(buses[next]) << 16
                        | device << 11
                        | number << 8,
                };
                if function.read32(0) == u32::MAX {
                    // Without function 0 there is no device; other functions may be missing in between.
                    if number == 0 { break } else { continue }
                }
                let kind = function.read8(14);
                if kind & 0x7f == BRIDGE && count < BUSES_MAX {
                    let bus = function.read8(25);
                    // A bridge that the firmware has not configured reports bus 0.
                    if bus != 0 && !buses[..count].contains(&bus) {
                        buses[count] = bus;
                        count += 1;
                    }
                }
                if let Some(result) = visit(function) {
                    return Some(result);
                }
                if number == 0 && kind & 0x80 == 0 {
                    break;
                }
            }
        }
        next += 1;
    }
    None
}

impl PciFunction {
    fn select(self, at: u8) {
        out32(0xcf8, self.config_address | u32::from(at & 0xfc));
    }

    /// Reads four bytes; `at` is a multiple of 4.
    pub fn read32(self, at: u8) -> u32 {
        self.select(at);
        in32(0xcfc)
    }

    /// Reads a byte.
    pub fn read8(self, at: u8) -> u8 {
        self.select(at);
        in8(0xcfc + u16::from(at & 3))
    }

    fn write16(self, at: u8, value: u16) {
        self.select(at);
        out16(0xcfc + u16::from(at & 2), value);
    }

    /// Writes a byte.
    pub fn write8(self, at: u8, value: u8) {
        self.select(at);
        out8(0xcfc + u16::from(at & 3), value);
    }

    /// Vendor and device id.
    pub fn identity(self) -> (u16, u16) {
        let ids = self.read32(0);
        (ids as u16, (ids >> 16) as u16)
    }

    /// Bus, device and function, for the console.
    pub fn location(self) -> (u32, u32, u32) {
        (
            self.config_address >> 16 & 0xff,
            self.config_address >> 11 & 31,
            self.config_address >> 8 & 7,
        )
    }

    /// Enables memory access and bus mastering, and disables the interrupt line.
    pub fn enable(self) {
        // Memory space, bus mastering, interrupt disable.
        self.write16(4, self.read32(4) as u16 | 0x406);
    }

    /// The offsets of all capabilities with this id, in order.
    pub fn capabilities(self, kind: u8) -> impl Iterator<Item = u8> {
        let has_capabilities = self.read32(4) & 1 << 20 != 0;
        let mut at = if has_capabilities {
            self.read8(0x34) & 0xfc
        } else {
            0
        };
        // At most 48 capabilities fit; the bound also ends a cyclic list.
        let mut remaining = 48;
        core::iter::from_fn(move || {
            while at >= 0x40 && remaining > 0 {
                let current = at;
                remaining -= 1;
                at = self.read8(current + 1) & 0xfc;
                if self.read8(current) == kind {
                    return Some(current);
                }
            }
            None
        })
    }

    /// Maps `len` bytes at `offset` in base address register `n`. `None` if the register is for I/O ports, or the
    /// firmware has assigned no address.
    pub fn memory(self, n: u8, offset: u32, len: u32) -> Option<DeviceRegisters> {
        let at = 16 + n.checked_mul(4).filter(|at| *at < 24)?;
        let low = self.read32(at);
        if low & 1 != 0 {
            return None;
        }
        // A 64-bit base address takes two registers.
        let high = if low >> 1 & 3 == 2 && n < 5 {
            self.read32(at + 4)
        } else {
            0
        };
        let base = u64::from(high) << 32 | u64::from(low & !15);
        let start = base.checked_add(offset.into())?;
        if base == 0 || !mapping::map(start, len.into()) {
            return None;
        }
        // SAFETY: mapped registers of a device that responds at this address.
        Some(unsafe { DeviceRegisters::new(start) })
    }

    /// The number of message-signalled interrupts (MSI-X) of the device; 0 if it has none.
    pub fn messages_max(self) -> u16 {
        self.capabilities(0x11).next().map_or(0, |at| {
            // The 11 bits of the control register contain the number minus one.
            (self.read32(at) >> 16 & 0x7ff) as u16 + 1
        })
    }

    /// Enables the first MSI-X interrupts: the n-th interrupt is sent to the n-th of `addresses`. `None` if the device
    /// does not support that.
    pub fn open_messages(
        self,
        addresses: impl ExactSizeIterator<Item = u32>,
        vector: u8,
    ) -> Option<()> {
        const ENTRY_LEN: usize = 16;
        let at = self.capabilities(0x11).next()?;
        let count = addresses.len();
        if count > usize::from(self.messages_max()) {
            return None;
        }
        let table_location = self.read32(at + 4);
        let len = (count * ENTRY_LEN) as u32;
        let table = self.memory((table_location & 7) as u8, table_location & !7, len)?;
        for (n, address) in addresses.enumerate() {
            let entry = table.at(n * ENTRY_LEN);
            entry.write(0, address);
            entry.write(4, 0_u32);
            entry.write(8, u32::from(vector));
            entry.write(12, 0_u32);
        }
        // MSI-X is enabled after the entries are written.
        self.write8(at + 3, 0x80);
        Some(())
    }
}
