//! HTTP/3 while a new process takes over: connections of the old process continue there, new ones begin at the new one.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use lowroad_quic::CloseReason;
use lowroad_testkit::TestServer;
use lowroad_testkit::status::StatusClient;

use super::http3::serve_with;
use super::http3_client::Http3Client;
use super::support::{PROGRAM, Place, noise};

/// Reloads under load.
const RELOADS: usize = 100;
/// Upgrades under load.
const UPGRADES: usize = 8;

/// A server that is upgraded.
struct Upgradable {
    place: Place,
    server: TestServer,
}

impl Drop for Upgradable {
    fn drop(&mut self) {
        // The last successor is not a child of this process.
        _ = self.command("stop");
    }
}

impl Upgradable {
    fn start(workers: usize, tables: &str) -> Upgradable {
        let place = Place::new();
        let server = serve_with(&place, workers, "", tables);
        place.folder.file("site/short", noise(900));
        place.folder.file("site/long", noise(20 << 20));
        Upgradable { place, server }
    }

    fn command(&self, name: &str) -> std::process::Output {
        StatusClient::new(PROGRAM, self.place.path("admin")).run(&[name])
    }

    fn upgrade(&self) {
        let output = self.command("upgrade");
        assert!(output.status.success(), "{output:?}");
    }

    /// Replaces a text of the configuration.
    fn configure(&self, from: &str, to: &str) {
        let config = std::fs::read_to_string(self.place.path("lowroad.toml")).expect("a file");
        assert!(config.contains(from), "{config}");
        self.place
            .folder
            .file("lowroad.toml", config.replace(from, to));
    }

    fn connect(&self) -> Http3Client {
        connect(&self.place, self.server.addresses[0])
    }
}

fn connect(place: &Place, server: SocketAddr) -> Http3Client {
    let client = Http3Client::connect(place, server);
    assert_eq!(client.end, None, "a new connection");
    client
}

/// Sends requests one after the other, on a connection until the server ends it. Returns the number of responses.
fn request_until(
    place: &Place,
    server: SocketAddr,
    is_over: &AtomicBool,
    per_connection: usize,
) -> usize {
    let mut answered = 0;
    while !is_over.load(Relaxed) {
        let mut client = connect(place, server);
        for _ in 0..per_connection {
            let stream = client.request("GET", "/short", b"");
            client.wait(|client| {
                client.is_complete(stream) || client.end.is_some() || client.is_unprocessed(stream)
            });
            if client.is_unprocessed(stream) {
                break;
            }
            assert!(client.is_complete(stream), "{:?}", client.end);
            assert!(client.take(stream).body() == noise(900));
            answered += 1;
            if client.goaway().is_some() || is_over.load(Relaxed) {
                break;
            }
        }
        client.close();
    }
    answered
}

#[test]
fn http3_requests_survive_upgrades_under_load() {
    let upgradable = Upgradable::start(2, "");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let loads = [1, 1, usize::MAX, usize::MAX].map(|per_connection| {
            let (place, is_over) = (&upgradable.place, &is_over);
            let server = upgradable.server.addresses[0];
            scope.spawn(move || request_until(place, server, is_over, per_connection))
        });
        for _ in 0..UPGRADES {
            upgradable.upgrade();
        }
        is_over.store(true, Relaxed);
        for load in loads {
            let answered = load.join().expect("no failed request");
            assert!(answered > UPGRADES, "{answered}");
        }
    });
}

