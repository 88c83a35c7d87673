//! Reclaim: migrated connections return to the level and migrate again, in any order. Each response is right, and all
//! sockets of the server are closed. Tested with nginx and Apache.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use lowroad_softirq::layout::SETTING_KEEP_TIME_WAIT;
use lowroad_testkit::net::servers::{UPLOAD, receipt};
use lowroad_testkit::net::site::content;
use lowroad_testkit::net::{
    LinkMangling, ManglingRule, NetNamespace, TestPage, TestPath, TestSite, WebServer, WireCheck,
};
use lowroad_testkit::{TestClient, wait_until};

use crate::attached::{Attached, get, server_v4, servers};
use crate::{setting, skipped};

/// Lengths of two hot pages, and of two pages that are too long for the level.
const LENS: [usize; 4] = [200, 900, 30_000, 2_000_000];

struct Net {
    path: TestPath,
    site: TestSite,
    _nginx: WebServer,
}

fn network(directives: &str) -> Net {
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let site = TestSite::new(301, &LENS);
    let nginx = WebServer::nginx(&path.server, &site, 80, directives).expect("nginx");
    Net {
        path,
        site,
        _nginx: nginx,
    }
}

impl Net {
    fn attach(&self) -> Attached<'_> {
        let attached = Attached::start(&self.path.server, 80, &["--ttl", "600"]);
        for page in &self.site.pages[..2] {
            for server in servers(80) {
                attached.warm(&self.path.client, server, &get(&page.path));
            }
        }
        attached
    }

    fn connect(&self, server: SocketAddr) -> TestClient {
        let stream = self.path.client.enter(|| TcpStream::connect(server));
        TestClient::new(stream.expect("a connection"))
    }

    fn ask(&self, client: &mut TestClient, page: usize) {
        let page = &self.site.pages[page];
        let response = client.get(&page.path, "");
        assert_eq!(TestPage::new(&page.path, &response.body), *page);
    }
}

/// The states of the server's sockets for this client. The kernel's tables may list a socket twice while they change,
/// so equal address pairs are counted once.
pub fn sockets(namespace: &NetNamespace, client: &TestClient) -> Vec<u8> {
    let port = client.stream().local_addr().expect("an address").port();
    let port = format!(":{port:04X}");
    let tables = ["tcp", "tcp6"].map(|family| format!("/proc/thread-self/net/{family}"));
    let read = || tables.map(|table| fs::read_to_string(table).unwrap_or_default());
    let state = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_its = words.get(1)?.ends_with(":0050") && words.get(2)?.ends_with(&port);
        let state = || u8::from_str_radix(words[3], 16).expect("a state");
        is_its.then(|| ((words[1].to_owned(), words[2].to_owned()), state()))
    };
    let tables = namespace.enter(read);
    let lines = tables.iter().flat_map(|table| table.lines());
    let by_addresses: BTreeMap<_, u8> = lines.filter_map(state).collect();
    by_addresses.into_values().collect()
}

fn since(attached: &Attached, begin: [u64; 4]) -> [u64; 4] {
    let mut now = ["answer_hit", "tcp_handed", "tcp_taken_back", "tcp_resumed"]
        .map(|reason| attached.count(reason));
    now.iter_mut()
        .zip(begin)
        .for_each(|(now, begin)| *now -= begin);
    now
}

#[test]
fn connection_is_reclaimed_and_migrated_repeatedly() {
    if skipped(
        "connection_is_reclaimed_and_migrated_repeatedly",
        &["nginx"],
    ) {
        return;
    }
    let net = network("");
    let attached = net.attach();
    for server in servers(80) {
        let begin = since(&attached, [0; 4]);
        let mut client = net.connect(server);
        net.ask(&mut client, 0);
        assert_eq!(since(&attached, begin), [1, 0, 0, 0]);
        let mut hits = 1;
        for round in 1..=5 {
            net.ask(&mut client, 2);
            for page in 0..6 {
                net.ask(&mut client, page % 2);
            }
            hits += 6;
            // The connection migrates to the same socket each time.
            assert_eq!(since(&attached, begin), [hits, 1, round, round - 1]);
            assert_eq!(sockets(&net.path.server, &client).len(), 1);
        }
        client.finish();
        assert!(client.wait_for_close(), "a clean end");
    }
    eprintln!("{:?}", attached.counts());
}

/// Requests hot pages. Returns whether the connection was reclaimed, after the reclaim is complete.
fn is_reclaimed(net: &Net, attached: &Attached, client: &mut TestClient) -> bool {
    let before = attached.count("tcp_taken_back");
    for page in 0..16 {
        net.ask(client, page % 2);
    }
    attached.count("tcp_taken_back") > before
}

fn up(client: &mut TestClient, request: &str) -> u16 {
    client.send(request);
    match request.starts_with("HEAD") {
        true => client.response_to_head().status,
        false => client.response().status,
    }
}

