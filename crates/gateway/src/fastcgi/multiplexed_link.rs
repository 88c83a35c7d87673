//! A multiplexed connection: carries several concurrent requests, for servers that support it.
//!
//! A task owns the connection: it sends the records of the requests round-robin, and distributes the server's output.
//! FastCGI has no flow control per request, so head-of-line blocking is possible: output for a slow client is buffered
//! up to a limit, and then the task stops reading from the connection. New requests use other connections in the
//! meantime. If other requests are in progress on the connection, the slow one is cancelled after a while.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use lowroad_engine::WorkerHandle;
use lowroad_engine::stream::{BodyReceiver, BodySender, StreamItem, stream};
use lowroad_engine::tasks::{DrainHold, WorkerTasks};
use lowroad_engine::timers::TimerSleep;
use lowroad_limits::Permit;
use lowroad_origin::MultiplexedConnection;

use super::link::FastCgiLink;
use super::record::{self, FastCgiEnd, FastCgiEvent, FastCgiHeader};
use crate::cgi::stderr::StderrLines;

/// The maximum number of concurrent requests per connection.
const REQUESTS_MAX: usize = 64;
/// The maximum length of a request's buffered output, in bytes.
const OUTPUT_LEN_MAX: usize = 256 << 10;
/// The maximum length of a request's buffered input, in bytes.
const INPUT_LEN_MAX: usize = 64 << 10;
/// The time for which one request may block the others.
const STALL_MAX: Duration = Duration::from_secs(5);
/// The time for which a connection is kept without active requests.
const IDLE_MAX: Duration = Duration::from_secs(2);

/// A multiplexed connection.
pub struct MultiplexedLink {
    requests: Mutex<RequestSlots>,
    worker: usize,
    /// The tasks of the worker that owns the connection.
    tasks: WorkerTasks,
}

/// The requests in progress on a connection.
struct RequestSlots {
    slots: BTreeMap<u16, RequestSlot>,
    /// Requests that their owners dropped.
    cancelled: Vec<u16>,
    /// Requests that ended before their whole body was sent. The server may still wait for the end of the body, and
    /// regard the request ID as in use until then.
    unfinished_bodies: Vec<u16>,
    /// The request with the full output buffer that blocks the connection.
    stalled: Option<u16>,
    is_closed: bool,
    driver: Waker,
}

/// A request, as seen by the connection's task.
struct RequestSlot {
    /// The begin records, then the body; `None` after its end.
    input: Option<BodyReceiver>,
    /// Whether the begin records were sent.
    has_begun: bool,
    /// Receives the output; `None` after cancellation.
    output: Option<BodySender>,
    /// Whether the response is complete, so that losing the connection does no harm.
    output_ended: bool,
    end_status: Arc<Mutex<Option<FastCgiEnd>>>,
    stderr_lines: StderrLines,
}

/// A request, as seen by its owner. Dropping it early aborts the request.
pub struct RequestTicket {
    /// The FastCGI request ID.
    pub id: u16,
    /// Takes the begin records as one piece, then the body in pieces, each at most as long as a record.
    pub input: Option<BodySender>,
    /// The output of the request.
    pub output: BodyReceiver,
    shared: Arc<MultiplexedLink>,
    end_status: Arc<Mutex<Option<FastCgiEnd>>>,
    /// During shutdown, keeps the worker of the connection's task alive.
    _hold: DrainHold,
}

