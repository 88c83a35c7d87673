//! Active health checks: a task for each member checks it periodically and reports to its group. A `HealthCheck`
//! performs the check; intervals and time limits are here.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lowroad_engine::WorkerHandle;
use lowroad_engine::tasks::TaskHandle;
use lowroad_engine::upstream_socket::UpstreamSocket;

use crate::connector::PoolConnector;
use crate::group::MemberId;
use crate::pool::ConnectionPool;
use crate::upstream::Upstream;

/// A source of randomness.
pub type RandomSource = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Performs one kind of health check.
pub trait HealthCheck<P>: Send + Sync + 'static {
    /// Checks a member once, on the worker of `local`. Cancelled after the time limit.
    ///
    /// # Errors
    /// The reason why the member is unhealthy.
    fn check(
        &self,
        place: &P,
        local: &WorkerHandle,
    ) -> impl Future<Output = Result<(), String>> + Send;
}

/// The schedule of checks.
#[derive(Clone, Copy, Debug)]
pub struct CheckSettings {
    /// From a result to the next check.
    pub interval: Duration,
    /// The time limit of a check.
    pub timeout: Duration,
    /// Random variation of the interval, in percent, so that the checks of many proxies do not coincide.
    pub jitter_percent: u32,
}

impl Default for CheckSettings {
    fn default() -> CheckSettings {
        CheckSettings {
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            jitter_percent: 20,
        }
    }
}

/// A change of a member's health, for logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthChange {
    /// The member is healthy again.
    Up,
    /// The member is unhealthy, for this reason.
    Down(String),
}

/// A check that succeeds if a connection is established.
pub struct ConnectCheck;

impl<O: PoolConnector> HealthCheck<Arc<ConnectionPool<O>>> for ConnectCheck {
    async fn check(
        &self,
        pool: &Arc<ConnectionPool<O>>,
        local: &WorkerHandle,
    ) -> Result<(), String> {
        let remote = pool.address().remote();
        let connected = UpstreamSocket::connect(&local.sources, remote).await;
        connected.map(drop).map_err(|error| error.to_string())
    }
}

/// Starts the checks of a member, immediately, on the worker of `local`. They end with the task's handle, with the
/// member, or with the group. `changed` is called when the member's health changes.
pub fn begin<P, C>(
    upstream: &Arc<Upstream<P>>,
    member: MemberId,
    check: Arc<C>,
    checking: CheckSettings,
    local: &WorkerHandle,
    random: RandomSource,
    changed: impl Fn(MemberId, HealthChange) + Send + 'static,
) -> TaskHandle
where
    P: Clone + Send + Sync + 'static,
    C: HealthCheck<P>,
{
    let (upstream, on) = (Arc::downgrade(upstream), local.clone());
    local.tasks.spawn(async move {
        while let Some(place) = place_of(&upstream, member) {
            let asking = check.check(&place, &on);
            let found = on.timers.timeout(checking.timeout, asking).await;
            // Dropping the future at the timeout closes its connection.
            let found = found.unwrap_or_else(|_| Err("no response in time".into()));
            // Between checks the task must not keep the member's target alive.
            drop(place);
            // The group may have ended during the check.
            let Some(upstream) = upstream.upgrade() else {
                return;
            };
            let now_ms = on.timers.now_ms();
            // Only changes are reported, or each check would log a line.
            if upstream.with(|group| group.checked(member, found.is_ok(), now_ms)) {
                changed(
                    member,
                    found.map_or_else(HealthChange::Down, |()| HealthChange::Up),
                );
            }
            drop(upstream);
            // With jitter, so that checks of many members and servers do not coincide.
            on.timers.sleep(checking.pause(random())).await;
        }
    })
}

fn place_of<P: Clone>(upstream: &Weak<Upstream<P>>, member: MemberId) -> Option<P> {
    let upstream = upstream.upgrade()?;
    upstream.with(|group| group.place(member).cloned())
}

impl CheckSettings {
    /// The interval with random variation.
    fn pause(&self, random: u64) -> Duration {
        // More than 100 % would make the pause negative.
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
        let checking = CheckSettings::default();
        assert_eq!(checking.pause(0), Duration::from_secs(4));
        let longest = checking.pause(1024);
        let right = Duration::from_millis(5_999)..=Duration::from_secs(6);
        assert!(right.contains(&longest), "{longest:?}");
    }
}
