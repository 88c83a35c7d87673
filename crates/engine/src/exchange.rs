//! Exchanges of a connection, for all protocols: receives bytes and passes them to the connection's protocol, passes
//! requests to the service, which answers or defers them, and resumes deferred requests.

use lowroad_http::fields::FieldLines;
use lowroad_http::h1::put_fields;
use lowroad_http::protocol::StreamId;
use lowroad_http::request::{PartialRequest, Request};

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::{IoDriver, ReceiveOutcome};
use crate::interim_response::InterimResponse;
use crate::request_id::LazyRequestId;
use crate::service::{ConnectionRefusal, Exchange, ExchangeId, HttpService, ServiceOutcome};
use crate::stream_table::{DeferredRequest, ResumeReason};
use crate::transport::Plaintext;

/// Maximum number of full reads of one connection per turn of the event loop, so that other connections are served too.
const READS_MAX: usize = 4;

/// The state of a request that is refused.
pub(crate) struct RefusedRequest<V: HttpService> {
    /// The service's state, if the service has deferred the request.
    pending: Option<V::Pending>,
    exchange: Exchange,
}

/// The state of a request that the service defers.
pub(crate) struct Deferral<V: HttpService> {
    pending: V::Pending,
    resume_reason: ResumeReason<V::Outcome>,
    cancel_on_disconnect: bool,
}

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Receives until the socket is empty or the connection stops reading. A short receive means that the socket is
    /// empty, unless the end of input was reported (`to_end`). A client that sends without a pause is served again in
    /// the next turn, after other connections.
    pub(crate) fn receive(&mut self, worker: &mut WorkerContext<D, V>, to_end: bool) {
        let mut reads = 0;
        while !self.is_closed() {
            if !self.can_receive() {
                self.unread = true;
                break;
            }
            if reads == READS_MAX {
                // Events are edge-triggered: none follows for the remaining bytes.
                worker.unfinished.push(self.token);
                break;
            }
            reads += 1;
            self.unread = false;
            let token = self.token;
            let transport = &mut self.transport;
            match transport.receive(&mut worker.driver, token, &mut worker.plain) {
                ReceiveOutcome::Bytes { buffer, more } => {
                    self.handle_received(worker, &buffer);
                    worker.return_buffer(buffer);
                    if !more && !to_end {
                        break;
                    }
                }
                ReceiveOutcome::Empty => break,
                ReceiveOutcome::End => {
                    if !self.close_without_proxy_header(worker, false) {
                        self.on_client_end(worker);
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

    fn handle_received(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        plaintext: &Plaintext<D::RecvBuffer>,
    ) {
        // A PROXY header precedes the TLS handshake, and is not encrypted.
        if self.transport.is_proxy_header_done {
            return match plaintext {
                Plaintext::Lent(buffer) => self.process_input(worker, buffer.as_ref()),
                Plaintext::Plain(plain) if self.handle_tls_progress(worker, plain) => {
                    self.process_input(worker, plain)
                }
                Plaintext::Plain(_) => {}
            };
        }
        if let Some(rest) = self.parse_proxy_header(worker, plaintext.as_ref()) {
            self.open_after_proxy_header(worker, rest);
        }
    }

    /// Handles bytes of the connection's protocol.
    pub(crate) fn process_input(&mut self, worker: &mut WorkerContext<D, V>, bytes: &[u8]) {
        if self.input.is_empty() {
            let used = self.consume(worker, bytes);
            if !self.is_closed() {
                self.input.add(&bytes[used..]);
            }
            return;
        }
        self.input.add(bytes);
        self.process_buffered_input(worker);
        if !self.is_closed() {
            // The scheduled check may be later than the new deadline.
            self.schedule_check(worker);
        }
    }

    /// Handles input that was buffered.
    pub(crate) fn process_buffered_input(&mut self, worker: &mut WorkerContext<D, V>) {
        if self.is_closed() {
            return;
        }
        let input = self.input.take();
        let used = self.consume(worker, &input);
        if !self.is_closed() {
            self.input.put_back(input, used);
        }
    }

    /// Continues a connection after a response was sent or an outcome arrived: first with the deferred request, then
    /// with buffered input, then with unread bytes.
    pub(crate) fn resume(&mut self, worker: &mut WorkerContext<D, V>) {
        if self.is_closed() {
            return;
        }
        self.proceed(worker);
        self.process_buffered_input(worker);
        if !self.is_closed() && self.unread {
            self.receive(worker, true);
        }
    }

    /// The context of a deferred request, with current times.
    pub(crate) fn refresh_exchange(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        mut exchange: Exchange,
    ) -> Exchange {
        let stream = exchange.id.stream;
        exchange.now_ms = worker.driver.now_ms();
        exchange.unix_s = worker.unix_s;
        exchange.is_body_incomplete = self.exchanges.incoming(stream).is_some();
        exchange.has_client_ended = self.client_ended;
        // The service sets these two flags again with each result.
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
            peer_user: match V::NEEDS_PEER_USER {
                true => self
                    .transport
                    .socket()
                    .and_then(|socket| worker.driver.peer_user(socket)),
                false => None,
            },
            tls: self.tls().cloned(),
            forwarded: None,
            listener: self.listener,
            protocol: self.protocol.version(),
            now_ms: worker.driver.now_ms(),
            started_us,
            unix_s: worker.unix_s,
            is_early: self.protocol.is_early(),
            body: None,
            body_len: Some(0),
            body_len_max: self.protocol.body_len_max(&worker.settings),
            is_body_incomplete: false,
            is_refused: false,
            is_unlogged: false,
            rate: None,
            is_rate_by_rule: false,
            refusal_reason: None,
            answering_rule: 0,
            is_user: false,
            authentication: None,
            has_client_ended: false,
            metric_scope: 0,
            tracing: lowroad_traces::RequestTracing::default(),
            request_id: LazyRequestId::default(),
            upstream_tries: None,
            is_body_undecided: false,
        }
    }

    /// Stores a request that the service has deferred.
    pub(crate) fn defer(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        mut exchange: Exchange,
        deferral: Deferral<V>,
    ) {
        // The service has taken the body by now, or never will.
        exchange.body = None;
        let stream = exchange.id.stream;
        if let Some(incoming) = self.exchanges.incoming(stream) {
            incoming.len_max = exchange.body_len_max;
        }
        // While the service has not decided whether it reads the body, no 100 (Continue) is sent.
        let reads_body = exchange.is_body_incomplete && !exchange.is_body_undecided;
        self.exchanges.get_or_insert(stream).deferred = Some(DeferredRequest {
            pending: deferral.pending,
            exchange,
            resume_reason: deferral.resume_reason,
            cancel_on_disconnect: deferral.cancel_on_disconnect,
            interims: Vec::new(),
        });
        worker.counters.deferred.bump();
        if reads_body {
            self.send_continue(worker, stream);
        }
    }

    /// Passes a request to the service.
    // Inlined, so that the exchange, which is large, is copied only if the request is deferred.
    #[inline(always)]
    pub(crate) fn dispatch_request(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        request: &Request<'_>,
        mut exchange: Exchange,
        may_follow: bool,
    ) {
        if let Some(deferral) = self.call_service(worker, request, &mut exchange, may_follow) {
            self.defer(worker, exchange, deferral);
        }
    }

    /// Calls the service with a request. Returns its state if it defers the request.
    fn call_service(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        request: &Request<'_>,
        exchange: &mut Exchange,
        may_follow: bool,
    ) -> Option<Deferral<V>> {
        let stream = exchange.id.stream;
        let mut response = self
            .protocol
            .response(stream, &mut worker.out, &worker.date);
        let service_outcome = worker.service.request(request, exchange, &mut response);
        // A body that the service has not taken is received and dropped.
        if exchange.body.take().is_some()
            && let Some(incoming) = self.exchanges.incoming(stream)
        {
            incoming.drop_rest();
        }
        if exchange.is_refused {
            worker.counters.refused.bump();
        }
        self.handle_service_outcome(worker, service_outcome, exchange, may_follow)
    }

    /// Handles the service's result: a response was written, or the request is deferred.
    fn handle_service_outcome(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        service_outcome: ServiceOutcome<V::Pending, V::Record>,
        exchange: &Exchange,
        may_follow: bool,
    ) -> Option<Deferral<V>> {
        // On a multiplexed connection a new request must not postpone the check of other streams.
        if !self.protocol.is_multiplexed() {
            self.deadline_ms = worker.driver.now_ms() + worker.settings.idle_timeout_ms;
        }
        match service_outcome {
            ServiceOutcome::Ready(record) => {
                self.on_response_written(worker, exchange.id.stream, record, may_follow);
                None
            }
            ServiceOutcome::Deferred {
                pending,
                cancel_on_disconnect,
            } => Some(Deferral {
                pending,
                resume_reason: ResumeReason::Pending,
                cancel_on_disconnect,
            }),
            ServiceOutcome::AfterBody(pending) => {
                let is_complete = !exchange.is_body_incomplete;
                Some(Deferral {
                    pending,
                    resume_reason: ResumeReason::Body { is_complete },
                    cancel_on_disconnect: false,
                })
            }
        }
    }

    /// Stores the outcome for which a deferred request waits.
    pub(crate) fn store_outcome(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        outcome: V::Outcome,
    ) {
        let Some(deferred) = self.exchanges.deferred(stream) else {
            return;
        };
        match deferred.resume_reason {
            // The client has reset the stream.
            ResumeReason::Dead => self.end_dead_stream(worker, stream),
            _ => deferred.resume_reason = ResumeReason::Outcome(outcome),
        }
        self.handle_outcome(worker);
    }

    /// Sends an interim response of a deferred request, after earlier responses. An interim response is dropped if the
    /// final response has been written.
    // RFC 9110 §15.2: an HTTP/1 interim response may only precede its own final response, so it waits for earlier
    // responses.
    pub(crate) fn write_interim(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        interim: &InterimResponse,
    ) {
        let is_multiplexed = self.protocol.is_multiplexed();
        let Some(deferred) = self.exchanges.deferred(stream) else {
            return;
        };
        // The engine sends 100 itself, and no final response would follow a 101.
        if !InterimResponse::is_interim_status(interim.status) {
            return;
        }
        let mut lines = Vec::new();
        put_fields(&interim.fields, &mut lines);
        let out = match is_multiplexed {
            true => &mut worker.out.bytes,
            false => &mut deferred.interims,
        };
        self.protocol
            .interim(stream, interim.status, FieldLines::new(&lines), out);
        self.commit_output(worker, stream);
        match is_multiplexed {
            // An interim response need not wait for responses on other streams.
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
    pub(crate) fn resume_all_due(&mut self, worker: &mut WorkerContext<D, V>) {
        while !self.is_closed() {
            let Some(deferred) = self.exchanges.take_due() else {
                return;
            };
            self.resume_due(worker, deferred, true);
        }
    }

    /// Resumes a deferred request with the outcome for which it waited.
    pub(crate) fn resume_due(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        deferred: DeferredRequest<V>,
        may_follow: bool,
    ) {
        let mut exchange = self.refresh_exchange(worker, deferred.exchange);
        let stream = exchange.id.stream;
        let mut response = self
            .protocol
            .response(stream, &mut worker.out, &worker.date);
        let (service, pending) = (&mut worker.service, deferred.pending);
        let service_outcome = match deferred.resume_reason {
            ResumeReason::Outcome(outcome) => {
                service.resume(pending, outcome, &mut exchange, &mut response)
            }
            _ => service.body_dropped(pending, &mut exchange, &mut response),
        };
        let deferral = self.handle_service_outcome(worker, service_outcome, &exchange, may_follow);
        if let Some(deferral) = deferral {
            self.defer(worker, exchange, deferral);
        }
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
        let deferred = self.exchanges.take_deferred(stream);
        let refused = match deferred {
            Some(deferred) => RefusedRequest {
                pending: Some(deferred.pending),
                exchange: self.refresh_exchange(worker, deferred.exchange),
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
        refusal: ConnectionRefusal,
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
            Some(pending) => service.refuse_pending(refusal, pending, exchange, &mut response),
            None => service.refuse(refusal, partial, exchange, &mut response),
        }
    }
}
