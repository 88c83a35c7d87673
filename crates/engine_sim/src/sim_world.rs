//! The simulated world of a test: scheduled events, and both ends of all connections. Drivers are represented by their
//! queues of events.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use super::datagram_network::{DatagramNetwork, DatagramTransit};
use super::{FakeTls, FaultRates, PeerBehavior};
use lowroad_engine::buffer::SendBuffer;
use lowroad_engine::driver::{
    ConnectionToken, DriverEvent, ListenerId, SendCompletion, SendOutcome,
};
use lowroad_engine::event_count::EventCount;
use lowroad_engine::file::FileSent;
use lowroad_engine::timers::WorkerTimers;
use lowroad_engine::upstream_network::{SocketEvent, SourceId};

/// The simulated world of one test.
pub struct SimWorld {
    /// Monotonic time; most events are scheduled at whole milliseconds.
    pub now_us: u64,
    pub unix_ms: u64,
    pub faults: FaultRates,
    pub peer_behavior: PeerBehavior,
    /// The probability, in a thousand, that enabling kernel TLS fails.
    pub kernel_tls_failures: u64,
    pub drivers: Vec<DriverWaits>,
    pub backlog: VecDeque<usize>,
    /// Upstream connections that were established since the last call of `dialed`.
    pub dialed: Vec<usize>,
    pub listening: bool,
    pub datagrams: DatagramNetwork,
    /// The number of jobs that tasks gave to helpers.
    pub helper_jobs: usize,
    random: u64,
    schedule: BTreeMap<(u64, u64), SimEvent>,
    next_order: u64,
    sockets: HashMap<usize, SimConnection>,
    next_socket: usize,
}

/// The world's knowledge of a driver.
pub struct DriverWaits {
    /// The events that the driver's next wait returns.
    pub events: VecDeque<DriverEvent>,
    pub event_count: Arc<EventCount>,
    pub timers: WorkerTimers,
    /// The time set by `IoDriver::wake_at`.
    pub wake_us: Option<u64>,
    /// The driver is preempted: time passes even if it has work.
    pub is_stopped: bool,
}

impl DriverWaits {
    /// Whether the driver's next wait would return immediately.
    fn has_work(&self) -> bool {
        !self.events.is_empty() || self.event_count.is_notified()
    }
}

pub enum SimEvent {
    Connect(usize),
    Dial(usize, Result<(), io::ErrorKind>),
    Arrive(usize, Vec<u8>),
    End(usize),
    Break(usize),
    Read(usize),
    Send(usize),
    File(usize, ConnectionToken, FileSent),
    Datagram(DatagramTransit),
    /// A datagram has left this socket.
    Departed(usize),
    Call(Box<dyn FnOnce() + Send>),
}

/// The recipient of a socket's events: a driver, and the socket's identifier there.
#[derive(Clone, Copy)]
pub struct SocketOwner {
    pub driver: usize,
    pub name: SocketName,
}

/// The identifier of a socket in its driver.
#[derive(Clone, Copy)]
pub enum SocketName {
    Accepted(ConnectionToken),
    Upstream(SourceId),
}

/// Both ends of a connection.
#[derive(Default)]
pub struct SimConnection {
    pub owner: Option<SocketOwner>,
    /// The result of connecting, for upstream connections.
    pub dialed: Option<Result<(), io::ErrorKind>>,
    /// Bytes that have arrived and are not received yet.
    pub incoming: VecDeque<u8>,
    pub ended: bool,
    pub broken: bool,
    /// Bytes that the server has sent and the client has not read yet.
    pub unread: VecDeque<u8>,
    /// Bytes that the client has read.
    pub read: Vec<u8>,
    /// Kernel TLS is enabled: sent bytes are encrypted.
    pub has_kernel_tls: bool,
    /// A record that was accepted and not transmitted: a close or half-close drops it, as in the kernel.
    pub withheld: Vec<u8>,
    pub full: bool,
    pub finished: bool,
    pub closed: bool,
    /// The driver's side has reset the connection.
    pub was_reset: bool,
    /// The driver's send in progress.
    pending_send: Option<PendingSend>,
    /// A completed send, until its task takes it.
    pub completed: Option<SendCompletion>,
    /// The client has stopped reading.
    pub is_held: bool,
    /// The client has closed: bytes sent to it cause a reset.
    pub is_gone: bool,
    /// When the last piece that the client sent arrives, which later pieces must not overtake.
    pub last_ms: u64,
}

