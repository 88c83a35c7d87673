//! Disturbances while a level runs: the kernel stops taking over migrated connections, or no server listens for some
//! time.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use lowroad_softirq::layout;
use lowroad_testkit::net::{DEVICE, LinkMangling, TestPath, TestSite, WebServer};
use lowroad_testkit::{TestClient, wait_until};
use socket2::{Domain, Socket, Type};

use crate::attached::{Attached, get, send_request, server_v4, servers};
use crate::skipped;

fn path() -> TestPath {
    TestPath::new(&LinkMangling::default(), 1500).expect("a path")
}

/// Waits until the daemon has detected this problem.
fn wait_for(attached: &Attached, problem: layout::handover_problem) {
    wait_until("what is found of handovers", || {
        (attached.level.control().handover_broken == problem).then_some(())
    });
}

fn status(path: &TestPath) -> String {
    let netns = path.server.path();
    let arguments = ["status", "--softirq", "--netns", &netns];
    let said = path.server.run(env!("CARGO_BIN_EXE_lowroad"), &arguments);
    said.expect("a level")
}

#[test]
fn disabled_syn_cookies_leave_connections_to_the_kernel() {
    let test = "disabled_syn_cookies_leave_connections_to_the_kernel";
    if skipped(test, &["nginx"]) {
        return;
    }
    let path = path();
    let site = TestSite::new(901, &[100, 30_000]);
    let _nginx = WebServer::nginx(&path.server, &site, 80, "").expect("nginx");
    let attached = Attached::start(&path.server, 80, &["--ttl", "60"]);
    let [hot, large] = [0, 1].map(|at: usize| get(&site.pages[at].path));
    attached.warm(&path.client, server_v4(80), &hot);
    path.server.set("ipv4/tcp_syncookies", "0").expect("root");
    wait_for(&attached, layout::HANDOVER_NO_COOKIES);
    let handed = attached.count("tcp_handed");
    for request in [&hot, &large] {
        let response = path.client.enter(|| send_request(server_v4(80), request));
        assert_eq!(response.status, 200);
    }
    assert_eq!(attached.count("tcp_handed"), handed);
    let advice = "sysctl -w net.ipv4.tcp_syncookies=1";
    for said in [attached.output(), status(&path)] {
        assert!(said.contains(advice), "{said}");
    }
    path.server.set("ipv4/tcp_syncookies", "1").expect("root");
    wait_for(&attached, layout::HANDOVER_WORKS);
    attached.warm(&path.client, server_v4(80), &hot);
    assert!(!status(&path).contains(advice));
}

#[test]
fn disabled_tcp_options_are_not_negotiated() {
    let test = "disabled_tcp_options_are_not_negotiated";
    if skipped(test, &["nginx"]) {
        return;
    }
    let path = path();
    let site = TestSite::new(902, &[30_000]);
    let _nginx = WebServer::nginx(&path.server, &site, 80, "").expect("nginx");
    let attached = Attached::start(&path.server, 80, &[]);
    path.server.set("ipv4/tcp_sack", "0").expect("root");
    wait_until("the setting", || {
        let settings = attached.level.control().settings;
        (settings & layout::SETTING_NO_SACK != 0).then_some(())
    });
    for address in servers(80) {
        let large = get(&site.pages[0].path);
        let response = path.client.enter(|| send_request(address, &large));
        assert_eq!(response.status, 200);
    }
    assert_eq!(attached.count("tcp_not_handed"), 0);
    assert_eq!(attached.count("tcp_handed"), 2);
}

#[test]
fn migrations_dropped_by_firewall_are_noticed() {
    if skipped(
        "migrations_dropped_by_firewall_are_noticed",
        &["nginx", "nft"],
    ) {
        return;
    }
    let path = path();
    let site = TestSite::new(903, &[100, 30_000]);
    let _nginx = WebServer::nginx(&path.server, &site, 80, "").expect("nginx");
    let attached = Attached::start(&path.server, 80, &["--ttl", "60"]);
    let [hot, large] = [0, 1].map(|at: usize| get(&site.pages[at].path));
    attached.warm(&path.client, server_v4(80), &hot);
    let rules = "add table inet t; \
        add chain inet t in { type filter hook input priority 0; policy accept; }; \
        add rule inet t in tcp dport 80 ct state new tcp flags & syn == 0 drop";
    path.server.run("nft", &[rules]).expect("a firewall");
    let connect = || {
        let mut client = path.client.enter(|| TestClient::connect(server_v4(80)));
        client.send(&large);
        client
    };
    let clients: Vec<TestClient> = (0..8).map(|_| connect()).collect();
    wait_for(&attached, layout::HANDOVER_NOT_TAKEN);
    drop(clients);
    // The firewall has tracked this connection from its SYN.
    let response = path.client.enter(|| send_request(server_v4(80), &large));
    assert_eq!(response.status, 200);
    for said in [attached.output(), status(&path)] {
        assert!(said.contains("nf_conntrack_tcp_loose=1"), "{said}");
    }
    path.server
        .run("nft", &["delete", "table", "inet", "t"])
        .expect("it is there");
    // After an operator changes a setting, the level must try again immediately.
    let loose = "netfilter/nf_conntrack_tcp_loose";
    path.server.set(loose, "0").expect("root");
    wait_for(&attached, layout::HANDOVER_WORKS);
    attached.warm(&path.client, server_v4(80), &hot);
    let response = path.client.enter(|| send_request(server_v4(80), &large));
    assert_eq!(response.status, 200);
}

