//! The identity of a file's version: the part of its metadata that changes with its content.

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
    /// Length in bytes.
    pub len: u64,
    /// Time of the last change of the content, ns since 1970.
    pub modified_ns: i64,
    /// Time of the last change of the inode, ns since 1970: catches a modification time set back.
    pub changed_ns: i64,
    /// The number of its hard links.
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

    /// The stamp of a file that is being written: it differs from every later stamp of the file, so it proves nothing.
    #[must_use]
    pub fn unsettled(self) -> FileStamp {
        FileStamp {
            // No file has this time: it is before 1970 by far.
            changed_ns: i64::MIN,
            ..self
        }
    }

    /// Whether an equal stamp proves equal bytes.
    pub fn is_settled(&self) -> bool {
        self.changed_ns != i64::MIN
    }

    /// Whether at most the inode changed since `earlier`: names, permissions, attributes, but not the content.
    pub fn has_content_of(&self, earlier: &FileStamp) -> bool {
        let content = |stamp: &FileStamp| (stamp.id, stamp.len, stamp.modified_ns);
        content(self) == content(earlier)
    }

    /// Whether the only change since `earlier` is the loss of a hard link: the file was removed, or replaced by
    /// another.
    pub fn differs_only_in_links(&self, earlier: &FileStamp) -> bool {
        self.links < earlier.links && self.has_content_of(earlier)
    }
}

impl From<&Metadata> for FileStamp {
    fn from(meta: &Metadata) -> FileStamp {
        // Saturating, since a file system may have any times.
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
