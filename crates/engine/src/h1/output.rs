//! Responses in the order of their requests.

use crate::body::Part;
use crate::connection::Connection;
use crate::context::WorkerContext;
use crate::driver::Driver;
use crate::protocol::Protocol;
use crate::service::Service;

impl<D: Driver, V: Service> Connection<D, V> {
    /// A response was written, but for a stream at its end.
    pub(crate) fn response_written(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        record: Option<V::Record>,
        wants_more: bool,
    ) {
        let Protocol::Http1(http) = &mut self.protocol else {
            return;
        };
        if !matches!(worker.out.parts.last(), Some(Part::Stream(_))) {
            http.end_unseen();
        }
        // A client that did not ask for the end may have more requests on their way. Where a body is sent from where it
        // lies or as it comes, much of it may wait in the socket at the end, and any late byte would reset it away.
        let is_last = http.is_closing();
        self.leftover |= is_last && (wants_more || !worker.out.parts.is_empty());
        if let Some(record) = record {
            worker.note_record(record);
        }
        if is_last || !worker.out.parts.is_empty() {
            if let Some(back) = worker.out.back.take() {
                let stream = self.stream();
                self.begin_tunnel(worker, stream, *back);
            }
            self.flush(worker);
        }
    }

    /// Answers the requests that waited, if what they waited for has come. With HTTP/1 there is one at most.
    pub(crate) fn answer_waiting(&mut self, worker: &mut WorkerContext<D, V>) {
        self.send_interims(worker);
        while !self.is_closed() && self.sending.is_none() {
            let Some(waiting) = self.exchanges.take_due() else {
                return;
            };
            let Protocol::Http1(http) = &mut self.protocol else {
                return;
            };
            if worker.drain_until_ms.is_some() {
                http.close();
            }
            let wants_more = !http.is_closing();
            self.answer_due(worker, waiting, wants_more);
            self.flush(worker);
        }
    }

    /// All responses so far have left: what comes next has its full time, whatever the client took for them.
    pub(crate) fn responses_sent(&mut self, worker: &mut WorkerContext<D, V>) {
        if self.protocol.is_tunnel() {
            return self.tunnel_said_all(worker);
        }
        let now_ms = worker.driver.now_ms();
        self.exchanges.renew_pace(now_ms);
        let timeout_ms = match self.exchanges.has_incoming() {
            true => worker.settings.body_timeout_ms,
            false if self.begun => worker.settings.header_timeout_ms,
            false => worker.idle_timeout_ms(),
        };
        self.deadline_ms = now_ms + timeout_ms;
        match self.is_over() {
            true => self.finish(worker),
            false => self.note(worker),
        }
    }

    /// A stream of this connection's has bytes, or room for some.
    pub(crate) fn bodies_moved(&mut self, worker: &mut WorkerContext<D, V>) {
        let mut stream = None;
        while !self.is_closed() {
            stream = self.exchanges.next_incoming(stream);
            let Some(stream) = stream else { break };
            let incoming = self.exchanges.incoming(stream);
            if incoming.is_some_and(|incoming| incoming.full) {
                self.watch_incoming(worker, stream);
                self.go_on(worker);
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
        self.look_for_reader(worker);
    }
}
