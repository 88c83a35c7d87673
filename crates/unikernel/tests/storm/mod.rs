//! A network around a server: a well-behaved client, a faulty database server, and an attacker with nearly valid
//! frames. Invariants are checked during the run and at the end.

pub mod frames;
pub mod liar;
pub mod visitor;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use frames::{Random, be16, be32, mutate, packet, segment};
use liar::FaultyDatabase;
use lowroad_http::content_coding::ContentCoding;
use lowroad_net::{
    AddressSource, DeviceOffload, LinkDevice, OutgoingFrame, ReceivedFrame, StackSettings,
    TcpService, TcpStack,
};
use lowroad_unikernel::archive::{ArchiveBuilder, NewVariant, SiteArchive};
use lowroad_unikernel::{CurrentTime, MachineSetup, UnikernelServer};
use visitor::CheckingClient;

const SERVER: u32 = 0x0a00_0001;
const VISITOR: u32 = 0x0a00_0002;
const DATABASE: u32 = 0x0a00_0003;
const GATEWAY: u32 = 0x0a00_00fe;
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const VISITOR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const DATABASE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];
const ATTACKER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 66];
/// Number of connections of the attacker: few enough to leave some for the client, or more than fit.
const FLOWS: (usize, usize) = (60, 2000);
/// A network with addresses that never complete a handshake.
const FORGED: u32 = 0x0b00_0000;
/// Maximum time that the client waits for a response.
const PATIENCE_US: u64 = 3_000_000;

/// The pause before the client connects again.
const PAUSE_US: u64 = 10_000;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// Sent frames, in the form in which they are on the wire.
#[derive(Default)]
struct Wire {
    frames: Vec<Vec<u8>>,
    /// Unused buffers for later frames.
    spare: Vec<Vec<u8>>,
}

impl LinkDevice for Wire {
    fn send(&mut self, frame: &OutgoingFrame<'_>) {
        let mut whole = self.spare.pop().unwrap_or_default();
        whole.clear();
        for part in [frame.head, frame.copied, frame.static_bytes] {
            whole.extend_from_slice(part);
        }
        assert!(whole.len() <= 1514 && frame.segment_len.is_none());
        self.frames.push(whole);
        assert!(self.frames.len() < 5000, "sent without end");
    }

    fn offload(&self) -> DeviceOffload {
        DeviceOffload::default()
    }
}

struct Peer<S> {
    stack: TcpStack,
    wire: Wire,
    user: S,
}

impl<S: TcpService> Peer<S> {
    fn new(address: u32, mac: [u8; 6], ports: Vec<u16>, user: S) -> Peer<S> {
        let stack = TcpStack::new(StackSettings {
            mac,
            mtu: 1500,
            address: AddressSource::Static {
                address: Ipv4Addr::from_bits(address),
                prefix_len: 24,
                gateway: None,
            },
            ports,
            connections_max: 64,
            small_buffers: 256,
            large_buffers: 128,
            idle_timeout_ms: 60_000,
            secret: [mac[5]; 32],
            share: None,
        });
        Peer {
            stack,
            wire: Wire::default(),
            user,
        }
    }

    fn receive(&mut self, now_us: u64, frame: &[u8]) {
        let received = ReceivedFrame {
            frame,
            sum_is_good: false,
        };
        self.stack
            .received(now_us, &mut self.wire, &mut self.user, received);
    }
}

/// The attacker's view of a connection.
#[derive(Clone, Copy)]
struct Flow {
    address: u32,
    port: u16,
    seq: u32,
    /// The sequence number after the data of the server.
    ack: u32,
    is_open: bool,
}

pub struct Storm {
    random: Random,
    server: UnikernelServer,
    wire: Wire,
    visitor: Peer<CheckingClient>,
    database: Peer<FaultyDatabase>,
    flows: Vec<Flow>,
    /// Recent frames of the attacker and of the server, for replays.
    recent: Vec<Vec<u8>>,
    seen: Vec<u8>,
    now_us: u64,
    next_us: u64,
    free: (usize, usize),
    /// Numbers of bytes from and to addresses that never complete a handshake.
    forged: (u64, u64),
    xid: [u8; 4],
    pub frames: u64,
    kind: Kind,
}

