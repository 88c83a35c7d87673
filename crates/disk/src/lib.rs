//! Stored objects on the disk: bounded, many at a time, there again after a restart, and never served damaged.
//!
//! Knows nothing of HTTP, workers or the memory store: keys and metadata are opaque bytes.
//!
//! ```no_run
//! use lowroad_disk::{Folder, Options, Store};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = Folder::take("/var/cache/lowroad".as_ref())?;
//! let store = Store::open(folder, Options::of_capacity(10 << 30))?;
//! let mut writer = store.begin(b"example.org/a", b"head and generation", u64::MAX, Some(5))?;
//! writer.append(b"hello")?;
//! writer.commit()?;
//! let found = store.find(b"example.org/a", 0).expect("just stored");
//! // sendfile(socket, &found.body.file, found.body.offset, found.body.len)
//! # Ok(()) }
//! ```
//!
//! # On the disk
//! Segments hold records (`record`): a head and a body, which lies in one piece. They are only appended to, and leave
//! oldest first; what was asked for in one is written anew before. The journal (`log`) says what was committed and removed,
//! 40 bytes each; a checkpoint says it all anew, and the journal begins again. An object is there if the log says so,
//! and it says so only after the record was written: after `kill -9` there are exactly the committed ones.
//!
//! After a power failure the log may know of records that did not reach the disk. So a head's checksum is looked at
//! whenever it is read, and a body's once after each start, before it is first given out; [`Store::verify`] does that for
//! the rest. A removal that was not synced ([`Store::sync`]) may be undone by a power failure.
//!
//! # What blocks
//! [`Store::may_have`], [`Store::begin`] and [`Store::counters`] look into memory only. All
//! else waits for the disk: for helper threads. Dropping a [`Writer`] may remove a file.
//!
//! # Why XXH3
//! One function hashes keys and sums bodies, at memory's speed, with 64 bits; `crc32fast` has 32, too few for keys.
//! Hashes are seeded by a random number of the store, so that clients can't aim at each other's entries.

#![forbid(unsafe_code)]

mod background;
mod checkpoint;
mod counters;
mod evicting;
mod files;
mod index;
mod journal;
mod log;
mod opening;
mod record;
mod segments;
mod store;
mod writer;

pub use background::Cursor;
pub use counters::Counters;
pub use files::{Files, Folder, FolderError};
pub use store::{Body, Found, Options, Store};
pub use writer::{WriteError, Writer};
