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
    open: Vec<SessionConnection>,
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
        let end = Instant::now() + call.timeout;
        let at = self.place(database);
        self.open[at].call(call, end).await
    }

    /// Commits all writes, and returns the connections.
    ///
    /// # Errors
    /// A database did not confirm the commit.
    pub async fn end(mut self) -> Result<(), DatabaseFault> {
        for open in &mut self.open {
            open.end().await?;
        }
        Ok(())
    }

    fn place(&mut self, database: &Arc<PageDatabase>) -> usize {
        let known = |open: &SessionConnection| Arc::ptr_eq(&open.database, database);
        self.open.iter().position(known).unwrap_or_else(|| {
            self.open.push(SessionConnection {
                database: database.clone(),
                lease: None,
                writing: false,
            });
            self.open.len() - 1
        })
    }
}

impl SessionConnection {
    async fn call(
        &mut self,
        call: &DatabaseCall,
        end: Instant,
    ) -> Result<DatabaseAnswer, DatabaseFault> {
        let answer = match self.attempt(call, end).await? {
            // The connection was lost while it was idle. Only reads may be repeated: a write may have been executed.
            // A guard on `writing`: a new connection would not be in the transaction.
            Err(trouble) if trouble.is_lost() && call.reads() && !self.writing => {
                self.lease = Some(self.take(true, end).await?);
                self.attempt(call, end).await?
            }
            answer => answer,
        };
        answer.map_err(|trouble| self.database.fault(trouble))
    }

    /// Makes one attempt; drops a connection that it broke.
    async fn attempt(
        &mut self,
        call: &DatabaseCall,
        end: Instant,
    ) -> Result<Result<DatabaseAnswer, DriverError>, DatabaseFault> {
        let writes = !call.reads();
        // Taken out during the call: if it fails or is cancelled, the connection is not reused.
        let mut lease = match self.lease.take() {
            Some(lease) if !writes || self.writing || !lease.unsure => lease,
            // A write must not be repeated, so its connection is pinged first.
            _ => self.take(writes, end).await?,
        };
        let started = self.writing;
        let asked = async {
            // The transaction begins with the first write, so that pages that only read take no locks.
            if writes && !started {
                // Within the first write's attempt, so that a page that only reads needs no transaction.
                lease.link.begin().await?;
            }
            match call.mode {
                CallMode::ReadGuarded => lease.link.call_guarded(call).await,
                CallMode::Read | CallMode::Write => lease.link.call(call).await,
            }
        };
        let result = timeout_at(end, asked).await;
        // On a timeout the lease is dropped here: the reply of an abandoned statement would be read as the next one's.
        let result = result.map_err(|_| self.database.slow())?;
        self.writing |= writes;
        // A reply proves that the connection is alive.
        if !result.as_ref().is_err_and(DriverError::breaks_connection) {
            lease.unsure = false;
            self.lease = Some(lease);
        }
        Ok(result)
    }

    async fn take(&self, sure: bool, end: Instant) -> Result<DatabaseLease, DatabaseFault> {
        // The writes of the transaction are rolled back with its connection; a new one would commit only the later
        // writes.
        if self.writing {
            return Err(self
                .database
                .unreachable("the connection was lost during a write"));
        }
        match timeout_at(end, self.database.pool.take(sure)).await {
            Ok(Ok(lease)) => Ok(lease),
            Ok(Err(trouble)) => Err(self.database.unreachable(trouble)),
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
            committed.map_err(|trouble| self.database.fault(trouble))?;
        }
        self.database.pool.give_back(lease);
        Ok(())
    }
}

impl Drop for SessionConnection {
    fn drop(&mut self) {
        // Closing a connection that wrote makes the database roll back.
        if let Some(lease) = self.lease.take().filter(|_| !self.writing) {
            self.database.pool.give_back(lease);
        }
    }
}