/// The kind of a storm.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The attacker leaves connections for the client.
    Plain,
    /// The attacker may occupy all connections and buffers during the storm.
    Crowd,
    /// The server has its address from DHCP, and may lose it.
    Dhcp,
}

fn file(body: &[u8]) -> Vec<NewVariant> {
    vec![NewVariant {
        encoding: ContentCoding::Identity,
        shared_fields: b"ETag: \"e\"\r\n".to_vec(),
        content_fields: b"Content-Type: text/plain\r\nAccept-Ranges: bytes\r\n".to_vec(),
        etag: "\"e\"".into(),
        content_type: "text/plain".into(),
        last_modified_s: Some(784_111_777),
        body: body.to_vec(),
    }]
}

fn long() -> &'static [u8] {
    let bytes: Vec<u8> = (0..40_000_u32).map(|at| b'a' + (at % 23) as u8).collect();
    Vec::leak(bytes)
}

const PAGE: &str = "{% set all = query(\"SELECT a, b FROM t WHERE b < ?\", request.params.n or 100) %}\
    {{ request.params.n or 'nobody' }}{% for one in all %}<li>{{ one.a }} {{ one.b }}{% endfor %}";

fn site(long: &[u8]) -> SiteArchive {
    let mut builder = ArchiveBuilder::new();
    let small = b"<p>Hello";
    builder
        .file(&[b"/", b"/index.html"], file(small))
        .expect("a file");
    builder.file(&[b"/long"], file(long)).expect("a file");
    builder.redirect(b"/sub", "/sub/").expect("a redirect");
    builder.forbidden(b"/sub/").expect("a folder");
    builder
        .page(b"/page.lrp", "page.lrp", PAGE)
        .expect("a page");
    builder.setting("database.address", "10.0.0.3:3306");
    builder.setting("database.user", "u");
    builder.setting("database.password", "p");
    builder.setting("status.from", "10.0.0.2");
    builder.setting("status.from", "10.0.0.66");
    let bytes = builder.finish().expect("an archive");
    SiteArchive::open(Vec::leak(bytes)).expect("an archive")
}

impl Storm {
    pub fn new(seed: u64, kind: Kind) -> Storm {
        let is_dhcp = kind == Kind::Dhcp;
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let long = long();
        let machine = MachineSetup {
            mac: SERVER_MAC,
            mtu: 1500,
            address: match is_dhcp {
                true => AddressSource::Dhcp,
                false => AddressSource::Static {
                    address: Ipv4Addr::from_bits(SERVER),
                    prefix_len: 24,
                    gateway: Some(Ipv4Addr::from_bits(GATEWAY)),
                },
            },
            // The minimum memory of a server, so that limits are reached.
            memory_len: 4 << 20,
            secret: std::array::from_fn(|_| random.next() as u8),
            cores: None,
        };
        let server = UnikernelServer::new(site(long), machine).expect("a server");
        let sites: Vec<(&'static str, &'static [u8])> = vec![
            ("/", b"<p>Hello"),
            ("/long", long),
            ("/page.lrp?n=5", b""),
            ("/.lowroad/status", b""),
        ];
        let liar = FaultyDatabase {
            random: Random(random.next() | 1),
            faults_per_mille: random.choose(&[0, 20, 200]),
            statements: 0,
        };
        let count = if kind == Kind::Crowd {
            FLOWS.1
        } else {
            FLOWS.0
        };
        // A third from one address, a third from the local network, a third from behind the gateway.
        let flows = (0..count).map(|at| Flow {
            address: match at % 3 {
                0 => 0x0a00_0042,
                1 => 0x0a00_0080 + at as u32 % 100,
                _ => 0xc000_0200 + at as u32 % 200,
            },
            port: 1000 + at as u16,
            seq: random.next() as u32,
            ack: 0,
            is_open: false,
        });
        let flows = flows.collect();
        let free = server.free_buffers();
        let mut user = CheckingClient::new(sites);
        user.is_lenient = kind != Kind::Plain;
        Storm {
            server,
            wire: Wire::default(),
            visitor: Peer::new(VISITOR, VISITOR_MAC, vec![], user),
            database: Peer::new(DATABASE, DATABASE_MAC, vec![3306], liar),
            flows,
            recent: Vec::new(),
            seen: Vec::new(),
            now_us: 1_000_000,
            next_us: 0,
            free,
            forged: (0, 0),
            xid: [0; 4],
            frames: 0,
            kind,
            random,
        }
    }