#[test]
fn http3_connections_survive_reloads_under_load() {
    let upgradable = Upgradable::start(2, "");
    let is_over = AtomicBool::new(false);
    let (place, server) = (&upgradable.place, upgradable.server.addresses[0]);
    thread::scope(|scope| {
        let is_over = &is_over;
        let new = scope.spawn(move || request_until(place, server, is_over, 2));
        let kept = [(); 2].map(|()| {
            scope.spawn(move || {
                let (mut client, mut answered) = (connect(place, server), 0);
                while !is_over.load(Relaxed) {
                    assert!(client.get("/short").body() == noise(900));
                    answered += 1;
                }
                assert_eq!(client.goaway(), None);
                answered
            })
        });
        for number in 1..=RELOADS {
            upgradable.server.signal("HUP");
            let line = format!("reload {number}: ");
            upgradable.server.wait_for_error_line(&line);
        }
        is_over.store(true, Relaxed);
        for load in kept.into_iter().chain([new]) {
            assert!(load.join().expect("no failed request") > 0);
        }
    });
}

#[test]
fn http3_response_survives_upgrades_and_a_new_address() {
    let mut upgradable = Upgradable::start(2, "");
    let mut client = upgradable.connect();
    let long_path = format!("/long?{}", "x".repeat(1500));
    let long = client.request("GET", &long_path, b"");
    client.wait(|client| client.has_begun(long));
    // The second successor passes datagrams to a process that is not its predecessor.
    for _ in 0..2 {
        upgradable.upgrade();
        let mut other = upgradable.connect();
        assert!(other.get("/short").body() == noise(900));
        client.rebind();
        let before = client.len(long);
        client.wait(|client| client.len(long) >= before + (4 << 20));
        assert!(upgradable.server.is_running(), "a response is unfinished");
    }
    assert!(client.response(long).body() == noise(20 << 20));
    assert!(upgradable.place.count("quic_forwarded") > 0);
    client.wait(|client| client.end.is_some());
    // H3_NO_ERROR
    assert_eq!(client.end, Some(CloseReason::PeerApplication(0x100)));
    assert!(upgradable.server.wait_for_end().success());
}

#[test]
fn http3_response_survives_upgrades_that_follow_each_other_at_once() {
    let upgradable = Upgradable::start(3, "");
    let mut clients: Vec<Http3Client> = (0..6).map(|_| upgradable.connect()).collect();
    let path = format!("/long?{}", "x".repeat(1500));
    let streams: Vec<u64> = clients
        .iter_mut()
        .map(|client| client.request("GET", &path, b""))
        .collect();
    for (client, stream) in clients.iter_mut().zip(&streams) {
        client.wait(|client| client.has_begun(*stream));
    }
    for _ in 0..4 {
        upgradable.upgrade();
    }
    for (client, stream) in clients.iter_mut().zip(&streams) {
        client.rebind();
        let before = client.len(*stream);
        client.wait(|client| client.len(*stream) >= before + (2 << 20));
        client.close();
    }
}

#[test]
fn http3_that_is_turned_on_again_accepts_all_connections() {
    let upgradable = Upgradable::start(2, "");
    // The predecessor keeps its sockets to send.
    let mut client = upgradable.connect();
    let long = client.request("GET", "/long", b"");
    client.wait(|client| client.has_begun(long));
    upgradable.upgrade();
    for (from, to) in [("true", "false"), ("false", "true")] {
        upgradable.configure(&format!("http3 = {from}"), &format!("http3 = {to}"));
        let output = upgradable.command("reload");
        assert!(output.status.success(), "{output:?}");
    }
    for _ in 0..16 {
        let mut client = upgradable.connect();
        assert!(client.get("/short").body() == noise(900));
        client.close();
    }
}

/// Sockets of both processes would share the port, and each would get datagrams of the other's connections.
#[test]
fn http3_stays_off_while_a_predecessor_receives_at_the_port() {
    let mut upgradable = Upgradable::start(2, "");
    let mut client = upgradable.connect();
    let long = client.request("GET", "/long", b"");
    client.wait(|client| client.has_begun(long));
    upgradable.configure("http3 = true", "http3 = false");
    upgradable.upgrade();
    upgradable.configure("http3 = false", "http3 = true");
    let is_refused = |upgradable: &Upgradable| {
        let output = upgradable.command("reload");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).contains("no HTTP/3 at 127.0.0.1:")
    };
    assert!(is_refused(&upgradable));
    // Neither does a later successor open the port.
    upgradable.upgrade();
    assert!(is_refused(&upgradable));
    let before = client.len(long);
    client.wait(|client| client.len(long) >= before + (4 << 20));
    assert!(client.response(long).body() == noise(20 << 20));
    client.close();
    assert!(upgradable.server.wait_for_end().success());
    assert!(!is_refused(&upgradable));
    for _ in 0..16 {
        let mut client = upgradable.connect();
        assert!(client.get("/short").body() == noise(900));
        client.close();
    }
}

