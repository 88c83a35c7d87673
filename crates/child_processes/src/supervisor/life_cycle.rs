//! The life cycle of an application: decides when to start, stop and kill it. Times are relative to the start of the
//! supervisor.

use std::time::Duration;

use rustix::process::Signal;

use crate::backoff::RestartBackoff;

/// The delay before a restart after a first short lifetime.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// An application that has run for this long is restarted with the shortest delay.
const STABLE_LIFETIME: Duration = Duration::from_secs(10);

/// The life cycle of an application.
#[derive(Debug)]
pub struct ApplicationLife {
    state: ApplicationState,
    backoff: RestartBackoff,
    stop_timeout: Duration,
    should_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApplicationState {
    /// To be started at this time.
    Due(Duration),
    /// Running since this time.
    Running(Duration),
    /// SIGTERM was sent; to be killed at this time.
    Stopping(Duration),
    /// SIGKILL was sent.
    Killed,
    Over,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupervisorAction {
    /// Start the application, then report the result.
    Start,
    /// Send this signal to the application.
    Signal(Signal),
    /// Wait for an event, or until this time.
    Wait(Option<Duration>),
    /// The application has ended and will not be restarted.
    Over,
}

impl ApplicationLife {
    /// A new application, to be started immediately. `stop_timeout`: time to end after SIGTERM.
    pub fn new(stop_timeout: Duration) -> ApplicationLife {
        ApplicationLife {
            state: ApplicationState::Due(Duration::ZERO),
            backoff: RestartBackoff::new(PAUSE_MIN, PAUSE_MAX, STABLE_LIFETIME),
            stop_timeout,
            should_run: true,
        }
    }

    /// The next action.
    pub fn step(&mut self, now: Duration) -> SupervisorAction {
        match self.state {
            // The application was stopped during a delay, or after a failed start.
            ApplicationState::Due(_) if !self.should_run => {
                self.state = ApplicationState::Over;
                SupervisorAction::Over
            }
            ApplicationState::Due(start_at) if start_at <= now => SupervisorAction::Start,
            ApplicationState::Due(start_at) => SupervisorAction::Wait(Some(start_at)),
            ApplicationState::Running(_) if !self.should_run => {
                self.state = ApplicationState::Stopping(now + self.stop_timeout);
                SupervisorAction::Signal(Signal::TERM)
            }
            ApplicationState::Running(_) => SupervisorAction::Wait(None),
            ApplicationState::Stopping(until) if until <= now => {
                self.state = ApplicationState::Killed;
                SupervisorAction::Signal(Signal::KILL)
            }
            ApplicationState::Stopping(until) => SupervisorAction::Wait(Some(until)),
            ApplicationState::Killed => SupervisorAction::Wait(None),
            ApplicationState::Over => SupervisorAction::Over,
        }
    }

    /// Records that the application was started.
    pub fn record_start(&mut self, now: Duration) {
        self.state = ApplicationState::Running(now);
    }

    /// Records a failed start. Returns the delay until the next attempt.
    pub fn record_failure(&mut self, now: Duration) -> Duration {
        let pause = self.backoff.record_failure();
        self.state = ApplicationState::Due(now + pause);
        pause
    }

    /// Records that the application has ended. Returns the delay until its restart, unless it was stopped.
    pub fn record_end(&mut self, now: Duration) -> Option<Duration> {
        if !self.should_run {
            self.state = ApplicationState::Over;
            return None;
        }
        let lifetime = match self.state {
            ApplicationState::Running(since) => now.saturating_sub(since),
            _ => Duration::ZERO,
        };
        let pause = self.backoff.record_end(lifetime);
        self.state = ApplicationState::Due(now + pause);
        Some(pause)
    }

    /// Stops the application. A repeated call does not extend the time that it has.
    pub fn stop(&mut self, now: Duration) {
        if self.should_run {
            self.should_run = false;
        } else if let ApplicationState::Stopping(until) = &mut self.state {
            *until = (*until).min(now + self.stop_timeout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn restart_delay_doubles_until_a_long_lifetime() {
        let mut life = ApplicationLife::new(ms(1000));
        let mut now = ms(0);
        for pause in [100, 200, 400] {
            assert_eq!(life.step(now), SupervisorAction::Start);
            life.record_start(now);
            assert_eq!(life.step(now), SupervisorAction::Wait(None));
            assert_eq!(life.record_end(now), Some(ms(pause)));
            assert_eq!(
                life.step(now),
                SupervisorAction::Wait(Some(now + ms(pause)))
            );
            now += ms(pause);
        }
        life.record_start(now);
        now += STABLE_LIFETIME;
        assert_eq!(life.record_end(now), Some(PAUSE_MIN));
    }

    #[test]
    fn stop_sends_sigterm_then_sigkill() {
        let mut life = ApplicationLife::new(ms(1000));
        life.record_start(ms(5));
        life.stop(ms(10));
        assert_eq!(life.step(ms(10)), SupervisorAction::Signal(Signal::TERM));
        assert_eq!(life.step(ms(10)), SupervisorAction::Wait(Some(ms(1010))));
        assert_eq!(life.step(ms(1010)), SupervisorAction::Signal(Signal::KILL));
        assert_eq!(life.step(ms(1011)), SupervisorAction::Wait(None));
        assert_eq!(life.record_end(ms(1012)), None);
        assert_eq!(life.step(ms(1012)), SupervisorAction::Over);
    }

    #[test]
    fn stop_during_a_delay_prevents_the_restart() {
        let mut life = ApplicationLife::new(ms(1000));
        life.record_failure(ms(0));
        life.stop(ms(1));
        assert_eq!(life.step(ms(1)), SupervisorAction::Over);
    }
}
