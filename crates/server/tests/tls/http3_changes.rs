//! HTTP/3 while the configuration changes: failed reloads, addresses that come and go, sockets and descriptors.

use std::fs;
use std::net::{SocketAddr, UdpSocket};

use lowroad_testkit::{TestServer, wait_until};

use super::http3::serve_with;
use super::http3_client::Http3Client;
use super::support::{PROGRAM, Place};

/// Reloads that turn HTTP/3 off or on.
const SWITCHES: usize = 50;

/// A site that can't be opened.
const MISSING_SITE: &str = "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"missing\"\n";

/// A UDP port at an address of the loopback that no other test uses, so that the TCP port with the same number is free.
fn taken_port(address: &str) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((address, 0)).expect("a port");
    let address = socket.local_addr().expect("an address");
    (socket, address)
}

/// The configuration of a site at this address.
fn site_at(place: &Place, address: SocketAddr) -> String {
    place.certify("a", &["a.example"]);
    let site = place.site("a", "", "");
    site.replace("127.0.0.1:0", &address.to_string())
}

fn is_advertised(place: &Place, address: SocketAddr) -> bool {
    let head = place.fetch(address, &["-D-", "https://a.example/a"]);
    head.to_ascii_lowercase().contains("alt-svc")
}

/// Reloads another configuration. Returns whether it is in force.
fn reload(place: &Place, server: &TestServer, config: &str) -> bool {
    place.folder.file("lowroad.toml", config);
    server.signal("HUP");
    let line = server.wait_for_error_line("reload ");
    line.contains("is in force")
}

fn config(place: &Place) -> String {
    fs::read_to_string(place.path("lowroad.toml")).expect("a file")
}

#[test]
fn failed_reload_opens_no_port_of_http3() {
    let place = Place::new();
    place.folder.file("site/a", "a");
    let (taken, address) = taken_port("127.0.0.79");
    let server = place.run_with("http3 = true", &site_at(&place, address));
    server.wait_for_error_line(&format!("no HTTP/3 at {address}"));
    drop(taken);
    let good = config(&place);
    // Each fails at a step after the sockets.
    for bad in [
        format!("{good}{MISSING_SITE}"),
        good.replace("a.pem", "missing.pem"),
    ] {
        assert!(!reload(&place, &server, &bad), "{bad}");
        assert!(!is_advertised(&place, address));
        // The port is free.
        UdpSocket::bind(address).expect("a free port");
    }
    assert!(reload(&place, &server, &good));
    assert!(is_advertised(&place, address));
    let mut client = Http3Client::connect(&place, address);
    assert_eq!(client.get("/a").body(), b"a");
}

#[test]
fn failed_reload_keeps_ports_and_connections_of_http3() {
    let place = Place::new();
    place.folder.file("site/a", "a");
    let server = serve_with(&place, 2, "", "");
    let address = server.addresses[0];
    let mut client = Http3Client::connect(&place, address);
    assert_eq!(client.get("/a").body(), b"a");
    let good = config(&place);
    let off = good.replace("http3 = true", "http3 = false");
    let moved = good.replace("127.0.0.1:0", "127.0.0.2:0");
    for bad in [off, moved] {
        let bad = format!("{bad}{MISSING_SITE}");
        assert!(!reload(&place, &server, &bad), "{bad}");
        assert_eq!(client.get("/a").body(), b"a");
        let mut other = Http3Client::connect(&place, address);
        assert_eq!(other.get("/a").body(), b"a");
    }
    assert_eq!(place.status("http3"), [format!("{address} (UDP)")]);
}

#[test]
fn http3_is_withdrawn_from_the_address_that_lacks_it() {
    let place = Place::new();
    place.folder.file("site/a", "a");
    let (_taken, without) = taken_port("127.0.0.80");
    let with = SocketAddr::from(([127, 0, 0, 82], without.port()));
    let sites = [without, with].map(|address| site_at(&place, address));
    let server = place.run_with("http3 = true", &sites.concat());
    server.wait_for_error_line(&format!("no HTTP/3 at {without}"));
    assert!(!is_advertised(&place, without));
    assert!(is_advertised(&place, with));
    let mut client = Http3Client::connect(&place, with);
    assert_eq!(client.get("/a").body(), b"a");
    // A reload removes the address, and leaves the other one.
    let server_table = config(&place);
    let (server_table, _) = server_table.split_once("[[site]]").expect("a site");
    let one_site = format!("{server_table}{}", site_at(&place, with));
    assert!(reload(&place, &server, &one_site));
    assert!(is_advertised(&place, with));
    assert_eq!(client.get("/a").body(), b"a");
}

#[test]
fn address_that_is_removed_and_added_accepts_all_connections() {
    let place = Place::new();
    place.folder.file("site/a", "a");
    let (port, address) = taken_port("127.0.0.83");
    drop(port);
    let without = {
        place.certify("a", &["a.example"]);
        let admin = place.path("admin").display().to_string();
        format!(
            "[server]\nuser = \"root\"\nworkers = 2\nadmin = \"{admin}\"\nhttp3 = true\n{}",
            place.site("a", "", "")
        )
    };
    let with = format!("{without}{}", site_at(&place, address));
    let server = TestServer::run(PROGRAM, &place.folder, &with);
    // The old sockets stay open for it.
    let mut first = Http3Client::connect(&place, address);
    assert_eq!(first.get("/a").body(), b"a");
    assert!(reload(&place, &server, &without));
    assert!(reload(&place, &server, &with));
    for _ in 0..16 {
        let mut client = Http3Client::connect(&place, address);
        assert_eq!(client.end, None);
        assert_eq!(client.get("/a").body(), b"a");
        client.close();
    }
}

#[test]
fn http3_that_is_turned_off_and_on_leaves_no_descriptors() {
    let place = Place::new();
    place.folder.file("site/a", "a");
    let server = serve_with(&place, 2, "", "");
    let on = config(&place);
    let off = on.replace("http3 = true", "http3 = false");
    let switch = |number: usize| {
        let config = [&off, &on][number % 2];
        assert!(reload(&place, &server, config));
    };
    let connect = || {
        let mut client = Http3Client::connect(&place, server.addresses[0]);
        assert_eq!(client.get("/a").body(), b"a");
        client
    };
    switch(0);
    switch(1);
    connect().close();
    let before = DescriptorCounts::of(server.pid());
    let mut clients = Vec::new();
    for number in 0..SWITCHES {
        switch(number);
        // Some connections are open when HTTP/3 is turned off.
        if number % 4 == 1 {
            clients.push(connect());
        }
    }
    connect().close();
    // The workers close sockets after the reload.
    wait_until("the end of the sockets", || {
        (DescriptorCounts::of(server.pid()) == before).then_some(())
    });
}

/// The descriptors of a process, and the registrations of its epoll instances.
#[derive(Debug, PartialEq, Eq)]
struct DescriptorCounts {
    open: usize,
    registered: usize,
}

impl DescriptorCounts {
    fn of(process: u32) -> DescriptorCounts {
        let infos = fs::read_dir(format!("/proc/{process}/fdinfo")).expect("it runs");
        let texts: Vec<String> = infos
            .filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
            .collect();
        let registered = texts.iter().flat_map(|text| text.lines());
        DescriptorCounts {
            open: texts.len(),
            registered: registered.filter(|line| line.starts_with("tfd:")).count(),
        }
    }
}
