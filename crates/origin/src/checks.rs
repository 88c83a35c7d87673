//! Active health checks: a task for each member asks it again and again, and tells its group. How it is
//! asked is a [`Check`]'s affair; here are intervals and time limits.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lowroad_engine::Local;
use lowroad_engine::outgoing::Outgoing;
use lowroad_engine::tasks::Task;

use crate::group::MemberId;
use crate::open::Open;
use crate::pool::Pool;
use crate::upstream::Upstream;

/// A source of randomness.
pub type Random = Arc<dyn Fn() -> u64 + Send + Sync>;

/// How a member is asked whether it is well.
pub trait Check<P>: Send + Sync + 'static {
    /// Asks it once, on the worker that lends `local`. Given up when it takes too long.
    ///
    /// # Errors
    /// Why it is not well.
    fn check(&self, place: &P, local: &Local) -> impl Future<Output = Result<(), String>> + Send;
}

/// How often members are asked.
#[derive(Clone, Copy, Debug)]
pub struct Checking {
    /// From one answer to the next question.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// By how much the interval is shorter or longer each time, in percent: else the questions of many
    /// proxies come together.
    pub jitter_percent: u32,
}

impl Default for Checking {
    fn default() -> Checking {
        Checking {
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            jitter_percent: 20,
        }
    }
}

/// A change of a member's state, for logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It is well again.
    Up,
    /// It is not well, because of this.
    Down(String),
}

/// A check that is content if a connection comes about.
pub struct Connects;

impl<O: Open> Check<Arc<Pool<O>>> for Connects {
    async fn check(&self, pool: &Arc<Pool<O>>, local: &Local) -> Result<(), String> {
        let remote = pool.address().remote();
        let connected = Outgoing::connect(&local.sources, remote).await;
        connected.map(drop).map_err(|error| error.to_string())
    }
}

/// Begins to ask a member, at once, on the worker that lends `local`. It ends with the task's handle, with
/// the member, or with the group. `changed` hears when the member's state does.
pub fn begin<P, C>(
    upstream: &Arc<Upstream<P>>,
    member: MemberId,
    check: Arc<C>,
    checking: Checking,
    local: &Local,
    random: Random,
    changed: impl Fn(MemberId, Changed) + Send + 'static,
) -> Task
where
    P: Clone + Send + Sync + 'static,
    C: Check<P>,
{
    let (upstream, on) = (Arc::downgrade(upstream), local.clone());
    local.tasks.spawn(async move {
        while let Some(place) = place_of(&upstream, member) {
            let asking = check.check(&place, &on);
            let found = on.timers.timeout(checking.timeout, asking).await;
            let found = found.unwrap_or_else(|_| Err("no answer in time".into()));
            // What it leads to is not kept alive between checks.
            drop(place);
            let Some(upstream) = upstream.upgrade() else {
                return;
            };
            let now_ms = on.timers.now_ms();
            if upstream.with(|group| group.checked(member, found.is_ok(), now_ms)) {
                changed(member, found.map_or_else(Changed::Down, |()| Changed::Up));
            }
            drop(upstream);
            on.timers.sleep(checking.pause(random())).await;
        }
    })
}

fn place_of<P: Clone>(upstream: &Weak<Upstream<P>>, member: MemberId) -> Option<P> {
    let upstream = upstream.upgrade()?;
    upstream.with(|group| group.place(member).cloned())
}

impl Checking {
    /// The interval, more or less.
    fn pause(&self, random: u64) -> Duration {
        let percent = self.jitter_percent.min(100);
        let less = self.interval / 100 * (100 - percent);
        // Between 0 and twice the jitter, in 1024 steps.
        let more = self.interval / 100 * (2 * percent);
        less + more / 1024 * (random % 1025) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_spread_around_the_interval() {
        let checking = Checking::default();
        assert_eq!(checking.pause(0), Duration::from_secs(4));
        let longest = checking.pause(1024);
        let right = Duration::from_millis(5_999)..=Duration::from_secs(6);
        assert!(right.contains(&longest), "{longest:?}");
    }
}
