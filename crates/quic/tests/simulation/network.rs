//! A client and the workers of a server in virtual time, and the network between them. A seed determines all faults.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use lowroad_quic::{
    Admission, ConnectionAttempt, ConnectionKey, EcnBits, IncomingDatagram, ProcessWorker,
    QuicCipher, QuicClientCipher, QuicEndpoint, QuicEndpointConfig, QuicEvent, QuicKeys,
    QuicLimits, QuicRoute, QuicSettings, SteeringTable, UsedTokens,
};
use lowroad_tls::TlsClock;

pub const SERVER: &str = "192.0.2.2:443";
pub const NOW_S: u64 = 1_795_473_525;
const TURNS_MAX: usize = 500_000;

/// Faults of the network; probabilities in thousandths.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub loss: u64,
    pub duplication: u64,
    /// Datagrams that are delayed by a further latency.
    pub reordering: u64,
    pub latency_us: u64,
    /// Datagrams with a changed bit, or cut.
    pub corruption: u64,
    /// Turns with a full socket for a millisecond.
    pub full_socket: u64,
    /// Datagrams of more bytes are lost.
    pub mtu: usize,
    /// The client's address changes as often.
    pub rebinding_us: Option<u64>,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            loss: 0,
            duplication: 0,
            reordering: 0,
            latency_us: 10_000,
            corruption: 0,
            full_socket: 0,
            mtu: 1500,
            rebinding_us: None,
        }
    }
}

/// An endpoint with counted permits.
pub type TestEndpoint = QuicEndpoint<Rc<()>>;

/// Processes events of connections.
pub trait Application {
    fn event(&mut self, endpoint: &mut TestEndpoint, key: ConnectionKey, event: QuicEvent);

    /// Decides about a connection.
    fn admit(&mut self, _: &ConnectionAttempt) -> Admission<Rc<()>> {
        Admission::Accept(Rc::new(()))
    }
}

impl<F: FnMut(&mut TestEndpoint, ConnectionKey, QuicEvent)> Application for F {
    fn event(&mut self, endpoint: &mut TestEndpoint, key: ConnectionKey, event: QuicEvent) {
        self(endpoint, key, event);
    }
}

/// A datagram on its way, ordered by the time of its arrival and its number.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at_us: u64,
    number: u64,
    to: SocketAddr,
    from: SocketAddr,
    bytes: Vec<u8>,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounts {
    pub datagrams: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub corrupted: u64,
    pub oversized: u64,
    /// Datagrams that one worker passed to another.
    pub steered: u64,
    /// The most bytes of a datagram that arrived.
    pub len_max: usize,
    /// A checksum of all datagrams with their times.
    pub trace: u64,
}

pub struct World {
    /// The client, then the workers.
    pub ends: Vec<TestEndpoint>,
    pub faults: Faults,
    pub counts: NetworkCounts,
    pub now_us: u64,
    /// A time at which there is a turn even if no timer is due.
    pub alarm_us: Option<u64>,
    seed: u64,
    random: u64,
    flying: BinaryHeap<Reverse<Flight>>,
    steering: Vec<SteeringTable>,
}

