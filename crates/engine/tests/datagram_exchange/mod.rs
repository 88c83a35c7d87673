//! A datagram echo server and its client, for any driver: the same code runs in the simulator and on epoll.
//!
//! The client retransmits unanswered datagrams, and shortens those that remain unanswered, like a protocol that probes
//! the path MTU. It checks bytes, addresses and ECN codepoints of all responses.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use lowroad_engine::datagrams::{DatagramBatch, DatagramTrain, Ecn};
use lowroad_engine::driver::{DatagramSocketId, DriverEvent, IoDriver};

/// Maximum number of turns; then an exchange counts as stuck.
const TURNS_MAX: usize = 200_000;
/// How often a datagram is sent before a shorter one is tried.
const TRIES_PER_LEN: u32 = 6;
/// The length of the number with which each datagram begins.
pub const NUMBER_LEN: usize = 8;

/// A server that sends datagrams back, from the address to which they were sent.
pub struct DatagramEcho {
    id: DatagramSocketId,
    batch: DatagramBatch,
    /// Trains that were not sent because the socket was full.
    unsent: VecDeque<(DatagramTrain, Vec<u8>)>,
    /// The number of received datagrams.
    pub received: u64,
    /// Received trains of several datagrams.
    pub trains: u64,
    /// The number of room events.
    pub rooms: u64,
}

impl DatagramEcho {
    /// An echo server on this socket of the driver.
    pub fn new(id: DatagramSocketId) -> DatagramEcho {
        DatagramEcho {
            id,
            batch: DatagramBatch::default(),
            unsent: VecDeque::new(),
            received: 0,
            trains: 0,
            rooms: 0,
        }
    }

    /// Handles an event, if it is for its socket.
    pub fn handle<D: IoDriver>(&mut self, driver: &mut D, event: &DriverEvent) {
        match event {
            DriverEvent::Datagrams(id) if *id == self.id => while self.receive(driver) {},
            DriverEvent::Room(id) if *id == self.id => {
                self.rooms += 1;
                self.send_rest(driver);
            }
            _ => {}
        }
    }

    /// Receives and sends back a batch. Returns whether there may be more.
    fn receive<D: IoDriver>(&mut self, driver: &mut D) -> bool {
        let more = driver.receive_datagrams(self.id, &mut self.batch);
        for train in self.batch.trains() {
            self.received += train.count() as u64;
            self.trains += u64::from(train.count() > 1);
        }
        let (trains, bytes) = self.batch.parts_mut();
        let sent = match self.unsent.is_empty() {
            true => driver.send_datagrams(self.id, trains, bytes),
            false => 0,
        };
        for train in &trains[sent..] {
            let kept = bytes[train.range.clone()].to_vec();
            let range = 0..kept.len();
            let train = train.clone();
            self.unsent
                .push_back((DatagramTrain { range, ..train }, kept));
        }
        more
    }

    fn send_rest<D: IoDriver>(&mut self, driver: &mut D) {
        while let Some((train, bytes)) = self.unsent.front_mut() {
            let sent = driver.send_datagrams(self.id, std::slice::from_mut(train), bytes);
            if sent == 0 {
                return;
            }
            self.unsent.pop_front();
        }
    }
}

/// An unanswered datagram.
struct Unanswered {
    to: SocketAddr,
    len: usize,
    tries: u32,
}

/// A client that sends numbered datagrams, and retransmits them until all are answered.
pub struct DatagramClient {
    id: DatagramSocketId,
    ecn: Ecn,
    batch: DatagramBatch,
    unanswered: BTreeMap<u64, Unanswered>,
    /// The destination of each datagram, and its first length.
    sent: Vec<(SocketAddr, usize)>,
    resend_us: u64,
    resend_at_us: u64,
    /// The number and length of each response, in the order of arrival.
    pub answers: Vec<(u64, usize)>,
    /// The number of responses with [`Ecn::Ce`].
    pub marked: u64,
    /// Received trains of several datagrams.
    pub trains: u64,
}

impl DatagramClient {
    /// A client on a socket of the driver, which sends datagrams of these lengths, in turn to these addresses, and
    /// retransmits them after `resend_us`.
    pub fn new(
        id: DatagramSocketId,
        to: &[SocketAddr],
        lens: &[usize],
        ecn: Ecn,
        resend_us: u64,
    ) -> DatagramClient {
        let to = to.iter().cycle();
        let sent: Vec<_> = to.copied().zip(lens.iter().copied()).collect();
        let unanswered = sent.iter().zip(0..).map(|(&(to, len), number)| {
            assert!(len >= NUMBER_LEN, "room for the number");
            (number, Unanswered { to, len, tries: 0 })
        });
        DatagramClient {
            id,
            ecn,
            batch: DatagramBatch::default(),
            unanswered: unanswered.collect(),
            sent,
            resend_us,
            resend_at_us: 0,
            answers: Vec::new(),
            marked: 0,
            trains: 0,
        }
    }

