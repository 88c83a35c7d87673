//! Upgrades: a new process takes over, and no request fails. If it can't, the running process continues.

use std::fs::{self, Permissions};
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{TempFolder, TestClient, TestServer, skip, wait_until};

use super::{LARGE, PROGRAM, site};

/// Upgrades in a row.
const UPGRADES: usize = 100;

/// A server that is started from its own copy of the program, so that a test can replace the program.
pub(super) struct Upgradable {
    folder: TempFolder,
    pub(super) server: TestServer,
}

impl Upgradable {
    /// Starts a server for the folder, with these lines in `[server]` and after the site.
    pub(super) fn start(folder: TempFolder, server: &str, rest: &str) -> Upgradable {
        Upgradable::start_as("root", folder, server, rest)
    }

    fn start_as(user: &str, folder: TempFolder, server: &str, rest: &str) -> Upgradable {
        let program = folder.path().join("lowroad");
        copy_program(&program);
        let at = folder.path().display();
        let config = format!(
            "[server]\nworkers = 2\nuser = \"{user}\"\nadmin = \"{at}/admin\"\n{server}\n\
             [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{at}\"\n{rest}\n"
        );
        let server = TestServer::run(program.to_str().expect("UTF-8"), &folder, &config);
        Upgradable { folder, server }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command for the running server.
    fn command(&self, name: &str) -> Output {
        command(name, &self.path("admin"))
    }

    /// Upgrades the server. Returns the new process.
    pub(super) fn upgrade(&self) -> u32 {
        let output = self.command("upgrade");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{output:?}");
        let pid = text
            .strip_prefix("process ")
            .and_then(|rest| rest.split(' ').next());
        pid.and_then(|pid| pid.parse().ok()).expect("a process")
    }

    /// Replaces the program by a shell script.
    pub(super) fn replace_program(&self, script: &str) {
        let program = self.path("lowroad");
        // The running program's file can't be written to, but replaced; as in `copy_program`.
        let source = self.folder.file("script", format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(&source, Permissions::from_mode(0o755)).expect("a mode");
        let copied = Command::new("cp")
            .arg("--remove-destination")
            .arg(source)
            .arg(&program)
            .status();
        assert!(copied.expect("cp").success());
    }

    /// Requires an upgrade to fail with this reason, and the server to continue.
    fn fails_with(&self, reason: &str) {
        let output = self.command("upgrade");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{output:?}");
        assert!(text.contains("this process goes on"), "{text}");
        assert!(text.contains(reason), "{text}");
        assert_eq!(self.server.get("/small").text(), "hello");
        assert!(Path::new(&format!("/proc/{}", self.server.pid())).exists());
    }
}

/// Copies the program, by another process: a process that another test starts at the same time would inherit a descriptor
/// that is open for writing, and the kernel executes no file that is (ETXTBSY).
fn copy_program(to: &Path) {
    let copied = Command::new("cp").arg(PROGRAM).arg(to).status();
    assert!(copied.expect("cp").success());
}

/// Runs a command for the server with this admin socket.
fn command(name: &str, admin: &Path) -> Output {
    StatusClient::new(PROGRAM, admin).run(&[name])
}

impl Drop for Upgradable {
    fn drop(&mut self) {
        // The last successor is not a child of this process.
        self.command("stop");
    }
}

/// Sends requests until `is_over`. Returns the number of answered ones.
fn request_in_a_loop(
    address: std::net::SocketAddr,
    keep_alive: bool,
    is_over: &AtomicBool,
) -> usize {
    let mut answered = 0;
    let connection = if keep_alive { "keep-alive" } else { "close" };
    while !is_over.load(Relaxed) {
        let mut client = TestClient::connect(address);
        for used in 0.. {
            let (path, len) = [("small", 5), ("medium", 100_000), ("large", 2 << 20)][answered % 3];
            client.send(format!(
                "GET /{path} HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\n\r\n"
            ));
            let Some(response) = client.whole_response() else {
                // A server may close an idle connection while a request is on its way (RFC 9112, section 9.6): a client
                // that was not scheduled for the server's time for that.
                let is_idle = used > 0 && client.received.is_empty();
                assert!(is_idle, "request {used} of a connection failed");
                break;
            };
            assert_eq!((response.status, response.body.len()), (200, len));
            answered += 1;
            if response.field("connection") == Some("close") || is_over.load(Relaxed) {
                break;
            }
        }
    }
    answered
}

/// Ends the clients' loops, also if the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a_hundred_upgrades_under_load_fail_no_request() {
    let upgradable = Upgradable::start(site(), "", "");
    let address = upgradable.server.address();
    let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for keep_alive in [true, true, false] {
            let (is_over, answered) = (&is_over, &answered);
            scope.spawn(move || {
                let count = request_in_a_loop(address, keep_alive, is_over);
                answered.fetch_add(count, Relaxed);
            });
        }
        let _end = EndOnDrop(&is_over);
        let mut last = upgradable.server.pid();
        for _ in 0..UPGRADES {
            let next = upgradable.upgrade();
            assert_ne!(next, last);
            last = next;
        }
    });
    assert!(answered.load(Relaxed) > UPGRADES, "{answered:?}");
}

