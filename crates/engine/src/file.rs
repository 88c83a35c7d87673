//! A file sent straight from disk, and the proof that it did not change meanwhile.
//!
//! `sendfile` puts references to the file's pages into the socket's queue, not copies: a rewrite in
//! place would reach bytes that are queued but not yet sent. So the last [`TAIL_LEN`] bytes are held
//! back until the client has acknowledged all others and the file is found unchanged. If it did
//! change, the connection is cut: the client sees a short answer, never a mixed one.
//!
//! Of a file whose owner vouches that what lies in it never changes ([`OpenFile::is_immutable`]), nothing is held back.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

/// What is held back at the end of a range.
pub const TAIL_LEN: u64 = 16 * 1024;
/// What one transfer may send before the helper looks at other jobs.
const QUANTUM_LEN: u64 = 4 << 20;
/// What one read brings at most.
const READ_LEN: u64 = 256 << 10;

/// What of a file's metadata changes when its bytes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
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

impl Stamp {
    /// The stamp in a file's metadata.
    pub fn of(meta: &std::fs::Metadata) -> Stamp {
        let ns = |s: i64, ns: i64| s.saturating_mul(1_000_000_000).saturating_add(ns);
        Stamp {
            id: (meta.dev(), meta.ino()),
            len: meta.len(),
            modified_ns: ns(meta.mtime(), meta.mtime_nsec()),
            changed_ns: ns(meta.ctime(), meta.ctime_nsec()),
            links: meta.nlink(),
        }
    }

    /// The stamp of the file at a path, now. Blocks on the disk.
    ///
    /// # Errors
    /// When there is none that can be looked at.
    pub fn at(path: &Path) -> io::Result<Stamp> {
        std::fs::metadata(path).map(|meta| Stamp::of(&meta))
    }

    /// Whether all that happened since `earlier` is that the file lost a name: it was removed, or
    /// replaced by another. That changes the inode's time, but none of the bytes.
    fn only_lost_a_name(&self, earlier: &Stamp) -> bool {
        let same = |stamp: &Stamp| (stamp.id, stamp.len, stamp.modified_ns);
        self.links < earlier.links && same(self) == same(earlier)
    }
}

/// An open file and its stamp when it was opened.
#[derive(Debug)]
pub struct OpenFile {
    /// The file.
    pub file: Arc<File>,
    /// What it was then.
    pub stamp: Stamp,
    /// Whoever writes it writes behind what is sent and never over it: the stamp may change, the bytes do not.
    pub is_immutable: bool,
}

impl OpenFile {
    /// A file that was as `stamp` says when it was opened.
    pub fn new(file: File, stamp: Stamp) -> OpenFile {
        OpenFile {
            file: Arc::new(file),
            stamp,
            is_immutable: false,
        }
    }

    /// A file of which the bytes that are sent never change.
    ///
    /// # Errors
    /// When the system does not tell what it is.
    pub fn immutable(file: Arc<File>) -> io::Result<OpenFile> {
        Ok(OpenFile {
            stamp: Stamp::of(&file.metadata()?),
            file,
            is_immutable: true,
        })
    }

    /// Whether the bytes still are what they were.
    pub fn unchanged(&self) -> bool {
        if self.is_immutable {
            return true;
        }
        let now = self.file.metadata().map(|meta| Stamp::of(&meta));
        now.is_ok_and(|now| now == self.stamp || now.only_lost_a_name(&self.stamp))
    }
}

/// How far a transfer got.
#[derive(Debug, PartialEq, Eq)]
pub enum FileSent {
    /// So many bytes went out; `full` if the socket had no room for more.
    Bytes {
        /// Bytes taken by the socket.
        len: u64,
        /// Whether a writable event is to be waited for.
        full: bool,
    },
    /// The rest of the range, read and found unchanged: to be sent from memory, once what went
    /// before is acknowledged and [`OpenFile::unchanged`] has been asked again.
    Tail(Vec<u8>),
    /// A start of the range, read and found unchanged.
    Read(Vec<u8>),
    /// The file changed: the answer can't be completed.
    Changed,
    /// The file could not be read.
    Failed,
    /// The connection broke.
    Broken,
}

/// Sends a start of `range`, or reads it if it is no longer than a tail. Blocks on the disk, never
/// on the socket, which is non-blocking: for helper threads. An empty range asks only whether the
/// file is unchanged.
pub fn send(socket: &OwnedFd, file: &OpenFile, range: Range<u64>) -> FileSent {
    let rest = range.end - range.start;
    if file.is_immutable {
        return send_pages(socket, file, range.start, rest.min(QUANTUM_LEN));
    }
    let sent = if rest <= TAIL_LEN {
        read_tail(file, range)
    } else {
        let quantum = (rest - TAIL_LEN).min(QUANTUM_LEN);
        send_pages(socket, file, range.start, quantum)
    };
    if matches!(sent, FileSent::Bytes { .. } | FileSent::Tail(_)) && !file.unchanged() {
        return FileSent::Changed;
    }
    sent
}

