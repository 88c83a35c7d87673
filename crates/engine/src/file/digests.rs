//! Digests of a file's blocks. They are taken before the first block is sent, and each block is compared with its
//! digest when it is sent. So a client gets the bytes of one version, however the file's times change.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::FileSent;

/// The length of a block.
const BLOCK_LEN: u64 = 256 << 10;
/// The number of blocks that get digests in the first pass, and in each later one.
const TAKEN_FIRST: usize = 4;
const TAKEN_MAX: usize = 256;
/// Longer files get no digests, as the digests would take more than about 2 MB of memory.
pub(super) const DIGESTED_LEN_MAX: u64 = 16 << 30;

/// The bytes read, or the reason why there are none.
pub(super) type BlockRead = Result<Vec<u8>, FileSent>;

/// The number of a block and its digest.
type DigestEntry = (u64, u64);

/// The digests of one open file, by block number.
#[derive(Debug, Default)]
pub(super) struct BlockDigests(Mutex<BTreeMap<u64, u64>>);

impl BlockDigests {
    /// Reads the first blocks of a range that have no digest yet; the file had `len` bytes when it was opened. Returns
    /// their digests, and the end of the part of the range that then has digests. `None`: the file is shorter now.
    pub(super) fn missing(
        &self,
        file: &File,
        range: &Range<u64>,
        len: u64,
    ) -> Option<(Vec<DigestEntry>, u64)> {
        if range.is_empty() {
            return Some((Vec::new(), range.end));
        }
        let blocks = range.start / BLOCK_LEN..=(range.end - 1) / BLOCK_LEN;
        // The lock is not held while the disk is read.
        let missing: Vec<u64> = {
            let digests = self.lock();
            let missing = blocks.filter(|block| !digests.contains_key(block));
            let count = if digests.is_empty() {
                TAKEN_FIRST
            } else {
                TAKEN_MAX
            };
            missing.take(count).collect()
        };
        let end = match missing.last() {
            Some(last) => range.end.min((last + 1) * BLOCK_LEN),
            None => range.end,
        };
        let read = |block| Some((block, xxh3_64(&read(file, bounds(block, len)).ok()?)));
        Some((missing.into_iter().map(read).collect::<Option<_>>()?, end))
    }

    /// The end of the part of a range, from its start, in which all blocks have digests. `None` if the first block has
    /// none.
    pub(super) fn digested_end(&self, range: &Range<u64>) -> Option<u64> {
        let digests = self.lock();
        let blocks = range.start / BLOCK_LEN..=(range.end - 1) / BLOCK_LEN;
        let last = blocks
            .take_while(|block| digests.contains_key(block))
            .last()?;
        Some(range.end.min((last + 1) * BLOCK_LEN))
    }

    /// Adds digests. Returns false if one differs from a digest of the same block that was added before.
    pub(super) fn add(&self, entries: &[DigestEntry]) -> bool {
        let mut digests = self.lock();
        let mut add =
            |(block, digest): &DigestEntry| *digests.entry(*block).or_insert(*digest) == *digest;
        entries.iter().all(&mut add)
    }

    /// Reads the start of `range`, at most to the end of its first block, and compares that block with its digest. The
    /// file had `len` bytes when it was opened.
    pub(super) fn read(&self, file: &File, range: &Range<u64>, len: u64) -> BlockRead {
        let block = range.start / BLOCK_LEN;
        let mut bytes = read(file, bounds(block, len))?;
        if !self.add(&[(block, xxh3_64(&bytes))]) {
            return Err(FileSent::Changed);
        }
        let within = |file_offset: u64| {
            usize::try_from(file_offset - block * BLOCK_LEN).unwrap_or(usize::MAX)
        };
        // The digest covers the whole block; the caller gets the part that is in the range.
        bytes.truncate(within(range.end));
        bytes.drain(..within(range.start).min(bytes.len()));
        match bytes.is_empty() {
            true => Err(FileSent::Changed), // the range exceeds the file's length
            false => Ok(bytes),
        }
    }

    /// Whether there are digests, and the first of them still match the file.
    pub(super) fn still_match(&self, file: &File, len: u64) -> bool {
        let digests: Vec<DigestEntry> = {
            let digests = self.lock();
            digests
                .iter()
                .take(TAKEN_MAX)
                .map(|(number, digest)| (*number, *digest))
                .collect()
        };
        let matches_file = |(block, digest): &DigestEntry| {
            read(file, bounds(*block, len)).is_ok_and(|bytes| xxh3_64(&bytes) == *digest)
        };
        !digests.is_empty() && digests.iter().all(matches_file)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bounds(block: u64, len: u64) -> Range<u64> {
    block * BLOCK_LEN..((block + 1) * BLOCK_LEN).min(len)
}

/// Reads a range of a file. May block on the disk.
pub(super) fn read(file: &File, range: Range<u64>) -> BlockRead {
    let len = range.end.saturating_sub(range.start);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    match file.read_exact_at(&mut bytes, range.start) {
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(FileSent::Changed),
        Err(_) => Err(FileSent::Failed),
    }
}

/// The digest of a range of a file. May block on the disk.
///
/// # Errors
/// The file can't be read, or ends before the range does.
pub fn digest(file: &File, range: Range<u64>) -> io::Result<u128> {
    let mut digest = Xxh3Default::new();
    let mut buffer = vec![0; 64 << 10];
    let mut offset = range.start;
    while offset < range.end {
        let len = usize::try_from(range.end - offset).unwrap_or(usize::MAX);
        let piece = &mut buffer[..len.min(64 << 10)];
        file.read_exact_at(piece, offset)?;
        digest.update(piece);
        offset += piece.len() as u64;
    }
    Ok(digest.digest128())
}

/// The digest of bytes.
pub fn digest_bytes(bytes: &[u8]) -> u128 {
    xxhash_rust::xxh3::xxh3_128(bytes)
}