#[test]
fn predecessor_completes_its_responses() {
    let folder = site();
    folder.zeros("huge", LARGE as u64);
    let mut upgradable = Upgradable::start(folder, "", "");
    let mut client = upgradable.server.connect();
    client.send("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.receive_once());
    upgradable.upgrade();
    assert_eq!(upgradable.server.get("/small").text(), "hello");
    assert!(upgradable.server.is_running(), "a response is unfinished");
    let response = client.whole_response().expect("the whole response");
    assert_eq!(response.body.len(), LARGE);
    assert!(upgradable.server.wait_for_end().success());
    assert_eq!(
        TestClient::connect(upgradable.server.address())
            .get("/small", "")
            .status,
        200
    );
}

#[test]
fn failing_successor_changes_nothing() {
    let upgradable = Upgradable::start(site(), "upgrade_timeout = \"1s\"", "");
    let config = fs::read_to_string(upgradable.path("lowroad.toml")).expect("a file");
    fs::write(upgradable.path("lowroad.toml"), "[[site]]\nlisten = 1\n").expect("a file");
    upgradable.fails_with("root is missing");
    fs::write(upgradable.path("lowroad.toml"), &config).expect("a file");
    upgradable.replace_program("exit 3");
    upgradable.fails_with("has ended");
    upgradable.replace_program("exec sleep 1000");
    upgradable.fails_with("not ready after 1 s");
    upgradable.replace_program("echo '[]' >&0; echo nonsense >&0; exec sleep 1000");
    upgradable.fails_with("not ready after 1 s");
    // A successor that has opened its files, but waits for its application. Commands still reach the running server.
    fs::write(
        upgradable.path("lowroad.toml"),
        format!("{config}[[application]]\nname = \"a\"\ncommand = [\"sleep\", \"1000\"]\nready = \"http://127.0.0.1:1\"\n"),
    )
    .expect("a file");
    copy_program(&upgradable.path("lowroad"));
    upgradable.fails_with("not ready after 1 s");
    fs::write(upgradable.path("lowroad.toml"), &config).expect("a file");
    fs::remove_file(upgradable.path("lowroad")).expect("the program");
    upgradable.fails_with("can't start");
    let client = StatusClient::new(PROGRAM, upgradable.path("admin"));
    let text = client.command(&["status", "--json"]);
    assert!(text.contains("lowroad_upgrades_failed"), "{text}");
    // The failures have no lasting effect.
    copy_program(&upgradable.path("lowroad"));
    upgradable.upgrade();
}

#[test]
fn second_upgrade_and_reload_are_refused_during_an_upgrade() {
    let upgradable = Upgradable::start(site(), "upgrade_timeout = \"5s\"", "");
    let started = upgradable.path("started");
    upgradable.replace_program(&format!("touch {}; exec sleep 1000", started.display()));
    thread::scope(|scope| {
        let admin = upgradable.path("admin");
        let first = scope.spawn(move || command("upgrade", &admin));
        wait_until("the first one", || started.exists().then_some(()));
        for command in ["upgrade", "reload"] {
            let second = upgradable.command(command);
            let text = String::from_utf8_lossy(&second.stderr).into_owned();
            assert!(
                text.contains("an upgrade is in progress"),
                "{command}: {text}"
            );
        }
        assert!(!first.join().expect("its end").status.success());
    });
    assert_eq!(upgradable.server.get("/small").text(), "hello");
}

#[test]
fn end_of_the_server_ends_a_successor_that_starts() {
    let mut upgradable = Upgradable::start(site(), "", "");
    let started = upgradable.path("started");
    upgradable.replace_program(&format!("echo $$ > {}; exec sleep 1000", started.display()));
    let admin = upgradable.path("admin");
    thread::scope(|scope| {
        let upgrade = scope.spawn(move || command("upgrade", &admin));
        let pid = wait_until("the successor", || {
            let text = fs::read_to_string(&started).ok()?;
            text.trim().parse::<u32>().ok()
        });
        upgradable.server.signal("TERM");
        assert!(upgradable.server.wait_for_end().success());
        assert!(!upgrade.join().expect("its end").status.success());
        wait_until("its end", || {
            (!Path::new(&format!("/proc/{pid}/exe")).exists()).then_some(())
        });
    });
}

#[test]
fn linked_program_is_looked_up_again() {
    let folder = site();
    for version in ["v1", "v2"] {
        fs::create_dir(folder.path().join(version)).expect("a folder");
        copy_program(&folder.path().join(version).join("lowroad"));
    }
    let link = folder.path().join("current");
    symlink("v1", &link).expect("a link");
    let at = folder.path().display();
    let config = format!(
        "[server]\nuser = \"root\"\nadmin = \"{at}/admin\"\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{at}\"\n"
    );
    let program = link.join("lowroad");
    let server = TestServer::run(program.to_str().expect("UTF-8"), &folder, &config);
    let upgradable = Upgradable { folder, server };
    fs::remove_file(&link).expect("the link");
    symlink("v2", &link).expect("a link");
    let pid = upgradable.upgrade();
    let program = fs::read_link(format!("/proc/{pid}/exe")).expect("it runs");
    assert!(program.ends_with("v2/lowroad"), "{}", program.display());
}

#[test]
fn new_configuration_and_other_workers_are_in_force_afterwards() {
    let upgradable = Upgradable::start(site(), "", "");
    let config = fs::read_to_string(upgradable.path("lowroad.toml")).expect("a file");
    for workers in [1, 3, 2] {
        let changed = config.replace("workers = 2", &format!("workers = {workers}"));
        fs::write(upgradable.path("lowroad.toml"), changed).expect("a file");
        upgradable.upgrade();
        // Each socket of the kernel's group has an owner: otherwise some of these would wait.
        for _ in 0..20 {
            assert_eq!(upgradable.server.get("/small").text(), "hello");
        }
        let status = upgradable.command("status");
        let text = String::from_utf8_lossy(&status.stdout).into_owned();
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with("workers"));
        let count = line.and_then(|line| line.split_whitespace().last());
        assert_eq!(count, Some(&*workers.to_string()), "{text}");
    }
}

