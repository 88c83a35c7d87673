//! Connections with TLS: handles a completed handshake, errors and the end of the TLS session. The session's interface
//! is in `tls_session`; its records are sent in `transport`.

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::protocol::Protocol;
use crate::service::{ConnectionRefusal, HttpService};
use crate::tls_session::{AlpnProtocol, LayerFault};
use crate::transport::TransferOutcome;

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Handles progress of the session after a receive. Returns whether the connection may continue with plaintext.
    pub(crate) fn handle_tls_progress(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        plain: &[u8],
    ) -> bool {
        match self.transport.fault() {
            None => {}
            // The connection is already ending.
            Some(_) if self.lingering => return false,
            Some(LayerFault::ClearText) => {
                worker.counters.clear_text.bump();
                // The refusal is sent in clear text, as this client does not use TLS.
                self.transport.remove_tls();
                self.refuse(worker, ConnectionRefusal::ClearText, plain);
                return false;
            }
            Some(LayerFault::Broken) => {
                worker.counters.handshake_failures.bump();
                // Closing over unread bytes would reset the connection and lose the alert.
                self.leftover = true;
                self.finish(worker);
                return false;
            }
        }
        if self.transport.is_handshaking() {
            return false;
        }
        if self.transport.take_handshake_done() {
            self.on_tls_handshake(worker);
        } else if self.transport.is_key_worn() {
            self.end_worn_connection(worker);
        }
        !self.is_closed()
    }

    /// Ends a connection when the kernel must no longer encrypt with its key: the response in progress is the last, and
    /// a request that was already received gets no response.
    fn end_worn_connection(&mut self, worker: &mut WorkerContext<D, V>) {
        if self.protocol.is_tunnel() {
            self.close();
        } else if self.is_idle() {
            self.finish(worker);
        } else if let Protocol::Http1(http) = &mut self.protocol {
            // A response with a head that is not written yet announces the close.
            http.close();
        }
    }

    /// Handles the bytes that follow the PROXY header.
    pub(crate) fn open_after_proxy_header(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        bytes: &[u8],
    ) {
        let token = self.token;
        let mut plain = std::mem::take(&mut worker.plain);
        let transport = &mut self.transport;
        if !transport.open(&mut worker.driver, token, bytes, &mut plain) {
            self.process_input(worker, bytes);
        } else if self.handle_tls_progress(worker, &plain) {
            self.process_input(worker, &plain);
        }
        worker.plain = plain;
    }

    /// Completes the handshake: the timeout for the first request starts now.
    fn on_tls_handshake(&mut self, worker: &mut WorkerContext<D, V>) {
        let now_ms = worker.driver.now_ms();
        let timeout_ms = worker.idle_timeout_ms();
        worker.counters.handshakes.bump();
        // From now on the timeout of an idle connection applies.
        self.has_partial_head = false;
        self.deadline_ms = now_ms + timeout_ms;
        let tls_info = self.transport.tls();
        if tls_info.is_some_and(|info| info.alpn == AlpnProtocol::Http2) {
            self.begin_h2(worker);
        } else {
            self.schedule_check(worker);
        }
    }

    /// Sends close_notify if the connection is finished. Returns false if the alert could not be sent yet; then the
    /// connection ends after the alert was sent.
    pub(crate) fn close_tls_if_over(&mut self, worker: &mut WorkerContext<D, V>) -> bool {
        match self.is_over() {
            true => self.send_close_notify(worker),
            false => true,
        }
    }

    /// Sends close_notify. Returns false if the alert could not be sent yet.
    pub(crate) fn send_close_notify(&mut self, worker: &mut WorkerContext<D, V>) -> bool {
        let transport = &mut self.transport;
        transport.encrypt_close_notify();
        if !transport.has_encrypted() {
            return true;
        }
        // With an empty send queue, the record is sent when the socket has room, and the send timeout applies.
        self.start_sending(worker, Some((0, 0)), 0);
        false
    }

    /// Sends TLS records that the socket has not accepted yet.
    pub(crate) fn push_encrypted(&mut self, worker: &mut WorkerContext<D, V>) {
        if self.is_closed() {
            return;
        }
        // If a response is being sent, `transmit` sends the records.
        if self.sending.is_some() || !self.transport.has_encrypted() {
            return;
        }
        let token = self.token;
        if self.transport.push(&mut worker.driver, token) == TransferOutcome::Broken {
            self.close_broken(worker);
        }
    }
}
