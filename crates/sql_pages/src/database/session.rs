//! A page's database session: one connection to each database, and one transaction that is committed when the page ends
//! well. Applies the time limits.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::answer::Answer;
use super::call::{Call, Mode};
use super::pool::Lease;
use super::trouble::Trouble;
use super::{Database, Fault};

/// A page's connections. If it is dropped before `PageSession::end`, all writes are rolled back by closing the
/// connections that wrote.
#[derive(Default)]
pub struct Session {
    open: Vec<Open>,
}

struct Open {
    database: Arc<Database>,
    /// `None` once it broke or was returned.
    lease: Option<Lease>,
    writing: bool,
}

impl Session {
    /// Makes a call, within the database's time limit.
    ///
    /// # Errors
    /// The call's failure.
    pub async fn call(&mut self, database: &Arc<Database>, call: &Call) -> Result<Answer, Fault> {
        let end = Instant::now() + call.timeout;
        let at = self.place(database);
        self.open[at].call(call, end).await
    }

    /// Commits all writes, and returns the connections.
    ///
    /// # Errors
    /// A database did not confirm the commit.
    pub async fn end(mut self) -> Result<(), Fault> {
        for open in &mut self.open {
            open.end().await?;
        }
        Ok(())
    }

    fn place(&mut self, database: &Arc<Database>) -> usize {
        let known = |open: &Open| Arc::ptr_eq(&open.database, database);
        self.open.iter().position(known).unwrap_or_else(|| {
            self.open.push(Open {
                database: database.clone(),
                lease: None,
                writing: false,
            });
            self.open.len() - 1
        })
    }
}

impl Open {
    async fn call(&mut self, call: &Call, end: Instant) -> Result<Answer, Fault> {
        let answer = match self.attempt(call, end).await? {
            // The connection was lost while it was idle. Only reads may be repeated: a write may have been executed.
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
        call: &Call,
        end: Instant,
    ) -> Result<Result<Answer, Trouble>, Fault> {
        let writes = !call.reads();
        let mut lease = match self.lease.take() {
            Some(lease) if !writes || self.writing || !lease.unsure => lease,
            // A write must not be repeated, so its connection is pinged first.
            _ => self.take(writes, end).await?,
        };
        let started = self.writing;
        let asked = async {
            if writes && !started {
                lease.link.begin().await?;
            }
            match call.mode {
                Mode::ReadGuarded => lease.link.call_guarded(call).await,
                Mode::Read | Mode::Write => lease.link.call(call).await,
            }
        };
        let result = timeout_at(end, asked).await;
        let result = result.map_err(|_| self.database.slow())?;
        self.writing |= writes;
        if !result.as_ref().is_err_and(Trouble::breaks_connection) {
            lease.unsure = false;
            self.lease = Some(lease);
        }
        Ok(result)
    }

    async fn take(&self, sure: bool, end: Instant) -> Result<Lease, Fault> {
        if self.writing {
            return Err(self
                .database
                .unreachable("the connection was lost while writing"));
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

    async fn end(&mut self) -> Result<(), Fault> {
        let Some(mut lease) = self.lease.take() else {
            return Ok(());
        };
        if self.writing {
            let committed = tokio::time::timeout(self.database.timeout, lease.link.commit()).await;
            let committed = committed.map_err(|_| self.database.slow())?;
            committed.map_err(|trouble| self.database.fault(trouble))?;
        }
        self.database.pool.give_back(lease);
        Ok(())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take().filter(|_| !self.writing) {
            self.database.pool.give_back(lease);
        }
    }
}
