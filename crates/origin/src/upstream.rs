//! A member group that all workers share, with its retry budget. Each try of a member is an `UpstreamAttempt`, which is
//! reported to the group even if its request is cancelled.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::group::{
    AttemptOutcome, GroupSettings, MemberGroup, MemberId, NoMember, PickReason, PickRequest,
    PickedMember,
};
use crate::retry::{self, FailureStage, NoRetry, RetryBudget, RetryLimits};

/// A shared group. `P` is the target of a member, usually an `Arc` of a pool.
pub struct Upstream<P> {
    retry: RetryLimits,
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
    /// The reason for this member.
    pub reason: PickReason,
    upstream: Arc<Upstream<P>>,
    /// `None` after the report.
    picked: Option<PickedMember>,
    since_ms: u64,
}

impl<P: Clone> Upstream<P> {
    /// An upstream without members.
    pub fn new(settings: GroupSettings, retry: RetryLimits) -> Arc<Upstream<P>> {
        Arc::new(Upstream {
            retry,
            state: Mutex::new(UpstreamState {
                group: MemberGroup::new(settings),
                budget: RetryBudget::default(),
            }),
        })
    }

    /// Reads or changes the group under its lock, so `act` must not block.
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
        // One lock for the pick and the budget.
        let mut state = self.lock();
        let picked = state.group.pick(request, now_ms, random)?;
        // Only the first attempt feeds the retry budget: retries must not pay for further retries.
        if request.tried.is_empty() {
            state.budget.add_request(&self.retry);
        }
        let target = state.group.target(picked.member).cloned();
        drop(state);
        Ok(UpstreamAttempt {
            // The member is present: the group was locked since the pick.
            target: target.ok_or(NoMember::Empty)?,
            member: picked.member,
            reason: picked.reason,
            upstream: self.clone(),
            picked: Some(picked),
            since_ms: now_ms,
        })
    }

    /// Whether a request may be tried again, see [`retry::may_retry`].
    ///
    /// # Errors
    /// [`NoRetry`]
    pub fn may_retry(&self, stage: &FailureStage, now_ms: u64) -> Result<(), NoRetry> {
        // One lock for the group and the budget: both are short operations.
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
    /// Records that the attempt has its connection: it is no longer pending.
    pub fn mark_connected(&mut self) {
        if let Some(picked) = &mut self.picked {
            self.upstream.lock().group.mark_connected(picked);
        }
    }

    /// The connection becomes a tunnel (another protocol after an upgrade).
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
        // Taken, so that the drop after an explicit report does nothing.
        if let Some(picked) = self.picked.take() {
            self.upstream.lock().group.report(picked, outcome, now_ms);
        }
    }
}

impl<P> Drop for UpstreamAttempt<P> {
    fn drop(&mut self) {
        // A cancellation is no evidence about the member, so its time is irrelevant.
        self.end(AttemptOutcome::Cancelled, self.since_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::NewMember;

    #[test]
    fn an_attempt_that_is_given_up_is_reported() {
        let upstream = Upstream::new(GroupSettings::default(), RetryLimits::default());
        let new = NewMember {
            name: "a".into(),
            weight: 1,
            backup: false,
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
    fn only_the_first_try_of_a_request_fills_the_budget() {
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
                };
                upstream.with(|group| group.add(new, (), 0))
            })
            .collect();
        let failed = FailureStage {
            tries: 1,
            is_idempotent: true,
            sent: true,
            body: retry::BodyReplay::Whole,
            evidence: retry::RetryEvidence::Nothing,
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
