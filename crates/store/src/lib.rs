//! The store of responses, in memory and on disk (`disk_cache`), and the notification of changed files (`watch`,
//! `change_feed`).
//!
//! All workers and helpers share one store in memory. It is divided into shards to avoid contention and bounded in
//! bytes; the bodies are in one arena.
//!
//! ```text
//!  key ─► Entry ─► Object ─┬─ Representation (complete) ─ bytes, validity
//!          variants        ├─ Filling, read while it comes
//!                          ├─ Parts, of one version
//!                          └─ the fact that there is none
//! ```
//! `key` builds the keys, `entry` selects the variant for a request, `validity` decides how long an object may be used,
//! `purge_rules` records purges, `placement` puts bytes into the arena, and `in_flight` lets equal misses share one
//! fetch. The store is independent of the sources of responses.

#![forbid(unsafe_code)]

pub mod changes;
pub mod clock;
pub mod disk_cache;
pub mod entry;
pub mod filling;
mod forgotten;
pub mod key;
mod lock;
pub mod makings;
pub mod object;
pub mod parts;
pub mod place;
pub mod purging;
pub mod refusals;
pub mod seen;
pub mod shared_store;
pub mod validity;
pub mod watch;

pub use entry::Entry;
pub use object::{Object, ObjectArc};
pub use shared_store::SharedStore;
