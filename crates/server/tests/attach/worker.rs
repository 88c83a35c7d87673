//! `lowroad attach --worker`: which connections the workers intercept, which stay with the server, and how the death of
//! workers affects clients.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::machine::probe_source;
use lowroad_softirq::programs::{folder, interception};
use lowroad_testkit::net::servers::{UPLOAD, receipt};
use lowroad_testkit::net::site::content;
use lowroad_testkit::net::{
    CLIENT, DEVICE, LinkMangling, NamespaceProgram, NetNamespace, TestPage, TestPath, TestSite,
    WebServer,
};
use lowroad_testkit::{ClientResponse, TestClient, wait_until};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::attached::{get, pin_folder, send_request, server_v4, servers};
use crate::skipped;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
const MODULES: &str = "/usr/lib/apache2/modules";
/// The field that the workers add to requests.
const FORWARDED: &str = "X-Forwarded-For";
const SEED: u64 = 23;
/// The options for workers with a level, and for workers alone.
pub const WITH_LEVEL: &[&str] = &["--interface", DEVICE];
pub const ALONE: &[&str] = &["--tier", "none"];

/// A server and a client.
pub struct ServerLink {
    /// The link between them.
    pub path: TestPath,
    /// The files of the server.
    pub site: TestSite,
    _server: WebServer,
}

impl ServerLink {
    /// Apache in front of files of these lengths.
    pub fn apache(lens: &[usize]) -> ServerLink {
        ServerLink::apache_with(lens, "")
    }

    /// The same with additional Apache directives.
    pub fn apache_with(lens: &[usize], more: &str) -> ServerLink {
        let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
        let site = TestSite::new(SEED, lens);
        // Apache returns the peer's address and the forwarded client in a field.
        let directives = format!(
            "LoadModule headers_module {MODULES}/mod_headers.so\n\
             LoadModule authz_host_module {MODULES}/mod_authz_host.so\n\
             Header set Cache-Control max-age=600\n\
             Header set Seen \"expr=%{{REMOTE_ADDR}} %{{req:{FORWARDED}}}\"\n\
             <Location /few>\nRequire local\n</Location>\n{more}"
        );
        let server = WebServer::apache(&path.server, &site, 80, &directives).expect("Apache");
        ServerLink {
            path,
            site,
            _server: server,
        }
    }

    /// nginx in front of files of these lengths.
    pub fn nginx(lens: &[usize], directives: &str) -> ServerLink {
        let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
        let site = TestSite::new(SEED, lens);
        let server = WebServer::nginx(&path.server, &site, 80, directives).expect("nginx");
        ServerLink {
            path,
            site,
            _server: server,
        }
    }

    fn ask(&self, address: SocketAddr, page: &str) -> ClientResponse {
        self.path.client.enter(|| send_request(address, &get(page)))
    }

    /// The path of the file with this number.
    pub fn page(&self, n: usize) -> &str {
        &self.site.pages[n].path
    }
}

/// A running `lowroad attach --worker`.
pub struct Workers<'n> {
    namespace: &'n NetNamespace,
    program: NamespaceProgram,
}

