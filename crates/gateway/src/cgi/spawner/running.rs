//! A program that another process has started, as the server sees it. It knows nothing of its pipes.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Link;
use super::wire::{Outcome, ToSpawner};

/// How long a group is given after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// A program. Dropped, it and its group are killed at once.
pub struct Running {
    link: Arc<Link>,
    id: u64,
    news: oneshot::Receiver<Outcome>,
    outcome: Option<Outcome>,
    is_released: bool,
}

impl Running {
    pub(super) fn new(link: Arc<Link>, id: u64, news: oneshot::Receiver<Outcome>) -> Running {
        Running {
            link,
            id,
            news,
            outcome: None,
            is_released: false,
        }
    }

    /// Waits until it has ended, or was found not to have started. As long as it is not released, what is left of its group
    /// can be ended too.
    pub fn poll_outcome(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        if let Some(outcome) = self.outcome {
            return Poll::Ready(outcome);
        }
        let news = std::task::ready!(std::pin::Pin::new(&mut self.news).poll(context));
        let outcome = news.unwrap_or(Outcome::Lost);
        self.outcome = Some(outcome);
        Poll::Ready(outcome)
    }

    /// Waits so long for its end.
    async fn wait(&mut self, patience: Duration) -> Option<Outcome> {
        let outcome = std::future::poll_fn(|context| self.poll_outcome(context));
        timeout(patience, outcome).await.ok()
    }

    /// Waits so long for it to end by itself. Its children live on then; else it is ended with its group, which takes its
    /// time. What became of it, if it ended by itself.
    pub async fn finish(mut self, patience: Duration) -> Option<Outcome> {
        let outcome = self.wait(patience).await;
        match outcome {
            Some(_) => self.release(false),
            None => self.end().await,
        }
        outcome
    }

    /// Ends the group: politely, then surely.
    pub async fn end(mut self) {
        if self.wait(Duration::ZERO).await.is_none() {
            self.link.tell(&ToSpawner::Terminate(self.id));
            self.wait(GRACE).await;
        }
        self.release(true);
        // What was killed ends soon, unless it hangs in the kernel; then others must not.
        while self.wait(GRACE).await.is_none() {}
    }

    fn release(&mut self, kill: bool) {
        self.is_released = true;
        let is_known = !matches!(self.outcome, Some(Outcome::NotStarted(_) | Outcome::Lost));
        if is_known {
            self.link.tell(&ToSpawner::Release(self.id, kill));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_released {
            self.release(true);
        }
        if self.outcome.is_none() {
            self.link.forget(self.id);
        }
    }
}
