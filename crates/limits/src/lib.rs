//! Limits: concurrency, rates, and the scheduling of waiters.
//!
//! | module | purpose |
//! |---|---|
//! | `permits` | a semaphore: further operations are refused or queued |
//! | `client_shares` | a semaphore from which no client can take all permits |
//! | `connections` | connection limits, in total and per address |
//! | `denied_addresses` | the client addresses that operators deny |
//! | `scheduler` | schedules calls of traffic classes: which call begins, waits or is shed |
//! | `rate`, `client_rates` | token buckets: a single one, and one for each of many clients |
//! | `sliding_window` | an exact limit in every period |
//! | `refusal_reason` | the names of limits in metrics |
//! | `wait_queue`, `wait_cell` | a queue of waiters, and the outcome that a waiter's future polls |
//!
//! The current time is an argument; the crate uses no clock and no sockets.

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
mod denied_addresses;
#[cfg(feature = "std")]
mod permits;
mod rate;
mod refusal_reason;
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
pub use denied_addresses::{DeniedAddresses, DeniedPrefix};
#[cfg(feature = "std")]
pub use permits::{ConcurrencyLimit, Permit, PermitWait, TooManyWaiters};
pub use rate::{BucketState, CellRate, RequestRate, TokenBucket, retry_after_s};
pub use refusal_reason::RefusalReason;
pub use scheduler::{CallArrival, CallBounds, CallOutcome, ClassRules, ClassScheduler};
pub use sliding_window::SlidingWindow;
#[cfg(feature = "std")]
pub use wait_cell::WaitCell;
