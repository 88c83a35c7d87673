//! The state of one call: the request as the module sees it, and the response. Implements `CallHost` for all kinds of
//! modules. Operations that take time (reading the body, timers, fetches, waiting for room in the send buffer) are only
//! recorded here; `call_loop` executes them.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use lowroad_engine::stream::StreamItem as Part;
use lowroad_handler::request_label::RequestLabel;
use lowroad_handler::spool::SpoolLimits;
use lowroad_handler::{HandlerRequest, HandlerResponse};
use lowroad_http::status::StatusCode;
use lowroad_module::builtin::CallData;
use lowroad_module::{CallEvent, CallHost, HostValue, MessageLevel, ResumeTicket, SendStatus};

use super::clock::now_ms;
use super::identity::ModuleIdentity;
use super::parts;
use super::response_draft::{CallProgress, ResponseDraft};
use super::tickets::TicketGuard;

/// The maximum number of fetches per call.
const FETCHES_MAX: usize = 16;

/// A request while a module processes it.
pub struct HostedCall {
    identity: Arc<ModuleIdentity>,
    worker: usize,
    pub(super) request: HandlerRequest,
    /// Bytes of the request body that have arrived and that the module has not read.
    pub(super) unread_body: Bytes,
    pub(super) draft: ResponseDraft,
    /// The timer that the module has set since `call_loop` last checked.
    pub(super) requested_timer_ms: Option<u32>,
    pub(super) fetches: Vec<FetchRequest>,
    /// Completed fetches that have not been reported to the module.
    completed_fetches: VecDeque<u32>,
    body_ended: bool,
    /// Whether a module in a separate process has unread bytes of the body, which `unread_body` does not include.
    pub(super) is_body_unread: bool,
    /// An event that could not be passed to the module immediately.
    queued_event: Option<CallEvent>,
    pub(super) ticket_guard: Option<TicketGuard>,
    memory: u64,
    pub(super) module_data: CallData,
}

/// The client has disconnected, so the call must be abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientGone;

/// The result of polling a waiting call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitEvent {
    /// An event for the module.
    Event(CallEvent),
    /// The client has received bytes of the response.
    ClientProgress,
}

/// The state of a fetch that the module requested.
pub(super) enum FetchRequest {
    /// The fetch of this target was requested but not started.
    Requested(Bytes),
    /// The fetch is in progress.
    InProgress,
    /// The fetch is complete.
    Complete {
        /// The status of the response; 0 without a response.
        status: u16,
        /// The bytes of the response that the module has not read.
        bytes: Bytes,
    },
}

impl HostedCall {
    /// Creates the call for a request.
    pub fn new(
        identity: Arc<ModuleIdentity>,
        worker: usize,
        request: HandlerRequest,
        len_max: usize,
    ) -> HostedCall {
        HostedCall {
            identity,
            worker,
            request,
            unread_body: Bytes::new(),
            draft: ResponseDraft::new(len_max),
            requested_timer_ms: None,
            fetches: Vec::new(),
            completed_fetches: VecDeque::new(),
            body_ended: false,
            is_body_unread: false,
            queued_event: None,
            ticket_guard: None,
            memory: 0,
            module_data: None,
        }
    }

    /// Lets the response be spooled if the client reads slowly.
    pub(super) fn with_spools(mut self, spools: Option<Arc<SpoolLimits>>) -> HostedCall {
        self.draft = self.draft.with_spools(spools);
        self
    }

    /// The module's name and settings.
    pub fn identity(&self) -> &Arc<ModuleIdentity> {
        &self.identity
    }

    /// The request, without its body.
    pub fn request(&self) -> &HandlerRequest {
        &self.request
    }

    /// The index of the worker that received the request.
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// Takes the complete response.
    pub(super) fn take_response(&mut self) -> HandlerResponse {
        self.draft.take_response()
    }