#[test]
fn http3_clients_of_an_ended_process_are_reset() {
    let mut upgradable = Upgradable::start(1, "");
    let mut client = upgradable.connect();
    assert!(client.get("/short").body() == noise(900));
    upgradable.upgrade();
    assert!(upgradable.server.wait_for_end().success());
    // The close of the old process is lost.
    client.rebind();
    let path = format!("/short?{}", "x".repeat(500));
    client.request("GET", &path, b"");
    client.wait(|client| client.end.is_some());
    assert_eq!(client.end, Some(CloseReason::StatelessReset));
    assert!(upgradable.connect().get("/short").body() == noise(900));
}

#[test]
fn http3_clients_are_reset_after_a_restart() {
    let place = Place::new();
    place.certify("a", &["a.example"]);
    place.folder.file("site/short", noise(900));
    // No other test uses this address, so the port stays free between the servers.
    let port = std::net::TcpListener::bind("127.0.0.78:0").expect("a port");
    let address = port.local_addr().expect("an address");
    drop(port);
    let site = place
        .site("a", "", "")
        .replace("127.0.0.1:0", &address.to_string());
    let keys = format!(
        "http3 = true\nticket_keys = \"{}\"\n",
        place.path("tickets").display()
    );
    let start = || place.run_with(&keys, &site);
    let mut first = start();
    let mut client = connect(&place, address);
    assert!(client.get("/short").body() == noise(900));
    first.signal("KILL");
    first.wait_for_end();
    let _second = start();
    let path = format!("/short?{}", "x".repeat(500));
    client.request("GET", &path, b"");
    client.wait(|client| client.end.is_some());
    assert_eq!(client.end, Some(CloseReason::StatelessReset));
}

#[test]
fn failed_upgrade_keeps_http3_connections() {
    let upgradable = Upgradable::start(2, "");
    let mut client = upgradable.connect();
    assert!(client.get("/short").body() == noise(900));
    // The successor has its sockets before it fails.
    upgradable.configure("a.pem", "missing.pem");
    let output = upgradable.command("upgrade");
    assert!(!output.status.success(), "{output:?}");
    for _ in 0..16 {
        assert!(client.get("/short").body() == noise(900));
        assert!(upgradable.connect().get("/short").body() == noise(900));
    }
    assert_eq!(client.goaway(), None);
}

#[test]
fn http3_upgrades_change_the_number_of_workers() {
    let upgradable = Upgradable::start(2, "");
    let mut last = 2;
    for workers in [5, 1, 3] {
        let mut old: Vec<Http3Client> = (0..8).map(|_| upgradable.connect()).collect();
        let long: Vec<u64> = old
            .iter_mut()
            .map(|client| client.request("GET", "/long", b""))
            .collect();
        for (client, stream) in old.iter_mut().zip(&long) {
            client.wait(|client| client.has_begun(*stream));
        }
        upgradable.configure(
            &format!("workers = {last}\n"),
            &format!("workers = {workers}\n"),
        );
        last = workers;
        upgradable.upgrade();
        for _ in 0..16 {
            assert!(upgradable.connect().get("/short").body() == noise(900));
        }
        for (client, stream) in old.iter_mut().zip(&long) {
            client.rebind();
            let before = client.len(*stream);
            client.wait(|client| client.len(*stream) >= before + (2 << 20));
            client.close();
        }
    }
}
