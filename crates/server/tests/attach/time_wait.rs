//! Clients that come again from the same ports, whose last connections the server above has closed: what
//! is left of these must not lock them out of the level, nor let old segments in.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::Range;

use lowroad_softirq::layout::SETTING_KEEP_TIME_WAIT;
use lowroad_testkit::net::servers::{UPLOAD, receipt};
use lowroad_testkit::net::site::content;
use lowroad_testkit::net::{CLIENT, Manglings, Namespace, Page, Path, Site, WebServer};
use lowroad_testkit::{Client, PATIENCE, wait_until};
use socket2::{Domain, Socket, Type};

use crate::attached::{Attached, servers};
use crate::raw::{ACK, FIN, PSH, Peer, SYN, Segment, Wire};
use crate::skipped;

/// Below those that the kernel chooses itself.
const PORTS: Range<u16> = 30_000..30_040;

/// A request after which the server closes.
fn last(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
}

/// A connection from this port.
fn connect(namespace: &Namespace, server: SocketAddr, port: u16) -> Client {
    let own: IpAddr = match server {
        SocketAddr::V4(_) => CLIENT.0.into(),
        SocketAddr::V6(_) => CLIENT.1.into(),
    };
    let connected = || {
        let socket = Socket::new(Domain::for_address(server), Type::STREAM, None);
        let socket = socket.expect("a socket");
        socket.set_reuse_address(true).expect("a mode");
        socket.bind(&SocketAddr::new(own, port).into()).ok()?;
        socket.connect_timeout(&server.into(), PATIENCE).ok()?;
        Some(TcpStream::from(socket))
    };
    // The acknowledgement of the FIN of the last connection may be on its way.
    Client::new(namespace.enter(|| wait_until("a connection", connected)))
}

/// How many connections of these clients the server's kernel has in TIME_WAIT.
fn time_waits(namespace: &Namespace) -> usize {
    let tables = ["tcp", "tcp6"].map(|family| format!("/proc/thread-self/net/{family}"));
    let read = || tables.map(|table| fs::read_to_string(table).unwrap_or_default());
    let is_one = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let port = |word: &str| u16::from_str_radix(word.rsplit(':').next()?, 16).ok();
        let is_ours = |at| port(words[at]).is_some_and(|port| PORTS.contains(&port));
        words.len() > 3 && words[3] == "06" && is_ours(2)
    };
    let tables = namespace.enter(read);
    let lines = tables.iter().flat_map(|table| table.lines());
    lines.filter(is_one).count()
}

/// From each of the ports one connection to each of the servers; then all are in TIME_WAIT that are
/// said to be.
fn round(path: &Path, closed_by_kernel: bool, exchange: impl Fn(&mut Client, usize)) {
    for (at, port) in PORTS.enumerate() {
        for server in servers(80) {
            let mut client = connect(&path.client, server, port);
            exchange(&mut client, at);
            assert!(client.wait_for_close(), "a clean end");
        }
    }
    let wanted = if closed_by_kernel { ALL } else { 0 };
    wait_until("TIME_WAIT", || {
        (time_waits(&path.server) == wanted).then_some(())
    });
}

const ALL: usize = 2 * (PORTS.end - PORTS.start) as usize;

fn ask(client: &mut Client, page: &Page, query: &str) {
    client.send(last(&format!("{}{query}", page.path)));
    let response = client.response();
    assert_eq!(Page::of(&page.path, &response.body), *page);
}

#[test]
fn ports_in_time_wait_are_used_again_at_once() {
    if skipped("ports_in_time_wait_are_used_again_at_once", &["nginx"]) {
        return;
    }
    let path = Path::new(&Manglings::default(), 1500).expect("a path");
    let site = Site::new(208, &[900, 30_000]);
    let _nginx = WebServer::nginx(&path.server, &site, 80, "").expect("nginx");
    let (small, large) = (&site.pages[0], &site.pages[1]);
    round(&path, true, |client, _| ask(client, large, ""));
    let attached = Attached::start(&path.server, 80, &["--ttl", "600"]);
    for server in servers(80) {
        attached.warm(&path.client, server, &last(&small.path));
    }
    let all = u64::try_from(ALL).expect("few");
    let counts = || {
        ["tcp_reused", "answer_hit", "tcp_handed", "pass_syn_socket"]
            .map(|reason| attached.count(reason))
    };
    let begin = counts();
    let since = || {
        let mut now = counts();
        now.iter_mut()
            .zip(begin)
            .for_each(|(now, begin)| *now -= begin);
        now
    };
    round(&path, false, |client, _| ask(client, small, ""));
    assert_eq!(since(), [all, all, 0, 0]);
    // Each is another page for this level.
    round(&path, true, |client, at| {
        ask(client, large, &format!("?{at}"))
    });
    assert_eq!(since(), [all, all, all, 0]);
    round(&path, true, |client, at| {
        ask(client, large, &format!("?{at}b"))
    });
    assert_eq!(since(), [2 * all, all, 2 * all, 0]);
    let body = content(7, 7, 100_000);
    round(&path, true, |client, _| {
        let head = format!("POST {UPLOAD} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n");
        client.send(format!("{head}Content-Length: {}\r\n\r\n", body.len()));
        client.send(&body);
        assert_eq!(client.response().text(), receipt(&body));
    });
    assert_eq!(since(), [3 * all, all, 3 * all, 0]);
    // The kernel ends none of them for an RST any more: it does so for the SYN.
    path.server.set("ipv4/tcp_rfc1337", "1").expect("a setting");
    wait_until("the daemon", || {
        (attached.level.control().settings & SETTING_KEEP_TIME_WAIT != 0).then_some(())
    });
    round(&path, true, |client, _| ask(client, small, ""));
    assert_eq!(since(), [3 * all, all, 3 * all, all]);
    eprintln!("{:?}", attached.counts());
}