#[test]
fn connection_is_reclaimed_after_delimited_responses() {
    if skipped(
        "connection_is_reclaimed_after_delimited_responses",
        &["nginx"],
    ) {
        return;
    }
    let net = network("location /empty { return 204; } location /moved { return 301 /x; }");
    let attached = net.attach();
    let large = &net.site.pages[2].path;
    let one = |method: &str, target: &str, fields: &str| {
        format!("{method} {target} HTTP/1.1\r\nHost: test\r\n{fields}\r\n")
    };
    let mut client = net.connect(server_v4(80));
    let etag = client.get(large, "").field("etag").map(str::to_owned);
    let condition = format!("If-None-Match: {}\r\n", etag.expect("an entity tag"));
    let cases = [
        (200, one("HEAD", large, "")),
        (304, one("GET", large, &condition)),
        (206, one("GET", large, "Range: bytes=0-9\r\n")),
        (
            200,
            one("GET", large, "Cookie: a=b\r\nConnection: keep-alive\r\n"),
        ),
        (
            200,
            one("GET", large, "Cache-Control: no-cache\r\nX-Other: 1\r\n"),
        ),
        (404, one("GET", "/missing?1", "Cookie: a=b\r\n")),
        (204, one("GET", "/empty?1", "Cookie: a=b\r\n")),
        (301, one("GET", "/moved?1", "Cookie: a=b\r\n")),
    ];
    assert!(is_reclaimed(&net, &attached, &mut client));
    for (status, request) in &cases {
        assert_eq!(up(&mut client, request), *status, "{request}");
        assert!(is_reclaimed(&net, &attached, &mut client), "{request}");
    }
    // Sent one after another without a hit in between.
    for (status, request) in &cases {
        assert_eq!(up(&mut client, request), *status, "{request}");
    }
    assert!(is_reclaimed(&net, &attached, &mut client));
    for page in [3, 2, 3] {
        net.ask(&mut client, page);
    }
    assert!(is_reclaimed(&net, &attached, &mut client));
    for len in [0, 3, 1400, 3000, 60_000] {
        let body = content(8, 8, len);
        client.send(format!(
            "POST {UPLOAD} HTTP/1.1\r\nHost: test\r\nContent-Length: {len}\r\n\r\n"
        ));
        client.send(&body);
        assert_eq!(client.response().text(), receipt(&body));
        assert!(is_reclaimed(&net, &attached, &mut client), "{len}");
    }
}

#[test]
fn connection_is_not_reclaimed_after_unparsed_responses() {
    if skipped(
        "connection_is_not_reclaimed_after_unparsed_responses",
        &["nginx"],
    ) {
        return;
    }
    let net = network("");
    let attached = net.attach();
    let large = &net.site.pages[2].path;
    let body = String::from_utf8(
        content(7, 7, 70_000)
            .iter()
            .map(|b| b'a' + b % 26)
            .collect(),
    );
    let body = body.expect("letters");
    let fields = [
        "Authorization: Basic YTpi\r\n",
        "Upgrade: h2c\r\nConnection: Upgrade\r\n",
        "Expect: 100-continue\r\n",
        "Content-Length: 00000000000\r\n",
        "Proxy-Connection: keep-alive\r\n",
        "Cookie: a=b\r\nConnection: TE\r\nTE: trailers\r\n",
    ];
    let mut requests: Vec<String> = fields
        .iter()
        .map(|fields| format!("GET {large} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"))
        .collect();
    let post = format!("POST {UPLOAD} HTTP/1.1\r\nHost: test\r\n");
    let len = body.len();
    requests.push(format!("{post}Content-Length: {len}\r\n\r\n{body}"));
    requests.push(format!(
        "{post}Transfer-Encoding: chunked\r\n\r\n{len:x}\r\n{body}\r\n0\r\n\r\n"
    ));
    for request in &requests {
        for is_first in [true, false] {
            let mut client = net.connect(server_v4(80));
            net.ask(&mut client, 0);
            if !is_first {
                net.ask(&mut client, 2);
            }
            client.send(request);
            let mut response = client.response();
            if response.status == 100 {
                response = client.response();
            }
            if request.starts_with("POST") {
                assert_eq!(response.text(), receipt(body.as_bytes()));
            }
            assert!(!is_reclaimed(&net, &attached, &mut client), "{request}");
            assert!(!is_reclaimed(&net, &attached, &mut client), "{request}");
        }
    }
}

