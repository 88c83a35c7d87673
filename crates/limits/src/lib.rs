//! Limits: how much may be under way at a time, how often something may happen, and who is next.
//!
//! | module | is |
//! |---|---|
//! | `permits` | a bounded number of permits, and queues for them |
//! | `shares` | the same, of which no client takes all |
//! | `connections` | connections in all and by address |
//! | `scheduler` | classes that share a bounded number of calls: which call begins, waits or is shed |
//! | `rate`, `client_rates` | token buckets, one or one for each of many clients |
//! | `sliding_window` | so many in so long, exactly |
//!
//! The time is an argument. Nothing here knows clocks, sockets, or what is limited.

#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod client_rates;
#[cfg(feature = "std")]
pub mod connections;
#[cfg(feature = "std")]
pub mod permits;
mod rate;
mod scheduler;
#[cfg(feature = "std")]
pub mod shares;
pub mod sliding_window;

pub use client_rates::Buckets;
pub use rate::{Bucket, Rate};
pub use scheduler::{Arrival, Bounds, Next, Rules, Scheduler};
