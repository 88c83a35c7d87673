//! A client, and a server with a listener, in separate network namespaces on real devices; the programs of a tier run
//! at the server's end. There is no daemon.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lowroad_softirq::SoftirqLevel;
use lowroad_softirq::layout::{self, REASONS};
use lowroad_softirq::machine::interfaces::NetworkInterface;
use lowroad_softirq::programs::folder::mount_pins;
use lowroad_softirq::programs::links;
use lowroad_softirq::programs::loader::{LoadedPrograms, ProgramTier, load};
use lowroad_softirq::programs::sizes::MapSizes;
use lowroad_testkit::net::{
    CLIENT, CableEnd, DEVICE, NetNamespace, SERVER, XdpVerdict, namespace::pair,
};
use lowroad_testkit::{TEST_TIMEOUT, wait_until};
use socket2::{Domain, Socket, Type};

/// The server's port.
pub const PORT: u16 = 80;
/// The client's port, unless a test chooses another one.
pub const CLIENT_PORT: u16 = 30_000;

/// The addresses of client and server.
pub type EndAddresses = (IpAddr, IpAddr);

/// A client, a server with a listener, the devices between them, and the programs of a tier at the server's end.
pub struct TestNetwork {
    /// The maps of the level.
    pub level: SoftirqLevel,
    /// The listener, in the server's namespace.
    pub listener: TcpListener,
    /// The client's namespace.
    pub client: Arc<NetNamespace>,
    /// The server's namespace.
    pub server: Arc<NetNamespace>,
    device: &'static str,
    /// The addresses in both families.
    pub ends: [EndAddresses; 2],
    folder: PathBuf,
    loaded: LoadedPrograms,
    /// An XDP program at the client's end: veth transmits XDP frames only if the peer has one.
    _passing: Option<XdpVerdict>,
}

impl TestNetwork {
    /// Creates both ends on a veth pair; the programs are not attached yet.
    pub fn veth_pair(tier: ProgramTier) -> TestNetwork {
        let client = Arc::new(NetNamespace::new("client").expect("root"));
        let server = Arc::new(NetNamespace::new("server").expect("root"));
        let end = |namespace, addresses| CableEnd {
            namespace,
            device: DEVICE,
            addresses: Some(addresses),
        };
        pair(&end(&client, CLIENT), &end(&server, SERVER), 1500).expect("a cable");
        for namespace in [&client, &server] {
            namespace.offload_off(DEVICE).expect("a switch");
        }
        let passing = client.accept_xdp(DEVICE).expect("a program");
        let ends = [
            (CLIENT.0.into(), SERVER.0.into()),
            (CLIENT.1.into(), SERVER.1.into()),
        ];
        let mut line = TestNetwork::new(tier, [client, server], DEVICE, ends);
        line._passing = Some(passing);
        line
    }

    /// Creates both ends on the loopback device; the programs are not attached yet.
    pub fn loopback() -> TestNetwork {
        let both = Arc::new(NetNamespace::new("both").expect("root"));
        let [v4, v6] = [
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ];
        let ends = [(v4, v4), (v6, v6)];
        TestNetwork::new(ProgramTier::Tc, [both.clone(), both], "lo", ends)
    }

    fn new(
        tier: ProgramTier,
        [client, server]: [Arc<NetNamespace>; 2],
        device: &'static str,
        ends: [EndAddresses; 2],
    ) -> TestNetwork {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // The listener is for both families.
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
        let listener = server.enter(|| TcpListener::bind(any)).expect("a port");
        listener.set_nonblocking(true).expect("a mode");
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let id = std::process::id();
        let folder = PathBuf::from(format!("/sys/fs/bpf/lowroad-behind-{id}-{number}"));
        mount_pins().expect("bpffs can be mounted");
        std::fs::create_dir_all(&folder).expect("bpffs takes folders");
        let loaded = load(tier, MapSizes::default(), &folder);
        let loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
        let level = SoftirqLevel::open(&folder).expect("maps");
        level
            .prepare(layout::SETTING_LEARN, 60, 1500)
            .expect("keys");
        level.set_ports(&[PORT]);
        let own = ends.map(|(_, server)| match server {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        });
        level.set_addresses(&own).expect("addresses");
        TestNetwork {
            level,
            listener,
            client,
            server,
            device,
            ends,
            folder,
            loaded,
            _passing: None,
        }
    }

    /// Attaches the programs at the server's end.
    pub fn attach(&self) {
        self.server.enter(|| {
            let all = lowroad_softirq::machine::interfaces::all().expect("interfaces");
            let its = all
                .into_iter()
                .find(|one| one.interface.name == self.device);
            let interface: NetworkInterface = its.expect("a device").interface;
            links::attach(&self.loaded, &interface, &self.folder).expect("attached");
        });
        self.level.set_mode(layout::MODE_SERVE);
        self.beat();
    }

    /// Writes a heartbeat.
    pub fn beat(&self) {
        let date = b"Sun, 22 Nov 2026 12:00:00 GMT";
        self.level.write_heartbeat(lowroad_softirq::now_ns(), date);
    }

    /// The counter of a reason.
    pub fn count(&self, reason: &str) -> u64 {
        let at = REASONS.iter().position(|(name, _)| *name == reason);
        self.level.counters().expect("counters")[at.expect("a reason's name")]
    }

    /// Connects the client.
    pub fn connect(&self, ends: EndAddresses) -> TcpStream {
        self.connect_from(CLIENT_PORT, ends)
    }

    /// Connects the client from this port.
    pub fn connect_from(&self, port: u16, (own, server): EndAddresses) -> TcpStream {
        let server = SocketAddr::new(server, PORT);
        let connected = || {
            let socket = Socket::new(Domain::for_address(server), Type::STREAM, None);
            let socket = socket.expect("a socket");
            // On one machine, the server's end of the previous connection still uses the address.
            socket.set_reuse_address(true).expect("a mode");
            socket.bind(&SocketAddr::new(own, port).into()).ok()?;
            socket.connect_timeout(&server.into(), TEST_TIMEOUT).ok()?;
            Some(TcpStream::from(socket))
        };
        // The last acknowledgement of the previous connection may still be in flight.
        let stream = self.client.enter(|| wait_until("a connection", connected));
        stream
            .set_read_timeout(Some(TEST_TIMEOUT))
            .expect("a timeout");
        stream
    }

    /// Accepts the next connection from the listener.
    pub fn accept(&self) -> TcpStream {
        let (stream, _) = wait_until("a connection", || self.listener.accept().ok());
        stream
            .set_read_timeout(Some(TEST_TIMEOUT))
            .expect("a timeout");
        stream
    }
}

impl Drop for TestNetwork {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let counted = REASONS.iter().zip(self.level.counters().expect("counters"));
            let counted: Vec<_> = counted.filter(|(_, count)| *count > 0).collect();
            let is_broken = self.level.control().meta_broken;
            eprintln!("meta_broken {is_broken}, {counted:?}");
        }
        // Links and maps exist until their last name is removed. If that fails, the operator must remove them.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
