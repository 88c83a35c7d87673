//! Test bench: the eBPF programs, loaded with private maps in a network namespace with a listener, and run on one frame
//! at a time without a device (`BPF_PROG_TEST_RUN`). The parts common to all subjects of the traces are in `script`.

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

use super::frames::{self, ACK, PORT, SYN, Sent};

/// The date in responses.
pub const DATE: &[u8; 29] = b"Sat, 21 Nov 2026 12:00:00 GMT";

/// The effect of a program on a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Did {
    /// It sends this reply.
    Reply(Vec<u8>),
    /// It sends these replies, in this order.
    Flight(Vec<Vec<u8>>),
    /// The frame is punted, with the mark for migration.
    Up,
    /// The same, with this frame in its place.
    UpInstead(Vec<u8>),
    /// The frame goes to the program behind, for processing from the beginning.
    Again,
    /// The frame goes to the kernel.
    Pass,
    /// The frame is dropped.
    Drop,
}

/// Programs, maps and namespace, which end with this value.
pub struct Bench {
    /// Its maps.
    pub level: SoftirqLevel,
    /// The namespace of the listener, in which programs must be run.
    pub namespace: NetNamespace,
    loaded: LoadedPrograms,
    /// At the XDP tier: the full TC program, for frames that XDP passes on.
    behind: Option<LoadedPrograms>,
    /// At the XDP tier: the program for the parts of long responses.
    parts: Option<OwnedFd>,
    connections: MapHandle,
    folder: PathBuf,
    listener: Mutex<Option<TcpListener>>,
    /// Captures all but the last frame of a flight at TC.
    copies: Copies,
}

/// The missing prerequisite of a bench, if any.
pub fn lacks() -> Option<String> {
    if !std::path::Path::new("/sys/fs/bpf").is_dir() {
        return Some("there is no /sys/fs/bpf".to_owned());
    }
    net::missing_requirement()
}

impl Bench {
    /// Loads the programs of a tier, with a small connection table.
    pub fn new(tier: ProgramTier) -> Bench {
        Bench::with_room(tier, 1024)
    }

