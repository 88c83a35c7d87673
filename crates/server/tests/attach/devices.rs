//! Connections with translated sequence numbers on machines with several links: stacked devices, and routers that
//! report that a packet is too big.

use lowroad_testkit::TestClient;
use lowroad_testkit::net::{
    CLIENT, CableEnd, DEVICE, NetNamespace, SERVER, TestPage, TestSite, WebServer, pair,
};

use crate::attached::{Attached, get, servers};
use crate::cables::{Routed, ip};
use crate::skipped;

/// The second length is too long for the level.
const LENS: [usize; 2] = [900, 30_000];

/// Migrates the connection, requests `hits` and one more response from the level, and then alternates between level and
/// server.
fn reclaim_and_migrate(client: &mut TestClient, site: &TestSite, hits: usize) {
    let mut ask = |page: &TestPage| {
        let response = client.get(&page.path, "");
        assert_eq!(TestPage::new(&page.path, &response.body), *page);
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
fn connection_on_bridge_and_port_is_translated_once() {
    let test = "connection_on_bridge_and_port_is_translated_once";
    if skipped(test, &["nginx"]) {
        return;
    }
    let [client, server] = ["client", "server"].map(|name| NetNamespace::new(name).expect("root"));
    let end = |namespace, addresses| CableEnd {
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
    let site = TestSite::new(601, &LENS);
    let _nginx = WebServer::nginx(&server, &site, 80, "").expect("nginx");
    let attached = Attached::start(&server, 80, &["--interface", "br0", "--ttl", "60"]);
    for address in servers(80) {
        attached.warm(&client, address, &get(&site.pages[0].path));
        let resumed = attached.count("tcp_resumed");
        let stream = client.enter(|| std::net::TcpStream::connect(address));
        reclaim_and_migrate(
            &mut TestClient::new(stream.expect("a connection")),
            &site,
            5,
        );
        assert_eq!(attached.count("tcp_resumed"), resumed + 3);
    }
}

#[test]
fn packet_too_big_from_router_reduces_segment_size() {
    let test = "packet_too_big_from_router_reduces_segment_size";
    if skipped(test, &["nginx"]) {
        return;
    }
    let Routed {
        client,
        router,
        server,
    } = Routed::new();
    let site = TestSite::new(602, &LENS);
    let _nginx = WebServer::nginx(&server, &site, 80, "").expect("nginx");
    let attached = Attached::start(&server, 80, &["--ttl", "60"]);
    for address in servers(80) {
        attached.warm(&client, address, &get(&site.pages[0].path));
        let stream = client.enter(|| std::net::TcpStream::connect(address));
        let mut client = TestClient::new(stream.expect("a connection"));
        // After this many hits, the client's sequence numbers differ from those of the socket.
        reclaim_and_migrate(&mut client, &site, 150);
        ip(&router, "link set near mtu 1300");
        reclaim_and_migrate(&mut client, &site, 0);
        ip(&router, "link set near mtu 1500");
    }
}