impl RequestTicket {
    /// The protocol status; `None` while the request is in progress.
    pub fn end_status(&self) -> Option<FastCgiEnd> {
        *self
            .end_status
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RequestTicket {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        // Checked under the lock: after the end, the ID may already belong to another request.
        if self.end_status().is_none() {
            state.cancelled.push(self.id);
            state.driver.wake_by_ref();
        }
    }
}

impl RequestSlot {
    /// Reports the end of the request to its owner.
    fn end(mut self, end_status: FastCgiEnd) {
        self.stderr_lines.end_line();
        *self
            .end_status
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(end_status);
        // The output ends only now: at its end, the owner reads `end_status`.
        if let Some(output) = self.output {
            output.end();
        }
    }
}

impl MultiplexedLink {
    /// Starts the task of a new connection, on the worker with the socket in its epoll set.
    pub fn start(
        link: FastCgiLink,
        permit: Permit,
        worker: usize,
        worker_handle: &WorkerHandle,
    ) -> Arc<MultiplexedLink> {
        let requests = RequestSlots {
            slots: BTreeMap::new(),
            cancelled: Vec::new(),
            unfinished_bodies: Vec::new(),
            stalled: None,
            is_closed: false,
            // The first poll of the task, which follows from spawning it, replaces this waker.
            driver: Waker::noop().clone(),
        };
        let shared = Arc::new(MultiplexedLink {
            requests: Mutex::new(requests),
            worker,
            tasks: worker_handle.tasks.clone(),
        });
        let mut driver = LinkDriver {
            shared: shared.clone(),
            link,
            out: FastCgiRecord::default(),
            last_sent_id: 0,
            timer: worker_handle.timers.sleep(IDLE_MAX),
            timer_purpose: Some(TimerPurpose::Idle),
            _permit: permit,
        };
        let task = async move {
            std::future::poll_fn(|context| driver.poll(context)).await;
        };
        worker_handle.tasks.spawn(task).detach();
        shared
    }

    /// Reserves a request slot; `None` if the connection is closed or out of IDs.
    pub fn reserve_ticket(self: &Arc<Self>, stderr_lines: StderrLines) -> Option<RequestTicket> {
        let mut state = self.lock();
        if state.is_closed {
            return None;
        }
        // An ID is reused only after the server has released it: responses have no other identification.
        let is_free =
            |id: &u16| !state.slots.contains_key(id) && !state.unfinished_bodies.contains(id);
        let id = (1..=u16::MAX).find(is_free)?;
        let (input, input_receiver) = stream(INPUT_LEN_MAX);
        let (output_sender, output) = stream(OUTPUT_LEN_MAX);
        let end_status = Arc::new(Mutex::new(None));
        let slot = RequestSlot {
            input: Some(input_receiver),
            has_begun: false,
            output: Some(output_sender),
            output_ended: false,
            end_status: end_status.clone(),
            stderr_lines,
        };
        // The task sends the begin records when it runs next.
        state.slots.insert(id, slot);
        state.driver.wake_by_ref();
        Some(RequestTicket {
            id,
            input: Some(input),
            output,
            shared: self.clone(),
            end_status,
            _hold: self.tasks.hold(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, RequestSlots> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MultiplexedConnection for MultiplexedLink {
    fn worker(&self) -> usize {
        self.worker
    }

    fn has_room(&self) -> bool {
        let state = self.lock();
        // A stalled connection takes no new requests: they would wait for the slow client.
        !state.is_closed && state.stalled.is_none() && state.slots.len() < REQUESTS_MAX
    }

    fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    fn requests(&self) -> usize {
        self.lock().slots.len()
    }
}

/// The reason for which the timer is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimerPurpose {
    Idle,
    Stall(u16),
}

/// The task that owns the connection.
struct LinkDriver {
    shared: Arc<MultiplexedLink>,
    link: FastCgiLink,
    /// The record that is being sent.
    out: FastCgiRecord,
    /// The request ID of the record that was sent last.
    last_sent_id: u16,
    timer: TimerSleep,
    timer_purpose: Option<TimerPurpose>,
    _permit: Permit,
}

/// A record that is being sent, or the begin records of a request.
#[derive(Debug, Default, PartialEq, Eq)]
struct FastCgiRecord {
    header: FastCgiHeader,
    /// The number of header bytes that were not sent.
    header_remaining: usize,
    content: Bytes,
}

impl FastCgiRecord {
    fn new(header: FastCgiHeader, content: Bytes) -> FastCgiRecord {
        FastCgiRecord {
            header,
            header_remaining: header.len(),
            content,
        }
    }

    /// The begin records; `content` includes their headers.
    fn begin(content: Bytes) -> FastCgiRecord {
        FastCgiRecord {
            content,
            ..FastCgiRecord::default()
        }
    }

    fn is_empty(&self) -> bool {
        self.header_remaining == 0 && self.content.is_empty()
    }

    /// The unsent bytes as two slices; the first is empty only if all bytes were sent.
    fn unsent(&self) -> (&[u8], &[u8]) {
        match self.header_remaining {
            0 => (&self.content, &[]),
            remaining => (&self.header[self.header.len() - remaining..], &self.content),
        }
    }

    fn mark_written(&mut self, len: usize) {
        // A write may end within the header or within the content.
        let header_len = len.min(self.header_remaining);
        self.header_remaining -= header_len;
        self.content.advance(len - header_len);
    }
}

/// The connection has ended or is unusable.
struct LinkEnd;

impl Drop for LinkDriver {
    fn drop(&mut self) {
        self.shared.lock().close();
    }
}

impl LinkDriver {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        // The waker may differ on each poll.
        state.driver = context.waker().clone();
        // The loop is bounded, so that other tasks of the worker can run.
        for _ in 0..64 {
            let progress = self
                .write(&mut state, context)
                .and_then(|has_written| Ok(self.read(&mut state, context)? || has_written))
                .and_then(
                    |has_progress| Ok(self.check_timer(&mut state, context)? || has_progress),
                );
            match progress {
                Err(LinkEnd) => {
                    state.is_closed = true;
                    return Poll::Ready(());
                }
                Ok(false) => return Poll::Pending,
                Ok(true) => {}
            }
        }
        // After progress, no waker may be registered with the socket, so the task wakes itself.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends records; returns whether any byte was written.
    fn write(
        &mut self,
        state: &mut RequestSlots,
        context: &mut Context<'_>,
    ) -> Result<bool, LinkEnd> {
        if self.out.is_empty() {
            let Some(out) = state.next_record(&mut self.last_sent_id, context) else {
                return Ok(false);
            };
            self.out = out;
        }
        let (header, content) = self.out.unsent();
        match self.link.poll_write(context, header, content) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(len @ 1..)) => {
                self.out.mark_written(len);
                Ok(true)
            }
            Poll::Ready(_) => Err(LinkEnd),
        }
    }

    /// Reads and distributes output; returns whether any byte was read.
    fn read(
        &mut self,
        state: &mut RequestSlots,
        context: &mut Context<'_>,
    ) -> Result<bool, LinkEnd> {
        // Head-of-line blocking: while one request's buffer is full, nothing is read.
        if state.is_stalled(context) {
            return Ok(false);
        }
        while let Some((event, bytes)) = self.link.event().map_err(|_| LinkEnd)? {
            state.deliver(event, bytes)?;
            if state.is_stalled(context) {
                return Ok(true);
            }
        }
        match self.link.poll_read(context) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(())) => Ok(true),
            Poll::Ready(Err(_)) => Err(LinkEnd),
        }
    }

