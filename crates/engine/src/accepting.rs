//! From a listener to a connection, and the end of both.
//!
//! How many connections are accepted per wake-up is a setting (Brecht, Pariag, Gammo:
//! "accept()able strategies", USENIX 2004): one favours work under way, all favours newcomers.

use lowroad_http::h1::Server;
use lowroad_http::protocol::ServerProtocol;
use lowroad_http::request::PartialRequest;

use crate::admission::Overload;
use crate::body::Out;
use crate::buffer::Buffer;
use crate::connection::Connection;
use crate::driver::{AcceptFailure, Accepted, Driver, GENERATION_MAX, ListenerId, Received, Token};
use crate::input::Input;
use crate::response::Response;
use crate::service::{Exchange, Refused, Service};
use crate::transport::{Moved, Transport};
use crate::underway::Exchanges;
use crate::worker::Worker;

/// How long accepting pauses when descriptors or memory ran out.
const ACCEPT_PAUSE_MS: u64 = 100;
/// How long connections may stay idle once the worker drains.
const DRAIN_IDLE_MS: u64 = 500;
/// How long a handshake that had begun may take to finish once its listener is to close.
const LAST_ACCEPT_MS: u64 = 200;

impl<D: Driver, V: Service> Worker<D, V> {
    pub(crate) fn accept(&mut self, listener: ListenerId) {
        for _ in 0..self.settings.accept_max {
            match self.driver.accept(listener) {
                Ok(accepted) => self.welcome(accepted, listener),
                Err(AcceptFailure::Empty) => return,
                Err(AcceptFailure::Gone) => {}
                Err(AcceptFailure::Exhausted) => return self.pause_accepting(),
            }
        }
    }

    pub(crate) fn welcome(&mut self, accepted: Accepted<D::Socket>, listener: ListenerId) {
        let peer = accepted.peer;
        self.counters.connections.bump();
        let settings = &self.settings;
        let max = settings.connections_max;
        let is_introduced = settings.is_introduced(listener, peer);
        let entered = match is_introduced {
            true => self.admission.enter_for_another(peer, max),
            false => self
                .admission
                .enter(peer, max, settings.connections_per_address_max),
        };
        match entered {
            Ok(()) => {}
            Err(overload) => {
                return self.turn_away(Transport::new(accepted, None), listener, overload);
            }
        }
        let layer = self.service.layer(listener);
        let has_layer = layer.is_some();
        let timeout_ms = match is_introduced || has_layer {
            true => self.settings.header_timeout_ms,
            false => self.idle_timeout_ms(),
        };
        let mut transport = Transport::new(accepted, layer);
        transport.is_introduced = !is_introduced;
        let now_ms = self.driver.now_ms();
        self.generation = (self.generation.wrapping_add(1) & GENERATION_MAX).max(1);
        let id = self.connections.insert(Connection {
            begun: has_layer,
            transport,
            http: Server::default(),
            two: None,
            input: Input::default(),
            deadline_ms: now_ms + timeout_ms,
            noted_ms: u64::MAX,
            requests: 0,
            generation: self.generation,
            listener,
            unread: false,
            leftover: false,
            lingering: false,
            sending: None,
            exchanges: Exchanges::default(),
        });
        // Most connections have said something already; many are over after one answer and are
        // never registered at all.
        self.receive(id, false);
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        let token = connection.token(id);
        if connection
            .transport
            .register(&mut self.driver, token)
            .is_err()
        {
            self.close(id);
            return self.pause_accepting();
        }
        self.note(id);
    }

