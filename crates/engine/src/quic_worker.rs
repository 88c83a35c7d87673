//! A worker's QUIC: receives datagrams, passes the events of connections to the protocol, and sends the output.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use lowroad_limits::{ConnectionLimit, ConnectionOverload};

use crate::counters::WorkerCounters;

use crate::datagrams::DatagramTrain;
use crate::driver::{ConnectionToken, DatagramSocketId, IoDriver, ListenerId};
use crate::h3::ports::{QuicConnectionId, QuicPort, QuicPorts, forwarded};
use crate::h3::state::H3Session;
use crate::message::{ForwardedDatagram, MailboxMessage, SharedSocket};
use crate::multiplexed::SessionProgress;
use crate::protocol::Protocol;
use crate::quic_transport::{ConnectionKey, ConnectionPermit, QuicEvent};
use crate::service::HttpService;
use crate::settings::WorkerSettings;
use crate::transport::ClientTransport;
use crate::worker::Worker;

/// Maximum number of receives of one socket per turn, so that other connections are served too.
const RECEIVES_MAX: usize = 4;
/// Maximum number of messages that wait for a worker, beyond which it gets no datagrams of others: at most 6 MB.
const FORWARDED_MAX: usize = 4096;

/// Decides about clients that want to open a connection at a port.
struct PortAdmission<'w> {
    listener: ListenerId,
    /// New connections are refused.
    is_closing: bool,
    settings: &'w WorkerSettings,
    limit: &'w Arc<ConnectionLimit>,
    counters: &'w WorkerCounters,
}

impl PortAdmission<'_> {
    fn admit(&self, peer: IpAddr) -> Option<ConnectionPermit> {
        let (settings, counters) = (self.settings, self.counters);
        // PROXY headers exist for TCP only, so a proxy's datagrams would hide the client.
        if self.is_closing || settings.expects_proxy_header(self.listener, peer) {
            return None;
        }
        counters.connections.bump();
        let per_address_max = settings.connections_per_address_max;
        match self
            .limit
            .enter(peer, settings.connections_max, per_address_max)
        {
            Ok(()) => Some(ConnectionPermit::new(Arc::clone(self.limit), peer)),
            Err(overload) => {
                match overload {
                    ConnectionOverload::Connections => counters.over_connections_max.bump(),
                    ConnectionOverload::Address => counters.over_address_max.bump(),
                }
                None
            }
        }
    }
}

impl<D: IoDriver, V: HttpService> Worker<D, V> {
    /// Starts to accept QUIC connections at the address of a listener.
    pub(crate) fn start_datagrams(&mut self, listener: ListenerId, socket: D::Datagrams) {
        if self.context.drain_until_ms.is_some() {
            return;
        }
        // HTTP/3 may be turned off and on again while connections are open.
        self.end_port(QuicPorts::socket(listener));
        let Some(transport) = self.context.service.quic_transport(listener) else {
            return;
        };
        let mut port = QuicPort::new(listener, transport);
        let driver = &mut self.context.driver;
        if driver.open_datagrams(port.socket, socket).is_ok() {
            port.is_spread = driver.spreads_datagrams(port.socket);
            let address = driver.datagram_address(port.socket);
            self.context.quic.add(port);
            if let Some(address) = address {
                self.end_closing_ports(address);
            }
        }
    }

    /// Ends the ports of earlier listeners at an address. They share the datagrams, and refuse new connections.
    fn end_closing_ports(&mut self, address: SocketAddr) {
        let closing = self.context.quic.iter_mut().filter(|port| port.is_closing);
        let closing: Vec<DatagramSocketId> = closing.map(|port| port.socket).collect();
        for socket in closing {
            if self.context.driver.datagram_address(socket) == Some(address) {
                self.end_port(socket);
            }
        }
    }

    /// Sends duplicates of the sockets to the thread that passes them to another process.
    pub(crate) fn share_datagrams(&mut self, to: &Sender<SharedSocket<D::Datagrams>>) {
        for port in self.context.quic.iter_mut() {
            let sockets = self.context.driver.share_datagrams(port.socket);
            // Fails if the receiver has stopped waiting.
            let _ = to.send((port.listener, sockets));
        }
    }

    /// Leaves the datagrams of a listener to another process, which returns those of own connections by `relay`.
    pub(crate) fn hand_over_datagrams(&mut self, listener: ListenerId, relay: OwnedFd) {
        let socket = QuicPorts::socket(listener);
        // Without memory for the registration, connections time out.
        let _ = self.context.driver.receive_from_relay(socket, relay);
    }

    /// Ends the connections of a socket and closes it. Otherwise they would write to connections of the next transport,
    /// which have the same keys. Their clients get stateless resets from it.
    fn end_port(&mut self, socket: DatagramSocketId) {
        let Some(port) = self.context.quic.get(socket) else {
            return;
        };
        for token in port.take_tokens() {
            self.visit(token, |connection, _| connection.close());
        }
        self.context.quic.remove(socket);
        self.context.driver.close_datagrams(socket);
    }

