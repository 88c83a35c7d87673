//! HTTP/3 over real sockets. `lowroad-http` tests the protocol, `lowroad-quic` QUIC, both without sockets.

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use lowroad_quic::CloseReason;
use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{TestServer, wait_until};

use super::http3_client::Http3Client;
use super::support::{Place, noise};

/// Starts a server with HTTP/3 and this number of workers, with a certificate for `a.example`.
fn serve(place: &Place, workers: usize, keys: &str) -> TestServer {
    serve_with(place, workers, keys, "")
}

/// As `serve`, with further tables of the site.
pub fn serve_with(place: &Place, workers: usize, keys: &str, tables: &str) -> TestServer {
    place.certify("a", &["a.example"]);
    let admin = place.path("admin").display().to_string();
    let server = format!(
        "[server]\nuser = \"root\"\nworkers = {workers}\nadmin = \"{admin}\"\nhttp3 = true\n"
    );
    let config = format!("{server}\n{}", place.site("a", keys, tables));
    TestServer::run(super::support::PROGRAM, &place.folder, &config)
}

#[test]
fn http3_serves_stored_and_unstored_files() {
    let place = Place::new();
    let server = serve(&place, 1, "");
    let lens = [0, 1, 1000, 16_384, 100_000, 10 << 20];
    for len in lens {
        place.folder.file(format!("site/{len}"), noise(len));
    }
    let mut client = Http3Client::connect(&place, server.addresses[0]);
    // Requested twice: after the first response a file is stored, unless it is too long.
    for len in lens.into_iter().chain(lens) {
        let response = client.get(&format!("/{len}"));
        assert_eq!(response.status(), "200", "{len}");
        assert_eq!(response.values("content-length"), [len.to_string()]);
        assert!(response.body() == noise(len), "{len}");
    }
    // The stream ends behind the head.
    let head = client.request("HEAD", "/100000", b"");
    let response = client.response(head);
    assert_eq!(response.values("content-length"), ["100000"]);
    assert!(response.body().is_empty());
    assert_eq!(client.get("/none").status(), "404");
    assert_eq!(place.count("h3_connections"), 1);
}

#[test]
fn http3_answers_concurrent_requests() {
    let place = Place::new();
    let server = serve(&place, 2, "");
    place.folder.file("site/long", noise(300_000));
    place.folder.file("site/short", noise(900));
    let mut clients: Vec<Http3Client> = (0..4)
        .map(|_| Http3Client::connect(&place, server.addresses[0]))
        .collect();
    for client in &mut clients {
        let streams: Vec<(u64, usize)> = (0..16)
            .map(|number| match number % 4 {
                0 => (client.request("GET", "/long", b""), 300_000),
                _ => (client.request("GET", "/short", b""), 900),
            })
            .collect();
        for (stream, len) in streams {
            assert!(client.response(stream).body() == noise(len), "{len}");
        }
    }
}

#[test]
fn http3_sends_urgent_responses_first() {
    let place = Place::new();
    let server = serve(&place, 1, "");
    // Together they are longer than the windows of a connection, and each is shorter than that of a stream.
    place.folder.file("site/long", noise(900_000));
    let mut first = Http3Client::connect(&place, server.addresses[0]);
    for _ in 0..2 {
        first.get("/long");
    }
    // QUIC takes few bytes of a new connection before they are sent; bytes that it has taken keep the order of writes.
    let mut client = Http3Client::connect(&place, server.addresses[0]);
    let mut ask = |priority| client.request_with("GET", "/long", &[("priority", priority)], b"");
    let low = [ask("u=6"), ask("u=6")];
    let middle = [ask("u=3"), ask("u=3"), ask("u=3")];
    let high = [ask("u=1"), ask("u=1")];
    client.wait(|client| client.completed.len() == 7);
    // Lost datagrams delay single responses, also behind less urgent ones, so the places are compared in sum.
    let completed = &client.completed;
    let place = |stream: &u64| completed.iter().position(|it| it == stream);
    let places = |streams: &[u64]| streams.iter().filter_map(place).sum::<usize>();
    assert!(places(&high) < places(&low), "{completed:?}");
    for stream in [&high[..], &middle, &low].concat() {
        assert!(client.take(stream).body() == noise(900_000));
    }
}

