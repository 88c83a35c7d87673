//! A driver for deterministic simulation tests: a network, files and clocks in virtual time, with random faults that a
//! seed determines.
//!
//! Bytes arrive in pieces and delayed, sockets accept only part of the sent bytes or complete a send later, helpers
//! finish out of order, and clocks jump. As with edge-triggered epoll, an event is reported once. If a worker misses an
//! event and nothing else is scheduled, [`SimDriver::wait`] panics instead of waiting for ever.
//!
//! The test is the client of accepted connections, and also the peer of upstream connections, which it takes with
//! [`SharedWorld::dialed`].

#![forbid(unsafe_code)]

mod datagram_network;
mod datagrams;
mod fake_tls;
mod network;
mod sim_world;
mod workers;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_engine::buffer::SendBuffer;
use lowroad_engine::datagrams::{DatagramBatch, DatagramDrops, DatagramTrain};
use lowroad_engine::driver::{
    AcceptFailure, AcceptedSocket, ConnectionToken, DatagramSocketId, DriverEvent, IoDriver,
    ListenerId, ReceiveOutcome, SendOutcome,
};
use lowroad_engine::event_count::EventCount;
use lowroad_engine::file::{FileSent, OpenFile, TAIL_LEN};
use lowroad_engine::upstream_socket::UpstreamSockets;
use lowroad_engine::worker_handle::WorkerHandle;

pub use self::datagram_network::{DatagramFaults, DatagramStats};
pub use self::datagrams::{SimDatagram, SimDatagrams};
pub use self::fake_tls::FakeTls;
use self::network::{SimHelpers, SimNetwork};
pub use self::workers::{SimWorkers, for_each_seed, turn_until};

use self::sim_world::{
    DriverWaits, EndRecipient, PendingSend, SimEvent, SimWorld, SocketName, SocketOwner,
};

/// Faults: probabilities in a thousand, and sizes.
#[derive(Clone, Debug)]
pub struct FaultRates {
    /// Longest piece in which bytes arrive.
    pub piece_len_max: usize,
    /// Longest delay of any event, virtual ms.
    pub delay_ms_max: u64,
    /// Maximum number of bytes that a socket accepts and the client has not read.
    pub window_len: usize,
    /// Per wait: the monotonic clock jumps ahead by up to ten seconds, and the time of day to any value.
    pub clock_jumps: u64,
    /// Per accept: file descriptors have run out.
    pub accept_failures: u64,
    /// Per start of a file transfer or helper job: no file descriptor or helper is available.
    pub file_failures: u64,
    /// Per send: the send completes later, and the driver has the buffer until then.
    pub late_sends: u64,
}

/// Maximum length of one receive.
const RECV_LEN_MAX: usize = 32 * 1024;

/// How upstream peers react to new connections: probabilities in a thousand.
#[derive(Clone, Debug, Default)]
pub struct PeerBehavior {
    /// The connection is refused.
    pub refused: u64,
    /// A TCP connection is never established.
    pub unanswered: u64,
    /// The backlog of a Unix socket is full.
    pub queue_full: u64,
}

/// The simulated world, shared by drivers, sockets and the test.
#[derive(Clone)]
pub struct SharedWorld(Arc<Mutex<SimWorld>>);

/// The worker's end of a connection; dropping this closes the connection.
pub struct SimSocket {
    id: usize,
    world: SharedWorld,
}

/// The simulated driver.
pub struct SimDriver {
    world: SharedWorld,
    number: usize,
    local: WorkerHandle,
    datagrams: BTreeMap<u16, SimDatagrams>,
}

impl SharedWorld {
    /// A world from a seed.
    pub fn new(seed: u64, faults: FaultRates) -> SharedWorld {
        SharedWorld(Arc::new(Mutex::new(SimWorld::new(seed, faults))))
    }

