//! The disk cache: responses of origins on disk, bounded in bytes, which survive a restart.
//!
//! ```text
//!  storing ─► writing ─► lowroad_disk ─► recalling ─► SharedStore ─► the way of every stored response
//!   as it comes, or whole    segments       head in memory, body where it lies
//! ```
//! Memory is searched first. If it has no object but the disk may (`DiskCache::may_have`, which does not block), a
//! helper recalls it: the head is loaded into memory, with the body if it is short; a long body is sent from disk.
//! Freshness, validation, ranges and HEAD are thus decided in one place, by the object in memory. Recalled heads with
//! their body on disk leave memory after a while, so that the disk learns which objects are used and can evict the
//! others.
//!
//! The disk gets bodies that memory has no room for, and copies of responses that will be useful for a while; eviction
//! from memory writes nothing. The disk never has an older response than memory: when one is stored in memory only, the
//! copy on disk is deleted.

mod forgetting;
mod key;
mod leaving;
mod meta;
mod pump;
mod purges;
mod reader;
mod recalling;
mod saving;
mod tier;
mod unfinished;
mod upkeep;
mod writing;
mod writings;

pub use key::{Primary, SiteIdentity, primary, site_identity};
pub use meta::{Now, Response};
pub use purges::give_up;
pub use recalling::{Recall, Recalled};
pub use tier::{Tier, Told, Unsaved};
pub use unfinished::{LateReaders, Unfinished};
pub use writing::{Held, Source};
