//! Runs libraries in a separate process, so that a crash of a module ends only that process. The requests it was
//! processing get 502. A spare process, started in advance, takes over; if it has not started yet, new calls wait for
//! it. Calls that the dead process had not begun are repeated in the next process.
//!
//! The process runs the same code with its own calls (`process_main.rs`). After each event it sends the module's
//! output, which is replayed to the call in the server. Single operations are not forwarded, so each event costs one
//! message in each direction.

mod messages;
mod pending_messages;
mod process;
mod process_main;
mod restart;
mod supervisor;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lowroad_handler::HandlerFailure;
use lowroad_http::status::StatusCode;
use lowroad_module::{CallEvent, CallHost, CallStep, SendStatus};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};

use super::call::HostedCall;
use super::call_loop::CallLimits;
use super::identity::ModuleIdentity;
use super::{Instance, ModuleBackend};
use messages::{CallHead, EventReply, ToModule};
use process::{ModuleProcess, ModuleReply, ProcessConnection, SpawnProcess};
pub use process_main::serve;

/// A library in a separate process.
pub struct SeparateCode(Arc<SeparateState>);

/// The state shared by the calls and the supervisor of the processes.
pub(in crate::module) struct SeparateState {
    identity: Arc<ModuleIdentity>,
    library: PathBuf,
    workers: usize,
    response_len_max: usize,
    command: SpawnProcess,
    service: watch::Sender<ModuleService>,
    last_call: AtomicU64,
    /// Notified when the module is no longer used.
    shutdown: Notify,
}

/// The availability of a process that accepts calls.
#[derive(Clone)]
enum ModuleService {
    /// This process accepts calls.
    Up(Arc<ProcessConnection>),
    /// A process is starting: calls wait for it.
    Starting,
    /// The last process has failed to start, and the next attempt comes later: calls fail immediately.
    Down,
}

impl SeparateState {
    /// Waits for a process other than `dead` that accepts calls.
    async fn connection(
        &self,
        dead: Option<Arc<ProcessConnection>>,
    ) -> Result<Arc<ProcessConnection>, HandlerFailure> {
        // The channel may still contain the process that has just died.
        let is_dead =
            |it: &Arc<ProcessConnection>| dead.as_ref().is_some_and(|dead| Arc::ptr_eq(it, dead));
        let mut service = self.service.subscribe();
        let settled = service.wait_for(|service| match service {
            ModuleService::Up(connection) => !is_dead(connection),
            ModuleService::Starting => false,
            ModuleService::Down => true,
        });
        match settled.await.as_deref() {
            Ok(ModuleService::Up(connection)) => Ok(connection.clone()),
            _ => Err(self.down_failure()),
        }
    }

    fn down_failure(&self) -> HandlerFailure {
        let name = &self.identity.name;
        let detail =
            format!("module {name}: its process does not start; the server will retry soon");
        HandlerFailure::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }
}

impl SeparateCode {
    /// Starts a process with the library for this number of workers, and waits until it has started. `command` returns
    /// the command of a program that calls [`process_main`] with its standard input.
    ///
    /// # Errors
    /// A message for the operator: the problem with the process or the library.
    pub fn open(
        library: &Path,
        identity: &Arc<ModuleIdentity>,
        workers: usize,
        runtime: &Handle,
        command: impl Fn() -> Command + Send + Sync + 'static,
    ) -> Result<SeparateCode, String> {
        let shared = Arc::new(SeparateState {
            identity: identity.clone(),
            library: library.to_path_buf(),
            workers,
            response_len_max: CallLimits::default().response_len_max,
            command: Box::new(command),
            service: watch::Sender::new(ModuleService::Starting),
            last_call: AtomicU64::new(0),
            shutdown: Notify::new(),
        });
        // The first process is started here, so that a module that cannot start is reported immediately.
        let process = ModuleProcess::start(&shared)?;
        let connection = process.connection.clone();
        shared.service.send_replace(ModuleService::Up(connection));
        runtime.spawn(supervisor::supervise(shared.clone(), process));
        Ok(SeparateCode(shared))
    }
}

/// Ends the module's processes.
impl Drop for SeparateCode {
    fn drop(&mut self) {
        self.0.shutdown.notify_one();
    }
}

impl ModuleBackend for SeparateCode {
    type CallInstance = RemoteCall;

    fn instance(&self, worker: usize, call: HostedCall) -> Result<RemoteCall, HandlerFailure> {
        let shared = &self.0;
        let connection = match &*shared.service.borrow() {
            ModuleService::Up(connection) => Some(connection.clone()),
            // The call is accepted, and waits in `handle` until a process has started.
            ModuleService::Starting => None,
            ModuleService::Down => return Err(shared.down_failure()),
        };
        Ok(RemoteCall {
            shared: shared.clone(),
            connection,
            number: shared.last_call.fetch_add(1, Relaxed),
            worker: worker % shared.workers,
            call,
            is_unanswered: false,
            is_waiting: false,
        })
    }
}

/// A call that was sent to a process, or will be once a process has started.
pub struct RemoteCall {
    shared: Arc<SeparateState>,
    connection: Option<Arc<ProcessConnection>>,
    number: u64,
    worker: usize,
    call: HostedCall,
    /// Whether an event was sent and its reply has not arrived.
    is_unanswered: bool,
    /// Whether the module waits, so that it must be notified when the call ends.
    is_waiting: bool,
}

impl Instance for RemoteCall {
    fn call(&mut self) -> &mut HostedCall {
        &mut self.call
    }

