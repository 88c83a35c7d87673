//! Limits: concurrency, rates, and the scheduling of waiters.
//!
//! | module | purpose |
//! |---|---|
//! | `permits` | a semaphore: excess requests are refused or queue |
//! | `client_shares` | a semaphore of which no client can take all |
//! | `connections` | connection limits, in total and per address |
//! | `scheduler` | traffic classes that share a number of calls: which call begins, waits or is shed |
//! | `rate`, `client_rates` | token buckets: one, or one for each of many clients |
//! | `sliding_window` | an exact limit in any period |
//! | `wait_queue`, `wait_cell` | waiters in order, and the outcome for a future |
//!
//! The time is an argument; the crate uses no clock and no sockets.

#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(feature = "std")]
mod client_rates;
#[cfg(feature = "std")]
mod client_shares;
#[cfg(feature = "std")]
mod connections;
#[cfg(feature = "std")]
mod permits;
mod rate;
mod scheduler;
mod sliding_window;
#[cfg(feature = "std")]
mod wait_cell;
mod wait_queue;

#[cfg(feature = "std")]
pub use client_rates::ClientRates;
#[cfg(feature = "std")]
pub use client_shares::{ClientPermit, ClientShares, ShareRefusal};
#[cfg(feature = "std")]
pub use connections::{ConnectionLimit, ConnectionOverload};
#[cfg(feature = "std")]
pub use permits::{ConcurrencyLimit, Permit, PermitWait, TooManyWaiters};
pub use rate::{BucketState, CellRate, RequestRate, TokenBucket, retry_after_s};
pub use scheduler::{CallArrival, CallBounds, CallOutcome, ClassRules, ClassScheduler};
pub use sliding_window::SlidingWindow;
#[cfg(feature = "std")]
pub use wait_cell::WaitCell;
