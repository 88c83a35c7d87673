//! The identity of a file's version: what of its metadata changes when its bytes do.

#![forbid(unsafe_code)]

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What of a file's metadata changes when its bytes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileStamp {
    /// Device and inode: which file it is.
    pub id: (u64, u64),
    /// Length in bytes.
    pub len: u64,
    /// Time of the last change of the bytes, ns since 1970.
    pub modified_ns: i64,
    /// Time of the last change of the inode, ns since 1970: catches a modification time set back.
    pub changed_ns: i64,
    /// How many names it has.
    pub links: u64,
}

impl FileStamp {
    /// The stamp of an open file, now. Blocks on the disk.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn of(file: &File) -> io::Result<FileStamp> {
        file.metadata().map(|meta| FileStamp::from(&meta))
    }

    /// The stamp of the file at a path, now. Blocks on the disk.
    ///
    /// # Errors
    /// When there is none that can be looked at.
    pub fn at(path: &Path) -> io::Result<FileStamp> {
        fs::metadata(path).map(|meta| FileStamp::from(&meta))
    }

    /// The stamp of a file that is written all the time: it equals none that the file will have, so it proves nothing.
    #[must_use]
    pub fn unsettled(self) -> FileStamp {
        FileStamp {
            changed_ns: i64::MIN,
            ..self
        }
    }

    /// Whether an equal stamp proves equal bytes.
    pub fn is_settled(&self) -> bool {
        self.changed_ns != i64::MIN
    }

    /// Whether at most the inode changed since `earlier`: names, permissions, attributes, but none of the bytes.
    pub fn has_content_of(&self, earlier: &FileStamp) -> bool {
        let content = |stamp: &FileStamp| (stamp.id, stamp.len, stamp.modified_ns);
        content(self) == content(earlier)
    }

    /// Whether all that happened since `earlier` is that the file lost a name: it was removed, or
    /// replaced by another.
    pub fn only_lost_a_name(&self, earlier: &FileStamp) -> bool {
        self.links < earlier.links && self.has_content_of(earlier)
    }
}

impl From<&Metadata> for FileStamp {
    fn from(meta: &Metadata) -> FileStamp {
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
