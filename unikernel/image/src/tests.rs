use lowroad_kernel::bytes::{u16_at, u32_at, u64_at};
use lowroad_kernel::site::{SITE_ADDRESS, SiteNote};
use lowroad_kernel::symbols;

use super::{ImageError, build};

/// A kernel file: code at 4096, then the note; a reserved program header; a symbol table with two functions.
fn kernel() -> Vec<u8> {
    let mut file = vec![0; 4096];
    file[..6].copy_from_slice(b"\x7fELF\x02\x01");
    file[18] = 62;
    file[32] = 64;
    file[54] = 56;
    file[56] = 3;
    file.extend(b"code____");
    file.extend([8, 0, 0, 0, 32, 0, 0, 0, 1, 0, 0, 0]);
    file.extend(b"Lowroad\0");
    file.extend([0; SiteNote::LEN]);
    let end = file.len() as u64;
    let mut header = |n: usize, kind: u32, offset: u64, len: u64| {
        let at = 64 + n * 56;
        file[at..at + 4].copy_from_slice(&kind.to_le_bytes());
        file[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
        file[at + 32..at + 40].copy_from_slice(&len.to_le_bytes());
    };
    header(0, 1, 0, end);
    header(1, 4, 4104, end - 4104);
    header(2, 0, 0, 0);
    sections(&mut file);
    file
}

fn sections(file: &mut Vec<u8>) {
    let symbols_at = file.len() as u64;
    for (name, address) in [(1_u32, 0x2000_u64), (5, 0x1000)] {
        file.extend(name.to_le_bytes());
        file.extend([2, 0, 1, 0]);
        file.extend(address.to_le_bytes());
        file.extend(16_u64.to_le_bytes());
    }
    let names_at = file.len() as u64;
    file.extend(b"\0two\0one\0");
    let sections_at = file.len() as u64;
    for (kind, offset, len, link) in [(2_u32, symbols_at, 48_u64, 1_u32), (3, names_at, 9, 0)] {
        let mut section = vec![0; 64];
        section[4..8].copy_from_slice(&kind.to_le_bytes());
        section[24..32].copy_from_slice(&offset.to_le_bytes());
        section[32..40].copy_from_slice(&len.to_le_bytes());
        section[40..44].copy_from_slice(&link.to_le_bytes());
        file.extend(section);
    }
    file[40..48].copy_from_slice(&sections_at.to_le_bytes());
    file[58] = 64;
    file[60] = 2;
}

#[test]
fn note_contains_the_addresses_of_site_and_symbols() {
    let image = build(&kernel(), b"a site").unwrap();
    let header = 64 + 2 * 56;
    assert_eq!(
        (u32_at(&image, header), u64_at(&image, header + 24)),
        (Some(1), Some(SITE_ADDRESS))
    );
    let offset = u64_at(&image, header + 8).unwrap() as usize;
    assert!(offset.is_multiple_of(4096));
    let added = &image[offset..];
    assert_eq!(u64_at(&image, header + 32), Some(added.len() as u64));
    let note = SiteNote::read(image[4096 + 28..][..SiteNote::LEN].first_chunk().unwrap());
    assert_eq!((note.site_address, note.site_len), (SITE_ADDRESS, 6));
    assert_eq!(&added[..6], b"a site");
    let table = &added[(note.symbols_address - SITE_ADDRESS) as usize..];
    assert_eq!(table.len() as u64, note.symbols_len);
    assert_eq!(symbols::name_of(table, 0x1fff), Some(("one", 0xfff)));
    assert_eq!(symbols::name_of(table, 0x2000), Some(("two", 0)));
    assert_eq!((u64_at(&image, 40), u16_at(&image, 60)), (Some(0), Some(0)));
}

#[test]
fn image_with_a_site_is_rejected() {
    let image = build(&kernel(), b"a site").unwrap();
    assert_eq!(build(&image, b"another"), Err(ImageError::HasSite));
}

#[test]
fn damaged_and_foreign_files_are_rejected() {
    assert_eq!(build(b"", b""), Err(ImageError::NotElf));
    let mut other = kernel();
    other[4096 + 20] = b'l';
    assert_eq!(build(&other, b""), Err(ImageError::NotOurs));
    let kernel = kernel();
    for len in 0..kernel.len() {
        let _ = build(&kernel[..len], b"site");
    }
    for at in 0..kernel.len() {
        let mut wrong = kernel.clone();
        wrong[at] ^= 0xff;
        let _ = build(&wrong, b"site");
    }
}