    pub(crate) fn turn_away(
        &mut self,
        mut transport: Transport<D::Socket>,
        listener: ListenerId,
        overload: Overload,
    ) {
        match overload {
            Overload::Connections => self.counters.over_connections_max.bump(),
            Overload::Address => self.counters.over_address_max.bump(),
        }
        if self.service.has_layer(listener) {
            // A handshake is what it has too many of already.
            return transport.close(&mut self.driver);
        }
        let mut http = Server::default();
        http.give_up();
        let from = (listener, transport.peer);
        let now_ms = self.driver.now_ms();
        let mut exchange = Exchange::of_nobody(from, http.version(), now_ms, self.unix_s);
        let mut out = Out::default();
        let mut response = Response::new(&mut http, &mut out, &self.date);
        let record = self.service.refuse(
            Refused::Overload,
            &PartialRequest::default(),
            &mut exchange,
            &mut response,
        );
        // One try: whoever has too many connections is not worth a buffer.
        let len = out.bytes.len();
        let mut buffer = Buffer::Vec(out.bytes);
        let sent = transport.send(&mut self.driver, Token::NOBODY, &mut buffer, false);
        let whole = matches!(sent, Moved::Bytes { len: sent, .. } if sent == len);
        transport.finish(&mut self.driver);
        // Read what it had sent, as closing over unread bytes would reset the answer away.
        let unread = transport.receive(&mut self.driver, Token::NOBODY, &mut self.plain);
        if let Received::Bytes { lent, .. } = unread {
            self.give_back(lent);
        }
        transport.close(&mut self.driver);
        if let Some(record) = record {
            let body_len = if whole { out.body_in_bytes } else { 0 };
            self.service
                .sent(record, body_len, whole, self.driver.now_ms());
        }
    }

    pub(crate) fn pause_accepting(&mut self) {
        if self.paused_until_ms.is_none() && self.drain_until_ms.is_none() {
            self.counters.accept_pauses.bump();
            self.paused_until_ms = Some(self.driver.now_ms() + ACCEPT_PAUSE_MS);
            self.listeners
                .iter()
                .for_each(|id| self.driver.listen(*id, false));
        }
    }

    pub(crate) fn start_listening(&mut self, id: ListenerId, listener: D::Listener) {
        if self.drain_until_ms.is_some() {
            return;
        }
        match self.driver.open_listener(id, listener) {
            Ok(()) => self.listeners.push(id),
            // Half open it would be given clients that nobody ever accepts.
            Err(_) => self.driver.close_listener(id),
        }
    }

    /// Lets nobody new begin a handshake at a listener; whoever is in the middle of one has
    /// [`LAST_ACCEPT_MS`] to finish it.
    pub(crate) fn stop_listening(&mut self, listener: ListenerId) {
        self.driver.refuse_new(listener);
        self.closing
            .push((listener, self.driver.now_ms() + LAST_ACCEPT_MS));
        self.listeners.retain(|id| *id != listener);
    }

    pub(crate) fn close_listeners(&mut self, now_ms: u64) {
        while let Some((listener, close_ms)) = self.closing.first().copied() {
            if now_ms < close_ms {
                return;
            }
            self.closing.remove(0);
            loop {
                match self.driver.accept(listener) {
                    Ok(accepted) => self.welcome(accepted, listener),
                    Err(AcceptFailure::Gone) => {}
                    Err(_) => break,
                }
            }
            self.driver.close_listener(listener);
        }
    }

    /// Starts the end: no new connections after those that the kernel has promised already, and
    /// idle ones stay for a moment in which a request on its way can still arrive.
    pub(crate) fn drain(&mut self, timeout_ms: u64) {
        let now_ms = self.driver.now_ms();
        self.drain_until_ms = Some(now_ms + timeout_ms);
        self.local.tasks.drain();
        for id in self.listeners.clone() {
            self.stop_listening(id);
        }
        let ids: Vec<usize> = self.connections.iter().map(|(id, _)| id).collect();
        for id in ids {
            if self.connections[id].two.is_some() {
                self.drain_frames(id);
            }
            let Some(connection) = self.connections.get_mut(id) else {
                continue;
            };
            if connection.is_idle() || connection.two.is_some() {
                connection.deadline_ms = connection.deadline_ms.min(now_ms + DRAIN_IDLE_MS);
                self.note(id);
            }
        }
    }

    pub(crate) fn end_drain(&mut self) {
        let ids: Vec<usize> = self.connections.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.close(id);
        }
    }

    /// How long a connection may wait for its next request.
    pub(crate) fn idle_timeout_ms(&self) -> u64 {
        match self.drain_until_ms {
            None => self.settings.idle_timeout_ms,
            Some(_) => self.settings.idle_timeout_ms.min(DRAIN_IDLE_MS),
        }
    }
}
