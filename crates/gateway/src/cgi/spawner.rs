//! Spawner: a small child process of the server that starts the CGI programs ([`process()`]).
//!
//! fork(2) copies the page tables of the calling process: those of a server with a large cache are large, those of the
//! spawner small. A separate process is needed throughout, since only the parent of a program is notified of its exit.
//!
//! Server and spawner exchange messages on a socket (`messages`); a program's pipes are passed along as descriptors. If
//! the server ends for any reason, the socket closes: the spawner then kills all programs and exits. If the spawner
//! dies, its programs are killed too, and the next request starts a new spawner.

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

/// Starts CGI programs by means of the spawner process, which is started with the first program.
pub struct CgiSpawner {
    command: Box<dyn Fn() -> Command + Send + Sync>,
    notice: OperatorNotice,
    /// The number for the next program.
    next: AtomicU64,
    link: Mutex<Option<Arc<SpawnerLink>>>,
}

/// The connection to one spawner process, and the receivers of its programs' outcomes.
struct SpawnerLink {
    channel: PacketChannel,
    /// `None` once the spawner process has ended.
    waiters: Mutex<Option<HashMap<u64, oneshot::Sender<ExitOutcome>>>>,
    process: ChildHandle,
}

impl CgiSpawner {
    /// `command` returns a command that calls [`process()`] with its standard input as the channel.
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

    /// Starts a program with the pipes `ends` as standard input, output and error. Whether the start succeeded is
    /// reported by the returned `CgiChild`. Blocks while the spawner's socket is full.
    ///
    /// # Errors
    /// The spawner cannot be started, or the message is too long.
    pub fn start(&self, order: SpawnOrder, ends: &[OwnedFd; 3]) -> io::Result<CgiChild> {
        let id = self.next.fetch_add(1, Relaxed);
        let message = encode(&ToSpawner::Start(id, Box::new(order)))?;
        let (link, is_new) = self.link()?;
        match link.start(id, &message, ends) {
            // If the spawner has just died, a new one is tried once.
            Err(_) if !is_new && link.is_closed() => self.link()?.0.start(id, &message, ends),
            started => started,
        }
        .map_err(io::Error::from)
    }

    /// The connection to the spawner, and whether it was started by this call.
    fn link(&self) -> io::Result<(Arc<SpawnerLink>, bool)> {
        // The lock is held, so that concurrent requests start only one process.
        let mut current = lock(&self.link);
        if let Some(link) = current.as_ref().filter(|link| !link.is_closed()) {
            return Ok((link.clone(), false));
        }
        let link = self.connect()?;
        Ok((current.insert(link).clone(), true))
    }

    /// Ends the spawner process and all remaining programs, and waits for the process.
    pub fn end(&self) {
        if let Some(link) = lock(&self.link).take() {
            link.end();
            link.process.wait_for_helper();
        }
    }

    fn connect(&self) -> io::Result<Arc<SpawnerLink>> {
        let mut command = (self.command)();
        // The spawner must not write to the server's output.
        command.stdout(Stdio::null());
        let (child, channel) = ChildProcess::spawn_with_channel(command)?;
        let link = Arc::new(SpawnerLink {
            channel,
            waiters: Mutex::new(Some(HashMap::new())),
            process: child.handle(),
        });
        let (reader_link, notice) = (link.clone(), self.notice.clone());
        // The receiver runs on a separate thread: receiving blocks, and outcomes must arrive even if all workers are
        // busy.
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
    /// Closes the socket, which ends the spawner process and the reader thread.
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
        // The waiter is registered before sending: otherwise the outcome might arrive first.
        match &mut *lock(&self.waiters) {
            Some(waiters) => waiters.insert(id, sender),
            None => return Err(MessageError::Closed),
        };
        let ends = ends.each_ref().map(|end| end.as_fd());
        let sent = self.channel.send(message, &ends, SendMode::Wait);
        // If the message was not sent, no outcome will arrive.
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

    /// Sends a message without blocking; if the socket is full, a temporary thread sends it.
    fn send_nonblocking(self: &Arc<SpawnerLink>, message: &ToSpawner) {
        let Ok(message) = encode(message) else { return };
        // Destructors call this function on a worker, which must not block.
        if self.channel.send(&message, &[], SendMode::Try) == Err(MessageError::NotReady) {
            let link = self.clone();
            thread::spawn(move || link.channel.send(&message, &[], SendMode::Wait));
        }
    }

    /// Receives the outcomes of programs until the spawner process has ended.
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
            // If the request was cancelled, the waiter was already removed.
            waiter.map(|waiter| waiter.send(outcome));
        }
        // Dropping the senders makes the outcomes of their programs `Lost`.
        let lost = lock(&self.waiters).take();
        let exit_result = child.reap();
        if let Ok(status) = exit_result
            // A clean exit follows a close by the server, and is not reported.
            && !status.success()
        {
            let count = lost.map_or(0, |lost| lost.len());
            let text = format!(
                "the process that starts CGI programs ended ({status}), and {count} programs with \
                 it; the next request starts a new one"
            );
            notice(&text, None);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