    /// Whether all datagrams are answered.
    pub fn is_done(&self) -> bool {
        self.unanswered.is_empty()
    }

    /// Handles an event, if it is for its socket.
    pub fn handle<D: IoDriver>(&mut self, driver: &mut D, event: &DriverEvent) {
        if !matches!(event, DriverEvent::Datagrams(id) if *id == self.id) {
            return;
        }
        while {
            let more = driver.receive_datagrams(self.id, &mut self.batch);
            for train in self.batch.trains().to_vec() {
                self.trains += u64::from(train.count() > 1);
                let answers = train.segments(self.batch.bytes()).map(<[u8]>::to_vec);
                for answer in answers.collect::<Vec<_>>() {
                    self.take_answer(&train, &answer);
                }
            }
            more
        } {}
    }

    fn take_answer(&mut self, train: &DatagramTrain, answer: &[u8]) {
        let (number, _) = answer.split_first_chunk().expect("a number");
        let number = u64::from_le_bytes(*number);
        assert!(answer == payload(number, answer.len()), "bytes as sent");
        let (to, _) = self.sent[number as usize];
        assert_eq!(train.peer, to, "the address that was asked");
        assert!(train.local.is_some(), "a local address");
        self.marked += u64::from(train.ecn == Ecn::Ce);
        assert!([self.ecn, Ecn::Ce].contains(&train.ecn), "{:?}", train.ecn);
        self.answers.push((number, answer.len()));
        self.unanswered.remove(&number);
    }

    /// Sends the unanswered datagrams if they are due. Returns when they are due next. Datagrams that a full socket
    /// does not accept are treated as lost.
    pub fn send_due<D: IoDriver>(&mut self, driver: &mut D) -> Option<u64> {
        if self.is_done() {
            return None;
        }
        if driver.now_us() >= self.resend_at_us {
            self.send_all(driver);
            self.resend_at_us = driver.now_us() + self.resend_us;
        }
        Some(self.resend_at_us)
    }

    fn send_all<D: IoDriver>(&mut self, driver: &mut D) {
        let (mut trains, mut bytes) = (Vec::<DatagramTrain>::new(), Vec::new());
        for (number, unanswered) in &mut self.unanswered {
            unanswered.tries += 1;
            if unanswered.tries.is_multiple_of(TRIES_PER_LEN) {
                unanswered.len = (unanswered.len / 2).max(NUMBER_LEN);
            }
            let start = bytes.len();
            bytes.extend(payload(*number, unanswered.len));
            match trains.last_mut() {
                Some(last) if last.peer == unanswered.to && last.can_grow(unanswered.len) => {
                    last.range.end = bytes.len();
                }
                _ => trains.push(DatagramTrain {
                    peer: unanswered.to,
                    local: None,
                    ecn: self.ecn,
                    segment_len: unanswered.len,
                    range: start..bytes.len(),
                }),
            }
        }
        let _ = driver.send_datagrams(self.id, &mut trains, &bytes);
    }
}

/// Whether another datagram may be added to a train.
trait CanGrow {
    fn can_grow(&self, len: usize) -> bool;
}

impl CanGrow for DatagramTrain {
    fn can_grow(&self, len: usize) -> bool {
        let is_whole = self.range.len().is_multiple_of(self.segment_len);
        is_whole && len <= self.segment_len
    }
}

/// The payload of a datagram.
pub fn payload(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((NUMBER_LEN..len).map(|at| (number * 31 + at as u64 * 7) as u8));
    bytes
}

/// Runs turns until all clients have all responses.
pub fn run<D: IoDriver>(driver: &mut D, echo: &mut DatagramEcho, clients: &mut [DatagramClient]) {
    let mut events = Vec::new();
    for _ in 0..TURNS_MAX {
        let due = clients
            .iter_mut()
            .filter_map(|client| client.send_due(driver));
        let at_us = due.min();
        driver.wake_at(at_us);
        if at_us.is_none() {
            return;
        }
        driver.wait(None, &mut events);
        for event in events.drain(..) {
            echo.handle(driver, &event);
            for client in &mut *clients {
                client.handle(driver, &event);
            }
        }
    }
    panic!("no end");
}
