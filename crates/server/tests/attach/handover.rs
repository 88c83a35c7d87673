//! Migration of connections from the level to the server: no byte is lost, duplicated or reordered, for any sequence of
//! requests before and after it.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lowroad_testkit::net::servers::{UPLOAD, receipt};
use lowroad_testkit::net::site::content;
use lowroad_testkit::net::{
    LinkMangling, NetNamespace, TestPage, TestPath, TestSite, WebServer, WireCheck,
};
use lowroad_testkit::{TestClient, wait_until};

use crate::attached::{Attached, get, server_v4, servers};
use crate::{setting, skipped};

const LONG: usize = 2_000_000;
const LENS: [usize; 4] = [200, 900, 30_000, LONG];

type Start = fn(&NetNamespace, &TestSite) -> WebServer;

fn nginx(namespace: &NetNamespace, site: &TestSite) -> WebServer {
    WebServer::nginx(namespace, site, 80, "").expect("nginx")
}

fn apache(namespace: &NetNamespace, site: &TestSite) -> WebServer {
    WebServer::apache(namespace, site, 80, "").expect("apache")
}

/// Requests the page twice, and asserts that the level answers.
fn two_hits(client: &mut TestClient, attached: &Attached, page: &TestPage) {
    let before = attached.count("answer_hit");
    for _ in 0..2 {
        let response = client.get(&page.path, "");
        assert_eq!(TestPage::new(&page.path, &response.body), *page);
    }
    assert_eq!(attached.count("answer_hit"), before + 2);
}

/// In front of a server, over IPv4 and IPv6: two hits, then `then` on the same connection, which must migrate exactly
/// once.
fn after_hits(test: &str, program: &str, start: Start, then: impl Fn(&mut TestClient, &TestSite)) {
    if skipped(test, &[program]) {
        return;
    }
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let site = TestSite::new(201, &LENS);
    let _server = start(&path.server, &site);
    let attached = Attached::start(&path.server, 80, &["--ttl", "60"]);
    let page = &site.pages[0];
    for address in servers(80) {
        attached.warm(&path.client, address, &get(&page.path));
        let handed = attached.count("tcp_handed");
        let stream = path.client.enter(|| TcpStream::connect(address));
        let mut client = TestClient::new(stream.expect("a connection"));
        two_hits(&mut client, &attached, page);
        assert_eq!(attached.count("tcp_handed"), handed);
        then(&mut client, &site);
        assert_eq!(attached.count("tcp_handed"), handed + 1);
        // Either the level or the server answers this request; the response must be right.
        let response = client.get(&page.path, "");
        assert_eq!(TestPage::new(&page.path, &response.body), *page);
        assert_eq!(attached.count("tcp_handed"), handed + 1);
    }
}

fn downloads(client: &mut TestClient, site: &TestSite) {
    for page in &site.pages[2..] {
        let response = client.get(&page.path, "");
        assert_eq!(TestPage::new(&page.path, &response.body), *page);
    }
}

fn uploads(client: &mut TestClient, _: &TestSite) {
    let body = content(7, 7, 300_000);
    let head = format!("POST {UPLOAD} HTTP/1.1\r\nHost: test\r\n");
    // The head alone causes the migration; the chunks are already sent to the server.
    client.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n"));
    for chunk in body.chunks(7001) {
        let line = format!("{:x}\r\n", chunk.len());
        client.send([line.as_bytes(), chunk, b"\r\n"].concat());
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.response().text(), receipt(&body));
    client.send(format!("{head}Content-Length: {}\r\n\r\n", body.len()));
    client.send(&body);
    assert_eq!(client.response().text(), receipt(&body));
}

#[test]
fn downloads_after_hits_with_nginx() {
    after_hits("downloads_after_hits_with_nginx", "nginx", nginx, downloads);
}

#[test]
fn downloads_after_hits_with_apache() {
    after_hits(
        "downloads_after_hits_with_apache",
        "apache2",
        apache,
        downloads,
    );
}

#[test]
fn uploads_after_hits_with_nginx() {
    after_hits("uploads_after_hits_with_nginx", "nginx", nginx, uploads);
}

#[test]
fn uploads_after_hits_with_apache() {
    after_hits("uploads_after_hits_with_apache", "apache2", apache, uploads);
}

/// Many connections with mixed requests, and with ports that are reused within seconds.
fn mixtures(test: &str, program: &str, start: Start) {
    if skipped(test, &[program]) {
        return;
    }
    let connections = setting("LOWROAD_WIRE_CONNECTIONS", 2000) / 4;
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let parameters = [
        ("ipv4/tcp_max_tw_buckets", "100"),
        // Few ports, so that they are reused soon.
        ("ipv4/ip_local_port_range", "40000 44000"),
    ];
    for (name, value) in parameters {
        path.client.set(name, value).expect("a parameter");
    }
    let site = TestSite::new(202, &[200, 600, 900, 30_000, 200_000]);
    let _server = start(&path.server, &site);
    let attached = Attached::start(&path.server, 80, &["--ttl", "600"]);
    for address in servers(80) {
        let mut check = WireCheck::new(203, address, &site.pages);
        check.clients = 32;
        check.connections_per_client = connections / 32;
        check.requests_per_connection = 1..5;
        check.hot_percent = 50.0;
        let begin = Instant::now();
        let report = path.client.enter(|| check.run());
        eprintln!(
            "{test}: {address}: {} connections, {} requests, {:?}: {:?}",
            report.connections,
            report.requests,
            begin.elapsed(),
            attached.counts()
        );
        assert!(report.is_clean(), "{report:#?}, {:?}", attached.counts());
    }
    for reason in ["answer_hit", "tcp_handed"] {
        assert!(attached.count(reason) > 100, "{:?}", attached.counts());
    }
}