#[test]
fn http3_limits_concurrent_requests_and_heads() {
    let place = Place::new();
    let server = serve_with(&place, 1, "", "[limits]\nstreams_per_connection_max = 4\n");
    place.folder.file("site/a", "a");
    let mut client = Http3Client::connect(&place, server.addresses[0]);
    for len in [20_000, 40_000, 100_000] {
        let long = "x".repeat(len);
        let stream = client.request_with("GET", "/a", &[("x-long", &long)], b"");
        assert_eq!(client.response(stream).status(), "431", "{len}");
    }
    assert_eq!(client.get("/a").body(), b"a");
    assert_eq!(
        Http3Client::connect(&place, server.addresses[0]).open_all(),
        4
    );
}

#[test]
fn http3_connection_survives_a_new_address_and_cancelled_requests() {
    let place = Place::new();
    // Datagrams of the new address reach any worker, which passes them on.
    let server = serve(&place, 4, "");
    place.folder.file("site/long", noise(20 << 20));
    place.folder.file("site/short", noise(900));
    let mut client = Http3Client::connect(&place, server.addresses[0]);
    // A new address may get three times the bytes that it has sent (RFC 9000 §8), and a check of the path takes 1,200.
    let long_path = format!("/long?{}", "x".repeat(1500));
    for _ in 0..8 {
        client.rebind();
        let long = client.request("GET", &long_path, b"");
        client.wait(|client| client.has_begun(long));
        client.cancel(long);
        assert!(client.get("/short").body() == noise(900));
    }
    assert_eq!(client.end, None);
}

#[test]
fn denied_client_loses_its_connection_and_gets_no_answer() {
    let place = Place::new();
    let server = serve(&place, 2, "");
    place.folder.file("site/a", "a");
    let mut client = Http3Client::connect(&place, server.addresses[0]);
    assert_eq!(client.get("/a").body(), b"a");
    let commands = StatusClient::new(super::support::PROGRAM, place.path("admin"));
    commands.command(&["deny", "add", "127.0.0.0/8"]);
    client.wait(|client| client.end.is_some());
    // The connection is counted, and each datagram after it.
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    wait_until("a dropped datagram", || {
        let sent = socket.send_to(&[0xc0; 1200], server.addresses[0]);
        sent.expect("room");
        (commands.value("connections_denied") > 1).then_some(())
    });
    commands.command(&["deny", "remove", "127.0.0.0/8"]);
    let mut client = Http3Client::connect(&place, server.addresses[0]);
    assert_eq!(client.get("/a").body(), b"a");
}

#[test]
fn http3_handshakes_that_fail_are_counted_and_logged() {
    let place = Place::new();
    let tls = format!("client = \"require\"\nclient_ca = \"{}\"\n", place.ca());
    let server = serve_with(&place, 1, "", &tls);
    let address = server.addresses[0];
    // A client knows only later that the server requires a certificate (RFC 8446 §4.4.2.4).
    let mut anonymous = Http3Client::connect(&place, address);
    anonymous.wait(|client| client.end.is_some());
    server.wait_for_error_line("the peer sent no certificate");
    // This one does not trust the server's authority.
    let stranger = Http3Client::connect(&Place::new(), address);
    assert!(stranger.end.is_some());
    server.wait_for_error_line("the peer sent an alert");
    assert_eq!(place.count("tls.client_certificate"), 1);
    assert_eq!(place.count("tls.alerts"), 1);
    assert_eq!(place.count("quic_handshake_failures"), 2);
    assert_eq!(place.status("http3"), [format!("{address} (UDP)")]);
}