#[test]
fn migrations_reset_by_firewall_are_noticed() {
    if skipped(
        "migrations_reset_by_firewall_are_noticed",
        &["nginx", "nft"],
    ) {
        return;
    }
    let path = path();
    let site = TestSite::new(904, &[100, 30_000]);
    let _nginx = WebServer::nginx(&path.server, &site, 80, "").expect("nginx");
    let attached = Attached::start(&path.server, 80, &["--ttl", "60"]);
    let [hot, large] = [0, 1].map(|at: usize| get(&site.pages[at].path));
    attached.warm(&path.client, server_v4(80), &hot);
    let rules = "add table inet t; \
        add chain inet t in { type filter hook input priority 0; policy accept; }; \
        add rule inet t in tcp dport 80 ct state new tcp flags & syn == 0 reject with tcp reset";
    path.server.run("nft", &[rules]).expect("a firewall");
    // Eight clients that try once each.
    for host in 11..19 {
        let address = format!("10.77.0.{host}");
        let add = ["address", "add", &format!("{address}/24"), "dev", DEVICE];
        path.client.run("ip", &add).expect("an address");
        path.client.enter(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            let from: SocketAddr = (address.parse::<IpAddr>().expect("one"), 0).into();
            socket.bind(&from.into()).expect("its own address");
            socket.connect(&server_v4(80).into()).expect("a connection");
            let mut client = TestClient::new(socket.into());
            client.send(&large);
            assert!(!client.wait_for_close());
        });
    }
    wait_for(&attached, layout::HANDOVER_NOT_TAKEN);
    let response = path.client.enter(|| send_request(server_v4(80), &large));
    assert_eq!(response.status, 200);
}

/// Starts a server that answers each request with this text until the listener is shut down.
fn start_server(path: &TestPath, text: &'static str) -> TcpListener {
    let listener = path.server.enter(|| TcpListener::bind("0.0.0.0:80"));
    let listener = listener.expect("a port");
    let other = listener.try_clone().expect("a descriptor");
    thread::spawn(move || {
        for stream in other.incoming() {
            // The listener was shut down.
            let Ok(stream) = stream else { return };
            thread::spawn(move || answer_all(stream, text));
        }
    });
    listener
}

fn answer_all(stream: TcpStream, text: &str) {
    let mut client = TestClient::new(stream);
    loop {
        while !client.received.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
            if !client.receive_once() {
                return;
            }
        }
        client.received.clear();
        let fields = format!(
            "Cache-Control: max-age=60\r\nContent-Length: {}",
            text.len()
        );
        client.send(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{text}"));
    }
}

/// Shuts the listener down, and waits until the kernel no longer lists it.
fn stop(attached: &Attached, path: &TestPath, listener: TcpListener) {
    rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).expect("it listens");
    drop(listener);
    let port = attached.level.ports()[0];
    wait_until("the end of the listener", || {
        let left = path
            .server
            .enter(|| lowroad_softirq::machine::listeners::addresses(port));
        left.expect("a table").is_empty().then_some(())
    });
}

#[test]
fn misses_are_answered_after_server_restart() {
    if skipped("misses_are_answered_after_server_restart", &[]) {
        return;
    }
    let path = path();
    let listener = start_server(&path, "the first");
    let attached = Attached::start(&path.server, 80, &[]);
    attached.warm(&path.client, server_v4(80), &get("/hot"));
    let connect = || path.client.enter(|| TestClient::connect(server_v4(80)));
    let mut clients: Vec<TestClient> = (0..20).map(|_| connect()).collect();
    for client in &mut clients {
        client.send(get("/hot"));
        assert_eq!(client.response().text(), "the first");
    }
    stop(&attached, &path, listener);
    for client in &mut clients[1..] {
        client.send(get("/miss"));
    }
    wait_until("the misses", || {
        (attached.count("drop_no_listener") >= 19).then_some(())
    });
    // Stored responses are still answered.
    clients[0].send(get("/hot"));
    assert_eq!(clients[0].response().text(), "the first");
    let _listener = start_server(&path, "the second");
    for client in &mut clients[1..] {
        assert_eq!(client.response().text(), "the second");
    }
    let broken = attached.level.control().handover_broken;
    assert_eq!(broken, layout::HANDOVER_WORKS, "{}", attached.output());
    assert_eq!(attached.count("tcp_no_listener"), 0);
}

#[test]
fn misses_without_server_are_reset() {
    if skipped("misses_without_server_are_reset", &[]) {
        return;
    }
    let path = path();
    let listener = start_server(&path, "here");
    let attached = Attached::start(&path.server, 80, &[]);
    attached.warm(&path.client, server_v4(80), &get("/hot"));
    let mut client = path.client.enter(|| TestClient::connect(server_v4(80)));
    client.send(get("/hot"));
    assert_eq!(client.response().text(), "here");
    stop(&attached, &path, listener);
    client.send(get("/miss"));
    wait_until("the reset", || {
        (attached.count("tcp_no_listener") > 0).then_some(())
    });
    assert!(!client.wait_for_close());
}
