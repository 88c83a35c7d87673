//! The thread that owns a log's target, and the bounded queue to it.
//!
//! A target may be a pipe that nobody reads or a disk that hangs: then the queue fills, and what
//! does not fit is lost and counted. Nobody but this thread ever waits.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes that may wait to be written.
const QUEUE_LEN_MAX: usize = 4 << 20;
/// Batches are joined up to this many bytes.
const WRITE_LEN_MAX: usize = 64 * 1024;
/// How long closing waits for the rest to be written.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 2000 });

/// Where a log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, appended to.
    File(PathBuf),
}

/// The thread and its queue. Dropping it lets the thread write what waits and end by itself;
/// [`Writer::close`] waits for that.
pub struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// A way into the queue.
#[derive(Clone)]
pub struct Sink {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    lost: AtomicU64,
}

/// What is done when a log can't be opened anew.
type OnFailure = Box<dyn FnOnce(&io::Error) + Send>;

#[derive(Default)]
struct Queue {
    batches: VecDeque<Vec<u8>>,
    /// Bytes waiting or being written: 0 <= len <= [`QUEUE_LEN_MAX`].
    len: usize,
    /// The thread waits for a signal. Whoever clears it owes the signal.
    idle: bool,
    reopen: Option<OnFailure>,
    closed: bool,
}

impl Writer {
    /// Opens the target and starts its thread.
    ///
    /// # Errors
    /// When the file can't be opened or created, or no thread can be had.
    pub fn open(target: &Target) -> io::Result<Writer> {
        let file = open(target)?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            lost: AtomicU64::new(0),
        });
        let (theirs, target) = (shared.clone(), target.clone());
        let thread = std::thread::Builder::new()
            .name("log".into())
            .spawn(move || write_all(&theirs, &target, file))?;
        Ok(Writer {
            shared,
            thread: Some(thread),
        })
    }

    /// A way in, for any thread.
    pub fn sink(&self) -> Sink {
        Sink {
            shared: self.shared.clone(),
        }
    }

    /// Opens the file anew before the next write: after it was renamed away (logrotate). If that
    /// fails, the log goes on into the file it has, and `on_failure` is called by the log's thread.
    pub fn reopen(&self, on_failure: impl FnOnce(&io::Error) + Send + 'static) {
        self.shared.queue().reopen = Some(Box::new(on_failure));
        self.shared.changed.notify_all();
    }

    /// Lines lost because the queue was full or closed, or the target refused them.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Relaxed)
    }

    /// Writes what waits and ends the thread; gives up after two seconds. Takes no more lines.
    pub fn close(mut self) {
        let end = Instant::now() + CLOSE_TIMEOUT;
        let mut queue = self.shared.shut();
        while queue.len > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.shared.changed.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(queue);
        if let Some(thread) = self.thread.take() {
            // It has nothing left to do; a panic of it has been reported already.
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.shared.shut());
    }
}

impl Sink {
    /// Lines lost so far, by whichever sink of the writer.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Relaxed)
    }

    /// Adds whole lines. False if they did not fit: they are lost and counted. Never waits for the
    /// target; the lock it takes is held for a few instructions only.
    pub fn push(&self, batch: Vec<u8>) -> bool {
        let mut queue = self.shared.queue();
        if queue.closed || batch.len() > QUEUE_LEN_MAX - queue.len {
            drop(queue);
            self.shared.count_lost(&batch);
            return false;
        }
        queue.len += batch.len();
        queue.batches.push_back(batch);
        // A signal is a system call: only the push that finds the thread asleep makes it.
        let wake = std::mem::take(&mut queue.idle);
        drop(queue);
        if wake {
            self.shared.changed.notify_all();
        }
        true
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shut(&self) -> MutexGuard<'_, Queue> {
        let mut queue = self.queue();
        queue.closed = true;
        self.changed.notify_all();
        queue
    }

    fn count_lost(&self, batch: &[u8]) {
        let lines = batch.iter().filter(|byte| **byte == b'\n').count();
        self.lost.fetch_add(lines as u64, Relaxed);
    }

    /// A batch is written, or lost.
    fn count_done(&self, batch_len: usize) {
        let mut queue = self.queue();
        queue.len -= batch_len;
        if queue.closed && queue.len == 0 {
            self.changed.notify_all();
        }
    }
}

