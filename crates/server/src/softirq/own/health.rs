//! How the level of a server of ours is, as `lowroad status` says it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How the level is.
#[derive(Default)]
pub struct Health {
    state: Mutex<Known>,
    /// The server ends it.
    is_ending: AtomicBool,
}

#[derive(Default)]
struct Known {
    /// How often its process has said that it answers.
    starts: u64,
    now: Now,
}

#[derive(Default)]
enum Now {
    #[default]
    Starting,
    Attached,
    /// It will be started again; how it ended.
    Gone(String),
    /// It will not.
    Off(String),
}

/// What is said once it is.
pub const OFF: &str = "off: its processes have ended; a restart of the server brings it back";

impl Health {
    /// As `lowroad status` says it.
    pub fn text(&self) -> String {
        let state = self.state();
        let again = state.starts.saturating_sub(1);
        match &state.now {
            Now::Starting => "starting".into(),
            Now::Attached if again > 0 => format!("attached, started again: {again}"),
            Now::Attached => "attached".into(),
            Now::Gone(how) => format!("gone: {how}; started again before: {again}"),
            Now::Off(text) => text.clone(),
        }
    }

    /// Its process says that it answers. How often it has been started again.
    pub fn is_attached(&self) -> u64 {
        let mut state = self.state();
        state.starts += 1;
        state.now = Now::Attached;
        state.starts - 1
    }

    /// Its process is gone, and will be started again; how it ended.
    pub fn is_gone(&self, how: &str) {
        self.state().now = Now::Gone(how.into());
    }

    /// Its processes have ended. Whether that is an accident.
    pub fn is_off(&self) -> bool {
        self.state().now = Now::Off(OFF.into());
        !self.is_ending.load(Ordering::Relaxed)
    }

    /// It was not started.
    pub fn is_not_here(&self, text: &str) {
        self.state().now = Now::Off(text.into());
    }

    /// Its end is no accident from now on.
    pub fn is_to_end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, Known> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