    /// Sets the timer for the current purpose, and handles its expiry; returns whether it expired.
    fn check_timer(
        &mut self,
        state: &mut RequestSlots,
        context: &mut Context<'_>,
    ) -> Result<bool, LinkEnd> {
        let purpose = match state.stalled {
            // If the slow client's request is the only one, it delays no other request and may take any time.
            Some(id) if state.slots.len() > 1 => Some(TimerPurpose::Stall(id)),
            // Cancelled requests count as idle: a server that never ends them must not keep the connection open.
            None if state.is_idle() => Some(TimerPurpose::Idle),
            _ => None,
        };
        // The timer is set only if the purpose changes: otherwise it would never expire.
        if purpose != self.timer_purpose {
            self.timer_purpose = purpose;
            let timeout = match purpose {
                Some(TimerPurpose::Stall(_)) => STALL_MAX,
                _ => IDLE_MAX,
            };
            self.timer.reset(timeout);
        }
        if purpose.is_none() || self.timer.poll_due(context).is_pending() {
            return Ok(false);
        }
        match purpose {
            Some(TimerPurpose::Stall(id)) => {
                state.stalled = None;
                if let Some(slot) = state.slots.get_mut(&id) {
                    // Further output is discarded, but its records must still be read.
                    slot.output = None;
                    slot.stderr_lines.push(
                        b"given up: its client read too slowly while other requests waited\n",
                    );
                }
                // The timer has expired, so even an equal purpose must set it again.
                self.timer_purpose = None;
                Ok(true)
            }
            _ => Err(LinkEnd),
        }
    }
}

impl RequestSlots {
    /// Ends all requests because the connection ended: incomplete output is truncated.
    fn close(&mut self) {
        self.is_closed = true;
        // A slot that is dropped without `end` cuts its output, so that the owner reports a failure.
        for slot in std::mem::take(&mut self.slots).into_values() {
            // After the empty FCGI_STDOUT record, a response is complete even without FCGI_END_REQUEST (FastCGI 1.0
            // §5.1).
            if slot.output_ended {
                slot.end(FastCgiEnd::Complete);
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.slots.values().all(|slot| slot.output.is_none())
    }

    /// The next record to send; requests take turns.
    fn next_record(
        &mut self,
        last_sent_id: &mut u16,
        context: &mut Context<'_>,
    ) -> Option<FastCgiRecord> {
        // Aborts are sent first: they free IDs and stop useless work of the server.
        while let Some(id) = self.cancelled.pop() {
            if let Some(abort) = self.abort(id) {
                return Some(abort);
            }
        }
        // The server may wait for the end of an unfinished body before it releases the ID.
        if let Some(id) = self.unfinished_bodies.pop() {
            return Some(FastCgiRecord::new(record::stdin(id, 0), Bytes::new()));
        }
        let mut id = *last_sent_id;
        // Round-robin, one record per request, so that a large upload does not starve other requests.
        for _ in 0..self.slots.len() {
            id = self.next_id(id)?;
            let slot = self.slots.get_mut(&id)?;
            let Some(input) = &slot.input else {
                continue;
            };
            match input.poll_next(context) {
                Poll::Pending => {}
                Poll::Ready(StreamItem::Bytes(bytes)) => {
                    *last_sent_id = id;
                    // The first piece consists of complete records with headers.
                    return Some(match std::mem::replace(&mut slot.has_begun, true) {
                        true => FastCgiRecord::new(record::stdin(id, bytes.len()), bytes),
                        false => FastCgiRecord::begin(bytes),
                    });
                }
                Poll::Ready(StreamItem::End) => {
                    slot.input = None;
                    return Some(FastCgiRecord::new(record::stdin(id, 0), Bytes::new()));
                }
                // The client aborted its upload; the owner is about to drop the request.
                Poll::Ready(StreamItem::Cut) => slot.input = None,
            }
        }
        None
    }

    /// The next request ID in use after `id`, or else the first one in use.
    fn next_id(&self, id: u16) -> Option<u16> {
        let mut later_slots = self.slots.range((Excluded(id), Unbounded));
        let next = later_slots
            .next()
            .or_else(|| self.slots.first_key_value())?;
        Some(*next.0)
    }

    /// Aborts a request in progress. Its ID is free once the server has ended the request.
    fn abort(&mut self, id: u16) -> Option<FastCgiRecord> {
        let slot = self.slots.get_mut(&id)?;
        // If no record was sent, there is nothing to abort at the server.
        if !slot.has_begun {
            self.slots.remove(&id);
            return None;
        }
        // The slot stays until FCGI_END_REQUEST: until then the server uses the ID.
        (slot.input, slot.output) = (None, None);
        Some(FastCgiRecord::new(record::abort(id), Bytes::new()))
    }

    /// Whether reading must pause because the output buffer of a request is full.
    fn is_stalled(&mut self, context: &mut Context<'_>) -> bool {
        let sender = self
            .stalled
            .and_then(|id| self.slots.get(&id)?.output.as_ref());
        if sender.is_some_and(|sender| sender.poll_room(context).is_pending()) {
            return true;
        }
        self.stalled = None;
        false
    }

    fn deliver(&mut self, event: FastCgiEvent, bytes: &[u8]) -> Result<(), LinkEnd> {
        match event {
            FastCgiEvent::Output(id, range) => {
                // A record for an unknown request: the connection cannot be trusted any more.
                let slot = self.slots.get_mut(&id).ok_or(LinkEnd)?;
                // Output after an empty FCGI_STDOUT record shows that this record did not end the response.
                slot.output_ended = false;
                let Some(output) = &slot.output else {
                    return Ok(());
                };
                match output.push(Bytes::copy_from_slice(&bytes[range])) {
                    Ok(true) => {}
                    // The buffer is full: nothing more is read until the owner has taken some output.
                    Ok(false) => self.stalled = Some(id),
                    // The owner is gone; records up to FCGI_END_REQUEST are still read, and dropped.
                    Err(_) => slot.output = None,
                }
            }
            FastCgiEvent::OutputEnd(id) => {
                self.slots.get_mut(&id).ok_or(LinkEnd)?.output_ended = true;
            }
            FastCgiEvent::Stderr(id, range) => {
                let slot = self.slots.get_mut(&id).ok_or(LinkEnd)?;
                slot.stderr_lines.push(&bytes[range]);
            }
            FastCgiEvent::End(id, end_status) => {
                let slot = self.slots.remove(&id).ok_or(LinkEnd)?;
                // An unsent abort would reach the next request with the same ID.
                self.cancelled.retain(|cancelled_id| *cancelled_id != id);
                // The end of the body was not sent, see `unfinished_bodies`.
                if slot.has_begun && slot.input.is_some() {
                    self.unfinished_bodies.push(id);
                }
                slot.end(end_status);
            }
            // A reply to FCGI_GET_VALUES, which is never sent on such a connection.
            FastCgiEvent::Multiplexes(_) => return Err(LinkEnd),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn requests(id: u16) -> RequestSlots {
        let slot = RequestSlot {
            input: None,
            has_begun: true,
            output: None,
            output_ended: false,
            end_status: Arc::default(),
            stderr_lines: StderrLines::new(
                Arc::from(Path::new("a")),
                lowroad_http::method::Method::Get,
                b"/",
                crate::cgi::stderr::silent_notice(),
            ),
        };
        RequestSlots {
            slots: BTreeMap::from([(id, slot)]),
            cancelled: Vec::new(),
            unfinished_bodies: Vec::new(),
            stalled: None,
            is_closed: false,
            driver: Waker::noop().clone(),
        }
    }

    #[test]
    fn request_id_is_free_after_end_of_body_was_sent() {
        let mut requests = requests(1);
        let (_input, taken) = stream(1);
        requests.slots.get_mut(&1).expect("it is there").input = Some(taken);
        let ended = requests.deliver(FastCgiEvent::End(1, FastCgiEnd::Complete), &[]);
        assert!(ended.is_ok() && requests.unfinished_bodies == [1]);
        let mut context = Context::from_waker(Waker::noop());
        let end = FastCgiRecord::new(record::stdin(1, 0), Bytes::new());
        assert_eq!(requests.next_record(&mut 0, &mut context), Some(end));
        assert!(requests.unfinished_bodies.is_empty());
    }

    #[test]
    fn lost_connection_truncates_only_unfinished_output() {
        for (events, is_whole) in [
            (
                &[FastCgiEvent::Output(1, 0..1), FastCgiEvent::OutputEnd(1)][..],
                true,
            ),
            (&[FastCgiEvent::Output(1, 0..1)], false),
            (
                &[FastCgiEvent::OutputEnd(1), FastCgiEvent::Output(1, 0..1)],
                false,
            ),
        ] {
            let mut requests = requests(1);
            let slot = requests.slots.get_mut(&1).expect("it is there");
            let ended = slot.end_status.clone();
            let (given, output) = stream(16);
            slot.output = Some(given);
            for event in events {
                assert!(requests.deliver(event.clone(), b"x").is_ok());
            }
            requests.close();
            assert_eq!(ended.lock().expect("a lock").is_some(), is_whole);
            let mut context = Context::from_waker(Waker::noop());
            let bytes = Poll::Ready(StreamItem::Bytes(Bytes::from_static(b"x")));
            assert_eq!(output.poll_next(&mut context), bytes);
            let end = if is_whole {
                StreamItem::End
            } else {
                StreamItem::Cut
            };
            assert_eq!(output.poll_next(&mut context), Poll::Ready(end));
        }
    }

    #[test]
    fn abort_is_not_sent_for_reused_request_id() {
        let mut before = requests(1);
        before.cancelled.push(1);
        let ended = before.deliver(FastCgiEvent::End(1, FastCgiEnd::Complete), &[]);
        assert!(ended.is_ok());
        let mut after = requests(1);
        after.cancelled = before.cancelled;
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(after.next_record(&mut 0, &mut context), None);
    }
}
