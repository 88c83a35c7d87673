//! The page tables, which map addresses to themselves (identity mapping). `boot` maps the first 4 GiB; this module maps
//! higher addresses, in pages of 2 MiB, and sets the protection once there is a heap.

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

/// Maps `len` bytes from `start` on; needed only above 4 GiB. Returns false if there is no memory for page tables.
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
    // SAFETY: an entry in a table from `table`. Existing mappings are kept, so no pointer changes its meaning.
    unsafe {
        if entry.read() == 0 {
            entry.write_volatile(address | PRESENT_WRITABLE | IS_LARGE);
        }
    }
    true
}

/// The table below `parent` at `index` (its low 9 bits); created if missing.
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

/// Sets page protection: code and constants become read-only, other memory becomes non-executable, and the stack's
/// guard page and the page at address 0 are unmapped.
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
    // Only entries above the image are changed here, since this code must stay executable.
    for n in (at / LARGE) as usize..2048 {
        // SAFETY: one of the entries that `boot` made for the first 4 GiB; the mapped address does not change.
        unsafe {
            let entry = (&raw mut map_1g).cast::<u64>().add(n);
            entry.write_volatile(entry.read() | no_execute);
        }
    }
    // SAFETY: reloads the same mapping, except for the protection set above.
    unsafe { asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _, options(nostack, preserves_flags)) }
}

/// Replaces a mapping of 2 MiB with pages that have the flags for their use.
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
    // SAFETY: the entry of this large page; the mapped addresses do not change.
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

/// Unmaps a page of the heap, so that any use of it causes a fault (stack guard). Must be called before other cores
/// start, since their TLBs are not flushed. Returns false if there is no memory for page tables, or the page is above 4
/// GiB.
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
            // SAFETY: within the new page; each entry maps the same address as the large page.
            unsafe {
                let to = pages.as_ptr().cast::<u64>().add(n as usize);
                to.write((large & !IS_LARGE) + n * 4096);
            }
        }
        // SAFETY: the same mapping as before.
        unsafe { entry.write_volatile(pages.as_ptr() as u64 | PRESENT_WRITABLE) }
    }
    // SAFETY: the entry refers to a table of pages, as made above; the page is unused.
    unsafe {
        let table = entry.read_volatile() & 0x000f_ffff_ffff_f000;
        with_exposed_provenance_mut::<u64>(table as usize)
            .add(((page / 4096) & 511) as usize)
            .write_volatile(0);
        asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _, options(nostack, preserves_flags));
    }
    true
}