#[test]
fn used_udp_port_leaves_an_address_to_tcp() {
    let place = Place::new();
    place.certify("a", &["a.example"]);
    place.folder.file("site/a", "a");
    // No other test uses this address, so the TCP port with the same number is free.
    let taken = UdpSocket::bind("127.0.0.76:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let site = place
        .site("a", "", "")
        .replace("127.0.0.1:0", &address.to_string());
    let server = place.run_with("http3 = true", &site);
    server.wait_for_error_line(&format!("no HTTP/3 at {address}"));
    let fetch = || place.fetch(address, &["-D-", "https://a.example/a"]);
    assert!(!fetch().to_ascii_lowercase().contains("alt-svc"));
    // A reload tries again.
    drop(taken);
    server.signal("HUP");
    server.wait_for_error_line("lowroad.toml is in force");
    assert!(fetch().to_ascii_lowercase().contains("alt-svc"));
    let mut client = Http3Client::connect(&place, address);
    assert_eq!(client.get("/a").body(), b"a");
}

#[test]
fn http3_connections_end_when_it_is_turned_off_and_on() {
    let place = Place::new();
    let server = serve(&place, 1, "");
    place.folder.file("site/a", "a");
    let mut first = Http3Client::connect(&place, server.addresses[0]);
    assert_eq!(first.get("/a").body(), b"a");
    let config = std::fs::read_to_string(place.path("lowroad.toml")).expect("a file");
    for value in ["false", "true"] {
        let changed = config.replace("http3 = true", &format!("http3 = {value}"));
        place.folder.file("lowroad.toml", changed);
        server.signal("HUP");
        server.wait_for_error_line("lowroad.toml is in force");
    }
    let mut second = Http3Client::connect(&place, server.addresses[0]);
    assert_eq!(second.get("/a").body(), b"a");
    // The first connection belongs to a transport that is gone, and never writes to the second one.
    // Short datagrams get no stateless reset (RFC 9000 §10.3.3).
    let stream = first.request("GET", &format!("/a?{}", "x".repeat(500)), b"");
    first.wait(|client| client.end.is_some() || client.is_complete(stream));
    assert_eq!(first.end, Some(CloseReason::StatelessReset));
    assert_eq!(second.get("/a").body(), b"a");
}

#[test]
fn http3_ends_connections_with_incomplete_heads() {
    let place = Place::new();
    let tables = "[limits]\nheader_timeout = \"1s\"\n";
    let server = serve_with(&place, 1, "", tables);
    place.folder.file("site/a", "a");
    for bytes in [
        // A part of HEADERS.
        &[1, 0x40, 200, 0, 0, 0xd1][..],
        // A field section that needs an entry of the dynamic table, which never comes.
        &[1, 4, 2, 0, 0x80, 0x80],
    ] {
        let mut client = Http3Client::connect(&place, server.addresses[0]);
        assert_eq!(client.get("/a").body(), b"a");
        client.begin(bytes);
        client.wait(|client| client.end.is_some());
        // H3_EXCESSIVE_LOAD
        assert_eq!(client.end, Some(CloseReason::PeerApplication(0x107)));
    }
    assert_eq!(place.count("header_timeouts"), 2);
}

#[test]
fn http3_passes_requests_and_bodies_to_origins() {
    let origin = TestOrigin::start(|request, stream| {
        let text = format!(
            "{} {} {}",
            request.method,
            request.target,
            request.body.len()
        );
        let answered = match request.target.ends_with("/chunked") {
            true => stream.write_all(
                format!(
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
                     {:x}\r\n{text}\r\n0\r\nX-Sum: 7\r\n\r\n",
                    text.len()
                )
                .as_bytes(),
            ),
            false => stream.write_all(
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
                    text.len()
                )
                .as_bytes(),
            ),
        };
        answered.is_ok()
    });
    let place = Place::new();
    let route = format!(
        "[[site.route]]\npattern = \"/app/*\"\norigin = \"{}\"\n",
        origin.url()
    );
    let server = serve_with(&place, 2, "", &route);
    let mut client = Http3Client::connect(&place, server.addresses[0]);
    assert_eq!(client.get("/app/a").body(), b"GET /app/a 0");
    for len in [1, 100_000, 1_000_000] {
        let stream = client.request("POST", "/app/b", &noise(len));
        let response = client.response(stream);
        let expected = format!("POST /app/b {len}");
        assert_eq!(String::from_utf8_lossy(&response.body()), expected);
    }
    let stream = client.request("POST", "/app/chunked", b"abc");
    let response = client.response(stream);
    assert_eq!(response.body(), b"POST /app/chunked 3");
    assert_eq!(response.values("x-sum"), ["7"]);
    // The site has no handler for the body, which is not sent completely.
    let stream = client.request("POST", "/none", &noise(1_000_000));
    assert_eq!(client.response(stream).status(), "405");
    assert_eq!(client.get("/app/c").body(), b"GET /app/c 0");
}

