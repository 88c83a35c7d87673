//! The connection pool of a database.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_limits::{ConcurrencyLimit, Permit};

use super::address::{DatabaseAddress, DatabaseConnection};
use super::trouble::DriverError;

/// A connection pool.
pub struct DatabasePool {
    address: DatabaseAddress,
    concurrency: Arc<ConcurrencyLimit>,
    /// Idle connections; the most recently used one is reused first.
    idle: Mutex<Vec<DatabaseConnection>>,
}

/// A connection in use. Dropping it closes the connection; `DatabasePool::release` returns it to the pool.
pub struct DatabaseLease {
    /// The connection.
    pub link: DatabaseConnection,
    /// The connection has not been used since it was idle, and may have been lost meanwhile.
    pub is_unverified: bool,
    _permit: Permit,
}

impl DatabasePool {
    /// An empty pool of at most `connections_max` connections.
    pub fn new(address: DatabaseAddress, connections_max: usize) -> DatabasePool {
        DatabasePool {
            address,
            concurrency: ConcurrencyLimit::with_unbounded_queue(connections_max),
            idle: Mutex::default(),
        }
    }

    /// Takes an idle connection, or makes one; waits while all are in use. If `must_ping`, idle connections must first
    /// answer a ping.
    ///
    /// # Errors
    /// A new connection cannot be made.
    pub async fn take(&self, must_ping: bool) -> Result<DatabaseLease, DriverError> {
        // In line: pages wait in the order of their arrival.
        let permit = self.concurrency.acquire(0, 0).await;
        let permit = permit.map_err(|_| sqlx::Error::PoolClosed)?;
        // After a restart of the database all idle connections are dead, so the loop goes on to a new one.
        while let Some(mut link) = self.pop() {
            // A dead connection is dropped, and the next idle one is tried.
            if !must_ping || link.is_alive().await {
                return Ok(DatabaseLease {
                    link,
                    is_unverified: !must_ping,
                    _permit: permit,
                });
            }
        }
        Ok(DatabaseLease {
            link: self.address.connect().await?,
            is_unverified: false,
            _permit: permit,
        })
    }

    /// Returns a connection without a command in progress.
    pub fn release(&self, lease: DatabaseLease) {
        self.idle().push(lease.link);
    }

    fn pop(&self) -> Option<DatabaseConnection> {
        self.idle().pop()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<DatabaseConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
