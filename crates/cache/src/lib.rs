//! Where stored responses are kept: the bytes of an arena, and what is in it under which key; and
//! which responses may be kept, and for how long.
//!
//! Independent parts. [`Extents`] says which bytes of an arena are free; [`Store`] maps keys to values within a bound in
//! bytes and chooses what to evict. RFC 9111 is the rest: [`storable`] says what may be stored, with [`freshness`],
//! [`cache_control`] and [`request`]; [`lifetime`] how it may be used; [`vary`] and [`no_vary_search`] for which requests;
//! [`validation`] conditional requests to the origin; [`partial`] the use of stored parts;
//! [`invalidation`], [`groups`], [`pattern`] and [`bans`] invalidate stored responses; [`bypass`] and [`exclude`]
//! select the requests that an operator excludes from it; [`cache_status`] writes the field Cache-Status. None knows a
//! clock, a thread, a file or a socket: the values are the caller's, and so are the arena's memory and the time. The
//! first two know no HTTP either: a key is opaque bytes.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod bans;
pub mod bypass;
pub mod cache_control;
pub mod cache_status;
pub mod exclude;
mod extents;
pub mod freshness;
mod ghost;
pub mod groups;
pub mod invalidation;
pub mod lifetime;
pub mod no_vary_search;
mod nodes;
pub mod partial;
pub mod pattern;
pub mod request;
pub mod storable;
mod store;
mod targeted;
pub mod validation;
pub mod vary;

pub use extents::{Align, Extent, Extents, PAGE, Short, UNIT};
pub use store::{Counters, Keyed, Store};

/// Numbers for the random walks of the tests (Marsaglia's xorshift); `state` must not be 0.
#[cfg(test)]
fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