    /// Sends `count` frames of the attacker, while the other hosts continue. Then checks that all buffers are free
    /// again.
    pub fn run(&mut self, count: u64) {
        self.bind();
        for _ in 0..count {
            if self.random.has_chance(300) {
                self.now_us += self.random.below(1000) as u64;
            }
            // Rarely, since all connections expire.
            if self.random.below(100_000) == 0 {
                self.jump();
            }
            let frame = self.attack();
            self.frames += 1;
            self.give(&frame);
            self.keep(frame);
            // The timers of the server run when they are due, and sometimes before.
            self.settle();
            if self.frames.is_multiple_of(16) || self.next_us <= self.now_us {
                self.tick();
            }
        }
        if self.kind != Kind::Dhcp {
            self.calm();
        }
        self.end();
    }

    /// Checks that the client is served soon after the storm, although connections of the attacker are still open.
    fn calm(&mut self) {
        self.leave();
        let before = self.visitor.user.answers;
        for _ in 0..2000 {
            self.now_us += 5_000;
            self.tick();
        }
        assert!(self.visitor.user.answers > before + 2);
    }

    /// The server's counters.
    pub fn status(&self) -> &str {
        &self.visitor.user.status
    }

    pub fn answers(&self) -> (u64, [u64; 2], u64) {
        let user = &self.visitor.user;
        (user.answers, user.pages, self.database.user.statements)
    }

    fn now(&self) -> CurrentTime {
        CurrentTime {
            mono_us: self.now_us,
            unix_s: 784_111_800 + self.now_us / 1_000_000,
        }
    }

    fn give(&mut self, frame: &[u8]) {
        let before = self.wire.frames.len();
        let from = source(frame);
        if is_forged(from) {
            // Frames on Ethernet have at least 60 bytes.
            self.forged.0 += frame.len().max(60) as u64;
        }
        let received = ReceivedFrame {
            frame,
            sum_is_good: false,
        };
        let now = self.now();
        self.server.received(now, &mut self.wire, received);
        // No amplification: a forged source gets at most two frames for one.
        assert!(!is_forged(from) || self.wire.frames.len() <= before + 2);
    }

    /// Delivers frames until no host sends any more.
    fn settle(&mut self) {
        for _ in 0..1000 {
            if self.wire.frames.is_empty()
                && self.visitor.wire.frames.is_empty()
                && self.database.wire.frames.is_empty()
            {
                return;
            }
            let now_us = self.now_us;
            for mut frame in std::mem::take(&mut self.wire.frames) {
                let to: [u8; 6] = frame[..6].try_into().expect("six");
                let is_all = to == [0xff; 6];
                if to == VISITOR_MAC || is_all {
                    self.visitor.receive(now_us, &frame);
                }
                if to == DATABASE_MAC || is_all {
                    self.database.receive(now_us, &frame);
                }
                if to == ATTACKER_MAC || is_all {
                    self.hear(&frame);
                }
                frame.clear();
                self.wire.spare.push(frame);
            }
            for frame in std::mem::take(&mut self.visitor.wire.frames) {
                self.give(&frame);
                self.visitor.wire.spare.push(frame);
            }
            for frame in std::mem::take(&mut self.database.wire.frames) {
                self.give(&frame);
                self.database.wire.spare.push(frame);
            }
            // A round trip takes some time; otherwise RTT samples would be 0.
            self.now_us += 10;
        }
        panic!("they never end to talk");
    }

    fn tick(&mut self) {
        let now = self.now();
        self.next_us = self
            .server
            .tick(now, &mut self.wire)
            .unwrap_or(u64::MAX)
            // The time must advance even if a timer is always due.
            .max(self.now_us + 50);
        let now_us = self.now_us;
        let peer = &mut self.visitor;
        peer.stack.tick(now_us, &mut peer.wire, &mut peer.user);
        let peer = &mut self.database;
        peer.stack.tick(now_us, &mut peer.wire, &mut peer.user);
        self.visit();
        self.settle();
    }