    /// Creates a driver in this world. If there are several, they wait in turn: time passes only while no driver has
    /// work.
    pub fn driver(&self) -> SimDriver {
        let mut world = self.lock();
        let (number, now_ms) = (world.drivers.len(), world.now_ms());
        let network = SimNetwork {
            world: self.clone(),
            driver: number,
        };
        let (sources, helpers) = (UpstreamSockets::new(network), SimHelpers(self.clone()));
        let local = WorkerHandle::new(EventCount::new(|| {}), sources, helpers, now_ms);
        world.drivers.push(DriverWaits {
            events: VecDeque::new(),
            event_count: local.event_count.clone(),
            timers: local.timers.clone(),
            wake_us: None,
            is_stopped: false,
        });
        SimDriver {
            world: self.clone(),
            number,
            local,
            datagrams: BTreeMap::new(),
        }
    }

    /// Stops a driver in the middle of its work, as if its thread were preempted, or lets it continue. Time passes even
    /// if a stopped driver has work. Drivers are numbered in order of creation.
    pub fn stop(&self, driver: usize, is_stopped: bool) {
        self.lock().drivers[driver].is_stopped = is_stopped;
    }

    /// Sets the probability, in a thousand, that the world refuses kernel TLS.
    pub fn set_kernel_tls_failures(&self, seal_failures: u64) {
        self.lock().kernel_tls_failures = seal_failures;
    }

    /// Sets the behavior of upstream peers.
    pub fn set_peer_behavior(&self, behavior: PeerBehavior) {
        self.lock().peer_behavior = behavior;
    }

    /// Takes the upstream connections that were established since the last call. The test acts as their peer, with the
    /// same functions as for a client.
    pub fn dialed(&self) -> Vec<usize> {
        std::mem::take(&mut self.lock().dialed)
    }

    /// The number of jobs that tasks gave to helpers.
    pub fn helper_jobs(&self) -> usize {
        self.lock().helper_jobs
    }

    /// The number of connections that the drivers have not closed.
    pub fn open_count(&self) -> usize {
        self.lock().open_count()
    }

    /// Lets a client connect, after a random delay.
    pub fn connect(&self) -> usize {
        let mut world = self.lock();
        let id = world.add_socket(None);
        let due_ms = world.random_due_ms();
        // Bytes must not arrive before the connection.
        world.socket(id).last_ms = due_ms;
        world.schedule_at_ms(due_ms, SimEvent::Connect(id));
        id
    }

    /// Sends bytes from a client, which arrive in pieces and in order.
    pub fn send(&self, id: usize, bytes: &[u8]) {
        let mut world = self.lock();
        let mut rest = bytes;
        while !rest.is_empty() {
            let piece_len_max = world.faults.piece_len_max as u64;
            let len = (1 + world.random_below(piece_len_max) as usize).min(rest.len());
            // TCP keeps the order: a piece never overtakes an earlier one.
            let due_ms = world.random_due_ms().max(world.socket(id).last_ms);
            world.socket(id).last_ms = due_ms;
            world.schedule_at_ms(due_ms, SimEvent::Arrive(id, rest[..len].to_vec()));
            rest = &rest[len..];
        }
    }

    /// Half-closes a client's connection, after all bytes sent before.
    pub fn end(&self, id: usize) {
        let mut world = self.lock();
        let due_ms = world.socket(id).last_ms.max(world.now_ms());
        world.schedule_at_ms(due_ms, SimEvent::End(id));
    }

    /// Closes a client's connection, after all bytes sent before: the end of input arrives, and bytes sent to the
    /// client cause a reset.
    pub fn close(&self, id: usize) {
        self.end(id);
        self.lock().socket(id).is_gone = true;
    }

    /// Resets a client's connection, after all bytes sent before.
    pub fn reset_after(&self, id: usize) {
        let mut world = self.lock();
        let due_ms = world.socket(id).last_ms.max(world.now_ms());
        world.schedule_at_ms(due_ms, SimEvent::Break(id));
    }

    /// Lets a client stop reading (`true`), or resume.
    pub fn hold(&self, id: usize, is_held: bool) {
        let mut world = self.lock();
        world.socket(id).is_held = is_held;
        let due_ms = world.random_due_ms() + 1;
        world.schedule_at_ms(due_ms, SimEvent::Read(id));
    }

