//! Processor instructions. Access to ports and model-specific registers is by safe functions, since callers in this
//! program never use them to change memory that Rust uses.

use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, _rdtsc, CpuidResult};

/// Reads a byte from a port.
pub fn in8(port: u16) -> u8 {
    let value;
    // SAFETY: reading a port changes no memory.
    unsafe {
        asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags))
    }
    value
}

/// Reads two bytes from a port.
pub fn in16(port: u16) -> u16 {
    let value;
    // SAFETY: reading a port changes no memory.
    unsafe {
        asm!("in ax, dx", in("dx") port, out("ax") value, options(nomem, nostack, preserves_flags))
    }
    value
}

/// Reads four bytes from a port.
pub fn in32(port: u16) -> u32 {
    let value;
    // SAFETY: reading a port changes no memory.
    unsafe {
        asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack, preserves_flags))
    }
    value
}

/// Writes a byte to a port.
pub fn out8(port: u16, value: u8) {
    // SAFETY: see the module's documentation.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) }
}

/// Writes two bytes to a port.
pub fn out16(port: u16, value: u16) {
    // SAFETY: see the module's documentation.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nostack, preserves_flags)) }
}

/// Writes four bytes to a port.
pub fn out32(port: u16, value: u32) {
    // SAFETY: see the module's documentation.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags))
    }
}

/// Reads a model-specific register, which must exist.
pub fn read_msr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reading changes no memory; a missing register causes an exception, which is reported.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags))
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register, which must exist.
pub fn write_msr(register: u32, value: u64) {
    let (low, high) = (value as u32, (value >> 32) as u32);
    // SAFETY: see the module's documentation.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") low, in("edx") high, options(nostack, preserves_flags))
    }
}

/// A CPUID leaf; zeros if the processor lacks it.
pub fn id(leaf: u32, subleaf: u32) -> CpuidResult {
    let last = __cpuid_count(leaf & 0xc000_0000, 0).eax;
    let zero = CpuidResult {
        eax: 0,
        ebx: 0,
        ecx: 0,
        edx: 0,
    };
    if leaf > last {
        zero
    } else {
        __cpuid_count(leaf, subleaf)
    }
}

/// The time stamp counter.
pub fn ticks() -> u64 {
    // SAFETY: every 64-bit processor has the instruction.
    unsafe { _rdtsc() }
}

/// Orders earlier stores before later loads, as seen by devices.
pub fn store_load_fence() {
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Makes earlier stores visible before a later write to the interrupt controller. Writes to x2APIC registers do not
/// have that order by themselves (Intel SDM volume 3, 11.12.3).
pub fn store_fence() {
    // SAFETY: changes no memory.
    unsafe { asm!("mfence", "lfence", options(nostack, preserves_flags)) }
}

/// Stops this core permanently.
pub fn halt() -> ! {
    // SAFETY: interrupts stay off, so the core executes nothing further.
    unsafe { asm!("2: cli", "hlt", "jmp 2b", options(noreturn, nomem, nostack)) }
}

/// Memory-mapped registers of a device.
#[derive(Clone, Copy)]
pub struct DeviceRegisters {
    address: usize,
}

impl DeviceRegisters {
    /// # Safety
    /// The address must belong to a device, or to memory reserved for a device. It must be mapped, and no Rust object
    /// may be there.
    pub unsafe fn new(address: u64) -> DeviceRegisters {
        DeviceRegisters {
            address: address as usize,
        }
    }

    /// The physical address.
    pub fn address(self) -> u64 {
        self.address as u64
    }

    /// Registers of the same device at an offset.
    pub fn at(self, offset: usize) -> DeviceRegisters {
        DeviceRegisters {
            address: self.address.wrapping_add(offset),
        }
    }

    /// Reads the register at `offset`.
    pub fn read<T: RegisterValue>(self, offset: usize) -> T {
        // SAFETY: a register of a device, by the contract of `new`.
        unsafe { core::ptr::with_exposed_provenance::<T>(self.address + offset).read_volatile() }
    }

    /// Writes the register at `offset`.
    pub fn write<T: RegisterValue>(self, offset: usize, value: T) {
        // SAFETY: a register of a device, by the contract of `new`.
        unsafe {
            core::ptr::with_exposed_provenance_mut::<T>(self.address + offset).write_volatile(value)
        }
    }
}

/// A value of a register.
pub trait RegisterValue: Copy {}
impl RegisterValue for u8 {}
impl RegisterValue for u16 {}
impl RegisterValue for u32 {}
