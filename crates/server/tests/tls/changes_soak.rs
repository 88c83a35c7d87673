//! A soak of a server that changes all the time: reloads, upgrades, purges, renewed certificates, rotated logs, denied
//! addresses, drained and failing servers of an origin, panics of workers, in an order that a seed decides. Clients of
//! HTTP/1, TLS and HTTP/2 request files, stored and unstored responses of the origin, and a CGI program. No request fails,
//! except on a connection that the server closes while it is idle; the access log has each request once; memory and
//! descriptors don't grow.
//!
//! `LOWROAD_SOAK_S=1800` makes it longer, `LOWROAD_SOAK_SEED=7` chooses another order. Each action is followed by a batch of
//! each client, so that the test ends by counts.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::process::PrivateMemory;
use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{TestClient, TestServer, wait_until};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::support::{PROGRAM, Place, noise, trusting};

/// Actions of the first part, in which upgrades are among them; with `LOWROAD_SOAK_S` as many as fit.
const MIXED_ACTIONS: usize = 24;
/// Actions between the two measurements, at least; none of them is an upgrade.
const MEASURED_ACTIONS: usize = 16;
/// Requests of a batch, all on one connection.
const BATCH_LEN: usize = 8;
/// The paths that are requested in turn, with the lengths of the responses.
const PATHS: [(&str, usize); 4] = [
    ("/file", 20_000),
    ("/app/x", 5_000),
    ("/kept/x", 5_000),
    ("/cgi/hello", 5),
];
/// The path at which a worker panics.
const PANIC_PATH: &str = "/panic";
/// Maximum growth of the memory between the measurements. In two minutes it grows by 6 MiB, which the allocator keeps for
/// each thread; a leak of a kilobyte a request would be 40 MiB.
const GROWTH_MAX: u64 = 20 << 20;
/// Idle connections to the origin may differ between the measurements.
const DESCRIPTORS_SPARE: usize = 8;

/// An action on the running server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SoakAction {
    Reload,
    Upgrade,
    Purge,
    Certify,
    RotateLog,
    FlipOrigin,
    Deny,
    DrainServer,
    Panic,
}

const ACTIONS: [SoakAction; 9] = [
    SoakAction::Reload,
    SoakAction::Upgrade,
    SoakAction::Purge,
    SoakAction::Certify,
    SoakAction::RotateLog,
    SoakAction::FlipOrigin,
    SoakAction::Deny,
    SoakAction::DrainServer,
    SoakAction::Panic,
];

/// A sequence of pseudo-random numbers (xorshift64).
struct SeededOrder(u64);

impl SeededOrder {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// The counts of the clients.
#[derive(Default)]
struct ClientCounts {
    is_over: AtomicBool,
    /// The batches of each client.
    batches: [AtomicUsize; 3],
    /// The number of responses for each value of X-Id.
    responses: Mutex<HashMap<String, usize>>,
    /// Requests on idle connections that were closed.
    repeated: AtomicUsize,
    /// Held for reading during a batch, for writing during a measurement.
    pause: RwLock<()>,
}

/// Ends the clients' loops, also if the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl ClientCounts {
    /// Sends batches until the end. `send_batch` returns the number of responses to requests with an ID.
    fn run(&self, client: usize, mut send_batch: impl FnMut(&str) -> usize) {
        for batch in 0.. {
            if self.is_over.load(Relaxed) {
                return;
            }
            let _running = self.pause.read().expect("no panic");
            let id = format!("{client}-{batch}");
            let count = send_batch(&id);
            self.responses.lock().expect("no panic").insert(id, count);
            self.batches[client].fetch_add(1, Relaxed);
        }
    }

    /// Waits until each client has completed a batch that began after this call.
    fn wait_for_batches(&self) {
        for batches in &self.batches {
            let before = batches.load(Relaxed);
            wait_until("two more batches", || {
                (batches.load(Relaxed) >= before + 2).then_some(())
            });
        }
    }
}

fn request(path: &str, id: &str, is_last: bool) -> String {
    let end = if is_last { "close" } else { "keep-alive" };
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nX-Id: {id}\r\nConnection: {end}\r\n\r\n")
}