    /// Resets a client's connection after a random delay.
    pub fn reset(&self, id: usize) {
        let mut world = self.lock();
        let due_ms = world.random_due_ms();
        world.schedule_at_ms(due_ms, SimEvent::Break(id));
    }

    /// The bytes that a client has read.
    pub fn read(&self, id: usize) -> Vec<u8> {
        self.lock().socket(id).read.clone()
    }

    /// Takes the bytes that a client has read.
    pub fn take_read(&self, id: usize) -> Vec<u8> {
        std::mem::take(&mut self.lock().socket(id).read)
    }

    /// Whether the server has closed or half-closed a connection, and the client has read all its bytes.
    pub fn is_over(&self, id: usize) -> bool {
        let mut world = self.lock();
        let socket = world.socket(id);
        (socket.closed || socket.finished) && socket.unread.is_empty() && !socket.has_pending_send()
    }

    /// Whether the server has reset a connection.
    pub fn was_reset(&self, id: usize) -> bool {
        self.lock().socket(id).was_reset
    }

    /// Calls a function after a random delay, like a helper thread.
    pub fn call_later(&self, call: impl FnOnce() + Send + 'static) {
        let mut world = self.lock();
        let due_ms = world.random_due_ms();
        world.schedule_at_ms(due_ms, SimEvent::Call(Box::new(call)));
    }

    /// Schedules an event that ends a wait at this time.
    pub fn alarm(&self, due_ms: u64) {
        self.lock()
            .schedule_at_ms(due_ms, SimEvent::Call(Box::new(|| {})));
    }

    /// A pseudorandom number below `below`, determined by the seed.
    pub fn random_below(&self, below: u64) -> u64 {
        self.lock().random_below(below)
    }

    /// Virtual monotonic ms.
    pub fn now_ms(&self) -> u64 {
        self.lock().now_ms()
    }

    fn lock(&self) -> MutexGuard<'_, SimWorld> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IoDriver for SimDriver {
    type Socket = SimSocket;
    type RecvBuffer = Vec<u8>;
    type Listener = ();
    type Datagrams = SimDatagrams;

    fn wait(&mut self, timeout_ms: Option<u64>, events: &mut Vec<DriverEvent>) {
        let (calls, now_ms) = {
            let mut world = self.world.lock();
            // All drivers run on this thread, so nothing can notify this driver while it is parked.
            self.local.event_count.prepare();
            let timeout_ms = timeout_ms.map(|ms| self.local.timers.now_ms() + ms);
            world.pass_time(timeout_ms);
            // Clocks jump like this after a suspend, or when the time of day is set.
            if world.random_below(1000) < world.faults.clock_jumps {
                world.now_us += world.random_below(10_000) * 1000;
                world.unix_ms = world.random_below(1 << 41);
            }
            (world.run_due_events(self.number), world.now_ms())
        };
        // Called without the lock, as a function may use this world.
        calls.into_iter().for_each(|call| call());
        events.extend(self.world.lock().drivers[self.number].events.drain(..));
        self.local.resume(now_ms);
    }

    fn now_ms(&self) -> u64 {
        self.world.now_ms()
    }

    fn now_us(&self) -> u64 {
        self.world.lock().now_us
    }

    fn wake_at(&mut self, at_us: Option<u64>) {
        self.world.lock().drivers[self.number].wake_us = at_us;
    }

    fn unix_ms(&self) -> u64 {
        self.world.lock().unix_ms
    }

    fn open_listener(&mut self, _id: ListenerId, (): ()) -> io::Result<()> {
        Ok(())
    }

    fn accept(
        &mut self,
        _listener: ListenerId,
    ) -> Result<AcceptedSocket<SimSocket>, AcceptFailure> {
        let mut world = self.world.lock();
        if world.random_below(1000) < world.faults.accept_failures {
            return Err(AcceptFailure::Exhausted);
        }
        let id = world.backlog.pop_front().ok_or(AcceptFailure::Empty)?;
        let socket = SimSocket {
            id,
            world: self.world.clone(),
        };
        let peer = IpAddr::V4(Ipv4Addr::new(10, 0, 0, (id % 250) as u8));
        Ok(AcceptedSocket {
            socket,
            peer,
            peer_port: 1024 + id as u16 % 50_000,
        })
    }

