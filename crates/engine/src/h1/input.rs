//! Parses received bytes into requests and their bodies, in order.
//!
//! Responses to all complete requests of a receive are written to one output in order, which is sent in as few system
//! calls as possible (see `transmit`).

use lowroad_http::fields::FieldLines;
use lowroad_http::h1::{H1RequestHead, H1Server, H1ServerEvent};
use lowroad_http::limits::RequestLimits;
use lowroad_http::protocol::ServerProtocol;

use crate::body_stream::{RequestBodyStream, WAITING_LEN_MAX};
use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::protocol::Protocol;
use crate::service::{ConnectionRefusal, HttpService};
use crate::stream;

/// With this much output, the output is sent before more pipelined requests are parsed.
const OUT_LEN_MAX: usize = 16 * 1024;

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Handles the requests in `input` until it ends or a request is deferred. Returns how many bytes were used.
    pub(crate) fn consume_requests(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        input: &[u8],
    ) -> usize {
        let mut used = 0;
        while !self.is_closed() {
            let rest = &input[used..];
            // The end of a body is a separate event after its last bytes, which may need no further input.
            if rest.is_empty() && !self.exchanges.has_incoming() {
                break;
            }
            if self.lingering {
                used = input.len();
                break;
            }
            if !self.can_receive() {
                break;
            }
            let mut head_slot = None;
            let Protocol::Http1(http) = &mut self.protocol else {
                break;
            };
            let step = match http.next(rest, &worker.settings.http, &mut head_slot) {
                Ok(step) => step,
                // With pass-through, bytes that are not HTTP go to the other server.
                Err(_) if self.passes_through(worker, None, rest) => {
                    used = input.len();
                    break;
                }
                Err(refusal) => {
                    worker.counters.refused.bump();
                    let connection_refusal = ConnectionRefusal::Request(refusal);
                    let stream = self.stream();
                    match self.exchanges.incoming(stream).is_some() {
                        // The error is in a body: its request may be answered already.
                        true => self.break_incoming(worker, stream, connection_refusal),
                        false => self.refuse(worker, connection_refusal, rest),
                    }
                    used = input.len();
                    break;
                }
            };
            used += step.used;
            match step.event {
                Some(H1ServerEvent::Request(head)) => used += self.request(worker, head, rest),
                Some(H1ServerEvent::Data(data)) => {
                    let stream = self.stream();
                    self.handle_body_data(worker, stream, data);
                }
                Some(H1ServerEvent::End { trailers }) => {
                    self.body_ended(worker, &trailers);
                    self.resume_deferred(worker);
                }
                None if step.used > 0 => {}
                None => {
                    self.await_more(worker);
                    break;
                }
            }
            if worker.out.bytes.len() >= OUT_LEN_MAX {
                self.flush(worker);
            }
        }
        self.flush(worker);
        used
    }

    /// Whether more may be received over HTTP/1, which has one exchange at a time: bytes after a request and its body
    /// are read once the response was sent.
    pub(crate) fn reads_requests(&self) -> bool {
        match self.exchanges.iter().next() {
            Some(it) => it.incoming.as_ref().is_some_and(|body| !body.full),
            None => self.sending.is_none(),
        }
    }

    /// Sets the deadline for the rest of an incomplete request.
    fn await_more(&mut self, worker: &mut WorkerContext<D, V>) {
        let deadline_ms = worker.driver.now_ms() + worker.settings.header_timeout_ms;
        let stream = self.stream();
        if self.exchanges.incoming(stream).is_some() {
            self.watch_incoming(worker, stream);
        } else if !self.has_partial_head && self.is_partial() {
            self.has_partial_head = true;
            self.deadline_ms = deadline_ms;
            self.schedule_check(worker);
        }
    }

    /// Handles the request at the start of `input`. A body that is already complete is read first, so that the
    /// connection stays open even if the service ignores it. Returns how many bytes of the body were used.
    fn request(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        head: &H1RequestHead<'_>,
        input: &[u8],
    ) -> usize {
        if self.passes_through(worker, Some(head), input) {
            return input.len() - head.len;
        }
        let now_ms = worker.driver.now_ms();
        worker.counters.requests.bump();
        let requests_max = worker.settings.requests_max;
        self.has_partial_head = false;
        self.requests += 1;
        let is_last = requests_max > 0 && self.requests >= requests_max;
        let Protocol::Http1(http) = &mut self.protocol else {
            return 0;
        };
        // Before the response is written, so that it announces the close (RFC 9112 §9.6).
        if is_last {
            http.close();
        }
        if worker.drain_until_ms.is_some() {
            http.drain(&mut worker.out.bytes);
        }
        let stream = self.stream();
        let mut exchange = self.exchange(worker, stream, now_ms * 1000);
        let is_followed = |used: usize| head.keep_alive || head.len + used < input.len();
        if !head.framing.has_body() {
            self.dispatch_request(worker, &head.request, exchange, is_followed(0));
            return 0;
        }
        let (sender, from) = stream::stream(WAITING_LEN_MAX);
        let mut incoming = RequestBodyStream::new(sender, now_ms);
        let body = &input[head.len..];
        let Protocol::Http1(http) = &mut self.protocol else {
            return 0;
        };
        exchange.body = Some(from);
        exchange.body_len = head.framing.body_len();
        exchange.is_body_incomplete = !http.contains_request_end(body);
        let mut used = 0;
        let is_coming = exchange.is_body_incomplete;
        if is_coming {
            // Until the body is complete, closing the socket could cause a reset.
            self.leftover = true;
            self.exchanges.get_or_insert(stream).incoming = Some(incoming);
        } else {
            used = read_whole(http, &mut incoming, body, &worker.settings.http);
        }
        self.dispatch_request(worker, &head.request, exchange, is_followed(used));
        if is_coming && !self.is_closed() {
            self.await_body(worker, stream);
        }
        used
    }

    /// Handles the end of a body.
    fn body_ended(&mut self, worker: &mut WorkerContext<D, V>, trailers: &FieldLines<'_>) {
        let stream = self.stream();
        if let Some(incoming) = self.exchanges.incoming(stream) {
            incoming.end(trailers);
        }
        self.exchanges.end_incoming(stream);
        // The whole body was read. On a closing connection later requests may still be unread.
        self.leftover &= self.is_closing();
        let is_idle = self.sending.is_none() && self.exchanges.is_empty();
        if is_idle {
            self.deadline_ms = worker.driver.now_ms() + worker.idle_timeout_ms();
        }
    }
}

/// Reads the complete body at the start of `input`. Returns the number of bytes of `input` that were used.
fn read_whole(
    http: &mut H1Server,
    incoming: &mut RequestBodyStream,
    input: &[u8],
    limits: &RequestLimits,
) -> usize {
    let mut used = 0;
    while let Ok(step) = http.next(&input[used..], limits, &mut None) {
        used += step.used;
        match step.event {
            Some(H1ServerEvent::Data(data)) => incoming.data(data),
            Some(H1ServerEvent::End { trailers }) => {
                incoming.end(&trailers);
                break;
            }
            _ => break,
        }
    }
    used
}
