//! A member group that all workers share, with its retry budget. Each attempt of a request at a member is an
//! `UpstreamAttempt`. Its outcome is reported to the group even if the request is cancelled.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::group::{
    AttemptOutcome, CircuitEvent, GroupSettings, MemberGroup, MemberId, NoMember, PickReason,
    PickRequest, PickedMember,
};
use crate::retry::{self, FailureStage, NoRetry, RetryBudget, RetryLimits};

/// Called with a member's target when its circuit breaker has changed, without a lock held. Must not block.
pub type CircuitNotice<P> = Box<dyn Fn(&P, CircuitEvent) + Send + Sync>;

/// A shared member group. `P` is the type of the members' targets, usually an `Arc` of a connection pool.
pub struct Upstream<P> {
    retry: RetryLimits,
    on_circuit_event: Option<CircuitNotice<P>>,
    state: Mutex<UpstreamState<P>>,
}

struct UpstreamState<P> {
    group: MemberGroup<P>,
    budget: RetryBudget,
}

/// One attempt of one request at one member.
pub struct UpstreamAttempt<P> {
    /// The member's target.
    pub target: P,
    /// The member.
    pub member: MemberId,
    /// Why this member was picked.
    pub reason: PickReason,
    upstream: Arc<Upstream<P>>,
    /// `None` after the report.
    picked: Option<PickedMember>,
    since_ms: u64,
}

impl<P: Clone> Upstream<P> {
    /// An upstream without members.
    pub fn new(settings: GroupSettings, retry: RetryLimits) -> Arc<Upstream<P>> {
        Upstream::build(settings, retry, None)
    }

    /// An upstream without members that reports changes of the members' circuit breakers.
    pub fn with_notice(
        settings: GroupSettings,
        retry: RetryLimits,
        on_circuit_event: CircuitNotice<P>,
    ) -> Arc<Upstream<P>> {
        Upstream::build(settings, retry, Some(on_circuit_event))
    }

    fn build(
        settings: GroupSettings,
        retry: RetryLimits,
        on_circuit_event: Option<CircuitNotice<P>>,
    ) -> Arc<Upstream<P>> {
        Arc::new(Upstream {
            retry,
            on_circuit_event,
            state: Mutex::new(UpstreamState {
                group: MemberGroup::new(settings),
                budget: RetryBudget::default(),
            }),
        })
    }

    /// Reads or changes the group while it is locked, so `act` must not block.
    pub fn with<T>(&self, act: impl FnOnce(&mut MemberGroup<P>) -> T) -> T {
        act(&mut self.lock().group)
    }

    /// Picks a member, as [`MemberGroup::pick`] does.
    ///
    /// # Errors
    /// [`NoMember`]
    pub fn attempt(
        self: &Arc<Self>,
        request: &PickRequest<'_>,
        now_ms: u64,
        random: u64,
    ) -> Result<UpstreamAttempt<P>, NoMember> {
        // The pick and the budget are updated under one lock.
        let mut state = self.lock();
        let picked = state.group.pick(request, now_ms, random)?;
        // Only the first attempt adds to the retry budget: retries must not earn further retries.
        if request.tried.is_empty() {
            state.budget.add_request(&self.retry);
        }
        let target = state.group.target(picked.member).cloned();
        drop(state);
        Ok(UpstreamAttempt {
            // The member exists, since the group has been locked since the pick.
            target: target.ok_or(NoMember::Empty)?,
            member: picked.member,
            reason: picked.reason,
            upstream: self.clone(),
            picked: Some(picked),
            since_ms: now_ms,
        })
    }

    /// Whether a request may be retried; see [`retry::may_retry`].
    ///
    /// # Errors
    /// [`NoRetry`]
    pub fn may_retry(&self, stage: &FailureStage, now_ms: u64) -> Result<(), NoRetry> {
        // The group and the budget share one lock, since all operations are short.
        let budget = &mut self.lock().budget;
        retry::may_retry(&self.retry, stage, budget, now_ms)
    }
}

