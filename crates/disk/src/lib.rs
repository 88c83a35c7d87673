//! A store of objects on disk: bounded, concurrent, persistent across restarts, with checksums against damaged data.
//!
//! The crate knows nothing of HTTP, workers or the store in memory: keys and metadata are opaque bytes.
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
//! # Format on disk
//! Segments are append-only files of records (`record`), each a head and a contiguous body. The oldest segment is
//! evicted first, after its used objects were rewritten to another segment. The journal (`journal`, `log`) records
//! commits and removals in 40 bytes each; a checkpoint contains the whole index, and a new journal is begun with it. An
//! object exists if the journal has an entry for it, and that entry is written after the object's record. So after
//! `kill -9`, exactly the committed objects exist.
//!
//! After a power failure, the journal may refer to records that did not reach the disk. So the checksum of a head is
//! verified at each read, and the checksum of a body once after each start, before the body's first use;
//! `DiskStore::verify` verifies the other bodies in the background. A removal may be undone by a power failure until
//! `DiskStore::sync`.
//!
//! # Blocking
//! `DiskStore::may_contain`, `DiskStore::begin` and `DiskStore::counters` use memory only. Unless documented otherwise,
//! all other functions wait for the disk, and are for helper threads. Dropping an `ObjectWriter` may remove a file.
//!
//! # Why XXH3
//! One function serves as the hash of keys and the checksum of bodies, at the speed of memory and with 64 bits
//! (`crc32fast` has 32, which are too few for keys). Hashes are seeded by a random number of the store, so that clients
//! can't provoke collisions with other entries.

#![forbid(unsafe_code)]

mod checkpoint;
mod counters;
mod eviction;
mod files;
mod index;
mod journal;
mod lease;
mod log;
mod object_walks;
mod record;
mod recovery;
mod segments;
mod store;
mod writer;

pub use counters::DiskCounters;
pub use files::{DiskFolder, FolderError, SegmentFiles};
pub use lease::FolderLease;
pub use object_walks::WalkCursor;
pub use store::{DiskObject, DiskOptions, DiskStore, StoredBody};
pub use writer::{ObjectWriter, WriteError};
