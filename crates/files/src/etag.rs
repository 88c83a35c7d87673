//! Entity tags of files (RFC 9110 §8.8.3).
//!
//! By default, a tag is made of the file's inode, timestamps and length, which identify the version of a file on this
//! host. If timestamps are whole seconds, they are too coarse for that: then the content is hashed if it is read
//! anyway, and otherwise the tag is weak. If the tags of several servers must agree, the content is always hashed
//! (configured).

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use lowroad_engine::file::{OpenFile, digest, digest_bytes};
use lowroad_file_stamp::FileStamp;
use lowroad_http::content_coding::ContentCoding;

/// The maximum number of cached digests of long files. When it is reached, all are dropped.
const DIGESTS_MAX: usize = 4096;

/// The entity tag of a file's version, made of its stamp.
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

/// The entity tag of content with this digest.
pub fn from_content(digest: u128) -> String {
    format!("\"{digest:032x}\"")
}

/// The entity tag of a representation in a content coding, made of the tag of the identity.
pub fn with_encoding(tag: &str, encoding: ContentCoding) -> String {
    let suffix = match encoding {
        ContentCoding::Identity => "",
        ContentCoding::Brotli => "-br",
        ContentCoding::Zstd => "-zst",
        ContentCoding::Gzip => "-gz",
    };
    match tag.strip_suffix('"') {
        Some(start) => format!("{start}{suffix}\""),
        // If the identity has no entity tag, the coding has none either.
        None => String::new(),
    }
}

/// Whether each version of the file has another stamp. This is not certain if the file was just written, or if
/// timestamps are whole seconds, as in file system images, where all files may even have the same time.
pub fn is_certain(stamp: &FileStamp) -> bool {
    stamp.is_settled() && stamp.changed_ns % 1_000_000_000 != 0
}

/// A cache of the digests of files' contents, since long files are not kept in memory.
#[derive(Default)]
pub struct ContentDigests(Mutex<HashMap<FileStamp, u128>>);

impl ContentDigests {
    /// The digest of a file up to the length in its stamp. Blocks on the disk.
    ///
    /// # Errors
    /// The file can't be read, is shorter, or changed in the meantime.
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
        // If the file has changed, the digest may be of a mixture of two versions.
        if stamp.is_settled() && !file.unchanged() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if is_certain(stamp) {
            let mut digests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Simply cleared, since a digest can be computed again by one read of the file.
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
    fn file_versions_have_distinct_tags() {
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
    fn tag_is_weak_if_the_stamp_is_uncertain() {
        let coarse = FileStamp {
            changed_ns: 5_000_000_000,
            ..STAMP
        };
        for stamp in [coarse, STAMP.unsettled()] {
            assert!(from_stamp(&stamp).starts_with("W/\""), "{stamp:?}");
        }
    }

    #[test]
    fn content_codings_have_distinct_tags() {
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
