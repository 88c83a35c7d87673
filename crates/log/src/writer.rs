//! The thread that writes to a log's destination, and the bounded buffers in front of it.
//!
//! Group commit: each [`LineSink`] appends to its own buffer, which only its owner and the writer thread access. The
//! thread wakes when [`WAKE_LEN`] bytes have gathered in a log with a delay, or when the delay has passed since the
//! first of them, and writes all pending lines. So a line costs one copy, and neither a system call nor a contended
//! lock.
//!
//! The destination may be a pipe that is not read or a disk that hangs: then the buffers fill, and lines that do not
//! fit are lost and counted. Only the writer thread ever waits.

mod entry_output;
mod output;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use self::entry_output::{EntryOutput, OpenOtherwise, WriterLimits};
use self::output::LineOutput;
pub use self::output::{LineEvent, OnLineEvent, open};

/// Maximum pending bytes, in all buffers of a log of lines.
const PENDING_LEN_MAX: usize = 4 << 20;
/// Once this many bytes of lines are pending, they are written without further delay.
const WAKE_LEN: usize = 64 * 1024;
/// A buffer that grew beyond this is freed.
const CAPACITY_KEPT_MAX: usize = 256 * 1024;
/// How long closing waits for the pending lines.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 2000 });

/// The destination of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogDestination {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, appended to.
    File(PathBuf),
}

/// As in the configuration: a path, `stdout` or `stderr`.
impl fmt::Display for LogDestination {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogDestination::Stdout => to.write_str("stdout"),
            LogDestination::Stderr => to.write_str("stderr"),
            LogDestination::File(path) => path.display().fmt(to),
        }
    }
}

/// The writer thread and its buffers. If it is dropped, the thread writes the pending lines and ends in the background;
/// [`LogWriter::close`] waits for that.
pub struct LogWriter {
    shared: Arc<WriterState>,
    thread: Option<JoinHandle<()>>,
}

/// A handle for adding lines. Lines of one sink and its clones stay in order. Lines of different sinks may be reordered
/// within one write.
#[derive(Clone)]
pub struct LineSink {
    shared: Arc<WriterState>,
    buffer: Arc<Mutex<SinkBuffer>>,
}

#[derive(Default)]
struct SinkBuffer {
    lines: Vec<u8>,
    is_closed: bool,
}

struct WriterState {
    limits: WriterLimits,
    /// Bytes in the buffers or being written: 0 <= `pending_len` <= `pending_len_max`. Incremented under the lock of
    /// the buffer that receives the bytes; decremented only by the writer thread.
    pending_len: AtomicUsize,
    control: Mutex<WriterControl>,
    changed: Condvar,
    lost: AtomicU64,
}

/// Called if a log cannot be reopened.
type OnFailure = Box<dyn FnOnce(&io::Error) + Send>;
#[derive(Default)]
struct WriterControl {
    buffers: Vec<Arc<Mutex<SinkBuffer>>>,
    reopen: Option<(OpenOtherwise, OnFailure)>,
    is_closed: bool,
}

impl LogWriter {
    /// Opens the target and starts its thread. Lines are written as soon as they are pushed.
    ///
    /// # Errors
    /// The file can't be opened or created, or the thread can't be started.
    pub fn open(target: &LogDestination) -> io::Result<LogWriter> {
        LogWriter::start_lines(target, open(target)?, Duration::ZERO, Box::new(drop))
    }

    /// Like [`LogWriter::open`], but a line may wait up to `delay` to be batched with others, except on a terminal.
    ///
    /// # Errors
    /// As for [`LogWriter::open`].
    pub fn open_delayed(target: &LogDestination, delay: Duration) -> io::Result<LogWriter> {
        LogWriter::open_file(target, open(target)?, delay, Box::new(drop))
    }