#[test]
fn migrations_with_mixed_requests_and_nginx() {
    mixtures("migrations_with_mixed_requests_and_nginx", "nginx", nginx);
}

#[test]
fn migrations_with_mixed_requests_and_apache() {
    mixtures(
        "migrations_with_mixed_requests_and_apache",
        "apache2",
        apache,
    );
}

/// A listening socket; the test accepts its connections.
pub fn listener(namespace: &NetNamespace, backlog: i32) -> TcpListener {
    namespace.enter(|| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.expect("a socket");
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 80);
        socket.bind(&any.into()).expect("port 80");
        socket.listen(backlog).expect("a listener");
        socket.into()
    })
}

/// Answers the requests of a connection: GET with a storable response, POST with a receipt, upgraded bytes with an
/// echo.
fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    loop {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        if head.contains("Upgrade:") {
            let switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\n\
                             Connection: Upgrade\r\n\r\n";
            stream.write_all(switching.as_bytes())?;
            let mut buffer = [0; 10_000];
            loop {
                match stream.read(&mut buffer)? {
                    0 => return Ok(()),
                    len => stream.write_all(&buffer[..len])?,
                }
            }
        }
        let len = head.split("Content-Length: ").nth(1);
        let len = len.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
        let mut body = vec![0; len.unwrap_or(0)];
        stream.read_exact(&mut body)?;
        let text = receipt(&body);
        let answer = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        );
        stream.write_all(answer.as_bytes())?;
    }
}

#[test]
fn upgraded_connection_migrates_after_hits() {
    if skipped("upgraded_connection_migrates_after_hits", &[]) {
        return;
    }
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let listener = listener(&path.server, 100);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    let attached = Attached::start(&path.server, 80, &[]);
    attached.warm(&path.client, server_v4(80), &get("/hot"));
    let stream = path.client.enter(|| TcpStream::connect(server_v4(80)));
    let mut client = TestClient::new(stream.expect("a connection"));
    let hot = TestPage::new("/hot", receipt(b"").as_bytes());
    two_hits(&mut client, &attached, &hot);
    let fields = "Connection: Upgrade\r\nUpgrade: echo\r\n";
    let handed = attached.count("tcp_handed");
    assert_eq!(client.get("/socket", fields).status, 101);
    // After an upgrade, bytes that look like a request are data of the other protocol and are echoed.
    for text in [
        "GET /hot HTTP/1.1\r\nHost: test\r\n\r\n",
        "\0\u{1}\u{2} bye",
    ] {
        client.send(text);
        while client.received.len() < text.len() {
            assert!(client.receive_once(), "the echo ended");
        }
        assert_eq!(client.received, text.as_bytes());
        client.received.clear();
    }
    assert_eq!(attached.count("tcp_handed"), handed + 1);
}

#[test]
fn full_accept_queue_loses_no_bytes() {
    if skipped("full_accept_queue_loses_no_bytes", &[]) {
        return;
    }
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let listener = listener(&path.server, 1);
    let attached = Attached::start(&path.server, 80, &[]);
    let connect = || {
        let stream = path.client.enter(|| TcpStream::connect(server_v4(80)));
        TestClient::new(stream.expect("a connection"))
    };
    // Two connections fill the accept queue; the others find it full repeatedly.
    let body = "0123456789";
    let head = format!(
        "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut clients = Vec::new();
    for number in 1..=10 {
        let mut client = connect();
        client.send(&head);
        // Sent one at a time, so that the order in the accept queue is known.
        wait_until("a handover", || {
            (attached.count("tcp_handed") >= number).then_some(())
        });
        clients.push(client);
    }
    // When the queue has room again, the next bytes of a connection must not be taken for the start of a request.
    let (first, _) = listener.accept().expect("a connection");
    for client in &mut clients {
        client.send(body);
        client.finish();
    }
    thread::spawn(move || serve(first));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    for client in &mut clients {
        assert_eq!(client.response().text(), receipt(body.as_bytes()));
    }
    eprintln!("{:?}", attached.counts());
}

#[test]
fn concurrent_misses_with_short_accept_queue() {
    if skipped("concurrent_misses_with_short_accept_queue", &[]) {
        return;
    }
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let listener = listener(&path.server, 1);
    let attached = Attached::start(&path.server, 80, &[]);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    let begin = Instant::now();
    let connect = |number| {
        let mut client = path.client.enter(|| TestClient::connect(server_v4(80)));
        // A client that finds the queue full retries after 0.2 s, 0.6 s, 1.4 s and so on.
        let patience = Some(Duration::from_secs(60));
        client
            .stream()
            .set_read_timeout(patience)
            .expect("a timeout");
        client.send(get(&format!("/{number}")));
        client
    };
    let mut clients: Vec<TestClient> = (0..50).map(connect).collect();
    for client in &mut clients {
        assert_eq!(client.response().text(), receipt(b""));
    }
    eprintln!("{:?}: {:?}", begin.elapsed(), attached.counts());
}