    /// The same with room for this many connections.
    pub fn with_room(tier: ProgramTier, connections: u32) -> Bench {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = PathBuf::from(format!(
            "/sys/fs/bpf/lowroad-bench-{}-{number}",
            std::process::id()
        ));
        // Tests of the commands unmount it if no other process had mounted it.
        mount_pins().expect("bpffs can be mounted");
        std::fs::create_dir_all(&folder).expect("bpffs takes folders");
        let sizes = MapSizes {
            connections,
            memory: 16 << 20,
        };
        let loaded = load(tier, sizes, &folder).unwrap_or_else(|error| panic!("{error}"));
        // Test runs have no frame metadata, in which the program behind finds its mark.
        let behind = (tier == ProgramTier::Xdp).then(|| load(ProgramTier::Tc, sizes, &folder));
        let behind = behind.map(|loaded| loaded.unwrap_or_else(|error| panic!("{error}")));
        let parts = (tier == ProgramTier::Xdp).then(|| {
            // Test runs arrive from the loopback device.
            fan_out::fill_anyway(&loaded, 1, &folder).expect("maps");
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
        // A router with a default route: segments for other machines must be left alone.
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
        // Frames that the programs inject have no route yet, and a local source address.
        for (name, value) in [("all/accept_local", "1"), ("lo/rp_filter", "0")] {
            namespace
                .set(&format!("ipv4/conf/{name}"), value)
                .expect("a setting");
        }
        let (listener, copies) = namespace.enter(|| (listen(), Copies::hear()));
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

    /// Sets whether there is a listener on the port.
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

    /// Runs the answering program on a frame, in the namespace of the thread, and the one behind it if the first passes
    /// the frame on.
    pub fn run(&self, frame: &[u8]) -> Did {
        let did = self.run_one(&self.loaded, frame);
        match &self.behind {
            Some(behind) if did == Did::Again => self.run_one(behind, frame),
            _ => did,
        }
    }

    /// The last ACK of the handshake of a client at this port, after the SYN-ACK.
    pub fn connect(&self, is_v6: bool, port: u16) -> Sent {
        let mut sent = Sent {
            is_v6,
            port,
            flags: SYN,
            options: vec![2, 4, 5, 0xb4],
            window: 64_000,
            ..Sent::default()
        };
        let syn = sent.frame();
        let Did::Reply(reply) = self.run(&syn) else {
            panic!("no SYN-ACK")
        };
        let isn = frames::receive(&reply, &syn).expect("a SYN-ACK").seq;
        (sent.seq, sent.ack, sent.flags) = (1, isn.wrapping_add(1), ACK);
        sent.options.clear();
        sent
    }

    /// Whether the egress program passes a frame of the server to the client.
    pub fn lets_out(&self, frame: &[u8]) -> bool {
        let mut out = [0u8; 4096];
        let (code, len) = test_run(self.loaded.out(), frame, &mut out);
        match code {
            -1 => assert_eq!(&out[..len], frame, "what goes on is whole"),
            other => assert_eq!(other, 2, "an unknown verdict"),
        }
        code == -1
    }

    fn run_one(&self, loaded: &LoadedPrograms, frame: &[u8]) -> Did {
        // Discards frames that the kernel has sent in the meantime.
        self.copies.take();
        // Batches of parts are stored per processor.
        pin();
        match run(loaded, frame) {
            Did::Flight(parcel) => self.parts_of(&parcel[0]),
            Did::Reply(last) if loaded.tier() == ProgramTier::Tc => {
                let mut frames = self.copies.take();
                frames.push(last);
                match frames.len() {
                    1 => Did::Reply(frames.remove(0)),
                    _ => Did::Flight(frames),
                }
            }
            did => did,
        }
    }

    /// The parts that the second program makes of copies of this frame.
    fn parts_of(&self, parcel: &[u8]) -> Did {
        let program = self.parts.as_ref().expect("at the XDP tier");
        let mut frames = Vec::new();
        loop {
            let mut out = [0u8; 4096];
            match test_run(program.as_fd(), parcel, &mut out) {
                (2, len) => frames.push(out[..len].to_vec()),
                (1, _) => return Did::Flight(frames),
                other => panic!("an unknown verdict: {other:?}"),
            }
        }
    }

    /// Accepts a client's connection from the listener.
    pub fn accept(&self, port: u16) -> TcpStream {
        let place = self.listener.lock().expect("no holder panics");
        let listener = place.as_ref().expect("somebody listens");
        let mut accepted = listener.incoming().map(|one| one.expect("a connection"));
        let is_its = |one: &TcpStream| one.peer_addr().is_ok_and(|peer| peer.port() == port);
        accepted.find(is_its).expect("endless")
    }

    /// The position and the entry of a client's connection in the table.
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

    /// The number of buckets of the table.
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

    /// Overwrites all half-open entries with those of other clients.
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

    /// Adds the client to the denied prefixes.
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
        // Maps end with their last name and descriptor; a leftover is for the operator to remove.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The effect of a level's program on a frame, in the namespace of the thread.
fn run(loaded: &LoadedPrograms, frame: &[u8]) -> Did {
    let mut out = [0u8; 4096];
    let (code, len) = test_run(loaded.answering(), frame, &mut out);
    let out = &out[..len];
    // The mark precedes the frame.
    let marked = |mark: u32| out.strip_prefix(&mark.to_ne_bytes());
    match (loaded.tier(), code) {
        (ProgramTier::Xdp, 3) | (ProgramTier::Tc, 7) => Did::Reply(out.to_vec()),
        (ProgramTier::Xdp, 1) | (ProgramTier::Tc, 2) => Did::Drop,
        // Another program makes the parts of a flight of copies of this frame.
        (ProgramTier::Xdp, 4) => Did::Flight(vec![out.to_vec()]),
        (ProgramTier::Xdp, 2) if marked(layout::META_HAND_OVER) == Some(frame) => Did::Up,
        (ProgramTier::Xdp, 2) if marked(layout::META_AGAIN) == Some(frame) => Did::Again,
        (ProgramTier::Xdp, 2) if marked(layout::META_HAND_OVER).is_some() => {
            Did::UpInstead(out[4..].to_vec())
        }
        // A test run at TC finds no listener.
        (ProgramTier::Tc, -1) if out != frame => Did::UpInstead(out.to_vec()),
        (ProgramTier::Xdp, 2) | (ProgramTier::Tc, -1) => {
            assert_eq!(out, frame, "a frame that passes is whole");
            Did::Pass
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

/// Values of maps.
trait Value: Copy {}
impl Value for connection_bucket {}
impl Value for half_open {}

fn from_bytes<T: Value>(bytes: &[u8]) -> T {
    assert_eq!(bytes.len(), size_of::<T>());
    // SAFETY: as many bytes as the type has, which is made of integers.
    unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
}

fn bytes_of<T: Value>(value: &T) -> &[u8] {
    // SAFETY: a value made of integers without padding, as bytes.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) }
}

/// Returns the verdict, and the length of the output.
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
