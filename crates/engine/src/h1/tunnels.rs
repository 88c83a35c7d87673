//! HTTP/1 connections that have become tunnels: after 101 (Switching Protocols), or passed through.

use std::task::Context;

use lowroad_http::fields::FieldLines;
use lowroad_http::protocol::{ServerProtocol, StreamId};

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::protocol::Protocol;
use crate::service::HttpService;

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Handles the end of input from the client.
    pub(crate) fn on_client_end(&mut self, worker: &mut WorkerContext<D, V>) {
        self.pass_partial_head_through(worker);
        if self.is_closed() {
            return;
        }
        let stream = self.stream();
        if !self.protocol.is_tunnel() || self.lingering {
            return match self.is_response_unfinished() {
                true => self.cut_body(stream),
                false => self.close(),
            };
        }
        let Protocol::Http1(http) = &mut self.protocol else {
            return;
        };
        http.handle_client_eof();
        if let Some(incoming) = self.exchanges.incoming(stream) {
            incoming.end(&FieldLines::NONE);
        }
        self.exchanges.end_incoming(stream);
        if self.protocol.is_finished() && self.sending.is_none() {
            self.close();
        }
    }

    /// Whether a response has begun and is not sent completely. The client may have ended its direction because of it.
    fn is_response_unfinished(&mut self) -> bool {
        let stream = self.stream();
        let Protocol::Http1(http) = &mut self.protocol else {
            return false;
        };
        let is_written = http.is_idle() && self.sending.is_none();
        !self.lingering && !is_written && http.is_answered(stream)
    }

    /// Ends the input of a connection while it sends its last response, and cuts an incomplete body.
    fn cut_body(&mut self, stream: StreamId) {
        self.leave_body_unread(stream);
        if let Protocol::Http1(http) = &mut self.protocol {
            http.handle_client_eof();
        }
        // The client sends nothing more, so that closing the socket causes no reset.
        self.leftover = false;
    }

    /// Ends the server's direction after all bytes for the client were sent.
    pub(crate) fn end_tunnel_output(&mut self, worker: &mut WorkerContext<D, V>) {
        if !self.send_close_notify(worker) {
            return; // called again when the alert was sent
        }
        if self.protocol.is_finished() {
            return self.close();
        }
        // Only this direction is closed: the client may still send.
        self.transport.finish(&mut worker.driver);
        let (now_ms, stream) = (worker.driver.now_ms(), self.stream());
        let state = self.exchanges.get(stream);
        if let Some(watch) = state.and_then(|state| state.tunnel.as_mut()) {
            self.deadline_ms = watch.half_close(now_ms);
            self.schedule_check(worker);
        }
        self.check_tunnel_reader(worker);
    }

    /// Ends a tunnel with nothing to send and a dropped reader of the client's bytes.
    pub(crate) fn check_tunnel_reader(&mut self, worker: &mut WorkerContext<D, V>) {
        if self.is_closed() {
            return;
        }
        if !self.protocol.is_tunnel() || self.sending.is_some() || self.lingering {
            return;
        }
        let (token, stream) = (self.token, self.stream());
        let Some(incoming) = self.exchanges.incoming(stream) else {
            return;
        };
        let waker = worker.wakers.waker_for(&worker.mailbox, token);
        if incoming.is_reader_gone(&mut Context::from_waker(waker)) {
            self.leftover = true;
            self.finish(worker);
        }
    }

    /// Checks whether the tunnel has made progress.
    pub(crate) fn check_tunnel_activity(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        let stream = self.stream();
        let sending = self.sending.as_ref();
        let sent = sending.map_or(0, |sending| sending.pace.bytes);
        // While bytes are being sent, the send timeout applies to the client, too.
        let is_sending = sending.is_some_and(|sending| !sending.transfer.is_awaiting());
        let next_check_ms = self.exchanges.get(stream).and_then(|state| {
            let received = state.incoming.as_ref();
            let received = received.map_or(0, |incoming| incoming.pace.bytes);
            let watch = state.tunnel.as_mut()?;
            watch.check(sent.wrapping_add(received), now_ms)
        });
        let Some(next_check_ms) = next_check_ms else {
            worker.counters.tunnel_timeouts.bump();
            return self.close();
        };
        self.deadline_ms = next_check_ms;
        if is_sending {
            self.check_sending_pace(worker);
        }
        if !self.is_closed() {
            self.deadline_ms = self.deadline_ms.min(next_check_ms);
        }
    }
}
