//! The connections of one worker.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lowroad_tls::TlsFault;
use quinn_proto::{Connection, ConnectionHandle, DatagramEvent, Endpoint, Transmit, VarInt};

use crate::admission::{Admission, ConnectionAttempt, QuicCounters, QuicLimits};
use crate::config::{QuicCipher, QuicEndpointConfig};
use crate::connection::{ConnectionPhase, QuicConnection};
use crate::due_heap::DueHeap;
use crate::event::{ConnectionKey, IncomingDatagram, OutgoingTrain, QuicEvent};
use crate::receive_window::WindowBudget;
use crate::settings::QuicSettings;

/// The connections of one worker. A turn of the caller:
///
/// 1. `take` each received datagram, and `advance` the time.
/// 2. For each `next_touched` connection: process each `next_event`, write, and `emit` until there is nothing left.
/// 3. `emit_answer` until there is nothing left.
/// 4. Wait for datagrams until `due_us`.
///
/// Calls for a connection outside of a turn, such as a write once a response is ready, touch the connection for the next
/// turn. Times are microseconds since an epoch of the caller. Calls with the key of a connection that is over have no
/// effect.
///
/// `P` is the caller's permit for a connection, for example a share of a limit for each client address.
#[derive(Debug)]
pub struct QuicEndpoint<P = ()> {
    pub(crate) endpoint: Endpoint,
    /// Indexed by the handles of `endpoint`.
    pub(crate) connections: Vec<Option<Box<QuicConnection<P>>>>,
    pub(crate) settings: QuicSettings,
    pub(crate) limits: QuicLimits,
    /// Builds server configurations; `None`: a client.
    config: Option<QuicEndpointConfig>,
    pub(crate) counters: QuicCounters,
    budget: WindowBudget,
    pub(crate) connection_count: u32,
    pub(crate) handshakes: u32,
    /// The zero of all times.
    epoch: Instant,
    /// The time of the turn.
    pub(crate) now_us: u64,
    due: DueHeap,
    touched: VecDeque<u32>,
    /// Datagrams of the endpoint itself.
    pub(crate) answers: VecDeque<(Transmit, Vec<u8>)>,
}

impl<P> QuicEndpoint<P> {
    /// An endpoint that accepts connections. `epoch` is the zero of the caller's times.
    #[must_use]
    pub fn server(config: QuicEndpointConfig, epoch: Instant) -> QuicEndpoint<P> {
        let mut endpoint = QuicEndpoint::client(&config, epoch);
        endpoint.endpoint.set_server_config(Some(config.server()));
        endpoint.config = Some(config);
        endpoint
    }

    /// An endpoint that only opens connections, for tests and load generators.
    #[must_use]
    pub fn client(config: &QuicEndpointConfig, epoch: Instant) -> QuicEndpoint<P> {
        let endpoint_config = Arc::new(config.endpoint());
        QuicEndpoint {
            endpoint: Endpoint::new(endpoint_config, None, true, None),
            connections: Vec::new(),
            settings: config.settings.clone(),
            limits: config.limits,
            config: None,
            counters: QuicCounters::default(),
            budget: WindowBudget {
                remaining: config.limits.windows_len_max,
                withheld: 0,
            },
            connection_count: 0,
            handshakes: 0,
            epoch,
            now_us: 0,
            due: DueHeap::default(),
            touched: VecDeque::new(),
            answers: VecDeque::new(),
        }
    }

    /// Replaces the cipher of new connections, for example after a change of certificates. Clients have none.
    pub fn set_cipher(&mut self, cipher: QuicCipher) {
        if let Some(config) = &mut self.config {
            config.cipher = cipher;
            self.endpoint.set_server_config(Some(config.server()));
        }
    }

    /// Replaces the limits of new connections.
    pub fn set_limits(&mut self, limits: QuicLimits) {
        self.limits = limits;
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> QuicCounters {
        QuicCounters {
            withheld_windows: self.budget.withheld,
            ..self.counters
        }
    }

    /// The number of connections, including those during the handshake and before the end is acknowledged.
    #[must_use]
    pub fn connection_count(&self) -> u32 {
        self.connection_count
    }

    /// Handshakes in progress.
    #[must_use]
    pub fn handshakes(&self) -> u32 {
        self.handshakes
    }

    /// The time of the turn.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    pub(crate) fn instant(&self, now_us: u64) -> Instant {
        self.epoch + Duration::from_micros(now_us)
    }

