//! Connections that are passed through to another server, starting with a request.

use lowroad_http::h1::H1RequestHead;
use lowroad_http::protocol::StreamId;

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::pass_through::{PassThroughTarget, WAITING_LEN_MAX, forward_connection};
use crate::protocol::Protocol;
use crate::response_body::{BodyPart, StreamedBody};
use crate::service::HttpService;
use crate::tunnel::ClientTunnel;

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Passes a connection through if the service decides so for this request or, without a head, for bytes that are
    /// not HTTP. `input` begins with the first byte of the request. Returns whether the connection is passed through.
    pub(crate) fn passes_through(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        head: Option<&H1RequestHead<'_>>,
        input: &[u8],
    ) -> bool {
        let is_free = !self.protocol.is_multiplexed() && self.exchanges.is_empty();
        let listener = self.listener;
        let target = is_free.then(|| worker.service.pass_through(listener, head));
        let Some(target) = target.flatten() else {
            return false;
        };
        // The stream that `begin_passing` starts.
        let stream = StreamId(self.requests + 1);
        let exchange = self.exchange(worker, stream, worker.driver.now_ms() * 1000);
        let record = worker.service.passed_through(head, input, &exchange);
        self.begin_passing(worker, target, input, record);
        true
    }

    /// Passes an incomplete request head through, after the end of input or the timeout for heads.
    pub(crate) fn pass_partial_head_through(&mut self, worker: &mut WorkerContext<D, V>) {
        if self.lingering || self.protocol.is_tunnel() || !self.has_partial_head {
            return;
        }
        let input = self.input.take();
        if !self.passes_through(worker, None, &input) && !self.is_closed() {
            self.input.put_back(input, 0);
        }
    }

    fn begin_passing(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        target: PassThroughTarget,
        input: &[u8],
        record: Option<V::Record>,
    ) {
        worker.counters.passed_through.bump();
        let (tunnel, tunnel_peer) = ClientTunnel::new(WAITING_LEN_MAX);
        let (to_client, tunnel_return) = tunnel.with_idle_timeout(target.idle_timeout_ms).split();
        self.has_partial_head = false;
        self.requests += 1;
        if let Protocol::Http1(http) = &mut self.protocol {
            http.pass_through();
        }
        let stream = self.stream();
        self.begin_tunnel(worker, stream, tunnel_return);
        if let Some(incoming) = self.exchanges.incoming(stream) {
            incoming.data(input);
        }
        let local = worker.worker_handle.clone();
        // The task is detached: it ends when both directions have ended, or the connection closes.
        worker
            .worker_handle
            .tasks
            .spawn(forward_connection(tunnel_peer, target, local))
            .detach();
        worker
            .out
            .parts
            .push(BodyPart::Stream(StreamedBody::new(to_client)));
        worker.out.body_in_bytes = 0;
        if let Some(record) = record {
            worker.push_record(record);
        }
        // Responses to earlier requests are sent first.
        match worker.out.bytes.is_empty() {
            true => self.start_sending(worker, Some((0, 0)), 0),
            false => self.flush(worker),
        }
        if !self.is_closed() {
            self.watch_incoming(worker, stream);
        }
    }
}