/// A send that completes later.
pub struct PendingSend {
    pub recipient: EndRecipient,
    pub buffer: SendBuffer,
}

/// The recipient of a send's result.
pub enum EndRecipient {
    /// The worker of this driver, for this connection.
    Worker(usize, ConnectionToken),
    /// The task that owns the socket.
    Task,
}

impl SimConnection {
    /// Whether a send is in progress.
    pub fn has_pending_send(&self) -> bool {
        self.pending_send.is_some()
    }
}

impl SimWorld {
    pub fn new(seed: u64, faults: FaultRates) -> SimWorld {
        SimWorld {
            now_us: 1_000_000_000,
            unix_ms: 1_700_000_000_000,
            faults,
            peer_behavior: PeerBehavior::default(),
            kernel_tls_failures: 0,
            drivers: Vec::new(),
            backlog: VecDeque::new(),
            dialed: Vec::new(),
            listening: true,
            datagrams: DatagramNetwork::default(),
            helper_jobs: 0,
            // Never 0, as xorshift stays at 0.
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            schedule: BTreeMap::new(),
            next_order: 0,
            sockets: HashMap::new(),
            next_socket: 0,
        }
    }

    /// Adds a connection that is being established.
    pub fn add_socket(&mut self, owner: Option<SocketOwner>) -> usize {
        let id = self.next_socket;
        self.next_socket += 1;
        let socket = SimConnection {
            owner,
            ..SimConnection::default()
        };
        self.sockets.insert(id, socket);
        id
    }

    /// The number of connections that the drivers have not closed.
    pub fn open_count(&self) -> usize {
        let open = |socket: &&SimConnection| !socket.closed;
        self.sockets.values().filter(open).count()
    }

    /// Advances the time to the next event, the next time at which a driver is to be woken, or `timeout_ms`, unless a
    /// driver has work now.
    pub fn pass_time(&mut self, timeout_ms: Option<u64>) {
        // Listeners are level-triggered.
        let waiting = self.listening && !self.backlog.is_empty();
        let drivers = self.drivers.iter().enumerate();
        let drivers = drivers.filter(|(_, driver)| !driver.is_stopped);
        let has_work = |(index, driver): (usize, &DriverWaits)| {
            driver.has_work() || self.datagrams.has_received(index)
        };
        if waiting || drivers.clone().any(has_work) {
            return;
        }
        let next = self.schedule.first_key_value();
        let next_us = next.map(|((event_us, _), _)| *event_us);
        let wakes = drivers.clone().map(|(_, driver)| driver.wake_us);
        let timers = drivers.map(|(_, driver)| driver.timers.next_ms());
        let ends_ms = timers.chain([timeout_ms]);
        let ends_us = ends_ms.map(|end_ms| Some(end_ms? * 1000));
        let until_us = ends_us.chain(wakes).chain([next_us]).flatten().min();
        // After a lost wake-up nothing is scheduled, so the test fails here.
        let until_us = until_us.expect("the worker waits for something that will never happen");
        self.now_us = self.now_us.max(until_us);
    }

    /// Monotonic ms.
    pub fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    /// A pseudorandom number below `below`, by xorshift64*.
    pub fn random_below(&mut self, below: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % below.max(1)
    }

    pub fn random_due_ms(&mut self) -> u64 {
        let delay_ms_max = self.faults.delay_ms_max;
        self.now_ms() + self.random_below(delay_ms_max + 1)
    }

    pub fn schedule_at_ms(&mut self, due_ms: u64, event: SimEvent) {
        self.schedule_at_us(due_ms * 1000, event);
    }

    /// Schedules an event at a time in µs.
    pub fn schedule_at_us(&mut self, due_us: u64, event: SimEvent) {
        self.next_order += 1;
        // Events of the same time keep the order in which they were scheduled.
        self.schedule.insert((due_us, self.next_order), event);
    }

