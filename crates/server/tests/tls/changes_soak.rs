//! A soak of a server that changes all the time: reloads, upgrades, purges, renewed certificates, rotated logs, denied
//! addresses, drained and failing servers of an origin, panics of workers, steps of the wall clock, in an order that a seed
//! decides. Clients of HTTP/1, TLS, HTTP/2 and HTTP/3, the last with changing ports, request files, stored and unstored
//! responses of the origin, a CGI program and a FastCGI server. No request fails, except on a connection that the server
//! closes while it is idle, or after GOAWAY; the access log has each request once; memory and descriptors don't grow.
//!
//! `LOWROAD_SOAK_S=1800` makes it longer, `LOWROAD_SOAK_SEED=7` chooses another order. Each action is followed by a batch of
//! each client, so that the test ends by counts.

mod backends;
mod clients;
mod wall_clock;

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::process::PrivateMemory;
use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{TestClient, TestServer, wait_until};

use self::backends::{FastCgiServer, origin};
use self::clients::{ClientCounts, EndOnDrop, request, send_h2, send_h3, send_plain, send_tls};
use self::wall_clock::WallClock;
use super::support::{self, PROGRAM, Place, noise, trusting};

/// Actions of the first part, in which upgrades are among them; with `LOWROAD_SOAK_S` as many as fit.
const MIXED_ACTIONS: usize = 24;
/// Actions between the two measurements, at least; none of them is an upgrade.
const MEASURED_ACTIONS: usize = 16;
/// The path at which a worker panics.
const PANIC_PATH: &str = "/panic";
/// Maximum growth of the memory between the measurements. In two minutes it grows by 6 MiB, which the allocator keeps for
/// each thread; a leak of a kilobyte a request would be 40 MiB.
const GROWTH_MAX: u64 = 20 << 20;
/// Idle connections to the origin may differ between the measurements.
const DESCRIPTORS_SPARE: usize = 8;
/// The server's wall clock after a step, in seconds after the machine's: never before it, as certificates would not be valid
/// yet. Responses become stale and fresh again, keys of session tickets change, and entries of the deny list end.
const CLOCK_OFFSETS_S: [i64; 5] = [0, 40, 900, 7_200, 86_400];
/// The greatest difference of a response's Date from the clock when it is read.
const CLOCK_SPARE_S: i64 = 10;

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
    StepClock,
}

const ACTIONS: [SoakAction; 10] = [
    SoakAction::Reload,
    SoakAction::Upgrade,
    SoakAction::Purge,
    SoakAction::Certify,
    SoakAction::RotateLog,
    SoakAction::FlipOrigin,
    SoakAction::Deny,
    SoakAction::DrainServer,
    SoakAction::Panic,
    SoakAction::StepClock,
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
    clock: WallClock,
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
            SoakAction::StepClock => {
                let offset_s = CLOCK_OFFSETS_S[number % CLOCK_OFFSETS_S.len()];
                self.clock.step(offset_s);
                wait_until("the stepped clock", || {
                    let difference_s = self.clock_offset_s() - offset_s;
                    (difference_s.abs() <= CLOCK_SPARE_S).then_some(())
                });
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

    /// The server's clock, by the Date of a response, in seconds after the machine's.
    fn clock_offset_s(&self) -> i64 {
        let response = self.server.get("/file");
        let date = response.field("date").expect("a date").to_owned();
        let unix_s = Command::new("date").args(["-d", &date, "+%s"]).output();
        let unix_s = String::from_utf8(unix_s.expect("date").stdout).expect("text");
        let unix_s: i64 = unix_s.trim().parse().expect("a number");
        unix_s - support::unix_s() as i64
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
    let fastcgi = FastCgiServer::start();
    let fast_route = format!(
        "[[site.route]]\npattern = \"/fast/**\"\nfastcgi = \"{}\"\nscript = \"\"\nkeep_connections = true\n",
        fastcgi.address
    );
    let tables = format!("[[origin]]\nname = \"app\"\nservers = {urls:?}\n");
    let config = format!(
        "[server]\nuser = \"root\"\nworkers = 2\nhttp3 = true\nadmin = \"{}\"\n\
         [log]\naccess = \"access.log\"\nformat = '$status $http_x_id'\n{}{routes}{fast_route}{tables}",
        place.path("admin").display(),
        place.site("a", "listen = \"127.0.0.2:0\"", ""),
    );
    let mut command = Command::new(PROGRAM);
    let file = place.folder.file("lowroad.toml", &config);
    command.args(["run", "-c"]).arg(file).stdin(Stdio::null());
    // Programs with `debug_assertions` panic at a request for this path.
    command.env("LOWROAD_PANIC_PATH", PANIC_PATH);
    let clock = WallClock::new(&place.folder);
    clock.preload(&mut command);
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
        clock,
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
        scope.spawn(|| counts.run(3, |id| send_h3(place, secure, id, counts)));
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
    assert!(fastcgi.answered.load(Relaxed) > 0);
    assert!(repeated <= answered / 20, "{repeated} of {answered}");
}
