//! Connections that are kept for the next page. Knows when one may be used, not what for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_limits::{ConcurrencyLimit, Permit};

use super::address::{DatabaseAddress, Link};
use super::trouble::Trouble;

/// The connections to one database.
pub struct Pool {
    address: DatabaseAddress,
    concurrency: Arc<ConcurrencyLimit>,
    /// Connections that nobody uses; the last used is the first to be used again.
    idle: Mutex<Vec<Link>>,
}

/// A connection in use. Dropped, it is closed; [`Pool::give_back`] keeps it.
pub struct Lease {
    /// The connection.
    pub link: Link,
    /// Nothing has been asked on it since it was idle, and it may have been lost meanwhile.
    pub unsure: bool,
    _permit: Permit,
}

impl Pool {
    /// No connections yet, and never more than `connections_max`.
    pub fn new(address: DatabaseAddress, connections_max: usize) -> Pool {
        Pool {
            address,
            concurrency: ConcurrencyLimit::in_line(connections_max),
            idle: Mutex::default(),
        }
    }

    /// Takes a connection that was there, or else makes one; waits while all are in use. If `sure`,
    /// those that were there must first show that they live.
    ///
    /// # Errors
    /// When a new one can't be made.
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

    /// Keeps a connection on which nothing is under way.
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