    /// Like [`LogWriter::open_delayed`], with a file that is already open, and with reports of lost lines.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn open_file(
        target: &LogDestination,
        file: File,
        delay: Duration,
        on_event: OnLineEvent,
    ) -> io::Result<LogWriter> {
        // A person may be watching the terminal.
        let delay = match file.is_terminal() {
            true => Duration::ZERO,
            false => delay,
        };
        LogWriter::start_lines(target, file, delay, on_event)
    }

    fn start_lines(
        target: &LogDestination,
        file: File,
        delay: Duration,
        on_event: OnLineEvent,
    ) -> io::Result<LogWriter> {
        LogWriter::start(
            WriterLimits::of_lines(delay),
            LineOutput::new(target.clone(), file, on_event),
        )
    }

    /// Starts the thread of a log with an output of any kind.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(limits: WriterLimits, output: impl EntryOutput) -> io::Result<LogWriter> {
        let shared = Arc::new(WriterState {
            limits,
            pending_len: AtomicUsize::new(0),
            control: Mutex::default(),
            changed: Condvar::new(),
            lost: AtomicU64::new(0),
        });
        let thread_state = shared.clone();
        let thread = std::thread::Builder::new()
            .name("log".into())
            .spawn(move || write_all(&thread_state, output))?;
        Ok(LogWriter {
            shared,
            thread: Some(thread),
        })
    }

    /// Opens a destination's file as [`LogWriter::open`] does.
    ///
    /// # Errors
    /// The file can't be opened or created.
    pub fn open_target(target: &LogDestination) -> io::Result<File> {
        open(target)
    }

    /// Creates another sink with a separate buffer: one for each thread that logs often.
    pub fn sink(&self) -> LineSink {
        let buffer = Arc::<Mutex<SinkBuffer>>::default();
        lock(&self.shared.control).buffers.push(buffer.clone());
        LineSink {
            shared: self.shared.clone(),
            buffer,
        }
    }

    /// Reopens the file after it was renamed (logrotate). Lines pushed before still go to the old file. If opening
    /// fails, the writer thread tries `open_otherwise`. If that fails, too, the log continues with its open file, and
    /// the thread calls `on_failure`.
    pub fn reopen(
        &self,
        open_otherwise: fn(&Path, io::Error) -> io::Result<File>,
        on_failure: impl FnOnce(&io::Error) + Send + 'static,
    ) {
        lock(&self.shared.control).reopen = Some((open_otherwise, Box::new(on_failure)));
        self.shared.changed.notify_all();
    }

    /// Entries lost because the buffers were full or closed, or writing failed.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Relaxed)
    }

    /// Writes the pending lines and ends the thread; gives up after two seconds. Further lines are not accepted.
    pub fn close(mut self) {
        let end = Instant::now() + CLOSE_TIMEOUT;
        let mut control = self.shared.close();
        while self.shared.pending_len.load(Relaxed) > 0 {
            let remaining = end.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return;
            }
            let waited = self.shared.changed.wait_timeout(control, remaining);
            control = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(control);
        if let Some(thread) = self.thread.take() {
            // The thread has finished; if it panicked, the panic hook has already reported that.
            let _ = thread.join();
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        drop(self.shared.close());
    }
}

impl LineSink {
    /// The number of lines lost so far, by all sinks of the writer.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Relaxed)
    }

    /// Adds whole lines. False if they did not fit: they are lost and counted. Never waits for the destination; the
    /// sink's buffer is locked for a copy at most.
    pub fn push(&self, lines: &[u8]) -> bool {
        if lines.is_empty() {
            return true;
        }
        let mut buffer = lock(&self.buffer);
        // `is_closed` is checked under the buffer's lock, so that no line is added after `close`.
        let pending_before = match buffer.is_closed {
            true => None,
            false => self.shared.reserve(lines.len()),
        };
        let Some(pending_before) = pending_before else {
            drop(buffer);
            let count = self.shared.limits.count_entries;
            self.shared.count_lost(count(lines));
            return false;
        };
        buffer.lines.extend_from_slice(lines);
        drop(buffer);
        // Waking the thread is a system call, so only a push that changes the thread's next deadline does it.
        let wake_len = self.shared.limits.wake_len;
        if pending_before == 0
            || (pending_before < wake_len && pending_before + lines.len() >= wake_len)
        {
            self.shared.wake();
        }
        true
    }
}

