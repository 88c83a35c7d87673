//! The store of responses, in memory and on disk (`disk_cache`), and what tells it that files have changed (`watch`,
//! `changes`).
//!
//! The memory is one store, which all workers and helpers share: cut into shards so that they seldom wait for each other, bounded in
//! bytes, bodies in one arena.
//!
//! ```text
//!  key ─► Entry ─► Object ─┬─ Representation (complete) ─ bytes, validity
//!          variants        ├─ Filling, read while it comes
//!                          ├─ Parts, of one version
//!                          └─ the news that there is nothing
//! ```
//! `key` says under what objects lie, `entry` which variant answers a request, `validity` until when, `purging` what was
//! purged, `place` puts bytes into the arena, and `makings` lets equal misses wait for one making. Where responses come from
//! is their makers' concern.

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
