//! The connection pool of a database.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_limits::{ConcurrencyLimit, Permit};

use super::address::{DatabaseAddress, Link};
use super::trouble::Trouble;

/// A connection pool.
pub struct Pool {
    address: DatabaseAddress,
    concurrency: Arc<ConcurrencyLimit>,
    /// Idle connections; the most recently used one is reused first.
    idle: Mutex<Vec<Link>>,
}

/// A connection in use. Dropping it closes the connection; `DatabasePool::give_back` returns it to the pool.
pub struct Lease {
    /// The connection.
    pub link: Link,
    /// The connection has not been used since it was idle, and may have been lost meanwhile.
    pub unsure: bool,
    _permit: Permit,
}

impl Pool {
    /// An empty pool of at most `connections_max` connections.
    pub fn new(address: DatabaseAddress, connections_max: usize) -> Pool {
        Pool {
            address,
            concurrency: ConcurrencyLimit::in_line(connections_max),
            idle: Mutex::default(),
        }
    }

    /// Takes an idle connection, or makes one; waits while all are in use. If `sure`, idle connections must first
    /// answer a ping.
    ///
    /// # Errors
    /// A new connection cannot be made.
    pub async fn take(&self, sure: bool) -> Result<Lease, Trouble> {
        let permit = self.concurrency.acquire(0, 0).await;
        let permit = permit.map_err(|_| sqlx::Error::PoolClosed)?;
        while let Some(mut link) = self.pop() {
            if !sure || link.is_alive().await {
                return Ok(Lease {
                    link,
                    unsure: !sure,
                    _permit: permit,
                });
            }
        }
        Ok(Lease {
            link: self.address.connect().await?,
            unsure: false,
            _permit: permit,
        })
    }

    /// Returns a connection without a command in progress.
    pub fn give_back(&self, lease: Lease) {
        self.idle().push(lease.link);
    }

    fn pop(&self) -> Option<Link> {
        self.idle().pop()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
