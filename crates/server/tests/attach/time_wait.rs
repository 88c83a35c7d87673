//! Ports reused after the server closed their last connection: its socket in TIME_WAIT must not keep the client from
//! the level, nor make the level accept old segments.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::Range;

use lowroad_softirq::layout::SETTING_KEEP_TIME_WAIT;
use lowroad_testkit::net::servers::{UPLOAD, receipt};
use lowroad_testkit::net::site::content;
use lowroad_testkit::net::{
    CLIENT, LinkMangling, NetNamespace, TestPage, TestPath, TestSite, WebServer,
};
use lowroad_testkit::{TEST_TIMEOUT, TestClient, wait_until};
use socket2::{Domain, Socket, Type};

use crate::attached::{Attached, servers};
use crate::raw::{ACK, FIN, PSH, Peer, SYN, Segment, Wire};
use crate::skipped;

/// Ports below the kernel's ephemeral ports.
const PORTS: Range<u16> = 30_000..30_040;

/// A request after which the server closes the connection.
fn last(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
}

/// Connects from this port.
fn connect(namespace: &NetNamespace, server: SocketAddr, port: u16) -> TestClient {
    let own: IpAddr = match server {
        SocketAddr::V4(_) => CLIENT.0.into(),
        SocketAddr::V6(_) => CLIENT.1.into(),
    };
    let connected = || {
        let socket = Socket::new(Domain::for_address(server), Type::STREAM, None);
        let socket = socket.expect("a socket");
        // Without SO_REUSEADDR, bind(2) fails while the port's last connection is in TIME_WAIT.
        socket.set_reuse_address(true).expect("a mode");
        socket.bind(&SocketAddr::new(own, port).into()).ok()?;
        socket.connect_timeout(&server.into(), TEST_TIMEOUT).ok()?;
        Some(TcpStream::from(socket))
    };
    // Repeated, because the acknowledgement of the last connection's FIN may still be in flight.
    TestClient::new(namespace.enter(|| wait_until("a connection", connected)))
}

/// Number of connections from these ports in TIME_WAIT at the server.
fn time_waits(namespace: &NetNamespace) -> usize {
    let tables = ["tcp", "tcp6"].map(|family| format!("/proc/thread-self/net/{family}"));
    let read = || tables.map(|table| fs::read_to_string(table).unwrap_or_default());
    let is_one = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let port = |word: &str| u16::from_str_radix(word.rsplit(':').next()?, 16).ok();
        let is_ours = |at| port(words[at]).is_some_and(|port| PORTS.contains(&port));
        // 06 is TIME_WAIT in /proc/net/tcp.
        words.len() > 3 && words[3] == "06" && is_ours(2)
    };
    let tables = namespace.enter(read);
    let lines = tables.iter().flat_map(|table| table.lines());
    lines.filter(is_one).count()
}

/// Opens a connection from each port to each server. Asserts which of them are in TIME_WAIT afterwards.
fn round(path: &TestPath, closed_by_kernel: bool, exchange: impl Fn(&mut TestClient, usize)) {
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

fn ask(client: &mut TestClient, page: &TestPage, query: &str) {
    client.send(last(&format!("{}{query}", page.path)));
    let response = client.response();
    assert_eq!(TestPage::new(&page.path, &response.body), *page);
}

#[test]
fn ports_in_time_wait_are_reused_immediately() {
    if skipped("ports_in_time_wait_are_reused_immediately", &["nginx"]) {
        return;
    }
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let site = TestSite::new(208, &[900, 30_000]);
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
    // The level answers and closes the connection, so the kernel has no socket for TIME_WAIT.
    round(&path, false, |client, _| ask(client, small, ""));
    assert_eq!(since(), [all, all, 0, 0]);
    // Each query string is a different page for the level.
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
    // With this setting, a RST does not end TIME_WAIT, but a SYN does.
    path.server.set("ipv4/tcp_rfc1337", "1").expect("a setting");
    wait_until("the daemon", || {
        (attached.level.control().settings & SETTING_KEEP_TIME_WAIT != 0).then_some(())
    });
    round(&path, true, |client, _| ask(client, small, ""));
    assert_eq!(since(), [3 * all, all, 3 * all, all]);
    eprintln!("{:?}", attached.counts());
}

#[test]
fn ports_in_time_wait_are_reused_behind_connection_tracking() {
    let test = "ports_in_time_wait_are_reused_behind_connection_tracking";
    if skipped(test, &["nginx", "nft"]) {
        return;
    }
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    // Connection tracking regards a segment without a tracked SYN as part of the previous connection.
    let rules = "add table inet t; \
        add chain inet t in { type filter hook input priority 0; policy accept; }; \
        add rule inet t in ct state invalid drop";
    path.server.run("nft", &[rules]).expect("a firewall");
    let site = TestSite::new(210, &[900, 30_000]);
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
fn duplicate_syn_of_old_connection_is_left_to_the_kernel() {
    if skipped(
        "duplicate_syn_of_old_connection_is_left_to_the_kernel",
        &["nginx"],
    ) {
        return;
    }
    const PORT: u16 = 5901;
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let site = TestSite::new(209, &[200]);
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
    // A duplicate of the client's first segment: the kernel answers with its current sequence number, as it would
    // without the level.
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
    // After a new connection, a late duplicate of a segment from the old one arrives, which belongs to no connection.
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

/// Requests the page, and closes the connection after the server. Returns the client's next sequence number.
fn to_the_end(wire: &mut Wire, peer: &mut Peer, request: &str, page: &TestPage) -> u32 {
    let port = peer.next.port;
    wire.send(&peer.ack());
    wire.send(&peer.data(0, request));
    peer.sent(request.len());
    let mut response = Vec::new();
    loop {
        let segment = wire.receive(port);
        // A segment arrives twice if its acknowledgement was late.
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
    assert_eq!(TestPage::new(&page.path, body), *page);
    wire.send(&Segment {
        flags: FIN | ACK,
        ..peer.next.clone()
    });
    peer.sent(1);
    while wire.receive(port).ack != peer.next.seq {}
    peer.next.seq
}
