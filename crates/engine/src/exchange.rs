//! From received bytes to responses: the events of the connection's protocol, and who is asked about them.
//!
//! Reads are taken until the socket is empty; every complete request in what came is answered into one output, in order,
//! which leaves in as few system calls as it fits (see `transmit`).

use lowroad_http::h1::{Event, Head};
use lowroad_http::h2::Code;
use lowroad_http::request::PartialRequest;

use crate::bodies::read_whole;
use crate::body::Part;
use crate::driver::{Driver, Received};
use crate::incoming::{Incoming, WAITING_LEN_MAX};
use crate::response::Response;
use crate::sending::Leaving;
use crate::service::{Answer, Exchange, Refused, Service};
use crate::stream;
use crate::transport::Came;
use crate::underway::{Come, ExchangeId, StreamId, Waiting};
use crate::worker::Worker;

/// Output that is sent before more pipelined requests are looked at.
const OUT_LEN_MAX: usize = 16 * 1024;
/// Full reads of one connection in one turn of the loop; then it is the others' turn.
const READS_MAX: usize = 4;

impl<D: Driver, V: Service> Worker<D, V> {
    /// Receives until the socket is empty or the connection has something else to do. A short receive means empty,
    /// unless an end was announced (`to_end`). Whoever sends without a pause gets its next turn after the others.
    pub(crate) fn receive(&mut self, id: usize, to_end: bool) {
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
            let token = connection.token(id);
            let transport = &mut connection.transport;
            match transport.receive(&mut self.driver, token, &mut self.plain) {
                Received::Bytes { lent, more } => {
                    self.received(id, &lent);
                    self.give_back(lent);
                    if !more && !to_end {
                        break;
                    }
                }
                Received::Empty => break,
                Received::End => {
                    if !self.ended_unintroduced(id, false) {
                        self.client_ended(id);
                    }
                    break;
                }
                Received::Broken => {
                    self.close_broken(id);
                    break;
                }
            }
        }
    }

    fn received(&mut self, id: usize, came: &Came<D::Lent>) {
        if self.connections[id].transport.is_introduced {
            return match came {
                Came::Lent(lent) => self.take_in(id, lent.as_ref()),
                Came::Plain(plain) if self.layer_moved(id, plain) => self.take_in(id, plain),
                Came::Plain(_) => {}
            };
        }
        if let Some(rest) = self.introduction(id, came.as_ref()) {
            self.open_rest(id, rest);
        }
    }

    /// Takes bytes of the connection's protocol.
    pub(crate) fn take_in(&mut self, id: usize, bytes: &[u8]) {
        let connection = &mut self.connections[id];
        if connection.input.is_empty() {
            let used = self.consume(id, bytes);
            if let Some(connection) = self.connections.get_mut(id) {
                connection.input.add(&bytes[used..]);
            }
            return;
        }
        connection.input.add(bytes);
        self.go_on(id);
        if self.connections.contains(id) {
            // The wait for a slow head may be noted for later than what is waited for now.
            self.note(id);
        }
    }

    /// Takes back the memory of what a receive brought.
    pub(crate) fn give_back(&mut self, came: Came<D::Lent>) {
        match came {
            Came::Lent(lent) => self.driver.give_back(lent),
            Came::Plain(plain) => self.plain = plain,
        }
    }

    /// Uses what is kept of the input.
    pub(crate) fn go_on(&mut self, id: usize) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let input = connection.input.take();
        let used = self.consume(id, &input);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.input.put_back(input, used);
        }
    }

    /// Goes on with a connection whose response has left, or can be made now: with the request that waits, then with
    /// what is kept of the input, then with what is new.
    pub(crate) fn resume(&mut self, id: usize) {
        match self.connections.get(id) {
            Some(connection) if connection.two.is_some() => self.emit(id),
            Some(_) => self.answer_waiting(id),
            None => return,
        }
        self.go_on(id);
        if self
            .connections
            .get(id)
            .is_some_and(|connection| connection.unread)
        {
            self.receive(id, true);
        }
    }

    /// Takes what `input` holds until it ends or something has to be waited for. Returns how much was used.
    fn consume(&mut self, id: usize, input: &[u8]) -> usize {
        if self.speaks_h2(id, input) {
            return self.consume_frames(id, input);
        }
        let mut used = 0;
        while let Some(connection) = self.connections.get_mut(id) {
            let rest = &input[used..];
            // The end of a body is told after its last bytes.
            if rest.is_empty() && !connection.exchanges.has_incoming() {
                break;
            }
            if connection.lingering {
                used = input.len();
                break;
            }
            if !connection.reads() {
                break;
            }
            let mut place = None;
            let http = &mut connection.http;
            let step = match http.next(rest, &self.settings.http, &mut place) {
                Ok(step) => step,
                Err(_) if self.passes_through(id, None, rest) => {
                    used = input.len();
                    break;
                }
                Err(refusal) => {
                    self.counters.refused.bump();
                    let why = Refused::Request(refusal);
                    let connection = &mut self.connections[id];
                    let stream = connection.stream();
                    match connection.exchanges.incoming(stream).is_some() {
                        true => self.break_incoming(id, stream, why),
                        false => self.refuse(id, why, rest),
                    }
                    used = input.len();
                    break;
                }
            };
            used += step.used;
            match step.event {
                Some(Event::Request(head)) => used += self.request(id, head, rest),
                Some(Event::Data(data)) => {
                    let stream = connection.stream();
                    self.body_came(id, stream, data);
                }
                Some(Event::End { trailers }) => {
                    let stream = connection.stream();
                    self.body_ended(id, stream, &trailers);
                    self.answer_waiting(id);
                }
                None if step.used > 0 => {}
                None => {
                    self.await_more(id);
                    break;
                }
            }
            if self.out.bytes.len() >= OUT_LEN_MAX {
                self.flush(id);
            }
        }
        self.flush(id);
        used
    }

    /// What has come is not enough.
    fn await_more(&mut self, id: usize) {
        let deadline_ms = self.driver.now_ms() + self.settings.header_timeout_ms;
        let connection = &mut self.connections[id];
        let stream = connection.stream();
        if connection.exchanges.incoming(stream).is_some() {
            self.watch_incoming(id, stream);
        } else if connection.http.is_partial() && !connection.begun {
            connection.begun = true;
            connection.deadline_ms = deadline_ms;
            self.note(id);
        }
    }

    /// A request has come, with whose head `input` begins. A body that is all here is read first: then the connection
    /// can stay open whatever the response. Returns how many bytes of the body were used.
    fn request(&mut self, id: usize, head: &Head<'_>, input: &[u8]) -> usize {
        if self.passes_through(id, Some(head), input) {
            return input.len() - head.len;
        }
        let now_ms = self.driver.now_ms();
        self.counters.requests.bump();
        let requests_max = self.settings.requests_max;
        let connection = &mut self.connections[id];
        connection.begun = false;
        connection.requests += 1;
        let is_last = requests_max > 0 && connection.requests >= requests_max;
        if is_last || self.drain_until_ms.is_some() {
            connection.http.close();
        }
        let stream = connection.stream();
        let mut exchange = self.exchange(id, stream, now_ms * 1000);
        if !head.framing.has_body() {
            self.answer(id, head, exchange, input.len());
            return 0;
        }
        let (to, from) = stream::stream(WAITING_LEN_MAX);
        let mut incoming = Incoming::new(to, now_ms);
        let body = &input[head.len..];
        let http = &mut self.connections[id].http;
        exchange.body = Some(from);
        exchange.body_len = head.framing.body_len();
        exchange.is_body_coming = !http.ends_within(body);
        let mut used = 0;
        let is_coming = exchange.is_body_coming;
        if is_coming {
            self.connections[id].leftover = true;
            self.connections[id].exchanges.of(stream).incoming = Some(incoming);
        } else {
            used = read_whole(http, &mut incoming, body, &self.settings.http);
        }
        self.answer(id, head, exchange, input.len() - used);
        if is_coming && self.connections.contains(id) {
            self.await_body(id, stream);
        }
        used
    }

    /// The facts about a deferred request, as they are now.
    pub(crate) fn resumed(&mut self, id: usize, mut exchange: Exchange) -> Exchange {
        let stream = exchange.id.stream;
        exchange.now_ms = self.driver.now_ms();
        exchange.unix_s = self.unix_s;
        exchange.is_body_coming = self.connections[id].exchanges.incoming(stream).is_some();
        exchange.is_refused = false;
        exchange.is_body_undecided = false;
        exchange
    }

    /// The facts about a new request.
    pub(crate) fn exchange(&self, id: usize, stream: StreamId, started_us: u64) -> Exchange {
        let connection = &self.connections[id];
        Exchange {
            id: ExchangeId {
                connection: connection.token(id),
                stream,
            },
            peer: connection.transport.peer,
            peer_port: connection.transport.peer_port,
            proxy: connection.transport.proxy.as_deref().copied(),
            secured: connection.transport.secured().cloned(),
            forwarded: None,
            listener: connection.listener,
            protocol: connection.version(),
            now_ms: self.driver.now_ms(),
            started_us,
            unix_s: self.unix_s,
            body: None,
            body_len: Some(0),
            body_len_max: match connection.two {
                Some(_) => self.settings.h2.limits.body_len_max,
                None => self.settings.http.body_len_max,
            },
            is_body_coming: false,
            is_refused: false,
            is_user: false,
            is_body_undecided: false,
        }
    }

    /// Puts a request to the service.
    fn answer(&mut self, id: usize, head: &Head<'_>, mut exchange: Exchange, input_len: usize) {
        let connection = &mut self.connections[id];
        let wants_more = head.keep_alive || head.len < input_len;
        let mut response = Response::new(&mut connection.http, &mut self.out, &self.date);
        let service = &mut self.service;
        let answer = service.request(&head.request, &mut exchange, &mut response);
        if exchange.body.take().is_some()
            && let Some(incoming) = connection.exchanges.incoming(exchange.id.stream)
        {
            incoming.drop_rest();
        }
        if exchange.is_refused {
            self.counters.refused.bump();
        }
        self.answered(id, answer, exchange, wants_more);
    }

    /// A response was written, or will be.
    fn answered(
        &mut self,
        id: usize,
        answer: Answer<V::Pending, V::Record>,
        exchange: Exchange,
        wants_more: bool,
    ) {
        let now_ms = self.driver.now_ms();
        let connection = &mut self.connections[id];
        // HTTP/2 has other streams, whose next look must not be put off by each request: see `rest_frames`.
        if connection.two.is_none() {
            connection.deadline_ms = now_ms + self.settings.idle_timeout_ms;
        }
        let (pending, come, gives_up) = match answer {
            Answer::Ready(record) => return self.written(id, record, wants_more),
            Answer::Deferred { pending, gives_up } => (pending, Come::Nothing, gives_up),
            Answer::AfterBody(pending) => {
                let is_over = connection.http.is_request_whole();
                (pending, Come::Body { is_over }, false)
            }
        };
        self.defer(id, exchange, (pending, come, gives_up));
    }

    /// Keeps a request that the service has deferred.
    pub(crate) fn defer(
        &mut self,
        id: usize,
        mut exchange: Exchange,
        (pending, come, gives_up): (V::Pending, Come<V::Outcome>, bool),
    ) {
        // The service has taken the body, or does not want it.
        exchange.body = None;
        let stream = exchange.id.stream;
        let reads_body = exchange.is_body_coming && !exchange.is_body_undecided;
        self.connections[id].exchanges.of(stream).waiting = Some(Waiting {
            pending,
            exchange,
            come,
            gives_up,
            interims: Vec::new(),
        });
        self.counters.deferred.bump();
        if reads_body {
            self.send_continue(id, stream);
        }
    }

    /// A response was written, but for a stream at its end.
    fn written(&mut self, id: usize, record: Option<V::Record>, wants_more: bool) {
        let connection = &mut self.connections[id];
        if !matches!(self.out.parts.last(), Some(Part::Stream(_))) {
            connection.http.end_unseen();
        }
        // A client that did not ask for the end may have more requests on their way. Where a body is sent from where it
        // lies or as it comes, much of it may wait in the socket at the end, and any late byte would reset it away.
        let is_last = connection.http.is_closing();
        connection.leftover |= is_last && (wants_more || !self.out.parts.is_empty());
        if let Some(record) = record {
            self.note_record(record);
        }
        if is_last || !self.out.parts.is_empty() {
            if let Some(back) = self.out.back.take() {
                let stream = self.connections[id].stream();
                self.begin_tunnel(id, stream, *back);
            }
            self.flush(id);
        }
    }

    /// The response at the end of the output is logged by this once it has left.
    pub(crate) fn note_record(&mut self, record: V::Record) {
        let len = self.out.bytes.len() as u64;
        self.records.push(Leaving {
            record,
            body_at: len - self.out.body_in_bytes,
            end: self.out.parts.is_empty().then_some(len),
            framed_len: None,
        });
    }

    /// What a deferred request waited for has come.
    pub(crate) fn outcome(&mut self, id: usize, stream: StreamId, outcome: V::Outcome) {
        if self.connections[id].two.is_some() {
            return self.stream_outcome(id, stream, outcome);
        }
        let connection = &mut self.connections[id];
        let is_sending = connection.sending.is_some();
        let Some(waiting) = connection.exchanges.waiting(stream) else {
            return;
        };
        waiting.come = Come::Outcome(outcome);
        // Earlier responses may not be sent yet.
        if !is_sending {
            self.resume(id);
        }
    }

    /// Answers the requests that waited, if what they waited for has come. With HTTP/1 there is one at most.
    fn answer_waiting(&mut self, id: usize) {
        self.send_interims(id);
        while let Some(connection) = self.connections.get_mut(id) {
            if connection.sending.is_some() {
                return;
            }
            let Some(waiting) = connection.exchanges.take_due() else {
                return;
            };
            self.answer_due(id, waiting);
        }
    }

    fn answer_due(&mut self, id: usize, waiting: Waiting<V>) {
        let mut exchange = self.resumed(id, waiting.exchange);
        let connection = &mut self.connections[id];
        if self.drain_until_ms.is_some() {
            connection.http.close();
        }
        let wants_more = !connection.http.is_closing();
        let mut response = Response::new(&mut connection.http, &mut self.out, &self.date);
        let (service, pending) = (&mut self.service, waiting.pending);
        let answer = match waiting.come {
            Come::Outcome(outcome) => {
                service.resume(pending, outcome, &mut exchange, &mut response)
            }
            _ => service.body_dropped(pending, &mut exchange, &mut response),
        };
        self.answered(id, answer, exchange, wants_more);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.exchanges.tidy();
        }
        self.flush(id);
    }

    /// Refuses `input`, which is no valid request, and ends the connection.
    pub(crate) fn refuse(&mut self, id: usize, why: Refused, input: &[u8]) {
        if self.connections[id].transport.is_handshaking() {
            return self.close(id);
        }
        if self.connections[id].two.is_some() {
            return self.end_frames(id, Code::ENHANCE_YOUR_CALM, "refused");
        }
        let now_ms = self.driver.now_ms();
        let stream = self.connections[id].stream();
        let waiting = self.connections[id].exchanges.take_waiting(stream);
        let (pending, mut exchange) = match waiting {
            Some(waiting) => (Some(waiting.pending), self.resumed(id, waiting.exchange)),
            None => (None, self.exchange(id, stream, now_ms * 1000)),
        };
        let connection = &mut self.connections[id];
        connection.exchanges.clear();
        connection.begun = false;
        connection.input.clear();
        connection.leftover = true;
        connection.http.give_up();
        let mut response = Response::new(&mut connection.http, &mut self.out, &self.date);
        let (service, exchange) = (&mut self.service, &mut exchange);
        let record = match pending {
            Some(pending) => service.refuse_pending(why, pending, exchange, &mut response),
            None => {
                let partial = PartialRequest::from_head(input);
                service.refuse(why, &partial, exchange, &mut response)
            }
        };
        connection.http.end_unseen();
        if let Some(record) = record {
            self.note_record(record);
        }
        self.flush(id);
    }
}
