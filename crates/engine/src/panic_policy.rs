//! Decides the scope of a panic: it ends the whole process if the thread does vital work, otherwise one piece of the
//! thread's work.

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::thread;
use std::time::Duration;

/// The pause before a restart, so that a thread that panics again and again does not use up a processor.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of functions in the text of a backtrace.
const FRAMES_MAX: usize = 40;
/// Functions of these crates are left out of the text of a backtrace: they unwind the stack or call closures.
const RUNTIME_CRATES: [&str; 6] = ["std::", "core::", "<core::", "<alloc::", "__rust", "rust_"];

thread_local! {
    static IS_VITAL: Cell<bool> = const { Cell::new(false) };
    static IS_RECOVERED: Cell<bool> = const { Cell::new(false) };
    static LAST_PANIC: RefCell<Option<PanicReport>> = const { RefCell::new(None) };
}

/// The place and the message of a panic.
pub struct PanicReport {
    /// The file and line, followed by the message; without the panic hook, only the message.
    pub text: String,
    backtrace: Option<Backtrace>,
}

impl PanicReport {
    fn from_payload(payload: &dyn Any) -> PanicReport {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        PanicReport {
            text: text.unwrap_or_else(|| "a panic without a message".to_owned()),
            backtrace: None,
        }
    }

    /// The functions that were running, innermost first, on one line.
    pub fn backtrace(&self) -> String {
        let backtrace = self.backtrace.as_ref().map(Backtrace::to_string);
        backtrace.as_deref().map_or_else(String::new, on_one_line)
    }
}

/// Joins a backtrace, which has lines `NUMBER: FUNCTION` and `at FILE:LINE:COLUMN`, and leaves out the runtime.
fn on_one_line(backtrace: &str) -> String {
    let mut frames: Vec<String> = Vec::new();
    let mut is_left_out = false;
    for line in backtrace.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            if let Some(frame) = frames.last_mut().filter(|_| !is_left_out) {
                frame.push_str(&format!(" ({place})"));
            }
        } else if let Some((_, function)) = line.split_once(": ") {
            let mut crates = RUNTIME_CRATES.iter();
            is_left_out = crates.any(|name| function.starts_with(name));
            if !is_left_out {
                frames.push(function.to_owned());
            }
        }
    }
    frames.truncate(FRAMES_MAX);
    frames.join(" < ")
}

/// Runs vital work: until it returns, a panic of this thread ends the process, if the panic hook checks [`is_vital`].
/// The exceptions on such a thread are tasks: their panics end only the task ([`crate::tasks::is_polling`]).
pub fn vital<T>(work: impl FnOnce() -> T) -> T {
    let before = IS_VITAL.replace(true);
    let done = work();
    IS_VITAL.set(before);
    done
}

/// Runs work. If it panics, the caller repairs or replaces the state that the work has used.
///
/// # Errors
/// The work has panicked.
pub fn recover<T>(work: impl FnOnce() -> T) -> Result<T, PanicReport> {
    let before = IS_RECOVERED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_RECOVERED.set(before);
    let last_panic = LAST_PANIC.take();
    done.map_err(|payload| last_panic.unwrap_or_else(|| PanicReport::from_payload(&*payload)))
}

/// Called by the panic hook: keeps the place, the message and the backtrace of a panic for [`recover`].
pub fn record(panic: &PanicHookInfo<'_>) {
    if !IS_RECOVERED.get() {
        return;
    }
    let message = PanicReport::from_payload(panic.payload()).text;
    let place = panic.location().map(|place| format!("{place}: "));
    let report = PanicReport {
        text: place.unwrap_or_default() + &message,
        backtrace: Some(Backtrace::force_capture()),
    };
    LAST_PANIC.set(Some(report));
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
    fn recover_returns_the_message() {
        let recovered = recover(|| assert_eq!(1 + 1, 3, "arithmetic"));
        let report = recovered.expect_err("a panic");
        assert!(report.text.contains("arithmetic"), "{}", report.text);
        assert!(recover(|| 7).is_ok_and(|seven| seven == 7));
    }

    #[test]
    fn backtrace_is_one_line_without_the_runtime() {
        let text = "   0: std::backtrace::Backtrace::create\n             at /rustc/lib.rs:1:2\n   1: \
                    site::decide\n             at ./decision.rs:7:9\n   2: engine::turn\n";
        assert_eq!(
            on_one_line(text),
            "site::decide (./decision.rs:7:9) < engine::turn"
        );
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