#[test]
fn chunked_responses_are_tracked() {
    if skipped("chunked_responses_are_tracked", &["nginx"]) {
        return;
    }
    // The length of a page with server-side includes is not known in advance, so the response is chunked.
    let net = network("location = /2-30000.bin { ssi on; ssi_types *; }");
    let attached = net.attach();
    let large = &net.site.pages[2];
    let mut client = net.connect(server_v4(80));
    let ask = |client: &mut TestClient| {
        client.send(get(&format!(
            "{}?{}",
            large.path,
            attached.count("tcp_handed")
        )));
        while !client.received.ends_with(b"\r\n0\r\n\r\n") {
            assert!(client.receive_once(), "the end of the chunks");
        }
        let text = String::from_utf8_lossy(&client.received).into_owned();
        assert!(
            text.contains("\r\nTransfer-Encoding: chunked\r\n"),
            "{text}"
        );
        assert!(client.received.len() > LENS[2]);
        client.received.clear();
    };
    for _ in 0..3 {
        ask(&mut client);
        ask(&mut client);
        assert!(is_reclaimed(&net, &attached, &mut client));
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    if skipped("pipelined_requests_are_answered_in_order", &["nginx"]) {
        return;
    }
    let net = network("");
    let attached = net.attach();
    let orders: [&[usize]; 6] = [
        &[0, 2, 0, 1, 0, 1, 0, 1],
        &[2, 0, 1, 0, 1, 0, 1],
        &[2, 2, 0, 0, 1, 0, 1, 0, 1, 0, 1],
        &[0, 1, 0, 2, 1, 0, 1, 0],
        &[3, 0, 0, 1, 1, 0, 0],
        &[2, 0, 0, 0, 2, 0, 0],
    ];
    for (at, order) in orders.iter().enumerate() {
        let mut client = net.connect(servers(80)[at % 2]);
        for is_ahead in [false, true, false] {
            for page in *order {
                match is_ahead {
                    true => client.send(get(&net.site.pages[*page].path)),
                    false => net.ask(&mut client, *page),
                }
            }
            for page in order.iter().filter(|_| is_ahead) {
                let page = &net.site.pages[*page];
                let response = client.response();
                assert_eq!(TestPage::new(&page.path, &response.body), *page);
            }
        }
    }
    eprintln!("{:?}", attached.counts());
    assert!(attached.count("tcp_taken_back") > 0);
}

#[test]
fn close_by_server_is_forwarded() {
    if skipped("close_by_server_is_forwarded", &["nginx"]) {
        return;
    }
    let net = network("keepalive_timeout 1;");
    let attached = net.attach();
    let mut client = net.connect(server_v4(80));
    net.ask(&mut client, 0);
    net.ask(&mut client, 2);
    assert!(client.wait_for_close(), "a clean end");
    // A reclaimed connection does not notice the close.
    let mut client = net.connect(server_v4(80));
    net.ask(&mut client, 2);
    assert!(is_reclaimed(&net, &attached, &mut client));
    wait_until("its socket's end", || {
        sockets(&net.path.server, &client).is_empty().then_some(())
    });
    net.ask(&mut client, 0);
    net.ask(&mut client, 2);
    assert!(client.wait_for_close(), "a clean end");
}

#[test]
fn connections_are_not_reclaimed_if_time_wait_is_kept() {
    if skipped(
        "connections_are_not_reclaimed_if_time_wait_is_kept",
        &["nginx"],
    ) {
        return;
    }
    let net = network("");
    let attached = net.attach();
    let [mut early, mut late] = [0, 1].map(|_| net.connect(server_v4(80)));
    net.ask(&mut early, 2);
    net.path
        .server
        .set("ipv4/tcp_rfc1337", "1")
        .expect("a setting");
    wait_until("the daemon", || {
        (attached.level.control().settings & SETTING_KEEP_TIME_WAIT != 0).then_some(())
    });
    assert!(!is_reclaimed(&net, &attached, &mut early));
    net.ask(&mut late, 2);
    assert!(!is_reclaimed(&net, &attached, &mut late));
}

/// Sends mixed requests on long connections over a link, and verifies each byte.
fn mixtures(test: &str, program: &str, manglings: &LinkMangling) {
    if skipped(test, &[program]) {
        return;
    }
    let path = TestPath::new(manglings, 1500).expect("a path");
    let site = TestSite::new(302, &[200, 600, 900, 30_000, 200_000]);
    let _server = match program {
        "nginx" => WebServer::nginx(&path.server, &site, 80, ""),
        _ => WebServer::apache(&path.server, &site, 80, ""),
    };
    let attached = Attached::start(&path.server, 80, &["--ttl", "600"]);
    for address in servers(80) {
        let mut check = WireCheck::new(303, address, &site.pages);
        check.clients = 16;
        check.connections_per_client = setting("LOWROAD_WIRE_CONNECTIONS", 64) / 32;
        check.requests_per_connection = 1..80;
        check.hot_turn_percent = 95.0;
        check.deadline = Duration::from_secs(60);
        let report = path.client.enter(|| check.run());
        eprintln!("{test}: {address}: {:?}", attached.counts());
        assert!(report.is_clean(), "{report:#?}, {:?}", attached.counts());
    }
    assert!(
        attached.count("tcp_taken_back") > 4,
        "{:?}",
        attached.counts()
    );
}

#[test]
fn mixed_requests_with_nginx() {
    mixtures(
        "mixed_requests_with_nginx",
        "nginx",
        &LinkMangling::default(),
    );
}

#[test]
fn mixed_requests_with_apache() {
    mixtures(
        "mixed_requests_with_apache",
        "apache2",
        &LinkMangling::default(),
    );
}

#[test]
fn mixed_requests_over_lossy_link() {
    let mangling = ManglingRule {
        loss_percent: 1.0,
        reorder_percent: 2.0,
        duplication_percent: 2.0,
        ..ManglingRule::default()
    };
    mixtures(
        "mixed_requests_over_lossy_link",
        "nginx",
        &LinkMangling::both(304, mangling),
    );
}
