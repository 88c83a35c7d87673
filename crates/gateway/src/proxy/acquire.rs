//! Acquires a connection for a request: one of HTTP/1.1 for it alone, or one of HTTP/2 that others share.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use lowroad_origin::{AcquireTimeouts, MultiplexedConnection, PoolUnavailable, SharedOrLease};

use super::h2::{H2Link, LinkOwner};
use super::servers::{OriginEndpoint, SharedEndpoint};
use super::transport::OriginLease;

/// A connection for a request.
pub enum AcquiredConnection {
    /// HTTP/1.1.
    Exclusive(OriginLease),
    /// HTTP/2.
    Shared(Arc<H2Link>),
}

impl AcquiredConnection {
    /// Whether the connection has not served a request yet.
    pub fn is_new(&self) -> bool {
        match self {
            AcquiredConnection::Exclusive(lease) => !lease.is_reused,
            AcquiredConnection::Shared(link) => !link.has_answered(),
        }
    }
}

impl OriginEndpoint {
    /// An open connection; does not wait.
    pub fn try_acquire(&self, worker: usize) -> Option<AcquiredConnection> {
        if let Some(shared) = &self.connections.shared {
            if let Some(link) = shared.connections.try_get(worker) {
                return Some(AcquiredConnection::Shared(link));
            }
            if !shared.prefers_h1.load(Relaxed) {
                return None;
            }
        }
        let lease = self.pool().try_lease(worker)?;
        Some(AcquiredConnection::Exclusive(lease))
    }

    /// Waits for a connection. With `fresh`, one of HTTP/1.1 must be new; lost ones of HTTP/2 are never used again anyway.
    ///
    /// # Errors
    /// [`PoolUnavailable`]
    pub async fn acquire(
        &self,
        worker: usize,
        fresh: bool,
        timeouts: AcquireTimeouts,
    ) -> Result<AcquiredConnection, PoolUnavailable> {
        let Some(shared) = &self.connections.shared else {
            let lease = self.pool().lease(worker, fresh, timeouts).await?;
            return Ok(AcquiredConnection::Exclusive(lease));
        };
        if shared.prefers_h1.load(Relaxed) {
            let lease = self.pool().lease(worker, fresh, timeouts).await?;
            return Ok(match self.start_link(shared, lease) {
                Ok(link) => {
                    shared.connections.publish(&link);
                    link.settle().await;
                    AcquiredConnection::Shared(link)
                }
                Err(lease) => AcquiredConnection::Exclusive(lease),
            });
        }
        let start = |lease| self.start_link(shared, lease);
        let acquired = shared
            .connections
            .get_or_lease(self.pool(), worker, timeouts, start);
        Ok(match acquired.await? {
            SharedOrLease::Shared(link) => AcquiredConnection::Shared(link),
            SharedOrLease::Lease(lease) => AcquiredConnection::Exclusive(lease),
        })
    }

    /// Starts the task of a connection with HTTP/2; returns other connections.
    fn start_link(
        &self,
        shared: &SharedEndpoint,
        lease: OriginLease,
    ) -> Result<Arc<H2Link>, OriginLease> {
        let is_h2 = lease.connection.is_h2;
        shared.prefers_h1.store(!is_h2, Relaxed);
        if !is_h2 {
            return Err(lease);
        }
        let worker = lease.worker;
        let owner = LinkOwner::Lease(lease);
        Ok(H2Link::start(
            owner,
            worker,
            self.pool().worker_handle(worker),
        ))
    }
}