/// Standard output and error as files of their own: their usual handles have locks, which the rest
/// of the program would wait for while this thread hangs in a write.
fn open(target: &Target) -> io::Result<File> {
    match target {
        Target::Stdout => io::stdout().as_fd().try_clone_to_owned().map(File::from),
        Target::Stderr => io::stderr().as_fd().try_clone_to_owned().map(File::from),
        Target::File(path) => {
            // Opening a FIFO for writing waits for its reader, unless it is opened for reading too.
            let fifo = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo());
            // Logs hold addresses: they are not for everybody.
            OpenOptions::new()
                .read(fifo)
                .append(true)
                .create(true)
                .mode(0o640)
                .open(path)
        }
    }
}

fn write_all(shared: &Shared, target: &Target, mut file: File) {
    while let Some((batches, reopen)) = next(shared) {
        if let Some(on_failure) = reopen {
            match open(target) {
                Ok(opened) => file = opened,
                Err(error) => on_failure(&error),
            }
        }
        for batch in joined(batches) {
            if file.write_all(&batch).is_err() {
                shared.count_lost(&batch);
            }
            shared.count_done(batch.len());
        }
    }
}

/// Small batches as large ones: each becomes a system call.
fn joined(batches: VecDeque<Vec<u8>>) -> impl Iterator<Item = Vec<u8>> {
    let mut batches = batches.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut first = batches.next()?;
        let fits = |len: usize, more: &Vec<u8>| len + more.len() <= WRITE_LEN_MAX;
        while let Some(more) = batches.next_if(|more| fits(first.len(), more)) {
            first.extend_from_slice(&more);
        }
        Some(first)
    })
}