    fn listen(&mut self, _listener: ListenerId, on: bool) {
        self.world.lock().listening = on;
    }

    fn refuse_handshakes(&mut self, _listener: ListenerId) {}

    fn suspend_listener(&mut self, _listener: ListenerId) {
        self.world.lock().listening = false;
    }

    fn resume_listener(&mut self, _listener: ListenerId) -> io::Result<()> {
        self.world.lock().listening = true;
        Ok(())
    }

    fn share_listener(&self, _listener: ListenerId) -> io::Result<()> {
        Ok(())
    }

    fn close_listener(&mut self, _listener: ListenerId) {
        self.world.lock().listening = false;
    }

    fn register(&mut self, socket: &SimSocket, token: ConnectionToken) -> io::Result<()> {
        let mut world = self.world.lock();
        world.socket(socket.id).owner = Some(SocketOwner {
            driver: self.number,
            name: SocketName::Accepted(token),
        });
        let readable =
            !world.socket(socket.id).incoming.is_empty() || world.socket(socket.id).ended;
        // Like epoll_ctl(2), this reports the current readiness.
        world.report(socket.id, readable, true);
        Ok(())
    }

    fn receive(&mut self, socket: &SimSocket, _: ConnectionToken) -> ReceiveOutcome<Vec<u8>> {
        let mut world = self.world.lock();
        let socket = world.socket(socket.id);
        if socket.broken {
            return ReceiveOutcome::Broken;
        }
        let len = socket.incoming.len().min(RECV_LEN_MAX);
        let received: Vec<u8> = socket.incoming.drain(..len).collect();
        match len {
            0 if socket.ended => ReceiveOutcome::End,
            0 => ReceiveOutcome::Empty,
            len => ReceiveOutcome::Bytes {
                buffer: received,
                more: len == RECV_LEN_MAX,
            },
        }
    }

    fn return_buffer(&mut self, _: Vec<u8>) {}

    fn send(
        &mut self,
        socket: &SimSocket,
        token: ConnectionToken,
        buffer: &mut SendBuffer,
        _: bool,
    ) -> SendOutcome {
        let mut world = self.world.lock();
        assert!(!world.socket(socket.id).has_pending_send(), "one at a time");
        if world.random_below(1000) < world.faults.late_sends {
            let send = PendingSend {
                recipient: EndRecipient::Worker(self.number, token),
                buffer: std::mem::take(buffer),
            };
            world.send_later(socket.id, send);
            return SendOutcome::Underway;
        }
        let bytes = buffer.pieces().concat();
        match world.accept_bytes(socket.id, &bytes) {
            // A full socket may be reported now, or by the next send.
            SendOutcome::Bytes(len) if len < bytes.len() && world.random_below(2) == 0 => {
                world.socket(socket.id).full = true;
                SendOutcome::Filled(len)
            }
            sent => sent,
        }
    }

