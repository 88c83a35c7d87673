//! The datagram sockets of a worker, each with the connections of its QUIC.

use std::net::SocketAddr;

use crate::counters::WorkerCounters;
use crate::datagram_relay::RelayOutcome;
use crate::datagrams::{DatagramBatch, DatagramTrain, SEGMENTS_MAX};
use crate::driver::{ConnectionToken, DatagramSocketId, IoDriver, ListenerId};
use crate::quic_transport::{
    ConnectionKey, ConnectionPermit, DatagramRoute, QuicCounters, QuicTransport,
};

/// Trains that are sent with one call.
const TRAINS_ENOUGH: usize = 32;
/// Bytes that are sent with one call.
const BYTES_ENOUGH: usize = 256 * 1024;

/// Identifies a QUIC connection of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuicConnectionId {
    pub socket: DatagramSocketId,
    pub key: ConnectionKey,
}

/// A datagram socket with its connections.
pub(crate) struct QuicPort {
    pub socket: DatagramSocketId,
    pub listener: ListenerId,
    pub transport: Box<dyn QuicTransport>,
    /// The worker's connections, by their keys.
    tokens: Vec<ConnectionToken>,
    /// Datagrams that are not sent yet.
    unsent: UnsentTrains,
    /// New connections are refused.
    pub is_closing: bool,
    /// There are workers that get no datagrams from the kernel, so new connections are distributed.
    pub is_spread: bool,
}

/// Trains that are not sent yet.
#[derive(Default)]
struct UnsentTrains {
    bytes: Vec<u8>,
    trains: Vec<DatagramTrain>,
    /// The first train that is not sent.
    next: usize,
    /// The socket is full.
    is_full: bool,
}

impl QuicPort {
    /// The port of an open socket.
    pub fn new(listener: ListenerId, transport: Box<dyn QuicTransport>) -> QuicPort {
        QuicPort {
            socket: QuicPorts::socket(listener),
            listener,
            transport,
            tokens: Vec::new(),
            unsent: UnsentTrains::default(),
            is_closing: false,
            is_spread: false,
        }
    }

    /// Connects a QUIC connection with a connection of the worker.
    pub fn set_token(&mut self, key: ConnectionKey, token: ConnectionToken) {
        let slot = key.0 as usize;
        if self.tokens.len() <= slot {
            self.tokens.resize(slot + 1, ConnectionToken::NONE);
        }
        self.tokens[slot] = token;
    }

    /// The worker's connection.
    pub fn token(&self, key: ConnectionKey) -> Option<ConnectionToken> {
        let token = self.tokens.get(key.0 as usize).copied();
        token.filter(|token| *token != ConnectionToken::NONE)
    }

    /// Removes and returns the worker's connections.
    pub fn take_tokens(&mut self) -> Vec<ConnectionToken> {
        let mut tokens = std::mem::take(&mut self.tokens);
        tokens.retain(|token| *token != ConnectionToken::NONE);
        tokens
    }

    /// Receives datagrams. Those of other workers are passed to `forward`, those of other processes to their relays, and those
    /// of clients that `is_denied` are dropped. Returns whether there may be more.
    pub fn receive<D: IoDriver>(
        &mut self,
        driver: &mut D,
        batch: &mut DatagramBatch,
        counters: &WorkerCounters,
        is_denied: &dyn Fn(SocketAddr) -> bool,
        admit: &mut dyn FnMut(SocketAddr) -> Option<ConnectionPermit>,
        forward: &mut dyn FnMut(u8, &DatagramTrain, &[u8]),
    ) -> bool {
        // The clock is read after the receive, for the samples of round trips.
        let has_more = driver.receive_datagrams(self.socket, batch);
        let now_us = driver.now_us();
        for train in batch.trains() {
            if is_denied(train.peer) {
                continue;
            }
            for datagram in train.segments(batch.bytes()) {
                let route = self.transport.route(datagram);
                let relayed = match route {
                    DatagramRoute::Process(to) => {
                        driver.relay_datagram(self.socket, to, train, datagram)
                    }
                    _ => RelayOutcome::Ended,
                };
                match (route, relayed) {
                    (_, RelayOutcome::Sent) => counters.quic_forwarded.bump(),
                    (_, RelayOutcome::Full) => counters.quic_dropped_datagrams.bump(),
                    (DatagramRoute::Worker(worker), _) => forward(worker, train, datagram),
                    (DatagramRoute::New(worker), _) if self.is_spread => {
                        forward(worker, train, datagram);
                    }
                    // Connections of an ended process get stateless resets.
                    _ => self.transport.take(train, datagram, now_us, admit),
                }
            }
        }
        has_more
    }

    /// Whether more output can be sent.
    pub fn has_room(&self) -> bool {
        !self.unsent.is_full
    }

