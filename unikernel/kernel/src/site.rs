//! The contract between the image builder and the kernel about where the site is: a note in the image. The package
//! `lowroad-kernel-image` implements the builder.
//!
//! The image is an ELF file. Its last program header has type `PT_NULL` and is reserved for the builder. The file
//! contains a note (in `PT_NOTE`) named `Lowroad`, type 1, of `SiteNote::LEN` bytes: four little-endian numbers of 8
//! bytes each, which the linker leaves 0: address and length of the site, address and length of the symbol table
//! (`symbols`). The builder appends the site at the end of the file, at a multiple of 4096, and the symbol table behind
//! it at the next multiple of 8. It turns the reserved header into a read-only `PT_LOAD` of both, with [`SITE_ADDRESS`]
//! as both addresses, and fills in the note.
//!
//! Without a site in the image, the first module of the boot loader is the site (`-initrd`, GRUB's `module2`).

use crate::bytes::u64_at;

/// The address of the data that the builder adds: above the low memory that firmware reserves.
pub const SITE_ADDRESS: u64 = 0x100_0000;

/// The content of the note; lengths are 0 for absent parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteNote {
    /// Physical address of the site.
    pub site_address: u64,
    /// Length of the site in bytes.
    pub site_len: u64,
    /// Physical address of the symbol table.
    pub symbols_address: u64,
    /// Length of the symbol table in bytes.
    pub symbols_len: u64,
}

impl SiteNote {
    /// Length of the note's content in bytes.
    pub const LEN: usize = 32;

    /// Parses the note's content.
    #[must_use]
    pub fn read(bytes: &[u8; SiteNote::LEN]) -> SiteNote {
        let at = |at| u64_at(bytes, at).unwrap_or_default();
        SiteNote {
            site_address: at(0),
            site_len: at(8),
            symbols_address: at(16),
            symbols_len: at(24),
        }
    }

    /// The note's content.
    #[must_use]
    pub fn write(self) -> [u8; SiteNote::LEN] {
        let mut bytes = [0; SiteNote::LEN];
        let all = [
            self.site_address,
            self.site_len,
            self.symbols_address,
            self.symbols_len,
        ];
        for (chunk, number) in bytes.chunks_exact_mut(8).zip(all) {
            chunk.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_is_read_back_as_written() {
        let note = SiteNote {
            site_address: SITE_ADDRESS,
            site_len: 5,
            symbols_address: SITE_ADDRESS + 8,
            symbols_len: 12,
        };
        assert_eq!(SiteNote::read(&note.write()), note);
    }
}
