//! Upstreams: connection pools, load balancing, health checks and retries for servers behind Lowroad.
//!
//! Connection pool: a `ConnectionPool` leads to one `ServerAddress` and serves all workers. It bounds the connections,
//! queues waiters, keeps idle connections for reuse and closes them after a time. Its sockets belong to a worker's
//! driver, so that all of it also runs in the simulator. The protocol is the business of a `PoolConnector`: this crate
//! has no knowledge of HTTP, FastCGI or TLS. For a protocol with one request at a time on a connection, a request
//! leases it (`ConnectionPool::lease`); for a multiplexed protocol, requests share it (`SharedConnections`).
//!
//! Load balancing: an [`Upstream`] chooses the pool for a request among interchangeable servers, a [`group`] of
//! members, and bounds [`retry`]. [`checks`] are the active health checks, and `name_resolution` turns the addresses
//! of a host name into members. A socket becomes an `UpstreamStream`, with TLS (`tls`) if configured.

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
