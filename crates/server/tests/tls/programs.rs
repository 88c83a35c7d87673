//! Programs and origins over TLS and HTTP/2: bodies in both directions, streams, and uncacheable responses.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;

use lowroad_testkit::TestServer;
use lowroad_testkit::origin::TestOrigin;

use super::support::{Place, VERSIONS, noise, run};

const ECHO: &str = "#!/bin/sh\nprintf 'Content-Type: application/octet-stream\\n\\n'\ncat\n";
const EVENTS: &str = "#!/bin/sh\nprintf 'Content-Type: text/event-stream\\n\\n'\nfor i in 1 2 3; do printf 'data: %s\\n\\n' $i; sleep 0.05; done\n";
const LONG: &str =
    "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nhead -c 3000000 /dev/zero\n";

/// Options of curl: over TLS with both HTTP versions, and in clear text with HTTP/2.
pub const WAYS: [(&str, bool); 3] = [
    (VERSIONS[0], true),
    (VERSIONS[1], true),
    ("--http2-prior-knowledge", false),
];

/// A server with programs, an origin, files, and listeners with and without TLS.
pub fn server(place: &Place, origin: &TestOrigin) -> TestServer {
    place.certify("a", &["a.example"]);
    for (name, script) in [("echo", ECHO), ("events", EVENTS), ("long", LONG)] {
        let script = place.folder.file(format!("cgi/{name}"), script);
        std::fs::set_permissions(script, PermissionsExt::from_mode(0o755)).expect("a script");
    }
    let limits = "[limits]\nbody_len_max = \"64M\"\n";
    let routes = format!(
        "[[site.route]]\npattern = \"/cgi/**\"\ncgi = \"cgi\"\n\
         [[site.route]]\npattern = \"/origin/**\"\norigin = \"{}\"\n",
        origin.url()
    );
    let site = place.site("a", "listen = \"127.0.0.2:0\"", "");
    place.run_with(limits, &format!("{site}{routes}"))
}

/// The address and URL for one of the [`WAYS`].
pub fn at(server: &TestServer, over_tls: bool, path: &str) -> (SocketAddr, String) {
    let (address, scheme) = match over_tls {
        true => (server.addresses[1], "https"),
        false => (server.addresses[0], "http"),
    };
    (address, format!("{scheme}://a.example{path}"))
}

/// An origin that returns the length of the request body.
fn counting() -> TestOrigin {
    TestOrigin::with_response(|asked| {
        let text = format!("{} {}", asked.method, asked.body.len());
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        )
    })
}

#[test]
fn bodies_are_echoed_by_programs_over_tls() {
    let place = Place::new();
    let origin = counting();
    let server = server(&place, &origin);
    for len in [0, 1, 16_384, 100_000, 5 << 20] {
        let body = noise(len);
        place.folder.file("body", &body);
        let data = format!("@{}", place.path("body").display());
        for (way, over_tls) in WAYS {
            let (to, url) = at(&server, over_tls, "/cgi/echo");
            let got = place.curl(to, &[way, "--data-binary", &data, &url]);
            assert_eq!(got.code, Some(0), "{way} {len}: {}", got.errors);
            assert!(got.out == body, "{way} {len}: {}", got.out.len());
            let (to, url) = at(&server, over_tls, "/origin/x");
            let got = place.fetch(to, &[way, "--data-binary", &data, &url]);
            assert_eq!(got, format!("POST {len}"), "{way}");
            // Of unknown length: chunked in HTTP/1.1, DATA frames in HTTP/2.
            let chunked = &[way, "-H", "Transfer-Encoding: chunked", "-T", "-", &url];
            if over_tls && way == VERSIONS[0] && len > 0 {
                let got = place.curl(to, chunked);
                assert_eq!(got.text(), "PUT 0", "{}", got.errors);
            }
        }
    }
}

#[test]
fn streamed_responses_are_forwarded() {
    let place = Place::new();
    let origin = counting();
    let server = server(&place, &origin);
    for (way, over_tls) in WAYS {
        let (to, url) = at(&server, over_tls, "/cgi/events");
        let got = place.fetch(to, &[way, "-N", &url]);
        assert_eq!(got, "data: 1\n\ndata: 2\n\ndata: 3\n\n", "{way}");
        let (to, url) = at(&server, over_tls, "/cgi/long");
        let got = place.curl(to, &[way, &url]);
        assert_eq!((got.code, got.out.len()), (Some(0), 3_000_000), "{way}");
        let head = place.fetch(to, &[way, "-I", &url]);
        assert!(head.contains(" 200"), "{way}: {head}");
    }
}

/// A client that upgrades a connection over TLS, sends much data and receives the echo.
const TALK: &str = r#"
import socket, ssl, sys, threading
context = ssl.create_default_context(cafile=sys.argv[1])
raw = socket.create_connection((sys.argv[2], int(sys.argv[3])))
with context.wrap_socket(raw, server_hostname="a.example") as tls:
    tls.sendall(b"GET /origin/chat HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
    got = b""
    while b"hello" not in got:
        got += tls.recv(65536)
    assert got.startswith(b"HTTP/1.1 101 "), got
    much = bytes(range(256)) * 4096
    sender = threading.Thread(target=lambda: tls.sendall(much))
    sender.start()
    heard = b""
    while len(heard) < len(much):
        part = tls.recv(65536)
        assert part, len(heard)
        heard += part
    sender.join()
    assert heard == much
print("done")
"#;

#[test]
fn upgraded_connection_is_encrypted() {
    let place = Place::new();
    let origin = TestOrigin::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nhello");
        let mut piece = [0; 4096];
        while let Ok(len @ 1..) = stream.read(&mut piece) {
            let _ = stream.write_all(&piece[..len]);
        }
        false
    });
    let server = server(&place, &origin);
    let address = server.addresses[1];
    let mut command = std::process::Command::new("timeout");
    command.args(["60", "python3", "-", &place.ca()]);
    command.args([address.ip().to_string(), address.port().to_string()]);
    let said = run(&mut command, TALK.as_bytes());
    assert_eq!(said.text(), "done\n", "{}", said.errors);
}

#[test]
fn proxy_header_before_the_handshake_gives_the_client() {
    let place = Place::new();
    place.certify("a", &["a.example"]);
    let origin = TestOrigin::with_response(|asked| {
        let text = asked.field("X-Forwarded-For").unwrap_or("none").to_string();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        )
    });
    let route = format!(
        "[[site.route]]\npattern = \"/**\"\norigin = \"{}\"\n",
        origin.url()
    );
    let site = place.site("a", "proxy_protocol = \"127.0.0.1\"", "");
    let server = place.run(&format!("{site}{route}"));
    for version in VERSIONS {
        let arguments = &[version, "--haproxy-protocol", "https://a.example/"];
        assert_eq!(place.fetch(server.address(), arguments), "127.0.0.1");
        let said = place.curl(server.address(), &[version, "https://a.example/"]);
        assert_ne!(said.code, Some(0), "{}", said.text());
    }
}
