//! The addresses of the site and the symbol table, from a note that the image builder fills in. `lowroad_kernel::site`
//! documents the contract.

use core::arch::global_asm;

use lowroad_kernel::regions::MemoryRegion;
use lowroad_kernel::site::SiteNote;

use crate::loader::{boot_memory, is_mapped};

global_asm!(
    r#"
    .section .note.lowroad, "a", @note
    .p2align 2
    .long 8, 32, 1
    .asciz "Lowroad"
    .global lowroad_places
lowroad_places:
    .skip 32
    .text
"#
);

unsafe extern "C" {
    static lowroad_places: [u8; SiteNote::LEN];
}

/// The note as written by the builder.
pub fn site_note() -> SiteNote {
    // SAFETY: a static; read as volatile, since the builder changes its value after compilation.
    SiteNote::read(&unsafe { (&raw const lowroad_places).read_volatile() })
}

/// The symbol table; empty if there is none.
pub fn symbols() -> &'static [u8] {
    let note = site_note();
    bytes(MemoryRegion::new(note.symbols_address, note.symbols_len)).unwrap_or_default()
}

/// The site in the image; without one, the boot loader's module.
pub fn site(module: Option<MemoryRegion>) -> Option<MemoryRegion> {
    let note = site_note();
    let built_in = MemoryRegion::new(note.site_address, note.site_len);
    if built_in.is_empty() {
        module
    } else {
        Some(built_in)
    }
}

/// The bytes of a region that is excluded from the heap.
pub fn bytes(region: MemoryRegion) -> Option<&'static [u8]> {
    let is_present = !region.is_empty() && is_mapped(region.start, region.len());
    // SAFETY: mapped; the region is excluded from the heap (`main`), so it is never written.
    is_present.then(|| unsafe { boot_memory(region.start, region.len() as usize) })
}
