//! The task that owns a connection: it sends the frames of the exchanges, and distributes the origin's.

use std::io::IoSlice;
use std::sync::Arc;
use std::task::{Context, Poll};

use lowroad_engine::timers::TimerSleep;
use lowroad_http::fields::FieldLines;
use lowroad_http::h1::InputStep;
use lowroad_http::h2::{
    ConnectionError, ConnectionTurn, ErrorCode, H2ClientEvent, H2ResponseHead, StreamId,
};
use lowroad_http::status::StatusCode;
use lowroad_origin::Lease;

use super::link::{H2Link, LinkPhase, LinkState};
use super::slots::{ExchangeSlot, LinkFault};
use super::{CHECK_INTERVAL, IDLE_MAX, OUTPUT_LEN_MAX, SETTINGS, SETTLE_TIME_MAX};
use crate::proxy::link::{
    OriginConnector, OriginLink, ResponseEvent, forward_fields, forward_trailers,
};

/// The maximum number of body bytes in one frame.
const DATA_LEN_MAX: usize = 16 << 10;
/// The number of rounds after which the task yields.
const TURNS_MAX: usize = 16;

/// The owner of a socket.
pub enum LinkOwner {
    /// A lease from the pool, which counts the connection.
    Lease(Lease<OriginConnector>),
    /// A connection outside of the pool, for a health check.
    Own(Box<OriginLink>),
}

impl LinkOwner {
    fn link(&mut self) -> &mut OriginLink {
        match self {
            LinkOwner::Lease(lease) => &mut lease.connection,
            LinkOwner::Own(link) => link,
        }
    }

    fn mark_proven(&mut self) {
        if let LinkOwner::Lease(lease) = self {
            lease.mark_proven();
        }
    }
}

/// The task of a connection.
pub struct LinkDriver {
    shared: Arc<H2Link>,
    owner: LinkOwner,
    /// The number of bytes of the output that are sent.
    sent_len: usize,
    /// Decoded fields.
    text: Vec<u8>,
    timer: TimerSleep,
}

impl Drop for LinkDriver {
    fn drop(&mut self) {
        self.shared.lock().close(&LinkFault::Closed);
    }
}

impl LinkDriver {
    pub fn new(shared: Arc<H2Link>, owner: LinkOwner) -> LinkDriver {
        LinkDriver {
            // The first check is the end of the wait for the settings.
            timer: shared.timers.sleep(SETTLE_TIME_MAX),
            shared,
            owner,
            sent_len: 0,
            text: Vec::new(),
        }
    }

    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        if !state.driver.will_wake(context.waker()) {
            state.driver = context.waker().clone();
        }
        for _ in 0..TURNS_MAX {
            match self.advance(&mut state, context) {
                Ok(true) => {}
                Ok(false) => return Poll::Pending,
                Err(fault) => {
                    // GOAWAY is sent if that is possible without waiting.
                    let _ = self.write(&mut state, context);
                    state.close(&fault);
                    return Poll::Ready(());
                }
            }
        }
        // The number of rounds is bounded, so that a busy connection does not starve the worker's other tasks.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends and receives until the socket blocks; returns whether bytes were transferred.
    fn advance(
        &mut self,
        state: &mut LinkState,
        context: &mut Context<'_>,
    ) -> Result<bool, LinkFault> {
        state.open_waiting();
        let mut has_progress = false;
        // Repeated until the socket is full or the output is empty.
        while state.fill_output(self.sent_len) && self.write(state, context)? {
            has_progress = true;
        }
        // While the origin does not read, its input could cause unlimited output.
        if state.out.len() - self.sent_len <= OUTPUT_LEN_MAX {
            has_progress |= self.read(state, context)?;
        }
        if state.phase == LinkPhase::Leaving && state.slots.len() == 0 {
            return Err(LinkFault::Closed);
        }
        has_progress |= self.check_timer(state, context)?;
        Ok(has_progress)
    }

