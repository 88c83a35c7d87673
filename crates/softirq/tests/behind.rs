//! What only TC can do, on real devices: connections that take the place of those in TIME_WAIT, are handed
//! to a listener, and taken back from it. At the XDP tier the program behind does it, which needs a device that brings it frames
//! with data before them.

mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::leftover;
use common::responses::{Response, Shelf};
use lowroad_softirq::Level;
use lowroad_softirq::layout::{self, REASONS};
use lowroad_softirq::links::{self, Interface};
use lowroad_softirq::load::{Loaded, Sizes, Tier, load};
use lowroad_testkit::net::{
    self, CLIENT, DEVICE, End, Namespace, SERVER, XdpVerdict, namespace::pair,
};
use lowroad_testkit::{PATIENCE, skip, wait_until};
use socket2::{Domain, Socket, Type};

const PORT: u16 = 80;
const CLIENT_PORT: u16 = 30_000;
const REQUEST: &[u8] = b"GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n";

/// A client's address and the server's.
type Ends = (IpAddr, IpAddr);

/// A client, a server with a listener, what is between them, and the programs of a tier at the server's
/// end.
struct Line {
    level: Level,
    listener: TcpListener,
    client: Arc<Namespace>,
    server: Arc<Namespace>,
    device: &'static str,
    ends: [Ends; 2],
    folder: PathBuf,
    loaded: Loaded,
    /// What lets the program at the other end send frames back.
    _passing: Option<XdpVerdict>,
}

