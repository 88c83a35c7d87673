//! The paravirtual clock of KVM.
//!
//! Read first: Linux's `Documentation/virt/kvm/x86/msr.rst`, MSR_KVM_WALL_CLOCK_NEW and MSR_KVM_SYSTEM_TIME_NEW.

use crate::cpu::{self, DeviceRegisters, write_msr};
use crate::heap;

const WALL_CLOCK: u32 = 0x4b56_4d00;
const SYSTEM_TIME: u32 = 0x4b56_4d01;

fn has_clock() -> bool {
    let name = cpu::id(0x4000_0000, 0);
    let is_kvm = (name.ebx, name.ecx, name.edx) == (0x4b4d_564b, 0x564b_4d56, 0x4d);
    is_kvm && cpu::id(0x4000_0001, 0).eax & 1 << 3 != 0
}

/// Gives the hypervisor a page to write to, and lets `action` read it.
fn with_page<T>(
    register: u32,
    enable: u64,
    action: impl FnOnce(DeviceRegisters) -> T,
) -> Option<T> {
    let page = heap::pages(4096)?.as_ptr() as u64;
    write_msr(register, page | enable);
    // SAFETY: the page belongs to the hypervisor permanently; no Rust object is there.
    Some(action(unsafe { DeviceRegisters::new(page) }))
}

/// The rate of the time stamp counter.
pub fn khz() -> Option<u64> {
    if !has_clock() {
        return None;
    }
    let (multiplier, shift) = with_page(SYSTEM_TIME, 1, |page| {
        (page.read::<u32>(24), page.read::<u8>(28).cast_signed())
    })?;
    // Ends the hypervisor's updates of the page.
    write_msr(SYSTEM_TIME, 0);
    if multiplier == 0 {
        return None;
    }
    // Nanoseconds are (ticks << shift) * multiplier >> 32.
    let khz = (1_000_000_u64 << 32) / u64::from(multiplier);
    Some(if shift < 0 {
        khz << (-i32::from(shift)).min(31)
    } else {
        khz >> shift.min(31)
    })
}

/// The time at which the virtual machine started, in seconds since 1970; it is the current time only at startup.
pub fn unix_s() -> Option<u64> {
    if !has_clock() {
        return None;
    }
    with_page(WALL_CLOCK, 0, |page| page.read::<u32>(4).into()).filter(|seconds| *seconds != 0)
}