/// A batch over HTTP/1 without TLS.
fn send_plain(to: SocketAddr, id: &str, counts: &ClientCounts) -> usize {
    let (mut answered, mut used) = (0, 0);
    let mut client = TestClient::connect(to);
    while answered < BATCH_LEN {
        let (path, len) = PATHS[answered % PATHS.len()];
        client.send(request(path, id, answered + 1 == BATCH_LEN));
        let Some(response) = client.whole_response() else {
            // A server may close an idle connection while a request is on its way (RFC 9112 §9.6).
            let received = client.received.len();
            assert!(used > 0 && received == 0, "{path} {id}: cut off");
            counts.repeated.fetch_add(1, Relaxed);
            (client, used) = (TestClient::connect(to), 0);
            continue;
        };
        let text = || String::from_utf8_lossy(&response.body).into_owned();
        assert_eq!(response.status, 200, "{path} {id}: {}", text());
        assert_eq!(response.body.len(), len, "{path} {id}");
        (answered, used) = (answered + 1, used + 1);
        if response.field("connection") == Some("close") && answered < BATCH_LEN {
            (client, used) = (TestClient::connect(to), 0);
        }
    }
    answered
}

/// A batch of one request over TLS, with a new handshake, and one on the same connection.
fn send_tls(to: SocketAddr, config: &Arc<ClientConfig>, id: &str) -> usize {
    let name = ServerName::try_from("a.example").expect("a name");
    let tls = ClientConnection::new(config.clone(), name).expect("a client");
    let tcp = TcpStream::connect(to).expect("a connection");
    let patience = Some(Duration::from_secs(60));
    tcp.set_read_timeout(patience).expect("a timeout");
    let mut stream = StreamOwned::new(tls, tcp);
    let requests = [request("/file", id, false), request("/kept/x", id, true)];
    // Pipelined: the server must answer both, even if it drains meanwhile.
    stream
        .write_all(requests.concat().as_bytes())
        .expect("sent");
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("an end");
    let text = String::from_utf8_lossy(&received);
    let count = text.matches("HTTP/1.1 200 OK\r\n").count();
    // A server that drains announces the end with the first response and need not answer the second request.
    let is_announced = text.contains("onnection: close");
    assert!(count == 2 || (count == 1 && is_announced), "{id}: {text}");
    count
}

/// A batch over HTTP/2 by curl.
fn send_h2(place: &Place, to: SocketAddr, id: &str) -> usize {
    let urls = (0..BATCH_LEN).map(|at| format!("https://a.example{}", PATHS[at % PATHS.len()].0));
    let urls: Vec<String> = urls.collect();
    let field = format!("X-Id: {id}");
    let mut arguments = vec![
        "--http2",
        "-H",
        &field,
        "-w",
        "%{http_code} %{size_download}\n",
    ];
    for url in &urls {
        arguments.extend(["-o", "/dev/null", url]);
    }
    let output = place.fetch(to, &arguments);
    for (at, line) in output.lines().enumerate() {
        assert_eq!(line, format!("200 {}", PATHS[at % PATHS.len()].1), "{id}");
    }
    output.lines().count()
}

/// The server with everything that the actions change.
struct SoakServer<'p> {
    place: &'p Place,
    server: TestServer,
    pid: u32,
    commands: StatusClient,
    config: String,
    /// The address of the server of the origin that fails now and then.
    flapping: String,
    is_failing: Arc<AtomicBool>,
    is_drained: bool,
    actions: usize,
}

impl Drop for SoakServer<'_> {
    fn drop(&mut self) {
        // The last successor is not a child of this process.
        self.commands.run(&["stop"]);
    }
}

