//! The disk cache: a second tier of the store, bounded in bytes, with responses that survive a restart.
//!
//! ```text
//!  storing ─► writing ─► lowroad_disk ─► recall ─► SharedStore ─► client
//!      while it arrives,   segments      head into memory,
//!      or when complete                  long bodies stay on disk
//! ```
//! Memory is searched first. If it has no object but the disk may have one (`DiskCache::may_contain`, which does not
//! block), a helper recalls the object: the head is loaded into memory, with the body if it is short; a long body is
//! sent from disk. Freshness, validation, ranges and HEAD are thus handled in one place, with the object in memory.
//! Recalled heads with their body on disk are removed from memory after a while, so that the next recall shows the disk
//! that the object is used; the disk evicts unused objects.
//!
//! Two kinds of bodies are written to disk: those that memory has no room for, and copies of responses with a
//! sufficient freshness lifetime; eviction from memory writes nothing. The disk never has an older response than
//! memory: if a response is stored in memory only, the copy on disk is deleted.

mod body_write;
mod deletion;
mod key;
mod leaving;
mod maintenance;
mod meta;
mod purge_log;
mod purges;
mod reader;
mod recall;
mod tier;
mod unfinished_body;
mod work_queue;
mod writings;

pub use body_write::{PendingWrite, WriteSource};
pub use key::{PrimaryKey, SiteIdentity, primary, site_identity};
pub use meta::{ClockReading, StoredMeta};
pub use purges::invalidate_folder;
pub use recall::{MemoryObject, RecallOutcome, RecallRequest};
pub use tier::{DiskCache, PurgeWaiters, SaveCallback};
pub use unfinished_body::{LateReaders, UnfinishedBody};
