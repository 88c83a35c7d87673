//! Connections that are passed through from a request on.

use lowroad_http::h1::Head;
use lowroad_http::protocol::StreamId;

use crate::body::{Part, Streamed};
use crate::connection::Connection;
use crate::context::WorkerContext;
use crate::driver::Driver;
use crate::pass_through::{PassThrough, WAITING_LEN_MAX, carry};
use crate::protocol::Protocol;
use crate::service::Service;
use crate::tunnel::Tunnel;

impl<D: Driver, V: Service> Connection<D, V> {
    /// Passes a connection through if the service wants it for this request or, without a head, for bytes that are no
    /// request. `input` begins with its first byte. Returns whether the connection is passed through.
    pub(crate) fn passes_through(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        head: Option<&Head<'_>>,
        input: &[u8],
    ) -> bool {
        let is_free = !self.protocol.is_multiplexed() && self.exchanges.is_empty();
        let listener = self.listener;
        let way = is_free.then(|| worker.service.pass_through(listener, head));
        let Some(way) = way.flatten() else {
            return false;
        };
        let stream = StreamId(self.requests + 1);
        let exchange = self.exchange(worker, stream, worker.driver.now_ms() * 1000);
        let record = worker.service.passed_through(head, input, &exchange);
        self.begin_passing(worker, way, input, record);
        true
    }

    /// Passes an incomplete request head through: no more of it comes, or not in time.
    pub(crate) fn pass_rest_through(&mut self, worker: &mut WorkerContext<D, V>) {
        if self.lingering || self.protocol.is_tunnel() || !self.begun {
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
        way: PassThrough,
        input: &[u8],
        record: Option<V::Record>,
    ) {
        worker.counters.passed_through.bump();
        let (tunnel, far) = Tunnel::new(WAITING_LEN_MAX);
        let (to_client, back) = tunnel.with_idle_timeout(way.idle_timeout_ms).split();
        self.begun = false;
        self.requests += 1;
        if let Protocol::Http1(http) = &mut self.protocol {
            http.pass_through();
        }
        let stream = self.stream();
        self.begin_tunnel(worker, stream, back);
        if let Some(incoming) = self.exchanges.incoming(stream) {
            incoming.data(input);
        }
        let local = worker.local.clone();
        worker.local.tasks.spawn(carry(far, way, local)).detach();
        worker
            .out
            .parts
            .push(Part::Stream(Streamed::new(to_client)));
        worker.out.body_in_bytes = 0;
        if let Some(record) = record {
            worker.note_record(record);
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