impl SoakServer<'_> {
    fn act(&mut self, action: SoakAction, counts: &ClientCounts) {
        self.actions += 1;
        let number = self.actions;
        match action {
            SoakAction::Reload => {
                let limits = format!(
                    "{}[limits]\nbody_timeout = \"{}s\"\n",
                    self.config,
                    20 + number % 9
                );
                self.place.folder.file("lowroad.toml", limits);
                self.commands.command(&["reload"]);
            }
            SoakAction::Upgrade => {
                let text = self.commands.command(&["upgrade"]);
                let mut words = text.split_whitespace();
                let pid = words.nth(1).and_then(|word| word.parse().ok());
                self.pid = pid.unwrap_or_else(|| panic!("no process in {text:?}"));
            }
            SoakAction::Purge => drop(self.commands.command(&["purge", "all"])),
            SoakAction::Certify => {
                self.place.certify("a", &["a.example"]);
                self.server
                    .wait_for_error_line("a.pem: reloaded, valid until ");
            }
            SoakAction::RotateLog => {
                let log = self.place.path("access.log");
                let old = self.place.path(&format!("access.{number}.log"));
                fs::rename(&log, old).expect("a log");
                let signal = ["-s", "USR1", &self.pid.to_string()];
                let sent = Command::new("kill").args(signal).status();
                assert!(sent.expect("kill").success());
                wait_until("the new log", || log.exists().then_some(()));
            }
            SoakAction::FlipOrigin => {
                self.is_failing.fetch_xor(true, Relaxed);
            }
            SoakAction::Deny => {
                let address = format!("192.0.2.{}", number % 256);
                let entry = ["deny", "add", &address, "--for", "1h"];
                self.commands.command(&entry);
            }
            SoakAction::DrainServer => {
                self.is_drained ^= true;
                let command = if self.is_drained { "drain" } else { "ready" };
                let arguments = ["origin", command, "app", &self.flapping];
                self.commands.command(&arguments);
            }
            SoakAction::Panic => {
                // The panic ends all connections of its worker, so there are no others.
                let _pause = counts.pause.write().expect("no panic");
                let before = self.commands.value("worker_panics");
                let mut client = TestClient::connect(self.server.address());
                client.send(request(PANIC_PATH, "panic", true));
                client.wait_for_close();
                assert!(client.received.is_empty());
                self.commands.wait_for("worker_panics", before + 1);
            }
        }
    }

    /// The resident memory and the open descriptors, while no client is connected.
    fn measure(&self, counts: &ClientCounts) -> (u64, usize) {
        let _pause = counts.pause.write().expect("no panic");
        self.commands.wait_for("open", 0);
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.pid)).expect("a process");
        let memory = PrivateMemory::of_process(self.pid).resident;
        (memory, descriptors.count())
    }
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// An origin with responses that are stored below `/kept/`.
fn origin(is_failing: Arc<AtomicBool>) -> TestOrigin {
    TestOrigin::start(move |request, stream| {
        if is_failing.load(Relaxed) {
            return false;
        }
        let caching = match request.target.starts_with("/kept/") {
            true => "max-age=600",
            false => "no-store",
        };
        let head =
            format!("HTTP/1.1 200 OK\r\nCache-Control: {caching}\r\nContent-Length: 5000\r\n\r\n");
        stream
            .write_all((head + &"o".repeat(5000)).as_bytes())
            .is_ok()
    })
}

/// Checks that the logs have each answered request once.
fn check_logs(folder: &Path, counts: &ClientCounts) -> usize {
    let mut logged: HashMap<String, usize> = HashMap::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("access") {
            let text = fs::read_to_string(&path).expect("a log");
            for id in text.lines().filter_map(|line| line.strip_prefix("200 ")) {
                *logged.entry(id.to_owned()).or_default() += 1;
            }
        }
    }
    let responses = counts.responses.lock().expect("no panic");
    for (id, count) in &*responses {
        assert_eq!(logged.get(id), Some(count), "records of {id}");
    }
    responses.values().sum()
}

