//! From received bytes to responses, for all protocols: bytes go to the protocol until the socket is empty; a request
//! goes to the service, which answers at once or defers it; a deferred request is resumed.

use lowroad_http::fields::FieldLines;
use lowroad_http::h1::put_fields;
use lowroad_http::protocol::StreamId;
use lowroad_http::request::{PartialRequest, Request};

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::{IoDriver, ReceiveOutcome};
use crate::interim_response::InterimResponse;
use crate::service::{ConnectionRefusal, Exchange, ExchangeId, HttpService, ServiceOutcome};
use crate::stream_table::{DeferredRequest, ResumeReason};
use crate::transport::Plaintext;

/// Full reads of one connection in one turn of the event loop, before other connections get their turn.
const READS_MAX: usize = 4;

/// A request that is refused.
pub(crate) struct RefusedRequest<V: HttpService> {
    /// The service's state, if the service has deferred it.
    pending: Option<V::Pending>,
    exchange: Exchange,
}

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Receives until the socket is empty or the connection stops reading. A short receive means empty, unless the
    /// peer's end was reported (`to_end`). A client that sends without a pause continues in the next turn, after the
    /// others.
    pub(crate) fn receive(&mut self, worker: &mut WorkerContext<D, V>, to_end: bool) {
        let mut reads = 0;
        while !self.is_closed() {
            if !self.reads() {
                self.unread = true;
                break;
            }
            if reads == READS_MAX {
                // Edge-triggered: no event follows for the remaining bytes.
                worker.unfinished.push(self.token);
                break;
            }
            reads += 1;
            self.unread = false;
            let token = self.token;
            let transport = &mut self.transport;
            match transport.receive(&mut worker.driver, token, &mut worker.plain) {
                ReceiveOutcome::Bytes { lent, more } => {
                    self.received(worker, &lent);
                    worker.give_back(lent);
                    if !more && !to_end {
                        break;
                    }
                }
                ReceiveOutcome::Empty => break,
                ReceiveOutcome::End => {
                    if !self.ended_unintroduced(worker, false) {
                        self.client_ended(worker);
                    }
                    break;
                }
                ReceiveOutcome::Broken => {
                    self.close_broken(worker);
                    break;
                }
            }
        }
    }

    fn received(&mut self, worker: &mut WorkerContext<D, V>, came: &Plaintext<D::Lent>) {
        // A PROXY header precedes the TLS handshake, so its bytes are not decrypted.
        if self.transport.is_introduced {
            return match came {
                Plaintext::Lent(lent) => self.take_in(worker, lent.as_ref()),
                Plaintext::Plain(plain) if self.layer_moved(worker, plain) => {
                    self.take_in(worker, plain)
                }
                Plaintext::Plain(_) => {}
            };
        }
        if let Some(rest) = self.introduction(worker, came.as_ref()) {
            self.open_rest(worker, rest);
        }
    }

    /// Handles bytes of the connection's protocol.
    pub(crate) fn take_in(&mut self, worker: &mut WorkerContext<D, V>, bytes: &[u8]) {
        if self.input.is_empty() {
            let used = self.consume(worker, bytes);
            if !self.is_closed() {
                self.input.add(&bytes[used..]);
            }
            return;
        }
        self.input.add(bytes);
        self.go_on(worker);
        if !self.is_closed() {
            // The check may be scheduled for later than the new deadline, if a slow head's wait came before.
            self.schedule_check(worker);
        }
    }

    /// Handles kept input.
    pub(crate) fn go_on(&mut self, worker: &mut WorkerContext<D, V>) {
        if self.is_closed() {
            return;
        }
        let input = self.input.take();
        let used = self.consume(worker, &input);
        if !self.is_closed() {
            self.input.put_back(input, used);
        }
    }

    /// Continues a connection after a response was sent, or when one can be made: with the deferred request, then with kept
    /// input, then with new bytes.
    pub(crate) fn resume(&mut self, worker: &mut WorkerContext<D, V>) {
        if self.is_closed() {
            return;
        }
        self.proceed(worker);
        self.go_on(worker);
        if !self.is_closed() && self.unread {
            self.receive(worker, true);
        }
    }

    /// The context of a deferred request, with current times.
    pub(crate) fn resumed(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        mut exchange: Exchange,
    ) -> Exchange {
        let stream = exchange.id.stream;
        exchange.now_ms = worker.driver.now_ms();
        exchange.unix_s = worker.unix_s;
        exchange.is_body_coming = self.exchanges.incoming(stream).is_some();
        // Each answer of the service sets these anew.
        exchange.is_refused = false;
        exchange.is_body_undecided = false;
        exchange
    }

    /// The context of a new request.
    pub(crate) fn exchange(
        &self,
        worker: &WorkerContext<D, V>,
        stream: StreamId,
        started_us: u64,
    ) -> Exchange {
        Exchange {
            id: ExchangeId {
                connection: self.token,
                stream,
            },
            peer: self.transport.peer,
            peer_port: self.transport.peer_port,
            proxy: self.transport.proxy.as_deref().copied(),
            secured: self.transport.tls().cloned(),
            forwarded: None,
            listener: self.listener,
            protocol: self.protocol.version(),
            now_ms: worker.driver.now_ms(),
            started_us,
            unix_s: worker.unix_s,
            body: None,
            body_len: Some(0),
            body_len_max: self.protocol.body_len_max(&worker.settings),
            is_body_coming: false,
            is_refused: false,
            is_user: false,
            metric_scope: 0,
            is_body_undecided: false,
        }
    }

    /// Keeps a request that the service has deferred.
    pub(crate) fn defer(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        mut exchange: Exchange,
        pending: V::Pending,
        come: ResumeReason<V::Outcome>,
        gives_up: bool,
    ) {
        // The service has taken the body, or does not want it.
        exchange.body = None;
        let stream = exchange.id.stream;
        // A client that expects 100 (Continue) waits for it; an undecided service may still refuse the body.
        let reads_body = exchange.is_body_coming && !exchange.is_body_undecided;
        self.exchanges.get_mut(stream).waiting = Some(DeferredRequest {
            pending,
            exchange,
            come,
            gives_up,
            interims: Vec::new(),
        });
        worker.counters.deferred.bump();
        if reads_body {
            self.send_continue(worker, stream);
        }
    }

    /// Passes a request to the service.
    pub(crate) fn ask(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        request: &Request<'_>,
        mut exchange: Exchange,
        wants_more: bool,
    ) {
        let stream = exchange.id.stream;
        let mut response = self
            .protocol
            .response(stream, &mut worker.out, &worker.date);
        let answer = worker
            .service
            .request(request, &mut exchange, &mut response);
        // The service has not taken the body.
        if exchange.body.take().is_some()
            && let Some(incoming) = self.exchanges.incoming(stream)
        {
            incoming.drop_rest();
        }
        if exchange.is_refused {
            worker.counters.refused.bump();
        }
        self.answered(worker, answer, exchange, wants_more);
    }

    /// Handles the service's result: a response was written, or the request is deferred.
    fn answered(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        answer: ServiceOutcome<V::Pending, V::Record>,
        exchange: Exchange,
        wants_more: bool,
    ) {
        // On a multiplexed connection a new request must not postpone the check of other streams.
        if !self.protocol.is_multiplexed() {
            self.deadline_ms = worker.driver.now_ms() + worker.settings.idle_timeout_ms;
        }
        let (pending, come, gives_up) = match answer {
            ServiceOutcome::Ready(record) => {
                return self.written(worker, exchange.id.stream, record, wants_more);
            }
            ServiceOutcome::Deferred { pending, gives_up } => {
                (pending, ResumeReason::Nothing, gives_up)
            }
            ServiceOutcome::AfterBody(pending) => {
                let is_over = !exchange.is_body_coming;
                (pending, ResumeReason::Body { is_over }, false)
            }
        };
        self.defer(worker, exchange, pending, come, gives_up);
    }

    /// Stores the outcome of a deferred request's wait.
    pub(crate) fn outcome(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        outcome: V::Outcome,
    ) {
        let Some(waiting) = self.exchanges.waiting(stream) else {
            return;
        };
        match waiting.come {
            // The client has reset the stream meanwhile.
            ResumeReason::Dead => self.end_dead_stream(worker, stream),
            _ => waiting.come = ResumeReason::Outcome(outcome),
        }
        self.outcome_came(worker);
    }

    /// Sends an interim response of a deferred request, after earlier responses. It is dropped if the final response
    /// has been written.
    // RFC 9110 §15.2: an HTTP/1 interim response may only precede its own final response, so it waits its turn.
    pub(crate) fn interim(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        interim: &InterimResponse,
    ) {
        let is_multiplexed = self.protocol.is_multiplexed();
        let Some(waiting) = self.exchanges.waiting(stream) else {
            return;
        };
        // The engine sends 100 itself, and no final response would follow a 101.
        if !InterimResponse::is_one(interim.status) {
            return;
        }
        let mut lines = Vec::new();
        put_fields(&interim.fields, &mut lines);
        let out = match is_multiplexed {
            true => &mut worker.out.bytes,
            false => &mut waiting.interims,
        };
        self.protocol
            .interim(stream, interim.status, FieldLines::new(&lines), out);
        match is_multiplexed {
            // On a stream, an interim response need not wait for responses of others.
            true => self.flush(worker),
            false => self.send_interims(worker),
        }
    }

    /// Sends the interim responses that are due, unless earlier responses are being sent.
    pub(crate) fn send_interims(&mut self, worker: &mut WorkerContext<D, V>) {
        if self.is_closed() {
            return;
        }
        if self.sending.is_some() {
            return;
        }
        if let Some(bytes) = self.exchanges.take_interims() {
            worker.out.bytes.extend_from_slice(&bytes);
            self.flush(worker);
        }
    }

    /// Resumes all requests that are due, in any order.
    pub(crate) fn answer_due_all(&mut self, worker: &mut WorkerContext<D, V>) {
        while !self.is_closed() {
            let Some(waiting) = self.exchanges.take_due() else {
                return;
            };
            self.answer_due(worker, waiting, true);
        }
    }

    /// Resumes a request with the outcome of its wait.
    pub(crate) fn answer_due(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        waiting: DeferredRequest<V>,
        wants_more: bool,
    ) {
        let mut exchange = self.resumed(worker, waiting.exchange);
        let stream = exchange.id.stream;
        let mut response = self
            .protocol
            .response(stream, &mut worker.out, &worker.date);
        let (service, pending) = (&mut worker.service, waiting.pending);
        let answer = match waiting.come {
            ResumeReason::Outcome(outcome) => {
                service.resume(pending, outcome, &mut exchange, &mut response)
            }
            _ => service.body_dropped(pending, &mut exchange, &mut response),
        };
        self.answered(worker, answer, exchange, wants_more);
        if !self.is_closed() {
            self.exchanges.tidy();
        }
    }

    /// Takes the state of a request that is refused.
    pub(crate) fn take_refused(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
    ) -> RefusedRequest<V> {
        let waiting = self.exchanges.take_waiting(stream);
        let refused = match waiting {
            Some(waiting) => RefusedRequest {
                pending: Some(waiting.pending),
                exchange: self.resumed(worker, waiting.exchange),
            },
            None => RefusedRequest {
                pending: None,
                exchange: self.exchange(worker, stream, worker.driver.now_ms() * 1000),
            },
        };
        self.exchanges.remove(stream);
        refused
    }

    /// Lets the service write a refusal. Returns the response's record.
    pub(crate) fn write_refusal(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        refused: RefusedRequest<V>,
        why: ConnectionRefusal,
        partial: &PartialRequest<'_>,
    ) -> Option<V::Record> {
        let RefusedRequest {
            pending,
            mut exchange,
        } = refused;
        let (stream, exchange) = (exchange.id.stream, &mut exchange);
        let mut response = self
            .protocol
            .response(stream, &mut worker.out, &worker.date);
        let service = &mut worker.service;
        match pending {
            Some(pending) => service.refuse_pending(why, pending, exchange, &mut response),
            None => service.refuse(why, partial, exchange, &mut response),
        }
    }
}
