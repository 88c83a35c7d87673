//! What a panic of a thread ends: the process, where it is nothing without the thread; one piece of work on
//! the threads beside the workers. Knows nothing of the work.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

/// What panics at once again must not take a processor.
const PAUSE: Duration = Duration::from_secs(1);

thread_local! {
    static IS_VITAL: Cell<bool> = const { Cell::new(false) };
}

/// Does work that the process is nothing without: from now on a panic of this thread is its end, if its
/// panic hook asks [`is_vital`]. What is tried on such a thread and may panic says so by itself
/// ([`crate::tasks::polls`]).
pub fn vital<T>(work: impl FnOnce() -> T) -> T {
    let before = IS_VITAL.replace(true);
    let done = work();
    IS_VITAL.set(before);
    done
}

/// Whether the process is nothing without what this thread does now.
pub fn is_vital() -> bool {
    IS_VITAL.get()
}

/// Starts a thread. If `work` panics, which the hook reports, it begins anew after a pause; the thread
/// ends when `work` returns. What `work` shares with others is right at each moment in which it may
/// panic, or is locked, and put right by who locks it next.
///
/// # Errors
/// When the machine gives no thread.
pub fn start(name: &str, work: impl Fn() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(move || {
        while catch_unwind(AssertUnwindSafe(&work)).is_err() {
            thread::sleep(PAUSE);
        }
    })?;
    Ok(())
}

/// Does one piece of work, whether or not it panics.
pub fn contain(work: impl FnOnce()) {
    // The hook has reported it.
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
        // It has returned, and is not begun again.
        assert!(told.recv().is_err());
    }
}
