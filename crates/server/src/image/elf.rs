//! Builds images, and finds the site in an image. An image is an ELF file: the kernel, with the site's archive in an
//! additional segment that `lowroad_kernel_image` appends.
//!
//! For the format see elf(5).

use lowroad_embedded_kernel::KERNEL;

const PT_LOAD: usize = 1;
/// An archive's first bytes.
const ARCHIVE: &[u8] = b"lowroad\x02";

/// Builds a site's image from the kernel and the archive.
///
/// # Errors
/// When this program contains no kernel for images.
pub fn image(archive: &[u8]) -> Result<Vec<u8>, String> {
    let kernel = KERNEL
        .ok_or("this lowroad has no kernel for images: only a build for x86_64 Linux has one")?;
    lowroad_kernel_image::build(kernel, archive).map_err(|error| error.to_string())
}

/// Returns the archive in an image, or the file itself if it is an archive.
pub fn site(image: &[u8]) -> Option<&[u8]> {
    if image.starts_with(ARCHIVE) {
        return Some(image);
    }
    let mut loaded = headers(image)?
        .into_iter()
        .filter(|header| header.kind == PT_LOAD);
    loaded.find_map(|header| {
        let segment = image.get(header.offset..)?.get(..header.len)?;
        // The segment may be longer than the archive. The header of the archive contains the archive's length.
        let len = number::<4>(segment, ARCHIVE.len())?;
        segment.get(..len).filter(|site| site.starts_with(ARCHIVE))
    })
}

/// A program header.
struct ProgramHeader {
    kind: usize,
    offset: usize,
    len: usize,
}

fn headers(image: &[u8]) -> Option<Vec<ProgramHeader>> {
    // Only 64-bit, little-endian ELF files have headers of this form.
    image.strip_prefix(b"\x7fELF\x02\x01")?;
    // `e_phoff`, `e_phentsize` and `e_phnum` of the ELF header.
    let table_at = number::<8>(image, 32)?;
    let (len, count) = (number::<2>(image, 54)?, number::<2>(image, 56)?);
    // Checked arithmetic: the file may be damaged or hostile.
    let headers = (0..count).map(|entry| {
        let header_at = table_at.checked_add(entry * len)?;
        let header = image.get(header_at..)?;
        Some(ProgramHeader {
            // `p_type`, `p_offset` and `p_filesz`.
            kind: number::<4>(header, 0)?,
            offset: number::<8>(header, 8)?,
            len: number::<8>(header, 32)?,
        })
    });
    headers.collect()
}

/// A little-endian number of `N` bytes.
fn number<const N: usize>(bytes: &[u8], offset: usize) -> Option<usize> {
    let bytes: &[u8; N] = bytes.get(offset..)?.first_chunk()?;
    let number = bytes
        .iter()
        .rev()
        .fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    usize::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_unikernel::archive::ArchiveBuilder;

    #[test]
    fn archive_is_found_in_image() {
        let mut builder = ArchiveBuilder::new();
        builder.setting("a", "b");
        let archive = builder.finish().expect("short");
        assert_eq!(site(&archive), Some(&archive[..]));
        let Some(kernel) = KERNEL else { return };
        let image = image(&archive).expect("a kernel that takes a site");
        assert_eq!(site(&image), Some(&archive[..]));
        assert_eq!(site(kernel), None);
        let site_at = image
            .windows(archive.len())
            .position(|part| part == archive);
        for len in (0..site_at.expect("it is in it")).step_by(1000) {
            assert_eq!(site(&image[..len]), None, "{len} bytes");
        }
    }
}