    /// Sends all output of a connection, or as much as the socket accepts.
    pub fn send<D: IoDriver>(&mut self, key: ConnectionKey, driver: &mut D, scratch: &mut Vec<u8>) {
        let now_us = driver.now_us();
        while !self.unsent.is_full {
            let Some(train) = self.transport.emit(key, now_us, scratch) else {
                return;
            };
            self.unsent.push(train, scratch);
            self.unsent.flush_if_long(self.socket, driver);
        }
        // Its other datagrams follow when the socket has room.
        self.transport.postpone(key);
    }

    /// Sends datagrams that belong to no connection, then everything that is unsent.
    pub fn flush<D: IoDriver>(&mut self, driver: &mut D, scratch: &mut Vec<u8>) {
        while !self.unsent.is_full
            && let Some(train) = self.transport.emit_answer(scratch)
        {
            self.unsent.push(train, scratch);
            self.unsent.flush_if_long(self.socket, driver);
        }
        if !self.unsent.is_full {
            self.unsent.flush(self.socket, driver);
        }
    }

    /// Continues after the socket was full.
    pub fn on_room<D: IoDriver>(&mut self, driver: &mut D) {
        self.unsent.is_full = false;
        self.unsent.flush(self.socket, driver);
    }
}

impl UnsentTrains {
    fn push(&mut self, train: DatagramTrain, bytes: &[u8]) {
        // Copied, so that one call sends the trains of several connections.
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        let range = start..self.bytes.len();
        self.trains.push(DatagramTrain { range, ..train });
    }

    fn flush_if_long<D: IoDriver>(&mut self, socket: DatagramSocketId, driver: &mut D) {
        if self.trains.len() >= TRAINS_ENOUGH || self.bytes.len() >= BYTES_ENOUGH {
            self.flush(socket, driver);
        }
    }

    fn flush<D: IoDriver>(&mut self, socket: DatagramSocketId, driver: &mut D) {
        let trains = &mut self.trains[self.next..];
        if !trains.is_empty() {
            let count = trains.len();
            let sent = driver.send_datagrams(socket, trains, &self.bytes);
            if sent < count {
                // The bytes of later trains stay where they are until all are sent.
                self.next += sent;
                self.is_full = true;
                return;
            }
        }
        self.trains.clear();
        self.bytes.clear();
        self.next = 0;
    }
}

/// The ports of a worker.
#[derive(Default)]
pub(crate) struct QuicPorts {
    ports: Vec<QuicPort>,
    /// A buffer for received datagrams, allocated with the first port.
    pub batch: Option<Box<DatagramBatch>>,
    /// A buffer for datagrams.
    pub scratch: Vec<u8>,
}

impl QuicPorts {
    /// The socket of a listener.
    pub fn socket(listener: ListenerId) -> DatagramSocketId {
        DatagramSocketId(listener.0)
    }

    /// Whether there are ports.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// Whether a handshake is in progress.
    pub fn has_handshakes(&self) -> bool {
        self.ports
            .iter()
            .any(|port| port.transport.handshakes() > 0)
    }

    /// All ports.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut QuicPort> {
        self.ports.iter_mut()
    }

    /// The socket of a port, by its position.
    pub fn socket_at(&self, at: usize) -> Option<DatagramSocketId> {
        self.ports.get(at).map(|port| port.socket)
    }

    /// The port of a socket.
    pub fn get(&mut self, socket: DatagramSocketId) -> Option<&mut QuicPort> {
        // There are few.
        self.ports.iter_mut().find(|port| port.socket == socket)
    }

    /// Adds a port, in place of one with the same socket.
    pub fn add(&mut self, port: QuicPort) {
        self.remove(port.socket);
        // Workers without HTTP/3 don't need its 2 MiB of address space.
        self.batch.get_or_insert_default();
        self.ports.push(port);
    }

    /// Removes a port.
    pub fn remove(&mut self, socket: DatagramSocketId) {
        self.ports.retain(|port| port.socket != socket);
    }

    /// The QUIC of a connection.
    pub fn transport(
        &mut self,
        id: QuicConnectionId,
    ) -> Option<&mut (dyn QuicTransport + 'static)> {
        self.get(id.socket).map(|port| &mut *port.transport)
    }

    /// The time of the next timer.
    pub fn due_us(&self) -> Option<u64> {
        let due = self.ports.iter().filter_map(|port| port.transport.due_us());
        due.min()
    }

    /// The counters of all ports.
    pub fn counters(&self) -> QuicCounters {
        let mut sum = QuicCounters::default();
        for port in &self.ports {
            sum.add(&port.transport.counters());
        }
        sum
    }
}

/// A train with a copy of one datagram, for another worker.
pub(crate) fn forwarded(train: &DatagramTrain, datagram: &[u8]) -> DatagramTrain {
    debug_assert!(train.count() <= SEGMENTS_MAX);
    DatagramTrain {
        segment_len: datagram.len(),
        range: 0..datagram.len(),
        ..train.clone()
    }
}
