//! Delays an upgrade until this process has taken over everything from its own predecessor.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Open once the process has all that it passes on to a successor.
pub struct TakeoverGate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl TakeoverGate {
    /// A gate, which is open in a process that takes over from no other one.
    pub fn new(is_open: bool) -> TakeoverGate {
        TakeoverGate {
            is_open: Mutex::new(is_open),
            opened: Condvar::new(),
        }
    }

    /// Opens the gate for good.
    pub fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }

    /// Waits until the gate is open, at most for `timeout`. Returns whether it is.
    pub fn wait(&self, timeout: Duration) -> bool {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .opened
            .wait_timeout_while(is_open, timeout, |is_open| !*is_open);
        let (is_open, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *is_open
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn wait_ends_with_the_opening_or_the_timeout() {
        assert!(TakeoverGate::new(true).wait(Duration::ZERO));
        let gate = Arc::new(TakeoverGate::new(false));
        assert!(!gate.wait(Duration::ZERO));
        let waiter = {
            let gate = gate.clone();
            thread::spawn(move || gate.wait(Duration::from_secs(60)))
        };
        gate.open();
        assert!(waiter.join().expect("its end"));
        assert!(gate.wait(Duration::ZERO));
    }
}