/// Reads a start of `range`, which is not empty. Blocks on the disk: for helper threads.
pub fn read(file: &OpenFile, range: Range<u64>) -> FileSent {
    let end = range.end.min(range.start + READ_LEN);
    match read_tail(file, range.start..end) {
        FileSent::Tail(_) if !file.unchanged() => FileSent::Changed,
        FileSent::Tail(bytes) => FileSent::Read(bytes),
        other => other,
    }
}

fn read_tail(file: &OpenFile, range: Range<u64>) -> FileSent {
    let mut tail = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
    match file.file.read_exact_at(&mut tail, range.start) {
        Ok(()) => FileSent::Tail(tail),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => FileSent::Changed,
        Err(_) => FileSent::Failed,
    }
}

fn send_pages(socket: &OwnedFd, file: &OpenFile, start: u64, len: u64) -> FileSent {
    let (mut offset, end) = (start, start + len);
    while offset < end {
        let count = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let sent = rustix::fs::sendfile(socket.as_fd(), &file.file, Some(&mut offset), count);
        match sent {
            Ok(1..) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                return FileSent::Bytes {
                    len: offset - start,
                    full: true,
                };
            }
            // What went out before is told first; the next try meets the same trouble.
            Ok(0) | Err(_) if offset > start => break,
            Ok(0) => return FileSent::Changed, // the file ends before its range does
            Err(Errno::IO | Errno::NOMEM | Errno::INVAL) => return FileSent::Failed,
            Err(_) => return FileSent::Broken,
        }
    }
    FileSent::Bytes {
        len: offset - start,
        full: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(name: &str, content: &[u8]) -> (std::path::PathBuf, OpenFile) {
        let path = std::env::temp_dir().join(format!("lowroad-file-{name}-{}", std::process::id()));
        std::fs::write(&path, content).expect("write");
        let file = File::open(&path).expect("open");
        let stamp = Stamp::of(&file.metadata().expect("stat"));
        (path, OpenFile::new(file, stamp))
    }

    fn socket() -> (OwnedFd, std::os::unix::net::UnixStream) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("pair");
        ours.set_nonblocking(true).expect("nonblocking");
        (ours.into(), theirs)
    }

    #[test]
    fn a_long_range_goes_out_but_for_its_tail() {
        let (path, file) = open("long", &[b'x'; 60_000]);
        let (ours, _theirs) = socket();
        let FileSent::Bytes { len, .. } = send(&ours, &file, 0..60_000) else {
            panic!("not sent")
        };
        assert!(len > 0 && len <= 60_000 - TAIL_LEN);
        assert_eq!(
            send(&ours, &file, 59_990..60_000),
            FileSent::Tail(vec![b'x'; 10])
        );
        std::fs::remove_file(path).expect("remove");
    }

    #[test]
    fn a_rewritten_or_shrunk_file_is_noticed() {
        let (path, file) = open("rewritten", &[b'x'; 1000]);
        let (ours, _theirs) = socket();
        std::fs::write(&path, [b'y'; 500]).expect("rewrite");
        assert_eq!(send(&ours, &file, 0..1000), FileSent::Changed, "shrunk");
        std::fs::write(&path, [b'y'; 1000]).expect("rewrite");
        assert_eq!(
            send(&ours, &file, 0..1000),
            FileSent::Changed,
            "rewritten in place"
        );
        std::fs::remove_file(path).expect("remove");
    }

    #[test]
    fn of_an_immutable_file_nothing_is_held_back() {
        let (path, file) = open("immutable", &[b'x'; 1000]);
        let file = OpenFile::immutable(file.file).expect("stat");
        std::fs::write(&path, [b'x'; 2000]).expect("appended to");
        let (ours, _theirs) = socket();
        let sent = send(&ours, &file, 10..1000);
        let all = FileSent::Bytes {
            len: 990,
            full: false,
        };
        assert_eq!(sent, all);
        std::fs::remove_file(path).expect("remove");
    }

    #[test]
    fn a_removed_file_is_sent_to_its_end() {
        let (path, file) = open("removed", &[b'x'; 1000]);
        let (ours, _theirs) = socket();
        std::fs::remove_file(path).expect("remove");
        let sent = send(&ours, &file, 0..1000);
        assert_eq!(sent, FileSent::Tail(vec![b'x'; 1000]));
    }
}
