//! Upstreams: connection pools, load balancing, health checks and retries for servers behind Lowroad.
//!
//! Connection pool: a `ConnectionPool` has the connections of all workers to one `ServerAddress`. It limits their
//! number, queues waiting requests, keeps idle connections for reuse, and closes them after a time. The sockets belong
//! to a worker's driver, so that all of this also runs in the simulator. A `PoolConnector` implements the protocol:
//! this crate does not know HTTP or FastCGI. With one request at a time on a connection, a request leases it
//! (`ConnectionPool::lease`); with a multiplexed protocol, requests share it (`SharedConnections`).
//!
//! Load balancing: an [`Upstream`] is a [`group`] of interchangeable servers (members); it chooses the member for a
//! request, and limits retries ([`retry`]). [`checks`] are the active health checks; `name_resolution` keeps the
//! members equal to the addresses of a host name. An `UpstreamStream` is a socket, with TLS (`tls`) if configured.

#![forbid(unsafe_code)]

mod address;
pub mod checks;
mod connector;
pub mod group;
mod idle_connections;
mod idle_reaper;
mod limit_claims;
pub mod member_claims;
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
pub use limit_claims::LimitClaim;
pub use multiplexed::{MultiplexedConnection, SharedConnections, SharedOrLease};
pub use pool::{AcquireTimeouts, ConnectionPool, Lease, PoolCounters, PoolLimits};
pub use stream::{UpstreamStream, UpstreamTransport};
pub use upstream::{Upstream, UpstreamAttempt};
