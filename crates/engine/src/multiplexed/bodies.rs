//! Response bodies of streams. The protocol schedules frames for bytes that are ready in memory. When few bytes
//! of a body are ready, its file is read by a helper thread, or its source polled.

use std::task::{Context, Poll};

use lowroad_http::fields::FieldLines;
use lowroad_http::h1::put_fields;
use lowroad_http::protocol::StreamId;

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::multiplexed::{MultiplexedSession, POSTPONED_MS, StreamAbort};
use crate::response_body::BodyPart;
use crate::response_pace::PaceStep;
use crate::service::HttpService;
use crate::stream::StreamItem;

/// Maximum number of bytes of a body that are ready and unsent.
const READY_LEN_MAX: u64 = 64 * 1024;

/// The result of making more of a body ready.
enum BodyStep {
    /// More is ready.
    More,
    /// Nothing can be made ready now.
    Wait,
    /// The client does not want the rest.
    Unwanted,
    /// The body can't be completed.
    Broken,
}

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Makes more of a body ready.
    pub(crate) fn advance(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) {
        loop {
            match self.advance_once(worker, stream) {
                BodyStep::More => {}
                BodyStep::Wait => return,
                BodyStep::Unwanted => return self.drop_body(worker, stream),
                BodyStep::Broken => return self.break_body(worker, stream),
            }
        }
    }

    fn advance_once(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) -> BodyStep {
        if self.is_closed() {
            return BodyStep::Wait;
        }
        let token = self.token;
        let state = self.exchanges.get(stream);
        let body = state.and_then(|state| state.body.as_deref_mut());
        let (Some(MultiplexedSession { http, progress }), Some(body)) =
            (self.protocol.multiplexed(), body)
        else {
            return BodyStep::Wait;
        };
        if body.ready_len >= READY_LEN_MAX || body.is_end_announced {
            return BodyStep::Wait;
        }
        match body.rest.front_mut() {
            None => {
                body.is_end_announced = true;
                match http.announce_end(stream, FieldLines::NONE) {
                    Ok(()) => BodyStep::Wait,
                    Err(_) => BodyStep::Broken,
                }
            }
            Some(part) if part.is_empty() => {
                body.rest.pop_front();
                BodyStep::More
            }
            Some(BodyPart::File { file, range }) => {
                // One read per connection at a time, as the helper's event does not identify the stream.
                if progress.reading.is_none() {
                    let end = range.end.min(range.start + READY_LEN_MAX);
                    match worker.driver.start_read(token, file, range.start..end) {
                        Ok(()) => progress.reading = Some(stream),
                        Err(_) => {
                            // No event reports a free helper, so the read is retried after a delay.
                            let retry_ms = worker.driver.now_ms() + POSTPONED_MS;
                            self.deadline_ms = self.deadline_ms.min(retry_ms);
                            self.schedule_check(worker);
                        }
                    }
                }
                BodyStep::Wait
            }
            Some(BodyPart::Paced(paced)) => match paced.release(worker.driver.now_ms()) {
                PaceStep::Part(part) => {
                    body.rest.push_front(part);
                    BodyStep::More
                }
                PaceStep::Ended => {
                    body.rest.pop_front();
                    BodyStep::More
                }
                PaceStep::Wait { until_ms } => self.wait_for_rate_of_body(worker, until_ms),
            },
            Some(BodyPart::Stream(streamed)) => {
                if let Some(until_ms) = streamed.paced_until(worker.driver.now_ms()) {
                    return self.wait_for_rate_of_body(worker, until_ms);
                }
                let waker = worker.wakers.waker_for(&worker.mailbox, token);
                match streamed.poll_next(&mut Context::from_waker(waker)) {
                    Poll::Pending => BodyStep::Wait,
                    Poll::Ready(StreamItem::Cut) => {
                        worker.counters.streams_cut.bump();
                        BodyStep::Broken
                    }
                    Poll::Ready(StreamItem::Bytes(bytes)) => {
                        streamed.record_paced(bytes.len());
                        // The source stays in the queue behind its bytes, and is polled again after they were sent.
                        body.rest.push_front(BodyPart::Bytes(bytes));
                        BodyStep::More
                    }
                    Poll::Ready(StreamItem::End) => {
                        let mut lines = Vec::new();
                        if let Some(trailers) = streamed.take_trailers() {
                            put_fields(&trailers, &mut lines);
                        }
                        body.is_end_announced = true;
                        match http.announce_end(stream, FieldLines::new(&lines)) {
                            Ok(()) => BodyStep::Wait,
                            Err(_) => BodyStep::Broken,
                        }
                    }
                }
            }
            Some(BodyPart::Bytes(_) | BodyPart::Block { .. }) => {
                let Some(part) = body.rest.pop_front() else {
                    return BodyStep::Wait;
                };
                let len = part.memory_len();
                match http.announce_body(stream, len) {
                    Ok(true) => {
                        body.ready.push_back(part);
                        body.ready_len += len;
                        BodyStep::More
                    }
                    Ok(false) => BodyStep::Unwanted,
                    Err(_) => BodyStep::Broken,
                }
            }
        }
    }

    /// Waits until the limit of a body's rate allows more bytes.
    fn wait_for_rate_of_body(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        until_ms: u64,
    ) -> BodyStep {
        // The deadline advances all bodies of the connection, also those without a limit.
        self.deadline_ms = self.deadline_ms.min(until_ms);
        self.schedule_check(worker);
        BodyStep::Wait
    }

    /// Drops the rest of a response body that will not be sent.
    pub(crate) fn drop_body(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) {
        let now_ms = worker.driver.now_ms();
        let state = self.exchanges.get(stream);
        if let Some((record, len)) = state
            .and_then(|state| state.body.take())
            .and_then(|body| body.into_record())
        {
            worker.service.sent(record, len, false, now_ms);
        }
        self.exchanges.tidy();
    }

    /// Resets the stream of a response that can't be completed.
    pub(crate) fn break_body(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) {
        self.cut_stream(worker, stream, StreamAbort::Failed);
    }

    /// Resets a stream and drops its state.
    pub(crate) fn cut_stream(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        abort: StreamAbort,
    ) {
        self.drop_body(worker, stream);
        self.exchanges.remove(stream);
        self.abort_stream(worker, stream, abort);
    }

    /// Makes more of all waiting bodies ready.
    pub(crate) fn advance_all(&mut self, worker: &mut WorkerContext<D, V>) {
        let mut stream = None;
        while !self.is_closed() {
            stream = self.exchanges.next_body(stream);
            let Some(stream) = stream else { return };
            self.advance(worker, stream);
        }
    }

    /// Handles the result of a helper's read of a file.
    pub(crate) fn stream_read(&mut self, worker: &mut WorkerContext<D, V>, read: Option<Vec<u8>>) {
        let session = self.protocol.multiplexed();
        let Some(stream) = session.and_then(|session| session.progress.reading.take()) else {
            return;
        };
        let state = self.exchanges.get(stream);
        let body = state.and_then(|state| state.body.as_deref_mut());
        match (body, read) {
            // The stream was reset while the helper read.
            (None, _) => {}
            (Some(_), None) => self.break_body(worker, stream),
            (Some(body), Some(mut bytes)) => {
                if let Some(BodyPart::File { range, .. }) = body.rest.front_mut() {
                    range.start += bytes.len() as u64;
                    // The slices of a limited bandwidth are much shorter than the buffer of a read, and a client that reads
                    // nothing has many of them ready.
                    bytes.shrink_to_fit();
                    // The rest of the file stays in the queue behind the bytes that were read.
                    body.rest.push_front(BodyPart::Bytes(bytes.into()));
                }
            }
        }
        // Other streams may have waited for this read, as a connection has one at a time.
        self.advance_all(worker);
        self.emit_and_schedule(worker);
    }
}
