//! Quality of service: classes that share a bounded number of calls.
//!
//! A [`Scheduler`] says which call begins now, which waits, and which is shed when too many wait: calls of a class begin in
//! proportion to its weight, and the class of the least weight is shed first. A [`Bucket`] bounds how many requests a second
//! there may be, and [`Buckets`] how many of each of many clients. Neither knows what a call is or how one belongs to a class, nor clocks, threads and sockets: the time
//! is an argument, and what is told who waits is the caller's.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bucket;
mod buckets;
mod scheduler;

pub use bucket::{Bucket, Rate};
pub use buckets::Buckets;
pub use scheduler::{Arrival, Bounds, Next, Rules, Scheduler};
