//! HTTP/3 at a UDP socket that a supervisor has opened (sd_listen_fds(3)).

use std::process::{Command, Stdio};

use lowroad_testkit::TestServer;
use lowroad_testkit::status::StatusClient;

use super::http3_client::Http3Client;
use super::support::{PROGRAM, Place, noise};

/// Passes sockets of these types at one port of an address that no other test uses.
const SUPERVISOR: &str = r#"
import os, socket, sys
count = int(sys.argv[1])
port = 0
sockets = []
for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM][:count]:
    one = socket.socket(type=kind, proto=int(os.environ.get("PROTOCOL", "0")) if kind == socket.SOCK_DGRAM else 0)
    other = "OTHER" in os.environ and kind == socket.SOCK_DGRAM
    one.bind(("127.0.0.84", 0 if other else port))
    if "CONNECTED" in os.environ and kind == socket.SOCK_DGRAM:
        one.connect(("127.0.0.84", 9))
    port = one.getsockname()[1]
    if kind == socket.SOCK_STREAM:
        one.listen()
    sockets.append(os.dup2(one.fileno(), 60 + len(sockets)))
for at, one in enumerate(sockets):
    os.dup2(one, 3 + at)
os.environ["LISTEN_FDS"] = str(count)
os.environ["LISTEN_PID"] = str(os.getpid())
os.environ["LISTEN_FDNAMES"] = ":".join(["https"] * count)
os.execv(sys.argv[2], sys.argv[2:])
"#;

/// A server that is upgraded.
struct Activated {
    server: TestServer,
    commands: StatusClient,
}

impl Drop for Activated {
    fn drop(&mut self) {
        // The successor is not a child of this process.
        self.commands.run(&["stop"]);
    }
}

/// The command of a server with two workers and the first sockets of the supervisor.
fn command(place: &Place, sockets: &str) -> Command {
    place.certify("a", &["a.example"]);
    place.folder.file("site/short", noise(900));
    place.folder.file("site/long", noise(20 << 20));
    let config = format!(
        "[server]\nuser = \"root\"\nworkers = 2\nhttp3 = true\nadmin = \"{}\"\n{}",
        place.path("admin").display(),
        // Not opened, but advertised.
        place
            .site("a", "", "")
            .replace("127.0.0.1:0", "127.0.0.84:8443")
    );
    let file = place.folder.file("lowroad.toml", config);
    let mut command = Command::new("python3");
    command.args(["-c", SUPERVISOR, sockets, PROGRAM, "run", "-c"]);
    command.arg(file).stdin(Stdio::null());
    command
}

/// Starts the server.
fn start(place: &Place, sockets: &str) -> Activated {
    spawn(place, command(place, sockets))
}

fn spawn(place: &Place, command: Command) -> Activated {
    Activated {
        server: TestServer::spawn(command),
        commands: StatusClient::new(PROGRAM, place.path("admin")),
    }
}

fn is_advertised(place: &Place, server: &TestServer) -> bool {
    let head = place.fetch(
        server.addresses[0],
        &["-D-", "https://a.example/short", "-o/dev/null"],
    );
    head.to_ascii_lowercase().contains("alt-svc")
}

#[test]
fn http3_uses_the_socket_of_the_supervisor() {
    let place = Place::new();
    let activated = start(&place, "2");
    let Activated { server, commands } = &activated;
    let connect = || Http3Client::connect(&place, server.addresses[0]);
    let connect_often = || {
        for _ in 0..16 {
            let mut client = connect();
            assert!(client.get("/short").body() == noise(900));
            client.close();
        }
    };
    connect_often();
    let mut old = connect();
    let long = old.request("GET", "/long", b"");
    old.wait(|client| client.has_begun(long));
    commands.command(&["upgrade"]);
    connect_often();
    let before = old.len(long);
    old.wait(|client| client.len(long) >= before + (4 << 20));
    assert!(old.response(long).body() == noise(20 << 20));
    old.close();
    // The socket outlives a reload without HTTP/3.
    let on = std::fs::read_to_string(place.path("lowroad.toml")).expect("a file");
    for config in [on.replace("http3 = true", "http3 = false"), on] {
        place.folder.file("lowroad.toml", config);
        commands.command(&["reload"]);
    }
    connect_often();
    assert!(is_advertised(&place, server));
}

#[test]
fn http3_is_not_advertised_without_a_udp_socket() {
    let place = Place::new();
    let activated = start(&place, "1");
    let server = &activated.server;
    server.wait_for_error_line("systemd passes only a TCP socket there");
    assert!(!is_advertised(&place, server));
}

#[test]
fn udp_socket_at_another_address_is_named() {
    let place = Place::new();
    let mut command = command(&place, "2");
    command.env("OTHER", "1");
    let activated = spawn(&place, command);
    let server = &activated.server;
    server.wait_for_error_line("systemd passes UDP sockets at other addresses: 127.0.0.84:");
    assert!(!is_advertised(&place, server));
}

#[test]
fn sockets_that_no_client_reaches_are_refused() {
    // UDP-Lite has the number 136.
    for (name, value, reason) in [
        (
            "CONNECTED",
            "1",
            "a UDP socket is connected to 127.0.0.84:9",
        ),
        ("PROTOCOL", "136", "a datagram socket is not one of UDP"),
    ] {
        let place = Place::new();
        let output = command(&place, "2").env(name, value).output();
        let output = output.expect("a program");
        assert!(!output.status.success());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(reason), "{text}");
    }
}
