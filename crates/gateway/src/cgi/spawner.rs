//! Spawner: a small child process of the server that starts programs ([`process()`]).
//!
//! fork(2) copies the page tables of the caller, which are large in a server with a big cache and small in the spawner;
//! and only the parent of a process is notified of its exit.
//!
//! Orders and outcomes are messages on a socket (`messages`); a program's pipes are passed with them. If the server is
//! gone, for any reason, the socket closes: then the spawner kills all programs that it has started, and exits. If the
//! spawner dies, its programs are killed, and the next request starts another spawner.

mod child;
mod messages;
mod process;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

pub use child::CgiChild;
use lowroad_child_processes::message::{MessageError, PacketChannel, SendMode, decode, encode};
use lowroad_child_processes::process::{ChildHandle, ChildProcess};
use lowroad_handler::operator_notice::OperatorNotice;
pub use messages::{EnvVariable, ExitOutcome, SpawnOrder};
use messages::{SpawnerReply, ToSpawner};
pub use process::serve;
use tokio::sync::oneshot;

/// Starts programs, by a process that is started with the first of them.
pub struct CgiSpawner {
    command: Box<dyn Fn() -> Command + Send + Sync>,
    notice: OperatorNotice,
    /// The number of the next program.
    next: AtomicU64,
    link: Mutex<Option<Arc<SpawnerLink>>>,
}

/// The connection to one spawner process, with the waiters for its programs' outcomes.
struct SpawnerLink {
    channel: PacketChannel,
    /// `None` once the process is gone.
    waiters: Mutex<Option<HashMap<u64, oneshot::Sender<ExitOutcome>>>>,
    process: ChildHandle,
}

impl CgiSpawner {
    /// `command` returns a command that calls [`process()`] with its standard input.
    pub fn new(
        command: impl Fn() -> Command + Send + Sync + 'static,
        notice: OperatorNotice,
    ) -> Arc<CgiSpawner> {
        Arc::new(CgiSpawner {
            command: Box::new(command),
            notice,
            next: AtomicU64::new(0),
            link: Mutex::new(None),
        })
    }

    /// Starts a program with this standard input, output and error. Its success is reported later. Blocks while the
    /// spawner's socket is full.
    ///
    /// # Errors
    /// The spawner cannot be started, or the order is too long.
    pub fn start(&self, order: SpawnOrder, ends: &[OwnedFd; 3]) -> io::Result<CgiChild> {
        let id = self.next.fetch_add(1, Relaxed);
        let message = encode(&ToSpawner::Start(id, Box::new(order)))?;
        let (link, is_new) = self.link()?;
        match link.start(id, &message, ends) {
            // The spawner died just now; a new one is tried once.
            Err(_) if !is_new && link.is_closed() => self.link()?.0.start(id, &message, ends),
            started => started,
        }
        .map_err(io::Error::from)
    }

    /// The connection, and whether the process was started just now.
    fn link(&self) -> io::Result<(Arc<SpawnerLink>, bool)> {
        // Under the lock, so that concurrent requests start a single process.
        let mut current = lock(&self.link);
        if let Some(link) = current.as_ref().filter(|link| !link.is_closed()) {
            return Ok((link.clone(), false));
        }
        let link = self.connect()?;
        Ok((current.insert(link).clone(), true))
    }

    /// Ends the process and all remaining programs, and waits for it.
    pub fn end(&self) {
        if let Some(link) = lock(&self.link).take() {
            link.end();
            link.process.wait_for_helper();
        }
    }

    fn connect(&self) -> io::Result<Arc<SpawnerLink>> {
        let mut command = (self.command)();
        // The spawner's own output must not mix with the server's.
        command.stdout(Stdio::null());
        let (child, channel) = ChildProcess::spawn_with_channel(command)?;
        let link = Arc::new(SpawnerLink {
            channel,
            waiters: Mutex::new(Some(HashMap::new())),
            process: child.handle(),
        });
        let (reader_link, notice) = (link.clone(), self.notice.clone());
        // A separate thread: receiving blocks, and the outcome must arrive even if all workers are busy.
        thread::Builder::new()
            .name("spawner".into())
            .spawn(move || reader_link.listen(child, &notice))?;
        Ok(link)
    }
}

impl Drop for CgiSpawner {
    fn drop(&mut self) {
        if let Some(link) = lock(&self.link).take() {
            link.end();
        }
    }
}

impl SpawnerLink {
    /// Closes the socket, which ends the process and the reader thread.
    fn end(&self) {
        self.channel.close();
    }

    fn is_closed(&self) -> bool {
        lock(&self.waiters).is_none()
    }

    fn start(
        self: &Arc<SpawnerLink>,
        id: u64,
        message: &[u8],
        ends: &[OwnedFd; 3],
    ) -> Result<CgiChild, MessageError> {
        let (sender, receiver) = oneshot::channel();
        // Registered before sending, or the outcome could arrive before its waiter.
        match &mut *lock(&self.waiters) {
            Some(waiters) => waiters.insert(id, sender),
            None => return Err(MessageError::Closed),
        };
        let ends = ends.each_ref().map(|end| end.as_fd());
        let sent = self.channel.send(message, &ends, SendMode::Wait);
        // The message was not sent, so no outcome will come.
        if sent.is_err() {
            self.forget(id);
        }
        sent.map(|()| CgiChild::new(self.clone(), id, receiver))
    }

    fn forget(&self, id: u64) {
        if let Some(waiters) = &mut *lock(&self.waiters) {
            waiters.remove(&id);
        }
    }

    /// Sends a message without blocking: if the socket is full, a temporary thread sends it.
    fn send_nonblocking(self: &Arc<SpawnerLink>, message: &ToSpawner) {
        let Ok(message) = encode(message) else { return };
        // Called from drops on a worker, which must not block.
        if self.channel.send(&message, &[], SendMode::Try) == Err(MessageError::NotReady) {
            let link = self.clone();
            thread::spawn(move || link.channel.send(&message, &[], SendMode::Wait));
        }
    }

    /// Receives outcomes of programs, until the process is gone.
    fn listen(&self, mut child: ChildProcess, notice: &OperatorNotice) {
        let mut buffer = Vec::new();
        while let Ok(SpawnerReply { id, outcome }) = self
            .channel
            .receive(&mut buffer)
            .and_then(|_| decode(&buffer))
        {
            let waiter = lock(&self.waiters)
                .as_mut()
                .and_then(|waiters| waiters.remove(&id));
            // No waiter is left if the request was cancelled.
            waiter.map(|waiter| waiter.send(outcome));
        }
        // Dropping the waiters reports their programs as lost.
        let lost = lock(&self.waiters).take();
        let exit_result = child.reap();
        if let Ok(status) = exit_result
            // A clean exit follows the server's own close and is not reported.
            && !status.success()
        {
            let count = lost.map_or(0, |lost| lost.len());
            notice(&format!(
                "the process that starts CGI programs ended ({status}), and {count} programs with \
                 it; the next request starts a new one"
            ));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
