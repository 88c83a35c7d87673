//! Sends files from disk, and detects changes of a file during its transfer.
//!
//! `sendfile` puts references to the file's pages into the socket's queue, not copies: a rewrite in place would reach
//! bytes that are queued but not yet sent. So the last [`TAIL_LEN`] bytes are held back until the client has
//! acknowledged all others and a check shows that the bytes of the response (the file's first bytes, up to the length
//! that it had when it was opened) are unchanged. If these may have changed, the connection is cut: the client sees an
//! incomplete response, never one of two versions.
//!
//! A rename and a change of permissions or attributes change only the inode's change time, so the transfer continues. A
//! `touch`, an append and a rewrite in place change the modification time. inotify distinguishes a `touch` from the
//! other two (`write_watch`); digests of the original bytes, taken before the first byte is sent, distinguish an append
//! from a rewrite (`digests`). Digests cost a copy and a hash, so they are taken only of recently changed files.
//!
//! No bytes are held back of files that are declared immutable ([`OpenFile::is_immutable`]).

mod digests;
mod write_watch;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use lowroad_file_stamp::FileStamp;
use rustix::io::Errno;
use rustix::net::SendFlags;

use self::digests::{BlockDigests, BlockRead, DIGESTED_LEN_MAX};
pub use self::digests::{digest, digest_bytes};
use self::write_watch::WriteWatch;
pub use self::write_watch::{FileWatchCounters, counters as watch_counters};

/// Bytes held back at the end of a range.
pub const TAIL_LEN: u64 = 16 * 1024;
/// Maximum length of one transfer; then the helper thread can do other jobs.
const QUANTUM_LEN: u64 = 4 << 20;
/// Maximum bytes of one read.
const READ_LEN: u64 = 256 << 10;
/// Files of at least this length are watched while they are sent. Transfers of shorter files are rarely long.
const WATCHED_LEN_MIN: u64 = 1 << 20;
/// Digests are taken of files that changed within this time, such as logs, recordings and uploads.
const RECENT_CHANGE_NS: i64 = 3600 * 1_000_000_000;

/// An open file, with its stamp when it was opened.
#[derive(Debug)]
pub struct OpenFile {
    /// The file.
    pub file: Arc<File>,
    /// The file's stamp when it was opened.
    pub stamp: FileStamp,
    /// The file is only appended to, so its stamp may change but not the bytes that are sent.
    pub is_immutable: bool,
    /// Digests of the file's blocks, if it changed recently.
    digests: Option<BlockDigests>,
    /// The watch for writes, started with the first transfer; `None` if the file can't be watched.
    write_watch: OnceLock<Option<Box<WriteWatch>>>,
}

impl OpenFile {
    /// A file with its stamp when it was opened.
    pub fn new(file: File, stamp: FileStamp) -> OpenFile {
        OpenFile::with_stamp(Arc::new(file), stamp)
    }

    /// Like [`OpenFile::new`], for a shared file.
    pub fn with_stamp(file: Arc<File>, stamp: FileStamp) -> OpenFile {
        let changed_lately = unix_ns() - stamp.changed_ns < RECENT_CHANGE_NS;
        let has_digests = changed_lately && stamp.len <= DIGESTED_LEN_MAX;
        OpenFile {
            file,
            stamp,
            is_immutable: false,
            digests: has_digests.then(BlockDigests::default),
            write_watch: OnceLock::new(),
        }
    }

    /// A file that is appended to during its transfer, but unchanged up to its current length.
    pub fn unsettled(file: Arc<File>, stamp: FileStamp) -> OpenFile {
        OpenFile {
            file,
            stamp: stamp.unsettled(),
            is_immutable: false,
            digests: (stamp.len <= DIGESTED_LEN_MAX).then(BlockDigests::default),
            write_watch: OnceLock::new(),
        }
    }

    /// An immutable file: the bytes that are sent never change.
    ///
    /// # Errors
    /// The file's status can't be read.
    pub fn immutable(file: Arc<File>) -> io::Result<OpenFile> {
        Ok(OpenFile {
            stamp: FileStamp::from_file(&file)?,
            file,
            is_immutable: true,
            digests: None,
            write_watch: OnceLock::new(),
        })
    }

    /// Whether the stamp proves that the bytes are unchanged.
    pub fn unchanged(&self) -> bool {
        let is_same = |now: FileStamp| now == self.stamp || now.differs_only_in_links(&self.stamp);
        self.is_immutable || self.stamp_now().is_some_and(is_same)
    }

    /// Starts to watch a long file; called before its first byte is sent.
    fn watch_writes(&self) {
        if self.stamp.len >= WATCHED_LEN_MIN {
            let begin = || WriteWatch::begin(&self.file, self.stamp).map(Box::new);
            self.write_watch.get_or_init(begin);
        }
    }

