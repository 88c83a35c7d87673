//! Handles socket events of a connection, and closes and releases connections.

use lowroad_http::h3::H3Server;

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::file::FileSent;
use crate::protocol::Protocol;
use crate::service::HttpService;
use crate::stream_table::DeferredRequest;

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Handles a change of the socket's state.
    pub(crate) fn on_socket_event(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        readable: bool,
        ended: bool,
        writable: bool,
        broken: bool,
    ) {
        if broken {
            return self.on_broken(worker);
        }
        // Records that are already encrypted are sent first, as later responses follow them.
        if writable {
            self.push_encrypted(worker);
        }
        if writable && !self.is_closed() && self.sending.is_some() {
            self.on_writable(worker);
        }
        if readable && !self.is_closed() {
            self.receive(worker, ended);
        }
        // Handled last: bytes that the client sent before its half-close are read first.
        if ended && !self.is_closed() {
            self.handle_half_close(worker);
        }
    }

    /// Closes the connection: its worker removes it when the current event has been handled, and calls
    /// [`WorkerConnection::end`].
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Releases a closed connection. Incomplete responses are logged with the bytes that were sent.
    pub(crate) fn end(mut self, worker: &mut WorkerContext<D, V>) {
        match self.protocol {
            // The permit of the QUIC connection is given back by its own end.
            Protocol::Http3(_) => {
                // Responses of this turn that are in the worker's buffers.
                self.store_unframed(worker);
                self.close_quic(worker, H3Server::END_CODE, "the server closes");
            }
            // First, as the calls of the service may panic. After a PROXY header, `peer` is the client's address, to which
            // the count was moved.
            _ => worker.admission.leave(self.transport.peer),
        }
        self.abandon_deferred(worker);
        let now_ms = worker.driver.now_ms();
        for (record, len) in self.exchanges.take_records() {
            worker.service.sent(record, len, false, now_ms);
        }
        // RFC 9112 §6.3: a body without a length ends with the connection, so only a reset shows the client that it
        // was cut.
        let ends_by_close = matches!(&self.protocol, Protocol::Http1(http) if http.ends_by_close());
        let is_cut = self.sending.is_some() && ends_by_close;
        // Read before the close, because a closed socket has no state.
        let is_client_gone = self.is_client_gone(worker);
        match is_cut {
            true => self.transport.reset(&mut worker.driver),
            false => self.transport.close(&mut worker.driver),
        }
        for ended_record in self
            .sending
            .into_iter()
            .flat_map(|sending| sending.responses())
        {
            let body_len = match is_client_gone {
                true => 0,
                false => ended_record.body_len,
            };
            worker
                .service
                .sent(ended_record.record, body_len, false, now_ms);
        }
    }

    /// Reports to the service the requests that get no response.
    pub(crate) fn abandon_deferred(&mut self, worker: &mut WorkerContext<D, V>) {
        while let Some(deferred) = self.exchanges.take_any_deferred() {
            self.abandon(worker, deferred);
        }
    }

    /// Reports to the service a request that gets no response.
    pub(crate) fn abandon(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        deferred: DeferredRequest<V>,
    ) {
        let mut exchange = self.refresh_exchange(worker, deferred.exchange);
        worker.service.abandoned(deferred.pending, &mut exchange);
    }

    /// Closes a connection that the peer or the network broke.
    pub(crate) fn close_broken(&mut self, worker: &mut WorkerContext<D, V>) {
        // A reset of an idle connection is an ordinary end that loses no response.
        if !self.is_idle() && !self.lingering {
            worker.counters.broken.bump();
        }
        self.close();
    }

    /// Handles the result of a helper's transfer or read of a file.
    pub(crate) fn file_sent(&mut self, worker: &mut WorkerContext<D, V>, sent: FileSent) {
        let len = match sent {
            FileSent::Bytes { len, .. } => len,
            _ => 0,
        };
        self.transport.file_sent(len);
        match sent {
            FileSent::Changed => {
                worker.counters.file_changed.bump();
                self.cut_file(worker);
            }
            FileSent::Failed => {
                worker.counters.file_failed.bump();
                self.cut_file(worker);
            }
            FileSent::Broken => self.close_broken(worker),
            FileSent::Bytes { len, full } => self.file_progress(worker, len, full),
            FileSent::Tail(tail) => self.file_tail(worker, tail),
            FileSent::Read(bytes) => self.file_read(worker, bytes),
        }
    }
}