    /// Connects the client again, or ends its connection if it has waited too long.
    fn visit(&mut self) {
        let now_us = self.now_us;
        let user = &self.visitor.user;
        if user.is_lenient && user.id.is_some() && now_us - user.since_us > PATIENCE_US {
            self.leave();
        }
        let Peer { stack, wire, user } = &mut self.visitor;
        if user.id.is_some() {
            let is_page = user.is_awaiting_page();
            let waited_us = now_us - user.since_us;
            // A file needs no database, so its response must be fast.
            if !is_page {
                assert!(waited_us < PATIENCE_US, "no answer for {waited_us} us");
            }
            // The timeout of a page is 15 seconds; its request may be queued before.
            assert!(waited_us < 40_000_000, "no page for {waited_us} us");
            return;
        }
        if now_us < user.since_us + PAUSE_US {
            return;
        }
        let to = SocketAddrV4::new(Ipv4Addr::from_bits(SERVER), 80);
        user.since_us = now_us;
        user.id = stack.calls(now_us, wire, user, |_, calls| {
            use lowroad_net::StackCalls;
            calls.connect(to).ok()
        });
    }

    /// The client drops its connection.
    fn leave(&mut self) {
        let now_us = self.now_us;
        let Peer { stack, wire, user } = &mut self.visitor;
        if let Some(id) = user.forget(now_us) {
            stack.calls(now_us, wire, user, |_, calls| {
                use lowroad_net::StackCalls;
                calls.abort(id);
            });
        }
    }

    /// Advances the time so far that connections expire.
    fn jump(&mut self) {
        self.leave();
        self.settle();
        self.now_us += self
            .random
            .choose(&[1_000_000, 61_000_000, 3_600_000_000, 1 << 42]);
        self.visitor.user.since_us = self.now_us;
        self.tick();
        self.bind();
    }

    /// Checks that all buffers are free again after the attack.
    fn end(&mut self) {
        self.leave();
        self.settle();
        // 200 seconds: more than all timeouts of connections and retransmissions.
        for _ in 0..400 {
            self.now_us += 500_000;
            let now = self.now();
            self.server.tick(now, &mut self.wire);
            self.settle_silently();
        }
        let forged = self.forged;
        // The number of bytes is not amplified either.
        assert!(forged.1 <= forged.0 * 2, "{forged:?}");
        // Only connections to the database may remain, which no longer responds.
        assert!(
            self.server.open_count() <= 8,
            "{}",
            self.server.open_count()
        );
        assert_eq!(self.server.free_buffers(), self.free);
    }

    fn settle_silently(&mut self) {
        self.wire.frames.clear();
        self.visitor.wire.frames.clear();
        self.database.wire.frames.clear();
    }

    /// Processes a frame from the server to the attacker.
    fn hear(&mut self, frame: &[u8]) {
        if frame[12..14] == [8, 0] {
            let to = be32(frame, 30);
            if is_forged(to) {
                self.forged.1 += frame.len() as u64;
            }
            if frame[23] == 17 && frame.len() > 50 {
                self.xid.copy_from_slice(&frame[46..50]);
            }
            if frame[23] == 6 && frame.len() >= 54 {
                let port = be16(frame, 36);
                let flow = self
                    .flows
                    .iter_mut()
                    .find(|it| (it.address, it.port) == (to, port));
                if let Some(flow) = flow {
                    let flags = frame[47];
                    let header_len = usize::from(frame[46] >> 4) * 4;
                    let len = frame.len() - 34 - header_len;
                    let end = be32(frame, 38)
                        .wrapping_add(len as u32)
                        .wrapping_add(u32::from(flags & (SYN | FIN) != 0));
                    // The attacker tracks the connection, so that most of its segments are plausible.
                    flow.ack = end;
                    flow.is_open = flags & RST == 0;
                    // Sometimes it misses an ACK and sends old data again.
                    if flags & ACK != 0 && self.random.has_chance(900) {
                        flow.seq = be32(frame, 42);
                    }
                }
                // For the quoted headers in forged ICMP errors.
                self.seen.clear();
                self.seen.extend_from_slice(&frame[14..54]);
            }
        }
    }

    fn keep(&mut self, frame: Vec<u8>) {
        match self.recent.len() {
            64 => {
                let at = self.random.below(64);
                self.recent[at] = frame;
            }
            _ => self.recent.push(frame),
        }
    }

