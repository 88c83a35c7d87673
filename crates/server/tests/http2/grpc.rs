//! gRPC end to end, and real servers of HTTP/2: the interoperability client and server of gRPC in Go, and Go's HTTP
//! server. Skipped without Go, or without access to its module proxy.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use lowroad_testkit::{TempFolder, TestServer, skip, wait_until};

use crate::origins::front_of;
use crate::peer::Peer;
use crate::place::PROGRAM;

const VERSION: &str = "v1.85.0";
/// The test cases of `grpc/doc/interop-test-descriptions.md` that need no authentication and one server.
const CASES: [&str; 14] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
];

/// A process that is ended when dropped.
struct TestProcess(Child);

impl Drop for TestProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The folder with gRPC's client and server, built once in a cache.
fn interop_programs() -> Result<PathBuf, String> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = cache.or(home).ok_or("there is no folder for a cache")?;
    let cache = cache.join(format!("lowroad/grpc-interop-{VERSION}"));
    fs::create_dir_all(&cache).map_err(|error| error.to_string())?;
    let lock = File::create(cache.join("lock")).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    if ["client", "server"]
        .iter()
        .all(|name| cache.join(name).is_file())
    {
        return Ok(cache);
    }
    let built = Command::new("timeout")
        .args(["300", "go", "install"])
        .args(
            ["client", "server"]
                .map(|name| format!("google.golang.org/grpc/interop/{name}@{VERSION}")),
        )
        .env("GOBIN", &cache)
        .env("GOFLAGS", "-p=1")
        .stdin(Stdio::null())
        .output();
    match built {
        Ok(output) if output.status.success() => Ok(cache),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let last = text.lines().last().unwrap_or("").to_owned();
            Err(format!("gRPC's test programs cannot be built: {last}"))
        }
        Err(error) => Err(format!(
            "gRPC's test programs cannot be built with Go: {error}"
        )),
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

#[test]
fn grpc_interoperability_tests_pass() {
    let programs = match interop_programs() {
        Ok(programs) => programs,
        Err(reason) => return skip("grpc", &reason),
    };
    let port = free_port();
    let server = Command::new(programs.join("server"))
        .args(["--port", &port.to_string()])
        .stderr(Stdio::null())
        .spawn();
    let _server = TestProcess(server.expect("the gRPC server"));
    wait_until("the gRPC server", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).ok()
    });
    let folder = TempFolder::new();
    let front = front_of(&format!("h2c://127.0.0.1:{port}"), &folder, "");
    for case in CASES {
        run_case(&programs, &front, case);
    }
}

fn run_case(programs: &Path, front: &TestServer, case: &str) {
    let address = front.address();
    let output = Command::new("timeout")
        .arg("120")
        .arg(programs.join("client"))
        .args(["--server_host", &address.ip().to_string()])
        .args(["--server_port", &address.port().to_string()])
        .arg(format!("--test_case={case}"))
        .output()
        .expect("the gRPC client");
    assert!(
        output.status.success(),
        "{case}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Go's HTTP server, with its ports: HTTP/2 in clear text, TLS with HTTP/2, TLS without.
struct GoServer {
    _process: TestProcess,
    ports: [u16; 3],
}

fn go_server(folder: &TempFolder) -> Option<GoServer> {
    let source = folder.file("go/main.go", include_str!("origin.go"));
    let program = folder.path().join("go/origin");
    let built = Command::new("go")
        .args(["build", "-o"])
        .args([&program, &source])
        .env("GO111MODULE", "off")
        .output();
    match built {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => {
            skip("grpc", &format!("there is no Go: {error}"));
            return None;
        }
    }
    let mut process = Command::new(program)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server");
    let output = process.stdout.take().expect("a pipe");
    let process = TestProcess(process);
    let mut line = String::new();
    BufReader::new(output)
        .read_line(&mut line)
        .expect("the ports");
    let mut ports = line
        .split_whitespace()
        .map(|port| port.parse().expect("a port"));
    let ports = std::array::from_fn(|_| ports.next().expect("three ports"));
    Some(GoServer {
        _process: process,
        ports,
    })
}

#[test]
fn go_servers_negotiate_the_protocol() {
    let folder = TempFolder::new();
    let Some(go) = go_server(&folder) else { return };
    let [clear, with_h2, without] = go.ports;
    for (url, protocol, expected) in [
        (format!("h2c://127.0.0.1:{clear}"), "", Some("HTTP/2.0")),
        (format!("http://127.0.0.1:{clear}"), "h2", Some("HTTP/2.0")),
        (
            format!("http://127.0.0.1:{clear}"),
            "http/1.1",
            Some("HTTP/1.1"),
        ),
        (format!("https://127.0.0.1:{with_h2}"), "", Some("HTTP/1.1")),
        (
            format!("https://127.0.0.1:{with_h2}"),
            "h2",
            Some("HTTP/2.0"),
        ),
        (
            format!("https://127.0.0.1:{with_h2}"),
            "auto",
            Some("HTTP/2.0"),
        ),
        (
            format!("https://127.0.0.1:{without}"),
            "auto",
            Some("HTTP/1.1"),
        ),
        (format!("https://127.0.0.1:{without}"), "h2", None),
    ] {
        let protocol_line = match protocol {
            "" => String::new(),
            protocol => format!("protocol = \"{protocol}\"\n"),
        };
        let tls = if url.starts_with("https") {
            "[origin.tls]\nverify = false\n"
        } else {
            ""
        };
        let config = format!(
            "[server]\nworkers = 2\n[[site]]\nlisten = \"127.0.0.1:0\"\n[[site.route]]\npattern = \"/**\"\norigin = \"o\"\n\
             [[origin]]\nname = \"o\"\nservers = \"{url}\"\n{protocol_line}{tls}"
        );
        let folder = TempFolder::new();
        let front = TestServer::run(PROGRAM, &folder, &config);
        for _ in 0..3 {
            let mut client = front.connect();
            let response = client.get("/protocol", "");
            match expected {
                Some(expected) => assert_eq!(
                    (response.status, response.text().as_str()),
                    (200, expected),
                    "{url} {protocol}"
                ),
                None => assert_eq!(response.status, 502, "{url} {protocol}"),
            }
        }
        if expected != Some("HTTP/2.0") {
            continue;
        }
        let mut peer = Peer::connect(front.address());
        let body = vec![b'x'; 1 << 20];
        let stream = peer.begin_post("/echo", b"");
        peer.send_in_tunnel(stream, &body);
        peer.end_tunnel(stream);
        let echoed = peer.receive_response(stream);
        assert!(echoed.body == body, "{url} {protocol}: {}", echoed.status);
        let stream = peer.get("/large");
        let large = peer.receive_response(stream);
        assert_eq!(large.body.len(), 32 << 20, "{url} {protocol}");
        let stream = peer.get("/early");
        assert_eq!(peer.receive_response(stream).status, 204);
    }
}