#[test]
fn server_without_rights_starts_a_successor_with_them() {
    let name = "server_without_rights_starts_a_successor_with_them";
    if !rustix::process::geteuid().is_root() {
        return skip(name, "not root");
    }
    // Only root can read the key of each process's listener.
    let folder = site();
    let made = rcgen::generate_simple_self_signed(["s.test".to_owned()]).expect("a certificate");
    folder.file("cert.pem", made.cert.pem());
    let key = folder.file("key.pem", made.signing_key.serialize_pem());
    fs::set_permissions(key, Permissions::from_mode(0o600)).expect("a mode");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("a mode");
    let tls = "[site.tls]\nlisten = \"127.0.0.2:0\"\ncertificate = \"cert.pem\"\nkey = \"key.pem\"";
    let upgradable = Upgradable::start_as("nobody", folder, "", tls);
    for _ in 0..2 {
        let pid = upgradable.upgrade();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let uid = status.lines().find(|line| line.starts_with("Uid:"));
        let nobody = nix::unistd::User::from_name("nobody")
            .ok()
            .flatten()
            .expect("a user");
        let uid = uid.and_then(|line| line.split_whitespace().nth(1));
        assert_eq!(uid, Some(&*nobody.uid.to_string()));
        assert_eq!(upgradable.server.get("/small").text(), "hello");
    }
    // Another user could replace the program.
    chown(upgradable.path("lowroad"), Some(65534), None).expect("an owner");
    upgradable.fails_with("other users can change");
}

