//! Connections to servers elsewhere, pooled: how many there may be, who waits for one, which are
//! kept and when they are closed.
//!
//! A [`Pool`] leads to one [`Address`] and serves all workers. It opens connections with sockets of
//! the worker's driver, so that all of it runs in the simulator, too. What is spoken on them is an
//! [`Open`]'s affair: nothing here knows HTTP, FastCGI or TLS. A request whose server takes only one
//! at a time on a connection leases it ([`Pool::lease`]); where it takes several, they share it
//! ([`Shared`]).
//!
//! Where several servers can stand for one another, an [`Upstream`] says which pool a request is given to:
//! a [`group`] of members, with what bounds [`retry`]. [`checks`] ask whether members are well, and
//! [`names`] makes members of a host name's addresses. A socket becomes a [`Stream`], encrypted by `tls` if
//! that is wanted.

#![forbid(unsafe_code)]

mod address;
pub mod checks;
pub mod group;
mod idle;
pub mod names;
mod open;
mod pool;
pub mod retry;
mod shared;
mod stream;
mod tending;
#[cfg(feature = "tls")]
pub mod tls;
mod upstream;

pub use address::Address;
pub use idle::CROWDED_MS;
pub use open::{Connection, Open, Unavailable};
pub use pool::{Counts, Lease, Limits, Patience, Pool};
pub use shared::{Carrier, Shared};
pub use stream::{Stream, Transport};
pub use upstream::{Attempt, Upstream};
