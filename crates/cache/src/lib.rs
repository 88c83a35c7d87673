//! Where stored responses are kept: the bytes of an arena, and what is in it under which key.
//!
//! Two independent parts. [`Extents`] says which bytes of an arena are free; [`Store`] maps keys to
//! values within a bound in bytes and chooses what to evict. Neither knows the other, nor a clock,
//! a thread, a file, a socket or HTTP: the values are the caller's, and so is the arena's memory.
//!
//! Freshness and variants (RFC 9111) are not here: a key is opaque bytes.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod extents;
mod ghost;
mod nodes;
mod store;

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