#[test]
fn behind_a_firewall_that_tracks_the_kernel_reuses_them() {
    let test = "behind_a_firewall_that_tracks_the_kernel_reuses_them";
    if skipped(test, &["nginx", "nft"]) {
        return;
    }
    let path = Path::new(&Manglings::default(), 1500).expect("a path");
    // What it has not seen from the SYN on it takes for a part of the connection before.
    let rules = "add table inet t; \
        add chain inet t in { type filter hook input priority 0; policy accept; }; \
        add rule inet t in ct state invalid drop";
    path.server.run("nft", &[rules]).expect("a firewall");
    let site = Site::new(210, &[900, 30_000]);
    let _nginx = WebServer::nginx(&path.server, &site, 80, "").expect("nginx");
    let large = &site.pages[1];
    round(&path, true, |client, _| ask(client, large, ""));
    let attached = Attached::start(&path.server, 80, &["--ttl", "600"]);
    round(&path, true, |client, at| {
        ask(client, large, &format!("?{at}"));
    });
    let all = u64::try_from(ALL).expect("few");
    assert_eq!(attached.count("pass_syn_socket"), all);
    assert_eq!(attached.count("tcp_reused"), 0);
}

#[test]
fn an_old_syn_is_left_to_the_kernel() {
    if skipped("an_old_syn_is_left_to_the_kernel", &["nginx"]) {
        return;
    }
    const PORT: u16 = 5901;
    let path = Path::new(&Manglings::default(), 1500).expect("a path");
    let site = Site::new(209, &[200]);
    let _nginx = WebServer::nginx(&path.server, &site, 80, "").expect("nginx");
    let attached = Attached::start(&path.server, 80, &["--ttl", "600"]);
    let mut wire = Wire::new(&path);
    let page = &site.pages[0];
    let mut first = Peer::open(&mut wire, PORT, 1_000_000);
    let mark = to_the_end(
        &mut wire,
        &mut first,
        &last(&format!("{}?1", page.path)),
        page,
    );
    assert_eq!(attached.count("tcp_handed"), 1);
    // A copy of its first segment: the kernel says where it is, as if nobody were here.
    let syn = Segment {
        port: PORT,
        seq: 1_000_000,
        flags: SYN,
        ..Segment::default()
    };
    wire.send(&syn);
    let answer = wire.receive(PORT);
    assert_eq!((answer.flags, answer.ack), (ACK, mark));
    assert_eq!(attached.count("pass_syn_socket"), 1);
    assert_eq!(attached.count("tcp_reused"), 0);
    // A new one, then a late copy of a segment of the old one, which is of no connection any more.
    let mut second = Peer::open(&mut wire, PORT, 2_000_000);
    assert_eq!(attached.count("tcp_reused"), 1);
    wire.send(&second.ack());
    wire.send(&Segment {
        flags: ACK | PSH,
        payload: b"GET /late HTTP/1.1\r\nHost: test\r\n\r\n".to_vec(),
        ..Segment {
            seq: 1_000_001,
            ..first.next.clone()
        }
    });
    to_the_end(
        &mut wire,
        &mut second,
        &last(&format!("{}?2", page.path)),
        page,
    );
    assert_eq!(attached.count("tcp_handed"), 2);
}

/// Asks for the page, and closes after the server; the client's next number.
fn to_the_end(wire: &mut Wire, peer: &mut Peer, request: &str, page: &Page) -> u32 {
    let port = peer.next.port;
    wire.send(&peer.ack());
    wire.send(&peer.data(0, request));
    peer.sent(request.len());
    let mut response = Vec::new();
    loop {
        let segment = wire.receive(port);
        // What was acknowledged late comes twice.
        if segment.seq != peer.next.ack || segment.payload.is_empty() && segment.flags & FIN == 0 {
            continue;
        }
        peer.received(&segment);
        response.extend(&segment.payload);
        if segment.flags & FIN != 0 {
            break;
        }
        wire.send(&peer.ack());
    }
    let body_at = response.windows(4).position(|four| four == b"\r\n\r\n");
    let body = &response[body_at.expect("a head") + 4..];
    assert_eq!(Page::of(&page.path, body), *page);
    wire.send(&Segment {
        flags: FIN | ACK,
        ..peer.next.clone()
    });
    peer.sent(1);
    while wire.receive(port).ack != peer.next.seq {}
    peer.next.seq
}
