//! A module's process, from the server's view: starts it, and exchanges messages with it until it dies.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lowroad_child_processes::message::{decode, stream};
use lowroad_child_processes::process::ChildProcess;
use lowroad_module::MessageLevel;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use super::super::tickets;
use super::SeparateState;
use super::messages::{EventReply, FromModule, ToModule};
use super::pending_messages::UnansweredCalls;

/// Time limit for the start of a process, in milliseconds.
const START_MS_MAX: u64 = 10_000;
/// Time limit for reading the remaining output of a dead process. If another process has inherited the dead process's
/// end of the socket, the end of the stream never arrives.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// A process and its socket.
pub struct ModuleProcess {
    child: ChildProcess,
    socket: UnixStream,
    /// The calls of the process.
    pub connection: Arc<ProcessConnection>,
    /// The messages to be sent; taken by `run`.
    frames: Option<mpsc::UnboundedReceiver<Vec<u8>>>,
}

impl ModuleProcess {
    /// Starts a process, and waits until its module has started.
    pub fn start(shared: &SeparateState) -> Result<ModuleProcess, String> {
        let name = &shared.identity.name;
        let text = |error: io::Error| format!("module {name}: its process does not start: {error}");
        let (child, socket) = ChildProcess::spawn_with_stream((shared.command)()).map_err(text)?;
        let (out, frames) = mpsc::unbounded_channel();
        let mut process = ModuleProcess {
            child,
            socket,
            connection: Arc::new(ProcessConnection {
                out,
                state: Mutex::default(),
                kill: Notify::new(),
            }),
            frames: Some(frames),
        };
        match process.start_module(shared) {
            Ok(Ok(())) => Ok(process),
            Ok(Err(problem)) => Err(problem),
            Err(error) => Err(text(error)),
        }
    }

    fn start_module(&mut self, shared: &SeparateState) -> io::Result<Result<(), String>> {
        let limit = Some(Duration::from_millis(START_MS_MAX));
        // A process that hangs while it starts must not block this thread forever.
        self.socket.set_read_timeout(limit)?;
        stream::write(
            &mut self.socket,
            &ToModule::Start {
                name: shared.identity.name.clone(),
                library: shared.library.clone(),
                settings: shared.identity.settings.clone(),
                workers: shared.workers,
                response_len_max: shared.response_len_max,
            },
        )?;
        // Log lines can precede the result of the start.
        loop {
            match stream::read(&mut self.socket)? {
                FromModule::Started(started) => return Ok(started),
                message => log(shared, message),
            }
        }
    }
}

impl Drop for ModuleProcess {
    fn drop(&mut self) {
        // If the process has ended already, this only collects its exit status.
        let _ = self.child.kill();
    }
}

/// The connection to a process: sends messages about calls, and dispatches the replies.
pub struct ProcessConnection {
    out: mpsc::UnboundedSender<Vec<u8>>,
    state: Mutex<PendingCall>,
    kill: Notify,
}

/// The outcome of a message to a process.
pub enum ModuleReply {
    /// The module has processed the message.
    Handled(Box<EventReply>),
    /// The process died before it began to process the message.
    NotStarted,
}

#[derive(Default)]
struct PendingCall {
    closed: bool,
    /// Whether all output of the process has been read.
    is_fully_read: bool,
    unanswered: UnansweredCalls,
    /// Whether the process has ever had a call.
    has_had_call: bool,
    replies: HashMap<u64, oneshot::Sender<ModuleReply>>,
    /// The server's ticket of each waiting call.
    tickets: HashMap<u64, u64>,
}

impl ProcessConnection {
    /// Sends a message about a call, and returns the receiver of its reply; `None` if the process is dead. The queue is
    /// bounded by the number of concurrent calls.
    pub fn send(&self, call: u64, message: &ToModule) -> Option<oneshot::Receiver<ModuleReply>> {
        // The message is encoded before the lock is taken, since it can contain megabytes.
        let frame = stream::frame(message).ok()?;
        let (sender, receiver) = oneshot::channel();
        // The message is sent under the lock, so that none is queued after `close` has collected the unanswered
        // messages.
        let mut state = self.state();
        if state.closed {
            return None;
        }
        // The channel may close before the process is marked as dead.
        if self.out.send(frame).is_err() {
            state.closed = true;
            return None;
        }
        state.has_had_call = true;
        // The message is recorded under the same lock, so that the order is that of the channel; the order shows which
        // messages no worker has taken.
        state.unanswered.record_sent(message.worker(), call);
        state.replies.insert(call, sender);
        Some(receiver)
    }

    /// Whether the process is known to be dead.
    pub fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Whether the process has ever had a call.
    pub fn has_had_call(&self) -> bool {
        self.state().has_had_call
    }

