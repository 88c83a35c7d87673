//! A Lowroad server in a network namespace with a level in front of it.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output, Stdio};

use lowroad_testkit::net::{
    self, CLIENT, CableEnd, DEVICE, NamespaceProgram, NetNamespace, SERVER,
};
use lowroad_testkit::{ClientResponse, TempFolder, TestClient, TestServer, skip, wait_until};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
pub const PORT: u16 = 8080;
pub const HOST: &str = "10.77.0.2:8080";

/// A client and a server connected by a veth pair, a Lowroad server, and a level in front of its port.
pub struct Place {
    // Dropped before the server and the namespaces.
    pub attached: NamespaceProgram,
    _server: TestServer,
    /// The client's namespace.
    pub client: NetNamespace,
    /// The server's namespace.
    pub server: NetNamespace,
    /// The served folder.
    pub folder: TempFolder,
}

impl Place {
    pub fn new(options: &[&str]) -> Place {
        let client = NetNamespace::new("client").expect("a namespace");
        let server = NetNamespace::new("server").expect("a namespace");
        connect(&client, &server, 1500);
        let folder = TempFolder::new();
        folder.file("small", "hello");
        folder.file("other", "other");
        folder.file("large", vec![b'l'; 5000]);
        let mut serve = Command::new(PROGRAM);
        serve.args(["serve", "--listen"]).arg(format!("*:{PORT}"));
        serve.arg(folder.path()).stdin(Stdio::null());
        server.prepare(&mut serve);
        let place = Place {
            _server: TestServer::spawn(serve),
            attached: attach(&server, options),
            client,
            server,
            folder,
        };
        wait_until("the daemon's first sign of life", || {
            let text = place.command_output(&["status"]);
            (!text.contains("no heartbeat")).then_some(())
        });
        place
    }

    pub fn get(&self, path: &str, fields: &str) -> ClientResponse {
        let address = SocketAddr::from((SERVER.0, PORT));
        let stream = self.client.enter(|| TcpStream::connect(address));
        let fields = format!("Host: {HOST}\r\n{fields}");
        let mut client = TestClient::new(stream.expect("a connection"));
        client.send(format!("GET {path} HTTP/1.1\r\n{fields}\r\n"));
        client.response()
    }

    /// Repeats a request until the level answers.
    pub fn warm(&self, path: &str) {
        wait_until("an answer of the level", || {
            self.get(path, "").field("age").map(drop)
        });
    }

    pub fn counter(&self, reason: &str) -> u64 {
        let json = self.command_output(&["status", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let count = &json["levels"][0]["counters"][reason];
        count.as_u64().expect("a counter")
    }

    /// The shares of the answers in the level's status.
    pub fn shares(&self) -> serde_json::Value {
        let json = self.command_output(&["status", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        json["levels"][0]["shares"].clone()
    }

    pub fn command_output(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    pub fn output(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        command.output().expect("the program starts")
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(arguments)
            .args(["--netns", &self.server.path()]);
        command.stdin(Stdio::null());
        command
    }

    /// Kills the daemon.
    pub fn kill(&mut self) {
        self.attached.child().kill().expect("a child of ours");
        self.attached.child().wait().expect("a child of ours");
    }
}

/// Connects two namespaces by a veth pair.
pub fn connect(client: &NetNamespace, server: &NetNamespace, mtu: u16) {
    let end = |namespace, addresses| CableEnd {
        namespace,
        device: DEVICE,
        addresses: Some(addresses),
    };
    net::pair(&end(client, CLIENT), &end(server, SERVER), mtu).expect("a cable");
}

/// Attaches a level, and waits until it is ready.
pub fn attach(namespace: &NetNamespace, options: &[&str]) -> NamespaceProgram {
    attach_by(PROGRAM, namespace, options)
}

pub fn attach_by(program: &str, namespace: &NetNamespace, options: &[&str]) -> NamespaceProgram {
    let mut command = Command::new(program);
    command.args(["attach", &PORT.to_string(), "-i", DEVICE, "--drain", "1"]);
    command
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut attached = namespace.spawn(command).expect("the program starts");
    let output = attached.child().stdout.take().expect("piped");
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert!(line.starts_with("attached to port"), "{line:?}");
    attached
}

impl Drop for Place {
    fn drop(&mut self) {
        // The kernel does not remove pins with the namespace, so they would remain.
        let port = PORT.to_string();
        let _ = self.output(&["detach", &port, "--drain", "1"]);
    }
}

/// Whether the test can run; reports a skip if not.
pub fn can_run(test: &str) -> bool {
    if let Some(reason) = net::missing_requirement() {
        skip(test, &reason);
        return false;
    }
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        skip(test, "the kernel has no BTF");
        return false;
    }
    true
}