impl WriterState {
    /// Reserves room for this many bytes. Returns the number of bytes that were pending before; `None` if there is too
    /// little room.
    fn reserve(&self, len: usize) -> Option<usize> {
        let grown = |pending: usize| {
            let sum = pending.checked_add(len)?;
            (sum <= self.limits.pending_len_max).then_some(sum)
        };
        self.pending_len.fetch_update(Relaxed, Relaxed, grown).ok()
    }

    /// Wakes the writer thread. Taking the lock orders the wake-up after the added bytes, and before the thread's next
    /// check or sleep.
    fn wake(&self) {
        drop(lock(&self.control));
        self.changed.notify_all();
    }

    fn close(&self) -> MutexGuard<'_, WriterControl> {
        let mut control = lock(&self.control);
        control.is_closed = true;
        // Each flag is set under the lock of its buffer, where `push` checks the flag.
        for buffer in &control.buffers {
            lock(buffer).is_closed = true;
        }
        self.changed.notify_all();
        control
    }

    fn count_lost(&self, lines: u64) {
        self.lost.fetch_add(lines, Relaxed);
    }

    /// Subtracts bytes that were written or lost from the pending ones.
    fn count_done(&self, len: usize) {
        let pending_before = self.pending_len.fetch_sub(len, Relaxed);
        // Only `close` waits for the buffers to be empty.
        if pending_before == len && lock(&self.control).is_closed {
            self.changed.notify_all();
        }
    }

    /// Waits for the next work. `None` if the log is closed and everything is written.
    fn next_round(&self) -> Option<WriteRound> {
        let mut control = lock(&self.control);
        let mut end = None;
        loop {
            let pending = self.pending_len.load(Relaxed);
            if pending >= self.limits.wake_len || control.reopen.is_some() {
                return Some(control.round());
            }
            if pending == 0 {
                // The thread ends only without pending lines, so that closing loses none.
                if control.is_closed {
                    return None;
                }
                control = self
                    .changed
                    .wait(control)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let now = Instant::now();
            // The delay counts from the first pending line; later ones must not extend it.
            let remaining = end
                .get_or_insert(now + self.limits.delay)
                .saturating_duration_since(now);
            if remaining.is_zero() || control.is_closed {
                return Some(control.round());
            }
            let waited = self.changed.wait_timeout(control, remaining);
            control = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// One round of the thread: it empties all buffers, and then reopens the file if requested.
struct WriteRound {
    buffers: Vec<Arc<Mutex<SinkBuffer>>>,
    reopen: Option<(OpenOtherwise, OnFailure)>,
}

impl WriterControl {
    fn round(&mut self) -> WriteRound {
        // A buffer without sinks is kept until its lines are written.
        let is_used = |buffer: &Arc<Mutex<SinkBuffer>>| {
            Arc::strong_count(buffer) > 1 || !lock(buffer).lines.is_empty()
        };
        self.buffers.retain(is_used);
        WriteRound {
            buffers: self.buffers.clone(),
            reopen: self.reopen.take(),
        }
    }
}

fn write_all<O: EntryOutput>(shared: &WriterState, mut output: O) {
    // This vector is swapped with the buffer being written, so that sinks continue with allocated memory.
    let mut lines = Vec::new();
    while let Some(round) = shared.next_round() {
        let mut gathered_len = 0;
        for buffer in &round.buffers {
            std::mem::swap(&mut lines, &mut lock(buffer).lines);
            let mut rest = &lines[..];
            while !rest.is_empty() {
                let (part, after) = rest.split_at(output.part_len(rest));
                rest = after;
                shared.count_lost(output.write(part));
                match O::IS_GATHERING {
                    true => gathered_len += part.len(),
                    false => shared.count_done(part.len()),
                }
            }
            lines.clear();
            // The memory of a burst must not be kept for ever.
            if lines.capacity() > CAPACITY_KEPT_MAX {
                lines = Vec::new();
            }
        }
        shared.count_lost(output.end_round());
        shared.count_done(gathered_len);
        if let Some((open_otherwise, on_failure)) = round.reopen
            && let Err(error) = output.reopen(open_otherwise)
        {
            on_failure(&error);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
