//! Entity tags of files (RFC 9110 §8.8.3).
//!
//! By default a tag names the version of a file on this machine: inode, times and length. One whole-second clock is too
//! coarse for that: then the content is hashed if it is read anyway, and the tag is weak if it is not. Where the tags of
//! several servers must agree, the content is always hashed.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use lowroad_engine::file::{OpenFile, digest, digest_bytes};
use lowroad_file_stamp::FileStamp;
use lowroad_http::content_coding::ContentCoding;

/// The maximum number of remembered digests of long files. When full, all are dropped.
const DIGESTS_MAX: usize = 4096;

/// The tag of the version of a file that a stamp names.
pub fn from_stamp(stamp: &FileStamp) -> String {
    let mut facts = [0; 24];
    facts[..8].copy_from_slice(&stamp.id.1.to_le_bytes());
    facts[8..16].copy_from_slice(&stamp.modified_ns.to_le_bytes());
    facts[16..].copy_from_slice(&stamp.changed_ns.to_le_bytes());
    // Hashed, so that inode numbers are not disclosed.
    let version = digest_bytes(&facts) as u64;
    let weak = if is_certain(stamp) { "" } else { "W/" };
    format!("{weak}\"{version:x}-{:x}\"", stamp.len)
}

/// The tag of bytes with this digest.
pub fn from_content(digest: u128) -> String {
    format!("\"{digest:032x}\"")
}

/// The tag of a coding of the representation with this tag.
pub fn with_encoding(tag: &str, encoding: ContentCoding) -> String {
    let suffix = match encoding {
        ContentCoding::Identity => "",
        ContentCoding::Brotli => "-br",
        ContentCoding::Zstd => "-zst",
        ContentCoding::Gzip => "-gz",
    };
    match tag.strip_suffix('"') {
        Some(start) => format!("{start}{suffix}\""),
        // Without an entity tag, the coding has none either.
        None => String::new(),
    }
}

/// Whether each version of the file has its own stamp. Not if the file was just written, nor if times are whole
/// seconds, as in file system images, where all files may even have the same time.
pub fn is_certain(stamp: &FileStamp) -> bool {
    stamp.is_settled() && stamp.changed_ns % 1_000_000_000 != 0
}

/// Digests of files' contents. They are remembered, since long files are not kept in memory.
#[derive(Default)]
pub struct ContentDigests(Mutex<HashMap<FileStamp, u128>>);

impl ContentDigests {
    /// The digest of a file up to the length in its stamp. Blocks on the disk.
    ///
    /// # Errors
    /// When it can't be read, is shorter, or changed meanwhile.
    pub fn digest(&self, file: &OpenFile) -> io::Result<u128> {
        let stamp = &file.stamp;
        let cached = |digests: &Mutex<HashMap<FileStamp, u128>>| {
            let digests = digests.lock().unwrap_or_else(PoisonError::into_inner);
            digests.get(stamp).copied()
        };
        if let Some(digest) = cached(&self.0) {
            return Ok(digest);
        }
        let digest = digest(&file.file, 0..stamp.len)?;
        // The digest would be of a mixture of two versions.
        if stamp.is_settled() && !file.unchanged() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if is_certain(stamp) {
            let mut digests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Cleared as a whole: a digest costs one read of the file.
            if digests.len() >= DIGESTS_MAX {
                digests.clear();
            }
            digests.insert(*stamp, digest);
        }
        Ok(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: FileStamp = FileStamp {
        id: (1, 2),
        len: 3,
        modified_ns: 4_000_000_000,
        changed_ns: 5_000_000_006,
        links: 1,
    };

    #[test]
    fn another_version_has_another_tag() {
        let versions = [
            STAMP,
            FileStamp {
                id: (1, 3),
                ..STAMP
            },
            FileStamp { len: 4, ..STAMP },
            FileStamp {
                modified_ns: 4_000_000_001,
                ..STAMP
            },
            FileStamp {
                changed_ns: 5_000_000_007,
                ..STAMP
            },
        ];
        let mut tags: Vec<String> = versions.iter().map(from_stamp).collect();
        assert_eq!(tags[0], from_stamp(&STAMP));
        tags.sort();
        tags.dedup();
        assert_eq!(tags.len(), versions.len());
        assert!(
            tags.iter()
                .all(|tag| tag.starts_with('"') && tag.ends_with("\""))
        );
    }

    #[test]
    fn a_tag_is_weak_where_the_stamp_proves_nothing() {
        let coarse = FileStamp {
            changed_ns: 5_000_000_000,
            ..STAMP
        };
        for stamp in [coarse, STAMP.unsettled()] {
            assert!(from_stamp(&stamp).starts_with("W/\""), "{stamp:?}");
        }
    }

    #[test]
    fn codings_have_tags_of_their_own() {
        assert_eq!(
            with_encoding("W/\"a-1\"", ContentCoding::Brotli),
            "W/\"a-1-br\""
        );
        assert_eq!(with_encoding("\"a\"", ContentCoding::Identity), "\"a\"");
        assert_eq!(
            with_encoding("", ContentCoding::Gzip),
            "",
            "the site removes it"
        );
    }
}
