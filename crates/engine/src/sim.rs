//! The driver for tests: a network, files and clocks in virtual time, with faults from a seed.
//!
//! Bytes arrive in pieces and late, sockets take a part of what is sent, helpers finish out of
//! order, clocks jump. As with edge-triggered epoll, an event comes once: a worker that forgets to
//! look finds the world silent, and [`SimDriver::wait`] panics instead of waiting for ever.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::arena::Block;
use crate::bell::Bell;
use crate::driver::{AcceptFailure, Accepted, Driver, Event, ListenerId, Received, Sent, Token};
use crate::file::{FileSent, OpenFile, TAIL_LEN};
use crate::local::Local;
use crate::outgoing::Sources;

/// How bad the world is: chances in a thousand, and sizes.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Longest piece in which bytes arrive.
    pub piece_len_max: usize,
    /// Longest delay of anything, virtual ms.
    pub delay_ms_max: u64,
    /// Bytes that a socket takes before the client has read some.
    pub window_len: usize,
    /// Per wait: the monotonic clock jumps ahead by up to ten seconds, the other anywhere.
    pub clock_jumps: u64,
    /// Per accept: descriptors have run out.
    pub accept_failures: u64,
    /// Per start of a file's transfer: no descriptor or no helper is to be had.
    pub file_failures: u64,
}

/// The world of one test.
pub struct World {
    now_ms: u64,
    unix_ms: u64,
    random: u64,
    faults: Faults,
    schedule: BTreeMap<(u64, u64), Happening>,
    next_order: u64,
    events: VecDeque<Event>,
    backlog: VecDeque<usize>,
    sockets: HashMap<usize, Socket>,
    next_socket: usize,
    listening: bool,
}

enum Happening {
    Connect(usize),
    Arrive(usize, Vec<u8>),
    End(usize),
    Break(usize),
    Read(usize),
    File(Token, FileSent),
    Call(Box<dyn FnOnce() + Send>),
}

/// One connection, both ends.
#[derive(Default)]
struct Socket {
    token: Option<Token>,
    /// Arrived and not received yet.
    incoming: VecDeque<u8>,
    ended: bool,
    broken: bool,
    /// Taken from the server, not read by the client yet.
    unread: VecDeque<u8>,
    /// Read by the client.
    read: Vec<u8>,
    full: bool,
    finished: bool,
    closed: bool,
    /// When the last piece that the client sent arrives: later ones come after it.
    last_ms: u64,
}

/// The world, shared by the driver, the sockets and the test.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<World>>);

/// One end of a connection in the worker's hands; dropping it closes it.
pub struct SimSocket {
    id: usize,
    world: Shared,
}

/// The driver.
pub struct SimDriver {
    world: Shared,
    local: Local,
}

impl Shared {
    /// A world from a seed.
    pub fn new(seed: u64, faults: Faults) -> Shared {
        Shared(Arc::new(Mutex::new(World {
            now_ms: 1_000_000,
            unix_ms: 1_700_000_000_000,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            faults,
            schedule: BTreeMap::new(),
            next_order: 0,
            events: VecDeque::new(),
            backlog: VecDeque::new(),
            sockets: HashMap::new(),
            next_socket: 0,
            listening: true,
        })))
    }

    /// A driver in this world.
    pub fn driver(&self) -> SimDriver {
        SimDriver {
            world: self.clone(),
            local: Local::new(Bell::new(|| {}), Sources::none()),
        }
    }

    /// A client connects some time from now.
    pub fn connect(&self) -> usize {
        let mut world = self.lock();
        let id = world.next_socket;
        world.next_socket += 1;
        world.sockets.insert(id, Socket::default());
        let at_ms = world.later();
        world.socket(id).last_ms = at_ms;
        world.put(at_ms, Happening::Connect(id));
        id
    }

    /// A client sends bytes: they arrive in pieces, in order.
    pub fn send(&self, id: usize, bytes: &[u8]) {
        let mut world = self.lock();
        let mut rest = bytes;
        while !rest.is_empty() {
            let piece_len_max = world.faults.piece_len_max as u64;
            let len = (1 + world.dice(piece_len_max) as usize).min(rest.len());
            let at_ms = world.later().max(world.socket(id).last_ms);
            world.socket(id).last_ms = at_ms;
            world.put(at_ms, Happening::Arrive(id, rest[..len].to_vec()));
            rest = &rest[len..];
        }
    }

    /// A client sends its end, after all it sent before.
    pub fn end(&self, id: usize) {
        let mut world = self.lock();
        let at_ms = world.socket(id).last_ms;
        world.put(at_ms, Happening::End(id));
    }

    /// A client breaks the connection some time from now.
    pub fn reset(&self, id: usize) {
        let mut world = self.lock();
        let at_ms = world.later();
        world.put(at_ms, Happening::Break(id));
    }

