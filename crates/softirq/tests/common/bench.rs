//! Test bench: loads the eBPF programs with private maps, in a network namespace with a listener, and runs them on one
//! frame at a time without a device (`BPF_PROG_TEST_RUN`). The code that is common to all implementations under test is
//! in `script`.

use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use lowroad_softirq::SoftirqLevel;
use lowroad_softirq::layout::{self, connection, connection_bucket, half_open};
use lowroad_softirq::programs::fan_out;
use lowroad_softirq::programs::folder::mount_pins;
use lowroad_softirq::programs::loader::{LoadedPrograms, ProgramTier, load, load_parts_for_trial};
use lowroad_softirq::programs::sizes::MapSizes;
use lowroad_testkit::net::{self, CLIENT, NetNamespace, SERVER};
use lowroad_wire::width::{index, sequence};

use super::copies::Copies;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use super::frames::{self, ACK, PORT, SYN, SentSegment};

/// The value of Date in responses.
pub const DATE: &[u8; 29] = b"Sat, 21 Nov 2026 12:00:00 GMT";

/// The effect of a program on a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameEffect {
    /// The program sends this reply.
    Reply(Vec<u8>),
    /// The program sends these replies, in this order.
    Flight(Vec<Vec<u8>>),
    /// The frame is punted, with the mark for migration.
    Up,
    /// The same, but this frame replaces the original one.
    UpInstead(Vec<u8>),
    /// The frame is passed to the TC program, which processes it from the beginning.
    PassedToTc,
    /// The frame is passed to the kernel.
    Pass,
    /// The frame is dropped.
    Drop,
}

/// Programs, maps and namespace; all are removed when the value is dropped.
pub struct Bench {
    /// The maps of the level.
    pub level: SoftirqLevel,
    /// The namespace of the listener. The programs must be run in it.
    pub namespace: NetNamespace,
    loaded: LoadedPrograms,
    /// At the XDP tier: the complete TC program, for frames that the XDP program passes to it.
    behind: Option<LoadedPrograms>,
    /// At the XDP tier: the program that sends the segments of a long response.
    parts: Option<OwnedFd>,
    connections: MapHandle,
    folder: PathBuf,
    listener: Mutex<Option<TcpListener>>,
    /// Captures the frames of a flight at TC, except for the last one.
    copies: Copies,
}

/// The requirement of a bench that is missing, if any.
pub fn missing_bench_requirement() -> Option<String> {
    if !std::path::Path::new("/sys/fs/bpf").is_dir() {
        return Some("there is no /sys/fs/bpf".to_owned());
    }
    net::missing_requirement()
}

impl Bench {
    /// Loads the programs of a tier, with a small connection table.
    pub fn new(tier: ProgramTier) -> Bench {
        Bench::with_table_size(tier, 1024)
    }

