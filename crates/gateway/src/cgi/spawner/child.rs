//! Handle of a program that the spawner process has started.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::SpawnerLink;
use super::messages::{ExitOutcome, ToSpawner};

/// The time between SIGTERM and SIGKILL for a process group.
const GRACE: Duration = Duration::from_secs(2);

/// A CGI program. Dropping it immediately kills the program's process group.
pub struct CgiChild {
    link: Arc<SpawnerLink>,
    id: u64,
    outcome_receiver: oneshot::Receiver<ExitOutcome>,
    outcome: Option<ExitOutcome>,
    is_released: bool,
}

impl CgiChild {
    pub(super) fn new(
        link: Arc<SpawnerLink>,
        id: u64,
        outcome_receiver: oneshot::Receiver<ExitOutcome>,
    ) -> CgiChild {
        CgiChild {
            link,
            id,
            outcome_receiver,
            outcome: None,
            is_released: false,
        }
    }

    /// Waits until the program has exited or failed to start. The spawner keeps an exited program as a zombie until
    /// `release`, so that the rest of its process group can still be killed.
    pub fn poll_outcome(&mut self, context: &mut Context<'_>) -> Poll<ExitOutcome> {
        if let Some(outcome) = self.outcome {
            return Poll::Ready(outcome);
        }
        let received =
            std::task::ready!(std::pin::Pin::new(&mut self.outcome_receiver).poll(context));
        let outcome = received.unwrap_or(ExitOutcome::Lost);
        self.outcome = Some(outcome);
        Poll::Ready(outcome)
    }

    /// Waits for the program's exit, at most for `time_limit`.
    async fn wait(&mut self, time_limit: Duration) -> Option<ExitOutcome> {
        let outcome = std::future::poll_fn(|context| self.poll_outcome(context));
        timeout(time_limit, outcome).await.ok()
    }

    /// Waits for the program's exit, at most for `time_limit`. If it exits, its child processes continue and its
    /// outcome is returned; otherwise the whole process group is ended.
    pub async fn finish(mut self, time_limit: Duration) -> Option<ExitOutcome> {
        let outcome = self.wait(time_limit).await;
        match outcome {
            Some(_) => self.release(false),
            None => self.end().await,
        }
        outcome
    }

    /// Ends the process group with SIGTERM and, after `GRACE`, with SIGKILL.
    pub async fn end(mut self) {
        if self.wait(Duration::ZERO).await.is_none() {
            self.link.send_nonblocking(&ToSpawner::Terminate(self.id));
            self.wait(GRACE).await;
        }
        self.release(true);
        // A killed process exits soon, unless it hangs in the kernel. The caller's permit is held until then.
        while self.wait(GRACE).await.is_none() {}
    }

    fn release(&mut self, kill: bool) {
        self.is_released = true;
        let was_started = !matches!(
            self.outcome,
            Some(ExitOutcome::NotStarted(_) | ExitOutcome::Lost)
        );
        if was_started {
            self.link
                .send_nonblocking(&ToSpawner::Release(self.id, kill));
        }
    }
}

impl Drop for CgiChild {
    fn drop(&mut self) {
        if !self.is_released {
            self.release(true);
        }
        // The outcome will not be read, so its sender is removed from the map.
        if self.outcome.is_none() {
            self.link.forget(self.id);
        }
    }
}
