//! The connection pool of a database.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_limits::{ConcurrencyLimit, Permit};

use super::address::{DatabaseAddress, DatabaseConnection};
use super::driver_error::DriverError;

/// A pool of connections to one database.
pub struct DatabasePool {
    address: DatabaseAddress,
    concurrency: Arc<ConcurrencyLimit>,
    /// Idle connections; the most recently used connection is reused first.
    idle: Mutex<Vec<DatabaseConnection>>,
}

/// A connection in use. `DatabasePool::release` returns it to the pool; dropping the lease closes the connection.
pub struct DatabaseLease {
    /// The connection.
    pub link: DatabaseConnection,
    /// Whether the connection has not been used since it was taken from the pool, so that it may have been lost while
    /// idle.
    pub is_unverified: bool,
    _permit: Permit,
}

impl DatabasePool {
    /// An empty pool for at most `connections_max` connections.
    pub fn new(address: DatabaseAddress, connections_max: usize) -> DatabasePool {
        DatabasePool {
            address,
            concurrency: ConcurrencyLimit::with_unbounded_queue(connections_max),
            idle: Mutex::default(),
        }
    }

    /// Takes an idle connection, or opens a new one; waits if all connections are in use. With `must_ping`, an idle
    /// connection is used only if it answers a ping.
    ///
    /// # Errors
    /// A new connection cannot be opened.
    pub async fn take(&self, must_ping: bool) -> Result<DatabaseLease, DriverError> {
        // The queue is FIFO.
        let permit = self.concurrency.acquire(0, 0).await;
        let permit = permit.map_err(|_| sqlx::Error::PoolClosed)?;
        // After a restart of the database, all idle connections are dead, and a new connection is opened.
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

    /// Returns a connection to the pool. No command may be in progress.
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
