//! Where the site and the symbols are. The note that the image's builder fills in is here; its rules are in
//! `lowroad_kernel::site`.

use core::arch::global_asm;

use lowroad_kernel::regions::Region;
use lowroad_kernel::site::Places;

use crate::loader::{is_mapped, left};

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
    static lowroad_places: [u8; Places::LEN];
}

/// What the builder has written.
pub fn places() -> Places {
    // SAFETY: read by volatile access, since the builder changes it behind the compiler's back.
    Places::read(&unsafe { (&raw const lowroad_places).read_volatile() })
}

/// The symbols; nothing if there are none.
pub fn symbols() -> &'static [u8] {
    let places = places();
    bytes(Region::new(places.symbols_address, places.symbols_len)).unwrap_or_default()
}

/// The site in the image, or else what the loader has brought.
pub fn site(module: Option<Region>) -> Option<Region> {
    let places = places();
    let built_in = Region::new(places.site_address, places.site_len);
    if built_in.is_empty() {
        module
    } else {
        Some(built_in)
    }
}

/// What lies in a region that nothing else is given.
pub fn bytes(region: Region) -> Option<&'static [u8]> {
    let is_there = !region.is_empty() && is_mapped(region.start, region.len());
    // SAFETY: mapped; the region is kept out of the heap (`main`), so nobody writes to it.
    is_there.then(|| unsafe { left(region.start, region.len() as usize) })
}
