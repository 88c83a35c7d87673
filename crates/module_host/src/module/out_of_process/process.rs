//! A module's process, seen from the server: its start, and the messages exchanged until it dies.

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

/// How long a process may take to start, in milliseconds.
const START_MS_MAX: u64 = 10_000;
/// How long the output of a dead process is read. Another process may have inherited its end of the socket, so the
/// end of the stream may never come.
const REST_MAX: Duration = Duration::from_secs(1);

/// A process and its socket.
pub struct ModuleProcess {
    child: ChildProcess,
    socket: UnixStream,
    /// Its calls.
    pub connection: Arc<ProcessConnection>,
    /// The messages to be sent; taken by `run`.
    frames: Option<mpsc::UnboundedReceiver<Vec<u8>>>,
}

impl ModuleProcess {
    /// Starts a process, and waits until the module in it has started.
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
        // A process that hangs during its start must not block this thread for ever.
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
        // Lines of the log may come before the outcome of the start.
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
        // The process may have ended already; then this only collects its exit status.
        let _ = self.child.kill();
    }
}

/// The calls of a process.
pub struct ProcessConnection {
    out: mpsc::UnboundedSender<Vec<u8>>,
    state: Mutex<PendingCall>,
    kill: Notify,
}

/// The outcome of a message to a process.
pub enum ModuleReply {
    /// The module has handled it.
    Handled(Box<EventReply>),
    /// The process died before it took the message.
    NotBegun,
}

#[derive(Default)]
struct PendingCall {
    closed: bool,
    /// All output of the process was read.
    is_read: bool,
    unanswered: UnansweredCalls,
    /// Whether the process has had a call.
    has_had_call: bool,
    replies: HashMap<u64, oneshot::Sender<ModuleReply>>,
    /// The server's tickets of waiting calls.
    tickets: HashMap<u64, u64>,
}

impl ProcessConnection {
    /// Sends a message about a call and returns the receiver of its reply. The queue is bounded by the number of
    /// concurrent calls.
    pub fn send(&self, call: u64, message: &ToModule) -> Option<oneshot::Receiver<ModuleReply>> {
        // Encoded before the lock is taken, since a message may hold megabytes.
        let frame = stream::frame(message).ok()?;
        let (sender, receiver) = oneshot::channel();
        // Under the lock, so that no message is queued after `close` has collected the unanswered ones.
        let mut state = self.state();
        if state.closed {
            return None;
        }
        // The channel closes before the process is marked as dead.
        if self.out.send(frame).is_err() {
            state.closed = true;
            return None;
        }
        state.has_had_call = true;
        // In the order of the channel, under the same lock: the order shows the messages that a worker had not taken.
        state.unanswered.record_sent(message.worker(), call);
        state.replies.insert(call, sender);
        Some(receiver)
    }

    /// Whether the process is known to be dead.
    pub fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Whether the process has had a call.
    pub fn has_had_call(&self) -> bool {
        self.state().has_had_call
    }

    /// Removes a call that has ended.
    pub fn forget(&self, call: u64, final_message: Option<&ToModule>) {
        let mut state = self.state();
        state.replies.remove(&call);
        state.tickets.remove(&call);
        // The queue is written without the lock, which `handle_message` needs for each reply.
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
        // The process died in the meantime, and only this wakes the call.
        if state.closed {
            drop(state);
            tickets::resume_call(number);
        }
    }

    /// Ends the process.
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
                // The lock is released before the waiting call runs.
                state.unanswered.record_answer(call);
                let reply = state.replies.remove(&call);
                drop(state);
                // The receiver of an abandoned call is gone.
                let _ = reply.map(|reply| reply.send(ModuleReply::Handled(handled)));
            }
            FromModule::Continued { call } => {
                let ticket = self.state().tickets.get(&call).copied();
                ticket.map(tickets::resume_call);
            }
            message => log(shared, message),
        }
    }

    /// Marks the process as dead. Calls that it had not begun may be repeated; the others fail.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        // If output is missing, a call may have been answered in it, and would wrongly count as not begun.
        if state.is_read {
            let unanswered = std::mem::take(&mut state.unanswered);
            for call in unanswered.unstarted_calls() {
                let reply = state.replies.remove(&call);
                let _ = reply.map(|reply| reply.send(ModuleReply::NotBegun));
            }
        }
        // The receivers of these replies get an error.
        // The lock is released first, since a resumed call may use this connection.
        state.replies.clear();
        let tickets = std::mem::take(&mut state.tickets);
        // Tickets wake calls, which may lock the state again.
        drop(state);
        for ticket in tickets.into_values() {
            tickets::resume_call(ticket);
        }
    }
}

/// Exchanges messages with a process until it dies or must end, then returns it.
pub async fn run(shared: Arc<SeparateState>, mut process: ModuleProcess) -> ModuleProcess {
    let connection = process.connection.clone();
    if let (Ok(socket), Some(mut frames)) = (socket(&process), process.frames.take()) {
        let (mut reader, mut writer) = socket.into_split();
        let write = async {
            // One task writes all messages, in the order of the queue: the process must see a call's events in order.
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
                // The process may have ended already.
                process.child.signal(Signal::KILL);
                // The process is dead, but its last output is still in the socket.
                timeout(REST_MAX, read_future).await.ok()
            }
        };
        // Only an orderly end proves that no reply was lost; otherwise unanswered calls are not repeated.
        connection.state().is_read = end.is_some_and(|end| end.is_err_and(|it| is_end(&it)));
    }
    process
}

/// Whether a read failed because the process is gone and all its output was read. A Unix socket whose other end closed
/// with messages that it had not read reports a reset, once nothing is left to read (unix(7)).
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

/// The socket, for the runtime.
fn socket(process: &ModuleProcess) -> io::Result<tokio::net::UnixStream> {
    let socket = process.socket.try_clone()?;
    // The timeout of the start applies to blocking reads only.
    socket.set_read_timeout(None)?;
    socket.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(socket)
}

fn log(shared: &SeparateState, message: FromModule) {
    if let FromModule::Line { level, text } = message {
        shared.identity.log(MessageLevel::from_number(level), &text);
    }
}

/// Makes the command that starts a process.
pub type SpawnProcess = Box<dyn Fn() -> Command + Send + Sync>;