    fn attack(&mut self) -> Vec<u8> {
        let mut frame = match self.random.below(100) {
            // Replays an earlier frame.
            0..4 if !self.recent.is_empty() => {
                let at = self.random.below(self.recent.len());
                self.recent[at].clone()
            }
            4..6 => self.arp(),
            6..8 => self.icmp(),
            8..10 => self.dhcp(2),
            10..16 => self.forged(),
            _ => self.talk(),
        };
        if self.random.has_chance(120) {
            mutate(&mut self.random, &mut frame);
        }
        frame
    }

    fn tcp(
        &mut self,
        flow: &Flow,
        numbers: (u32, u32),
        flags: u8,
        window: u16,
        options: &[u8],
        data: &[u8],
    ) -> Vec<u8> {
        let port = if self.random.has_chance(3) { 81 } else { 80 };
        let bytes = segment((flow.port, port), numbers, flags, window, options, data);
        let ip_options: &[u8] = if self.random.has_chance(5) {
            &[1, 1, 1, 0]
        } else {
            &[]
        };
        let mut frame = packet(
            (ATTACKER_MAC, SERVER_MAC),
            flow.address,
            SERVER,
            6,
            ip_options,
            &bytes,
        );
        if self.random.has_chance(5) {
            frame[20] = self.random.next() as u8 & 0x3f;
            frame[21] = self.random.next() as u8;
        }
        frames::repair(&mut frame, false);
        frame
    }

    fn forged(&mut self) -> Vec<u8> {
        let flow = Flow {
            address: FORGED + self.random.below(1 << 20) as u32,
            port: self.random.next() as u16,
            seq: self.random.next() as u32,
            ack: self.random.next() as u32,
            is_open: false,
        };
        let flags = self
            .random
            .choose(&[SYN, SYN, SYN, ACK, RST, SYN | ACK, FIN | ACK]);
        self.tcp(
            &flow,
            (flow.seq, flow.ack),
            flags,
            65_535,
            &[2, 4, 5, 180, 1, 3, 3, 7, 1, 1, 4, 2],
            &[],
        )
    }

    fn options(&mut self, flow: &Flow) -> Vec<u8> {
        let mut options = vec![1; 2];
        match self.random.below(3) {
            0 => return Vec::new(),
            1 => {
                let blocks = 1 + self.random.below(4);
                options.extend([5, 2 + 8 * blocks as u8]);
                for _ in 0..blocks {
                    let from = flow.ack.wrapping_sub(self.random.below(40_000) as u32);
                    let to = from.wrapping_add(self.random.below(9000) as u32);
                    options.extend(from.to_be_bytes());
                    options.extend(to.to_be_bytes());
                }
            }
            _ => {
                for _ in 0..10 {
                    options.push(self.random.next() as u8 & self.random.next() as u8);
                }
            }
        }
        options
    }

    fn near(&mut self, number: u32) -> u32 {
        match self.random.below(12) {
            0..6 => number,
            6 => number.wrapping_add(self.random.below(5000) as u32),
            7 => number.wrapping_sub(self.random.below(5000) as u32),
            8 => number.wrapping_add(self.random.choose(&[
                1,
                65_534,
                65_535,
                65_536,
                1 << 31,
                u32::MAX,
            ])),
            9 => number.wrapping_sub(1),
            10 => number.wrapping_sub(self.random.below(70_000) as u32),
            _ => self.random.next() as u32,
        }
    }

