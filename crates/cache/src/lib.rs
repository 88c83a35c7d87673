//! Where stored responses are kept: the bytes of an arena, and what is in it under which key; and
//! which responses may be kept, and for how long.
//!
//! Four independent parts. [`Extents`] says which bytes of an arena are free; [`Store`] maps keys to
//! values within a bound in bytes and chooses what to evict; [`storable`] with [`freshness`] and
//! [`cache_control`] judges responses by RFC 9111; [`pattern`] says which a purge means. None knows the others, nor a clock, a thread, a
//! file or a socket: the values are the caller's, and so are the arena's memory and the time. The
//! first two know no HTTP either: a key is opaque bytes.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod bans;
pub mod cache_control;
pub mod cache_status;
mod extents;
pub mod freshness;
mod ghost;
pub mod lifetime;
mod nodes;
pub mod partial;
pub mod pattern;
pub mod request;
pub mod storable;
mod store;
mod targeted;
pub mod validation;
pub mod vary;

pub use extents::{Align, Extent, Extents, PAGE, UNIT};
pub use store::{Counters, Store};

/// Numbers for the random walks of the tests (Marsaglia's xorshift); `state` must not be 0.
#[cfg(test)]
fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