    pub fn socket(&mut self, id: usize) -> &mut SimConnection {
        self.sockets.entry(id).or_default()
    }

    pub fn report(&mut self, id: usize, readable: bool, writable: bool) {
        let socket = self.socket(id);
        let (ended, broken) = (socket.ended, socket.broken);
        // A closed or unregistered socket reports nothing.
        let (Some(owner), false) = (socket.owner, socket.closed) else {
            return;
        };
        let event = match owner.name {
            SocketName::Accepted(token) => DriverEvent::Ready {
                token,
                readable,
                writable,
                ended,
                broken,
            },
            SocketName::Upstream(id) => DriverEvent::UpstreamReady(SocketEvent {
                id,
                readable: readable || ended || broken,
                writable: writable || broken,
                ended: ended || broken,
            }),
        };
        self.drivers[owner.driver].events.push_back(event);
    }

    /// Handles the events that are due, during a wait of this driver. Returns the functions to call without the lock.
    pub fn run_due_events(&mut self, driver: usize) -> Vec<Box<dyn FnOnce() + Send>> {
        let mut calls = Vec::new();
        while let Some(first) = self.schedule.first_entry() {
            if first.key().0 > self.now_us {
                break;
            }
            match first.remove() {
                SimEvent::Connect(id) => {
                    self.backlog.push_back(id);
                }
                SimEvent::Dial(id, result) => {
                    self.socket(id).dialed = Some(result);
                    if result.is_ok() {
                        self.dialed.push(id);
                    }
                    self.report(id, result.is_err(), true);
                }
                SimEvent::Arrive(id, bytes) => {
                    self.socket(id).incoming.extend(bytes);
                    self.report(id, true, false);
                }
                SimEvent::End(id) => {
                    self.socket(id).ended = true;
                    self.report(id, true, false);
                }
                SimEvent::Break(id) => {
                    self.socket(id).broken = true;
                    // The result of the send in progress is reported before or after the error.
                    let is_first = self.random_below(2) == 0;
                    if is_first {
                        self.end_send(id);
                    }
                    self.report(id, true, true);
                    self.end_send(id);
                }
                SimEvent::Read(id) => self.client_reads(id),
                SimEvent::Send(id) => self.end_send(id),
                SimEvent::File(driver, token, sent) => {
                    self.drivers[driver]
                        .events
                        .push_back(DriverEvent::File(token, sent));
                }
                SimEvent::Datagram(transit) => self.datagrams.arrive(transit),
                SimEvent::Departed(port) => {
                    if let Some((driver, event)) = self.datagrams.depart(port) {
                        self.drivers[driver].events.push_back(event);
                    }
                }
                SimEvent::Call(call) => calls.push(call),
            }
        }
        // Listeners and datagram sockets are level-triggered.
        let readable = self.datagrams.readable(driver).map(DriverEvent::Datagrams);
        self.drivers[driver].events.extend(readable);
        if self.listening && !self.backlog.is_empty() {
            self.drivers[driver]
                .events
                .push_back(DriverEvent::Acceptable(ListenerId(0)));
        }
        calls
    }

    fn client_reads(&mut self, id: usize) {
        let socket = self.socket(id);
        if socket.is_held {
            return;
        }
        let bytes: Vec<u8> = socket.unread.drain(..).collect();
        socket.read.extend(bytes);
        let withheld = std::mem::take(&mut socket.withheld);
        socket.read.extend(withheld);
        // Events are edge-triggered: room is reported only after the socket was full.
        if std::mem::take(&mut socket.full) {
            self.report(id, false, true);
            self.end_send(id);
        }
    }

    /// Starts a send that completes after a random delay.
    pub fn send_later(&mut self, id: usize, send: PendingSend) {
        self.socket(id).pending_send = Some(send);
        let due_ms = self.random_due_ms();
        self.schedule_at_ms(due_ms, SimEvent::Send(id));
    }