    /// Refuses new QUIC connections of a listener; the socket is closed after the last connection.
    pub(crate) fn stop_datagrams(&mut self, listener: ListenerId) {
        if let Some(port) = self.context.quic.get(QuicPorts::socket(listener)) {
            port.is_closing = true;
        }
    }

    /// Receives datagrams of a socket.
    pub(crate) fn receive_datagrams(&mut self, socket: DatagramSocketId) {
        let Some(mut batch) = self.context.quic.batch.take() else {
            return;
        };
        // The socket is level-triggered: the rest is reported again.
        for _ in 0..RECEIVES_MAX {
            let context = &mut self.context;
            let Some(port) = context.quic.get(socket) else {
                break;
            };
            let listener = port.listener;
            let admission = PortAdmission {
                listener,
                is_closing: port.is_closing || context.drain_until_ms.is_some(),
                settings: &context.settings,
                limit: &context.admission,
                counters: &context.counters,
            };
            let (counters, peers) = (&context.counters, &context.peers);
            let mut forward = |worker: u8, train: &DatagramTrain, datagram: &[u8]| {
                let Some(mailbox) = peers.get(usize::from(worker)) else {
                    return;
                };
                let message = || {
                    let datagram = ForwardedDatagram {
                        train: forwarded(train, datagram),
                        bytes: datagram.into(),
                    };
                    MailboxMessage::Datagram(listener, Box::new(datagram))
                };
                // As in a full socket, the rest is lost.
                match mailbox.post_if_short(FORWARDED_MAX, message) {
                    true => counters.quic_forwarded.bump(),
                    false => counters.quic_dropped_datagrams.bump(),
                }
            };
            let mut admit = |from: SocketAddr| admission.admit(from.ip());
            let (denied, unix_s) = (&context.denied, context.unix_s);
            // Before the protocol: a denied client gets no answer.
            let is_denied = |from: SocketAddr| {
                let is_denied = denied.contains(from.ip(), unix_s);
                if is_denied {
                    counters.connections_denied.bump();
                }
                is_denied
            };
            let driver = &mut context.driver;
            let (batch, admit) = (&mut batch, &mut admit);
            if !port.receive(driver, batch, counters, &is_denied, admit, &mut forward) {
                break;
            }
        }
        self.context.quic.batch = Some(batch);
    }

    /// Processes a datagram that another worker has received. It may begin a connection: clients choose identifiers of
    /// first packets at random, and some seem to name a worker.
    pub(crate) fn take_forwarded(&mut self, listener: ListenerId, datagram: &ForwardedDatagram) {
        let context = &mut self.context;
        let now_us = context.driver.now_us();
        // The worker that has received it may not know yet that the client is denied.
        if context.is_denied(datagram.train.peer.ip()) {
            return context.counters.connections_denied.bump();
        }
        let Some(port) = context.quic.get(QuicPorts::socket(listener)) else {
            return;
        };
        let admission = PortAdmission {
            listener,
            is_closing: port.is_closing || context.drain_until_ms.is_some(),
            settings: &context.settings,
            limit: &context.admission,
            counters: &context.counters,
        };
        let ForwardedDatagram { train, bytes } = datagram;
        let mut admit = |from: SocketAddr| admission.admit(from.ip());
        port.transport.take(train, bytes, now_us, &mut admit);
    }

    /// Continues to send after a socket was full.
    pub(crate) fn on_datagram_room(&mut self, socket: DatagramSocketId) {
        if let Some(port) = self.context.quic.get(socket) {
            port.on_room(&mut self.context.driver);
        }
    }

    /// Handles timers and events of all QUIC connections, and sends their output: the end of a turn.
    pub(crate) fn serve_quic(&mut self) {
        if self.context.quic.is_empty() {
            return;
        }
        // Collected, as connections use the ports while one is served.
        let mut at = 0;
        while let Some(socket) = self.context.quic.socket_at(at) {
            self.serve_port(socket);
            at += 1;
        }
        self.close_idle_ports();
        self.publish_quic_counters();
        // Replaces the time of the last turn, also if nothing is due.
        let due_us = self.context.quic.due_us();
        self.context.driver.wake_at(due_us);
    }

    fn serve_port(&mut self, socket: DatagramSocketId) {
        let now_us = self.context.driver.now_us();
        let mut scratch = std::mem::take(&mut self.context.quic.scratch);
        if let Some(port) = self.context.quic.get(socket) {
            // Before the events, which timers may cause.
            port.transport.advance(now_us);
        }
        while let Some(port) = self.context.quic.get(socket)
            && port.has_room()
            && let Some(key) = port.transport.next_touched()
        {
            self.handle_quic_events(socket, key);
            // All responses of the connection are written by now.
            if let Some(port) = self.context.quic.get(socket) {
                port.send(key, &mut self.context.driver, &mut scratch);
            }
        }
        if let Some(port) = self.context.quic.get(socket) {
            port.flush(&mut self.context.driver, &mut scratch);
        }
        self.context.quic.scratch = scratch;
    }