#[test]
fn http3_early_response_reaches_a_client_that_ends_its_upload() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let origin = listener.local_addr().expect("an address");
    let len = 8 << 20;
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut buffer = [0; 4096];
        // The head of a short request arrives at once.
        assert!(stream.read(&mut buffer).expect("a head") > 0);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n");
        let sent = stream.write_all(&[head.as_bytes(), &noise(len)].concat());
        while sent.is_ok() && stream.read(&mut buffer).is_ok_and(|len| len > 0) {}
    });
    let place = Place::new();
    let route = format!(
        "[[site.route]]\npattern = \"/app/*\"\norigin = \"http://{origin}\"\nrequest_buffering = false\n"
    );
    let server = serve_with(&place, 1, "", &route);
    let mut client = Http3Client::connect(&place, server.addresses[0]);
    let stream = client.begin_upload("/app/a", 1_000_000, b"abc");
    client.wait(|client| client.has_begun(stream));
    client.end_upload(stream);
    let response = client.response(stream);
    assert_eq!(response.status(), "200");
    assert!(response.body() == noise(len));
}

#[test]
fn http3_responses_are_those_of_http2() {
    let place = Place::new();
    let server = serve(&place, 1, "");
    place.folder.file("site/a.html", noise(3000));
    place.folder.file("site/folder/index.html", noise(300));
    let mut client = Http3Client::connect(&place, server.addresses[0]);
    for path in [
        "/a.html",
        "/a.html",
        "/folder",
        "/folder/",
        "/none",
        "/%2e%2e/x",
        "/a.html?b",
    ] {
        let url = format!("https://a.example{path}");
        let http2 = place.fetch(
            server.addresses[0],
            &["--http2", "--path-as-is", "-D-", "-o/dev/null", &url],
        );
        let (status, fields) = http2.split_once("\r\n").expect("a head");
        let mut fields: Vec<String> = fields.lines().map(str::to_ascii_lowercase).collect();
        let response = client.get(path);
        assert_eq!(
            status.split(' ').nth(1),
            Some(&*response.status()),
            "{path}"
        );
        let mut own: Vec<String> = response
            .fields()
            .iter()
            .filter(|(name, _)| name != ":status")
            .map(|(name, value)| format!("{name}: {value}").to_ascii_lowercase())
            .collect();
        // Only the date may differ, and the order of the fields.
        for list in [&mut fields, &mut own] {
            list.retain(|line| !line.is_empty() && !line.starts_with("date: "));
            list.sort();
        }
        assert_eq!(own, fields, "{path}");
    }
}

#[test]
fn http3_connections_end_with_the_server_after_their_requests() {
    let (begun_sender, begun) = channel();
    let (end_sender, end) = channel::<()>();
    let end = Mutex::new(end);
    let origin = TestOrigin::start(move |_, stream| {
        _ = begun_sender.send(());
        _ = end.lock().expect("a lock").recv();
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlast";
        stream.write_all(response).is_ok()
    });
    let place = Place::new();
    let route = format!(
        "[[site.route]]\npattern = \"/app/*\"\norigin = \"{}\"\n",
        origin.url()
    );
    let mut server = serve_with(&place, 1, "", &route);
    let mut client = Http3Client::connect(&place, server.addresses[0]);
    let stream = client.request("GET", "/app/a", b"");
    // The drain begins while the origin still works.
    client.wait(|_| begun.try_recv().is_ok());
    server.signal("TERM");
    // New connections are refused, once the server has handled the signal.
    while Http3Client::connect(&place, server.addresses[0])
        .end
        .is_none()
    {}
    end_sender.send(()).expect("the origin");
    client.wait(|client| client.is_complete(stream));
    assert_eq!(client.take(stream).body(), b"last");
    client.wait(|client| client.end.is_some());
    // H3_NO_ERROR
    assert_eq!(client.end, Some(CloseReason::PeerApplication(0x100)));
    assert!(server.wait_for_end().success());
}

#[test]
fn http3_announces_the_end_of_an_idle_connection_before_it_ends() {
    let place = Place::new();
    place.folder.file("site/short", noise(900));
    let server = serve(&place, 1, "");
    let mut client = Http3Client::connect(&place, server.addresses[0]);
    let first = client.request("GET", "/short", b"");
    client.response(first);
    server.signal("TERM");
    // The first GOAWAY only announces the end; the final one has the next stream.
    client.wait(|client| client.goaway() == Some(first + 4));
    assert_eq!(client.end, None);
    let late = client.request("GET", "/short", b"");
    client.wait(|client| client.is_unprocessed(late));
    client.wait(|client| client.end.is_some());
}
