//! Connections whose numbers are translated, on machines with more than one cable: devices that lie on
//! others, and routers that say that a segment is too long.

use lowroad_testkit::Client;
use lowroad_testkit::net::{CLIENT, DEVICE, End, Namespace, Page, SERVER, Site, WebServer, pair};

use crate::attached::{Attached, get, server_v4, servers};
use crate::skipped;

/// The second is too long for an answer from below.
const LENS: [usize; 2] = [900, 30_000];

fn ip(namespace: &Namespace, words: &str) {
    let words: Vec<&str> = words.split(' ').collect();
    namespace.run("ip", &words).expect("ip does it");
}

/// Up, `hits` and one more below, and then up and down in turn, on one connection.
fn goes_down_and_up(client: &mut Client, site: &Site, hits: usize) {
    let mut ask = |page: &Page| {
        let response = client.get(&page.path, "");
        assert_eq!(Page::of(&page.path, &response.body), *page);
    };
    ask(&site.pages[1]);
    for _ in 0..=hits {
        ask(&site.pages[0]);
    }
    for _ in 0..3 {
        ask(&site.pages[1]);
        ask(&site.pages[0]);
    }
}

#[test]
fn on_a_bridge_and_its_port_it_is_translated_once() {
    let test = "on_a_bridge_and_its_port_it_is_translated_once";
    if skipped(test, &["nginx"]) {
        return;
    }
    let [client, server] = ["client", "server"].map(|name| Namespace::new(name).expect("root"));
    let end = |namespace, addresses| End {
        namespace,
        device: DEVICE,
        addresses,
    };
    pair(&end(&client, Some(CLIENT)), &end(&server, None), 1500).expect("a cable");
    ip(&server, "link add br0 type bridge");
    ip(&server, "link set eth0 master br0");
    ip(&server, &format!("address add {}/24 dev br0", SERVER.0));
    ip(
        &server,
        &format!("address add {}/64 dev br0 nodad", SERVER.1),
    );
    ip(&server, "link set br0 up");
    let site = Site::new(601, &LENS);
    let _nginx = WebServer::nginx(&server, &site, 80, "").expect("nginx");
    let attached = Attached::start(&server, 80, &["--interface", "br0", "--ttl", "60"]);
    for address in servers(80) {
        attached.warm(&client, address, &get(&site.pages[0].path));
        let resumed = attached.count("tcp_resumed");
        let stream = client.enter(|| std::net::TcpStream::connect(address));
        goes_down_and_up(&mut Client::new(stream.expect("a connection")), &site, 5);
        assert_eq!(attached.count("tcp_resumed"), resumed + 3);
    }
}

#[test]
fn a_router_that_finds_a_segment_too_long_is_heard() {
    let test = "a_router_that_finds_a_segment_too_long_is_heard";
    if skipped(test, &["nginx"]) {
        return;
    }
    let [client, router, server] =
        ["client", "router", "server"].map(|name| Namespace::new(name).expect("root"));
    let end = |namespace, device| End {
        namespace,
        device,
        addresses: None,
    };
    pair(&end(&client, DEVICE), &end(&router, "near"), 1500).expect("a cable");
    pair(&end(&server, DEVICE), &end(&router, "far"), 1500).expect("a cable");
    for (namespace, device, networks) in [
        (&client, DEVICE, ["10.78.0.1/24", "fd78::1/64"]),
        (&router, "near", ["10.78.0.254/24", "fd78::fe/64"]),
        (&router, "far", ["10.77.0.254/24", "fd77::fe/64"]),
        (&server, DEVICE, ["10.77.0.2/24", "fd77::2/64"]),
    ] {
        let ipv6 = format!("ipv6/conf/{device}/disable_ipv6");
        namespace.set(&ipv6, "0").expect("IPv6");
        let [v4, v6] = networks;
        ip(namespace, &format!("address add {v4} dev {device}"));
        ip(namespace, &format!("address add {v6} dev {device} nodad"));
    }
    for (namespace, v4, v6) in [
        (&client, "10.78.0.254", "fd78::fe"),
        (&server, "10.77.0.254", "fd77::fe"),
    ] {
        ip(namespace, &format!("route add default via {v4}"));
        ip(namespace, &format!("-6 route add default via {v6}"));
    }
    for family in ["ipv4", "ipv6"] {
        let all = format!("{family}/conf/all/forwarding");
        router.set(&all, "1").expect("a router");
    }
    let site = Site::new(602, &LENS);
    let _nginx = WebServer::nginx(&server, &site, 80, "").expect("nginx");
    let attached = Attached::start(&server, 80, &["--ttl", "60"]);
    let v6 = "[fd77::2]:80".parse().expect("an address");
    for address in [server_v4(80), v6] {
        attached.warm(&client, address, &get(&site.pages[0].path));
        let stream = client.enter(|| std::net::TcpStream::connect(address));
        let mut client = Client::new(stream.expect("a connection"));
        // So that the client's number is none of the socket's.
        goes_down_and_up(&mut client, &site, 150);
        ip(&router, "link set near mtu 1300");
        goes_down_and_up(&mut client, &site, 0);
        ip(&router, "link set near mtu 1500");
    }
}