    /// Returns whether all output was sent.
    fn write(
        &mut self,
        state: &mut LinkState,
        context: &mut Context<'_>,
    ) -> Result<bool, LinkFault> {
        let stream = &mut self.owner.link().stream;
        while self.sent_len < state.out.len() {
            let piece = [IoSlice::new(&state.out[self.sent_len..])];
            match stream.poll_send(context, &piece) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(len @ 1..)) => self.sent_len += len,
                // The origin may have sent responses or GOAWAY before it stopped reading, which are still read.
                Poll::Ready(_) => {
                    self.sent_len = state.out.len();
                    state.phase = LinkPhase::Leaving;
                }
            }
        }
        self.sent_len = 0;
        state.out.clear();
        // With TLS, sent bytes may wait in the records. An error is reported when reading.
        let _ = stream.poll_flush(context);
        Ok(true)
    }

    /// Returns whether any byte was received.
    fn read(
        &mut self,
        state: &mut LinkState,
        context: &mut Context<'_>,
    ) -> Result<bool, LinkFault> {
        let link = self.owner.link();
        match link.poll_read(context) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Err(fault)) => return Err(fault.into()),
            Poll::Ready(Ok(())) => {}
        }
        if link.is_eof() {
            return Err(LinkFault::Closed);
        }
        // Any byte proves that the origin is alive.
        state.ping_ms = None;
        let mut turn_input = TurnInput {
            now_ms: self.shared.timers.now_ms(),
            link,
            text: &mut self.text,
        };
        while state.process_next(&mut turn_input)? {}
        state.wake_if_settled();
        if state.has_answered {
            self.owner.mark_proven();
        }
        Ok(true)
    }

    /// Returns whether requests may be sent without the origin's settings from now on. The task decides it, as the request
    /// that waits for the settings may be cancelled.
    fn check_timer(
        &mut self,
        state: &mut LinkState,
        context: &mut Context<'_>,
    ) -> Result<bool, LinkFault> {
        let was_settled = state.is_settled();
        while self.timer.poll_due(context).is_ready() {
            self.timer.reset(CHECK_INTERVAL);
            let now_ms = self.shared.timers.now_ms();
            let is_over = |since_ms: u64, max: std::time::Duration| {
                u128::from(now_ms.saturating_sub(since_ms)) >= max.as_millis()
            };
            if state.ping_ms.is_some_and(|ms| is_over(ms, CHECK_INTERVAL)) {
                return Err(LinkFault::Silent);
            }
            if state.slots.len() == 0 && is_over(state.idle_since_ms, IDLE_MAX) {
                let LinkState { http, out, .. } = state;
                http.end_with_error(ErrorCode::NO_ERROR, "", out);
                return Err(LinkFault::Closed);
            }
            if !state.is_settled() {
                state.presumes_settings = true;
                state.wake_if_settled();
            }
        }
        Ok(state.is_settled() != was_settled)
    }
}

/// The arguments of processing received bytes.
struct TurnInput<'t> {
    now_ms: u64,
    link: &'t mut OriginLink,
    text: &'t mut Vec<u8>,
}

impl LinkState {
    /// Sends waiting requests, as far as there is room.
    pub(super) fn open_waiting(&mut self) {
        while !self.slots.waiting.is_empty()
            && self.phase == LinkPhase::Open
            && self.http.can_request()
            && self.http.streams() < self.streams_max()
        {
            let key = self.slots.waiting.pop_front();
            let slot = key.and_then(|key| Some((key, self.slots.get(key)?)));
            let Some((key, slot)) = slot else {
                continue;
            };
            let Some(head) = slot.head.take() else {
                continue;
            };
            let LinkState { http, out, .. } = self;
            let begun = http.request_prebuilt(&head.block, head.method, head.len, out);
            let Ok(stream) = begun else {
                slot.fail(LinkFault::Unprocessed(ErrorCode::NO_ERROR));
                continue;
            };
            // The body that was accepted in the meantime. A length that differs from the announced one is the client's
            // fault, and its exchange ends anyway.
            let announced = http.body(stream, slot.upload_len as u64);
            let ended = match &slot.upload_end {
                Some(trailers) => http.end(stream, FieldLines::new(trailers)),
                None => Ok(()),
            };
            if announced.is_err() || ended.is_err() {
                http.reset(stream, ErrorCode::CANCEL, out);
                slot.fail(LinkFault::Reset(ErrorCode::CANCEL));
            }
            self.slots.begin(key, stream);
        }
    }

