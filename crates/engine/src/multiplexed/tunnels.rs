//! Tunnels on streams (RFC 8441, RFC 9220): DATA frames carry the tunnel's bytes in both directions. The end of the
//! stream corresponds to a TCP half-close, and its reset to a reset.

use std::task::Context;

use lowroad_http::fields::FieldLines;
use lowroad_http::protocol::StreamId;

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::multiplexed::StreamAbort;
use crate::service::HttpService;
use crate::tunnel::TunnelReturn;

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Starts the tunnel of a stream after the response that changed its protocol.
    pub(crate) fn begin_stream_tunnel(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        stream: StreamId,
        tunnel_return: TunnelReturn,
    ) {
        self.begin_tunnel(worker, stream, tunnel_return);
        if self.protocol.has_whole_request(stream) {
            // The stream ended with the request: the client sends no bytes.
            if let Some(incoming) = self.exchanges.incoming(stream) {
                incoming.end(&FieldLines::NONE);
            }
            self.exchanges.end_incoming(stream);
        }
    }

    /// Removes a tunnel that has ended in both directions, or has a dropped reader.
    pub(crate) fn settle_tunnel(&mut self, worker: &mut WorkerContext<D, V>, stream: StreamId) {
        if self.is_closed() {
            return;
        }
        let token = self.token;
        let Some(state) = self.exchanges.get(stream) else {
            return;
        };
        if state.tunnel.is_none() || state.body.is_some() {
            return;
        }
        let waker = worker.wakers.waker_for(&worker.mailbox, token);
        let mut context = Context::from_waker(waker);
        let incoming = state.incoming.as_ref();
        if incoming.is_none_or(|incoming| incoming.is_reader_gone(&mut context)) {
            self.exchanges.remove(stream);
            self.protocol.discard_body(stream, &mut worker.out.bytes);
        }
    }

    /// Ends the inactive tunnels of a connection. Returns whether there were any.
    pub(crate) fn cut_silent_tunnels(&mut self, worker: &mut WorkerContext<D, V>) -> bool {
        let now_ms = worker.driver.now_ms();
        let states = self.exchanges.iter();
        let tunnels = states.filter(|it| it.tunnel.is_some());
        let streams: Vec<StreamId> = tunnels.map(|it| it.stream).collect();
        let mut is_cut = false;
        for stream in streams {
            let Some(state) = self.exchanges.get(stream) else {
                continue;
            };
            let received = state.incoming.as_ref();
            let received = received.map_or(0, |incoming| incoming.pace.bytes);
            let sent = state.body.as_ref().map_or(0, |body| body.sent());
            let watch = state.tunnel.as_mut();
            if watch.is_some_and(|watch| watch.check(sent.wrapping_add(received), now_ms).is_none())
            {
                worker.counters.tunnel_timeouts.bump();
                self.cut_stream(worker, stream, StreamAbort::Cancelled);
                is_cut = true;
            }
        }
        is_cut
    }
}
