//! File stamps: the part of a file's metadata that changes with its content, to detect changes without reading the
//! file.

#![forbid(unsafe_code)]

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The part of a file's metadata that changes with its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileStamp {
    /// Device and inode, which identify the file.
    pub id: (u64, u64),
    /// The length in bytes.
    pub len: u64,
    /// The time of the last change of the content (mtime), ns since 1970.
    pub modified_ns: i64,
    /// The time of the last change of the inode (ctime), ns since 1970. It also changes if the mtime is set back.
    pub changed_ns: i64,
    /// The number of hard links.
    pub links: u64,
}

impl FileStamp {
    /// The current stamp of an open file. Blocks on the disk.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn from_file(file: &File) -> io::Result<FileStamp> {
        file.metadata().map(|meta| FileStamp::from(&meta))
    }

    /// The current stamp of the file at a path. Blocks on the disk.
    ///
    /// # Errors
    /// Those of stat(2).
    pub fn from_path(path: &Path) -> io::Result<FileStamp> {
        fs::metadata(path).map(|meta| FileStamp::from(&meta))
    }

    /// The stamp for a file that is being written. It differs from every stamp of a file, so a comparison with it never
    /// shows that the file is unchanged.
    #[must_use]
    pub fn unsettled(self) -> FileStamp {
        FileStamp {
            // A time long before 1970, which no file has.
            changed_ns: i64::MIN,
            ..self
        }
    }

    /// Whether files with a stamp equal to this one have equal content.
    pub fn is_settled(&self) -> bool {
        self.changed_ns != i64::MIN
    }

    /// Whether the content is unchanged since `earlier`, although names, permissions or attributes may have changed.
    pub fn has_content_of(&self, earlier: &FileStamp) -> bool {
        let content = |stamp: &FileStamp| (stamp.id, stamp.len, stamp.modified_ns);
        content(self) == content(earlier)
    }

    /// Whether the only change since `earlier` is that a hard link was removed: the file was deleted, or replaced by
    /// another.
    pub fn differs_only_in_links(&self, earlier: &FileStamp) -> bool {
        self.links < earlier.links && self.has_content_of(earlier)
    }
}

impl From<&Metadata> for FileStamp {
    fn from(meta: &Metadata) -> FileStamp {
        // Saturating, since a file system may contain any timestamps.
        let ns = |s: i64, ns: i64| s.saturating_mul(1_000_000_000).saturating_add(ns);
        FileStamp {
            id: (meta.dev(), meta.ino()),
            len: meta.len(),
            modified_ns: ns(meta.mtime(), meta.mtime_nsec()),
            changed_ns: ns(meta.ctime(), meta.ctime_nsec()),
            links: meta.nlink(),
        }
    }
}