    fn talk(&mut self) -> Vec<u8> {
        let at = self.random.below(self.flows.len());
        let flow = self.flows[at];
        let window = self
            .random
            .choose(&[0, 0, 1, 100, 1460, 65_535, 65_535, 65_535]);
        if !flow.is_open {
            // Sequence numbers that wrap soon.
            let near_wrap = self.random_near_wrap();
            let seq = self.random.choose(&[flow.seq, near_wrap]);
            let mss = self
                .random
                .choose(&[0_u16, 1, 64, 536, 1460, 65_535])
                .to_be_bytes();
            let mut options = vec![2, 4, mss[0], mss[1]];
            if self.random.has_chance(500) {
                options.extend([1, 1, 4, 2]);
            }
            if self.random.has_chance(500) {
                options.extend([1, 3, 3, self.random.below(18) as u8]);
            }
            let flags = self
                .random
                .choose(&[SYN, SYN, SYN, SYN, SYN | FIN, SYN | PSH]);
            return self.tcp(&flow, (seq, 0), flags, window, &options, &[]);
        }
        let (seq, ack) = (self.near(flow.seq), self.near(flow.ack));
        match self.random.below(20) {
            0..8 => {
                let data = self.request();
                let from = self.random.below(3) * self.random.below(data.len());
                let from = from.min(data.len());
                let to = match self.random.below(3) {
                    0 => from + self.random.below(data.len() - from + 1),
                    _ => data.len(),
                };
                // Otherwise the data are lost or sent again later.
                if seq == flow.seq && self.random.has_chance(900) {
                    self.flows[at].seq = seq.wrapping_add((to - from) as u32);
                }
                let flags = self.random.choose(&[
                    ACK,
                    ACK | PSH,
                    ACK | PSH,
                    ACK | PSH,
                    ACK | FIN,
                    0,
                    ACK | 0x20,
                ]);
                self.tcp(&flow, (seq, ack), flags, window, &[], &data[from..to])
            }
            8..16 => {
                let options = self.options(&flow);
                self.tcp(&flow, (seq, ack), ACK, window, &options, &[])
            }
            16 => {
                self.flows[at].seq = seq.wrapping_add(1);
                self.tcp(&flow, (seq, ack), ACK | FIN, window, &[], &[])
            }
            17 => self.tcp(&flow, (seq, ack), RST, window, &[], &[]),
            18 => self.tcp(&flow, (seq, ack), SYN, window, &[2, 4, 5, 180], &[]),
            _ => {
                self.flows[at].is_open = false;
                let flags = self.random.next() as u8;
                self.tcp(&flow, (seq, ack), flags, window, &[], &[7; 9])
            }
        }
    }

    fn random_near_wrap(&mut self) -> u32 {
        (self.random.below(4000) as u32).wrapping_sub(2000)
    }

    fn request(&mut self) -> Vec<u8> {
        const HEADS: [&str; 18] = [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /long HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /long HTTP/1.1\r\nHost: a\r\nRange: bytes=5-900\r\n\r\n",
            "GET /long HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1,9-99,-5\r\n\r\n",
            "GET /page.lrp?n=%27%3Cb HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /page.lrp?n=1&n=2&%zz HTTP/1.0\r\n\r\n",
            "HEAD /page.lrp HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            "GET /.lowroad/status HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /.lowroad/log HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /sub?x=1 HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\nabc",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET /a/../../etc HTTP/1.1\r\nHost: a\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"e\", W/\"e\"\r\n\r\n",
            "GET / HTTP/1.1\nHost: a\n\n",
            "\x16\x03\x01\x02\r\n\r\n",
        ];
        let mut data = Vec::new();
        for _ in 0..=self.random.below(3) {
            data.extend(self.random.choose(&HEADS).as_bytes());
        }
        if self.random.has_chance(100) {
            let at = self.random.below(data.len());
            data[at] = self.random.next() as u8;
        }
        if self.random.has_chance(50) {
            data.extend(vec![b'x'; self.random.below(1400)]);
        }
        data.truncate(1460);
        data
    }

    fn arp(&mut self) -> Vec<u8> {
        let mut frame = [&SERVER_MAC[..], &ATTACKER_MAC, &[8, 6, 0, 1, 8, 0, 6, 4, 0]].concat();
        frame.push(self.random.choose(&[1, 2, 3]));
        frame.extend(ATTACKER_MAC);
        let near = 0x0a00_0040 + self.random.below(150) as u32;
        frame.extend(
            self.random
                .choose(&[near, GATEWAY, SERVER, 0, u32::MAX])
                .to_be_bytes(),
        );
        frame.extend(SERVER_MAC);
        frame.extend(self.random.choose(&[SERVER, SERVER, near]).to_be_bytes());
        frame
    }

    fn icmp(&mut self) -> Vec<u8> {
        let mut bytes = vec![8, 0, 0, 0, 0, 1, 0, 1];
        match self.random.below(3) {
            0 => bytes.extend(vec![7; self.random.below(1460)]),
            1 => {
                let mtu = self
                    .random
                    .choose(&[0_u16, 1, 39, 40, 68, 300, 576, 1400, 65_535])
                    .to_be_bytes();
                bytes = vec![3, 4, 0, 0, 0, 0, mtu[0], mtu[1]];
                bytes.extend(&self.seen);
                bytes.truncate(8 + self.random.below(48));
            }
            _ => {
                bytes[0] = self.random.next() as u8;
                bytes[1] = self.random.below(16) as u8;
            }
        }
        let flow = self.flows[self.random.below(self.flows.len())];
        packet(
            (ATTACKER_MAC, SERVER_MAC),
            flow.address,
            SERVER,
            1,
            &[],
            &bytes,
        )
    }