    /// Removes a call that has ended.
    pub fn forget(&self, call: u64, final_message: Option<&ToModule>) {
        let mut state = self.state();
        state.replies.remove(&call);
        state.tickets.remove(&call);
        // The final message is queued without the lock, which `handle_message` needs for each reply.
        drop(state);
        if let Some(Ok(frame)) = final_message.map(stream::frame) {
            // A dead process needs no notification.
            let _ = self.out.send(frame);
        }
    }

    /// Registers the server's ticket of a waiting call.
    pub fn ticket(&self, call: u64, number: u64) {
        let mut state = self.state();
        state.tickets.insert(call, number);
        // If the process has died in the meantime, nothing else would wake the call.
        if state.closed {
            drop(state);
            tickets::resume_call(number);
        }
    }

    /// Kills the process.
    pub fn kill(&self) {
        self.kill.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, PendingCall> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle_message(&self, shared: &SeparateState, message: FromModule) {
        match message {
            FromModule::Handled { call, handled } => {
                let mut state = self.state();
                state.unanswered.record_answer(call);
                let reply = state.replies.remove(&call);
                drop(state);
                // An abandoned call has no receiver.
                let _ = reply.map(|reply| reply.send(ModuleReply::Handled(handled)));
            }
            FromModule::Continued { call } => {
                let ticket = self.state().tickets.get(&call).copied();
                ticket.map(tickets::resume_call);
            }
            message => log(shared, message),
        }
    }

    /// Marks the process as dead. Calls that the process had not begun may be repeated; all other calls fail.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        // If output is missing, a call may have been answered in it, and must not count as not begun.
        if state.is_fully_read {
            let unanswered = std::mem::take(&mut state.unanswered);
            for call in unanswered.unstarted_calls() {
                let reply = state.replies.remove(&call);
                let _ = reply.map(|reply| reply.send(ModuleReply::NotStarted));
            }
        }
        // The receivers of the remaining replies get an error.
        state.replies.clear();
        let tickets = std::mem::take(&mut state.tickets);
        // The lock is released first: tickets resume calls, which may lock the state again.
        drop(state);
        for ticket in tickets.into_values() {
            tickets::resume_call(ticket);
        }
    }
}

/// Exchanges messages with a process until the process dies or must be killed, then returns it.
pub async fn run(shared: Arc<SeparateState>, mut process: ModuleProcess) -> ModuleProcess {
    let connection = process.connection.clone();
    if let (Ok(socket), Some(mut frames)) = (socket(&process), process.frames.take()) {
        let (mut reader, mut writer) = socket.into_split();
        let write = async {
            // A single task writes all messages, in the order of the queue: the process must receive a call's events in
            // order.
            while let Some(frame) = frames.recv().await {
                if writer.write_all(&frame).await.is_err() {
                    return;
                }
            }
        };
        let mut read_future = std::pin::pin!(read(&shared, &connection, &mut reader));
        let end = tokio::select! {
            () = write => None,
            end = &mut read_future => Some(end),
            () = connection.kill.notified() => None,
        };
        let end = match end {
            Some(end) => Some(end),
            None => {
                // The signal has no effect if the process has ended already.
                process.child.signal(Signal::KILL);
                // The process is dead, but the socket may still contain its last output.
                timeout(DRAIN_TIMEOUT, read_future).await.ok()
            }
        };
        // Only an orderly end of the stream proves that no reply was lost; otherwise no calls are repeated.
        connection.state().is_fully_read = end.is_some_and(|end| end.is_err_and(|it| is_end(&it)));
    }
    process
}

/// Whether a read failed because the process is dead and all of its output has been read. If the peer of a Unix socket
/// closes it without having read all messages, the socket reports a reset, after all data have been read (unix(7)).
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset)
}

async fn read(
    shared: &SeparateState,
    connection: &ProcessConnection,
    reader: &mut OwnedReadHalf,
) -> io::Result<()> {
    loop {
        let mut prefix = [0; stream::PREFIX_LEN];
        reader.read_exact(&mut prefix).await?;
        let mut content = vec![0; stream::announced_len(prefix)?];
        reader.read_exact(&mut content).await?;
        connection.handle_message(shared, decode(&content)?);
    }
}

/// The socket for the runtime.
fn socket(process: &ModuleProcess) -> io::Result<tokio::net::UnixStream> {
    let socket = process.socket.try_clone()?;
    // The timeout was for the blocking reads at the start.
    socket.set_read_timeout(None)?;
    socket.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(socket)
}

fn log(shared: &SeparateState, message: FromModule) {
    let FromModule::Line {
        level,
        text,
        request,
    } = message
    else {
        return;
    };
    let level = MessageLevel::from_number(level);
    match request {
        Some(request) => shared.identity.log_request(level, &text, &request.into()),
        None => shared.identity.log(level, &text),
    }
}

/// Returns the command that starts a process.
pub type SpawnProcess = Box<dyn Fn() -> Command + Send + Sync>;
