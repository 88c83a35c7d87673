//! The map of memory: everything where it is. The first 4 GiB are mapped by `boot`; this maps what lies above, by 2 MiB,
//! and, once there is a heap, makes faults of what must not be done.

use core::arch::asm;
use core::ptr::with_exposed_provenance_mut;

use crate::{cpu, heap};

const LARGE: u64 = 2 << 20;
const PRESENT: u64 = 1;
const PRESENT_WRITABLE: u64 = 3;
const IS_LARGE: u64 = 0x80;
const EFER: u32 = 0xc000_0080;

unsafe extern "C" {
    static map_top: u8;
    static mut map_1g: u8;
    static stack_guard: u8;
    static image_start: u8;
    static text_end: u8;
    static data_start: u8;
    static image_end: u8;
}

/// Maps the memory from `start` on, `len` bytes; only addresses above 4 GiB need it. False: there is no memory for it.
pub fn map(start: u64, len: u64) -> bool {
    let mut at = start & !(LARGE - 1);
    while at < start.saturating_add(len) {
        if !map_large(at) {
            return false;
        }
        at += LARGE;
    }
    true
}

fn map_large(address: u64) -> bool {
    let Some(top) = table(&raw const map_top as u64, address >> 39) else {
        return false;
    };
    let Some(second) = table(top, address >> 30) else {
        return false;
    };
    let entry = with_exposed_provenance_mut::<u64>(second as usize)
        .wrapping_add((address >> 21 & 511) as usize);
    // SAFETY: within a table, by `table`. A mapping that is there is left as it is, so nothing changes under a pointer.
    unsafe {
        if entry.read() == 0 {
            entry.write_volatile(address | PRESENT_WRITABLE | IS_LARGE);
        }
    }
    true
}

/// The table below `parent` for what `index` (its low 9 bits) says; made if it is not there.
fn table(parent: u64, index: u64) -> Option<u64> {
    let entry =
        with_exposed_provenance_mut::<u64>(parent as usize).wrapping_add((index & 511) as usize);
    // SAFETY: `parent` is a table of 512 entries.
    unsafe {
        if entry.read() == 0 {
            entry.write_volatile(heap::pages(4096)?.as_ptr() as u64 | PRESENT_WRITABLE);
        }
        Some(entry.read() & 0x000f_ffff_ffff_f000)
    }
}

/// Takes from the map what nobody should do: write to code and constants, run what is not code, use the page below the
/// stack, or that of address 0.
pub fn protect() {
    let no_execute = if cpu::id(0x8000_0001, 0).edx & 1 << 20 != 0 {
        cpu::write_msr(EFER, cpu::read_msr(EFER) | 1 << 11);
        1 << 63
    } else {
        0
    };
    let mut at = 0;
    while at < &raw const image_end as u64 {
        split(at, no_execute);
        at += LARGE;
    }
    // Only what lies above: this very code must stay code at every step.
    for n in (at / LARGE) as usize..2048 {
        // SAFETY: one of the entries that `boot` has made for the first 4 GiB; what is there stays there.
        unsafe {
            let entry = (&raw mut map_1g).cast::<u64>().add(n);
            entry.write_volatile(entry.read() | no_execute);
        }
    }
    // SAFETY: the same map as before, but for what is said above.
    unsafe { asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _, options(nostack, preserves_flags)) }
}

/// Maps 2 MiB by pages, each as its use wants.
fn split(large: u64, no_execute: u64) {
    let Some(pages) = heap::pages(4096) else {
        return;
    };
    for n in 0..512 {
        let address = large + n * 4096;
        let flags = flags(address, no_execute);
        let entry = if flags == 0 { 0 } else { address | flags };
        // SAFETY: within the new page.
        unsafe { pages.as_ptr().cast::<u64>().add(n as usize).write(entry) }
    }
    // SAFETY: the entry of this large page; what is mapped stays where it is.
    unsafe {
        let entry = (&raw mut map_1g)
            .cast::<u64>()
            .add((large / LARGE) as usize);
        entry.write_volatile(pages.as_ptr() as u64 | PRESENT_WRITABLE);
    }
}

fn flags(address: u64, no_execute: u64) -> u64 {
    let within = |start: *const u8, end: *const u8| (start as u64..end as u64).contains(&address);
    if address == 0 || address == &raw const stack_guard as u64 {
        0
    } else if within(&raw const image_start, &raw const text_end) {
        PRESENT
    } else if within(&raw const text_end, &raw const data_start) {
        PRESENT | no_execute
    } else {
        PRESENT_WRITABLE | no_execute
    }
}

/// Takes a page of the heap from the map, so that using it is a fault. For the time before other cores run, since what
/// they remember of the map stays. False: there is no memory for the map, or it is no such page.
pub fn guard(page: u64) -> bool {
    if page >= 1 << 32 {
        return false;
    }
    // SAFETY: one of the entries for the first 4 GiB.
    let entry = unsafe { (&raw mut map_1g).cast::<u64>().add((page / LARGE) as usize) };
    // SAFETY: as above.
    let large = unsafe { entry.read_volatile() };
    if large & IS_LARGE != 0 {
        let Some(pages) = heap::pages(4096) else {
            return false;
        };
        for n in 0..512 {
            // SAFETY: within the new page; each maps what the large page has mapped there.
            unsafe {
                let to = pages.as_ptr().cast::<u64>().add(n as usize);
                to.write((large & !IS_LARGE) + n * 4096);
            }
        }
        // SAFETY: the same map as before.
        unsafe { entry.write_volatile(pages.as_ptr() as u64 | PRESENT_WRITABLE) }
    }
    // SAFETY: the entry leads to a table of pages, by what is above; nobody uses the page.
    unsafe {
        let table = entry.read_volatile() & 0x000f_ffff_ffff_f000;
        with_exposed_provenance_mut::<u64>(table as usize)
            .add(((page / 4096) & 511) as usize)
            .write_volatile(0);
        asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _, options(nostack, preserves_flags));
    }
    true
}
