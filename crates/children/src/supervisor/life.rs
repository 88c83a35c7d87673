//! When an application is started, told to end, and killed. Knows neither processes nor clocks: times are since the
//! beginning.

use std::time::Duration;

use rustix::process::Signal;

use crate::backoff::Backoff;

/// The pause before an application is started again that did not live long.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// An application that lived so long is started again as if for the first time.
const LONG_LIFE: Duration = Duration::from_secs(10);

/// The life of an application.
#[derive(Debug)]
pub struct Life {
    state: State,
    backoff: Backoff,
    stop_timeout: Duration,
    is_wanted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is to be started then.
    Due(Duration),
    /// Since then.
    Runs(Duration),
    /// It was told to end, and is killed then.
    Ends(Duration),
    /// It was killed, and ends soon.
    Killed,
    Over,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Start it; then say whether it was.
    Start,
    /// Send it this signal.
    Signal(Signal),
    /// Wait for news, or until then.
    Wait(Option<Duration>),
    /// It has ended and is not wanted any more.
    Over,
}

impl Life {
    /// One that is to be started at once, and may take so long to end.
    pub fn new(stop_timeout: Duration) -> Life {
        Life {
            state: State::Due(Duration::ZERO),
            backoff: Backoff::new(PAUSE_MIN, PAUSE_MAX, LONG_LIFE),
            stop_timeout,
            is_wanted: true,
        }
    }

    /// What is to be done now.
    pub fn step(&mut self, now: Duration) -> Step {
        match self.state {
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

    /// It was started.
    pub fn started(&mut self, now: Duration) {
        self.state = State::Runs(now);
    }

    /// It could not be started. The pause until the next try.
    pub fn failed(&mut self, now: Duration) -> Duration {
        let pause = self.backoff.failed();
        self.state = State::Due(now + pause);
        pause
    }

    /// It has ended. The pause until it is started again, if it is.
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

    /// It is not wanted any more.
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