/// Waits for something to do: batches, and what to do if the file is to be opened anew and can't be. None when closed.
fn next(shared: &Shared) -> Option<(VecDeque<Vec<u8>>, Option<OnFailure>)> {
    let mut queue = shared.queue();
    loop {
        if !queue.batches.is_empty() || queue.reopen.is_some() {
            let reopen = queue.reopen.take();
            return Some((std::mem::take(&mut queue.batches), reopen));
        }
        if queue.closed {
            return None;
        }
        queue.idle = true;
        queue = shared
            .changed
            .wait(queue)
            .unwrap_or_else(PoisonError::into_inner);
        queue.idle = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("lowroad-log-{name}-{}", std::process::id()))
    }

    #[test]
    fn lines_arrive_in_order_and_reopen_follows_the_name() {
        let (path, rotated) = (path("lines"), path("lines.1"));
        let writer = Writer::open(&Target::File(path.clone())).expect("open");
        let sink = writer.sink();
        assert!(sink.push(b"one\n".to_vec()));
        while std::fs::read(&path).expect("read") != b"one\n" {
            std::thread::yield_now();
        }
        std::fs::rename(&path, &rotated).expect("rotate");
        writer.reopen(|error| panic!("{error}"));
        assert!(sink.push(b"two\n".to_vec()));
        writer.close();
        assert_eq!(std::fs::read(&rotated).expect("read"), b"one\n");
        assert_eq!(std::fs::read(&path).expect("read"), b"two\n");
        std::fs::remove_file(path)
            .and(std::fs::remove_file(rotated))
            .expect("remove");
    }

    fn fifo(name: &str) -> PathBuf {
        let path = path(name);
        let made = std::process::Command::new("mkfifo")
            .arg(&path)
            .status()
            .expect("mkfifo");
        assert!(made.success());
        path
    }

    #[test]
    fn a_target_that_takes_nothing_blocks_nobody() {
        // Nobody reads: opening must not wait, and the pipe takes 64 KiB before it blocks.
        let path = fifo("fifo");
        let writer = Writer::open(&Target::File(path.clone())).expect("open");
        let sink = writer.sink();
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        let mut taken = 0;
        while sink.push(line.clone()) {
            taken += line.len();
            assert!(taken < 64 << 20, "the queue is not bounded");
        }
        // What the stuck write holds counts too; only what the pipe took is out of the queue.
        assert!(
            (QUEUE_LEN_MAX..=QUEUE_LEN_MAX + (128 << 10)).contains(&taken),
            "{taken}"
        );
        let started = Instant::now();
        for _ in 0..1000 {
            let _ = sink.push([&line[..], b"second\n"].concat());
        }
        assert!(started.elapsed() < Duration::from_millis(500));
        // While this ran the pipe may have taken its 64 lines, and made room for as many.
        assert!(writer.lost() > 2 * 900, "{}", writer.lost());
        drop(writer);
        std::fs::remove_file(path).expect("remove");
    }

    #[test]
    fn closing_is_bounded_and_ends_the_queue() {
        let path = fifo("close");
        let writer = Writer::open(&Target::File(path.clone())).expect("open");
        let sink = writer.sink();
        assert!(sink.push(vec![b'x'; 1 << 20]));
        let started = Instant::now();
        writer.close();
        assert!(started.elapsed() >= CLOSE_TIMEOUT);
        assert!(started.elapsed() < 3 * CLOSE_TIMEOUT);
        assert!(!sink.push(b"late\n".to_vec()), "nobody would write it");
        assert_eq!(sink.shared.lost.load(Relaxed), 1);
        std::fs::remove_file(path).expect("remove");
    }

    #[test]
    fn threads_do_not_mix_lines_and_close_writes_all() {
        let path = path("threads");
        let writer = Writer::open(&Target::File(path.clone())).expect("open");
        std::thread::scope(|scope| {
            for digit in *b"1234" {
                let sink = writer.sink();
                scope.spawn(move || {
                    for _ in 0..1000 {
                        assert!(sink.push([&[digit; 9][..], b"\n"].concat()));
                    }
                });
            }
        });
        assert_eq!(writer.lost(), 0);
        writer.close();
        let written = std::fs::read(&path).expect("read");
        assert_eq!(written.len(), 4 * 1000 * 10);
        assert!(
            written
                .chunks(10)
                .all(|line| line[..9].iter().all(|b| *b == line[0]))
        );
        std::fs::remove_file(path).expect("remove");
    }

    #[test]
    fn small_batches_are_joined_in_order() {
        let batch = |len, byte| vec![byte; len];
        let batches = [
            batch(10, b'a'),
            batch(WRITE_LEN_MAX - 10, b'b'),
            batch(1, b'c'),
        ];
        let lens: Vec<usize> = joined(batches.into()).map(|batch| batch.len()).collect();
        assert_eq!(lens, [WRITE_LEN_MAX, 1]);
        let large = [
            batch(WRITE_LEN_MAX + 1, b'a'),
            batch(2, b'b'),
            batch(3, b'c'),
        ];
        let lens: Vec<usize> = joined(large.into()).map(|batch| batch.len()).collect();
        assert_eq!(lens, [WRITE_LEN_MAX + 1, 5]);
    }

    #[test]
    fn a_target_that_refuses_is_counted() {
        let writer = Writer::open(&Target::File("/dev/full".into())).expect("open");
        assert!(writer.sink().push(b"one\ntwo\n".to_vec()));
        let shared = writer.shared.clone();
        writer.close();
        assert_eq!(shared.lost.load(Relaxed), 2);
        assert!(Writer::open(&Target::File("/nonexistent/log".into())).is_err());
    }

    #[test]
    fn a_failed_reopen_keeps_the_file() {
        let folder = path("folder");
        std::fs::create_dir(&folder).expect("create");
        let (file, moved) = (folder.join("log"), path("moved"));
        let writer = Writer::open(&Target::File(file.clone())).expect("open");
        std::fs::rename(&file, &moved)
            .and(std::fs::remove_dir(&folder))
            .expect("remove");
        let sink = writer.sink();
        writer.reopen(move |error| {
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            assert!(sink.push(b"told\n".to_vec()));
        });
        assert!(writer.sink().push(b"still\n".to_vec()));
        while std::fs::read(&moved).expect("read").len() < 11 {
            std::thread::yield_now();
        }
        writer.close();
        let text = String::from_utf8(std::fs::read(&moved).expect("read")).expect("text");
        assert!(
            text.contains("still\n") && text.contains("told\n"),
            "{text}"
        );
        std::fs::remove_file(moved).expect("remove");
    }
}