    /// The same with a table for this number of connections.
    pub fn with_table_size(tier: ProgramTier, connections: u32) -> Bench {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = PathBuf::from(format!(
            "/sys/fs/bpf/lowroad-bench-{}-{number}",
            std::process::id()
        ));
        // Tests of the commands unmount bpffs if no other process had mounted it.
        mount_pins().expect("bpffs can be mounted");
        std::fs::create_dir_all(&folder).expect("bpffs takes folders");
        let sizes = MapSizes {
            connections,
            memory: 16 << 20,
        };
        let loaded = load(tier, sizes, &folder).unwrap_or_else(|error| panic!("{error}"));
        // Test runs have no frame metadata, where the TC program would find the mark of the XDP program.
        let behind = (tier == ProgramTier::Xdp).then(|| load(ProgramTier::Tc, sizes, &folder));
        let behind = behind.map(|loaded| loaded.unwrap_or_else(|error| panic!("{error}")));
        let parts = (tier == ProgramTier::Xdp).then(|| {
            // Test runs use the loopback device as the ingress device.
            fan_out::create_maps(&loaded, 1, &folder).expect("maps");
            load_parts_for_trial(sizes, &folder).expect("a program")
        });
        let level = SoftirqLevel::open(&folder).expect("maps");
        let namespace = NetNamespace::new("bench").expect("root");
        for address in [
            format!("{}/32", CLIENT.0),
            format!("{}/32", SERVER.0),
            format!("{}/128", CLIENT.1),
            format!("{}/128", SERVER.1),
        ] {
            let add = ["address", "add", &address, "dev", "lo"];
            namespace.run("ip", &add).expect("an address");
        }
        // The server is a router with a default route, so that segments for other machines could be forwarded; the
        // programs must leave them alone.
        let cable: Vec<&str> = "link add out type veth peer name out-peer"
            .split(' ')
            .collect();
        namespace.run("ip", &cable).expect("a device");
        for words in [
            "link set out up",
            "route add default dev out",
            "-6 route add default dev out",
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            namespace.run("ip", &words).expect("a route");
        }
        for family in ["ipv4", "ipv6"] {
            namespace
                .set(&format!("{family}/conf/all/forwarding"), "1")
                .expect("a router");
        }
        // Frames from the programs have a local source address and no cached route.
        for (name, value) in [("all/accept_local", "1"), ("lo/rp_filter", "0")] {
            namespace
                .set(&format!("ipv4/conf/{name}"), value)
                .expect("a setting");
        }
        let (listener, copies) = namespace.enter(|| (listen(), Copies::open()));
        let connections = MapHandle::from_pinned_path(folder.join("connections")).expect("a map");
        level.prepare(0, 60, 1500).expect("keys");
        level.set_ports(&[PORT]);
        let own = [SERVER.0.to_ipv6_mapped().octets(), SERVER.1.octets()];
        level.set_addresses(&own).expect("addresses");
        level.set_mode(layout::MODE_SERVE);
        Bench {
            level,
            namespace,
            loaded,
            behind,
            parts,
            connections,
            folder,
            listener: Mutex::new(Some(listener)),
            copies,
        }
    }

    /// Writes a heartbeat of this age.
    pub fn beat(&self, age_ns: u64) {
        self.level
            .write_heartbeat(lowroad_softirq::now_ns() - age_ns, DATE);
    }

    /// Starts or stops the listener.
    #[allow(dead_code, reason = "not all tests use it")]
    pub fn set_listening(&self, wanted: bool) {
        let mut listener = self.listener.lock().expect("no holder panics");
        match wanted {
            true if listener.is_none() => *listener = Some(self.namespace.enter(listen)),
            true => {}
            false => *listener = None,
        }
    }

