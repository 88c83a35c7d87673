//! The boot information of Multiboot2 (GRUB).
//!
//! Read first: Multiboot2 specification, 3.6.

use crate::bytes::{u32_at, u64_at};
use crate::regions::{MemoryMap, MemoryRegion};

/// The parts of the boot information that are used.
#[derive(Default)]
pub struct MultibootInfo<'b> {
    /// The command line, without the image's name, which GRUB omits.
    pub command_line: &'b str,
    /// The first module.
    pub module: Option<MemoryRegion>,
    /// Usable memory.
    pub memory: MemoryMap,
    /// The ACPI root pointer, as copied by the boot loader.
    pub rsdp: Option<&'b [u8]>,
}

/// Parses the boot information. `bytes` has the length that its first four bytes contain.
#[must_use]
pub fn info(bytes: &[u8]) -> MultibootInfo<'_> {
    let mut info = MultibootInfo::default();
    let mut at = 8;
    while let (Some(kind), Some(len)) = (u32_at(bytes, at), u32_at(bytes, at + 4)) {
        let len = len as usize;
        let Some(tag) = bytes
            .get(at..at.saturating_add(len))
            .filter(|tag| kind != 0 && tag.len() >= 8)
        else {
            break;
        };
        read_tag(&mut info, kind, tag);
        // Tags are aligned to eight bytes.
        at += len.next_multiple_of(8);
    }
    info
}

fn read_tag<'b>(info: &mut MultibootInfo<'b>, kind: u32, tag: &'b [u8]) {
    match kind {
        1 => info.command_line = text(&tag[8..]),
        // Only the first module can be the site.
        3 if info.module.is_none() => {
            info.module = u32_at(tag, 8)
                .zip(u32_at(tag, 12))
                .map(|(start, end)| MemoryRegion {
                    start: start.into(),
                    end: end.into(),
                });
        }
        6 => memory(info, tag),
        14 | 15 => info.rsdp = tag.get(8..),
        _ => {}
    }
}

fn text(bytes: &[u8]) -> &str {
    let len = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    core::str::from_utf8(&bytes[..len]).unwrap_or_default()
}

fn memory(info: &mut MultibootInfo<'_>, tag: &[u8]) {
    let Some(entry_len) = u32_at(tag, 8).filter(|len| *len >= 24) else {
        return;
    };
    for entry in tag
        .get(16..)
        .unwrap_or_default()
        .chunks_exact(entry_len as usize)
    {
        if u32_at(entry, 16) == Some(1)
            && let (Some(start), Some(len)) = (u64_at(entry, 0), u64_at(entry, 8))
        {
            info.memory.add(MemoryRegion::new(start, len));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(to: &mut Vec<u8>, kind: u32, body: &[u8]) {
        to.extend(kind.to_le_bytes());
        to.extend((body.len() as u32 + 8).to_le_bytes());
        to.extend(body);
        to.resize(to.len().next_multiple_of(8), 0);
    }

    fn sample() -> Vec<u8> {
        let mut bytes = vec![0; 8];
        tag(&mut bytes, 1, b"ip=dhcp\0");
        tag(&mut bytes, 3, &[0, 0, 0, 2, 5, 0, 0, 2, b's', 0]);
        let mut map = vec![24, 0, 0, 0, 0, 0, 0, 0];
        for (start, len, kind) in [
            (0_u64, 0xa0000_u64, 1_u64),
            (0x10_0000, 0x700_0000, 1),
            (0xf000_0000, 4096, 2),
        ] {
            map.extend(start.to_le_bytes());
            map.extend(len.to_le_bytes());
            map.extend(kind.to_le_bytes());
        }
        tag(&mut bytes, 6, &map);
        tag(&mut bytes, 15, b"RSD PTR ");
        tag(&mut bytes, 0, &[]);
        bytes
    }

    #[test]
    fn multiboot2_tags_of_grub_are_parsed() {
        let bytes = sample();
        let info = info(&bytes);
        assert_eq!(info.command_line, "ip=dhcp");
        assert_eq!(
            info.module,
            Some(MemoryRegion {
                start: 0x200_0000,
                end: 0x200_0005
            })
        );
        assert_eq!(info.memory.total_len(), 0xa0000 + 0x700_0000);
        assert_eq!(info.rsdp, Some(&b"RSD PTR "[..]));
    }

    #[test]
    fn damaged_or_truncated_information_does_not_panic() {
        let bytes = sample();
        for len in 0..bytes.len() {
            let _ = info(&bytes[..len]);
        }
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0xff;
            let _ = info(&wrong);
        }
    }
}
