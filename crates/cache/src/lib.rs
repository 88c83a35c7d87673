//! The parts of an HTTP cache (RFC 9111) as pure functions and data structures: storage and eviction, storability and
//! freshness, validation and invalidation.
//!
//! The parts are independent:
//!
//! - `ExtentAllocator` manages the free bytes of an arena; `CacheStore` maps keys (opaque bytes) to values within a
//!   bound in bytes and evicts by S3-FIFO.
//! - `storage_policy` decides whether a response may be stored, with [`freshness`], [`cache_control`] and [`request`].
//! - [`lifetime`] decides how a stored response may be reused, [`vary`] and [`no_vary_search`] for which requests.
//! - [`validation`] handles conditional requests to the origin; `partial_content` combines and reuses parts.
//! - [`invalidation`], [`groups`], [`pattern`] and `ban_list` invalidate stored responses.
//! - [`bypass`] and `excluded_paths` select the requests that an operator excludes from the cache.
//! - [`cache_status`] writes Cache-Status.
//!
//! The crate uses no clock, thread, file or socket: the caller supplies the values, the arena's memory and the time.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod ban_list;
pub mod bypass;
pub mod cache_control;
pub mod cache_status;
pub mod excluded_paths;
mod extents;
pub mod freshness;
mod ghost_queue;
pub mod groups;
pub mod invalidation;
pub mod lifetime;
pub mod no_vary_search;
mod nodes;
pub mod partial_content;
pub mod pattern;
pub mod query_rules;
pub mod request;
pub mod storage_policy;
mod store;
pub mod targeted_fields;
pub mod validation;
pub mod vary;

pub use extents::{ArenaExtent, ExtentAlign, ExtentAllocator, PAGE, ShortExtent, UNIT};
pub use store::{CacheStore, KeyedValue, StoreCounters};

/// Random numbers for tests (Marsaglia's xorshift); `state` must not be 0.
#[cfg(test)]
fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
