//! A store of objects on disk: bounded, concurrent, persistent across restarts, and never serving damaged data.
//!
//! Independent of HTTP, workers and the store in memory: keys and metadata are opaque bytes.
//!
//! ```no_run
//! use lowroad_disk::{DiskFolder, DiskOptions, DiskStore};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = DiskFolder::take("/var/cache/lowroad".as_ref())?;
//! let store = DiskStore::open(folder, DiskOptions::with_capacity(10 << 30))?;
//! let mut writer = store.begin(b"example.org/a", b"head and generation", u64::MAX, Some(5))?;
//! writer.append(b"hello")?;
//! writer.commit()?;
//! let found = store.find(b"example.org/a", 0).expect("just stored");
//! // sendfile(socket, &found.body.file, found.body.offset, found.body.len)
//! # Ok(()) }
//! ```
//!
//! # On the disk
//! Segments hold records (`record`): a head and a contiguous body. They are append-only and evicted oldest first;
//! objects that were used are rewritten before. The journal (`log`) records commits and removals in 40 bytes each; a
//! checkpoint contains the whole index, and a new journal begins with it. An object exists if the log has it, and the
//! log entry is written after the record: after `kill -9`, exactly the committed objects exist.
//!
//! After a power failure, the log may have records that did not reach the disk. So a head's checksum is verified at
//! each read, and a body's once after each start, before its first use; `DiskStore::verify` verifies the rest. A
//! removal without a sync (`DiskStore::sync`) may be undone by a power failure.
//!
//! # Blocking
//! `DiskStore::may_contain`, `DiskStore::begin` and `DiskStore::counters` use memory only. All other functions wait for
//! the disk and are for helper threads. Dropping an `ObjectWriter` may remove a file.
//!
//! # Why XXH3
//! One function hashes keys and sums bodies, at memory's speed, with 64 bits; `crc32fast` has 32, too few for keys.
//! Hashes are seeded by a random number of the store, so that clients can't aim at each other's entries.

#![forbid(unsafe_code)]

mod checkpoint;
mod counters;
mod eviction;
mod files;
mod index;
mod journal;
mod log;
mod object_walks;
mod record;
mod recovery;
mod segments;
mod store;
mod writer;

pub use counters::DiskCounters;
pub use files::{DiskFolder, FolderError, SegmentFiles};
pub use object_walks::WalkCursor;
pub use store::{DiskObject, DiskOptions, DiskStore, StoredBody};
pub use writer::{ObjectWriter, WriteError};