impl Line {
    /// A cable; nothing is attached yet.
    fn cable(tier: Tier) -> Line {
        let client = Arc::new(Namespace::new("client").expect("root"));
        let server = Arc::new(Namespace::new("server").expect("root"));
        let end = |namespace, addresses| End {
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
        let mut line = Line::new(tier, [client, server], DEVICE, ends);
        line._passing = Some(passing);
        line
    }

    /// The loopback device; nothing is attached yet.
    fn loopback() -> Line {
        let both = Arc::new(Namespace::new("both").expect("root"));
        let [v4, v6] = [
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ];
        let ends = [(v4, v4), (v6, v6)];
        Line::new(Tier::Tc, [both.clone(), both], "lo", ends)
    }

    fn new(
        tier: Tier,
        [client, server]: [Arc<Namespace>; 2],
        device: &'static str,
        ends: [Ends; 2],
    ) -> Line {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
        let listener = server.enter(|| TcpListener::bind(any)).expect("a port");
        listener.set_nonblocking(true).expect("a mode");
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let id = std::process::id();
        let folder = PathBuf::from(format!("/sys/fs/bpf/lowroad-behind-{id}-{number}"));
        std::fs::create_dir_all(&folder).expect("bpffs takes folders");
        let loaded = load(tier, Sizes::default(), &folder);
        let loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
        let level = Level::open(&folder).expect("maps");
        level
            .prepare(layout::SETTING_LEARN, 60, 1500)
            .expect("keys");
        level.set_ports(&[PORT]);
        let own = ends.map(|(_, server)| match server {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        });
        level.set_addresses(&own).expect("addresses");
        Line {
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

    fn attach(&self) {
        self.server.enter(|| {
            let all = lowroad_softirq::interfaces::all().expect("interfaces");
            let its = all
                .into_iter()
                .find(|one| one.interface.name == self.device);
            let interface: Interface = its.expect("a device").interface;
            links::attach(&self.loaded, &interface, &self.folder).expect("attached");
        });
        self.level.set_mode(layout::MODE_SERVE);
        self.beat();
    }

    /// There is no daemon.
    fn beat(&self) {
        let date = b"Sun, 22 Nov 2026 12:00:00 GMT";
        self.level.beat(lowroad_softirq::now_ns(), date);
    }

    fn count(&self, reason: &str) -> u64 {
        let at = REASONS.iter().position(|(name, _)| *name == reason);
        self.level.counters().expect("counters")[at.expect("a reason's name")]
    }

    fn connect(&self, (own, server): Ends) -> TcpStream {
        let server = SocketAddr::new(server, PORT);
        let connected = || {
            let socket = Socket::new(Domain::for_address(server), Type::STREAM, None);
            let socket = socket.expect("a socket");
            // On one machine the other end of the last connection has the port yet.
            socket.set_reuse_address(true).expect("a mode");
            socket
                .bind(&SocketAddr::new(own, CLIENT_PORT).into())
                .ok()?;
            socket.connect_timeout(&server.into(), PATIENCE).ok()?;
            Some(TcpStream::from(socket))
        };
        // The acknowledgement of the FIN of the last connection may be on its way.
        let stream = self.client.enter(|| wait_until("a connection", connected));
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }

    fn accept(&self) -> TcpStream {
        let (stream, _) = wait_until("a connection", || self.listener.accept().ok());
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let counted = REASONS.iter().zip(self.level.counters().expect("counters"));
            let counted: Vec<_> = counted.filter(|(_, count)| *count > 0).collect();
            let is_broken = self.level.control().meta_broken;
            eprintln!("meta_broken {is_broken}, {counted:?}");
        }
        // Links and maps go with their last name; what can't be removed stays for the operator.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A request and its response through the server's own socket, which closes first.
fn exchange(line: &Line, ends: Ends, accept: impl FnOnce() -> TcpStream) {
    let mut client = line.connect(ends);
    client.write_all(REQUEST).expect("sent");
    let mut server = accept();
    let mut request = vec![0; REQUEST.len()];
    server.read_exact(&mut request).expect("the request");
    assert_eq!(request, REQUEST);
    let body: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
    server.write_all(&body).expect("sent");
    drop(server);
    let mut received = Vec::new();
    client.read_to_end(&mut received).expect("a clean end");
    assert!(received == body, "the same bytes");
    drop(client);
    line.server.enter(|| leftover::begun(CLIENT_PORT));
}

fn takes_the_place(test: &str, line: impl FnOnce() -> Line) {
    if let Some(reason) = net::lacks() {
        return skip(test, &reason);
    }
    let line = line();
    for ends in line.ends {
        exchange(&line, ends, || line.accept());
    }
    line.attach();
    for connections in (1..).take(6) {
        let ends = line.ends[connections % 2];
        line.beat();
        exchange(&line, ends, || line.accept());
        let connections = u64::try_from(connections).expect("few");
        assert_eq!(line.count("tcp_reused"), connections);
        assert_eq!(line.count("tcp_handed"), connections);
    }
    assert_eq!(line.count("tcp_syn"), 6);
    assert_eq!(line.count("pass_syn_socket"), 0);
}

#[test]
fn native_xdp_takes_the_place_of_what_is_in_time_wait() {
    let test = "native_xdp_takes_the_place_of_what_is_in_time_wait";
    takes_the_place(test, || Line::cable(Tier::Xdp));
}

#[test]
fn tc_takes_the_place_of_what_is_in_time_wait() {
    let test = "tc_takes_the_place_of_what_is_in_time_wait";
    takes_the_place(test, || Line::cable(Tier::Tc));
}

#[test]
fn on_loopback_too_it_takes_the_place_of_what_is_in_time_wait() {
    let test = "on_loopback_too_it_takes_the_place_of_what_is_in_time_wait";
    takes_the_place(test, Line::loopback);
}

/// What ends the old connection is lost: the kernel ignores it.
fn comes_again(test: &str, tier: Tier) {
    if let Some(reason) = net::lacks() {
        return skip(test, &reason);
    }
    let line = Line::cable(tier);
    exchange(&line, line.ends[0], || line.accept());
    let ignore = |value| line.server.set("ipv4/tcp_rfc1337", value);
    ignore("1").expect("a setting");
    line.attach();
    exchange(&line, line.ends[0], || {
        wait_until("a segment that is dropped", || {
            (line.count("drop_time_wait") > 0).then_some(())
        });
        assert_eq!(line.count("tcp_handed"), 0);
        ignore("0").expect("a setting");
        line.accept()
    });
    assert_eq!(line.count("tcp_handed"), 1);
}

#[test]
fn native_xdp_hands_over_once_time_wait_has_ended() {
    comes_again("native_xdp_hands_over_once_time_wait_has_ended", Tier::Xdp);
}

#[test]
fn tc_hands_over_once_time_wait_has_ended() {
    comes_again("tc_hands_over_once_time_wait_has_ended", Tier::Tc);
}

/// What is stored here. A driver that leaves no room behind a frame has that of the request.
fn hot() -> Vec<u8> {
    let pad = "x".repeat(400);
    format!("GET /a HTTP/1.1\r\nHost: h\r\nX-Pad: {pad}\r\n\r\n").into_bytes()
}

fn publish(line: &Line) {
    let hot = Response::named("A");
    let mut shelf = Shelf::new(&line.level);
    for (_, server) in line.ends {
        let hour_ns = 3_600_000_000_000;
        shelf.publish(&line.level, &hot.key_at(server), &hot.prepare(0), hour_ns);
    }
}

/// Asks, and gets the stored response.
fn ask_below(client: &mut TcpStream) {
    let expected = Response::named("A").prepare(0).bytes;
    client.write_all(&hot()).expect("sent");
    let mut got = vec![0; expected.len()];
    client.read_exact(&mut got).expect("an answer");
    assert!(got.starts_with(b"HTTP/1.1 200 OK\r\nX-Name: A\r\n"));
    assert!(got.ends_with(&[b'a'; 100]));
}

/// Asks, and gets what the server's socket says.
fn ask_above(
    client: &mut TcpStream,
    request: &[u8],
    accept: impl FnOnce() -> TcpStream,
) -> TcpStream {
    client.write_all(request).expect("sent");
    let mut server = accept();
    let mut got = vec![0; request.len()];
    server.read_exact(&mut got).expect("the request");
    assert_eq!(got, request);
    let mut response = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n".to_vec();
    let head_len = response.len();
    response.resize(head_len + 100_000, b'u');
    server.write_all(&response).expect("sent");
    let mut got = vec![0; response.len()];
    client.read_exact(&mut got).expect("a response");
    assert!(got == response, "the same bytes");
    server
}

fn comes_back(test: &str, line: impl FnOnce() -> Line) {
    if let Some(reason) = net::lacks() {
        return skip(test, &reason);
    }
    let line = line();
    line.attach();
    publish(&line);
    let counts = || {
        ["answer_hit", "tcp_handed", "tcp_taken_back", "up_room"].map(|reason| line.count(reason))
    };
    let mut wanted = counts();
    let mut kept = Vec::new();
    for ends in line.ends {
        let mut client = line.connect(ends);
        ask_below(&mut client);
        for round in 1..=4 {
            line.beat();
            let mut server = ask_above(&mut client, REQUEST, || line.accept());
            for _ in 0..if round == 1 { 3 } else { 1 } {
                server = ask_above(&mut client, &hot(), || server);
            }
            ask_below(&mut client);
            assert_eq!(server.read(&mut [0]).expect("a clean end"), 0);
            // Every other time it closes only after the next handover.
            if round % 2 == 0 {
                kept.push(server);
            }
            for _ in 0..5 {
                ask_below(&mut client);
            }
        }
        let more = [25, 4, 4, 0];
        wanted
            .iter_mut()
            .zip(more)
            .for_each(|(all, more)| *all += more);
        assert_eq!(counts(), wanted);
    }
    assert_eq!(line.level.control().meta_broken, 0);
}

#[test]
fn it_comes_back_from_behind_native_xdp() {
    let test = "it_comes_back_from_behind_native_xdp";
    comes_back(test, || Line::cable(Tier::Xdp));
}

#[test]
fn it_comes_back_at_tc() {
    comes_back("it_comes_back_at_tc", || Line::cable(Tier::Tc));
}

#[test]
fn it_comes_back_on_the_loopback_device() {
    comes_back("it_comes_back_on_the_loopback_device", Line::loopback);
}
