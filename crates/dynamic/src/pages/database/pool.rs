//! Connections that are kept for the next page. Knows when one may be used, not what for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::place::{Link, Place};

/// The connections to one database.
pub struct Pool {
    place: Place,
    permits: Arc<Semaphore>,
    /// Connections that nobody uses; the last used is the first to be used again.
    idle: Mutex<Vec<Link>>,
}

/// A connection in use. Dropped, it is closed; [`Pool::give_back`] keeps it.
pub struct Lease {
    /// The connection.
    pub link: Link,
    /// Nothing has been asked on it since it was idle, and it may have been lost meanwhile.
    pub unsure: bool,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    /// No connections yet, and never more than `connections_max`.
    pub fn new(place: Place, connections_max: usize) -> Pool {
        Pool {
            place,
            permits: Arc::new(Semaphore::new(connections_max)),
            idle: Mutex::default(),
        }
    }

    /// Takes a connection that was there, or else makes one; waits while all are in use. If `sure`,
    /// those that were there must first show that they live.
    ///
    /// # Errors
    /// When a new one can't be made.
    pub async fn take(&self, sure: bool) -> Result<Lease, sqlx::Error> {
        let permit = self.permits.clone().acquire_owned().await;
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
            link: self.place.connect().await?,
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
