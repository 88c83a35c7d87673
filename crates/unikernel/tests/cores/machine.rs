//! The machine under test. Each core runs only if it is awake or has a reason to wake up.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use lowroad_http::content_coding::ContentCoding;
use lowroad_net::{
    AddressSource, DeviceOffload, FlowSteering, LinkDevice, OutgoingFrame, ReceivedFrame,
};
use lowroad_unikernel::archive::{ArchiveBuilder, NewVariant, SiteArchive};
use lowroad_unikernel::{CoreSet, CurrentTime, MachineSetup as Has, UnikernelServer};

use crate::frames::{packet, repair, segment};

pub const SERVER: u32 = 0x0a00_0001;
pub const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const STRANGER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 66];
const SECRET: [u8; 32] = [77; 32];

/// The source of the machine's address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Static,
    Dhcp,
}

/// Sent frames, in the form in which they are on the wire.
#[derive(Default)]
pub struct Wire {
    pub frames: Vec<Vec<u8>>,
}

impl LinkDevice for Wire {
    fn send(&mut self, frame: &OutgoingFrame<'_>) {
        let whole = [frame.head, frame.copied, frame.static_bytes].concat();
        assert!(whole.len() <= 1514 && frame.segment_len.is_none());
        self.frames.push(whole);
        assert!(self.frames.len() < 5000, "sent without end");
    }

    fn offload(&self) -> DeviceOffload {
        DeviceOffload::default()
    }
}

struct Core {
    server: UnikernelServer,
    wire: Wire,
    /// Frames in the queue that the device has for this core.
    queue: VecDeque<Vec<u8>>,
    /// Whether the core is running, or was woken.
    is_awake: bool,
    /// Whether the core is idle and will sleep in its next step; other cores may act before.
    is_about_to_sleep: bool,
    /// Whether the core has left its loop, after all cores have stopped.
    has_left: bool,
    next_us: u64,
    /// Numbers of handshakes: of clients with this core, and of this core with the database.
    handshakes: [u32; 2],
}

pub struct Machine {
    cores: Vec<Core>,
    steering: FlowSteering,
    messages: Vec<String>,
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

pub fn long() -> &'static [u8] {
    let bytes: Vec<u8> = (0..40_000_u32).map(|at| b'a' + (at % 23) as u8).collect();
    Vec::leak(bytes)
}

const PAGE: &str = "{% set all = query(\"SELECT a, b FROM t WHERE b < ?\", request.params.n or 100) %}\
    {% for one in all %}<li>{{ one.a }} {{ one.b }}{% endfor %}";

/// Pages with a database response that has more rows than the image accepts, or a longer row.
const MANY: &str =
    "{% for one in query(\"SELECT a, b FROM many WHERE b < ?\", 1) %}{{ one.a }}{% endfor %}";
const WIDE: &str =
    "{% for one in query(\"SELECT a, b FROM wide WHERE b < ?\", 1) %}{{ one.a }}{% endfor %}";

fn site(long: &[u8]) -> SiteArchive {
    let mut builder = ArchiveBuilder::new();
    builder.file(&[b"/"], file(b"<p>Hello")).expect("a file");
    builder.file(&[b"/long"], file(long)).expect("a file");
    builder
        .page(b"/page.lrp", "page.lrp", PAGE)
        .expect("a page");
    for (path, name, text) in [
        (&b"/many.lrp"[..], "many.lrp", MANY),
        (b"/wide.lrp", "wide.lrp", WIDE),
    ] {
        builder.page(path, name, text).expect("a page");
    }
    builder.setting("database.address", "10.0.0.3:3306");
    builder.setting("database.user", "u");
    builder.setting("status.from", "10.0.0.0/24");
    let bytes = builder.finish().expect("an archive");
    SiteArchive::open(Vec::leak(bytes)).expect("an archive")
}

impl Machine {
    pub fn new(count: u16, kind: Kind, long: &'static [u8]) -> Machine {
        let archive = site(long);
        let cores: &'static CoreSet = Box::leak(Box::new(CoreSet::new(count, &SECRET)));
        let core = |core| {
            let has = Has {
                mac: SERVER_MAC,
                mtu: 1500,
                address: match kind {
                    Kind::Dhcp => AddressSource::Dhcp,
                    Kind::Static => AddressSource::Static {
                        address: Ipv4Addr::from_bits(SERVER),
                        prefix_len: 24,
                        gateway: None,
                    },
                },
                memory_len: 4 << 20,
                secret: SECRET,
                cores: (count > 1).then_some((cores, core)),
            };
            Core {
                server: UnikernelServer::new(archive, has).expect("a server"),
                wire: Wire::default(),
                queue: VecDeque::new(),
                is_awake: true,
                is_about_to_sleep: false,
                has_left: false,
                next_us: 0,
                handshakes: [0; 2],
            }
        };
        Machine {
            cores: (0..count).map(core).collect(),
            steering: FlowSteering::new(&SECRET, count),
            messages: Vec::new(),
        }
    }

    pub fn count(&self) -> usize {
        self.cores.len()
    }

