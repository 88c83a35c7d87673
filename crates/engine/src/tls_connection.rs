//! Connections with a layer, as TLS: what becomes of one when its layer has moved. What a layer is, is told in `tls_session`; how
//! its bytes leave, in `transport`.

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::protocol::Protocol;
use crate::service::{ConnectionRefusal, HttpService};
use crate::tls_session::{AlpnProtocol, LayerFault};
use crate::transport::TransferOutcome;

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// The layer of a connection took what came. Whether there is something in it for the connection to go on with.
    pub(crate) fn layer_moved(&mut self, worker: &mut WorkerContext<D, V>, plain: &[u8]) -> bool {
        match self.transport.fault() {
            None => {}
            Some(_) if self.lingering => return false,
            Some(LayerFault::ClearText) => {
                worker.counters.clear_text.bump();
                self.transport.strip();
                self.refuse(worker, ConnectionRefusal::ClearText, plain);
                return false;
            }
            Some(LayerFault::Broken) => {
                worker.counters.handshake_failures.bump();
                // The alert should arrive.
                self.leftover = true;
                self.finish(worker);
                return false;
            }
        }
        if self.transport.is_handshaking() {
            return false;
        }
        if self.transport.take_new() {
            self.on_tls_handshake(worker);
        } else if self.transport.is_worn() {
            self.wear_out(worker);
        }
        !self.is_closed()
    }

    /// The kernel should not seal any more: what is under way is the last. A request that has come since is not answered.
    fn wear_out(&mut self, worker: &mut WorkerContext<D, V>) {
        if self.protocol.is_tunnel() {
            self.close();
        } else if self.is_idle() {
            self.finish(worker);
        } else if let Protocol::Http1(http) = &mut self.protocol {
            // A response that has not begun says so.
            http.close();
        }
    }

    /// Takes what followed the word of who the client is.
    pub(crate) fn open_rest(&mut self, worker: &mut WorkerContext<D, V>, bytes: &[u8]) {
        let token = self.token;
        let mut plain = std::mem::take(&mut worker.plain);
        let transport = &mut self.transport;
        if !transport.open(&mut worker.driver, token, bytes, &mut plain) {
            self.take_in(worker, bytes);
        } else if self.layer_moved(worker, &plain) {
            self.take_in(worker, &plain);
        }
        worker.plain = plain;
    }

    /// Both sides have agreed: now the client may take its time for its first request.
    fn on_tls_handshake(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        let timeout_ms = worker.idle_timeout_ms();
        worker.counters.handshakes.bump();
        self.begun = false;
        self.deadline_ms = now_ms + timeout_ms;
        let secured = self.transport.tls();
        if secured.is_some_and(|it| it.inside == AlpnProtocol::Http2) {
            self.begin_h2(worker);
        } else {
            self.schedule_check(worker);
        }
    }

    /// Says the end of a connection that is over. Whether that has left: if not, the connection ends when it has.
    pub(crate) fn end_layer(&mut self, worker: &mut WorkerContext<D, V>) -> bool {
        match self.is_over() {
            true => self.say_end(worker),
            false => true,
        }
    }

    /// Says that nothing more will be sent. Whether that has left.
    pub(crate) fn say_end(&mut self, worker: &mut WorkerContext<D, V>) -> bool {
        let transport = &mut self.transport;
        transport.say_end();
        if !transport.has_sealed() {
            return true;
        }
        self.start_sending(worker, Some((0, 0)), 0);
        false
    }

    /// There may be room for what the layer has sealed.
    pub(crate) fn push_sealed(&mut self, worker: &mut WorkerContext<D, V>) {
        if self.is_closed() {
            return;
        }
        // What is being sent pushes by itself.
        if self.sending.is_some() || !self.transport.has_sealed() {
            return;
        }
        let token = self.token;
        if self.transport.push(&mut worker.driver, token) == TransferOutcome::Broken {
            self.close_broken(worker);
        }
    }
}