#[test]
fn server_that_changes_all_the_time_fails_no_request_and_does_not_grow() {
    let (seed, soak_s) = (
        variable("LOWROAD_SOAK_SEED", 1),
        variable("LOWROAD_SOAK_S", 0),
    );
    println!("seed {seed}");
    // Zero would stay zero.
    let mut order = SeededOrder(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let place = Place::new();
    place.certify("a", &["a.example"]);
    place.folder.file("site/file", noise(20_000));
    let script = place.folder.file(
        "cgi/hello",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\nContent-Length: 5\\r\\n\\r\\nhello'\n",
    );
    fs::set_permissions(script, Permissions::from_mode(0o755)).expect("a mode");
    let is_failing = Arc::new(AtomicBool::new(false));
    let origins = [origin(is_failing.clone()), origin(Arc::default())];
    let urls: Vec<String> = origins.iter().map(TestOrigin::url).collect();
    let routes = "[[site.route]]\npattern = [\"/app/**\", \"/kept/**\"]\norigin = \"app\"\n\
                  [[site.route]]\npattern = \"/cgi/**\"\ncgi = \"cgi\"\n";
    let tables = format!("[[origin]]\nname = \"app\"\nservers = {urls:?}\n");
    let config = format!(
        "[server]\nuser = \"root\"\nworkers = 2\nadmin = \"{}\"\n\
         [log]\naccess = \"access.log\"\nformat = '$status $http_x_id'\n{}{routes}{tables}",
        place.path("admin").display(),
        place.site("a", "listen = \"127.0.0.2:0\"", ""),
    );
    let mut command = Command::new(PROGRAM);
    let file = place.folder.file("lowroad.toml", &config);
    command.args(["run", "-c"]).arg(file).stdin(Stdio::null());
    // Programs with `debug_assertions` panic at a request for this path.
    command.env("LOWROAD_PANIC_PATH", PANIC_PATH);
    let server = TestServer::spawn(command);
    let (plain, secure) = (server.addresses[0], server.addresses[1]);
    let (place, counts) = (&place, &ClientCounts::default());
    let mut soaked = SoakServer {
        pid: server.pid(),
        commands: StatusClient::new(PROGRAM, place.path("admin")),
        flapping: urls[0].trim_start_matches("http://").to_owned(),
        place,
        server,
        config,
        is_failing,
        is_drained: false,
        actions: 0,
    };
    let start = Instant::now();
    thread::scope(|scope| {
        let _end = EndOnDrop(&counts.is_over);
        scope.spawn(|| counts.run(0, |id| send_plain(plain, id, counts)));
        scope.spawn(|| {
            let config = Arc::new(trusting(place, &[&rustls::version::TLS13]));
            counts.run(1, |id| send_tls(secure, &config, id));
        });
        scope.spawn(|| counts.run(2, |id| send_h2(place, secure, id)));
        while soaked.actions < MIXED_ACTIONS || start.elapsed() < Duration::from_secs(soak_s / 2) {
            let action = ACTIONS[order.below(ACTIONS.len())];
            soaked.act(action, counts);
            counts.wait_for_batches();
        }
        // Each kind once, so that the measured process has all its threads and buffers; the upgrade first.
        soaked.act(SoakAction::Upgrade, counts);
        let kept: Vec<SoakAction> = ACTIONS
            .iter()
            .copied()
            .filter(|it| *it != SoakAction::Upgrade)
            .collect();
        for action in &kept {
            soaked.act(*action, counts);
            counts.wait_for_batches();
        }
        let (memory, descriptors) = soaked.measure(counts);
        let end = soaked.actions + MEASURED_ACTIONS;
        while soaked.actions < end || start.elapsed() < Duration::from_secs(soak_s) {
            soaked.act(kept[order.below(kept.len())], counts);
            counts.wait_for_batches();
        }
        let (memory_at_end, descriptors_at_end) = soaked.measure(counts);
        println!(
            "{} actions; {} KiB and {descriptors} descriptors, then {} KiB and {descriptors_at_end}",
            soaked.actions,
            memory >> 10,
            memory_at_end >> 10,
        );
        assert!(memory_at_end <= memory + GROWTH_MAX);
        assert!(descriptors_at_end <= descriptors + DESCRIPTORS_SPARE);
    });
    assert_eq!(soaked.commands.value("log_lines_lost"), 0);
    // The end of the server writes pending lines.
    drop(soaked);
    let answered = check_logs(place.folder.path(), counts);
    let repeated = counts.repeated.load(Relaxed);
    println!("{answered} requests, {repeated} repeated");
    assert!(repeated <= answered / 20, "{repeated} of {answered}");
}
