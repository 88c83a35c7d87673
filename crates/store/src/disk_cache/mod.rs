//! The second tier of the store: responses of origins on a disk, bounded in bytes, and there again after a restart.
//!
//! ```text
//!  storing ─► writing ─► lowroad_disk ─► recalling ─► SharedStore ─► the way of every stored response
//!   as it comes, or whole    segments       head in memory, body where it lies
//! ```
//! Memory is asked first. What it has not, but the disk may have ([`Tier::may_have`], without a wait), is recalled by a
//! helper: the head goes into memory, with a short body, and a long body is sent from the disk. So freshness, validation,
//! ranges and HEAD are decided in one place, by what is in memory. What was recalled with its body on the disk leaves
//! memory after a while, so that the disk learns what is used, and may give up what is not.
//!
//! The disk has what memory has no room for, and a copy of what memory has and will be of use for a while. So eviction
//! from memory writes nothing. It never has something older than memory: what is stored in memory and not here is forgotten here.
//!
//! Knows requests only by their field lines, and of programs nothing.

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
