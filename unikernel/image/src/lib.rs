//! Adds a site to the kernel's ELF file, so that this one file boots and serves the site. Follows the contract in
//! `lowroad_kernel::site`; the site's format does not matter here.
#![forbid(unsafe_code)]

mod elf;
mod names;

use lowroad_kernel::site::{SITE_ADDRESS, SiteNote};

/// The reason for which no image can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// The kernel is not a 64-bit ELF file for x86-64, or is truncated.
    NotElf,
    /// The kernel has no note named `Lowroad`, or no reserved program header.
    NotOurs,
    /// The kernel already has a site.
    HasSite,
    /// The site does not fit below 3 GiB.
    TooLong,
}

impl std::fmt::Display for ImageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ImageError::NotElf => "the kernel is not an ELF file for x86-64",
            ImageError::NotOurs => "the kernel has no place for a site",
            ImageError::HasSite => "the kernel already contains a site",
            ImageError::TooLong => "the site is too long: with the kernel it must end below 3 GiB",
        })
    }
}

impl std::error::Error for ImageError {}

/// Higher addresses are reserved by hypervisors for devices.
const END: u64 = 3 << 30;
const PAGE: usize = 4096;

/// Builds the image: the linked kernel without debug sections, with the site and a symbol table for stack traces added.
/// With an empty site, the kernel takes its site from the boot loader.
///
/// # Errors
/// `ImageError`. The kernel is not run, so other faults in it are not detected.
pub fn build(kernel: &[u8], site: &[u8]) -> Result<Vec<u8>, ImageError> {
    let elf = elf::read(kernel)?;
    // In the linked kernel, the note is all zeros.
    if elf.note_text != [0; SiteNote::LEN] {
        return Err(ImageError::HasSite);
    }
    let table = names::table(&elf::functions(kernel));
    // By contract with the kernel, the symbol table is aligned to eight bytes.
    let table_at = site.len().next_multiple_of(8);
    let added_len = (table_at + table.len()) as u64;
    if SITE_ADDRESS + added_len > END {
        return Err(ImageError::TooLong);
    }
    let note = SiteNote {
        site_address: SITE_ADDRESS,
        site_len: site.len() as u64,
        symbols_address: SITE_ADDRESS + table_at as u64,
        symbols_len: table.len() as u64,
    };
    // In a loadable segment, the offsets in the file and in memory must agree modulo the page size.
    let offset = elf.loaded_end.next_multiple_of(PAGE);
    let mut image = Vec::with_capacity(offset + table_at + table.len());
    image.extend_from_slice(&kernel[..elf.loaded_end]);
    image.resize(offset, 0);
    image.extend_from_slice(site);
    image.resize(offset + table_at, 0);
    image.extend_from_slice(&table);
    image[elf.note_at..elf.note_at + SiteNote::LEN].copy_from_slice(&note.write());
    elf::set_segment(
        &mut image,
        elf.reserved_header_at,
        offset as u64,
        SITE_ADDRESS,
        added_len,
    );
    elf::drop_sections(&mut image);
    Ok(image)
}

#[cfg(test)]
mod tests;
