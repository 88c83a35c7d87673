//! Clients with segments that carry IP options or extension headers, or arrive in fragments, on connections of the
//! level. The responses are the same as from Linux.

use std::net::SocketAddr;

use lowroad_testkit::net::{NetNamespace, TestSite, WebServer};

use crate::attached::{Attached, get, servers};
use crate::cables::{Cable, Routed, ip};
use crate::skipped;

/// The second length is too long for the level.
const LENS: [usize; 2] = [900, 40_000];

/// A client that requests paths on one connection, changes the socket between two requests, and compares the lengths of
/// all bodies. Arguments: address, port, number of the request before which the socket is changed, the change, length
/// of an additional field in all later requests, and paths with their lengths.
const CLIENT: &str = r#"
import socket, sys
address, port, change_at, change, filler_len, *pages = sys.argv[1:]
stream = socket.create_connection((address, int(port)), timeout=60)

def ask(path, body_len, filler):
    stream.sendall(f"GET {path} HTTP/1.1\r\nHost: test\r\nX-Filler: {filler}\r\n\r\n".encode())
    received = b""
    while b"\r\n\r\n" not in received or len(received.split(b"\r\n\r\n", 1)[1]) < body_len:
        more = stream.recv(65536)
        assert more, "the connection ended"
        received += more
    assert received.startswith(b"HTTP/1.1 200 "), received[:100]
    assert len(received.split(b"\r\n\r\n", 1)[1]) == body_len, len(received)

for at, page in enumerate(pages):
    if at == int(change_at) and change == "options" and ":" in address:
        stream.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_DSTOPTS, bytes([0, 0, 1, 4, 0, 0, 0, 0]))
    elif at == int(change_at) and change == "options":
        stream.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, bytes([1, 1, 1, 0]))
    path, body_len = page.split("=")
    ask(path, int(body_len), "x" * int(filler_len) if at >= int(change_at) else "x")
print("all are right")
"#;

/// The change that the client makes between two requests.
struct SocketChange {
    /// Number of the request before which the client changes the socket.
    at: usize,
    /// The change: `options`, or a name that the client ignores.
    what: &'static str,
    /// Length of an additional field in all later requests.
    filler_len: usize,
}

/// Runs the client.
fn run(client: &NetNamespace, address: SocketAddr, change: &SocketChange, pages: &[String]) {
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let [at, filler_len] = [change.at, change.filler_len].map(|number| number.to_string());
    let mut arguments = vec!["-c", CLIENT, &ip, &port, &at, change.what, &filler_len];
    arguments.extend(pages.iter().map(String::as_str));
    let said = client.run("python3", &arguments);
    let said = said.unwrap_or_else(|error| panic!("{address}: {error}"));
    assert!(said.contains("all are right"), "{said}");
}

/// Formats pages as `PATH=LENGTH`.
fn pages(site: &TestSite, numbers: &[usize]) -> Vec<String> {
    let named = |number: &usize| format!("{}={}", site.pages[*number].path, LENS[*number]);
    numbers.iter().map(named).collect()
}

/// Repeats the client's request for the first page, so that the level stores the response.
fn warm(attached: &Attached, client: &NetNamespace, address: SocketAddr, site: &TestSite) {
    let request = get(&site.pages[0].path);
    let request = request.replace("Host: test\r\n", "Host: test\r\nX-Filler: x\r\n");
    attached.warm(client, address, &request);
}

#[test]
fn segments_with_ip_options_are_answered() {
    let test = "segments_with_ip_options_are_answered";
    if skipped(test, &["nginx", "python3"]) {
        return;
    }
    let cable = Cable::new();
    let site = TestSite::new(801, &LENS);
    let _nginx = WebServer::nginx(&cable.server, &site, 80, "").expect("nginx");
    let attached = Attached::start(&cable.server, 80, &["--ttl", "60"]);
    for address in servers(80) {
        warm(&attached, &cable.client, address, &site);
        let (hits, taken_off) = (attached.count("answer_hit"), attached.count("drop_wrapped"));
        // The level, the server, and the level again answer; at the end the kernel has the connection, with translated
        // sequence numbers.
        let order = pages(&site, &[0, 0, 0, 1, 0, 0, 1, 1, 1, 0]);
        for at in [1, 4, 8] {
            let (what, filler_len) = ("options", 1);
            let change = SocketChange {
                at,
                what,
                filler_len,
            };
            run(&cable.client, address, &change, &order);
        }
        assert!(attached.count("answer_hit") >= hits + 9, "{address}");
        assert!(attached.count("drop_wrapped") > taken_off, "{address}");
    }
}

#[test]
fn fragment_migrates_its_connection() {
    let test = "fragment_migrates_its_connection";
    if skipped(test, &["nginx", "python3"]) {
        return;
    }
    let routed = Routed::new();
    let site = TestSite::new(802, &LENS);
    let _nginx = WebServer::nginx(&routed.server, &site, 80, "").expect("nginx");
    let attached = Attached::start(&routed.server, 80, &["--ttl", "60"]);
    let [address, _] = servers(80);
    warm(&attached, &routed.client, address, &site);
    // The segments fit the client's link, but the next link may need fragments.
    routed
        .client
        .set("ipv4/ip_no_pmtu_disc", "1")
        .expect("a parameter");
    ip(
        &routed.router,
        "route replace 10.77.0.0/24 dev far mtu lock 600",
    );
    // First on a connection of the level, then on one that the kernel has, with translated sequence numbers.
    for (at, order) in [(1, [0, 0, 1, 0, 1, 0]), (4, [0, 1, 0, 1, 1, 0])] {
        let (what, filler_len) = ("nothing", 1000);
        let change = SocketChange {
            at,
            what,
            filler_len,
        };
        let dropped = attached.count("drop_fragment");
        run(&routed.client, address, &change, &pages(&site, &order));
        // The level drops at most one segment of a connection.
        assert!(attached.count("drop_fragment") <= dropped + 1, "{at}");
    }
    assert!(
        attached.count("drop_fragment") > 0,
        "{:?}",
        attached.counts()
    );
    assert!(attached.count("tcp_handed") > 0, "{:?}", attached.counts());
}