    /// What a client has read so far.
    pub fn read(&self, id: usize) -> Vec<u8> {
        self.lock().socket(id).read.clone()
    }

    /// Whether the server has closed a connection, or said its end on it.
    pub fn over(&self, id: usize) -> bool {
        let mut world = self.lock();
        let socket = world.socket(id);
        (socket.closed || socket.finished) && socket.unread.is_empty()
    }

    /// Calls something some time from now: a helper's work that is done then.
    pub fn later(&self, call: impl FnOnce() + Send + 'static) {
        let mut world = self.lock();
        let at_ms = world.later();
        world.put(at_ms, Happening::Call(Box::new(call)));
    }

    /// Wakes the worker at a time, if nothing else does.
    pub fn alarm(&self, at_ms: u64) {
        self.lock().put(at_ms, Happening::Call(Box::new(|| {})));
    }

    /// A number below `below`, from the seed.
    pub fn dice(&self, below: u64) -> u64 {
        self.lock().dice(below)
    }

    /// Virtual monotonic ms.
    pub fn now_ms(&self) -> u64 {
        self.lock().now_ms
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World {
    /// xorshift64*.
    fn dice(&mut self, below: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % below.max(1)
    }

    fn later(&mut self) -> u64 {
        let delay_ms_max = self.faults.delay_ms_max;
        self.now_ms + self.dice(delay_ms_max + 1)
    }

    fn put(&mut self, at_ms: u64, happening: Happening) {
        self.next_order += 1;
        self.schedule.insert((at_ms, self.next_order), happening);
    }

    fn socket(&mut self, id: usize) -> &mut Socket {
        self.sockets.entry(id).or_default()
    }

    fn tell(&mut self, id: usize, readable: bool, writable: bool) {
        let socket = self.socket(id);
        let (ended, broken) = (socket.ended, socket.broken);
        if let (Some(token), false) = (socket.token, socket.closed) {
            self.events.push_back(Event::Ready {
                token,
                readable,
                writable,
                ended,
                broken,
            });
        }
    }

    /// Lets happen what is due. Returns calls to be made without the lock.
    fn happen(&mut self) -> Vec<Box<dyn FnOnce() + Send>> {
        let mut calls = Vec::new();
        while let Some(first) = self.schedule.first_entry() {
            if first.key().0 > self.now_ms {
                break;
            }
            match first.remove() {
                Happening::Connect(id) => {
                    self.backlog.push_back(id);
                }
                Happening::Arrive(id, bytes) => {
                    self.socket(id).incoming.extend(bytes);
                    self.tell(id, true, false);
                }
                Happening::End(id) => {
                    self.socket(id).ended = true;
                    self.tell(id, true, false);
                }
                Happening::Break(id) => {
                    self.socket(id).broken = true;
                    self.tell(id, true, true);
                }
                Happening::Read(id) => self.client_reads(id),
                Happening::File(token, sent) => self.events.push_back(Event::File(token, sent)),
                Happening::Call(call) => calls.push(call),
            }
        }
        // Listeners are level-triggered.
        if self.listening && !self.backlog.is_empty() {
            self.events.push_back(Event::Acceptable(ListenerId(0)));
        }
        calls
    }

    fn client_reads(&mut self, id: usize) {
        let socket = self.socket(id);
        let bytes: Vec<u8> = socket.unread.drain(..).collect();
        socket.read.extend(bytes);
        if std::mem::take(&mut socket.full) {
            self.tell(id, false, true);
        }
    }

    fn take(&mut self, id: usize, bytes: &[u8]) -> Sent {
        let window_len = self.faults.window_len;
        let at_ms = self.later() + 1;
        let socket = self.socket(id);
        if socket.broken {
            return Sent::Broken;
        }
        let room = window_len - socket.unread.len().min(window_len);
        if room == 0 {
            socket.full = true;
            return Sent::Full;
        }
        let had = socket.unread.len();
        let len = bytes.len().min(room);
        socket.unread.extend(&bytes[..len]);
        if had == 0 {
            self.put(at_ms, Happening::Read(id));
        }
        Sent::Bytes(len)
    }
}

impl Driver for SimDriver {
    type Socket = SimSocket;
    type Listener = ();

    fn wait(&mut self, timeout_ms: Option<u64>, events: &mut Vec<Event>) {
        let calls = {
            let mut world = self.world.lock();
            let next = world
                .schedule
                .first_key_value()
                .map(|((at_ms, _), _)| *at_ms);
            let timeout = timeout_ms.map(|ms| world.now_ms + ms);
            let rung = !self.local.bell.lie_down();
            let pending = !world.events.is_empty() || rung;
            let waiting = world.listening && !world.backlog.is_empty();
            let until = [next, timeout].into_iter().flatten().min();
            match until {
                _ if pending || waiting => {}
                Some(until) => world.now_ms = world.now_ms.max(until),
                None => panic!("the worker waits for something that will never happen"),
            }
            if world.dice(1000) < world.faults.clock_jumps {
                world.now_ms += world.dice(10_000);
                world.unix_ms = world.dice(1 << 41);
            }
            world.happen()
        };
        calls.into_iter().for_each(|call| call());
        events.extend(self.world.lock().events.drain(..));
        self.local.bell.get_up();
    }

    fn now_ms(&self) -> u64 {
        self.world.now_ms()
    }

    fn unix_ms(&self) -> u64 {
        self.world.lock().unix_ms
    }

    fn open_listener(&mut self, _id: ListenerId, (): ()) -> io::Result<()> {
        Ok(())
    }

    fn accept(&mut self, _listener: ListenerId) -> Result<Accepted<SimSocket>, AcceptFailure> {
        let mut world = self.world.lock();
        if world.dice(1000) < world.faults.accept_failures {
            return Err(AcceptFailure::Exhausted);
        }
        let id = world.backlog.pop_front().ok_or(AcceptFailure::Empty)?;
        let socket = SimSocket {
            id,
            world: self.world.clone(),
        };
        let peer = IpAddr::V4(Ipv4Addr::new(10, 0, 0, (id % 250) as u8));
        Ok(Accepted { socket, peer })
    }

    fn listen(&mut self, _listener: ListenerId, on: bool) {
        self.world.lock().listening = on;
    }

    fn refuse_new(&mut self, _listener: ListenerId) {}

    fn close_listener(&mut self, _listener: ListenerId) {
        self.world.lock().listening = false;
    }

    fn register(&mut self, socket: &SimSocket, token: Token) -> io::Result<()> {
        let mut world = self.world.lock();
        world.socket(socket.id).token = Some(token);
        let readable =
            !world.socket(socket.id).incoming.is_empty() || world.socket(socket.id).ended;
        world.tell(socket.id, readable, true);
        Ok(())
    }

    fn receive(&mut self, socket: &SimSocket, into: &mut [u8]) -> Received {
        let mut world = self.world.lock();
        let socket = world.socket(socket.id);
        if socket.broken {
            return Received::Broken;
        }
        let len = socket.incoming.len().min(into.len());
        for (place, byte) in into.iter_mut().zip(socket.incoming.drain(..len)) {
            *place = byte;
        }
        match len {
            0 if socket.ended => Received::End,
            0 => Received::Empty,
            len => Received::Bytes(len),
        }
    }

    fn send(&mut self, socket: &SimSocket, bytes: &[u8], _more: bool) -> Sent {
        self.world.lock().take(socket.id, bytes)
    }

    fn send_block(&mut self, socket: &SimSocket, block: &Block, range: Range<usize>) -> Sent {
        self.world.lock().take(socket.id, &block[range])
    }

    fn start_file(
        &mut self,
        socket: &SimSocket,
        token: Token,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> io::Result<()> {
        let mut world = self.world.lock();
        if world.dice(1000) < world.faults.file_failures {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let rest = range.end - range.start;
        let sent = if rest <= TAIL_LEN {
            let mut tail = vec![0; rest as usize];
            match file.file.read_exact_at(&mut tail, range.start) {
                Ok(()) if file.unchanged() => FileSent::Tail(tail),
                _ => FileSent::Changed,
            }
        } else {
            let len = 1 + world.dice(rest - TAIL_LEN) as usize;
            let mut bytes = vec![0; len];
            file.file.read_exact_at(&mut bytes, range.start)?;
            match world.take(socket.id, &bytes) {
                Sent::Bytes(taken) => {
                    world.socket(socket.id).full |= taken < len;
                    FileSent::Bytes {
                        len: taken as u64,
                        full: taken < len,
                    }
                }
                Sent::Full => FileSent::Bytes { len: 0, full: true },
                Sent::Broken => FileSent::Broken,
            }
        };
        let at_ms = world.later();
        world.put(at_ms, Happening::File(token, sent));
        Ok(())
    }

    fn unacknowledged(&self, socket: &SimSocket) -> usize {
        self.world.lock().socket(socket.id).unread.len()
    }

    fn finish(&mut self, socket: &SimSocket) {
        self.world.lock().socket(socket.id).finished = true;
    }

    fn local(&self) -> &Local {
        &self.local
    }
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        let mut world = self.world.lock();
        let socket = world.socket(self.id);
        socket.closed = true;
        // A close over unread bytes is a reset: what is on its way to the client is lost.
        if !socket.incoming.is_empty() {
            socket.unread.clear();
        }
    }
}
