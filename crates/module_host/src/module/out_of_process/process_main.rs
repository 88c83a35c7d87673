//! The main function of a module's process: one thread reads the server's messages, and one thread per worker runs the
//! library. The process ends when the socket is closed.

use std::collections::HashMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use bytes::{Bytes, BytesMut};
use lowroad_child_processes::message::stream;
use lowroad_handler::request::RequestExtra;
use lowroad_handler::request_label::RequestLabel;
use lowroad_handler::{HandlerRequest, RequestBody, SubrequestLoad, SubrequestSource};
use lowroad_http::method::Method;
use lowroad_http::version::HttpVersion;
use lowroad_module::{CallEvent, CallHost, CallStep};

use super::super::call::{FetchRequest, HostedCall};
use super::super::identity::ModuleIdentity;
use super::super::library::LibraryCode;
use super::super::{Instance, ModuleBackend};
use super::messages::{CallHead, EventReply, FromModule, LineRequest, ToModule};

type ServedCall = <LibraryCode as ModuleBackend>::CallInstance;

/// Runs a module, and serves the calls that arrive over the socket, until the server closes it.
///
/// # Errors
/// An error of the socket, or an invalid message.
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
    let sink = Box::new(move |level, text: &str, label: Option<&RequestLabel>| {
        // Log lines are sent to the server, since this process cannot open the server's log.
        lines.send(&FromModule::Line {
            level: level as u32,
            text: text.to_string(),
            request: label.map(LineRequest::from),
        });
    });
    let identity = Arc::new(ModuleIdentity::with_sink(&name, settings, sink));
    let code = match LibraryCode::open(&library, &identity, workers) {
        Ok(code) => code,
        Err(problem) => {
            // This is not an error of this process: the server logs the problem.
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

/// Distributes messages to the threads of the workers. Because it never waits for the threads, a stuck module does not
/// delay the detection of a closed socket.
fn distribute(socket: &mut UnixStream, threads: &[Sender<ToModule>]) -> std::io::Result<()> {
    loop {
        let message: ToModule = match stream::read(socket) {
            Ok(message) => message,
            // The server has closed the socket, so the process ends.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let worker = message.worker();
        // A thread that has panicked receives nothing; its calls time out.
        let _ = threads[worker % threads.len()].send(message);
    }
}

/// Writes messages to the socket, for all threads.
#[derive(Clone)]
struct MessageWriter(Arc<Mutex<UnixStream>>);

impl MessageWriter {
    fn send(&self, message: &FromModule) {
        // The lock is held for a whole message, so that messages of different threads do not mix.
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if stream::write(&mut *socket, message).is_err() {
            // Shutting the socket down wakes the reader, and the process ends.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// The thread of a worker. It answers each message, except the end of a call, before it takes the next one.
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
                        // The server expects a reply to each message.
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
            // The server counts the replies, so a message for an unknown call is answered, too.
            return self.answer(number, failed_reply());
        };
        let call = served_call.call();
        match event {
            CallEvent::Body(_) => {
                // The module may not have read all of the previous part.
                let mut unread = BytesMut::from(&call.unread_body[..]);
                unread.extend_from_slice(&bytes);
                call.unread_body = unread.freeze();
            }
            CallEvent::Fetched(fetch) => {
                if let Some(slot) = call.fetches.get_mut((fetch as usize).wrapping_sub(1)) {
                    *slot = FetchRequest::Complete { status, bytes };
                }
            }
            CallEvent::Continued => {
                // All uses of the ticket so far count as one event.
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
        // This thread is the only user of the worker's state, so the state is never busy.
        let next = match served_call.try_handle(event) {
            Some(Ok(next)) => next,
            _ => CallStep::Failed,
        };
        // The reply is taken before the call is removed, since the call's output belongs to it.
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
            // The ticket may have been used before the waker was registered.
            if let Poll::Ready(()) = guard.poll_used(&mut Context::from_waker(&waker)) {
                waker.wake();
            }
        }
    }
}

/// The reply for a call that this process does not know.
fn failed_reply() -> EventReply {
    EventReply {
        next: CallStep::Failed.to_number(),
        ..EventReply::default()
    }
}

/// Reports to the server that the ticket of a call was used.
struct ContinueSignal {
    call: u64,
    out: MessageWriter,
}

impl Wake for ContinueSignal {
    fn wake(self: Arc<Self>) {
        self.out.send(&FromModule::Continued { call: self.call });
    }
}

/// Collects the output and requested operations of the module since the last event.
fn take_reply(call: &mut HostedCall, next: CallStep) -> EventReply {
    let chunk = call.draft.take();
    let targets = call.fetches.iter_mut().filter_map(|fetch| match fetch {
        FetchRequest::Requested(target) => {
            let target = target.to_vec().into();
            *fetch = FetchRequest::InProgress;
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
    // The raw path is not sent separately: it is the target without the query.
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
        // Modules have no access to these properties of the connection, so they are not sent.
        peer: head.peer,
        peer_port: 0,
        local: head.local,
        tls: None,
        forwarded: None,
        root: head.root.into(),
        objects: Arc::new(RemoteObjects),
        body: RequestBody::none(),
        interims: Default::default(),
        extra: RequestExtra {
            request_id: u128::from_be_bytes(head.request_id),
            ..RequestExtra::default()
        },
    }
}

/// The objects are in the server; calls in the process get them by fetches.
struct RemoteObjects;

impl SubrequestSource for RemoteObjects {
    fn find_in_memory(&self, _: &[u8]) -> Option<Bytes> {
        None
    }

    fn load(&self, _: &[u8]) -> SubrequestLoad {
        Box::pin(std::future::ready(None))
    }
}
