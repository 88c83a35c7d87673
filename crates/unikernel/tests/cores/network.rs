//! The network around the machine: clients, a database server, a DHCP server, and a faulty switch.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use lowroad_net::{AddressSource, ReceivedFrame, StackCalls, StackSettings, TcpService, TcpStack};
use lowroad_unikernel::CurrentTime;

use crate::frames::{Random, packet};
use crate::liar::FaultyDatabase;
use crate::machine::{Kind, Machine, SERVER, SERVER_MAC, Wire, long};
use crate::visitor::{CheckingClient, FAILS};

const DATABASE: u32 = 0x0a00_0003;
const DHCP: u32 = 0x0a00_00fe;
const DHCP_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];
const VISITORS: u8 = 12;
const DELAY_US: u64 = 300;
const PAUSE_US: u64 = 200_000;
/// For tests with DHCP leases, which take longer.
const PAUSE_DHCP_US: u64 = 2_000_000;
/// Maximum time that a client waits for a response.
const PATIENCE_US: u64 = 8_000_000;

/// The faults of the switch, per mille of the frames to the machine.
#[derive(Clone, Copy, Default)]
pub struct SwitchFaults {
    /// Frames that are delivered to a random core.
    pub misdirected: usize,
    /// Frames that are dropped; also of those from the machine.
    pub lost: usize,
    /// Frames that are delayed; also of those from the machine.
    pub delayed: usize,
}

struct Peer<S> {
    mac: [u8; 6],
    stack: TcpStack,
    wire: Wire,
    user: S,
}

fn mac(address: u32) -> [u8; 6] {
    [2, 0, 0, 0, 0, address as u8]
}

