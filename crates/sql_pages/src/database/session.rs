//! The database session of a page: at most one connection to each database, and one transaction on it, which is
//! committed when the page succeeds. The session enforces the time limits.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::answer::DatabaseAnswer;
use super::call::{CallMode, DatabaseCall};
use super::driver_error::DriverError;
use super::pool::DatabaseLease;
use super::{DatabaseFault, PageDatabase};

/// The connections of a page. If the session is dropped before `PageSession::end`, the connections with writes are
/// closed, which rolls the writes back.
#[derive(Default)]
pub struct PageSession {
    connections: Vec<SessionConnection>,
}

struct SessionConnection {
    database: Arc<PageDatabase>,
    /// `None` if the connection broke or was returned to the pool.
    lease: Option<DatabaseLease>,
    writing: bool,
}

impl PageSession {
    /// Executes a call, within the database's time limit.
    ///
    /// # Errors
    /// The failure of the call.
    pub async fn call(
        &mut self,
        database: &Arc<PageDatabase>,
        call: &DatabaseCall,
    ) -> Result<DatabaseAnswer, DatabaseFault> {
        let deadline = Instant::now() + call.timeout;
        let index = self.connection_index(database);
        self.connections[index].call(call, deadline).await
    }

    /// Commits all writes, and returns the connections to their pools.
    ///
    /// # Errors
    /// A database has not confirmed the commit.
    pub async fn end(mut self) -> Result<(), DatabaseFault> {
        for connection in &mut self.connections {
            connection.end().await?;
        }
        Ok(())
    }

    fn connection_index(&mut self, database: &Arc<PageDatabase>) -> usize {
        let is_same = |connection: &SessionConnection| Arc::ptr_eq(&connection.database, database);
        self.connections
            .iter()
            .position(is_same)
            .unwrap_or_else(|| {
                self.connections.push(SessionConnection {
                    database: database.clone(),
                    lease: None,
                    writing: false,
                });
                self.connections.len() - 1
            })
    }
}

impl SessionConnection {
    async fn call(
        &mut self,
        call: &DatabaseCall,
        deadline: Instant,
    ) -> Result<DatabaseAnswer, DatabaseFault> {
        let answer = match self.attempt(call, deadline).await? {
            // The connection was lost while it was idle. Only reads are retried: a write may have been executed. Within
            // a transaction nothing is retried, since a new connection would not continue it.
            Err(error) if error.is_lost() && call.is_read_only() && !self.writing => {
                self.lease = Some(self.take(true, deadline).await?);
                self.attempt(call, deadline).await?
            }
            answer => answer,
        };
        answer.map_err(|error| self.database.fault(error))
    }

    /// Executes a call once. Drops the connection if the call breaks it.
    async fn attempt(
        &mut self,
        call: &DatabaseCall,
        deadline: Instant,
    ) -> Result<Result<DatabaseAnswer, DriverError>, DatabaseFault> {
        let is_write = !call.is_read_only();
        // The lease is taken out during the call: if the call is cancelled, the connection is not reused.
        let mut lease = match self.lease.take() {
            Some(lease) if !is_write || self.writing || !lease.is_unverified => lease,
            // A write must not be retried, so its connection is pinged first.
            _ => self.take(is_write, deadline).await?,
        };
        let has_begun = self.writing;
        let execution = async {
            // The transaction begins with the first write, so that a page that only reads takes no locks.
            if is_write && !has_begun {
                lease.link.begin().await?;
            }
            match call.mode {
                CallMode::ReadGuarded => lease.link.call_read_only(call).await,
                CallMode::Read | CallMode::Write => lease.link.call(call).await,
            }
        };
        let result = timeout_at(deadline, execution).await;
        // After a timeout the lease is dropped here: the reply to the abandoned statement would be taken for the reply
        // to the next statement.
        let result = result.map_err(|_| self.database.timeout_fault())?;
        self.writing |= is_write;
        // A reply proves that the connection is alive.
        if !result.as_ref().is_err_and(DriverError::breaks_connection) {
            lease.is_unverified = false;
            self.lease = Some(lease);
        }
        Ok(result)
    }

    async fn take(
        &self,
        must_ping: bool,
        deadline: Instant,
    ) -> Result<DatabaseLease, DatabaseFault> {
        // If the connection of a transaction is lost, its writes are rolled back; a new connection would commit only
        // the later writes.
        if self.writing {
            return Err(self
                .database
                .unavailable_fault("the connection was lost during a write"));
        }
        match timeout_at(deadline, self.database.pool.take(must_ping)).await {
            Ok(Ok(lease)) => Ok(lease),
            Ok(Err(error)) => Err(self.database.unavailable_fault(error)),
            Err(_) => Err(self.database.unavailable_fault(format_args!(
                "no connection within its timeout of {} ms",
                self.database.timeout.as_millis()
            ))),
        }
    }

    async fn end(&mut self) -> Result<(), DatabaseFault> {
        let Some(mut lease) = self.lease.take() else {
            return Ok(());
        };
        if self.writing {
            // The commit gets a new time limit: that of the last call may be nearly used up, and an unconfirmed commit
            // is the worst outcome.
            let committed = tokio::time::timeout(self.database.timeout, lease.link.commit()).await;
            let committed = committed.map_err(|_| self.database.timeout_fault())?;
            committed.map_err(|error| self.database.fault(error))?;
        }
        self.database.pool.release(lease);
        Ok(())
    }
}

impl Drop for SessionConnection {
    fn drop(&mut self) {
        // A connection with writes is closed, which makes the database roll back.
        if let Some(lease) = self.lease.take().filter(|_| !self.writing) {
            self.database.pool.release(lease);
        }
    }
}