    pub(crate) fn find(&mut self, key: ConnectionKey) -> Option<&mut QuicConnection<P>> {
        self.connections.get_mut(key.0 as usize)?.as_deref_mut()
    }

    pub(crate) fn inner(&mut self) -> (&mut Endpoint, Instant) {
        let now = self.instant(self.now_us);
        (&mut self.endpoint, now)
    }

    /// Adds a connection that has just begun.
    pub(crate) fn add(
        &mut self,
        handle: ConnectionHandle,
        connection: Connection,
        permit: P,
    ) -> ConnectionKey {
        // Handles are indices of a slab, so the table has no large gaps.
        if self.connections.len() <= handle.0 {
            self.connections.resize_with(handle.0 + 1, || None);
        }
        let connection = QuicConnection::new(connection, permit, &self.settings, self.now_us);
        self.connections[handle.0] = Some(Box::new(connection));
        self.connection_count += 1;
        self.handshakes += 1;
        let key = ConnectionKey(handle.0 as u32);
        self.touch(key);
        key
    }

    /// Adds a connection to the next turn.
    pub fn touch(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.find(key)
            && !connection.is_touched
        {
            connection.is_touched = true;
            self.touched.push_back(key.0);
        }
    }

    /// Processes a received datagram. `admit` decides about a client that wants to open a connection.
    pub fn take(
        &mut self,
        datagram: IncomingDatagram,
        now_us: u64,
        admit: impl FnOnce(&ConnectionAttempt) -> Admission<P>,
    ) {
        self.now_us = now_us;
        let (now, mut answer) = (self.instant(now_us), Vec::new());
        let IncomingDatagram {
            from,
            local_ip,
            ecn,
            bytes,
        } = datagram;
        let ecn = ecn.codepoint();
        let event = self
            .endpoint
            .handle(now, from, local_ip, ecn, bytes, &mut answer);
        match event {
            None => {}
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let key = ConnectionKey(handle.0 as u32);
                // Events are gathered after all datagrams of the turn, so that one acknowledgement answers them.
                if let Some(connection) = self.find(key) {
                    connection.inner.handle_event(event);
                    self.touch(key);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.admit(incoming, admit),
            Some(DatagramEvent::Response(transmit)) => self.push_answer(transmit, answer),
        }
    }

    /// The time of the next timer.
    #[must_use]
    pub fn due_us(&self) -> Option<u64> {
        self.due.first().map(|(due_us, _)| due_us)
    }

    /// Handles timers that are due.
    pub fn advance(&mut self, now_us: u64) {
        self.now_us = now_us;
        let now = self.instant(now_us);
        while let Some((due_us, slot)) = self.due.first()
            && due_us <= now_us
        {
            // Set again by `emit`.
            self.due.set(slot, None);
            let key = ConnectionKey(slot);
            if let Some(connection) = self.find(key) {
                connection.inner.handle_timeout(now);
                self.touch(key);
                self.limit_handshake(key);
            }
        }
    }

    /// Gives up a handshake after its time limit.
    fn limit_handshake(&mut self, key: ConnectionKey) {
        let (now, now_us) = (self.instant(self.now_us), self.now_us);
        if let Some(connection) = self.find(key)
            && connection.phase.is_handshake()
            && connection.handshake_due_us <= now_us
        {
            // Clients that miss this receive a stateless reset later.
            connection.close(now, VarInt::from_u32(0), "the handshake took too long");
            self.counters.handshake_timeouts += 1;
            self.record_handshake(false);
        }
    }

    /// The next connection that may have events or output. It must be emitted, or postponed.
    pub fn next_touched(&mut self) -> Option<ConnectionKey> {
        self.touched.pop_front().map(ConnectionKey)
    }

    /// Moves a touched connection to the next turn, for example since the socket accepts no more datagrams.
    pub fn postpone(&mut self, key: ConnectionKey) {
        if self.find(key).is_some() {
            self.touched.push_back(key.0);
        }
    }

    /// The next event of a connection.
    pub fn next_event(&mut self, key: ConnectionKey) -> Option<QuicEvent> {
        let connection = self.connections.get_mut(key.0 as usize)?.as_deref_mut()?;
        let phase = connection.phase;
        let event = connection.next_event(&self.settings, &mut self.budget, self.now_us);
        if phase == ConnectionPhase::Handshake && connection.phase == ConnectionPhase::Early {
            self.counters.early += 1;
        }
        // The phase changes only here, and by `close`.
        if phase.is_handshake() && !connection.phase.is_handshake() {
            let is_open = connection.phase == ConnectionPhase::Open;
            let report = self.config.as_ref();
            let report = report.and_then(|config| config.cipher.report.as_ref());
            if let (Some(report), Some(alert)) = (report, connection.alert.take()) {
                report(&TlsFault::Alert(alert).into());
            }
            self.record_handshake(is_open);
        }
        event
    }

    /// Counts the end of a handshake.
    pub(crate) fn record_handshake(&mut self, is_open: bool) {
        self.handshakes -= 1;
        match is_open {
            true => self.counters.opened += 1,
            false => self.counters.failed += 1,
        }
    }

    /// Writes datagrams of a connection to `out`, which is cleared before, at most `datagrams_max` of them. `None` once
    /// all are written.
    pub fn emit(
        &mut self,
        key: ConnectionKey,
        now_us: u64,
        datagrams_max: usize,
        out: &mut Vec<u8>,
    ) -> Option<OutgoingTrain> {
        out.clear();
        let now = self.instant(now_us);
        // New identifiers are part of the datagrams.
        self.exchange_endpoint_events(key);
        let connection = self.find(key)?;
        if let Some(transmit) = connection
            .inner
            .poll_transmit(now, datagrams_max.max(1), out)
        {
            return Some(OutgoingTrain::new(&transmit));
        }
        // Only now, so that writes of the caller in between do not touch the connection again.
        connection.is_touched = false;
        let due = connection.inner.poll_timeout();
        let is_handshake = connection.phase.is_handshake();
        let handshake_due_us = is_handshake.then_some(connection.handshake_due_us);
        // Until then late datagrams are answered with the close, and the slot is not reused.
        let is_gone = connection.inner.is_drained() && connection.phase == ConnectionPhase::Over;
        if is_gone {
            self.remove(key);
            return None;
        }
        // Rounded up, since a timer must not be handled before its time.
        let due_us = due.map(|due| {
            let due = due.saturating_duration_since(self.epoch);
            due.as_nanos().div_ceil(1000) as u64
        });
        let due_us = due_us.into_iter().chain(handshake_due_us).min();
        self.due.set(key.0, due_us);
        None
    }

    /// Passes messages between `quinn-proto`'s endpoint and connection: new and retired identifiers.
    fn exchange_endpoint_events(&mut self, key: ConnectionKey) {
        let Some(Some(connection)) = self.connections.get_mut(key.0 as usize) else {
            return;
        };
        let handle = ConnectionHandle(key.0 as usize);
        while let Some(event) = connection.inner.poll_endpoint_events() {
            // The slot is given up by `remove`, once the caller knows the end.
            if event.is_drained() {
                continue;
            }
            if let Some(reply) = self.endpoint.handle_event(handle, event) {
                connection.inner.handle_event(reply);
            }
        }
    }

    fn remove(&mut self, key: ConnectionKey) {
        self.due.set(key.0, None);
        if let Some(connection) = self.connections.get_mut(key.0 as usize)
            && let Some(connection) = connection.take()
        {
            connection.growth.release(&mut self.budget);
            self.connection_count -= 1;
            let drained = quinn_proto::EndpointEvent::drained();
            _ = self
                .endpoint
                .handle_event(ConnectionHandle(key.0 as usize), drained);
        }
    }
}
