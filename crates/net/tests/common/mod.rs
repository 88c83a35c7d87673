//! Two stacks connected by a simulated wire that drops, duplicates, delays and reorders frames. Failures print their
//! seed.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod peer;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use lowroad_net::{
    AddressSource, ConnectionEnd, ConnectionId, ConnectionInitiator, DeviceOffload, LinkDevice,
    OutgoingFrame, ReceivedFrame, SendPiece, StackCalls, StackSettings, TcpService, TcpStack,
};

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    pub fn with_chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

/// Records sent frames. Completes checksums and splits segments like a device.
#[derive(Default)]
pub struct Wire {
    pub offload: DeviceOffload,
    pub frames: Vec<Vec<u8>>,
    pub count: usize,
    /// Lengths of the copied and the static part of each sent frame.
    pub parts: Vec<(usize, usize)>,
}

impl LinkDevice for Wire {
    fn send(&mut self, frame: &OutgoingFrame<'_>) {
        self.count += 1;
        self.parts
            .push((frame.copied.len(), frame.static_bytes.len()));
        let whole = [frame.head, frame.copied, frame.static_bytes].concat();
        // The limits of `OutgoingFrame`.
        assert!(frame.head.len() + frame.copied.len() <= 1514);
        assert_eq!(
            frame.partial_sum.is_some(),
            self.offload.sum && is_tcp(&whole)
        );
        match frame.segment_len {
            None => self.frames.push(complete(whole, frame.partial_sum)),
            Some(cut_len) => {
                assert!(self.offload.segmentation);
                cut(&whole, usize::from(cut_len), &mut self.frames);
            }
        }
        let last = self.frames.last().expect("sent");
        assert!(last.len() <= 1514);
        // An endless loop of sends is a bug.
        assert!(self.frames.len() < 2000, "{:?}", &last[34..54]);
    }

    fn offload(&self) -> DeviceOffload {
        self.offload
    }
}

pub fn is_tcp(frame: &[u8]) -> bool {
    frame[12..14] == [8, 0] && frame[23] == 6
}

pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

pub fn sum(bytes: &[u8]) -> u64 {
    bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low)))
        .sum()
}

