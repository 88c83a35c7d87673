//! A page's database session: one connection to each database, and one transaction that is committed when the page ends
//! well. Applies the time limits.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::answer::DatabaseAnswer;
use super::call::{CallMode, DatabaseCall};
use super::pool::DatabaseLease;
use super::trouble::DriverError;
use super::{DatabaseFault, PageDatabase};

/// A page's connections. If it is dropped before `PageSession::end`, all writes are rolled back by closing the
/// connections that wrote.
#[derive(Default)]
pub struct PageSession {
    connections: Vec<SessionConnection>,
}

struct SessionConnection {
    database: Arc<PageDatabase>,
    /// `None` once it broke or was returned.
    lease: Option<DatabaseLease>,
    writing: bool,
}

impl PageSession {
    /// Makes a call, within the database's time limit.
    ///
    /// # Errors
    /// The call's failure.
    pub async fn call(
        &mut self,
        database: &Arc<PageDatabase>,
        call: &DatabaseCall,
    ) -> Result<DatabaseAnswer, DatabaseFault> {
        let deadline = Instant::now() + call.timeout;
        let index = self.connection_index(database);
        self.connections[index].call(call, deadline).await
    }

    /// Commits all writes, and returns the connections.
    ///
    /// # Errors
    /// A database did not confirm the commit.
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
            // The connection was lost while it was idle. Only reads may be repeated: a write may have been executed.
            // A guard on `writing`: a new connection would not be in the transaction.
            Err(error) if error.is_lost() && call.is_read_only() && !self.writing => {
                self.lease = Some(self.take(true, deadline).await?);
                self.attempt(call, deadline).await?
            }
            answer => answer,
        };
        answer.map_err(|error| self.database.fault(error))
    }

    /// Makes one attempt; drops a connection that it broke.
    async fn attempt(
        &mut self,
        call: &DatabaseCall,
        deadline: Instant,
    ) -> Result<Result<DatabaseAnswer, DriverError>, DatabaseFault> {
        let is_write = !call.is_read_only();
        // Taken out during the call: if it fails or is cancelled, the connection is not reused.
        let mut lease = match self.lease.take() {
            Some(lease) if !is_write || self.writing || !lease.is_unverified => lease,
            // A write must not be repeated, so its connection is pinged first.
            _ => self.take(is_write, deadline).await?,
        };
        let has_begun = self.writing;
        let execution = async {
            // The transaction begins with the first write, so that pages that only read take no locks.
            if is_write && !has_begun {
                // Within the first write's attempt, so that a page that only reads needs no transaction.
                lease.link.begin().await?;
            }
            match call.mode {
                CallMode::ReadGuarded => lease.link.call_guarded(call).await,
                CallMode::Read | CallMode::Write => lease.link.call(call).await,
            }
        };
        let result = timeout_at(deadline, execution).await;
        // On a timeout the lease is dropped here: the reply of an abandoned statement would be read as the next one's.
        let result = result.map_err(|_| self.database.slow())?;
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
        // The writes of the transaction are rolled back with its connection; a new one would commit only the later
        // writes.
        if self.writing {
            return Err(self
                .database
                .unreachable("the connection was lost during a write"));
        }
        match timeout_at(deadline, self.database.pool.take(must_ping)).await {
            Ok(Ok(lease)) => Ok(lease),
            Ok(Err(error)) => Err(self.database.unreachable(error)),
            Err(_) => Err(self.database.unreachable(format_args!(
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
            // A new time limit: that of the last statement may be nearly used up, and an unconfirmed commit is the
            // worst outcome.
            let committed = tokio::time::timeout(self.database.timeout, lease.link.commit()).await;
            let committed = committed.map_err(|_| self.database.slow())?;
            committed.map_err(|error| self.database.fault(error))?;
        }
        self.database.pool.release(lease);
        Ok(())
    }
}

impl Drop for SessionConnection {
    fn drop(&mut self) {
        // Closing a connection that wrote makes the database roll back.
        if let Some(lease) = self.lease.take().filter(|_| !self.writing) {
            self.database.pool.release(lease);
        }
    }
}