impl<P> Upstream<P> {
    fn lock(&self) -> MutexGuard<'_, UpstreamState<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P> UpstreamAttempt<P> {
    /// Records that the attempt has a connection, and so is no longer pending.
    pub fn mark_connected(&mut self) {
        if let Some(picked) = &mut self.picked {
            self.upstream.lock().group.mark_connected(picked);
        }
    }

    /// Records that the connection becomes a tunnel (another protocol after an upgrade).
    pub fn mark_tunnelled(&mut self) {
        if let Some(picked) = &mut self.picked {
            self.upstream.lock().group.mark_tunnelled(picked);
        }
    }

    /// Reports the outcome to the group.
    pub fn report(mut self, outcome: AttemptOutcome, now_ms: u64) {
        self.end(outcome, now_ms);
    }

    fn end(&mut self, outcome: AttemptOutcome, now_ms: u64) {
        // Taken, so that `drop` after an explicit report has no effect.
        if let Some(picked) = self.picked.take() {
            let event = self.upstream.lock().group.report(picked, outcome, now_ms);
            // The lock is free by now: a slow notice must not stop the requests of other workers.
            if let (Some(event), Some(notice)) = (event, &self.upstream.on_circuit_event) {
                notice(&self.target, event);
            }
        }
    }
}

impl<P> Drop for UpstreamAttempt<P> {
    fn drop(&mut self) {
        // A cancellation shows nothing about the member, so the time does not matter.
        self.end(AttemptOutcome::Cancelled, self.since_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::{NewMember, OperatorSettings};

    #[test]
    fn dropped_attempt_is_reported_as_cancelled() {
        let upstream = Upstream::new(GroupSettings::default(), RetryLimits::default());
        let new = NewMember {
            name: "a".into(),
            weight: 1,
            backup: false,
            operator: OperatorSettings::default(),
        };
        let id = upstream.with(|group| group.add(new, 7, 0));
        let attempt = upstream
            .attempt(&PickRequest::default(), 0, 0)
            .expect("a member");
        assert_eq!((attempt.target, attempt.member), (7, id));
        assert_eq!(upstream.with(|group| group.status(0)[0].requests), 1);
        drop(attempt);
        let status = upstream.with(|group| group.status(0));
        assert_eq!((status[0].requests, status[0].counts.cancelled), (0, 1));
        let mut attempt = upstream
            .attempt(&PickRequest::default(), 0, 0)
            .expect("a member");
        attempt.mark_connected();
        attempt.report(AttemptOutcome::Answered, 0);
        let status = upstream.with(|group| group.status(0));
        assert_eq!((status[0].requests, status[0].counts.answered), (0, 1));
        let tried = PickRequest {
            tried: &[id],
            ..PickRequest::default()
        };
        let none = upstream.attempt(&tried, 0, 0).err();
        assert_eq!(none, Some(NoMember::AllTried));
    }

    #[test]
    fn only_the_first_attempt_adds_to_the_retry_budget() {
        let retry = RetryLimits {
            tries_max: 10,
            budget_percent: 100,
            budget_per_s: 0,
            after_timeouts: true,
        };
        let upstream = Upstream::new(GroupSettings::default(), retry);
        let ids: Vec<_> = ["a", "b"]
            .iter()
            .map(|name| {
                let new = NewMember {
                    name: (*name).into(),
                    weight: 1,
                    backup: false,
                    operator: OperatorSettings::default(),
                };
                upstream.with(|group| group.add(new, (), 0))
            })
            .collect();
        let failed = FailureStage {
            tries: 1,
            is_idempotent: true,
            sent: true,
            body: retry::BodyReplay::Whole,
            response: retry::ResponseProgress::Nothing,
            timed_out: false,
        };
        drop(upstream.attempt(&PickRequest::default(), 0, 0));
        assert_eq!(upstream.may_retry(&failed, 0), Ok(()));
        let again = PickRequest {
            tried: &ids[..1],
            ..PickRequest::default()
        };
        drop(upstream.attempt(&again, 0, 0));
        assert_eq!(upstream.may_retry(&failed, 0), Err(NoRetry::Budget));
    }
}