    /// Whether the stamp or the watch proves that the original bytes are unchanged.
    fn is_provably_unchanged(&self) -> bool {
        if let Some(Some(watch)) = self.write_watch.get() {
            return watch.is_unwritten(&self.file);
        }
        self.is_immutable
            || self.stamp_now().is_some_and(|now| {
                let is_appended = !self.stamp.is_settled() && now.len >= self.stamp.len;
                now == self.stamp || now.has_content_of(&self.stamp) || is_appended
            })
    }

    /// Takes digests of the first blocks of a range before they are sent, and returns the end of the part that has
    /// digests. `None`: the first block may have changed since the file was opened.
    fn prepare(&self, range: &Range<u64>) -> Option<u64> {
        let Some(digests) = &self.digests else {
            return Some(range.end);
        };
        let (new_digests, end) = digests.missing(&self.file, range, self.stamp.len)?;
        // If the file grew and the existing digests still match, the file was only appended to, so the other blocks are
        // unchanged, too.
        let is_appended = || {
            let has_grown = self.stamp_now().is_some_and(|now| now.len > self.stamp.len);
            has_grown && digests.still_match(&self.file, self.stamp.len)
        };
        if new_digests.is_empty() || self.is_provably_unchanged() || is_appended() {
            return digests.add(&new_digests).then_some(end);
        }
        // A block with a digest is compared when it is sent, so the stamp does not matter.
        digests.digested_end(range)
    }

    /// Reads the start of a range that is not empty: at most to the end of the block in which the range begins.
    fn read_block(&self, range: &Range<u64>) -> BlockRead {
        let Some(digests) = &self.digests else {
            let end = range.end.min(range.start + READ_LEN);
            return digests::read(&self.file, range.start..end);
        };
        digests.read(&self.file, range, self.stamp.len)
    }

    fn stamp_now(&self) -> Option<FileStamp> {
        FileStamp::from_file(&self.file).ok()
    }
}

fn unix_ns() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX))
}

/// The result of a transfer or read by a helper thread.
#[derive(Debug, PartialEq, Eq)]
pub enum FileSent {
    /// This many bytes were sent; `full` if the socket had no room for more.
    Bytes {
        /// The number of bytes.
        len: u64,
        /// Whether a writable event follows.
        full: bool,
    },
    /// The rest of the range, read and found unchanged. It is sent from memory after the client has acknowledged all
    /// earlier bytes and [`OpenFile::unchanged`] was checked again.
    Tail(Vec<u8>),
    /// The start of the range, read and found unchanged.
    Read(Vec<u8>),
    /// The file changed: the response can't be completed.
    Changed,
    /// The file could not be read.
    Failed,
    /// The connection broke.
    Broken,
}

/// Sends the start of `range`, or reads the range if it is no longer than [`TAIL_LEN`]. For helper threads, as it may
/// block on the disk, though not on the socket, which is non-blocking. An empty range only checks whether the file is
/// unchanged.
pub fn send(socket: &OwnedFd, file: &OpenFile, range: Range<u64>) -> FileSent {
    let rest = range.end - range.start;
    if file.is_immutable {
        return send_pages(socket, file, range.start, rest.min(QUANTUM_LEN));
    }
    // The tail is read into memory; the file is checked again before the tail is sent.
    if rest <= TAIL_LEN {
        return read_all(file, range);
    }
    file.watch_writes();
    let Some(prepared) = file.prepare(&range) else {
        return FileSent::Changed;
    };
    // The length of a helper's job is limited, and never includes the tail.
    let end = prepared
        .min(range.end - TAIL_LEN)
        .min(range.start + QUANTUM_LEN);
    // Pages could change after they are compared with the digests, so copies are sent.
    if file.digests.is_some() {
        return send_copies(socket, file, range.start..end);
    }
    // The check follows the sendfile, so it covers all pages that were queued.
    match send_pages(socket, file, range.start, end - range.start) {
        FileSent::Bytes { .. } if !file.is_provably_unchanged() => FileSent::Changed,
        sent => sent,
    }
}

/// Reads the start of `range`, which is not empty. For helper threads, as it may block on the disk.
pub fn read(file: &OpenFile, range: Range<u64>) -> FileSent {
    if !file.is_immutable {
        file.watch_writes();
    }
    if file.prepare(&range).is_none() {
        return FileSent::Changed;
    }
    match file.read_block(&range) {
        Ok(_) if file.digests.is_none() && !file.is_provably_unchanged() => FileSent::Changed,
        Ok(bytes) => FileSent::Read(bytes),
        Err(failure) => failure,
    }
}