impl<S: TcpService> Peer<S> {
    fn new(address: u32, ports: Vec<u16>, user: S) -> Peer<S> {
        let stack = TcpStack::new(StackSettings {
            mac: mac(address),
            mtu: 1500,
            address: AddressSource::Static {
                address: Ipv4Addr::from_bits(address),
                prefix_len: 24,
                gateway: None,
            },
            ports,
            connections_max: 64,
            small_buffers: 256,
            large_buffers: 64,
            idle_timeout_ms: 600_000,
            secret: [address as u8; 32],
            share: None,
        });
        Peer {
            mac: mac(address),
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

    fn tick(&mut self, now_us: u64) -> u64 {
        let next_us = self.stack.tick(now_us, &mut self.wire, &mut self.user);
        next_us.unwrap_or(u64::MAX)
    }

    fn is_for(&self, frame: &[u8]) -> bool {
        frame[..6] == self.mac || frame[..6] == [0xff; 6]
    }
}

pub struct Network {
    pub machine: Machine,
    visitors: Vec<Peer<CheckingClient>>,
    database: Peer<FaultyDatabase>,
    random: Random,
    weather: SwitchFaults,
    now_us: u64,
    order: u64,
    /// Frames on the wire: (time of delivery, order) to the frame and its core, or `None` for another host.
    frames_in_flight: BTreeMap<(u64, u64), (Option<usize>, Vec<u8>)>,
    pub has_dhcp: bool,
    /// Whether clients open new connections.
    pub may_connect: bool,
    is_dhcp: bool,
}

impl Network {
    pub fn new(seed: u64, count: u16, kind: Kind, weather: SwitchFaults) -> Network {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let long = long();
        let visitor = |at: u8| {
            let sites: Vec<(&'static str, &'static [u8])> = vec![
                ("/", b"<p>Hello"),
                ("/long", long),
                ("/page.lrp?n=5", b""),
                ("/", b"<p>Hello"),
            ];
            let mut user = CheckingClient::new(sites);
            user.is_lenient = kind == Kind::Dhcp;
            Peer::new(0x0a00_0010 + u32::from(at), vec![], user)
        };
        let liar = FaultyDatabase {
            random: Random(random.next() | 1),
            faults_per_mille: 0,
            statements: 0,
        };
        Network {
            machine: Machine::new(count, kind, long),
            visitors: (0..VISITORS).map(visitor).collect(),
            database: Peer::new(DATABASE, vec![3306], liar),
            random,
            weather,
            now_us: 1_000_000,
            order: 0,
            frames_in_flight: BTreeMap::new(),
            has_dhcp: true,
            may_connect: true,
            is_dhcp: kind == Kind::Dhcp,
        }
    }

    /// Makes the first `count` clients request only pages for which the database response is too large.
    pub fn request_too_large_results(&mut self, count: usize) {
        for Peer { user, .. } in self.visitors.iter_mut().take(count) {
            user.resources = vec![("/many.lrp", FAILS), ("/wide.lrp", FAILS)];
        }
    }

    /// The pages of all clients except the first `skipped`: numbers of generated and failed ones.
    pub fn pages_behind(&self, skipped: usize) -> [u64; 2] {
        let users = self.visitors.iter().skip(skipped).map(|peer| &peer.user);
        users.fold([0; 2], |[made, refused], user| {
            [made + user.pages[0], refused + user.pages[1]]
        })
    }

    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    pub fn now(&self) -> CurrentTime {
        CurrentTime {
            mono_us: self.now_us,
            unix_s: 784_111_800 + self.now_us / 1_000_000,
        }
    }

    pub fn run(&mut self, life_us: u64) {
        self.run_until(life_us, |_| false);
    }

    /// Runs until a condition is true or the time has passed. Returns whether the condition is true.
    pub fn run_until(&mut self, life_us: u64, is_so: impl Fn(&Network) -> bool) -> bool {
        let end_us = self.now_us + life_us;
        loop {
            self.work();
            if is_so(self) || self.now_us >= end_us {
                return is_so(self);
            }
            let mut next_us = self.machine.next_us().min(end_us);
            let peers = self.visitors.iter_mut();
            let now_us = self.now_us;
            for peer in peers {
                next_us = next_us.min(peer.tick(now_us));
            }
            next_us = next_us.min(self.database.tick(now_us));
            next_us = next_us.min(self.visit());
            self.collect();
            if let Some((at, _)) = self.frames_in_flight.first_key_value() {
                next_us = next_us.min(at.0);
            }
            self.now_us = next_us.max(self.now_us + 1);
            self.deliver();
        }
    }

    /// Runs the cores until all sleep.
    fn work(&mut self) {
        for _ in 0..100_000 {
            // Begins at a random core, so that the order of the cores varies.
            let first = self.random.below(self.machine.count());
            let is_busy = self.machine.step(self.now(), first);
            self.collect();
            if !is_busy {
                return;
            }
        }
        panic!("somebody never sleeps");
    }

    fn collect(&mut self) {
        for frame in self.machine.sent() {
            self.send(None, frame);
        }
        let mut frames = Vec::new();
        for peer in &mut self.visitors {
            frames.append(&mut peer.wire.frames);
        }
        frames.append(&mut self.database.wire.frames);
        for frame in frames {
            // Frames between other hosts are not simulated.
            if frame[..6] == SERVER_MAC || frame[..6] == [0xff; 6] {
                // The hash of a device may differ from the server's, so any core must handle any frame.
                let core = match self.random.has_chance(self.weather.misdirected) {
                    true => self.random.below(self.machine.count()),
                    false => self.machine.owner(&frame),
                };
                self.send(Some(core), frame);
            }
        }
    }

    fn send(&mut self, core: Option<usize>, frame: Vec<u8>) {
        if self.random.has_chance(self.weather.lost) {
            return;
        }
        let more_us = match self.random.has_chance(self.weather.delayed) {
            true => self.random.below(5000) as u64,
            false => 0,
        };
        self.order += 1;
        let at = (self.now_us + DELAY_US + more_us, self.order);
        self.frames_in_flight.insert(at, (core, frame));
    }

    fn deliver(&mut self) {
        let now_us = self.now_us;
        while let Some(entry) = self.frames_in_flight.first_entry()
            && entry.key().0 <= now_us
        {
            let (core, frame) = entry.remove();
            if let Some(core) = core {
                self.machine.receive(core, frame);
                continue;
            }
            for peer in &mut self.visitors {
                if peer.is_for(&frame) {
                    peer.receive(now_us, &frame);
                }
            }
            if self.database.is_for(&frame) {
                self.database.receive(now_us, &frame);
            }
            self.lease(&frame);
        }
    }

    /// Connects clients, and disconnects those that have waited too long. Returns the time of the next action.
    fn visit(&mut self) -> u64 {
        let now_us = self.now_us;
        let mut next_us = u64::MAX;
        let pause_us = if self.is_dhcp {
            PAUSE_DHCP_US
        } else {
            PAUSE_US
        };
        for Peer {
            stack, wire, user, ..
        } in &mut self.visitors
        {
            let waited_us = now_us - user.since_us.min(now_us);
            if let Some(id) = user.id {
                // Requests may stay without a response only if the machine can lose its address.
                assert!(waited_us < PATIENCE_US || self.is_dhcp, "no answer");
                if waited_us >= PATIENCE_US {
                    user.forget(now_us);
                    stack.calls(now_us, wire, user, |_, calls| calls.abort(id));
                }
                next_us = next_us.min(user.since_us + PATIENCE_US);
                continue;
            }
            if !self.may_connect {
                continue;
            }
            if waited_us < pause_us {
                next_us = next_us.min(user.since_us + pause_us);
                continue;
            }
            let to = SocketAddrV4::new(Ipv4Addr::from_bits(SERVER), 80);
            user.since_us = now_us;
            user.id = stack.calls(now_us, wire, user, |_, calls| calls.connect(to).ok());
        }
        next_us
    }

    /// A DHCP server with a single address.
    fn lease(&mut self, frame: &[u8]) {
        let is_dhcp = frame[12..14] == [8, 0] && frame.get(34..38) == Some(&[0, 68, 0, 67][..]);
        if !is_dhcp || !self.has_dhcp {
            return;
        }
        let text = &frame[42..];
        let kind = match text.get(242) {
            Some(1) => 2,
            _ => 5,
        };
        let mut answer = vec![0; 240];
        answer[..3].copy_from_slice(&[2, 1, 6]);
        answer[4..8].copy_from_slice(&text[4..8]);
        answer[16..20].copy_from_slice(&SERVER.to_be_bytes());
        answer[28..34].copy_from_slice(&SERVER_MAC);
        answer[236..240].copy_from_slice(&[99, 130, 83, 99]);
        answer.extend([53, 1, kind, 54, 4, 10, 0, 0, 254, 1, 4, 255, 255, 255, 0]);
        answer.extend([51, 4, 0, 0, 0, 60, 255]);
        let mut bytes = vec![0, 67, 0, 68, 0, 0, 0, 0];
        bytes[4..6].copy_from_slice(&((8 + answer.len()) as u16).to_be_bytes());
        bytes.extend(answer);
        let whole = packet((DHCP_MAC, SERVER_MAC), DHCP, SERVER, 17, &[], &bytes);
        let core = self.random.below(self.machine.count());
        self.send(Some(core), whole);
    }

    /// The number of responses to all clients, and the numbers of generated and failed pages.
    pub fn answers(&self) -> (u64, [u64; 2]) {
        let all = self.visitors.iter().map(|peer| &peer.user);
        let sum = |of: fn(&CheckingClient) -> u64| all.clone().map(of).sum();
        let pages = [sum(|user| user.pages[0]), sum(|user| user.pages[1])];
        (sum(|user| user.answers), pages)
    }

    /// Prevents new connections, and waits until all clients are served and the counters are published.
    pub fn finish(&mut self) {
        self.may_connect = false;
        let is_quiet =
            |network: &Network| network.visitors.iter().all(|peer| peer.user.id.is_none());
        assert!(self.run_until(10_000_000, is_quiet));
        // Counters are published at most every 100 ms.
        self.run(300_000);
    }

    /// The status text, requested by a client. Call it after `finish`.
    pub fn status(&mut self) -> String {
        self.ask("/.lowroad/status")
    }

    fn ask(&mut self, path: &'static str) -> String {
        let now_us = self.now_us;
        let mut asker = CheckingClient::new(vec![(path, b"")]);
        let Peer {
            stack, wire, user, ..
        } = &mut self.visitors[0];
        asker.is_lenient = true;
        asker.since_us = now_us;
        // The state of the client is replaced for one request.
        let kept = std::mem::replace(user, asker);
        let to = SocketAddrV4::new(Ipv4Addr::from_bits(SERVER), 80);
        user.id = stack.calls(now_us, wire, user, |_, calls| calls.connect(to).ok());
        let has_answer = |network: &Network| network.visitors[0].user.answers > 0;
        assert!(self.run_until(5_000_000, has_answer), "no {path}");
        let asker = std::mem::replace(&mut self.visitors[0].user, kept);
        let Peer {
            stack, wire, user, ..
        } = &mut self.visitors[0];
        if let Some(id) = asker.id {
            stack.calls(now_us, wire, user, |_, calls| calls.abort(id));
        }
        asker.status
    }

    /// Checks that the log has lines of all clients, ordered by time.
    pub fn assert_log(&mut self) {
        let log = self.ask("/.lowroad/log");
        // At least 300 responses.
        assert!(log.len() > 24_000 && log.len() <= 48 << 10, "{}", log.len());
        let time = |line: &str| line.split(['[', ']']).nth(1).map(str::to_owned);
        let times: Vec<_> = log.lines().map(time).collect();
        assert!(times.is_sorted(), "{log}");
        for at in 0..VISITORS {
            let address = format!("10.0.0.{} ", 16 + at);
            assert!(
                log.lines().any(|line| line.starts_with(&address)),
                "{address}"
            );
        }
    }
}

/// A value in a status text.
pub fn number(status: &str, name: &str) -> u64 {
    let mut lines = status.lines();
    let line = lines.find(|line| line.split(' ').next() == Some(name));
    let number = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("no {name} in {status}"))
}
