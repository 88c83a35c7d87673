//! How a worker is roused: a system call only while it sleeps, a store while it is awake.
//!
//! Who has something for the worker puts it where the worker looks, and rings. The worker looks
//! wherever something may lie when the bell was rung, and never sleeps over a ring: it lies down
//! first and listens then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::mailbox::Wake;

/// The bell of one worker.
pub struct Bell {
    rung: AtomicBool,
    asleep: AtomicBool,
    rouse: Box<dyn Fn() + Send + Sync>,
}

impl Bell {
    /// A bell that nobody has rung; `rouse` ends a wait.
    pub fn new(rouse: impl Fn() + Send + Sync + 'static) -> Arc<Bell> {
        Arc::new(Bell {
            rung: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            rouse: Box::new(rouse),
        })
    }

    /// Before a wait: whether the worker may sleep. Whoever rings from now on rouses it.
    pub fn lie_down(&self) -> bool {
        self.asleep.store(true, SeqCst);
        !self.rung.load(SeqCst)
    }

    /// After a wait.
    pub fn get_up(&self) {
        self.asleep.store(false, SeqCst);
    }

    /// Whether it was rung since somebody asked [`Bell::was_rung`].
    pub fn is_rung(&self) -> bool {
        self.rung.load(SeqCst)
    }

    /// Whether the worker waits, or is about to.
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(SeqCst)
    }

    /// Whether it was rung since it was last asked.
    pub fn was_rung(&self) -> bool {
        self.rung.load(SeqCst) && self.rung.swap(false, SeqCst)
    }
}

impl Wake for Bell {
    fn wake(&self) {
        self.rung.store(true, SeqCst);
        // One call a sleep: whoever is roused looks everywhere.
        if self.asleep.load(SeqCst) && self.asleep.swap(false, SeqCst) {
            (self.rouse)();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn only_a_sleeper_is_roused_and_only_once() {
        let roused = Arc::new(AtomicUsize::new(0));
        let count = roused.clone();
        let bell = Bell::new(move || {
            count.fetch_add(1, SeqCst);
        });
        bell.wake();
        assert_eq!(roused.load(SeqCst), 0);
        assert!(!bell.lie_down(), "it was rung before");
        bell.get_up();
        assert!(bell.was_rung());
        assert!(!bell.was_rung());
        assert!(bell.lie_down());
        bell.wake();
        bell.wake();
        assert_eq!(roused.load(SeqCst), 1);
        bell.get_up();
        assert!(bell.was_rung());
    }
}
