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
mod connector;
pub mod group;
mod idle_connections;
mod idle_reaper;
mod multiplexed;
pub mod name_resolution;
mod pool;
pub mod retry;
mod stream;
#[cfg(feature = "tls")]
pub mod tls;
mod upstream;

pub use address::ServerAddress;
pub use connector::{Connection, PoolConnector, PoolUnavailable};
pub use idle_connections::CROWDED_MS;
pub use multiplexed::{MultiplexedConnection, SharedConnections};
pub use pool::{AcquireTimeouts, ConnectionPool, Lease, PoolCounters, PoolLimits};
pub use stream::{UpstreamStream, UpstreamTransport};
pub use upstream::{Upstream, UpstreamAttempt};
