//! Writes fetch pauses and the state of the level bypass into the level. `learner` decides on pauses, `learner::bypass`
//! on the bypass.

use crate::error::LevelError;
use crate::learner::ResponseLearner;
use crate::learner::bypass::{
    AnswerProspect, LevelBypass, LevelBypassAction, LevelBypassRules, TrafficSample,
};
use crate::level::SoftirqLevel;
use crate::level::parked;

const SECOND_NS: u64 = 1_000_000_000;

/// The level bypass, and the state that was last written for the programs.
#[derive(Debug)]
pub(super) struct BypassControl {
    bypass: LevelBypass,
    is_bypassing: bool,
    pause_until_ns: Option<u64>,
    is_learning: Option<bool>,
}

impl BypassControl {
    /// Starts without a bypass.
    pub(super) fn new(rules: LevelBypassRules) -> BypassControl {
        BypassControl {
            bypass: LevelBypass::new(rules),
            is_bypassing: false,
            pause_until_ns: None,
            is_learning: None,
        }
    }

    /// Writes the end of the fetch pause. Enables the programs' reports of misses unless there is a pause or a bypass.
    /// To be called often.
    pub(super) fn tick(
        &mut self,
        level: &SoftirqLevel,
        learner: &mut ResponseLearner,
        now_ns: u64,
    ) {
        let until_ns = learner.paused_until(now_ns);
        if until_ns != self.pause_until_ns {
            self.pause_until_ns = until_ns;
            level.set_pause(until_ns);
        }
        let should_learn = !self.is_bypassing && until_ns.is_none();
        if self.is_learning != Some(should_learn) {
            self.is_learning = Some(should_learn);
            level.set_learning(should_learn);
        }
    }

    /// Samples the traffic, lets the level bypass decide, and carries out its decision. To be called every second.
    /// Returns a message for the operator, if any.
    ///
    /// # Errors
    /// If counters can't be read.
    pub(super) fn update(
        &mut self,
        level: &SoftirqLevel,
        learner: &mut ResponseLearner,
        now_ns: u64,
    ) -> Result<Option<String>, LevelError> {
        let (answers, punted) = level.requests()?;
        let sample = TrafficSample {
            answers,
            punted,
            kernel_segments: level.kernel_segments()?,
            published: learner.counters().published,
        };
        let prospect = prospect(learner, now_ns);
        let remaining_connections = || {
            // The states are counted in the order in which a connection passes through them, so that no connection is
            // missed.
            let translated = usize::from(parked::has_parked(level, |_| true));
            let counts = level.connections();
            translated + counts.open + counts.migrating
        };
        let step = self
            .bypass
            .update(now_ns, sample, prospect, remaining_connections);
        step.map_or(Ok(None), |step| {
            self.apply_step(step, level, learner, now_ns)
        })
    }

    /// Ends the bypass and the fetch pause at an operator's request, and discards past observations of hits.
    pub(super) fn start_over(
        &mut self,
        level: &SoftirqLevel,
        learner: &mut ResponseLearner,
        now_ns: u64,
    ) {
        learner.reset_budget();
        if self.bypass.wake().is_some() {
            self.wake(level);
        }
        // Called here, so that the programs report misses before the loop's next round.
        self.tick(level, learner, now_ns);
    }

    fn wake(&mut self, level: &SoftirqLevel) {
        self.is_bypassing = false;
        level.wake();
    }

    fn apply_step(
        &mut self,
        step: LevelBypassAction,
        level: &SoftirqLevel,
        learner: &mut ResponseLearner,
        now_ns: u64,
    ) -> Result<Option<String>, LevelError> {
        let mut message = None;
        match step {
            LevelBypassAction::Rest {
                until_ns,
                answers,
                requests,
            } => {
                self.is_bypassing = true;
                level.begin_bypass(until_ns, answers, requests);
                message = Some(format!(
                    "of the last {requests} requests only {answers} were answered here: all \
                     connections are left to the kernel for {} s; `lowroad purge all` ends this \
                     at once",
                    until_ns.saturating_sub(now_ns) / SECOND_NS
                ));
            }
            // Sockets are destroyed before the programs stop examining frames, so that clients receive the resets.
            LevelBypassAction::FallAsleep => {
                parked::end(level, |_| true);
                level.fall_asleep()?;
            }
            LevelBypassAction::Wake => {
                learner.try_again();
                self.wake(level);
            }
        }
        self.tick(level, learner, now_ns);
        Ok(message)
    }
}

fn prospect(learner: &mut ResponseLearner, now_ns: u64) -> AnswerProspect {
    if learner.published() == 0 && learner.fetch_counts() == (0, 0) {
        return AnswerProspect::Nothing;
    }
    match learner.paused_until(now_ns) {
        None => AnswerProspect::New,
        Some(_) => AnswerProspect::Old,
    }
}