    /// The program that answers requests.
    pub fn answering(&self) -> BorrowedFd<'_> {
        self.loaded.answering()
    }

    /// Runs the answering program on a frame, in the namespace of the thread; then the TC program if the first passes
    /// the frame to it.
    pub fn run(&self, frame: &[u8]) -> FrameEffect {
        let did = self.run_one(&self.loaded, frame);
        match &self.behind {
            Some(behind) if did == FrameEffect::PassedToTc => self.run_one(behind, frame),
            _ => did,
        }
    }

    /// Sends the SYN of a client with this port. Returns the last ACK of the handshake.
    pub fn connect(&self, is_v6: bool, port: u16) -> SentSegment {
        let mut sent = SentSegment {
            is_v6,
            port,
            flags: SYN,
            options: vec![2, 4, 5, 0xb4],
            window: 64_000,
            ..SentSegment::default()
        };
        let syn = sent.frame();
        let FrameEffect::Reply(reply) = self.run(&syn) else {
            panic!("no SYN-ACK")
        };
        let isn = frames::receive(&reply, &syn).expect("a SYN-ACK").seq;
        (sent.seq, sent.ack, sent.flags) = (1, isn.wrapping_add(1), ACK);
        sent.options.clear();
        sent
    }

    /// Whether the egress program passes a frame from the server to the client.
    pub fn passes_egress(&self, frame: &[u8]) -> bool {
        let mut out = [0u8; 4096];
        let (code, len) = test_run(self.loaded.out(), frame, &mut out);
        match code {
            -1 => assert_eq!(&out[..len], frame, "what goes on is whole"),
            other => assert_eq!(other, 2, "an unknown verdict"),
        }
        code == -1
    }

    fn run_one(&self, loaded: &LoadedPrograms, frame: &[u8]) -> FrameEffect {
        // Discards frames that the kernel has sent meanwhile.
        self.copies.take();
        // A batch of segments is stored per processor.
        pin();
        match run(loaded, frame) {
            FrameEffect::Flight(parcel) => self.parts_of(&parcel[0]),
            FrameEffect::Reply(last) if loaded.tier() == ProgramTier::Tc => {
                let mut frames = self.copies.take();
                frames.push(last);
                match frames.len() {
                    1 => FrameEffect::Reply(frames.remove(0)),
                    _ => FrameEffect::Flight(frames),
                }
            }
            did => did,
        }
    }

    /// The segments that the second program makes from copies of this frame.
    fn parts_of(&self, parcel: &[u8]) -> FrameEffect {
        let program = self.parts.as_ref().expect("at the XDP tier");
        let mut frames = Vec::new();
        loop {
            let mut out = [0u8; 4096];
            match test_run(program.as_fd(), parcel, &mut out) {
                (2, len) => frames.push(out[..len].to_vec()),
                (1, _) => return FrameEffect::Flight(frames),
                other => panic!("an unknown verdict: {other:?}"),
            }
        }
    }

    /// Accepts the connection of the client with this port.
    pub fn accept(&self, port: u16) -> TcpStream {
        let place = self.listener.lock().expect("no holder panics");
        let listener = place.as_ref().expect("somebody listens");
        let mut accepted = listener.incoming().map(|one| one.expect("a connection"));
        let is_its = |one: &TcpStream| one.peer_addr().is_ok_and(|peer| peer.port() == port);
        accepted.find(is_its).expect("endless")
    }

    /// The entry of a client's connection, preceded by the index of its bucket and its slot in the bucket.
    pub fn connection(&self, is_v6: bool, port: u16) -> Option<(u32, usize, connection)> {
        let client = if is_v6 {
            CLIENT.1
        } else {
            CLIENT.0.to_ipv6_mapped()
        };
        let mut client_be = [0; 4];
        for (word, bytes) in client_be.iter_mut().zip(client.octets().chunks_exact(4)) {
            *word = u32::from_ne_bytes(bytes.try_into().expect("four bytes"));
        }
        let all = self.connections.max_entries();
        let buckets = self
            .connections
            .lookup_batch(all, MapFlags::ANY, MapFlags::ANY)
            .expect("an array");
        (0..).zip(buckets).find_map(|(index, (_, bytes))| {
            let bucket = from_bytes::<connection_bucket>(&bytes);
            let way = bucket.way.iter().position(|way| {
                way.tag != 0
                    && way.tuple.client_be == client_be
                    && way.tuple.client_port_be == port.to_be()
            })?;
            Some((index, way, bucket.way[way]))
        })
    }

    /// The number of buckets.
    pub fn buckets(&self) -> u32 {
        self.connections.max_entries()
    }

    /// A bucket of the table.
    pub fn bucket(&self, index: u32) -> connection_bucket {
        let bytes = self.connections.lookup(&index.to_ne_bytes(), MapFlags::ANY);
        from_bytes(&bytes.expect("a map").expect("an array"))
    }

    /// Overwrites a bucket of the table.
    pub fn set_bucket(&self, index: u32, bucket: &connection_bucket) {
        let key = index.to_ne_bytes();
        self.connections
            .update(&key, bytes_of(bucket), MapFlags::ANY)
            .expect("an array");
    }

    /// Replaces all half-open entries, as if other clients had overwritten them.
    pub fn displace_half_open(&self) {
        let now = u32::try_from(lowroad_softirq::now_ns() >> 30).expect("soon after boot");
        self.change_half_open(|place| {
            place.forgotten += u32::from(place.identity != 0);
            place.forgotten_at = now;
            place.identity = 0;
        });
    }

    /// Clears all half-open entries.
    pub fn clear_half_open(&self) {
        self.change_half_open(|place| *place = half_open::default());
    }

    /// Changes all half-open entries.
    pub fn change_half_open(&self, change: impl Fn(&mut half_open)) {
        let map = MapHandle::from_pinned_path(self.folder.join("half_open")).expect("a map");
        let count = map.max_entries();
        let all = map.lookup_batch(count, MapFlags::ANY, MapFlags::ANY);
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (key, bytes) in all.expect("an array") {
            let mut place: half_open = from_bytes(&bytes);
            change(&mut place);
            keys.extend(key);
            values.extend(bytes_of(&place));
        }
        map.update_batch(&keys, &values, count, MapFlags::ANY, MapFlags::ANY)
            .expect("an array");
    }

    /// Adds the client's address to the denied prefixes.
    pub fn deny(&self, is_v6: bool) {
        let client = if is_v6 {
            CLIENT.1
        } else {
            CLIENT.0.to_ipv6_mapped()
        };
        self.level
            .deny_prefix(128, client.octets())
            .expect("a prefix");
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // A map exists until its last name and descriptor are gone. If removal fails, the operator must remove the
        // rest.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Runs a program on a frame, in the namespace of the thread. Returns the effect.
fn run(loaded: &LoadedPrograms, frame: &[u8]) -> FrameEffect {
    let mut out = [0u8; 4096];
    let (code, len) = test_run(loaded.answering(), frame, &mut out);
    let out = &out[..len];
    // The mark precedes the frame.
    let marked = |mark: u32| out.strip_prefix(&mark.to_ne_bytes());
    match (loaded.tier(), code) {
        (ProgramTier::Xdp, 3) | (ProgramTier::Tc, 7) => FrameEffect::Reply(out.to_vec()),
        (ProgramTier::Xdp, 1) | (ProgramTier::Tc, 2) => FrameEffect::Drop,
        // Another program makes the segments of the flight from copies of this frame.
        (ProgramTier::Xdp, 4) => FrameEffect::Flight(vec![out.to_vec()]),
        (ProgramTier::Xdp, 2) if marked(layout::META_HAND_OVER) == Some(frame) => FrameEffect::Up,
        (ProgramTier::Xdp, 2) if marked(layout::META_AGAIN) == Some(frame) => {
            FrameEffect::PassedToTc
        }
        (ProgramTier::Xdp, 2) if marked(layout::META_HAND_OVER).is_some() => {
            FrameEffect::UpInstead(out[4..].to_vec())
        }
        // A test run at TC finds no listener.
        (ProgramTier::Tc, -1) if out != frame => FrameEffect::UpInstead(out.to_vec()),
        (ProgramTier::Xdp, 2) | (ProgramTier::Tc, -1) => {
            assert_eq!(out, frame, "a frame that passes is whole");
            FrameEffect::Pass
        }
        other => panic!("an unknown verdict: {other:?}"),
    }
}

/// Pins the thread to its current processor.
fn pin() {
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here).expect("a processor");
}

/// Types of map values.
trait Value: Copy {}
impl Value for connection_bucket {}
impl Value for half_open {}

fn from_bytes<T: Value>(bytes: &[u8]) -> T {
    assert_eq!(bytes.len(), size_of::<T>());
    // SAFETY: the slice has the size of the type, which consists of integers.
    unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
}

fn bytes_of<T: Value>(value: &T) -> &[u8] {
    // SAFETY: the value consists of integers, without padding.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) }
}

/// Runs a program on a frame. Returns the verdict, and the length of the output.
fn test_run(program: BorrowedFd<'_>, frame: &[u8], out: &mut [u8]) -> (i32, usize) {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: sequence(frame.len()),
        data_out: out.as_mut_ptr().cast(),
        data_size_out: sequence(out.len()),
        repeat: 1,
        ..Default::default()
    };
    // SAFETY: the pointers are to slices of the given lengths, which outlive the call.
    let status = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
    assert_eq!(status, 0, "BPF_PROG_TEST_RUN: {status} of {frame:02x?}");
    let len = index(options.data_size_out);
    (options.retval.cast_signed(), len)
}

fn listen() -> TcpListener {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
    TcpListener::bind(any).expect("a listener")
}
