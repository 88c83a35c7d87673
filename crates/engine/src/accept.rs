//! Accepts connections, refuses those beyond a limit, and closes connections and listeners during a drain.
//!
//! The number of connections accepted per wake-up is a setting (Brecht, Pariag, Gammo: "accept()able strategies",
//! USENIX 2004): a low number favours requests in progress, a high number new connections.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use lowroad_http::h1::H1Server;
use lowroad_http::protocol::ServerProtocol;
use lowroad_http::request::PartialRequest;
use lowroad_limits::{ConnectionOverload, DeniedAddresses};

use crate::buffer::SendBuffer;
use crate::connection::WorkerConnection;
use crate::context::{DRAIN_IDLE_MS, WorkerContext};
use crate::driver::{
    AcceptFailure, AcceptedSocket, ConnectionToken, GENERATION_MAX, IoDriver, ListenerId,
    ReceiveOutcome,
};
use crate::input::InputBuffer;
use crate::message::SharedSocket;
use crate::protocol::Protocol;
use crate::response::ResponseWriter;
use crate::response_body::OutputBuffer;
use crate::service::{ConnectionRefusal, Exchange, HttpService};
use crate::stream_table::StreamTable;
use crate::transport::{ClientTransport, TransferOutcome};
use crate::worker::Worker;

/// How long a worker accepts nothing after file descriptors or memory ran out.
const ACCEPT_PAUSE_MS: u64 = 100;
/// How long TCP handshakes in progress may take to complete before their listener is closed or suspended.
pub(crate) const LAST_ACCEPT_MS: u64 = 200;

impl<D: IoDriver, V: HttpService> Worker<D, V> {
    pub(crate) fn accept(&mut self, listener: ListenerId) {
        for _ in 0..self.context.settings.accept_max {
            match self.context.driver.accept(listener) {
                Ok(accepted) => self.start_connection(accepted, listener),
                Err(AcceptFailure::Empty) => return,
                // Only this connection has failed (ECONNABORTED and others, accept(2)); others may wait behind it.
                Err(AcceptFailure::Gone) => {}
                // The listener is level-triggered, so without a pause the worker would spin on its event.
                Err(AcceptFailure::Exhausted) => return self.pause_accepting(),
            }
        }
    }

    pub(crate) fn start_connection(
        &mut self,
        accepted: AcceptedSocket<D::Socket>,
        listener: ListenerId,
    ) {
        let peer = accepted.peer;
        // Before TLS and without a response: a denied client costs as little as possible.
        if self.context.is_denied(peer) {
            self.context.counters.connections_denied.bump();
            return ClientTransport::new(accepted).close(&mut self.context.driver);
        }
        let expects_proxy_header = self.context.settings.expects_proxy_header(listener, peer);
        if let Err(overload) = self.admit(peer, expects_proxy_header) {
            return self.refuse_connection(ClientTransport::new(accepted), listener, overload);
        }
        let has_tls = self.context.service.has_tls(listener);
        let timeout_ms = match expects_proxy_header || has_tls {
            // A TLS or PROXY client has to send its first bytes within the timeout of a head.
            true => self.context.settings.header_timeout_ms,
            // A plain connection may stay idle.
            false => self.context.idle_timeout_ms(),
        };
        let mut transport = ClientTransport::new(accepted);
        transport.is_proxy_header_done = !expects_proxy_header;
        // An admitted connection is in the table before the service is called, so that it is counted correctly even if
        // the service panics.
        let token = self.insert_connection(transport, Protocol::default(), listener, timeout_ms);
        let mut is_registered = true;
        self.visit(token, |connection, context| {
            connection.has_partial_head = has_tls;
            if has_tls {
                let session = context.service.tls_session(listener);
                connection.transport.set_tls(session);
            }
            // Most clients have sent their request already; many connections end after one response and are never
            // registered.
            connection.receive(context, false);
            if connection.is_closed() {
                return;
            }
            is_registered = connection.register(context);
        });
        // epoll_ctl(2) is out of memory or watches, so the next connection would fail, too.
        if !is_registered {
            self.pause_accepting();
        }
    }

    /// Counts a connection against the limits of all connections and of its address. `expects_proxy_header`: `peer` is
    /// a proxy, to which the limit per address does not apply; a PROXY header will contain the client's address.
    pub(crate) fn admit(
        &self,
        peer: IpAddr,
        expects_proxy_header: bool,
    ) -> Result<(), ConnectionOverload> {
        self.context.counters.connections.bump();
        let (settings, admission) = (&self.context.settings, &self.context.admission);
        let max = settings.connections_max;
        match expects_proxy_header {
            true => admission.enter_for_proxied(peer, max),
            false => admission.enter(peer, max, settings.connections_per_address_max),
        }
    }

