//! Limits: how many requests may be under way at a time, how often they may come, and which is next.
//!
//! | module | is |
//! |---|---|
//! | `permits` | so many at a time; others are refused or queue |
//! | `shares` | the same, of which no client takes all |
//! | `connections` | so many connections at a time, in all and of each address |
//! | `scheduler` | classes that share a number of calls: which call begins, waits or is shed |
//! | `rate`, `client_rates` | token buckets: one, or one for each of many clients |
//! | `sliding_window` | so many in any period, exactly |
//! | `queue`, `wait_cell` | waiters in order, and how a future learns its outcome |
//!
//! The time is an argument. Knows no clocks, no sockets and no requests.

#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(feature = "std")]
mod client_rates;
#[cfg(feature = "std")]
mod connections;
#[cfg(feature = "std")]
mod permits;
mod queue;
mod rate;
mod scheduler;
#[cfg(feature = "std")]
mod shares;
mod sliding_window;
#[cfg(feature = "std")]
mod wait_cell;

#[cfg(feature = "std")]
pub use client_rates::ClientRates;
#[cfg(feature = "std")]
pub use connections::{ConnectionLimit, ConnectionOverload};
#[cfg(feature = "std")]
pub use permits::{Acquire, ConcurrencyLimit, Permit, TooManyWaiters};
pub use rate::{BucketState, CellRate, Rate, TokenBucket, retry_after_s};
pub use scheduler::{CallArrival, CallBounds, CallOutcome, ClassRules, ClassScheduler};
#[cfg(feature = "std")]
pub use shares::{ClientPermit, ClientShares, ShareRefusal};
pub use sliding_window::SlidingWindow;
#[cfg(feature = "std")]
pub use wait_cell::WaitCell;
