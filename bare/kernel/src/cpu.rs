//! Instructions that the language has no word for. Ports and model-specific registers are offered as safe functions: what
//! is written to them here never changes memory that the program knows of. That is for the callers to keep so.

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
    // SAFETY: see the head of this file.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) }
}

/// Writes two bytes to a port.
pub fn out16(port: u16, value: u16) {
    // SAFETY: see the head of this file.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nostack, preserves_flags)) }
}

/// Writes four bytes to a port.
pub fn out32(port: u16, value: u32) {
    // SAFETY: see the head of this file.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags))
    }
}

/// Reads a model-specific register, which must exist.
pub fn read_msr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reading changes no memory; a register that does not exist is an exception, which is reported.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags))
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register, which must exist.
pub fn write_msr(register: u32, value: u64) {
    let (low, high) = (value as u32, (value >> 32) as u32);
    // SAFETY: see the head of this file.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") low, in("edx") high, options(nostack, preserves_flags))
    }
}

/// What the processor says of itself; all 0 for leaves that it does not have.
pub fn id(leaf: u32, subleaf: u32) -> CpuidResult {
    let last = __cpuid_count(leaf & 0xc000_0000, 0).eax;
    let none = CpuidResult {
        eax: 0,
        ebx: 0,
        ecx: 0,
        edx: 0,
    };
    if leaf > last {
        none
    } else {
        __cpuid_count(leaf, subleaf)
    }
}

/// The counter of the processor's clock.
pub fn ticks() -> u64 {
    // SAFETY: every 64-bit processor has it.
    unsafe { _rdtsc() }
}

/// Stores before are seen by devices before what is loaded after.
pub fn store_load_fence() {
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Stores before are seen by everybody before what is written to the interrupt controller after; an x2APIC's registers
/// wait for nothing by themselves (Intel SDM volume 3, 11.12.3).
pub fn store_fence() {
    // SAFETY: changes no memory.
    unsafe { asm!("mfence", "lfence", options(nostack, preserves_flags)) }
}

/// Ends this core: it sleeps, and nothing wakes it.
pub fn halt() -> ! {
    // SAFETY: interrupts stay off, so it runs no further.
    unsafe { asm!("2: cli", "hlt", "jmp 2b", options(noreturn, nomem, nostack)) }
}

/// Registers of a device in memory.
#[derive(Clone, Copy)]
pub struct Registers {
    address: usize,
}

impl Registers {
    /// # Safety
    /// The address is of a device (or of memory that the firmware left for it), is mapped, and no Rust object is there.
    pub unsafe fn new(address: u64) -> Registers {
        Registers {
            address: address as usize,
        }
    }

    /// Where they are.
    pub fn address(self) -> u64 {
        self.address as u64
    }

    /// Other registers of the same device, `offset` bytes on.
    pub fn at(self, offset: usize) -> Registers {
        Registers {
            address: self.address.wrapping_add(offset),
        }
    }

    /// Reads the register at `offset`.
    pub fn read<T: Plain>(self, offset: usize) -> T {
        // SAFETY: of a device by `new`.
        unsafe { core::ptr::with_exposed_provenance::<T>(self.address + offset).read_volatile() }
    }

    /// Writes the register at `offset`.
    pub fn write<T: Plain>(self, offset: usize, value: T) {
        // SAFETY: of a device by `new`.
        unsafe {
            core::ptr::with_exposed_provenance_mut::<T>(self.address + offset).write_volatile(value)
        }
    }
}

/// What a register can be.
pub trait Plain: Copy {}
impl Plain for u8 {}
impl Plain for u16 {}
impl Plain for u32 {}
