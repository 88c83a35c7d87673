//! The life cycle of an application: when it is started, asked to end, and killed. Times are relative to the start of
//! the supervisor.

use std::time::Duration;

use rustix::process::Signal;

use crate::backoff::Backoff;

/// The delay before a restart after a short life.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// An application that lived this long is restarted with the shortest delay.
const LONG_LIFE: Duration = Duration::from_secs(10);

/// The life cycle of an application.
#[derive(Debug)]
pub struct Life {
    state: State,
    backoff: Backoff,
    stop_timeout: Duration,
    is_wanted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To be started at this time.
    Due(Duration),
    /// Running since this time.
    Runs(Duration),
    /// SIGTERM was sent; to be killed at this time.
    Ends(Duration),
    /// SIGKILL was sent.
    Killed,
    Over,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Start it, then report the result.
    Start,
    /// Send it this signal.
    Signal(Signal),
    /// Wait for an event, or until this time.
    Wait(Option<Duration>),
    /// It has ended and is to stay so.
    Over,
}

impl Life {
    /// An application to be started at once, with this time to end after SIGTERM.
    pub fn new(stop_timeout: Duration) -> Life {
        Life {
            state: State::Due(Duration::ZERO),
            backoff: Backoff::new(PAUSE_MIN, PAUSE_MAX, LONG_LIFE),
            stop_timeout,
            is_wanted: true,
        }
    }

    /// The next action.
    pub fn step(&mut self, now: Duration) -> Step {
        match self.state {
            // Stopped during a pause, or after a failed start.
            State::Due(_) if !self.is_wanted => {
                self.state = State::Over;
                Step::Over
            }
            State::Due(at) if at <= now => Step::Start,
            State::Due(at) => Step::Wait(Some(at)),
            State::Runs(_) if !self.is_wanted => {
                self.state = State::Ends(now + self.stop_timeout);
                Step::Signal(Signal::TERM)
            }
            State::Runs(_) => Step::Wait(None),
            State::Ends(until) if until <= now => {
                self.state = State::Killed;
                Step::Signal(Signal::KILL)
            }
            State::Ends(until) => Step::Wait(Some(until)),
            State::Killed => Step::Wait(None),
            State::Over => Step::Over,
        }
    }

    /// Records its start.
    pub fn started(&mut self, now: Duration) {
        self.state = State::Runs(now);
    }

    /// Records a failed start. Returns the delay until the next try.
    pub fn failed(&mut self, now: Duration) -> Duration {
        let pause = self.backoff.failed();
        self.state = State::Due(now + pause);
        pause
    }

    /// Records its end. Returns the delay until its restart, if it is to run.
    pub fn ended(&mut self, now: Duration) -> Option<Duration> {
        if !self.is_wanted {
            self.state = State::Over;
            return None;
        }
        let lifetime = match self.state {
            State::Runs(since) => now.saturating_sub(since),
            _ => Duration::ZERO,
        };
        let pause = self.backoff.ended(lifetime);
        self.state = State::Due(now + pause);
        Some(pause)
    }

    /// Stops it. A repeated call does not extend its time.
    pub fn stop(&mut self, now: Duration) {
        if self.is_wanted {
            self.is_wanted = false;
        } else if let State::Ends(until) = &mut self.state {
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
    fn pauses_grow_until_it_lives_long() {
        let mut life = Life::new(ms(1000));
        let mut now = ms(0);
        for pause in [100, 200, 400] {
            assert_eq!(life.step(now), Step::Start);
            life.started(now);
            assert_eq!(life.step(now), Step::Wait(None));
            assert_eq!(life.ended(now), Some(ms(pause)));
            assert_eq!(life.step(now), Step::Wait(Some(now + ms(pause))));
            now += ms(pause);
        }
        life.started(now);
        now += LONG_LIFE;
        assert_eq!(life.ended(now), Some(PAUSE_MIN));
    }

    #[test]
    fn it_is_told_to_end_and_then_killed() {
        let mut life = Life::new(ms(1000));
        life.started(ms(5));
        life.stop(ms(10));
        assert_eq!(life.step(ms(10)), Step::Signal(Signal::TERM));
        assert_eq!(life.step(ms(10)), Step::Wait(Some(ms(1010))));
        assert_eq!(life.step(ms(1010)), Step::Signal(Signal::KILL));
        assert_eq!(life.step(ms(1011)), Step::Wait(None));
        assert_eq!(life.ended(ms(1012)), None);
        assert_eq!(life.step(ms(1012)), Step::Over);
    }

    #[test]
    fn what_waits_to_be_started_is_not() {
        let mut life = Life::new(ms(1000));
        life.failed(ms(0));
        life.stop(ms(1));
        assert_eq!(life.step(ms(1)), Step::Over);
    }
}