/// The configuration of an endpoint; place 0 is the client.
pub fn config(seed: u64, place: u8, cipher: QuicCipher) -> QuicEndpointConfig {
    let mut bytes = [place; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    QuicEndpointConfig {
        cipher,
        keys: QuicKeys::new(&[7; 32]),
        place: ProcessWorker {
            generation: 0,
            worker: place.saturating_sub(1),
        },
        seed: bytes,
        settings: QuicSettings::default(),
        limits: QuicLimits::default(),
        clock: TlsClock::new(NOW_S),
        used_tokens: Arc::new(UsedTokens::default()),
    }
}

impl World {
    /// A client and workers with a configuration for each worker, except place and seed.
    pub fn new(seed: u64, workers: u8, faults: Faults, server: &QuicEndpointConfig) -> World {
        let epoch = Instant::now();
        let client = config(seed, 0, QuicCipher::null());
        let mut ends = vec![QuicEndpoint::client(&client, epoch)];
        let mut steering = Vec::new();
        for worker in 0..workers {
            let own = config(seed, worker + 1, QuicCipher::null());
            let config = QuicEndpointConfig {
                place: own.place,
                seed: own.seed,
                ..server.clone()
            };
            steering.push(SteeringTable {
                key: config.keys.connection_ids(),
                here: config.place,
                workers,
            });
            ends.push(QuicEndpoint::server(config, epoch));
        }
        World {
            ends,
            faults,
            counts: NetworkCounts::default(),
            now_us: 0,
            alarm_us: None,
            seed,
            random: seed.max(1),
            flying: BinaryHeap::new(),
            steering,
        }
    }

    /// Opens a connection of the client.
    pub fn connect(&mut self, cipher: &QuicClientCipher) -> ConnectionKey {
        // Eight bytes, like own identifiers, so that the check is needed.
        let first_id = (self.random() ^ self.seed << 32).to_be_bytes();
        let settings = QuicSettings::default();
        self.ends[0].advance(self.now_us);
        let to = SERVER.parse().expect("an address");
        let key = self.ends[0].connect(cipher, &settings, first_id, to, "localhost", Rc::new(()));
        key.expect("a connection")
    }

    pub fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 11
    }

    fn happens(&mut self, thousandths: u64) -> bool {
        thousandths > 0 && self.random() % 1000 < thousandths
    }

    /// The address of the client at a time.
    fn client_address(&self) -> SocketAddr {
        // A new port is a new binding of a network address translator.
        let binding = self.faults.rebinding_us.map_or(0, |us| self.now_us / us);
        SocketAddr::from(([192, 0, 2, 1], 1000 + binding as u16))
    }

    /// Runs until `is_done`, or until there is nothing to wait for.
    pub fn run<C: Application, S: Application>(
        &mut self,
        client: &mut C,
        server: &mut S,
        mut is_done: impl FnMut(&mut World, &mut C, &mut S) -> bool,
    ) {
        for _ in 0..TURNS_MAX {
            self.deliver(server);
            // Each endpoint has one turn, so that answers are sent at the same time as in a worker.
            for index in 0..self.ends.len() {
                self.ends[index].advance(self.now_us);
                self.turn(index, client, server);
            }
            if is_done(self, client, server) {
                return;
            }
            let timers = self.ends.iter().filter_map(TestEndpoint::due_us);
            let arrival = self.flying.peek().map(|Reverse(flight)| flight.at_us);
            // Nothing can happen before the next arrival or timer.
            let Some(next_us) = timers.chain(arrival).chain(self.alarm_us).min() else {
                return;
            };
            self.now_us = next_us.max(self.now_us);
            self.alarm_us = self.alarm_us.filter(|alarm_us| *alarm_us > self.now_us);
        }
        panic!("no end after {TURNS_MAX} turns: {:?}", self.counts);
    }

    /// Runs for a time.
    pub fn run_for(
        &mut self,
        client: &mut impl Application,
        server: &mut impl Application,
        time_us: u64,
    ) {
        let end_us = self.now_us + time_us;
        self.alarm_us = Some(end_us);
        self.run(client, server, |world, _, _| world.now_us >= end_us);
    }

    /// Processes the events of an endpoint, and sends its datagrams.
    fn turn(&mut self, index: usize, client: &mut impl Application, server: &mut impl Application) {
        let (mut out, mut postponed) = (Vec::new(), Vec::new());
        while let Some(key) = self.ends[index].next_touched() {
            let end = &mut self.ends[index];
            while let Some(event) = end.next_event(key) {
                match index {
                    0 => client.event(end, key, event),
                    _ => server.event(end, key, event),
                }
            }
            if self.happens(self.faults.full_socket) {
                postponed.push(key);
                self.alarm_us = Some(self.now_us + 1000);
                continue;
            }
            while let Some(train) = self.ends[index].emit(key, self.now_us, 10, &mut out) {
                for segment in out[..train.len].chunks(train.segment_len) {
                    self.send(index, train.to, segment);
                }
            }
        }
        // After the loop, since the connections are touched still.
        for key in postponed {
            self.ends[index].postpone(key);
        }
        while let Some(train) = self.ends[index].emit_answer(&mut out) {
            self.send(index, train.to, &out[..train.len]);
        }
    }

    fn send(&mut self, end: usize, to: SocketAddr, bytes: &[u8]) {
        self.counts.datagrams += 1;
        // FNV-1a over bytes and time: another order or time gives another trace.
        for byte in bytes.iter().chain(&self.now_us.to_be_bytes()) {
            self.counts.trace =
                (self.counts.trace ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
        // Routers drop what does not fit, since QUIC forbids fragmentation.
        if bytes.len() > self.faults.mtu {
            self.counts.oversized += 1;
            return;
        }
        if self.happens(self.faults.loss) {
            self.counts.lost += 1;
            return;
        }
        // A copy has a separate delay.
        let copies = 1 + u64::from(self.happens(self.faults.duplication));
        self.counts.duplicated += copies - 1;
        for copy in 0..copies {
            let is_late = self.happens(self.faults.reordering);
            let bytes = match self.happens(self.faults.corruption) {
                true => self.corrupted(bytes),
                false => bytes.to_vec(),
            };
            let delay_us = self.faults.latency_us * (1 + u64::from(is_late));
            self.flying.push(Reverse(Flight {
                at_us: self.now_us + delay_us,
                number: self.counts.datagrams << 1 | copy,
                to,
                from: match end {
                    0 => self.client_address(),
                    _ => SERVER.parse().expect("an address"),
                },
                bytes,
            }));
        }
    }

    fn corrupted(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.counts.corrupted += 1;
        let (mut bytes, random) = (bytes.to_vec(), self.random() as usize);
        let place = (random >> 4) % bytes.len();
        match random & 3 {
            0 => bytes.truncate(place),
            // Headers are short, and rarely hit otherwise.
            1 => bytes[place % 20] ^= 1 << (random >> 40 & 7),
            _ => bytes[place] ^= 1 << (random >> 40 & 7),
        }
        bytes
    }

    fn deliver(&mut self, server: &mut impl Application) {
        while let Some(Reverse(flight)) = self.flying.peek()
            && flight.at_us <= self.now_us
        {
            let Some(Reverse(flight)) = self.flying.pop() else {
                return;
            };
            let datagram = IncomingDatagram {
                from: flight.from,
                local_ip: None,
                ecn: EcnBits::default(),
                bytes: BytesMut::from(&flight.bytes[..]),
            };
            self.counts.len_max = self.counts.len_max.max(flight.bytes.len());
            let end = match flight.to == SERVER.parse().expect("an address") {
                true => self.worker(&flight) + 1,
                false if flight.to == self.client_address() => 0,
                // An address that the client has no more.
                false => continue,
            };
            self.ends[end].take(datagram, self.now_us, |attempt| server.admit(attempt));
        }
    }

    /// The kernel chooses a worker by the addresses; the worker passes what is not its own.
    fn worker(&mut self, flight: &Flight) -> usize {
        // Like the hash of the kernel: another port may be another worker.
        let receiver = usize::from(flight.from.port()) % self.steering.len();
        match self.steering[receiver].route(&flight.bytes) {
            QuicRoute::Worker(worker) => {
                self.counts.steered += 1;
                worker.into()
            }
            _ => receiver,
        }
    }
}