/// Reads a complete range as a [`FileSent::Tail`].
pub fn read_all(file: &OpenFile, range: Range<u64>) -> FileSent {
    if file.prepare(&range) != Some(range.end) {
        return FileSent::Changed;
    }
    let (mut bytes, mut rest) = (Vec::new(), range);
    while !rest.is_empty() {
        match file.read_block(&rest) {
            Ok(block) => {
                rest.start += block.len() as u64;
                bytes.extend_from_slice(&block);
            }
            Err(failure) => return failure,
        }
    }
    match file.digests.is_some() || file.is_provably_unchanged() {
        true => FileSent::Tail(bytes),
        false => FileSent::Changed,
    }
}

/// Sends copies of the bytes that were compared with their digests.
fn send_copies(socket: &OwnedFd, file: &OpenFile, range: Range<u64>) -> FileSent {
    let mut rest = range.clone();
    let progress = |offset: u64, full| FileSent::Bytes {
        len: offset - range.start,
        full,
    };
    while !rest.is_empty() {
        let block = match file.read_block(&rest) {
            Ok(block) => block,
            Err(failure) => return failure,
        };
        let mut unsent = &block[..];
        while !unsent.is_empty() {
            match rustix::net::send(socket, unsent, SendFlags::NOSIGNAL) {
                Ok(len) => {
                    unsent = unsent.get(len..).unwrap_or_default();
                    rest.start += len as u64;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return progress(rest.start, true),
                // The sent bytes are reported first; the next attempt gets the same error.
                Err(_) if rest.start > range.start => return progress(rest.start, false),
                Err(_) => return FileSent::Broken,
            }
        }
    }
    progress(rest.start, false)
}

fn send_pages(socket: &OwnedFd, file: &OpenFile, start: u64, len: u64) -> FileSent {
    let (mut offset, end) = (start, start + len);
    while offset < end {
        let count = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let sent = rustix::fs::sendfile(socket.as_fd(), &file.file, Some(&mut offset), count);
        match sent {
            // sendfile(2) has advanced `offset`, and leaves the file's own position unchanged.
            Ok(1..) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                return FileSent::Bytes {
                    len: offset - start,
                    full: true,
                };
            }
            // The sent bytes are reported first; the next attempt gets the same error.
            Ok(0) | Err(_) if offset > start => break,
            Ok(0) => return FileSent::Changed, // the file ends before its range does
            // Errors of the file; all others are of the socket (sendfile(2)).
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
    use std::path::Path;

    use super::*;
    use std::os::unix::fs::FileExt;

    fn open(name: &str, content: &[u8]) -> (std::path::PathBuf, OpenFile) {
        let path = std::env::temp_dir().join(format!("lowroad-file-{name}-{}", std::process::id()));
        std::fs::write(&path, content).expect("write");
        let file = File::open(&path).expect("open");
        let stamp = FileStamp::from_file(&file).expect("stat");
        (path, OpenFile::new(file, stamp))
    }

    fn socket() -> (OwnedFd, std::os::unix::net::UnixStream) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("pair");
        ours.set_nonblocking(true).expect("nonblocking");
        (ours.into(), theirs)
    }

    #[test]
    fn tail_of_a_long_range_is_held_back() {
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
    fn transfer_continues_if_the_first_len_bytes_are_unchanged() {
        type Change = fn(&Path);
        let changes: [(&str, Change); 6] = [
            ("link", |path| {
                std::fs::hard_link(path, path.with_extension("link")).expect("linked");
                std::fs::remove_file(path.with_extension("link")).expect("removed");
            }),
            ("mode", |path| {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
                std::fs::set_permissions(path, mode).expect("mode set");
            }),
            ("touch", |path| {
                let file = File::options().write(true).open(path).expect("open");
                file.set_modified(std::time::SystemTime::now())
                    .expect("touched");
            }),
            ("rename", |path| {
                std::fs::rename(path, path.with_extension("new")).expect("renamed");
                std::fs::rename(path.with_extension("new"), path).expect("renamed");
            }),
            ("append", |path| append(path, b"more")),
            ("rewritten the same", |path| {
                let file = File::options().write(true).open(path).expect("open");
                file.write_all_at(b"xxx", 30_000).expect("written");
            }),
        ];
        for (what, change) in changes {
            let (path, file) = open("kept", &[b'x'; 60_000]);
            let (ours, theirs) = socket();
            let mut sent = 0;
            while sent < 60_000 - TAIL_LEN {
                match send(&ours, &file, sent..60_000) {
                    FileSent::Bytes { len, .. } => sent += len,
                    other => panic!("{what}: {other:?}"),
                }
                let mut got = [0; 60_000];
                std::io::Read::read(&mut &theirs, &mut got).expect("read");
            }
            change(&path);
            let tail = FileSent::Tail(vec![b'x'; TAIL_LEN as usize]);
            assert_eq!(send(&ours, &file, sent..60_000), tail, "{what}");
            let nothing = send(&ours, &file, 60_000..60_000);
            assert_eq!(nothing, FileSent::Tail(Vec::new()), "{what}");
            std::fs::remove_file(path).expect("remove");
        }
    }

    /// Blocks with a digest are compared when they are sent, so a touch cuts the transfer only at the first block
    /// without.
    #[test]
    fn unwatched_file_is_sent_after_touch_up_to_its_last_digest() {
        let block = 256 << 10;
        let (path, file) = open("touched", &vec![b'x'; 12 * block as usize]);
        assert!(file.write_watch.set(None).is_ok());
        let all = FileSent::Read(vec![b'x'; block as usize]);
        assert_eq!(read(&file, 0..12 * block), all);
        let writer = File::options().write(true).open(&path).expect("open");
        writer
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .expect("touched");
        for at in 1..4 {
            assert_eq!(read(&file, at * block..12 * block), all, "block {at}");
        }
        assert_eq!(read(&file, 4 * block..12 * block), FileSent::Changed);
        assert_eq!(
            read_all(&file, 4 * block - 10..4 * block + 10),
            FileSent::Changed
        );
        std::fs::remove_file(path).expect("remove");
    }

    #[test]
    fn watched_file_is_sent_after_touch_until_a_write() {
        let (path, file) = open("watched", &vec![b'x'; 2 << 20]);
        let file = OpenFile {
            digests: None,
            ..file
        };
        let piece = || read(&file, 0..1000);
        let all = FileSent::Read(vec![b'x'; 1000]);
        assert_eq!(piece(), all);
        if !matches!(file.write_watch.get(), Some(Some(_))) {
            return lowroad_testkit::skip("a watched file", "its file system is not trusted");
        }
        let writer = File::options().write(true).open(&path).expect("open");
        let now = std::time::SystemTime::now();
        let touch = |time| {
            let times = std::fs::FileTimes::new();
            let times = times.set_modified(time).set_accessed(time);
            writer.set_times(times).expect("touched");
        };
        for time in [now, std::time::SystemTime::UNIX_EPOCH, now] {
            touch(time);
            assert_eq!(piece(), all, "{time:?}");
        }
        // The modification time is restored, as programs that copy files do.
        writer.write_all_at(b"x", 2000).expect("written");
        touch(now);
        assert_eq!(piece(), FileSent::Changed);
        assert_eq!(piece(), FileSent::Changed, "for good");
        std::fs::remove_file(path).expect("remove");
    }

    fn append(path: &Path, bytes: &[u8]) {
        let file = File::options().append(true).open(path).expect("open");
        std::io::Write::write_all(&mut &file, bytes).expect("written");
    }

    #[test]
    fn rewritten_byte_is_detected_with_and_without_append() {
        for (appended, at) in [(false, 17), (false, 59_999), (true, 17), (true, 59_999)] {
            let (path, file) = open("mixed", &[b'x'; 60_000]);
            assert_eq!(read(&file, 0..60_000), FileSent::Read(vec![b'x'; 60_000]));
            let writer = File::options().write(true).open(&path).expect("open");
            writer.write_all_at(b"y", at).expect("written");
            if appended {
                append(&path, b"more");
            }
            assert_eq!(
                read(&file, 30_000..60_000),
                FileSent::Changed,
                "{appended} {at}"
            );
            assert_eq!(
                read_all(&file, 59_000..60_000),
                FileSent::Changed,
                "{appended} {at}"
            );
            std::fs::remove_file(path).expect("remove");
        }
    }

    #[test]
    fn change_between_open_and_send_is_detected() {
        let changes: [&[u8]; 3] = [b"xx", b"xyxxx", b"xyxxxx"];
        for change in changes {
            let (path, file) = open("between", b"xxxxx");
            std::fs::write(&path, change).expect("rewritten");
            assert_eq!(read(&file, 0..5), FileSent::Changed, "{change:?}");
            std::fs::remove_file(path).expect("remove");
        }
    }

    #[test]
    fn growing_file_is_sent_up_to_its_initial_length() {
        let (path, file) = open("growing", &[b'x'; 1000]);
        let file = OpenFile::unsettled(file.file.clone(), file.stamp);
        for end in [500, 1000] {
            append(&path, b"more");
            let got = FileSent::Read(vec![b'x'; 500]);
            assert_eq!(read(&file, end - 500..end), got, "to {end}");
        }
        std::fs::remove_file(path).expect("remove");
    }

    #[test]
    fn rewritten_or_truncated_file_is_detected() {
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
    fn immutable_file_is_sent_without_held_back_tail() {
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
    fn unlinked_file_is_sent_completely() {
        let (path, file) = open("removed", &[b'x'; 1000]);
        let (ours, _theirs) = socket();
        std::fs::remove_file(path).expect("remove");
        let sent = send(&ours, &file, 0..1000);
        assert_eq!(sent, FileSent::Tail(vec![b'x'; 1000]));
    }
}
