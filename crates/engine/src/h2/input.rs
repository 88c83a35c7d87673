//! From frames to requests: the events of a connection's protocol, and who is asked about them.

use lowroad_http::fields::Lines;
use lowroad_http::h2::{self, Event, Head};
use lowroad_http::protocol::ServerProtocol;
use lowroad_http::refusal::Refusal;
use lowroad_http::request::PartialRequest;

use crate::driver::Driver;
use crate::incoming::{Incoming, WAITING_LEN_MAX};
use crate::response::Response;
use crate::service::{Answer, Exchange, Refused, Service};
use crate::stream;
use crate::underway::{Come, StreamId, Waiting};
use crate::worker::Worker;

/// What one look at the input gave, with what is borrowed of it copied or used.
enum Did {
    Something,
    Nothing,
    Ended,
}

impl<D: Driver, V: Service> Worker<D, V> {
    /// Takes what `input` holds, and sends what comes of it. Returns how much was used.
    pub(crate) fn consume_frames(&mut self, id: usize, input: &[u8]) -> usize {
        let mut used = 0;
        let mut text = std::mem::take(&mut self.h2.text);
        while let Some(connection) = self.connections.get(id) {
            if connection.lingering {
                used = input.len();
                break;
            }
            match self.step_frames(id, &input[used..], &mut text, &mut used) {
                Did::Something => {}
                Did::Nothing => break,
                Did::Ended => {
                    // What follows must not destroy our last word.
                    self.connections[id].leftover = true;
                    used = input.len();
                    break;
                }
            }
            if self.out.bytes.len() >= super::OUT_LEN_MAX {
                self.emit(id);
            }
        }
        self.h2.text = text;
        self.tell_h2();
        self.emit(id);
        self.rest_frames(id);
        used
    }

    /// Looks at the start of the input once.
    fn step_frames(
        &mut self,
        id: usize,
        input: &[u8],
        text: &mut Vec<u8>,
        used: &mut usize,
    ) -> Did {
        let now_ms = self.driver.now_ms();
        let Some(two) = &mut self.connections[id].two else {
            return Did::Nothing;
        };
        let mut turn = h2::Turn {
            now_ms,
            settings: &self.settings.h2,
            out: &mut self.out.bytes,
            counters: &mut self.h2.counters,
        };
        let mut place = None;
        let Ok(step) = two.http.next(input, text, &mut place, &mut turn) else {
            return Did::Ended;
        };
        *used += step.used;
        match step.event {
            None if step.used == 0 => return Did::Nothing,
            None => {}
            Some(Event::Request(head)) => self.stream_request(id, head),
            Some(Event::Data { stream, data }) => self.stream_data(id, stream, data),
            Some(Event::End { stream, trailers }) => {
                self.stream_ended(id, stream, &trailers);
            }
            Some(Event::Refused {
                stream,
                refusal,
                request,
            }) => self.refuse_stream(id, stream, refusal, &request.unwrap_or_default()),
            Some(Event::Reset { stream, .. }) => self.stream_reset(id, stream),
        }
        Did::Something
    }

    fn stream_request(&mut self, id: usize, head: &Head<'_>) {
        let now_ms = self.driver.now_ms();
        self.counters.requests.bump();
        let requests_max = self.settings.requests_max;
        let connection = &mut self.connections[id];
        connection.requests += 1;
        let is_last = requests_max > 0 && connection.requests >= requests_max;
        if let Some(two) = &mut connection.two {
            two.used_ms = now_ms;
            if is_last {
                // What the client has sent meanwhile still counts.
                two.is_draining = true;
                two.http.drain(&mut self.out.bytes);
            }
        }
        let stream = head.stream;
        let mut exchange = self.exchange(id, stream, now_ms * 1000);
        // The bytes of a tunnel are nobody's before it was answered.
        let has_body = head.has_body && head.protocol.is_none();
        if has_body {
            let (to, from) = stream::stream(WAITING_LEN_MAX);
            let incoming = Incoming::new(to, now_ms);
            exchange.body = Some(from);
            exchange.body_len = head.body_len;
            exchange.is_body_coming = true;
            self.connections[id].exchanges.of(stream).incoming = Some(incoming);
        }
        let connection = &mut self.connections[id];
        let Some(two) = &mut connection.two else {
            return;
        };
        let mut response =
            Response::of_stream(&mut two.http, head.stream, &mut self.out, &self.date);
        let answer = self
            .service
            .request(&head.request, &mut exchange, &mut response);
        let connection = &mut self.connections[id];
        if exchange.body.take().is_some()
            && let Some(incoming) = connection.exchanges.incoming(stream)
        {
            incoming.drop_rest();
        }
        if exchange.is_refused {
            self.counters.refused.bump();
        }
        self.stream_answered(id, answer, exchange);
    }

    /// A response was written, or will be.
    pub(crate) fn stream_answered(
        &mut self,
        id: usize,
        answer: Answer<V::Pending, V::Record>,
        exchange: Exchange,
    ) {
        let stream = exchange.id.stream;
        let (pending, come, gives_up) = match answer {
            Answer::Ready(record) => return self.stream_written(id, stream, record),
            Answer::Deferred { pending, gives_up } => (pending, Come::Nothing, gives_up),
            Answer::AfterBody(pending) => {
                let is_over = !exchange.is_body_coming;
                (pending, Come::Body { is_over }, false)
            }
        };
        self.defer(id, exchange, (pending, come, gives_up));
    }

