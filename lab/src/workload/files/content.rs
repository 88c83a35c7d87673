//! The contents of files, computed from name and length. No I/O.

use crate::random::SplitMix;

/// The kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileFill {
    /// SPECweb99's: a first line with length and name, marks that identify file and position, and ad placeholders.
    Marked {
        /// Number of placeholders.
        ads: usize,
    },
    /// Printable characters in lines.
    Text,
    /// Random, incompressible bytes; if the name ends in `.gif`, after the signature of a GIF.
    Binary,
}

/// An ad placeholder; the name of the ad's picture replaces the letters.
pub(crate) const AD_TAG: &[u8; 62] =
    b"<!WEB99CAD><IMG SRC=\"/file_set/dirNNNNN/classX_Y\"><!/WEB99CAD>";

/// Distance of the marks in bytes.
const MARK_EVERY: usize = 4096;

/// Length of a line, including its newline.
const LINE: usize = 64;

/// Replaces the content of `out` with that of a file.
pub(crate) fn fill(path: &str, len: u64, fill: FileFill, out: &mut Vec<u8>) {
    let len = usize::try_from(len).expect("files are made in memory");
    // The generator is seeded by path and length, so a file has the same content in each set and after an interruption.
    let mut random = SplitMix::stream(u64::from(crc32fast::hash(path.as_bytes())), len as u64);
    out.clear();
    match fill {
        FileFill::Marked { ads } => text_with_ads(path, len, ads, &mut random, out),
        FileFill::Text => text(len, &mut random, out),
        FileFill::Binary => binary(path, len, &mut random, out),
    }
}

fn text_with_ads(path: &str, len: usize, ads: usize, random: &mut SplitMix, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{len:9} {path}\n").as_bytes());
    let first_line = out.len();
    text(len, random, out);
    let body = &mut out[first_line..];
    // A mark in each 4 KiB reveals blocks that are swapped, shifted, or from another file.
    for (target, letter) in body
        .iter_mut()
        .step_by(MARK_EVERY)
        .zip(path.bytes().cycle())
    {
        *target = letter;
    }
    // A placeholder must fit into the line that begins with the mark.
    let mut offsets: Vec<usize> = (0..body.len())
        .step_by(MARK_EVERY)
        .filter(|offset| offset + LINE <= body.len())
        .collect();
    for _ in 0..ads {
        // The offset is removed from the list, so that no line gets two placeholders.
        let offset = offsets.swap_remove(random.below(offsets.len() as u64) as usize);
        body[offset + 1..offset + LINE - 1].copy_from_slice(AD_TAG);
    }
}

/// Appends characters from 33 to 124 up to the length; every 64th is a newline.
fn text(len: usize, random: &mut SplitMix, out: &mut Vec<u8>) {
    let start = out.len();
    while out.len() < len {
        // 256 values are mapped to 92 characters, so some occur 3/2 as often as others, which is irrelevant here.
        out.extend(
            random
                .next_u64()
                .to_le_bytes()
                .map(|byte| 33 + (u16::from(byte) * 92 / 256) as u8),
        );
    }
    out.truncate(len);
    out[start..]
        .iter_mut()
        .skip(LINE - 1)
        .step_by(LINE)
        .for_each(|byte| *byte = b'\n');
}

fn binary(path: &str, len: usize, random: &mut SplitMix, out: &mut Vec<u8>) {
    if path.ends_with(".gif") {
        out.extend_from_slice(b"GIF89a");
    }
    while out.len() < len {
        out.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    out.truncate(len);
}

#[cfg(test)]
mod tests {
    use super::super::super::specset;
    use super::*;

    fn contents(file: &super::super::FileSpec) -> Vec<u8> {
        let mut out = b"left over".to_vec();
        fill(&file.path, file.len, file.fill, &mut out);
        out
    }

    #[test]
    fn specweb_files_have_marked_content() {
        for file in specset::plan(2) {
            let bytes = contents(&file);
            assert_eq!(bytes.len() as u64, file.len, "{}", file.path);
            let first_line = format!("{:9} {}\n", file.len, file.path);
            assert!(bytes.starts_with(first_line.as_bytes()), "{}", file.path);
            let body = &bytes[first_line.len()..];
            for (at, byte) in body.iter().enumerate() {
                match at {
                    _ if at % 4096 == 0 => {
                        let name = file.path.as_bytes();
                        assert_eq!(*byte, name[at / 4096 % name.len()]);
                    }
                    _ if at % 64 == 63 => assert_eq!(*byte, b'\n', "{} {at}", file.path),
                    _ => assert!((32..=124).contains(byte), "{} {at}", file.path),
                }
            }
            let tags = body
                .windows(AD_TAG.len())
                .enumerate()
                .filter(|(_, window)| window == AD_TAG);
            let places: Vec<usize> = tags.map(|(at, _)| at % 4096).collect();
            let FileFill::Marked { ads } = file.fill else {
                panic!("a marked file")
            };
            assert_eq!(places, vec![1; ads], "{}", file.path);
        }
    }

    #[test]
    fn ad_tags_are_at_random_offsets() {
        let place = |dir| {
            let name = format!("file_set/{}", specset::name(dir, 2, 8));
            let mut out = Vec::new();
            fill(
                &name,
                specset::file_len(2, 8),
                FileFill::Marked { ads: 1 },
                &mut out,
            );
            out.windows(62)
                .position(|window| window == AD_TAG)
                .expect("one tag")
        };
        let places: std::collections::HashSet<usize> = (0..50).map(place).collect();
        assert!(places.len() > 10, "{places:?}");
    }

    #[test]
    fn binary_and_text_files_depend_on_their_name() {
        let mut out = Vec::new();
        fill("a.gif", 223, FileFill::Binary, &mut out);
        assert!(out.starts_with(b"GIF89a") && out.len() == 223);
        let first = out.clone();
        fill("a.gif", 223, FileFill::Binary, &mut out);
        assert_eq!(first, out);
        fill("b.gif", 223, FileFill::Binary, &mut out);
        assert_ne!(first, out);
        fill("a.html", 500, FileFill::Text, &mut out);
        assert!(out.len() == 500 && out[63] == b'\n' && out.is_ascii());
    }
}