    /// A message of the DHCP server: 2 is DHCPOFFER, 5 is DHCPACK, 6 is DHCPNAK.
    fn dhcp(&mut self, kind: u8) -> Vec<u8> {
        let kind = if self.random.has_chance(300) {
            self.random.choose(&[2, 5, 6, 9])
        } else {
            kind
        };
        let address = if self.kind == Kind::Dhcp {
            SERVER
        } else {
            self.random.next() as u32
        };
        dhcp(kind, self.xid, address, &mut self.random)
    }

    /// Lets the server get its address by DHCP.
    fn bind(&mut self) {
        if self.kind != Kind::Dhcp {
            return;
        }
        for _ in 0..200 {
            self.tick();
            for kind in [2, 5] {
                let frame = dhcp(kind, self.xid, SERVER, &mut Random(5));
                self.give(&frame);
                self.settle();
            }
            self.now_us += 300_000;
            self.visitor.user.since_us = self.now_us;
        }
    }
}

fn dhcp(kind: u8, xid: [u8; 4], address: u32, random: &mut Random) -> Vec<u8> {
    let mut text = vec![0; 240];
    text[..3].copy_from_slice(&[2, 1, 6]);
    text[4..8].copy_from_slice(&xid);
    text[16..20].copy_from_slice(&address.to_be_bytes());
    text[28..34].copy_from_slice(&SERVER_MAC);
    text[236..240].copy_from_slice(&[99, 130, 83, 99]);
    text.extend([
        53, 1, kind, 54, 4, 10, 0, 0, 254, 1, 4, 255, 255, 255, 0, 3, 4, 10, 0, 0, 254, 51, 4,
    ]);
    text.extend(random.choose(&[3600_u32, 0, 1, 60, u32::MAX]).to_be_bytes());
    if random.has_chance(500) {
        text.extend([
            58,
            4,
            random.next() as u8,
            0,
            0,
            9,
            59,
            4,
            0,
            0,
            random.next() as u8,
            1,
        ]);
    }
    text.push(255);
    let mut bytes = vec![0, 67, 0, 68, 0, 0, 0, 0];
    bytes[4..6].copy_from_slice(&((8 + text.len()) as u16).to_be_bytes());
    bytes.extend(text);
    packet((ATTACKER_MAC, SERVER_MAC), GATEWAY, SERVER, 17, &[], &bytes)
}

fn source(frame: &[u8]) -> u32 {
    match frame.get(26..30) {
        Some(_) if frame[12..14] == [8, 0] => be32(frame, 26),
        _ => 0,
    }
}

fn is_forged(address: u32) -> bool {
    address >> 24 == FORGED >> 24
}

/// Runs one storm of `count` frames for each seed. Returns the sums of their counters.
pub fn storms(first: u64, seeds: u64, count: u64) -> BTreeMap<&'static str, u64> {
    let mut totals = BTreeMap::new();
    for seed in first..first + seeds {
        let kind = match seed % 4 {
            2 => Kind::Crowd,
            3 => Kind::Dhcp,
            _ => Kind::Plain,
        };
        let mut storm = Storm::new(seed, kind);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| storm.run(count)));
        assert!(result.is_ok(), "seed {seed}, after {} frames", storm.frames);
        let (answers, pages, statements) = storm.answers();
        let numbers = [
            ("frames", storm.frames),
            ("answers to the visitor", answers),
            ("pages made", pages[0]),
            ("pages refused", pages[1]),
            ("statements", statements),
        ];
        for (name, number) in numbers {
            *totals.entry(name).or_default() += number;
        }
        if std::env::var_os("STORM_STATUS").is_some() {
            println!("{}", storm.status());
        }
        let longest = totals.entry("longest wait, us").or_default();
        *longest = storm.visitor.user.longest_us.max(*longest);
    }
    totals
}
