//! The main function of a module's process: one thread reads the server's messages, and one for each worker calls
//! the library. The process ends when the socket closes.

use std::collections::HashMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use bytes::{Bytes, BytesMut};
use lowroad_child_processes::message::stream;
use lowroad_handler::{HandlerRequest, RequestBody, SubrequestLoad, SubrequestSource};
use lowroad_http::method::Method;
use lowroad_http::version::HttpVersion;
use lowroad_module::{CallEvent, CallHost, CallStep};

use super::super::call::{FetchRequest, HostedCall};
use super::super::identity::ModuleIdentity;
use super::super::library::LibraryCode;
use super::super::{Instance, ModuleBackend};
use super::messages::{CallHead, EventReply, FromModule, ToModule};

type ServedCall = <LibraryCode as ModuleBackend>::CallInstance;

/// Serves a module over a socket until its other end is closed.
///
/// # Errors
/// A fault of the socket, or an invalid message.
pub fn serve(mut socket: UnixStream) -> std::io::Result<()> {
    let out = MessageWriter(Arc::new(Mutex::new(socket.try_clone()?)));
    let ToModule::Start {
        name,
        library,
        settings,
        workers,
        response_len_max,
    } = stream::read(&mut socket)?
    else {
        return Err(std::io::Error::other("the first message must be the start"));
    };
    let lines = out.clone();
    let sink = Box::new(move |level, text: &str| {
        // The module's lines go to the server, whose log the process cannot open.
        let (level, text) = (level as u32, text.to_string());
        lines.send(&FromModule::Line { level, text });
    });
    let identity = Arc::new(ModuleIdentity::with_sink(&name, settings, sink));
    let code = match LibraryCode::open(&library, &identity, workers) {
        Ok(code) => code,
        Err(problem) => {
            // Not an error of this process: the server logs the problem.
            out.send(&FromModule::Started(Err(problem)));
            return Ok(());
        }
    };
    out.send(&FromModule::Started(Ok(())));
    let threads: Vec<_> = (0..workers)
        .map(|number| {
            let worker = ServeThread {
                number,
                code: code.clone(),
                identity: identity.clone(),
                response_len_max,
                out: out.clone(),
                calls: HashMap::new(),
            };
            let (sender, receiver) = channel();
            thread::spawn(move || worker.run(&receiver));
            sender
        })
        .collect();
    distribute(&mut socket, &threads)
}

