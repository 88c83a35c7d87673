//! From received bytes to answers: where a request begins and ends, and who is asked about it.
//!
//! Reads are taken until the socket is empty; every complete request in what came is answered into
//! one output, in order, which leaves in as few system calls as it fits (see `transmit`).

use lowroad_http::body::BodyReader;
use lowroad_http::request::{Framing, Parsed, Request, head_complete, parse};

use crate::connection::{Body, Pace, State, Waiting};
use crate::driver::{Driver, Received};
use crate::service::{Answer, BodyUse, Exchange, Refused, Service};
use crate::stream::Receiver;
use crate::worker::Worker;

/// Output that is sent before more pipelined requests are looked at.
const OUT_LEN_MAX: usize = 16 * 1024;
/// Full reads of one connection in one turn of the loop; then it is the others' turn.
const READS_MAX: usize = 4;
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What one look at the input did.
pub(crate) enum Step {
    /// Used so many bytes; look again.
    Used(usize),
    /// More input is needed.
    Stop,
}

impl<D: Driver, V: Service> Worker<D, V> {
    /// Receives until the socket is empty or the connection has something else to do. A short
    /// receive means empty, unless an end was announced (`to_end`). Whoever sends without a pause
    /// gets its next turn after the others.
    pub(crate) fn receive(&mut self, id: usize, to_end: bool) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut reads = 0;
        while let Some(connection) = self.connections.get_mut(id) {
            if !connection.reads() {
                connection.unread = true;
                break;
            }
            if reads == READS_MAX {
                self.unfinished.push(connection.token(id));
                break;
            }
            reads += 1;
            connection.unread = false;
            match self.driver.receive(&connection.socket, &mut scratch) {
                Received::Bytes(len) => {
                    self.received(id, &scratch[..len]);
                    if len < scratch.len() && !to_end {
                        break;
                    }
                }
                Received::Empty => break,
                Received::End => {
                    self.close(id);
                    break;
                }
                Received::Broken => {
                    self.close_broken(id);
                    break;
                }
            }
        }
        self.scratch = scratch;
    }

    fn received(&mut self, id: usize, bytes: &[u8]) {
        let connection = &mut self.connections[id];
        if connection.input.is_empty() {
            let used = self.consume(id, bytes);
            if let Some(connection) = self.connections.get_mut(id) {
                connection.input.extend_from_slice(&bytes[used..]);
            }
            return;
        }
        let known_len = connection.input.len();
        connection.input.extend_from_slice(bytes);
        // A head that trickles in is parsed when its end has come, not once per byte; before that
        // only every so often, to find what can't become a request.
        let trickles = matches!(connection.state, State::Head { .. })
            && !head_complete(&connection.input, known_len)
            && connection.input.len() / 256 == known_len / 256;
        if !trickles {
            self.go_on(id);
            if self.connections.contains(id) {
                // The wait for a slow head may be noted for later than what is waited for now.
                self.note(id);
            }
        }
    }

    /// Uses what is kept of the input.
    pub(crate) fn go_on(&mut self, id: usize) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let mut input = std::mem::take(&mut connection.input);
        let used = self.consume(id, &input);
        if let Some(connection) = self.connections.get_mut(id)
            && used < input.len()
        {
            input.drain(..used);
            connection.input = input;
        }
    }

    /// Goes on with a connection whose answer has left, or can be made now: with the request that
    /// waits, then with what is kept of the input, then with what is new.
    pub(crate) fn resume(&mut self, id: usize) {
        self.answer_waiting(id);
        self.go_on(id);
        if self
            .connections
            .get(id)
            .is_some_and(|connection| connection.unread)
        {
            self.receive(id, true);
        }
    }

    /// Takes requests from `input` until it ends or one has to wait. Returns how much was used.
    fn consume(&mut self, id: usize, input: &[u8]) -> usize {
        let mut used = 0;
        while used < input.len() {
            let rest = &input[used..];
            let step = match self.connections.get(id) {
                Some(connection) if connection.incoming.is_some() => self.incoming(id, rest),
                Some(connection) => match connection.state {
                    State::Head { .. } => self.head(id, rest),
                    State::Body(_) => self.body(id, rest),
                    State::Lingering => Step::Used(rest.len()),
                    State::Waiting(_) | State::Sending(_) => Step::Stop,
                },
                None => Step::Stop,
            };
            match step {
                Step::Used(len) => used += len,
                Step::Stop => break,
            }
            if self.out.bytes.len() >= OUT_LEN_MAX {
                self.flush(id);
            }
        }
        self.flush(id);
        used
    }

    /// Looks for a request at the start of `input` and has it answered.
    fn head(&mut self, id: usize, input: &[u8]) -> Step {
        match parse(input, &self.settings.http) {
            Ok(Parsed::Complete(ref request)) => {
                self.counters.requests.bump();
                self.connections[id].requests += 1;
                match request.framing {
                    Framing::None | Framing::Length(0) => {
                        self.answer(id, request, input, None, None);
                        Step::Used(request.head_len)
                    }
                    _ => self.start_body(id, request, input),
                }
            }
            Ok(Parsed::Partial) => {
                self.await_head(id);
                Step::Stop
            }
            Err(refusal) => {
                self.counters.refused.bump();
                self.refuse(id, Refused::Request(refusal), input);
                Step::Used(input.len())
            }
        }
    }

    fn await_head(&mut self, id: usize) {
        let deadline_ms = self.driver.now_ms() + self.settings.header_timeout_ms;
        let connection = &mut self.connections[id];
        if let State::Head {
            begun: begun @ false,
        } = &mut connection.state
        {
            *begun = true;
            connection.deadline_ms = deadline_ms;
            self.note(id);
        }
    }

    /// Puts a request, whose head starts `input`, to the service.
    pub(crate) fn answer(
        &mut self,
        id: usize,
        request: &Request<'_>,
        input: &[u8],
        body: Option<Receiver>,
        deferred: Option<(V::Outcome, u64)>,
    ) {
        let now_ms = self.driver.now_ms();
        let connection = &mut self.connections[id];
        let (outcome, started_ms) = match deferred {
            Some((outcome, since_ms)) => (Some(outcome), since_ms),
            None => (None, now_ms),
        };
        let requests_max = self.settings.requests_max;
        let keep_alive = request.keep_alive
            && !connection.closing
            // Whoever answers before the body has come may leave the rest of it unread.
            && connection.incoming.is_none()
            && self.drain_until_ms.is_none()
            && (requests_max == 0 || connection.requests < requests_max);
        let mut exchange = Exchange {
            token: connection.token(id),
            peer: connection.peer,
            listener: connection.listener,
            now_ms,
            started_ms,
            unix_s: self.unix_s,
            date: &self.date,
            keep_alive,
            body,
        };
        self.out.body_in_bytes = 0;
        let answer = self
            .service
            .answer(request, &mut exchange, outcome, &mut self.out);
        connection.deadline_ms = now_ms + self.settings.idle_timeout_ms;
        match answer {
            Answer::Ready(record) => {
                connection.state = State::Head { begun: false };
                connection.closing = !exchange.keep_alive;
                // A client that did not ask for the end may have more requests on their way.
                connection.leftover |= connection.closing
                    && (request.keep_alive
                        || request.head_len < input.len()
                        || connection.incoming.is_some());
                if let Some(record) = record {
                    self.records.push((record, self.out.body_in_bytes));
                }
                if connection.closing || !self.out.parts.is_empty() {
                    self.flush(id);
                }
            }
            Answer::Deferred(hold) => {
                let head = input[..request.head_len].into();
                let waiting = Waiting {
                    head,
                    since_ms: started_ms,
                    outcome: None,
                    hold,
                };
                connection.state = State::Waiting(Box::new(waiting));
                self.counters.deferred.bump();
            }
        }
    }

    /// What a deferred request waited for has come.
    pub(crate) fn outcome(&mut self, id: usize, outcome: V::Outcome) {
        match &mut self.connections[id].state {
            State::Waiting(waiting) => waiting.outcome = Some(outcome),
            // Earlier answers are not sent yet.
            State::Sending(sending) => {
                if let State::Waiting(waiting) = &mut sending.then {
                    waiting.outcome = Some(outcome);
                }
                return;
            }
            _ => return,
        }
        self.resume(id);
    }

    /// Answers the request that waited, if what it waited for has come.
    fn answer_waiting(&mut self, id: usize) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let State::Waiting(waiting) = &mut connection.state else {
            return;
        };
        let Some(outcome) = waiting.outcome.take() else {
            return;
        };
        let (head, since_ms) = (std::mem::take(&mut waiting.head), waiting.since_ms);
        connection.state = State::Head { begun: false };
        self.answer_again(id, &head, Some((outcome, since_ms)));
        self.flush(id);
    }

    /// Answers a request whose head was kept.
    fn answer_again(&mut self, id: usize, head: &[u8], deferred: Option<(V::Outcome, u64)>) {
        match parse(head, &self.settings.http) {
            Ok(Parsed::Complete(request)) => self.answer(id, &request, head, None, deferred),
            // The limits became stricter meanwhile.
            Ok(Parsed::Partial) => self.refuse(id, Refused::Timeout, head),
            Err(refusal) => self.refuse(id, Refused::Request(refusal), head),
        }
    }

    /// A request with a body: the answer waits for the body's end, or is made while the body comes,
    /// or comes at once and ends the connection if the body is of no use.
    fn start_body(&mut self, id: usize, request: &Request<'_>, input: &[u8]) -> Step {
        let head_len = request.head_len;
        let connection = &mut self.connections[id];
        let body_use = self.service.body_use(request, connection.listener);
        if body_use == BodyUse::Refused {
            connection.closing = true;
            connection.leftover = true;
            self.answer(id, request, input, None, None);
            return Step::Used(head_len);
        }
        let reader = match BodyReader::new(request.framing, &self.settings.http) {
            Ok(reader) => reader,
            Err(refusal) => {
                self.counters.refused.bump();
                self.refuse(id, Refused::Request(refusal), input);
                return Step::Used(head_len);
            }
        };
        // Whoever has sent some of the body already does not wait for our word.
        if request.expect_continue && input.len() == request.head_len {
            self.out.bytes.extend_from_slice(CONTINUE);
        }
        if body_use == BodyUse::Streamed {
            return self.stream_body(id, request, input, reader);
        }
        let head = input[..head_len].into();
        let pace = Pace::new(self.driver.now_ms());
        connection.state = State::Body(Box::new(Body { reader, head, pace }));
        self.body_expired(id); // not yet: finds out when to look at its pace
        self.note(id);
        Step::Used(head_len)
    }

    /// Reads on in a body; at its end the request is answered.
    fn body(&mut self, id: usize, input: &[u8]) -> Step {
        let now_ms = self.driver.now_ms();
        let State::Body(body) = &mut self.connections[id].state else {
            return Step::Stop;
        };
        match body.reader.feed(input) {
            Ok(fed) => {
                body.pace.moved(fed.consumed as u64, now_ms);
                if fed.done {
                    let head = std::mem::take(&mut body.head);
                    self.answer_again(id, &head, None);
                } else if fed.consumed == 0 {
                    return Step::Stop;
                }
                Step::Used(fed.consumed)
            }
            Err(refusal) => {
                self.counters.refused.bump();
                self.refuse(id, Refused::Request(refusal), input);
                Step::Used(input.len())
            }
        }
    }

    /// Answers what is not a request, and ends the connection.
    pub(crate) fn refuse(&mut self, id: usize, why: Refused, input: &[u8]) {
        let now_ms = self.driver.now_ms();
        let connection = &mut self.connections[id];
        let mut exchange = Exchange {
            token: connection.token(id),
            peer: connection.peer,
            listener: connection.listener,
            now_ms,
            started_ms: now_ms,
            unix_s: self.unix_s,
            date: &self.date,
            keep_alive: false,
            body: None,
        };
        self.out.body_in_bytes = 0;
        let record = self
            .service
            .refuse(why, input, &mut exchange, &mut self.out);
        if let Some(record) = record {
            self.records.push((record, self.out.body_in_bytes));
        }
        connection.input = Vec::new();
        connection.state = State::Head { begun: false };
        connection.closing = true;
        connection.leftover = true;
        self.flush(id);
    }
}
