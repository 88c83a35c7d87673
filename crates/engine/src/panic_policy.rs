//! The consequence of a panic in a thread: it ends the process if the thread is vital, and otherwise one piece of the
//! thread's work.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

/// The pause before a restart: a thread that panics at once again must not use up a processor.
const PAUSE: Duration = Duration::from_secs(1);

thread_local! {
    static IS_VITAL: Cell<bool> = const { Cell::new(false) };
}

/// Runs vital work: from now on a panic of this thread ends the process, if its panic hook checks [`is_vital`]. Code
/// on such a thread that may panic alone is marked separately ([`crate::tasks::polls`]).
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

/// Starts a thread. If `work` panics, which the hook reports, it is restarted after a pause; the thread ends when
/// `work` returns. State that `work` shares must be valid wherever it may panic, or locked and repaired by the next
/// owner of the lock.
///
/// # Errors
/// The machine can't start a thread.
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
    // The hook has reported the panic.
    let _ = catch_unwind(AssertUnwindSafe(work));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_is_vital_by_what_it_does_and_not_by_its_name() {
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
    fn work_that_panics_is_begun_anew() {
        let (tell, told) = channel();
        let begun = AtomicUsize::new(0);
        let work = move || {
            let number = begun.fetch_add(1, Relaxed);
            assert!(number > 0, "the first piece panics");
            tell.send(number).expect("somebody hears");
        };
        start("tested", work).expect("a thread");
        assert_eq!(told.recv(), Ok(1));
        // The thread has returned, and is not restarted.
        assert!(told.recv().is_err());
    }
}
