//! Active health checks: a task for each member checks the member periodically and reports to its group. This module
//! has the schedule; a `HealthCheck` performs one check.

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

/// A source of random numbers.
pub type RandomSource = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Performs one kind of health check.
pub trait HealthCheck<P>: Send + Sync + 'static {
    /// Checks a member once, on the worker of `worker_handle`. Cancelled after the time limit.
    ///
    /// # Errors
    /// The reason why the member is unhealthy.
    fn check(
        &self,
        target: &P,
        worker_handle: &WorkerHandle,
    ) -> impl Future<Output = Result<(), String>> + Send;
}

/// The schedule of checks.
#[derive(Clone, Copy, Debug)]
pub struct CheckSettings {
    /// The pause between a result and the next check.
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

/// A health check that succeeds if a connection can be established.
pub struct ConnectCheck;

impl<O: PoolConnector> HealthCheck<Arc<ConnectionPool<O>>> for ConnectCheck {
    async fn check(
        &self,
        pool: &Arc<ConnectionPool<O>>,
        worker_handle: &WorkerHandle,
    ) -> Result<(), String> {
        let remote = pool.address().remote();
        let connected = UpstreamSocket::connect(&worker_handle.sources, remote).await;
        connected.map(drop).map_err(|error| error.to_string())
    }
}

/// Starts the checks of a member, immediately, on the worker of `worker_handle`. They end when the task's handle is
/// dropped, or the member or the group is removed. `on_result` is called after each check: with whether it passed, and
/// the change of the member's health, if there is one.
pub fn begin<P, C>(
    upstream: &Arc<Upstream<P>>,
    member: MemberId,
    check: Arc<C>,
    settings: CheckSettings,
    worker_handle: &WorkerHandle,
    random: RandomSource,
    on_result: impl Fn(bool, Option<HealthChange>) + Send + 'static,
) -> TaskHandle
where
    P: Clone + Send + Sync + 'static,
    C: HealthCheck<P>,
{
    let (upstream, task_worker) = (Arc::downgrade(upstream), worker_handle.clone());
    worker_handle.tasks.spawn(async move {
        while let Some(target) = member_target(&upstream, member) {
            let check_future = check.check(&target, &task_worker);
            let result = task_worker
                .timers
                .timeout(settings.timeout, check_future)
                .await;
            // Dropping the future at the timeout closes its connection.
            let result = result.unwrap_or_else(|_| Err("no response in time".into()));
            // Between checks, the task must not keep the member's target alive.
            drop(target);
            // The group may have been dropped during the check.
            let Some(upstream) = upstream.upgrade() else {
                return;
            };
            let now_ms = task_worker.timers.now_ms();
            let has_passed = result.is_ok();
            let has_changed = upstream.with(|group| group.record_check(member, has_passed, now_ms));
            let change = result.map_or_else(HealthChange::Down, |()| HealthChange::Up);
            on_result(has_passed, has_changed.then_some(change));
            drop(upstream);
            // The pause has jitter, so that the checks of many members and proxies do not coincide.
            task_worker.timers.sleep(settings.pause(random())).await;
        }
    })
}

fn member_target<P: Clone>(upstream: &Weak<Upstream<P>>, member: MemberId) -> Option<P> {
    let upstream = upstream.upgrade()?;
    upstream.with(|group| group.target(member).cloned())
}

impl CheckSettings {
    /// The interval with random variation.
    fn pause(&self, random: u64) -> Duration {
        // More than 100 % would make the pause negative.
        let percent = self.jitter_percent.min(100);
        // The divisions come first, because a product of `Duration` panics on overflow.
        let shortest = self.interval / 100 * (100 - percent);
        // Between 0 and twice the jitter, in 1024 steps.
        let spread = self.interval / 100 * (2 * percent);
        shortest + spread / 1024 * (random % 1025) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_varies_the_interval_in_both_directions() {
        let checking = CheckSettings::default();
        assert_eq!(checking.pause(0), Duration::from_secs(4));
        let longest = checking.pause(1024);
        let right = Duration::from_millis(5_999)..=Duration::from_secs(6);
        assert!(right.contains(&longest), "{longest:?}");
    }
}