    /// Polls for the next change that needs no tokio runtime.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<WaitEvent, ClientGone>> {
        if let Some(event) = self.queued_event.take() {
            return Poll::Ready(Ok(WaitEvent::Event(event)));
        }
        // Completed fetches precede new input: they occupy memory until the module reads them.
        if let Some(number) = self.completed_fetches.pop_front() {
            return Poll::Ready(Ok(WaitEvent::Event(CallEvent::Fetched(number))));
        }
        if let Poll::Ready(progress) = self.draft.poll_room(context) {
            return Poll::Ready(match progress {
                Ok(CallProgress::ClientProgress) => Ok(WaitEvent::ClientProgress),
                Ok(CallProgress::Room) => Ok(WaitEvent::Event(CallEvent::Room)),
                Err(_) => Err(ClientGone),
            });
        }
        let used = self
            .ticket_guard
            .as_ref()
            .map(|guard| guard.poll_used(context));
        if let Some(Poll::Ready(())) = used {
            return Poll::Ready(Ok(WaitEvent::Event(CallEvent::Continued)));
        }
        self.poll_body(context).map_ok(WaitEvent::Event)
    }

    /// Queues an event for delivery.
    pub(super) fn requeue(&mut self, event: CallEvent) {
        self.queued_event = Some(event);
    }

    /// Polls for the next part of the body, once the module has read the previous part.
    fn poll_body(&mut self, context: &mut Context<'_>) -> Poll<Result<CallEvent, ClientGone>> {
        // Back-pressure: the next part is taken only after the module has read the previous part, which slows the
        // client down.
        if self.body_ended || self.is_body_unread || !self.unread_body.is_empty() {
            return Poll::Pending;
        }
        let part = match &self.request.body.stream {
            Some(stream) => ready!(stream.poll_next(context)),
            None => Part::End,
        };
        Poll::Ready(match part {
            Part::Bytes(bytes) => {
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                // `unread_body` is empty, as checked above.
                self.unread_body = bytes;
                Ok(CallEvent::Body(len))
            }
            Part::End => {
                self.body_ended = true;
                Ok(CallEvent::BodyEnd)
            }
            Part::Cut => Err(ClientGone),
        })
    }

    /// Records that a fetch is complete.
    pub(super) fn complete_fetch(&mut self, number: u32, status: u16, bytes: Bytes) {
        self.fetches[number as usize - 1] = FetchRequest::Complete { status, bytes };
        self.completed_fetches.push_back(number);
    }

    fn source(&mut self, from: u32) -> Option<&mut Bytes> {
        // 0 is the request body, n the response of fetch n.
        let Some(index) = from.checked_sub(1) else {
            return Some(&mut self.unread_body);
        };
        match self.fetches.get_mut(index as usize) {
            Some(FetchRequest::Complete { bytes, .. }) => Some(bytes),
            _ => None,
        }
    }

    /// Writes a log line about the request.
    pub(super) fn log_line(&self, level: MessageLevel, text: &str) {
        let label = RequestLabel::from(&self.request);
        self.identity.log_request(level, text, &label);
    }

    /// Returns `is_valid`; if false, logs `message` about the refused operation.
    fn accept(&self, is_valid: bool, message: &str) -> bool {
        if !is_valid {
            self.log_line(MessageLevel::Warn, message);
        }
        is_valid
    }
}

impl CallHost for HostedCall {
    fn get(&self, kind: HostValue, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let request = &self.request;
        let value: &[u8] = match kind {
            HostValue::Method => request.method.as_str().as_bytes(),
            HostValue::Target => request.target(),
            HostValue::Path => request.path(),
            HostValue::Query => request.query()?,
            HostValue::Host => request.host(),
            HostValue::Peer => return Some(Cow::Owned(request.peer.to_string().into_bytes())),
            HostValue::Field => request.field(std::str::from_utf8(name).ok()?)?,
            HostValue::Cookie => parts::cookie(request.fields(), name)?,
            HostValue::Parameter => return parts::parameter(request.query()?, name),
            HostValue::Fields => request.lines(),
            HostValue::Root => request.root.as_os_str().as_encoded_bytes(),
            HostValue::Setting => return self.identity.setting(name),
            HostValue::Worker => return Some(Cow::Owned(self.worker.to_string().into_bytes())),
        };
        Some(Cow::Borrowed(value))
    }