    fn start_file(
        &mut self,
        socket: &SimSocket,
        token: ConnectionToken,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> io::Result<()> {
        let mut world = self.world.lock();
        assert!(!world.socket(socket.id).has_pending_send(), "one at a time");
        if world.random_below(1000) < world.faults.file_failures {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let rest = range.end - range.start;
        // As in the real transfer, the tail is read, not sent.
        let held_back = if file.is_immutable { 0 } else { TAIL_LEN };
        let sent = if rest <= held_back {
            lowroad_engine::file::read_all(file, range)
        } else {
            // A transfer may stop anywhere before the tail.
            let len = (1 + world.random_below(rest - held_back)).min(rest) as usize;
            let mut bytes = vec![0; len];
            file.file.read_exact_at(&mut bytes, range.start)?;
            match world.accept_bytes(socket.id, &bytes) {
                SendOutcome::Bytes(sent_len) => {
                    world.socket(socket.id).full |= sent_len < len;
                    FileSent::Bytes {
                        len: sent_len as u64,
                        full: sent_len < len,
                    }
                }
                SendOutcome::Broken => FileSent::Broken,
                _ => FileSent::Bytes { len: 0, full: true },
            }
        };
        let due_ms = world.random_due_ms();
        world.schedule_at_ms(due_ms, SimEvent::File(self.number, token, sent));
        Ok(())
    }

    fn start_read(
        &mut self,
        token: ConnectionToken,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> io::Result<()> {
        let mut world = self.world.lock();
        if world.random_below(1000) < world.faults.file_failures {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // A read may be short.
        let len = 1 + world.random_below(range.end - range.start);
        let read = lowroad_engine::file::read(file, range.start..range.start + len);
        let due_ms = world.random_due_ms();
        world.schedule_at_ms(due_ms, SimEvent::File(self.number, token, read));
        Ok(())
    }

    fn enable_kernel_tls(&mut self, socket: &SimSocket, keys: &[u8]) -> io::Result<()> {
        let mut world = self.world.lock();
        if world.random_below(1000) < world.kernel_tls_failures {
            return Err(io::ErrorKind::NotFound.into());
        }
        assert_eq!(keys, FakeTls::KEYS);
        let socket = world.socket(socket.id);
        // Kernel TLS is enabled once, and not within a send.
        assert!(!socket.has_kernel_tls && !socket.has_pending_send());
        socket.has_kernel_tls = true;
        Ok(())
    }

    fn send_alert(&mut self, socket: &SimSocket, alert: &[u8]) -> SendOutcome {
        let mut world = self.world.lock();
        let is_idle = !world.socket(socket.id).has_pending_send();
        assert!(is_idle && world.socket(socket.id).has_kernel_tls);
        assert_eq!(alert, FakeTls::END);
        world.take_alert(socket.id)
    }

    fn unacknowledged(&self, socket: &SimSocket) -> usize {
        self.world.lock().socket(socket.id).unread.len()
    }

    fn finish(&mut self, socket: &SimSocket) {
        let mut world = self.world.lock();
        let socket = world.socket(socket.id);
        socket.finished = true;
        // Like the kernel: a half-close drops a record that it kept.
        socket.withheld.clear();
    }

    fn close(&mut self, socket: SimSocket) {
        drop(socket);
    }

    fn reset(&mut self, socket: SimSocket) {
        let mut world = self.world.lock();
        let connection = world.socket(socket.id);
        connection.was_reset = true;
        // Bytes in flight to the client are lost.
        connection.unread.clear();
        drop(world);
        drop(socket);
    }

    fn open_datagrams(&mut self, id: DatagramSocketId, socket: SimDatagrams) -> io::Result<()> {
        socket.set_owner(self.number, id);
        self.datagrams.insert(id.0, socket);
        Ok(())
    }

    fn receive_datagrams(&mut self, id: DatagramSocketId, batch: &mut DatagramBatch) -> bool {
        batch.clear();
        let socket = self.datagrams.get(&id.0);
        socket.is_some_and(|socket| socket.receive_batch(batch))
    }

    fn send_datagrams(
        &mut self,
        id: DatagramSocketId,
        trains: &mut [DatagramTrain],
        bytes: &[u8],
    ) -> usize {
        match self.datagrams.get(&id.0) {
            Some(socket) => socket.send_trains(trains, bytes),
            None => trains.len(),
        }
    }

    fn datagram_drops(&self, id: DatagramSocketId) -> DatagramDrops {
        let drops = self.datagrams.get(&id.0).map(SimDatagrams::drops);
        drops.unwrap_or_default()
    }

    fn close_datagrams(&mut self, id: DatagramSocketId) {
        self.datagrams.remove(&id.0);
    }

    fn worker_handle(&self) -> &WorkerHandle {
        &self.local
    }
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        self.world.lock().close(self.id);
    }
}