    /// Inserts an admitted connection into the table.
    pub(crate) fn insert_connection(
        &mut self,
        transport: ClientTransport<D::Socket>,
        protocol: Protocol,
        listener: ListenerId,
        timeout_ms: u64,
    ) -> ConnectionToken {
        let now_ms = self.context.driver.now_ms();
        // Never 0: the epoll driver uses generation 0 for its own descriptors.
        self.generation = (self.generation.wrapping_add(1) & GENERATION_MAX).max(1);
        let entry = self.connections.vacant_entry();
        let token = ConnectionToken {
            slot: entry.key() as u32,
            generation: self.generation,
        };
        entry.insert(WorkerConnection {
            has_partial_head: false,
            transport,
            protocol,
            input: InputBuffer::default(),
            deadline_ms: now_ms + timeout_ms,
            requests: 0,
            token,
            listener,
            unread: false,
            leftover: false,
            lingering: false,
            client_ended: false,
            is_closed: false,
            sending: None,
            exchanges: StreamTable::default(),
        });
        token
    }

    /// Removes a closed connection from the table and releases it.
    pub(crate) fn remove(&mut self, slot: usize) {
        self.connections.remove(slot).end(&mut self.context);
    }

    pub(crate) fn refuse_connection(
        &mut self,
        mut transport: ClientTransport<D::Socket>,
        listener: ListenerId,
        overload: ConnectionOverload,
    ) {
        match overload {
            ConnectionOverload::Connections => self.context.counters.over_connections_max.bump(),
            ConnectionOverload::Address => self.context.counters.over_address_max.bump(),
        }
        if self.context.service.has_tls(listener) {
            // A handshake would cost more than the refusal is worth.
            return transport.close(&mut self.context.driver);
        }
        let mut http = H1Server::default();
        http.stop_reading();
        let now_ms = self.context.driver.now_ms();
        let mut exchange = Exchange::without_client(
            listener,
            transport.peer,
            http.version(),
            now_ms,
            self.context.unix_s,
        );
        let mut out = OutputBuffer::default();
        let mut response = ResponseWriter::new(&mut http, &mut out, &self.context.date);
        let record = self.context.service.refuse(
            ConnectionRefusal::Overload,
            &PartialRequest::default(),
            &mut exchange,
            &mut response,
        );
        // Sent with one attempt: bytes that the socket does not accept are dropped.
        let len = out.bytes.len();
        let mut buffer = SendBuffer::Vec(out.bytes);
        let sent = transport.send(
            &mut self.context.driver,
            ConnectionToken::NONE,
            &mut buffer,
            false,
        );
        let is_complete = matches!(sent, TransferOutcome::Bytes { len: sent, .. } if sent == len);
        transport.finish(&mut self.context.driver);
        // Received bytes are read first, as closing over unread bytes would reset the connection and lose the response.
        let unread = transport.receive(
            &mut self.context.driver,
            ConnectionToken::NONE,
            &mut self.context.plain,
        );
        if let ReceiveOutcome::Bytes {
            buffer: received, ..
        } = unread
        {
            self.context.return_buffer(received);
        }
        transport.close(&mut self.context.driver);
        if let Some(record) = record {
            let body_len = if is_complete { out.body_in_bytes } else { 0 };
            self.context
                .service
                .sent(record, body_len, is_complete, self.context.driver.now_ms());
        }
    }

    pub(crate) fn pause_accepting(&mut self) {
        if self.paused_until_ms.is_none() && self.context.drain_until_ms.is_none() {
            self.context.counters.accept_pauses.bump();
            self.paused_until_ms = Some(self.context.driver.now_ms() + ACCEPT_PAUSE_MS);
            self.listeners
                .iter()
                .for_each(|id| self.context.driver.listen(*id, false));
        }
    }

    pub(crate) fn start_listening(&mut self, id: ListenerId, listener: D::Listener) {
        if self.context.drain_until_ms.is_some() {
            return;
        }
        match self.context.driver.open_listener(id, listener) {
            Ok(()) => self.listeners.push(id),
            // Without events, the clients in the listener's backlog would never be accepted.
            Err(_) => self.context.driver.close_listener(id),
        }
    }

    /// Sends a duplicate of each open listener, or the error if descriptors are lacking.
    pub(crate) fn share_listeners(&mut self, to: &Sender<SharedSocket<D::Listener>>) {
        // The other process needs sockets that listen.
        self.end_suspension();
        self.has_shared_listeners = true;
        for id in &self.listeners {
            // Fails if the receiver has stopped waiting.
            let _ = to.send((*id, self.context.driver.share_listener(*id)));
        }
    }