    fn handle_quic_events(&mut self, socket: DatagramSocketId, key: ConnectionKey) {
        let mut has_events = false;
        while let Some(port) = self.context.quic.get(socket)
            && let Some(event) = port.transport.next_event(key)
        {
            has_events = true;
            match event {
                QuicEvent::Opened => self.open_http3(socket, key),
                QuicEvent::Over(_) => {
                    if let Some(token) = port.token(key) {
                        port.set_token(key, ConnectionToken::NONE);
                        self.visit(token, |connection, _| connection.close());
                    }
                }
                event => {
                    if let Some(token) = port.token(key) {
                        self.visit(token, |connection, context| {
                            connection.on_quic_event(context, event);
                        });
                    }
                }
            }
        }
        // Acknowledgements are no events, but a finished connection waits for them.
        let token = self
            .context
            .quic
            .get(socket)
            .and_then(|port| port.token(key));
        if let Some(token) = token {
            self.visit(token, |connection, context| match has_events {
                true => connection.emit_and_schedule(context),
                false => connection.schedule_http3_check(context),
            });
        }
        if has_events {
            self.context.publish_h3_counters();
        }
    }

    /// Creates the worker's connection of a QUIC connection with a complete handshake, or with early data.
    fn open_http3(&mut self, socket: DatagramSocketId, key: ConnectionKey) {
        let context = &mut self.context;
        let Some(port) = context.quic.get(socket) else {
            return;
        };
        let Some(peer) = port.transport.peer_address(key) else {
            return;
        };
        let (listener, tls) = (port.listener, port.transport.tls_info(key));
        let is_draining = port.is_closing || context.drain_until_ms.is_some();
        let now_ms = context.driver.now_ms();
        context.counters.h3_connections.bump();
        context.counters.handshakes.bump();
        let session = H3Session::new(
            QuicConnectionId { socket, key },
            tls,
            &context.settings.h3,
            &mut context.h3,
            SessionProgress::new(now_ms, false),
        );
        // The time of the handshake has its own limit; from now on that until the first request counts.
        let timeout_ms = context.idle_timeout_ms();
        let transport = ClientTransport::without_socket(peer);
        let protocol = Protocol::Http3(Box::new(session));
        let token = self.insert_connection(transport, protocol, listener, timeout_ms);
        if let Some(port) = self.context.quic.get(socket) {
            port.set_token(key, token);
        }
        self.visit(token, |connection, context| {
            // A handshake that was in progress when the drain began.
            if is_draining {
                connection.announce_end(context);
            }
            connection.emit_and_schedule(context);
        });
    }

    /// Closes the sockets of removed listeners without connections.
    fn close_idle_ports(&mut self) {
        // A successor that is starting may take the sockets.
        if self.has_shared_listeners {
            return;
        }
        let is_over =
            |port: &&mut QuicPort| port.is_closing && port.transport.connection_count() == 0;
        let over = self.context.quic.iter_mut().filter(is_over);
        let over: Vec<DatagramSocketId> = over.map(|port| port.socket).collect();
        for socket in over {
            // No connection is left that could send a close.
            self.context.quic.remove(socket);
            self.context.driver.close_datagrams(socket);
        }
    }

    /// Replaces the state of QUIC, after a panic that may have left it incomplete. Clients of its connections get
    /// stateless resets.
    pub(crate) fn reset_quic(&mut self) {
        let listeners = self
            .context
            .quic
            .iter_mut()
            .map(|port| (port.listener, port.is_closing));
        for (listener, is_closing) in listeners.collect::<Vec<_>>() {
            self.context.quic.remove(QuicPorts::socket(listener));
            match self.context.service.quic_transport(listener) {
                Some(transport) => {
                    let mut port = QuicPort::new(listener, transport);
                    port.is_closing = is_closing;
                    port.is_spread = self.context.driver.spreads_datagrams(port.socket);
                    self.context.quic.add(port);
                }
                None => self
                    .context
                    .driver
                    .close_datagrams(QuicPorts::socket(listener)),
            }
        }
    }

    /// Copies the counters of QUIC to those that other threads read.
    fn publish_quic_counters(&mut self) {
        let (from, to) = (self.context.quic.counters(), &self.context.counters);
        to.quic_handshakes.set(from.accepted);
        to.quic_early_connections.set(from.early);
        to.quic_handshake_failures.set(from.failed);
        to.quic_handshake_timeouts.set(from.handshake_timeouts);
        to.quic_retries.set(from.retried);
        // One counter, since each means that the server has no room.
        let refused = from.refused + from.refused_connections + from.refused_handshakes;
        to.quic_refused.set(refused);
        to.quic_dropped_answers.set(from.dropped_answers);
        to.quic_withheld_windows.set(from.withheld_windows);
    }
}