impl<'n> Workers<'n> {
    /// Starts the command, and waits until the workers intercept the port.
    pub fn start(namespace: &'n NetNamespace, options: &[&str]) -> Workers<'n> {
        Workers::start_to(namespace, options, Stdio::null())
    }

    /// The same with this standard output.
    pub fn start_to(namespace: &'n NetNamespace, options: &[&str], output: Stdio) -> Workers<'n> {
        let mut command = Command::new(PROGRAM);
        command.args(["attach", "80", "--worker", "--netns", &namespace.path()]);
        command.args(options).stdin(Stdio::null()).stdout(output);
        let program = namespace.spawn(command).expect("lowroad starts");
        let mut workers = Workers { namespace, program };
        workers.wait_for_another(None);
        if !options.contains(&"none") {
            let place = pin_folder(namespace, 80);
            wait_until("the level", || {
                workers.must_run();
                let level = SoftirqLevel::open(&place).ok()?;
                (level.control().heartbeat_ns > 0).then_some(())
            });
        }
        workers
    }

    /// Waits until another process than `old` serves the port; returns its process number.
    fn wait_for_another(&mut self, old: Option<i32>) -> i32 {
        wait_until("workers", || {
            self.must_run();
            let pid = self.pid().filter(|pid| Some(*pid) != old)?;
            self.has_port().then_some(pid)
        })
    }

    fn must_run(&mut self) {
        let ended = self.program.child().try_wait().expect("a child of ours");
        assert_eq!(ended, None, "lowroad attach ended");
    }

    fn pid(&self) -> Option<i32> {
        let path = self.namespace.path();
        let status = ["status", "--softirq", "--json", "--netns", &path];
        let said = self.namespace.run(PROGRAM, &status).ok()?;
        let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let pid = said["workers"][0]["process"].as_i64()?;
        i32::try_from(pid).ok()
    }

    /// The process of the supervisor.
    pub fn program(&mut self) -> &Child {
        self.program.child()
    }

    /// Whether a socket lookup program is attached to the namespace.
    pub fn has_port(&self) -> bool {
        self.namespace.enter(lookup_programs) > 0
    }
}

impl Drop for Workers<'_> {
    fn drop(&mut self) {
        let _ = self.program.child().kill();
        let _ = self.program.child().wait();
        let _ = folder::remove(&pin_folder(self.namespace, 80));
    }
}

/// Kills a process, and waits until its resources are freed.
fn kill(pid: i32) {
    let pid = Pid::from_raw(pid).expect("not 0");
    let process = pidfd_open(pid, PidfdFlags::empty()).expect("it lives");
    pidfd_send_signal(&process, Signal::KILL).expect("it lives");
    let mut ends = [PollFd::new(&process, PollFlags::IN)];
    assert_eq!(poll(&mut ends, None), Ok(1));
}

/// The number of socket lookup programs in the thread's network namespace.
fn lookup_programs() -> u32 {
    let namespace = File::open("/proc/thread-self/ns/net").expect("a namespace");
    interception::attached(&namespace).expect("root may ask")
}

/// The route to the probe address.
fn route_to_probe_address(namespace: &NetNamespace) -> Option<String> {
    let routes = ["route", "show", "table", "local"];
    let routes = namespace.run("ip", &routes).expect("routes");
    let mut lines = routes.lines();
    lines
        .find(|line| line.contains("203.0.113.254"))
        .map(str::to_owned)
}

/// The peer's address and the forwarded client that Apache has returned.
pub fn seen(response: &ClientResponse) -> (IpAddr, String) {
    let seen = response.field("seen").expect("Apache says it");
    let (from, client) = seen.split_once(' ').unwrap_or((seen, ""));
    (from.parse().expect("an address"), client.to_owned())
}

#[test]
fn workers_answer_stored_responses_and_forward_the_rest() {
    if skipped(
        "workers_answer_stored_responses_and_forward_the_rest",
        &["apache2"],
    ) {
        return;
    }
    let line = ServerLink::apache(&[3_000]);
    let own = line.ask(server_v4(80), line.page(0));
    assert_eq!(seen(&own), (CLIENT.0.into(), String::new()));
    let workers = Workers::start(&line.path.server, ALONE);
    let clients: [IpAddr; 2] = [CLIENT.0.into(), CLIENT.1.into()];
    for (server, client) in servers(80).into_iter().zip(clients) {
        let first = line.ask(server, line.page(0));
        assert_eq!((first.status, &first.body), (200, &own.body));
        let (from, forwarded) = seen(&first);
        assert_eq!(forwarded, client.to_string(), "Apache hears of the client");
        assert!(
            probe_source::is_probe_source(from),
            "{from}: it is asked as a stranger asks"
        );
        assert_eq!(first.field("age"), None);
        let again = line.ask(server, line.page(0));
        assert_eq!((again.status, &again.body), (200, &own.body));
        assert!(again.field("age").is_some(), "{}", again.head);

        let upload = content(SEED, 9, 200_000);
        let posted = line.path.client.enter(|| {
            let mut client = TestClient::connect(server);
            let len = upload.len();
            client.send(format!(
                "POST {UPLOAD} HTTP/1.1\r\nHost: test\r\nContent-Length: {len}\r\n\r\n"
            ));
            client.send(&upload);
            client.response()
        });
        assert_eq!(posted.text(), receipt(&upload));
    }
    // Pages that Apache shows only to its own machine are still denied to others and sent to that machine.
    assert_eq!(line.ask(server_v4(80), "/few").status, 403);
    let here = line
        .path
        .server
        .enter(|| send_request(server_v4(80), &get("/few")));
    assert_eq!(here.status, 404, "{}", here.head);

    let netns = line.path.server.path();
    let detach = ["detach", "80", "--netns", &netns];
    let said = line.path.server.run(PROGRAM, &detach).expect("detached");
    assert!(said.contains("released port 80"), "{said}");
    assert!(!workers.has_port());
    assert_eq!(workers.pid(), None);
    let own = line.ask(server_v4(80), line.page(0));
    assert_eq!(seen(&own), (CLIENT.0.into(), String::new()));
    assert_eq!(route_to_probe_address(&line.path.server), None);
}

/// Whether the workers intercept the IPv4 and the IPv6 address.
fn are_intercepted(line: &ServerLink) -> [bool; 2] {
    servers(80).map(|server| {
        line.ask(server, line.page(0));
        let again = line.ask(server, line.page(0));
        again.field("age").is_some()
    })
}

#[test]
fn addresses_that_reject_the_probe_address_are_not_intercepted() {
    if skipped(
        "addresses_that_reject_the_probe_address_are_not_intercepted",
        &["nginx", "nft"],
    ) {
        return;
    }
    let line = ServerLink::nginx(&[3_000], "expires 10m;");
    let server = &line.path.server;
    // The packet filter rejects the probe address only over IPv4.
    let rules = "add table inet t; add chain inet t in { type filter hook input priority 0; }; \
                 add rule inet t in ip saddr 203.0.113.254 reject with tcp reset";
    server.run("nft", &[rules]).expect("rules");
    let _workers = Workers::start(server, ALONE);
    assert_eq!(are_intercepted(&line), [false, true]);
    // Clients on the server's own machine are not affected.
    let direct = line.ask(server_v4(80), line.page(0));
    assert_eq!(
        TestPage::new(line.page(0), &direct.body),
        line.site.pages[0]
    );
}

#[test]
fn obstacles_to_interception_are_reported() {
    if skipped("obstacles_to_interception_are_reported", &[]) {
        return;
    }
    let namespace = NetNamespace::new("server").expect("a namespace");
    let netns = namespace.path();
    let refused = |options: &[&str], why: &str| {
        let arguments = [&["attach", "--netns", &netns], options].concat();
        let error = namespace
            .run(PROGRAM, &arguments)
            .expect_err("nothing to take");
        assert!(error.to_string().contains(why), "{error}");
    };
    refused(&["80", "--worker"], "nothing listens on port 80");
    refused(&["80", "81", "--worker"], "takes one port");
    refused(&["80", "--tier", "none"], "add --worker to intercept");
    refused(&["80", "--cache", "1M"], "--worker");
    let _listener = namespace
        .enter(|| TcpListener::bind("127.0.0.1:80"))
        .expect("a port");
    // Local connections can't be intercepted, and the server has no other address.
    refused(&["80", "--worker"], "there is nothing to intercept");
    assert_eq!(namespace.enter(lookup_programs), 0);
    assert_eq!(route_to_probe_address(&namespace), None);
}

#[test]
fn large_files_are_sent_completely() {
    if skipped("large_files_are_sent_completely", &["nginx"]) {
        return;
    }
    let line = ServerLink::nginx(&[10_000_000, 300_000], "expires 10m;");
    let _workers = Workers::start(&line.path.server, ALONE);
    for server in servers(80) {
        for page in &line.site.pages {
            for _ in 0..2 {
                let response = line.ask(server, &page.path);
                assert_eq!(response.status, 200, "{}", response.head);
                assert_eq!(TestPage::new(&page.path, &response.body), *page);
            }
        }
    }
    let again = line.ask(server_v4(80), line.page(1));
    assert!(again.field("age").is_some(), "{}", again.head);
}

#[test]
fn punted_requests_reach_the_workers() {
    if skipped("punted_requests_reach_the_workers", &["apache2"]) {
        return;
    }
    let line = ServerLink::apache(&[1_000, 300_000]);
    let _workers = Workers::start(&line.path.server, WITH_LEVEL);
    let level = SoftirqLevel::open(&pin_folder(&line.path.server, 80)).expect("a level");
    let count = |name: &str| {
        let reasons = lowroad_softirq::layout::REASONS.iter();
        let at = reasons.clone().position(|(reason, _)| *reason == name);
        level.counters().expect("counters")[at.expect("a reason's name")]
    };
    for server in servers(80) {
        // The level punts the request, and the workers answer it.
        let first = line.ask(server, line.page(1));
        assert_eq!(TestPage::new(line.page(1), &first.body), line.site.pages[1]);
        assert!(!seen(&first).1.is_empty(), "{}", first.head);
        let again = line.ask(server, line.page(1));
        assert!(again.field("age").is_some(), "{}", again.head);
        let hits = count("answer_hit");
        let hit = wait_until("a hit", || {
            let response = line.ask(server, line.page(0));
            (count("answer_hit") > hits).then_some(response)
        });
        assert_eq!(TestPage::new(line.page(0), &hit.body), line.site.pages[0]);
        // The level has fetched the response directly from Apache.
        assert_eq!(seen(&hit).1, "", "{}", hit.head);
    }
    assert!(count("tcp_handed") > 0);
    assert_eq!(count("tcp_no_listener"), 0);
}

/// The results of clients that send requests continuously.
#[derive(Default)]
struct Met {
    over: AtomicBool,
    /// Odd while a process is being killed.
    era: AtomicUsize,
    good: AtomicUsize,
    refused: AtomicUsize,
    /// Other failed connections, at times when no process was being killed.
    bad: AtomicUsize,
}

impl Met {
    /// Sends requests on new connections until the end.
    fn ask(&self, page: &str) {
        while !self.over.load(Ordering::Relaxed) {
            let era = self.era.load(Ordering::SeqCst);
            match exchange(page) {
                Ok(()) => _ = self.good.fetch_add(1, Ordering::Relaxed),
                // Not allowed even while a process is killed: the kernel then uses the server's listener.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                }
                // The connections of a killed process are lost, but no others.
                Err(_) if era.is_multiple_of(2) && self.era.load(Ordering::SeqCst) == era => {
                    self.bad.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => {}
            }
        }
    }

    fn killed(&self, pid: i32) {
        self.era.fetch_add(1, Ordering::SeqCst);
        kill(pid);
        self.era.fetch_add(1, Ordering::SeqCst);
    }

    fn more(&self) {
        let before = self.good.load(Ordering::Relaxed);
        wait_until("answers", || {
            (self.good.load(Ordering::Relaxed) > before + 50).then_some(())
        });
    }
}

fn exchange(page: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&server_v4(80), Duration::from_secs(20))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let request = format!("GET {page} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    let is_good = response.starts_with(b"HTTP/1.1 200 ");
    is_good
        .then_some(())
        .ok_or_else(|| ErrorKind::InvalidData.into())
}

/// Repeats an event while clients request a page that is too long for the level. Asserts that no connection is refused.
fn assert_no_refused_connections(
    options: &[&str],
    times: usize,
    happens: impl Fn(&mut Workers<'_>, &Met),
) {
    let line = ServerLink::apache(&[30_000]);
    let mut workers = Workers::start(&line.path.server, options);
    let met = Met::default();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| line.path.client.enter(|| met.ask(line.page(0))));
        }
        for _ in 0..times {
            met.more();
            happens(&mut workers, &met);
            // Apache answers immediately.
            met.more();
        }
        met.over.store(true, Ordering::Relaxed);
    });
    let [refused, bad] = [&met.refused, &met.bad].map(|count| count.load(Ordering::Relaxed));
    assert_eq!((refused, bad), (0, 0));
}