/// Distributes messages to the workers' threads. A stuck thread does not keep this one from seeing the socket's end.
fn distribute(socket: &mut UnixStream, threads: &[Sender<ToModule>]) -> std::io::Result<()> {
    loop {
        let message: ToModule = match stream::read(socket) {
            Ok(message) => message,
            // The server closed the socket: the process ends with it.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let worker = message.worker();
        // A thread that has panicked no longer receives; its calls time out.
        let _ = threads[worker % threads.len()].send(message);
    }
}

/// The socket that all threads write to.
#[derive(Clone)]
struct MessageWriter(Arc<Mutex<UnixStream>>);

impl MessageWriter {
    fn send(&self, message: &FromModule) {
        // One lock for a whole message, so that messages of several threads do not mix.
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if stream::write(&mut *socket, message).is_err() {
            // The shutdown wakes the reader, and the process ends.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// A worker's thread. It answers each message, except the end of a call, before it takes the next.
struct ServeThread {
    number: usize,
    code: Arc<LibraryCode>,
    identity: Arc<ModuleIdentity>,
    response_len_max: usize,
    out: MessageWriter,
    calls: HashMap<u64, ServedCall>,
}

impl ServeThread {
    fn run(mut self, messages: &Receiver<ToModule>) {
        while let Ok(message) = messages.recv() {
            match message {
                ToModule::Start { .. } => {}
                ToModule::Request { call, head, .. } => {
                    let request = request(*head);
                    let hosted_call = HostedCall::new(
                        self.identity.clone(),
                        self.number,
                        request,
                        self.response_len_max,
                    );
                    match self.code.instance(self.number, hosted_call) {
                        Ok(served_call) => {
                            self.calls.insert(call, served_call);
                            self.handle(call, CallEvent::Request);
                        }
                        // The server waits for an answer of each message.
                        Err(_) => self.answer(call, failed_reply()),
                    }
                }
                ToModule::Event {
                    call,
                    event,
                    number,
                    status,
                    bytes,
                    ..
                } => self.event(
                    call,
                    CallEvent::from_numbers(event, number),
                    status,
                    bytes.into(),
                ),
            }
        }
    }

    fn event(&mut self, number: u64, event: Option<CallEvent>, status: u16, bytes: Bytes) {
        if event == Some(CallEvent::Gone) {
            // Dropping the instance notifies the module.
            return drop(self.calls.remove(&number));
        }
        let Some((served_call, event)) = self.calls.get_mut(&number).zip(event) else {
            // The server counts the answers, so an unknown call is answered too.
            return self.answer(number, failed_reply());
        };
        let call = served_call.call();
        match event {
            CallEvent::Body(_) => {
                // The module may not have read all of the earlier part.
                let mut unread = BytesMut::from(&call.unread_body[..]);
                unread.extend_from_slice(&bytes);
                call.unread_body = unread.freeze();
            }
            CallEvent::Fetched(fetch) => {
                if let Some(slot) = call.fetches.get_mut((fetch as usize).wrapping_sub(1)) {
                    *slot = FetchRequest::Over { status, bytes };
                }
            }
            CallEvent::Continued => {
                // All uses of the ticket until now are one event.
                let mut context = Context::from_waker(Waker::noop());
                let guard = call.ticket_guard.as_ref();
                let _ = guard.map(|guard| guard.poll_used(&mut context));
            }
            _ => {}
        }
        self.handle(number, event);
    }

    fn answer(&self, call: u64, handled: EventReply) {
        let handled = Box::new(handled);
        self.out.send(&FromModule::Handled { call, handled });
    }

    fn handle(&mut self, number: u64, event: CallEvent) {
        let Some(served_call) = self.calls.get_mut(&number) else {
            return;
        };
        // This thread is the only user of its worker's state, so the state is never busy.
        let next = match served_call.try_handle(event) {
            Some(Ok(next)) => next,
            _ => CallStep::Failed,
        };
        // Before the call is removed: its output belongs to the answer.
        let reply = take_reply(served_call.call(), next);
        self.answer(number, reply);
        let Some(served_call) = self.calls.get_mut(&number) else {
            return;
        };
        if next != CallStep::Wait {
            self.calls.remove(&number);
        } else if let Some(guard) = &served_call.call().ticket_guard {
            let waker = Waker::from(Arc::new(ContinueSignal {
                call: number,
                out: self.out.clone(),
            }));
            // Used before the waker was registered.
            if let Poll::Ready(()) = guard.poll_used(&mut Context::from_waker(&waker)) {
                waker.wake();
            }
        }
    }
}

/// The answer for a call that this process does not have.
fn failed_reply() -> EventReply {
    EventReply {
        next: CallStep::Failed.to_number(),
        ..EventReply::default()
    }
}

/// Reports to the server that a call's ticket was used.
struct ContinueSignal {
    call: u64,
    out: MessageWriter,
}

impl Wake for ContinueSignal {
    fn wake(self: Arc<Self>) {
        self.out.send(&FromModule::Continued { call: self.call });
    }
}

/// Collects the module's output and requests since the last event.
fn take_reply(call: &mut HostedCall, next: CallStep) -> EventReply {
    let chunk = call.draft.take();
    let targets = call.fetches.iter_mut().filter_map(|fetch| match fetch {
        FetchRequest::Wanted(target) => {
            let target = target.to_vec().into();
            *fetch = FetchRequest::Begun;
            Some(target)
        }
        _ => None,
    });
    let fields = chunk.fields.iter();
    EventReply {
        fetches: targets.collect(),
        next: next.to_number(),
        status: chunk.status.code(),
        fields: fields
            .map(|(name, value)| (name.into(), value.to_vec().into()))
            .collect(),
        before: chunk.before,
        stored: chunk
            .stored
            .map(|(path, after)| (path.to_vec().into(), after.into())),
        flushed: chunk.flushed,
        timer_ms: call.requested_timer_ms.take(),
        body_held: call.left(0) > 0,
    }
}

fn request(head: CallHead) -> HandlerRequest {
    let query = head.query.as_ref().map(|query| &query[..]);
    // The raw path is not sent separately: it is the target without its query.
    let query_len = query.map_or(0, |query| query.len() + 1);
    let raw_path = &head.target[..head.target.len().saturating_sub(query_len)];
    HandlerRequest {
        method: Method::parse(head.method.as_bytes()).unwrap_or(Method::Get),
        version: if head.http10 {
            HttpVersion::Http10
        } else {
            HttpVersion::Http11
        },
        head: lowroad_handler::request::RequestHead::new(
            lowroad_handler::request::RawTarget {
                path: raw_path,
                query,
            },
            &head.path,
            &head.host,
            &head.lines,
        ),
        // The fields of the connection are not part of the protocol; modules have no access to them.
        peer: head.peer,
        peer_port: 0,
        local: head.local,
        secured: None,
        forwarded: None,
        root: head.root.into(),
        objects: Arc::new(RemoteObjects),
        body: RequestBody::none(),
        interims: Default::default(),
        extra: Default::default(),
    }
}

/// The server has the objects; a call gets them by fetches.
struct RemoteObjects;

impl SubrequestSource for RemoteObjects {
    fn now(&self, _: &[u8]) -> Option<Bytes> {
        None
    }

    fn load(&self, _: &[u8]) -> SubrequestLoad {
        Box::pin(std::future::ready(None))
    }
}
