//! The contract between the image builder and the kernel about the site's place: a note in the image. The package
//! `lowroad-kernel-image` implements the builder.
//!
//! The image is an ELF file with a program header of type `PT_NULL`, the last, reserved for the builder, and a note (in
//! `PT_NOTE`) named `Lowroad`, type 1, of `SiteNote::LEN` bytes: four little-endian numbers of 8 bytes each, all 0 as
//! linked: address and length of the site, address and length of the table of symbols (`symbols`). The builder
//! appends the site and, from the next multiple of 8 on, the table at the end of the file, at a multiple of 4096;
//! makes the reserved header a `PT_LOAD` of it, read only, with [`SITE_ADDRESS`] as both addresses; and writes the
//! note.
//!
//! Without a site in the image, the first module that the loader brings (`-initrd`, GRUB's `module2`) is the site.

use crate::bytes::u64_at;

/// The address of the builder's additions: above the low memory that firmware reserves.
pub const SITE_ADDRESS: u64 = 0x100_0000;

/// The content of the note; lengths are 0 for absent parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteNote {
    /// Physical address.
    pub site_address: u64,
    /// Length in bytes.
    pub site_len: u64,
    /// Physical address.
    pub symbols_address: u64,
    /// Length in bytes.
    pub symbols_len: u64,
}

impl SiteNote {
    /// Bytes of the note's content.
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
    fn what_is_written_is_read() {
        let places = SiteNote {
            site_address: SITE_ADDRESS,
            site_len: 5,
            symbols_address: SITE_ADDRESS + 8,
            symbols_len: 12,
        };
        assert_eq!(SiteNote::read(&places.write()), places);
    }
}
