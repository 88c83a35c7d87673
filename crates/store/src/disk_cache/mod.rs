//! The disk cache: responses of origins on disk, bounded in bytes, which survive a restart.
//!
//! ```text
//!  storing ─► writing ─► lowroad_disk ─► recalling ─► SharedStore ─► the way of every stored response
//!   as it comes, or whole    segments       head in memory, body where it lies
//! ```
//! Memory is searched first. If it has no object but the disk may (`DiskCache::may_contain`, which does not block), a
//! helper recalls it: the head is loaded into memory, with the body if it is short; a long body is sent from disk.
//! Freshness, validation, ranges and HEAD are thus decided in one place, by the object in memory. Recalled heads with
//! their body on disk leave memory after a while, so that the disk learns which objects are used and can evict the
//! others.
//!
//! The disk gets bodies that memory has no room for, and copies of responses that will be useful for a while; eviction
//! from memory writes nothing. The disk never has an older response than memory: when one is stored in memory only, the
//! copy on disk is deleted.

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
pub use purges::give_up;
pub use recall::{MemoryObject, RecallOutcome, RecallRequest};
pub use tier::{DiskCache, PurgeWaiters, SaveCallback};
pub use unfinished_body::{LateReaders, UnfinishedBody};