#[test]
fn tls_sessions_are_resumed() {
    let folder = site();
    let made = rcgen::generate_simple_self_signed(["s.test".to_owned()]).expect("a certificate");
    folder.file("cert.pem", made.cert.pem());
    folder.file("key.pem", made.signing_key.serialize_pem());
    let tls = "[site.tls]\nlisten = \"127.0.0.2:0\"\ncertificate = \"cert.pem\"\nkey = \"key.pem\"";
    let upgradable = Upgradable::start(folder, "", tls);
    let secure = upgradable.server.addresses.iter();
    let secure = secure
        .copied()
        .find(|address| address.ip().to_string() == "127.0.0.2");
    let address = secure.expect("an address with TLS").to_string();
    let session = upgradable.path("session");
    let connect = |option: &str| {
        let mut client = Command::new("openssl");
        client
            .args([
                "s_client",
                "-tls1_2",
                "-connect",
                &address,
                "-servername",
                "s.test",
            ])
            .arg(option)
            .arg(&session)
            .stdin(Stdio::null());
        let output = client.output().expect("openssl");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(connect("-sess_out").contains("New, TLSv1.2"));
    upgradable.upgrade();
    let resumed = connect("-sess_in");
    assert!(resumed.contains("Reused, TLSv1.2"), "{resumed}");
}

#[test]
fn disk_cache_passes_to_the_successor() {
    let origin = TestOrigin::with_response(|_| {
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Length: 2\r\n\r\nhi".into()
    });
    let folder = site();
    let cache = folder.path().join("cache");
    let upgradable = Upgradable::start(
        folder,
        &format!(
            "disk_cache = \"{}\"\ndisk_cache_max = \"64M\"",
            cache.display()
        ),
        &format!(
            "[[site.route]]\npattern = \"/o/**\"\norigin = \"{}\"",
            origin.url()
        ),
    );
    assert_eq!(upgradable.server.get("/o/a").text(), "hi");
    // A response is copied to the disk once it is used.
    wait_until("a copy on disk", || {
        upgradable.server.get("/o/a");
        let status = upgradable.command("status");
        let text = String::from_utf8_lossy(&status.stdout).into_owned();
        let line = text.lines().find(|line| line.contains("disk_stored"));
        line.filter(|line| !line.ends_with(" 0")).map(drop)
    });
    let fetched = origin.count();
    upgradable.upgrade();
    assert_eq!(upgradable.server.get("/o/a").text(), "hi");
    assert_eq!(origin.count(), fetched, "the response comes from the disk");
    let errors = upgradable.command("status");
    let text = String::from_utf8_lossy(&errors.stdout).into_owned();
    let line = text.lines().find(|line| line.contains("disk_errors"));
    assert!(line.is_some_and(|line| line.ends_with(" 0")), "{text}");
}

#[test]
fn application_is_used_until_the_predecessor_has_ended() {
    let folder = site();
    // The application responds with its process ID.
    let script = folder.file(
        "application.py",
        "import http.server, os, sys\n\
         class Handler(http.server.BaseHTTPRequestHandler):\n\
         \x20   def do_GET(self):\n\
         \x20       text = str(os.getpid()).encode()\n\
         \x20       self.send_response(200)\n\
         \x20       self.send_header('Content-Length', str(len(text)))\n\
         \x20       self.send_header('Cache-Control', 'no-store')\n\
         \x20       self.end_headers()\n\
         \x20       self.wfile.write(text)\n\
         http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()\n",
    );
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port")
        .port();
    folder.zeros("huge", LARGE as u64);
    let rest = format!(
        "[[site.route]]\npattern = \"/o/**\"\norigin = \"http://127.0.0.1:{port}\"\n\
         [[application]]\nname = \"a\"\ncommand = [\"python3\", \"{}\", \"{port}\"]\n\
         ready = \"http://127.0.0.1:{port}\"",
        script.display()
    );
    let mut upgradable = Upgradable::start(folder, "", &rest);
    let first = upgradable.server.get("/o/a").text();
    let mut client = upgradable.server.connect();
    client.send("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.receive_once());
    upgradable.upgrade();
    assert_eq!(upgradable.server.get("/o/a").text(), first);
    assert_eq!(client.whole_response().map(|it| it.body.len()), Some(LARGE));
    upgradable.server.wait_for_end();
    wait_until("an application of the successor", || {
        let response = upgradable.server.get("/o/a");
        (response.status == 200 && response.text() != first).then_some(())
    });
}

#[test]
fn maintenance_mode_outlives_the_process() {
    let upgradable = Upgradable::start(site(), "", "");
    let switch = |mode: &str| {
        StatusClient::new(PROGRAM, upgradable.path("admin")).command(&["maintenance", mode]);
    };
    switch("on");
    upgradable.upgrade();
    assert_eq!(upgradable.server.get("/small").status, 503);
    switch("off");
    upgradable.upgrade();
    assert_eq!(upgradable.server.get("/small").status, 200);
}

#[test]
fn signal_upgrades_and_the_service_manager_learns_the_process() {
    let folder = site();
    let notify = folder.path().join("notify");
    let socket = UnixDatagram::bind(&notify).expect("a socket");
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a timeout");
    let program = folder.path().join("lowroad");
    copy_program(&program);
    let at = folder.path().display();
    let config = folder.file(
        "lowroad.toml",
        format!("[server]\nuser = \"root\"\nadmin = \"{at}/admin\"\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{at}\"\n"),
    );
    let mut command = Command::new(program);
    command
        .args(["run", "-c"])
        .arg(config)
        .env("NOTIFY_SOCKET", &notify);
    let server = TestServer::spawn(command);
    let upgradable = Upgradable { folder, server };
    let next = || {
        let mut buffer = [0; 1000];
        let len = socket.recv(&mut buffer).expect("a notification");
        String::from_utf8_lossy(&buffer[..len]).trim().to_owned()
    };
    assert_eq!(next(), "READY=1");
    upgradable.server.signal("USR2");
    let main = next();
    let pid = main
        .strip_prefix("MAINPID=")
        .expect("the new process")
        .to_owned();
    assert_ne!(pid, upgradable.server.pid().to_string());
    assert_eq!(next(), "READY=1");
    let mut status = String::new();
    fs::File::open(format!("/proc/{pid}/comm"))
        .and_then(|mut file| file.read_to_string(&mut status))
        .expect("it runs");
    assert_eq!(status.trim(), "lowroad");
}

#[test]
fn sticky_sessions_continue() {
    let named = |name: &'static str| {
        TestOrigin::with_response(move |_| {
            format!("HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 1\r\n\r\n{name}")
        })
    };
    let origins = [named("a"), named("b"), named("c")];
    let urls: Vec<String> = origins.iter().map(TestOrigin::url).collect();
    let rest = format!(
        "[[site.route]]\npattern = \"/**\"\norigin = \"app\"\n[[origin]]\nname = \"app\"\nservers = {urls:?}\nsticky = true\n"
    );
    let upgradable = Upgradable::start(site(), "", &rest);
    let first = upgradable.server.connect().get("/", "");
    let cookie = first
        .field("set-cookie")
        .and_then(|line| line.split(';').next());
    let fields = format!("Cookie: {}\r\n", cookie.expect("a cookie"));
    // An operator's changes continue as well.
    let server = first.text();
    let index = ["a", "b", "c"].iter().position(|name| *name == server);
    let address = urls[index.expect("an origin")].trim_start_matches("http://");
    let client = StatusClient::new(PROGRAM, upgradable.path("admin"));
    let origin = |arguments: &[&str]| client.command(&[&["origin"], arguments].concat());
    let denied = client.command(&["deny", "add", "192.0.2.0/24", "--for", "1h"]);
    client.command(&["deny", "add", "127.0.0.9"]);
    origin(&["weight", "app", address, "5"]);
    let drained = origin(&["drain", "app", address]);
    upgradable.upgrade();
    let listed = origin(&["list"]);
    let state = drained.split(", ").next().expect("a state");
    assert!(
        listed.contains(state) && listed.contains("weight 5 (configured: 1)"),
        "{listed}"
    );
    let list = client.command(&["deny", "list"]);
    assert_eq!(list, format!("127.0.0.9\n{denied}"));
    let from = std::net::IpAddr::from([127, 0, 0, 9]);
    let mut refused = TestClient::connect_from(from, upgradable.server.address());
    refused.wait_for_close();
    assert!(refused.received.is_empty());
    for _ in 0..6 {
        assert_ne!(upgradable.server.connect().get("/", "").text(), server);
    }
    for _ in 0..3 {
        let next = upgradable.server.connect().get("/", &fields);
        assert_eq!(
            (next.text(), next.field("set-cookie")),
            (first.text(), None)
        );
    }
}
