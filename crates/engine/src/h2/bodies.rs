//! The line of one stream: what of a response's body has not left. Bytes in memory are told to the protocol, which says when
//! they are due; files are read by helpers, and streams polled, while little is ready.

use std::task::{Context, Poll};

use lowroad_http::fields::Lines;
use lowroad_http::h1::put_fields;
use lowroad_http::h2::Code;
use lowroad_http::protocol::StreamId;

use crate::body::Part;
use crate::connection::Connection;
use crate::context::WorkerContext;
use crate::driver::Driver;
use crate::protocol::Protocol;
use crate::service::Service;
use crate::stream::Next;

/// Bytes of a body that are made ready before some have left.
const READY_LEN_MAX: u64 = 64 * 1024;
/// When a file is tried again for which there was no helper.
pub(super) const POSTPONED_MS: u64 = 100;

/// What making a body ready came to.
enum Step {
    /// Some more is ready.
    More,
    /// Nothing now.
    Wait,
    /// Nobody wants it any more.
    Unwanted,
    /// It can't be completed.
    Broken,
}

impl<D: Driver, V: Service> Connection<D, V> {
    /// Makes some more of a body ready.
    pub(crate) fn advance(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) {
        loop {
            match self.advance_once(worker, stream) {
                Step::More => {}
                Step::Wait => return,
                Step::Unwanted => return self.drop_body(worker, stream),
                Step::Broken => return self.break_body(worker, stream),
            }
        }
    }

    fn advance_once(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) -> Step {
        if self.is_closed() {
            return Step::Wait;
        }
        let token = self.token;
        let it = self.exchanges.get(stream);
        let body = it.and_then(|it| it.body.as_deref_mut());
        let (Protocol::Http2(two), Some(body)) = (&mut self.protocol, body) else {
            return Step::Wait;
        };
        if body.ready_len >= READY_LEN_MAX || body.is_told {
            return Step::Wait;
        }
        let http = &mut two.http;
        match body.rest.front_mut() {
            None => {
                body.is_told = true;
                match http.end(stream, Lines::NONE) {
                    Ok(()) => Step::Wait,
                    Err(_) => Step::Broken,
                }
            }
            Some(part) if part.is_empty() => {
                body.rest.pop_front();
                Step::More
            }
            Some(Part::File { file, range }) => {
                if two.reading.is_none() {
                    let end = range.end.min(range.start + READY_LEN_MAX);
                    match worker.driver.start_read(token, file, range.start..end) {
                        Ok(()) => two.reading = Some(stream),
                        Err(_) => {
                            let again_ms = worker.driver.now_ms() + POSTPONED_MS;
                            self.deadline_ms = self.deadline_ms.min(again_ms);
                            self.note(worker);
                        }
                    }
                }
                Step::Wait
            }
            Some(Part::Stream(streamed)) => {
                let waker = worker.wakers.of(&worker.mailbox, token);
                match streamed.poll_next(&mut Context::from_waker(waker)) {
                    Poll::Pending => Step::Wait,
                    Poll::Ready(Next::Cut) => {
                        worker.counters.streams_cut.bump();
                        Step::Broken
                    }
                    Poll::Ready(Next::Bytes(bytes)) => {
                        body.rest.push_front(Part::Bytes(bytes));
                        Step::More
                    }
                    Poll::Ready(Next::End) => {
                        let mut lines = Vec::new();
                        if let Some(trailers) = streamed.take_trailers() {
                            put_fields(&trailers, &mut lines);
                        }
                        body.is_told = true;
                        match http.end(stream, Lines::of(&lines)) {
                            Ok(()) => Step::Wait,
                            Err(_) => Step::Broken,
                        }
                    }
                }
            }
            Some(Part::Bytes(_) | Part::Block { .. }) => {
                let Some(part) = body.rest.pop_front() else {
                    return Step::Wait;
                };
                let len = part.len_in_memory();
                match http.body(stream, len) {
                    Ok(true) => {
                        body.ready.push_back(part);
                        body.ready_len += len;
                        Step::More
                    }
                    Ok(false) => Step::Unwanted,
                    Err(_) => Step::Broken,
                }
            }
        }
    }

    /// What is left of a response is of no use.
    fn drop_body(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) {
        let now_ms = worker.driver.now_ms();
        let it = self.exchanges.get(stream);
        if let Some((record, len)) = it
            .and_then(|it| it.body.take())
            .and_then(|body| body.left())
        {
            worker.service.sent(record, len, false, now_ms);
        }
        self.exchanges.tidy();
    }

    /// A response can't be completed: its stream is cut.
    pub(crate) fn break_body(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) {
        self.cut_stream(worker, stream, Code::INTERNAL_ERROR);
    }

    /// Ends a stream and what is under way on it.
    pub(super) fn cut_stream(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        code: Code,
    ) {
        self.drop_body(worker, stream);
        self.exchanges.remove(stream);
        if let Protocol::Http2(two) = &mut self.protocol {
            let out = &mut worker.out.bytes;
            two.http.reset(stream, code, out);
        }
    }

    /// Makes more ready of all bodies that wait for something.
    pub(crate) fn advance_all(&mut self, worker: &mut WorkerContext<D, V>) {
        let mut stream = None;
        while !self.is_closed() {
            stream = self.exchanges.next_body(stream);
            let Some(stream) = stream else { return };
            self.advance(worker, stream);
        }
    }

    /// A helper has read some of a file, or could not.
    pub(crate) fn stream_read(&mut self, worker: &mut WorkerContext<D, V>, read: Option<Vec<u8>>) {
        let Protocol::Http2(two) = &mut self.protocol else {
            return;
        };
        let Some(stream) = two.reading.take() else {
            return;
        };
        let it = self.exchanges.get(stream);
        let body = it.and_then(|it| it.body.as_deref_mut());
        match (body, read) {
            (None, _) => {}
            (Some(_), None) => self.break_body(worker, stream),
            (Some(body), Some(bytes)) => {
                if let Some(Part::File { range, .. }) = body.rest.front_mut() {
                    range.start += bytes.len() as u64;
                    body.rest.push_front(Part::Bytes(bytes.into()));
                }
            }
        }
        self.advance_all(worker);
        self.emit(worker);
        self.rest_frames(worker);
    }
}