    /// Completes the send in progress, unless the socket has no room yet.
    fn end_send(&mut self, id: usize) {
        let Some(send) = self.socket(id).pending_send.take() else {
            return;
        };
        let bytes = send.buffer.pieces().concat();
        // A connection that was half-closed before its close sends all its bytes.
        let is_closed = self.socket(id).closed;
        let len = match self.random_below(2) == 0 && !is_closed {
            true => 1 + self.random_below(bytes.len() as u64) as usize,
            false => bytes.len(),
        };
        let sent_len = match self.accept_bytes(id, &bytes[..len]) {
            SendOutcome::Bytes(len) => Some(len),
            SendOutcome::Broken => None,
            // The socket is full: the send continues when the client reads.
            _ => return self.socket(id).pending_send = Some(send),
        };
        if !is_closed {
            let completion = SendCompletion {
                buffer: send.buffer,
                sent_len,
            };
            match send.recipient {
                EndRecipient::Worker(driver, token) => {
                    let event = DriverEvent::Sent(token, Box::new(completion));
                    self.drivers[driver].events.push_back(event);
                }
                EndRecipient::Task => {
                    self.socket(id).completed = Some(completion);
                    self.report(id, false, true);
                }
            }
        }
    }

    pub fn accept_bytes(&mut self, id: usize, bytes: &[u8]) -> SendOutcome {
        let window_len = self.faults.window_len;
        let due_ms = self.random_due_ms() + 1;
        let socket = self.socket(id);
        if socket.broken {
            return SendOutcome::Broken;
        }
        let room = window_len - socket.unread.len().min(window_len);
        if room == 0 {
            socket.full = true;
            return SendOutcome::Full;
        }
        // Bytes to a closed peer are accepted, and cause a reset.
        if socket.is_gone {
            self.schedule_at_ms(due_ms, SimEvent::Break(id));
            return SendOutcome::Bytes(bytes.len().min(room));
        }
        let len = bytes.len().min(room);
        let bytes = &bytes[..len];
        if !socket.has_kernel_tls {
            self.deliver(id, bytes, due_ms);
            return SendOutcome::Bytes(len);
        }
        let mut sealed = std::mem::take(&mut socket.withheld);
        // The kernel may accept a record and keep part of it.
        let (delivered, withheld) = bytes.split_at(self.random_below(len as u64 + 1) as usize);
        sealed.extend(FakeTls::records(delivered));
        self.socket(id).withheld = FakeTls::records(withheld);
        self.deliver(id, &sealed, due_ms);
        SendOutcome::Bytes(len)
    }

    /// Like [`SimWorld::accept_bytes`], for close_notify with kernel TLS.
    pub fn take_alert(&mut self, id: usize) -> SendOutcome {
        let window_len = self.faults.window_len;
        let due_ms = self.random_due_ms() + 1;
        let socket = self.socket(id);
        if socket.broken {
            return SendOutcome::Broken;
        }
        if socket.unread.len() >= window_len {
            socket.full = true;
            return SendOutcome::Full;
        }
        let mut sealed = std::mem::take(&mut socket.withheld);
        sealed.extend(FakeTls::end());
        self.deliver(id, &sealed, due_ms);
        SendOutcome::Bytes(1)
    }

    /// Adds bytes for the client. If no other bytes are in flight, the client reads all available bytes at this time.
    fn deliver(&mut self, id: usize, bytes: &[u8], due_ms: u64) {
        let socket = self.socket(id);
        let unread_len = socket.unread.len();
        socket.unread.extend(bytes);
        // Otherwise the scheduled read includes these bytes.
        if unread_len == 0 {
            self.schedule_at_ms(due_ms, SimEvent::Read(id));
        }
    }

    /// Closes the driver's end of a connection.
    pub fn close(&mut self, id: usize) {
        let socket = self.socket(id);
        socket.closed = true;
        socket.withheld.clear();
        // A half-closed connection still completes its send, see `IoDriver::close`.
        if !socket.finished {
            socket.pending_send = None;
        }
        // A close over unread bytes causes a reset: bytes in flight to the client are lost.
        if !socket.incoming.is_empty() {
            socket.unread.clear();
        }
    }
}