    fn read(&mut self, from: u32, buf: &mut [u8]) -> usize {
        let Some(source) = self.source(from) else {
            return 0;
        };
        let len = source.len().min(buf.len());
        source.copy_to_slice(&mut buf[..len]);
        len
    }

    fn left(&self, from: u32) -> usize {
        let Some(index) = from.checked_sub(1) else {
            return self.unread_body.len();
        };
        match self.fetches.get(index as usize) {
            Some(FetchRequest::Complete { bytes, .. }) => bytes.len(),
            _ => 0,
        }
    }

    fn status(&mut self, status: u32) -> bool {
        // 1xx are interim responses, which modules cannot send.
        let found = u16::try_from(status)
            .ok()
            .filter(|code| (200..600).contains(code));
        let found = found.and_then(StatusCode::new);
        let is_valid = found.is_some_and(|status| self.draft.status(status));
        self.accept(
            is_valid,
            "a status must be 200 to 599, and set before the first flush",
        )
    }

    fn field(&mut self, name: &[u8], value: &[u8]) -> bool {
        let is_valid = self.draft.field(name, value);
        self.accept(
            is_valid,
            "a field needs a token as its name and a value without control characters; at most \
             128 fields, none after the first flush",
        )
    }

    fn send(&mut self, bytes: &[u8]) -> SendStatus {
        let sent = self.draft.send(bytes);
        self.accept(
            sent != SendStatus::Refused,
            "the response buffer is full; flush, and wait until send reports room",
        );
        sent
    }

    fn send_stored(&mut self, path: &[u8]) -> bool {
        // The path is looked up like a request path of the site, so dot segments must not lead outside.
        let is_valid = parts::is_path(path) && self.draft.send_stored(path);
        self.accept(
            is_valid,
            "a stored object needs a path without dot segments; it can be set once, before any flush",
        )
    }

    fn flush(&mut self) -> bool {
        let is_valid = self.draft.flush();
        self.accept(is_valid, "a response with a stored object can't be flushed")
    }

    fn timer(&mut self, after_ms: u32) {
        self.requested_timer_ms = Some(after_ms);
    }

    fn fetch(&mut self, target: &[u8]) -> Option<u32> {
        // The number of fetches is bounded, since each fetch can hold a response in memory.
        let is_valid = self.fetches.len() < FETCHES_MAX
            && (parts::is_path(target) || target.starts_with(b"http://"));
        let message = "a fetch needs a path of the site or an http:// URL; a call has at most 16";
        if !self.accept(is_valid, message) {
            return None;
        }
        self.fetches
            .push(FetchRequest::Requested(Bytes::copy_from_slice(target)));
        let number = u32::try_from(self.fetches.len()).expect("at most 16");
        // Content in memory is available immediately, without the runtime.
        if target.starts_with(b"/")
            && let Some(bytes) = self.request.objects.find_in_memory(target)
        {
            self.complete_fetch(number, 200, bytes);
        }
        Some(number)
    }

    fn fetched(&self, number: u32) -> Option<u16> {
        match self.fetches.get(number.checked_sub(1)? as usize)? {
            FetchRequest::Complete { status, .. } => Some(*status),
            _ => None,
        }
    }

    fn ticket(&mut self) -> ResumeTicket {
        // The ticket is created on demand, since most calls need none.
        self.ticket_guard
            .get_or_insert_with(TicketGuard::new)
            .ticket()
    }

    fn log(&self, level: MessageLevel, text: &str) {
        self.log_line(level, text);
    }

    fn now_ms(&self) -> u64 {
        now_ms()
    }

    fn memory(&self) -> u64 {
        self.memory
    }

    fn set_memory(&mut self, memory: u64) {
        self.memory = memory;
    }
}