    /// Closes a listener from which another process accepts. Its waiting connections stay in the shared socket.
    pub(crate) fn hand_over(&mut self, listener: ListenerId) {
        self.context.driver.close_listener(listener);
        self.listeners.retain(|id| *id != listener);
    }

    /// Refuses new handshakes at a listener; those in progress have [`LAST_ACCEPT_MS`] to finish.
    pub(crate) fn stop_listening(&mut self, listener: ListenerId) {
        self.context.driver.refuse_handshakes(listener);
        self.closing
            .push((listener, self.context.driver.now_ms() + LAST_ACCEPT_MS));
        self.listeners.retain(|id| *id != listener);
    }

    pub(crate) fn close_listeners(&mut self, now_ms: u64) {
        while let Some((listener, close_ms)) = self.closing.first().copied() {
            if now_ms < close_ms {
                return;
            }
            self.accept_rest(listener);
            self.context.driver.close_listener(listener);
            // Last, as an accepted connection may panic. The list is in order of time: all listeners get the same delay.
            self.closing.remove(0);
        }
    }

    /// Accepts the connections that completed their handshake before a listener is closed or suspended.
    pub(crate) fn accept_rest(&mut self, listener: ListenerId) {
        loop {
            match self.context.driver.accept(listener) {
                Ok(accepted) => self.start_connection(accepted, listener),
                Err(AcceptFailure::Gone) => {}
                Err(_) => return,
            }
        }
    }

    /// Starts the drain: connections with a handshake in progress are still accepted, but no later ones; idle
    /// connections stay for a moment, in which a request in flight can still arrive.
    pub(crate) fn drain(&mut self, timeout_ms: u64) {
        let now_ms = self.context.driver.now_ms();
        self.context.drain_until_ms = Some(now_ms + timeout_ms);
        self.context.worker_handle.tasks.drain();
        self.clear_suspension();
        for id in self.listeners.clone() {
            self.stop_listening(id);
        }
        // The sockets stay as long as their connections.
        for port in self.context.quic.iter_mut() {
            port.is_closing = true;
        }
        self.visit_all(|connection, context| {
            connection.drain(context);
        });
    }

    /// Refuses connections of these addresses from now on, and closes the open ones.
    pub(crate) fn deny(&mut self, denied: Arc<DeniedAddresses>) {
        // First the list, then the open connections: none is accepted in between.
        self.context.denied = denied;
        if !self.context.denied.is_empty() {
            self.visit_all(|connection, context| connection.close_if_denied(context));
        }
    }

    pub(crate) fn end_drain(&mut self) {
        self.visit_all(|connection, _| connection.close());
    }

    /// Calls `act` with all connections.
    fn visit_all(&mut self, act: impl Fn(&mut WorkerConnection<D, V>, &mut WorkerContext<D, V>)) {
        // Collected first, as visiting a connection may remove it from the table.
        let tokens: Vec<ConnectionToken> =
            self.connections.iter().map(|(_, it)| it.token).collect();
        for token in tokens {
            self.visit(token, &act);
        }
    }
}

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Registers the socket for events. False: the connection is closed.
    fn register(&mut self, worker: &mut WorkerContext<D, V>) -> bool {
        let registered = self.transport.register(&mut worker.driver, self.token);
        match registered {
            Ok(()) => self.schedule_check(worker),
            Err(_) => self.close(),
        }
        registered.is_ok()
    }

    /// Closes the connection if the address of its client, or of the proxy in front of the client, is denied.
    pub(crate) fn close_if_denied(&mut self, worker: &WorkerContext<D, V>) {
        // Behind a proxy, `peer` is the client.
        let proxy = self.transport.proxy.as_deref();
        let mut addresses = [self.transport.peer].into_iter().chain(proxy.copied());
        let is_denied = addresses.any(|address| worker.is_denied(address));
        if is_denied {
            worker.counters.connections_denied.bump();
            self.close();
        }
    }

    /// Drains the connection: announces its end, and keeps an idle connection only long enough for a request in flight.
    fn drain(&mut self, worker: &mut WorkerContext<D, V>) {
        self.announce_end(worker);
        if !self.is_closed() && (self.is_idle() || self.protocol.is_multiplexed()) {
            let until_ms = worker.driver.now_ms() + DRAIN_IDLE_MS;
            self.deadline_ms = self.deadline_ms.min(until_ms);
            self.schedule_check(worker);
        }
    }
}
