//! The parts of ELF that the image builder needs: program headers, the note, and function symbols.
//!
//! Read first: `elf(5)`.

use lowroad_kernel::bytes::{u16_at, u32_at, u64_at};
use lowroad_kernel::site::SiteNote;

use crate::ImageError;

const LOAD: u32 = 1;
const NOTE: u32 = 4;
const HEADER_LEN: usize = 56;
const SYMBOL_LEN: usize = 24;

/// Offsets in the kernel's file.
#[derive(Debug)]
pub struct ElfLayout {
    /// The end of the bytes that are loaded into memory.
    pub loaded_end: usize,
    /// The reserved program header.
    pub reserved_header_at: usize,
    /// The content of the note.
    pub note_at: usize,
    pub note_text: [u8; SiteNote::LEN],
}

/// Finds the positions that the builder changes.
pub fn read(file: &[u8]) -> Result<ElfLayout, ImageError> {
    // 64 bits, little endian, x86-64.
    if !file.starts_with(b"\x7fELF\x02\x01") || u16_at(file, 18) != Some(62) {
        return Err(ImageError::NotElf);
    }
    let headers = headers(file).ok_or(ImageError::NotElf)?;
    let (mut loaded_end, mut reserved_header_at, mut note_at) = (0, None, None);
    for at in headers {
        let segment = segment(file, at).ok_or(ImageError::NotElf)?;
        match u32_at(file, at) {
            Some(LOAD) => loaded_end = loaded_end.max(segment.end),
            Some(NOTE) => note_at = note_at.or_else(|| find_note(file, segment.clone())),
            Some(0) => reserved_header_at = Some(at),
            _ => {}
        }
    }
    let note_at = note_at
        .filter(|at| at + SiteNote::LEN <= loaded_end)
        .ok_or(ImageError::NotOurs)?;
    let reserved_header_at = reserved_header_at.filter(|at| at + HEADER_LEN <= loaded_end);
    let text = file
        .get(note_at..)
        .and_then(|bytes| bytes.first_chunk())
        .ok_or(ImageError::NotElf)?;
    // A kernel that already has a site has no reserved header; the caller reports the site instead.
    let is_free = *text == [0; SiteNote::LEN];
    let reserved_header_at = if is_free {
        reserved_header_at.ok_or(ImageError::NotOurs)?
    } else {
        0
    };
    Ok(ElfLayout {
        loaded_end,
        reserved_header_at,
        note_at,
        note_text: *text,
    })
}

fn headers(file: &[u8]) -> Option<impl Iterator<Item = usize> + use<>> {
    let start = usize::try_from(u64_at(file, 32)?).ok()?;
    let (len, count) = (
        usize::from(u16_at(file, 54)?),
        usize::from(u16_at(file, 56)?),
    );
    let end = start.checked_add(len.checked_mul(count)?)?;
    (len >= HEADER_LEN && end <= file.len()).then(|| (start..end).step_by(len))
}

fn segment(file: &[u8], header: usize) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(u64_at(file, header + 8)?).ok()?;
    let end = start.checked_add(usize::try_from(u64_at(file, header + 32)?).ok()?)?;
    (end <= file.len()).then_some(start..end)
}

/// The offset of the content of the note named `Lowroad`.
fn find_note(file: &[u8], segment: std::ops::Range<usize>) -> Option<usize> {
    let mut at = segment.start;
    while at < segment.end {
        let (name_len, text_len) = (u32_at(file, at)? as usize, u32_at(file, at + 4)? as usize);
        let text = at + 12 + name_len.next_multiple_of(4);
        if text_len == SiteNote::LEN
            && file.get(at + 12..)?.starts_with(b"Lowroad\0")
            && name_len == 8
        {
            return Some(text);
        }
        at = text.checked_add(text_len.checked_next_multiple_of(4)?)?;
    }
    None
}

/// Turns a program header into a read-only `PT_LOAD`.
pub fn set_segment(file: &mut [u8], header: usize, offset: u64, address: u64, len: u64) {
    file[header..header + 4].copy_from_slice(&LOAD.to_le_bytes());
    file[header + 4..header + 8].copy_from_slice(&4_u32.to_le_bytes());
    let numbers = [offset, address, address, len, len, 4096];
    for (target, number) in file[header + 8..header + HEADER_LEN]
        .chunks_exact_mut(8)
        .zip(numbers)
    {
        target.copy_from_slice(&number.to_le_bytes());
    }
}

/// Removes the reference to the section table from the header, since the sections were cut off.
pub fn drop_sections(file: &mut [u8]) {
    file[40..48].fill(0);
    file[60..64].fill(0);
}

/// The functions, sorted by address; none if the file has no symbols.
pub fn functions(file: &[u8]) -> Vec<(u32, &[u8])> {
    let mut functions = symbols(file).unwrap_or_default();
    functions.sort_unstable();
    functions.dedup_by_key(|function| function.0);
    functions
}

fn symbols(file: &[u8]) -> Option<Vec<(u32, &[u8])>> {
    let start = usize::try_from(u64_at(file, 40)?).ok()?;
    let (len, count) = (
        usize::from(u16_at(file, 58)?),
        usize::from(u16_at(file, 60)?),
    );
    let section = |n: usize| -> Option<(u32, u32, &[u8])> {
        let header = file.get(start.checked_add(n.checked_mul(len)?)?..)?;
        let offset = usize::try_from(u64_at(header, 24)?).ok()?;
        let end = offset.checked_add(usize::try_from(u64_at(header, 32)?).ok()?)?;
        Some((
            u32_at(header, 4)?,
            u32_at(header, 40)?,
            file.get(offset..end)?,
        ))
    };
    let (_, link, table) = (0..count)
        .filter_map(section)
        .find(|section| section.0 == 2)?;
    let names = section(link as usize)?.2;
    let function = |symbol: &[u8]| {
        let name = names.get(u32_at(symbol, 0)? as usize..)?;
        let name = &name[..name.iter().position(|byte| *byte == 0)?];
        let address = u32::try_from(u64_at(symbol, 8)?).ok()?;
        // Functions, and labels in assembly, which have no type.
        let is_code = matches!(symbol[4] & 15, 0 | 2) && address != 0 && !name.is_empty();
        is_code.then_some((address, name))
    };
    Some(
        table
            .chunks_exact(SYMBOL_LEN)
            .filter_map(function)
            .collect(),
    )
}