#[test]
fn killed_workers_leave_the_port_to_the_server() {
    if skipped("killed_workers_leave_the_port_to_the_server", &["apache2"]) {
        return;
    }
    // The supervisor restarts killed workers.
    assert_no_refused_connections(ALONE, 3, |workers, met| {
        met.killed(workers.wait_for_another(None))
    });
}

#[test]
fn killed_workers_with_level_refuse_no_connection() {
    if skipped(
        "killed_workers_with_level_refuse_no_connection",
        &["apache2"],
    ) {
        return;
    }
    assert_no_refused_connections(WITH_LEVEL, 2, |workers, met| {
        met.killed(workers.wait_for_another(None))
    });
}

#[test]
fn detach_of_workers_loses_no_request() {
    if skipped("detach_of_workers_loses_no_request", &["apache2"]) {
        return;
    }
    for options in [ALONE, WITH_LEVEL] {
        assert_no_refused_connections(options, 1, |workers, _| {
            let netns = workers.namespace.path();
            let detach = ["detach", "80", "--netns", &netns];
            let said = workers.namespace.run(PROGRAM, &detach).expect("detached");
            assert!(said.contains("released port 80"), "{said}");
            assert!(!workers.has_port());
            let ended = workers.program.child().wait().expect("a child of ours");
            assert!(ended.success(), "{ended}");
            assert_eq!(route_to_probe_address(workers.namespace), None);
        });
    }
}

#[test]
fn processes_end_with_their_supervisor() {
    if skipped("processes_end_with_their_supervisor", &["apache2"]) {
        return;
    }
    let line = ServerLink::apache(&[2_000]);
    let mut workers = Workers::start(&line.path.server, WITH_LEVEL);
    let place = pin_folder(&line.path.server, 80);
    // The supervisor is killed. Its children notice that by their sockets and by the parent-death signal.
    workers.program.child().kill().expect("a child of ours");
    wait_until("the end", || {
        (!workers.has_port() && workers.pid().is_none() && !place.exists()).then_some(())
    });
    let own = line.ask(server_v4(80), line.page(0));
    assert_eq!(seen(&own), (CLIENT.0.into(), String::new()));
}