    /// Answers a stream that is no request.
    fn refuse_stream(
        &mut self,
        id: usize,
        stream: StreamId,
        refusal: Refusal,
        partial: &PartialRequest<'_>,
    ) {
        self.counters.refused.bump();
        let connection = &mut self.connections[id];
        let Some(two) = &mut connection.two else {
            return;
        };
        if two.http.is_answered(stream) {
            // Its body has become too long meanwhile: who reads it finds it cut.
            return connection.exchanges.end_incoming(stream);
        }
        self.write_refusal(id, stream, Refused::Request(refusal), partial);
    }

    /// Answers a stream with a refusal, and forgets what was under way for it.
    pub(crate) fn write_refusal(
        &mut self,
        id: usize,
        stream: StreamId,
        why: Refused,
        partial: &PartialRequest<'_>,
    ) {
        let now_ms = self.driver.now_ms();
        let waiting = self.connections[id].exchanges.take_waiting(stream);
        let (pending, mut exchange) = match waiting {
            Some(waiting) => (Some(waiting.pending), self.resumed(id, waiting.exchange)),
            None => (None, self.exchange(id, stream, now_ms * 1000)),
        };
        let connection = &mut self.connections[id];
        connection.exchanges.remove(stream);
        let Some(two) = &mut connection.two else {
            return;
        };
        let http = &mut two.http;
        let mut response = Response::of_stream(http, stream, &mut self.out, &self.date);
        let (service, exchange) = (&mut self.service, &mut exchange);
        let record = match pending {
            Some(pending) => service.refuse_pending(why, pending, exchange, &mut response),
            None => service.refuse(why, partial, exchange, &mut response),
        };
        self.stream_written(id, stream, record);
    }

    /// Some of a request's body has come.
    fn stream_data(&mut self, id: usize, stream: StreamId, data: &[u8]) {
        self.body_came(id, stream, data);
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let Some(two) = &mut connection.two else {
            return;
        };
        match connection.exchanges.incoming(stream) {
            None => two.http.taken(stream, data.len(), &mut self.out.bytes),
            Some(incoming) => {
                incoming.untaken += data.len();
                self.take_stream(id, stream);
            }
        }
    }

    /// A request's body has come whole.
    fn stream_ended(&mut self, id: usize, stream: StreamId, trailers: &Lines<'_>) {
        let connection = &mut self.connections[id];
        if let Some(incoming) = connection.exchanges.incoming(stream) {
            incoming.end(trailers);
        }
        connection.exchanges.end_incoming(stream);
        self.settle_tunnel(id, stream);
        self.answer_due_streams(id);
    }

    /// There may be room for more of a body: then the client may send more.
    pub(crate) fn take_stream(&mut self, id: usize, stream: StreamId) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let Some(two) = &mut connection.two else {
            return;
        };
        if let Some(incoming) = connection.exchanges.incoming(stream)
            && !incoming.full
        {
            let len = std::mem::take(&mut incoming.untaken);
            two.http.taken(stream, len, &mut self.out.bytes);
        }
    }

    /// A stream has ended before its time. Who works for it alone stops; until others have, the client has one stream less.
    fn stream_reset(&mut self, id: usize, stream: StreamId) {
        let connection = &mut self.connections[id];
        let Some(two) = &mut connection.two else {
            return;
        };
        if let Some(it) = connection.exchanges.get(stream) {
            it.incoming = None;
            let record = it.body.take().and_then(|body| body.left());
            if let Some((record, len)) = record {
                let now_ms = self.driver.now_ms();
                self.service.sent(record, len, false, now_ms);
            }
            if let Some(waiting) = &mut it.waiting
                && !waiting.gives_up
                && matches!(waiting.come, Come::Nothing)
            {
                waiting.come = Come::Dead;
                return;
            }
        }
        let waiting = connection.exchanges.take_waiting(stream);
        connection.exchanges.remove(stream);
        two.http.done(stream, &mut self.out.bytes);
        if let Some(waiting) = waiting {
            self.abandon(id, waiting);
        }
    }

    /// Answers the requests of which has come what they waited for.
    pub(crate) fn answer_due_streams(&mut self, id: usize) {
        while let Some(connection) = self.connections.get_mut(id) {
            let Some(waiting) = connection.exchanges.take_due() else {
                return;
            };
            self.answer_due_stream(id, waiting);
        }
    }

    fn answer_due_stream(&mut self, id: usize, waiting: Waiting<V>) {
        let mut exchange = self.resumed(id, waiting.exchange);
        let stream = exchange.id.stream;
        let connection = &mut self.connections[id];
        let Some(two) = &mut connection.two else {
            return;
        };
        let (service, pending) = (&mut self.service, waiting.pending);
        let http = &mut two.http;
        let mut response = Response::of_stream(http, stream, &mut self.out, &self.date);
        let answer = match waiting.come {
            Come::Outcome(outcome) => {
                service.resume(pending, outcome, &mut exchange, &mut response)
            }
            _ => service.body_dropped(pending, &mut exchange, &mut response),
        };
        self.stream_answered(id, answer, exchange);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.exchanges.tidy();
        }
    }

    /// What a request waited for has come.
    pub(crate) fn stream_outcome(&mut self, id: usize, stream: StreamId, outcome: V::Outcome) {
        let connection = &mut self.connections[id];
        let Some(waiting) = connection.exchanges.waiting(stream) else {
            return;
        };
        if let Come::Dead = waiting.come {
            let waiting = connection.exchanges.take_waiting(stream);
            connection.exchanges.remove(stream);
            if let Some(two) = &mut connection.two {
                two.http.done(stream, &mut self.out.bytes);
            }
            if let Some(waiting) = waiting {
                self.abandon(id, waiting);
            }
        } else {
            waiting.come = Come::Outcome(outcome);
            self.answer_due_streams(id);
        }
        self.emit(id);
        self.rest_frames(id);
    }
}