fn complete(mut frame: Vec<u8>, at: Option<u16>) -> Vec<u8> {
    if let Some(at) = at {
        let at = usize::from(at);
        let sum = !fold(sum(&frame[at..]));
        frame[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

/// Rewrites lengths and checksums of IPv4 and TCP.
pub fn repair(frame: &mut [u8]) {
    let total = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[24..26].fill(0);
    let ip = !fold(sum(&frame[14..34]));
    frame[24..26].copy_from_slice(&ip.to_be_bytes());
    frame[50..52].fill(0);
    let tcp_len = frame.len() as u64 - 34;
    let tcp = !fold(sum(&frame[26..34]) + 6 + tcp_len + sum(&frame[34..]));
    frame[50..52].copy_from_slice(&tcp.to_be_bytes());
}

fn cut(whole: &[u8], cut_len: usize, frames: &mut Vec<Vec<u8>>) {
    let (head, payload) = whole.split_at(54);
    let parts: Vec<&[u8]> = payload.chunks(cut_len).collect();
    let mut seq = u32::from_be_bytes(head[38..42].try_into().expect("four"));
    for (i, part) in parts.iter().enumerate() {
        let mut frame = [head, part].concat();
        frame[38..42].copy_from_slice(&seq.to_be_bytes());
        if i + 1 < parts.len() {
            // FIN and PSH are set in the last segment only.
            frame[47] &= !9;
        }
        repair(&mut frame);
        frames.push(frame);
        seq = seq.wrapping_add(part.len() as u32);
    }
}

/// The service of a side, which records its callbacks.
#[derive(Default)]
pub struct RecordingService {
    pub opened: Vec<(ConnectionId, ConnectionInitiator)>,
    pub input: BTreeMap<u32, Vec<u8>>,
    pub finished: Vec<ConnectionId>,
    pub sent: usize,
    pub ended: Vec<(ConnectionId, ConnectionEnd)>,
    /// The maximum number of bytes consumed per call of `input`.
    pub take_max: Option<usize>,
    /// The response to each line of input.
    pub answer: Option<Answer>,
    pub closes_when_finished: bool,
    pub closes_after_answer: bool,
}

#[derive(Clone, Copy)]
pub struct Answer {
    pub head: &'static [u8],
    pub body: &'static [u8],
    pub sums: &'static [u16],
}

impl TcpService for RecordingService {
    fn opened(
        &mut self,
        _calls: &mut impl StackCalls,
        id: ConnectionId,
        opened: ConnectionInitiator,
    ) {
        self.opened.push((id, opened));
        self.input.insert(id.index, Vec::new());
    }

    fn input(&mut self, calls: &mut impl StackCalls, id: ConnectionId, bytes: &[u8]) -> usize {
        let count = self
            .take_max
            .map_or(bytes.len(), |max| max.min(bytes.len()));
        if let Some(input) = self.input.get_mut(&id.index) {
            input.extend(&bytes[..count]);
        }
        if let Some(answer) = self.answer {
            let lines = bytes[..count].iter().filter(|byte| **byte == b'\n').count();
            for _ in 0..lines {
                calls
                    .send(id, SendPiece::Copied(answer.head))
                    .expect("room");
                let body = SendPiece::Lasting {
                    bytes: answer.body,
                    sums: answer.sums,
                };
                calls.send(id, body).expect("room");
                if self.closes_after_answer {
                    calls.close(id);
                }
            }
        }
        count
    }

    fn finished(&mut self, calls: &mut impl StackCalls, id: ConnectionId) {
        self.finished.push(id);
        if self.closes_when_finished {
            calls.close(id);
        }
    }

    fn sent(&mut self, _calls: &mut impl StackCalls, _id: ConnectionId) {
        self.sent += 1;
    }

    fn ended(&mut self, _calls: &mut impl StackCalls, id: ConnectionId, end: ConnectionEnd) {
        self.ended.push((id, end));
    }
}

pub struct Side {
    pub stack: TcpStack,
    pub wire: Wire,
    pub user: RecordingService,
}

pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

pub fn settings(address: Ipv4Addr, mac: [u8; 6]) -> StackSettings {
    StackSettings {
        mac,
        mtu: 1500,
        address: AddressSource::Static {
            address,
            prefix_len: 24,
            gateway: Some(Ipv4Addr::new(10, 0, 0, 254)),
        },
        ports: vec![80],
        connections_max: 32,
        small_buffers: 64,
        large_buffers: 8,
        idle_timeout_ms: 120_000,
        secret: std::array::from_fn(|i| i as u8 * 7 + mac[5]),
        share: None,
    }
}

impl Side {
    pub fn new(settings: StackSettings) -> Side {
        Side {
            stack: TcpStack::new(settings),
            wire: Wire::default(),
            user: RecordingService::default(),
        }
    }

    pub fn receive(&mut self, now_us: u64, frame: &[u8]) {
        let received = ReceivedFrame {
            frame,
            sum_is_good: false,
        };
        self.stack
            .received(now_us, &mut self.wire, &mut self.user, received);
    }

    pub fn tick(&mut self, now_us: u64) -> Option<u64> {
        self.stack.tick(now_us, &mut self.wire, &mut self.user)
    }

    pub fn connect(&mut self, now_us: u64, to: SocketAddrV4) -> ConnectionId {
        self.stack
            .calls(now_us, &mut self.wire, &mut self.user, |_, calls| {
                calls.connect(to)
            })
            .expect("room")
    }

    pub fn send(&mut self, now_us: u64, id: ConnectionId, bytes: &[u8]) -> bool {
        self.stack
            .calls(now_us, &mut self.wire, &mut self.user, |_, calls| {
                calls.send(id, SendPiece::Copied(bytes)).is_ok()
            })
    }

    pub fn close(&mut self, now_us: u64, id: ConnectionId) {
        self.stack
            .calls(now_us, &mut self.wire, &mut self.user, |_, calls| {
                calls.close(id)
            });
    }

    pub fn counter(&self, name: &str) -> u64 {
        let mut all = self.stack.counters().each();
        all.find(|(it, _)| *it == name).expect("a counter").1
    }
}

/// The probabilities of the wire's faults, per mille.
#[derive(Clone, Copy, Default)]
pub struct WireFaults {
    pub lost: u64,
    pub doubled: u64,
    pub delayed: u64,
}

/// Two sides, the frames in transit, and a clock.
pub struct TestNetwork {
    pub sides: [Side; 2],
    pub now_us: u64,
    pub random: Random,
    pub weather: WireFaults,
    pub delay_us: u64,
    /// (time, order) to (receiver, frame).
    pub in_transit: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    order: u64,
    /// Frames that will be lost: the side, and the number of the frame.
    pub lost_frames: Vec<(usize, usize)>,
    pub seen: [usize; 2],
    /// All frames that were put on the wire.
    pub log: Vec<(usize, Vec<u8>)>,
}

impl TestNetwork {
    pub fn new(server: StackSettings, client: StackSettings, seed: u64) -> TestNetwork {
        TestNetwork {
            sides: [Side::new(server), Side::new(client)],
            now_us: 1_000_000,
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            weather: WireFaults::default(),
            delay_us: 5_000,
            in_transit: BTreeMap::new(),
            order: 0,
            lost_frames: Vec::new(),
            seen: [0; 2],
            log: Vec::new(),
        }
    }

    pub fn plain(seed: u64) -> TestNetwork {
        TestNetwork::new(
            settings(SERVER, SERVER_MAC),
            settings(CLIENT, CLIENT_MAC),
            seed,
        )
    }

    pub fn collect(&mut self) {
        for side in 0..2 {
            for frame in std::mem::take(&mut self.sides[side].wire.frames) {
                let number = self.seen[side];
                self.seen[side] += 1;
                self.log.push((side, frame.clone()));
                if self.lost_frames.contains(&(side, number))
                    || self.random.with_chance(self.weather.lost)
                {
                    continue;
                }
                let copies = 1 + u64::from(self.random.with_chance(self.weather.doubled));
                for _ in 0..copies {
                    let more = match self.random.with_chance(self.weather.delayed) {
                        true => self.random.below(30_000),
                        false => 0,
                    };
                    // The order makes keys unique, so frames that arrive at the same time keep their order.
                    self.order += 1;
                    let at = (self.now_us + self.delay_us + more, self.order);
                    self.in_transit.insert(at, (1 - side, frame.clone()));
                }
            }
        }
    }

    /// Runs until the condition holds, no event is left, or the time is over. Returns whether the condition holds.
    pub fn until(&mut self, life_us: u64, mut is_so: impl FnMut(&TestNetwork) -> bool) -> bool {
        let end_us = self.now_us + life_us;
        loop {
            if is_so(self) {
                return true;
            }
            let mut next_us = end_us;
            for side in &mut self.sides {
                if let Some(at_us) = side.tick(self.now_us) {
                    next_us = next_us.min(at_us.max(self.now_us + 1));
                }
            }
            self.collect();
            if let Some((at, _)) = self.in_transit.first_key_value() {
                next_us = next_us.min(at.0);
            }
            if self.now_us >= end_us {
                return is_so(self);
            }
            // Nothing happens before the next timer or frame, so advance the clock to it.
            self.now_us = next_us.max(self.now_us);
            while let Some(entry) = self.in_transit.first_entry()
                && entry.key().0 <= self.now_us
            {
                let (to, frame) = entry.remove();
                self.sides[to].receive(self.now_us, &frame);
            }
            self.collect();
        }
    }

    pub fn connect(&mut self) -> ConnectionId {
        let to = SocketAddrV4::new(SERVER, 80);
        let now_us = self.now_us;
        let id = self.sides[1].connect(now_us, to);
        self.collect();
        id
    }
}

/// Text without repetitions.
pub fn text(len: usize) -> &'static [u8] {
    let mut random = Random(99);
    let bytes: Vec<u8> = (0..len).map(|_| b'a' + random.below(26) as u8).collect();
    Vec::leak(bytes)
}
