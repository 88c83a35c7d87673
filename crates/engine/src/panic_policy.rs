//! Decides the scope of a panic: it ends the whole process if the thread does vital work, otherwise one piece of the
//! thread's work.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

/// The pause before a restart, so that a thread that panics again and again does not use up a processor.
const PAUSE: Duration = Duration::from_secs(1);

thread_local! {
    static IS_VITAL: Cell<bool> = const { Cell::new(false) };
}

/// Runs vital work: until it returns, a panic of this thread ends the process, if the panic hook checks [`is_vital`].
/// The exceptions on such a thread are tasks: their panics end only the task ([`crate::tasks::is_polling`]).
pub fn vital<T>(work: impl FnOnce() -> T) -> T {
    let before = IS_VITAL.replace(true);
    let done = work();
    IS_VITAL.set(before);
    done
}

/// Whether this thread runs vital work.
pub fn is_vital() -> bool {
    IS_VITAL.get()
}

/// Starts a thread for `work`. If `work` panics, which the panic hook reports, it is called again after a pause; the
/// thread ends when `work` returns. State that `work` shares must be valid wherever `work` may panic, or be protected
/// by a lock and repaired by the lock's next owner.
///
/// # Errors
/// The system can't start a thread.
pub fn start(name: &str, work: impl Fn() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(move || {
        while catch_unwind(AssertUnwindSafe(&work)).is_err() {
            thread::sleep(PAUSE);
        }
    })?;
    Ok(())
}

/// Runs one piece of work and contains its panic.
pub fn contain(work: impl FnOnce()) {
    // The panic hook has already reported the panic.
    let _ = catch_unwind(AssertUnwindSafe(work));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::mpsc::channel;

    #[test]
    fn is_vital_depends_on_the_work_not_the_thread_name() {
        let of = |name: &str, work: fn() -> bool| {
            let thread = thread::Builder::new().name(name.into()).spawn(work);
            thread.expect("a thread").join().expect("no panic")
        };
        assert!(of("any", || vital(is_vital)));
        assert!(of("any", || vital(|| {
            vital(|| {});
            is_vital()
        })));
        assert!(!of("worker-0", is_vital));
        assert!(!of("any", || {
            vital(|| {});
            is_vital()
        }));
    }

    #[test]
    fn work_is_restarted_after_a_panic() {
        let (tell, told) = channel();
        let calls = AtomicUsize::new(0);
        let work = move || {
            let number = calls.fetch_add(1, Relaxed);
            assert!(number > 0, "the first piece panics");
            tell.send(number).expect("somebody hears");
        };
        start("tested", work).expect("a thread");
        assert_eq!(told.recv(), Ok(1));
        // The thread has returned, and is not restarted.
        assert!(told.recv().is_err());
    }
}