    /// Adds request bodies to the output, as far as windows and the length of the output allow. Returns whether there is
    /// output to send.
    fn fill_output(&mut self, sent_len: usize) -> bool {
        let LinkState {
            http, out, slots, ..
        } = self;
        while out.len() - sent_len < OUTPUT_LEN_MAX
            && let Some(next) = http.send(DATA_LEN_MAX, out)
        {
            if let Some(slot) = slots.of_stream(next.stream) {
                slot.take_upload(next.len as usize, out);
            }
        }
        out.len() > sent_len
    }

    /// Processes the next event. Returns whether there was any input.
    fn process_next(&mut self, input: &mut TurnInput<'_>) -> Result<bool, LinkFault> {
        let bad_streams = self.counters.faults;
        let mut turn = ConnectionTurn {
            now_ms: input.now_ms,
            settings: &SETTINGS,
            out: &mut self.out,
            counters: &mut self.counters,
        };
        let step = self.http.next(input.link.input(), input.text, &mut turn);
        let InputStep { used, event } = step?;
        let has_event = event.is_some();
        match event {
            None => {}
            Some(H2ClientEvent::Response(head)) => {
                self.has_answered = true;
                let (stream, has_body) = (head.stream, head.has_body);
                let len = head.content_len;
                let fields = forward_fields(head.fields, &mut self.dates);
                let event = fields.map(|fields| ResponseEvent::Head(head.status, fields, len));
                self.deliver(stream, event.map_err(LinkFault::from));
                if !has_body {
                    self.deliver(stream, Ok(ResponseEvent::End(None)));
                }
            }
            // 100 (Continue) is not for the client, as over HTTP/1.1.
            Some(H2ClientEvent::Interim(H2ResponseHead { status, .. }))
                if status == StatusCode::CONTINUE => {}
            Some(H2ClientEvent::Interim(head)) => {
                let stream = head.stream;
                let fields = forward_fields(head.fields, &mut self.dates);
                let event = fields.map(|fields| ResponseEvent::Interim(head.status, fields));
                self.deliver(stream, event.map_err(LinkFault::from));
            }
            Some(H2ClientEvent::Data { stream, data }) => {
                let data = bytes::Bytes::copy_from_slice(data);
                self.deliver(stream, Ok(ResponseEvent::Data(data)));
            }
            Some(H2ClientEvent::End { stream, trailers }) => {
                let trailers = forward_trailers(trailers);
                self.deliver(stream, Ok(ResponseEvent::End(trailers)));
            }
            Some(H2ClientEvent::Reset { stream, code }) => {
                let fault = match code {
                    // This side has reset the stream, since the origin violated the protocol.
                    _ if self.counters.faults > bad_streams => LinkFault::Bad(INVALID_STREAM),
                    ErrorCode::REFUSED_STREAM => LinkFault::Unprocessed(code),
                    _ => LinkFault::Reset(code),
                };
                if let Some(slot) = self.slots.of_stream(stream) {
                    slot.fail(fault);
                }
            }
            Some(H2ClientEvent::GoneAway { last, code }) => {
                self.phase = LinkPhase::Leaving;
                for stream in self.slots.fail_unprocessed(last, code) {
                    self.http.reset(stream, ErrorCode::CANCEL, &mut self.out);
                }
            }
        }
        input.link.consume(used);
        Ok(used > 0 || has_event)
    }

    /// Passes an event to the exchange of a stream. A malformed field fails the exchange.
    fn deliver(&mut self, stream: StreamId, event: Result<ResponseEvent, LinkFault>) {
        let Some(slot) = self.slots.of_stream(stream) else {
            return;
        };
        match event {
            Ok(event) => ExchangeSlot::push(slot, event),
            Err(fault) => {
                slot.fail(fault);
                self.http
                    .reset(stream, ErrorCode::PROTOCOL_ERROR, &mut self.out);
            }
        }
    }
}

const INVALID_STREAM: &str =
    "malformed fields or frames, or a body of another length than announced";

impl From<ConnectionError> for LinkFault {
    fn from(fault: ConnectionError) -> LinkFault {
        LinkFault::Bad(fault.reason)
    }
}
