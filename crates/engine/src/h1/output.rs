//! Sends responses in the order of their requests.

use lowroad_http::protocol::ServerProtocol;

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::protocol::Protocol;
use crate::response_body::BodyPart;
use crate::service::HttpService;

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Handles a response after its head and body in memory were written; a streamed part of the body follows.
    pub(crate) fn on_h1_response_written(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        record: Option<V::Record>,
        may_follow: bool,
    ) {
        let Protocol::Http1(http) = &mut self.protocol else {
            return;
        };
        if !worker.out.parts.last().is_some_and(BodyPart::is_streamed) {
            http.end_sent_body();
        }
        // A client that did not ask for the close may have sent more requests. Much of a long body may still be in the
        // socket's queue at the end; closing over unread input would reset the connection and lose these bytes.
        let is_last = http.is_closing();
        self.leftover |= is_last && (may_follow || !worker.out.parts.is_empty());
        if let Some(record) = record {
            worker.push_record(record);
        }
        // The service has abandoned the exchange, so no output remains that would close the connection at its end.
        if is_last && worker.out.is_empty() && self.sending.is_none() {
            worker.report_sent(0);
            return self.finish(worker);
        }
        if is_last || !worker.out.parts.is_empty() {
            if let Some(tunnel_return) = worker.out.tunnel_return.take() {
                let stream = self.stream();
                self.begin_tunnel(worker, stream, *tunnel_return);
            }
            self.flush(worker);
        }
    }

    /// Resumes the deferred request, of which there is at most one, if its outcome has arrived.
    pub(crate) fn resume_deferred(&mut self, worker: &mut WorkerContext<D, V>) {
        self.send_interims(worker);
        while !self.is_closed() && self.sending.is_none() {
            let Some(deferred) = self.exchanges.take_due() else {
                return;
            };
            let Protocol::Http1(http) = &mut self.protocol else {
                return;
            };
            if worker.drain_until_ms.is_some() {
                http.drain(&mut worker.out.bytes);
            }
            let may_follow = !http.is_closing();
            self.resume_due(worker, deferred, may_follow);
            self.flush(worker);
        }
    }

    /// Called when all responses so far were sent. The next timeout starts now, however long the client took to receive
    /// them.
    pub(crate) fn on_h1_responses_sent(&mut self, worker: &mut WorkerContext<D, V>) {
        if self.protocol.is_tunnel() {
            return self.end_tunnel_output(worker);
        }
        let now_ms = worker.driver.now_ms();
        self.exchanges.renew_pace(now_ms);
        let timeout_ms = match self.exchanges.has_incoming() {
            true => worker.settings.body_timeout_ms,
            false if self.has_partial_head => worker.settings.header_timeout_ms,
            false => worker.idle_timeout_ms(),
        };
        self.deadline_ms = now_ms + timeout_ms;
        match self.is_over() {
            true => self.finish(worker),
            false => self.schedule_check(worker),
        }
    }

    /// Called when a body of this connection has more bytes or more room.
    pub(crate) fn handle_body_progress(&mut self, worker: &mut WorkerContext<D, V>) {
        let mut stream = None;
        while !self.is_closed() {
            stream = self.exchanges.next_incoming(stream);
            let Some(stream) = stream else { break };
            let incoming = self.exchanges.incoming(stream);
            if incoming.is_some_and(|incoming| incoming.full) {
                self.watch_incoming(worker, stream);
                self.process_buffered_input(worker);
            }
        }
        if self.is_closed() {
            return;
        }
        if let Some(sending) = &self.sending
            && sending.transfer.is_awaiting()
        {
            self.transmit(worker);
        }
        self.resume(worker);
        self.check_tunnel_reader(worker);
    }
}
