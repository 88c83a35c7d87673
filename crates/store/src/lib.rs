//! The store of responses, in memory and on disk (`disk_cache`), and the detection of changed files (`watch`,
//! `change_feed`).
//!
//! All workers and helpers share one store in memory. It is divided into shards to avoid contention and bounded in
//! bytes; the bodies are in one arena.
//!
//! ```text
//!  key ─► VariantSet ─► StoredObject ─┬─ Representation (complete) ─ bytes, validity
//!                                     ├─ StreamingObject, read while it arrives
//!                                     ├─ PartialContent, parts of one version
//!                                     └─ no representation (negative caching)
//! ```
//! `key` builds the keys, `entry` selects the variant for a request, `validity` decides how long an object may be used,
//! `purge_rules` records purges, `placement` copies bytes into the arena, and `in_flight` coalesces concurrent misses.
//! The store does not depend on where responses come from.

#![forbid(unsafe_code)]

pub mod change_feed;
pub mod clock;
pub mod disk_cache;
pub mod entry;
mod forgotten_keys;
pub mod in_flight;
pub mod key;
mod lock;
pub mod object;
pub mod partial_content;
pub mod placement;
pub mod purge_epoch;
pub mod purge_rules;
pub mod shared_store;
pub mod streaming_object;
pub mod unstored_reasons;
pub mod validity;
pub mod watch;

pub use entry::VariantSet;
pub use object::{ObjectArc, StoredObject};
pub use shared_store::SharedStore;