    /// Kills the process, since the module is stuck and blocks all other calls of its worker.
    fn on_timeout(&mut self) {
        // Only an unanswered event shows that the module is stuck; a waiting call may just be slow.
        if let Some(connection) = self.connection.as_ref().filter(|_| self.is_unanswered) {
            connection.kill();
        }
    }

    async fn handle(&mut self, event: CallEvent) -> Result<CallStep, HandlerFailure> {
        let message = self.message(event);
        let event_reply = loop {
            let reply = self.send_event(event, &message).await?;
            // The flags are set before the reply arrives: if this future is dropped, the process must be notified that
            // the call has ended.
            self.is_waiting = true;
            self.is_unanswered = true;
            let reply = match reply {
                Some(reply) => reply.await.ok(),
                None => None,
            };
            self.is_unanswered = false;
            match reply {
                Some(ModuleReply::Handled(event_reply)) => break event_reply,
                // A call that the dead process had not begun is repeated in another process. A later event cannot be
                // repeated, since the call's state is lost.
                Some(ModuleReply::NotStarted) if event == CallEvent::Request => {
                    self.is_waiting = false
                }
                _ => {
                    self.is_waiting = false;
                    return Err(self.death_failure());
                }
            }
        };
        let next = CallStep::from_number(event_reply.next);
        self.is_waiting = next == CallStep::Wait;
        match self.replay(&event_reply) {
            true => Ok(next),
            false => Ok(CallStep::Failed),
        }
    }
}

impl RemoteCall {
    /// Sends an event. If the process is dead, the first event of a call goes to the next process, since the call has
    /// no state yet. `None`: the process that had the call is dead.
    async fn send_event(
        &mut self,
        event: CallEvent,
        message: &ToModule,
    ) -> Result<Option<oneshot::Receiver<ModuleReply>>, HandlerFailure> {
        loop {
            let dead = match &self.connection {
                Some(connection) => match connection.send(self.number, message) {
                    Some(reply) => return Ok(Some(reply)),
                    // Only a call that no process has begun may be sent to the next process.
                    None if event != CallEvent::Request || !connection.is_closed() => {
                        return Ok(None);
                    }
                    None => self.connection.take(),
                },
                None => None,
            };
            self.connection = Some(self.shared.connection(dead).await?);
        }
    }

    fn message(&mut self, event: CallEvent) -> ToModule {
        let (call, worker) = (self.number, self.worker);
        if event == CallEvent::Request {
            let head = Box::new(head(&self.call));
            return ToModule::Request { call, worker, head };
        }
        let (status, bytes) = match event {
            CallEvent::Body(_) => (0, self.read_all(0)),
            CallEvent::Fetched(number) => {
                let status = self.call.fetched(number).unwrap_or(0);
                (status, self.read_all(number))
            }
            _ => (0, Vec::new()),
        };
        let (event, number) = event.to_numbers();
        ToModule::Event {
            call,
            worker,
            event,
            number,
            status,
            bytes,
        }
    }

    fn read_all(&mut self, from: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.call.left(from)];
        self.call.read(from, &mut bytes);
        bytes
    }

    /// Replays the module's output to the call; returns false if the response has become too long.
    fn replay(&mut self, event_reply: &EventReply) -> bool {
        let call = &mut self.call;
        // The head cannot be changed after the first flush.
        if call.draft.is_buffered() {
            call.status(u32::from(event_reply.status));
        }
        for (name, value) in &event_reply.fields {
            call.field(name.as_bytes(), value);
        }
        // The draft is flushed before the bytes are added, since they belong to the stream.
        if event_reply.flushed && call.draft.is_buffered() {
            call.flush();
        }
        let mut is_accepted =
            event_reply.before.is_empty() || call.send(&event_reply.before) != SendStatus::Refused;
        if let Some((path, after)) = &event_reply.stored {
            call.send_stored(path);
            is_accepted &= call.send(after) != SendStatus::Refused;
        }
        if let Some(after_ms) = event_reply.timer_ms {
            call.timer(after_ms);
        }
        for target in &event_reply.fetches {
            call.fetch(target);
        }
        // With the ticket, a waiting call is resumed even if its process dies.
        if self.is_waiting
            && call.ticket_guard.is_none()
            && let Some(connection) = &self.connection
        {
            connection.ticket(self.number, call.ticket().number());
        }
        call.is_body_unread = event_reply.body_held;
        is_accepted
    }

    fn death_failure(&self) -> HandlerFailure {
        let name = &self.call.identity().name;
        let detail =
            format!("module {name}: its process died, or was killed because it did not respond");
        HandlerFailure::new(StatusCode::BAD_GATEWAY, detail)
    }
}

impl Drop for RemoteCall {
    fn drop(&mut self) {
        let Some(connection) = &self.connection else {
            return;
        };
        let (event, number) = CallEvent::Gone.to_numbers();
        let gone_event = ToModule::Event {
            call: self.number,
            worker: self.worker,
            event,
            number,
            status: 0,
            bytes: Vec::new(),
        };
        connection.forget(self.number, self.is_waiting.then_some(&gone_event));
    }
}

fn head(call: &HostedCall) -> CallHead {
    let request = call.request();
    CallHead {
        method: request.method.as_str().to_string(),
        http10: request.version.is_10(),
        target: request.target().to_vec(),
        path: request.path().to_vec(),
        query: request.query().map(|query| query.to_vec().into()),
        host: request.host().to_vec(),
        lines: request.lines().to_vec(),
        peer: request.peer,
        local: request.local,
        root: request.root.to_path_buf(),
        request_id: request.extra.request_id.to_be_bytes(),
    }
}