    /// The core that owns a frame; 0 if any core may process it.
    pub fn owner(&self, frame: &[u8]) -> usize {
        match self.steering.owner(SERVER_MAC, Some(SERVER), frame) {
            lowroad_net::FrameOwner::Core(core) => core.into(),
            _ => 0,
        }
    }

    /// Puts a frame into a core's queue.
    pub fn receive(&mut self, core: usize, frame: Vec<u8>) {
        self.cores[core].queue.push_back(frame);
    }

    fn has_reason(&self, core: usize, now_us: u64) -> bool {
        let core = &self.cores[core];
        let has_reason = core.is_awake || !core.queue.is_empty() || core.next_us <= now_us;
        // A core that has left its loop never runs again.
        has_reason && !core.has_left
    }

    /// Runs one core that has work; the search begins at core `first`. Returns false if all cores sleep.
    pub fn step(&mut self, now: CurrentTime, first: usize) -> bool {
        let count = self.cores.len();
        let all = (first..first + count).map(|at| at % count);
        let mut runnable = all.filter(|core| self.has_reason(*core, now.mono_us));
        let Some(core) = runnable.next() else {
            return false;
        };
        self.run(core, now);
        true
    }

    /// Runs one step of a core's loop.
    fn run(&mut self, at: usize, now: CurrentTime) {
        let core = &mut self.cores[at];
        if std::mem::take(&mut core.is_about_to_sleep) {
            // Sleeping is a step of its own, so that other cores can run between the end of the work and the sleep.
            core.is_awake = !core.server.prepare_sleep();
            return;
        }
        core.server.on_wake();
        for _ in 0..64 {
            let Some(frame) = core.queue.pop_front() else {
                break;
            };
            let received = ReceivedFrame {
                frame: &frame,
                sum_is_good: false,
            };
            core.server.received(now, &mut core.wire, received);
        }
        let next_us = core.server.tick(now, &mut core.wire);
        // Time must advance, otherwise the loop would not end.
        core.next_us = next_us.unwrap_or(u64::MAX).max(now.mono_us + 1);
        let wakes = core.server.take_wakes();
        // A core that wakes itself would never sleep.
        assert_eq!(wakes & 1 << at, 0, "it wakes itself");
        self.messages.extend(core.server.take_message());
        core.has_left = core.server.is_stopped(now);
        core.is_awake = true;
        core.is_about_to_sleep = true;
        for other in 0..self.cores.len() {
            self.cores[other].is_awake |= wakes >> other & 1 != 0;
        }
    }

    /// One core receives frames and forwards them while the others do not run.
    pub fn receive_alone(&mut self, at: usize, frames: &[Vec<u8>]) {
        let now = CurrentTime {
            mono_us: 50_000_000,
            unix_s: 784_111_800,
        };
        let core = &mut self.cores[at];
        for frame in frames {
            let received = ReceivedFrame {
                frame,
                sum_is_good: false,
            };
            core.server.received(now, &mut core.wire, received);
        }
        core.is_awake = true;
    }

    pub fn next_us(&self) -> u64 {
        let all = self.cores.iter().map(|core| core.next_us);
        all.min().unwrap_or(u64::MAX)
    }

    /// Frames sent since the last call.
    pub fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for core in &mut self.cores {
            for frame in core.wire.frames.drain(..) {
                let flags = if frame[23] == 6 { frame[47] } else { 0 };
                // SYN-ACK: a connection of a client; SYN: one to the database.
                core.handshakes[0] += u32::from(flags == 0x12);
                core.handshakes[1] += u32::from(flags == 2);
                all.push(frame);
            }
        }
        all
    }

    /// Numbers of handshakes: of clients with each core, and of the core with the database.
    pub fn handshakes(&self) -> Vec<[u32; 2]> {
        self.cores.iter().map(|core| core.handshakes).collect()
    }

    pub fn stop(&mut self, core: usize) {
        self.cores[core].server.stop();
        self.cores[core].is_awake = true;
    }

    pub fn is_stopped(&self) -> bool {
        self.cores.iter().all(|core| core.has_left)
    }

    pub fn open_counts(&self) -> Vec<usize> {
        let all = self.cores.iter();
        all.map(|core| core.server.open_count()).collect()
    }

    pub fn messages(&self) -> &[String] {
        &self.messages
    }

    /// Segments of connections that belong to a core.
    pub fn frames_of(&self, core: u16, count: usize) -> Vec<Vec<u8>> {
        let keys =
            (0..u16::MAX).filter(|port| self.steering.core_of(0x0a00_0042, *port, 80) == core);
        let frame = |port| {
            let segment = segment((port, 80), (1, 1), 16, 1000, &[], &[7; 1400]);
            let macs = (STRANGER_MAC, SERVER_MAC);
            let mut frame = packet(macs, 0x0a00_0042, SERVER, 6, &[], &segment);
            repair(&mut frame, true);
            frame
        };
        keys.take(count).map(frame).collect()
    }
}

/// An ARP request for `to`.
pub fn arp(from: u32, to: u32) -> Vec<u8> {
    let mut frame = [
        &[0xff; 6][..],
        &STRANGER_MAC,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
    ]
    .concat();
    frame.extend(STRANGER_MAC);
    frame.extend(from.to_be_bytes());
    frame.extend([0; 6]);
    frame.extend(to.to_be_bytes());
    frame
}
