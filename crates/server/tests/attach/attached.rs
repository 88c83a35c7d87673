//! Starts, observes and stops a level in front of a port of a namespace.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use lowroad_softirq::layout::{self, REASONS};
use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::now_ns;
use lowroad_softirq::programs::folder;
use lowroad_testkit::net::namespace::NamespaceProgram;
use lowroad_testkit::net::{DEVICE, NetNamespace, SERVER};
use lowroad_testkit::{ClientResponse, TestClient, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// The IPv4 address of the server.
pub fn server_v4(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(SERVER.0), port)
}

/// The IPv4 and IPv6 addresses of the server.
pub fn servers(port: u16) -> [SocketAddr; 2] {
    [server_v4(port), SocketAddr::new(IpAddr::V6(SERVER.1), port)]
}

/// A running `lowroad attach`. Dropping it detaches the level, also after a panic.
pub struct Attached<'n> {
    namespace: &'n NetNamespace,
    port: u16,
    program: NamespaceProgram,
    said: Arc<Mutex<String>>,
    /// The level's maps.
    pub level: SoftirqLevel,
}

impl<'n> Attached<'n> {
    /// Attaches a level to a port at the namespace's outer device, and waits until the level serves.
    pub fn start(namespace: &'n NetNamespace, port: u16, options: &[&str]) -> Attached<'n> {
        let begin_ns = now_ns();
        let mut command = Command::new(PROGRAM);
        command.args(["attach", &port.to_string(), "--netns", &namespace.path()]);
        command.args(["--interface", DEVICE]).args(options);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = namespace.spawn(command).expect("lowroad starts");
        let child = program.child();
        let said = Arc::default();
        gather(child.stdout.take().expect("piped"), &said);
        gather(child.stderr.take().expect("piped"), &said);
        let pid = child.id();
        let level = wait_until("the level", || {
            let ended = program.child().try_wait().expect("a child of ours");
            assert_eq!(ended, None, "lowroad attach ended: {}", text(&said));
            let level = SoftirqLevel::open(&pin_folder(namespace, port)).ok()?;
            let control = level.control();
            let serves = control.mode == layout::MODE_SERVE && control.heartbeat_ns > begin_ns;
            (serves && control.pid == pid).then_some(level)
        });
        Attached {
            namespace,
            port,
            program,
            said,
            level,
        }
    }

    /// The running process.
    pub fn program(&mut self) -> &Child {
        self.program.child()
    }

    /// The output of `lowroad attach` so far.
    pub fn output(&self) -> String {
        text(&self.said)
    }

    /// The value of a counter.
    pub fn count(&self, reason: &str) -> u64 {
        let at = REASONS.iter().position(|(name, _)| *name == reason);
        self.level.counters().expect("counters")[at.expect("a reason's name")]
    }

    /// All counters that are not 0.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.level.counters().expect("counters");
        let named = REASONS.iter().map(|(name, _)| *name).zip(counts);
        named.filter(|(_, count)| *count > 0).collect()
    }

    /// Repeats a request from `client` until the level answers it; returns the last response.
    pub fn warm(
        &self,
        client: &NetNamespace,
        address: SocketAddr,
        request: &str,
    ) -> ClientResponse {
        let hits = self.count("answer_hit");
        wait_until(request, || {
            let response = client.enter(|| send_request(address, request));
            (self.count("answer_hit") > hits).then_some(response)
        })
    }

    /// Kills the daemon. Dropping the value still removes the level.
    pub fn kill(&mut self) {
        self.program.child().kill().expect("a child of ours");
        self.program.child().wait().expect("a child of ours");
    }

    /// Runs `lowroad detach`, and waits until both processes have ended.
    pub fn detach(&mut self, options: &[&str]) {
        let (port, path) = (self.port.to_string(), self.namespace.path());
        let arguments = [&["detach", &port, "--netns", &path], options].concat();
        let said = self.namespace.run(PROGRAM, &arguments);
        let said = said.unwrap_or_else(|error| panic!("{error}; {}", self.output()));
        assert!(said.contains("detached"), "{said}");
    }

    /// Whether the level is still pinned.
    pub fn is_pinned(&self) -> bool {
        self.level.folder().exists()
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}\n{:?}", self.output(), self.counts());
        }
        let _ = self.program.child().kill();
        let _ = self.program.child().wait();
        let _ = folder::remove(self.level.folder());
    }
}

/// The pin folder of a port's level.
pub fn pin_folder(namespace: &NetNamespace, port: u16) -> PathBuf {
    namespace
        .enter(|| folder::port_folder(port))
        .expect("a folder")
}

/// Sends one request on a new connection.
pub fn send_request(address: SocketAddr, request: &str) -> ClientResponse {
    let mut client = TestClient::connect(address);
    client.send(request);
    match request.starts_with("HEAD") {
        true => client.response_to_head(),
        false => client.response(),
    }
}

/// The GET request that most tests send.
pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n")
}

fn gather(from: impl Read + Send + 'static, into: &Arc<Mutex<String>>) {
    let into = into.clone();
    thread::spawn(move || {
        let mut from = from;
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            let mut into = into.lock().expect("no holder panics");
            into.push_str(&String::from_utf8_lossy(&buffer[..len]));
        }
    });
}

fn text(said: &Mutex<String>) -> String {
    said.lock().expect("no holder panics").clone()
}
