//! Progress and timeouts of the bodies of a connection.

use std::task::Context;

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::service::HttpService;

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Drops request bodies that are no longer read, of streams with a complete response. From then on a fixed time for
    /// the rest of the body applies, instead of a minimum pace.
    pub(crate) fn cancel_unread_bodies(&mut self, worker: &mut WorkerContext<D, V>) {
        let mut last = None;
        while !self.is_closed() {
            last = self.exchanges.next_incoming(last);
            let Some(stream) = last else { return };
            let token = self.token;
            let waker = worker.wakers.waker_for(&worker.mailbox, token);
            let mut context = Context::from_waker(waker);
            let state = self.exchanges.get(stream);
            let is_unread = state.is_some_and(|state| {
                let incoming = state.incoming.as_ref();
                state.tunnel.is_none()
                    && incoming.is_some_and(|body| body.is_reader_gone(&mut context))
            });
            if let Some(session) = self.protocol.multiplexed()
                && is_unread
                && session.http.is_response_complete(stream)
            {
                session.http.discard_body(stream, &mut worker.out.bytes);
                self.exchanges.end_incoming(stream);
            }
        }
    }

    /// Reports incomplete responses to the service, and drops all pending exchanges.
    pub(crate) fn drop_bodies(&mut self, worker: &mut WorkerContext<D, V>) {
        self.abandon_deferred(worker);
        let now_ms = worker.driver.now_ms();
        for (record, len) in self.exchanges.take_records() {
            worker.service.sent(record, len, false, now_ms);
        }
        self.exchanges.clear();
    }

    /// Called when a body has more bytes or more room.
    pub(crate) fn handle_stream_progress(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        let mut stream = None;
        while !self.is_closed() {
            stream = self.exchanges.next_incoming(stream);
            let Some(stream) = stream else { break };
            let token = self.token;
            if let Some(incoming) = self.exchanges.incoming(stream)
                && incoming.full
            {
                let waker = worker.wakers.waker_for(&worker.mailbox, token);
                incoming.poll_room(&mut Context::from_waker(waker), now_ms);
            }
            self.return_stream_window(worker, stream);
            self.settle_tunnel(worker, stream);
        }
        self.advance_all(worker);
        self.emit_and_schedule(worker);
    }
}
