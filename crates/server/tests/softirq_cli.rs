//! What operators see of the level in front of a port: status, top, explain, purge and doctor, in
//! network namespaces of their own. What the level answers is tested elsewhere.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output, Stdio};

use lowroad_testkit::net::{self, CLIENT, DEVICE, End, Namespace, Program, SERVER};
use lowroad_testkit::{Client, Folder, Response, Server, skip, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
const PORT: u16 = 8080;
const HOST: &str = "10.77.0.2:8080";

/// A client and a server with a cable between them, our own server at its port and a level before it.
struct Place {
    // Ends before the server and the namespaces do.
    attached: Program,
    _server: Server,
    client: Namespace,
    server: Namespace,
    folder: Folder,
}

impl Place {
    fn new(options: &[&str]) -> Place {
        let client = Namespace::new("client").expect("a namespace");
        let server = Namespace::new("server").expect("a namespace");
        connect(&client, &server, 1500);
        let folder = Folder::new();
        folder.file("small", "hello");
        folder.file("other", "other");
        folder.file("large", vec![b'l'; 3000]);
        let mut serve = Command::new(PROGRAM);
        serve.args(["serve", "--listen"]).arg(format!("*:{PORT}"));
        serve.arg(folder.path()).stdin(Stdio::null());
        server.prepare(&mut serve);
        let place = Place {
            _server: Server::spawn(serve),
            attached: attach(&server, options),
            client,
            server,
            folder,
        };
        wait_until("the daemon's first sign of life", || {
            let text = place.say(&["status"]);
            (!text.contains("never heard of")).then_some(())
        });
        place
    }

    fn get(&self, path: &str, fields: &str) -> Response {
        let address = SocketAddr::from((SERVER.0, PORT));
        let stream = self.client.enter(|| TcpStream::connect(address));
        let fields = format!("Host: {HOST}\r\n{fields}");
        let mut client = Client::new(stream.expect("a connection"));
        client.send(format!("GET {path} HTTP/1.1\r\n{fields}\r\n"));
        client.response()
    }

    /// Asks until the level answers.
    fn warm(&self, path: &str) {
        wait_until("an answer of the level", || {
            self.get(path, "").field("age").map(drop)
        });
    }

    fn counter(&self, reason: &str) -> u64 {
        let json = self.say(&["status", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let count = &json["levels"][0]["counters"][reason];
        count.as_u64().expect("a counter")
    }

    fn say(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        command.output().expect("the program starts")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(arguments)
            .args(["--netns", &self.server.path()]);
        command.stdin(Stdio::null());
        command
    }

    /// The daemon dies without a word.
    fn kill(&mut self) {
        self.attached.child().kill().expect("a child of ours");
        self.attached.child().wait().expect("a child of ours");
    }
}

/// A cable between the two.
fn connect(client: &Namespace, server: &Namespace, mtu: u16) {
    let end = |namespace, addresses| End {
        namespace,
        device: DEVICE,
        addresses: Some(addresses),
    };
    net::pair(&end(client, CLIENT), &end(server, SERVER), mtu).expect("a cable");
}

/// Waits until it is attached.
fn attach(namespace: &Namespace, options: &[&str]) -> Program {
    attach_by(PROGRAM, namespace, options)
}

fn attach_by(program: &str, namespace: &Namespace, options: &[&str]) -> Program {
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
        // Else pins would be left behind: no kernel removes them with the namespace.
        let port = PORT.to_string();
        let _ = self.output(&["detach", &port, "--drain", "1"]);
    }
}

/// Whether the test can run; notes it if not.
fn can_run(test: &str) -> bool {
    if let Some(reason) = net::lacks() {
        skip(test, &reason);
        return false;
    }
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        skip(test, "the kernel has no BTF");
        return false;
    }
    true
}

#[test]
fn status_shows_levels_and_their_counters() {
    if !can_run("status_shows_levels_and_their_counters") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    place.warm("/small");
    place.get("/small", "Cookie: a=b\r\n");
    let text = place.say(&["status"]);
    for part in [
        "ports                  8080\n",
        "eth0, TC ingress",
        "mode                   serving",
        "answer_hit         a stored response",
        "up_cookie          a Cookie",
        "published              1 of 4,096",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let pid = format!("process {}, heard of", place.attached.pid());
    assert!(text.contains(&pid), "{text}");
    let json = place.say(&["status", "--json", "--stats"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let level = &json["levels"][0];
    assert_eq!(level["ports"][0], 8080);
    assert_eq!(level["daemon"]["alive"], true);
    assert_eq!(level["published"]["now"], 1);
    assert!(
        level["counters"]["answer_hit"].as_u64() >= Some(1),
        "{json}"
    );
    assert_eq!(level["runs"][0]["link"], "tc-eth0");
}

#[test]
fn what_is_purged_is_not_answered_again() {
    if !can_run("what_is_purged_is_not_answered_again") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    place.warm("/small");
    place.warm("/other");
    let url = format!("http://{HOST}/small");
    assert_eq!(place.say(&["purge", &url]), "purged 1 response\n");
    // The server above gives no Age.
    assert_eq!(place.get("/small", "").field("age"), None);
    place.warm("/small");
    let nothing = "nothing of it was published\n";
    assert_eq!(place.say(&["purge", "http://another/*"]), nothing);
    place.warm("/other");
    let prefix = format!("{HOST}/*");
    let other = place.say(&["purge", &prefix, "--port", "8080"]);
    assert!(other.starts_with("purged "), "{other}");
    assert_eq!(place.get("/other", "").field("age"), None);
    let wrong = place.output(&["purge", "all", "--port", "81"]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        !wrong.status.success() && said.contains("nothing is attached to port 81"),
        "{said}"
    );
}

#[test]
fn explain_says_who_answers_and_why() {
    if !can_run("explain_says_who_answers_and_why") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    let url = |path: &str| format!("http://{HOST}{path}");
    let text = place.say(&["explain", &url("/small")]);
    assert!(
        text.contains("not now: it is published when it is asked for again"),
        "{text}"
    );
    assert!(text.contains("60 s, by --ttl"), "{text}");
    place.warm("/small");
    let text = place.say(&["explain", &url("/small")]);
    assert!(text.contains("yes, from the segment that asks"), "{text}");
    let text = place.say(&["explain", &url("/small"), "-H", "Accept-Encoding: br"]);
    assert!(text.contains("published also for"), "{text}");
    let text = place.say(&["explain", &url("/large")]);
    assert!(text.contains("at most 1460"), "{text}");
    let text = place.say(&["explain", &url("/small"), "-H", "Cookie: a=b"]);
    assert!(
        text.contains("no: a Cookie (Cookie: a=b): handed up"),
        "{text}"
    );
}

#[test]
fn explain_gives_the_reasons_that_the_programs_count() {
    if !can_run("explain_gives_the_reasons_that_the_programs_count") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    place.warm("/small");
    for (reason, said, field) in [
        ("answer_hit", "yes, from the segment", "Accept: */*"),
        ("up_miss", "not now", "Accept-Encoding: x"),
        ("up_cookie", "a Cookie", "COOKIE: a"),
        ("up_field", "(Range: ", "Range: bytes=0-1"),
        ("up_field", "(Authorization: ", "Authorization: x"),
        ("up_field", "(Cache-Control: ", "Cache-Control: max-age=0"),
        (
            "up_field",
            "(If-Unmodified-Since: ",
            "If-Unmodified-Since: x",
        ),
        ("up_field", "(HTTP2-Settings: ", "HTTP2-Settings: x"),
        ("up_field", "(Connection: ", "Connection: foo"),
        ("up_host", "no Host, or several", "Host: b"),
        ("up_syntax", "(X_Y: z)", "X_Y: z"),
        ("answer_hit", "yes, from the segment", "X-Y: z"),
    ] {
        let before = place.counter(reason);
        place.get("/small", &format!("{field}\r\n"));
        assert_eq!(place.counter(reason), before + 1, "{field}");
        let url = format!("{HOST}/small");
        let text = place.say(&["explain", &url, "-H", field]);
        assert!(text.contains(said), "{field}: {text}");
    }
}

#[test]
fn without_a_lifetime_explain_says_so() {
    if !can_run("without_a_lifetime_explain_says_so") {
        return;
    }
    let place = Place::new(&[]);
    let text = place.say(&["explain", &format!("{HOST}/missing")]);
    assert!(
        text.contains("no: the response gives no lifetime"),
        "{text}"
    );
}

#[test]
fn top_writes_a_block_per_interval() {
    if !can_run("top_writes_a_block_per_interval") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    place.warm("/small");
    let text = place.say(&["top", "--count", "2", "--interval", "0.1"]);
    assert_eq!(text.matches("hit share").count(), 2, "{text}");
    assert!(text.contains("http://10.77.0.2:8080/small"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn doctor_judges_machine_interface_and_port() {
    if !can_run("doctor_judges_machine_interface_and_port") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    let text = place.say(&["doctor", "--port", "8080"]);
    for part in [
        "eth0: native XDP",
        "eth0: TC ingress",
        "port 8080",
        "veth leaves no room",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let text = place.say(&["doctor", "--interface", DEVICE, "--try"]);
    assert!(text.contains("tried"), "{text}");
    place
        .server
        .set("ipv4/tcp_syncookies", "0")
        .expect("root may");
    let output = place.output(&["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success(), "{text}");
    assert!(
        text.contains("sysctl -w net.ipv4.tcp_syncookies=1"),
        "{text}"
    );
}

#[test]
fn where_nothing_is_attached_the_commands_say_so() {
    if !can_run("where_nothing_is_attached_the_commands_say_so") {
        return;
    }
    let namespace = Namespace::new("empty").expect("a namespace");
    for command in [&["purge", "all"][..], &["status"], &["top", "--count", "1"]] {
        let mut lowroad = Command::new(PROGRAM);
        lowroad.args(command).args(["--netns", &namespace.path()]);
        let output = lowroad.output().expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{command:?}");
        assert!(
            said.contains("nothing is attached here"),
            "{command:?}: {said}"
        );
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    if !can_run("a_reader_that_has_seen_enough_is_no_error") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    place.warm("/small");
    let url = format!("http://{HOST}/small");
    for arguments in [
        &["explain", &url][..],
        &["status"],
        &["status", "--json"],
        &["top", "--count", "2", "--interval", "0.1"],
        &["doctor"],
        &["purge", "all"],
        &["detach", "8080", "--drain", "1"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = place.command(arguments);
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn();
        let output = child.and_then(std::process::Child::wait_with_output);
        let output = output.expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && said.is_empty(),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn a_new_daemon_denies_what_it_is_told_and_no_more() {
    if !can_run("a_new_daemon_denies_what_it_is_told_and_no_more") {
        return;
    }
    let mut place = Place::new(&["--ttl", "60", "--deny", "10.77.0.1/24"]);
    for _ in 0..5 {
        assert_eq!(place.get("/small", "").field("age"), None);
    }
    assert!(place.counter("pass_denied") >= 5);
    place.kill();
    place.attached = attach(&place.server, &["--ttl", "60", "--deny", "192.0.2.0/24"]);
    place.warm("/small");
}

#[test]
fn an_interface_that_is_made_anew_is_attached_to() {
    if !can_run("an_interface_that_is_made_anew_is_attached_to") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    place.warm("/small");
    let gone = place.server.run("ip", &["link", "delete", DEVICE]);
    gone.expect("the cable is cut");
    connect(&place.client, &place.server, 1400);
    place.warm("/small");
    // It may be shorter, and become so while the level is there.
    let pinned = place
        .server
        .enter(|| lowroad_softirq::folder::of_port(PORT));
    let level = lowroad_softirq::Level::open(&pinned.expect("a folder")).expect("a level");
    for mtu in [1400, 1300] {
        let set = ["link", "set", DEVICE, "mtu", &mtu.to_string()];
        place.server.run("ip", &set).expect("an MTU");
        wait_until("the MTU", || (level.control().mtu == mtu).then_some(()));
    }
}

#[test]
fn the_daemon_has_what_it_needs_and_is_known_by_its_lock() {
    if !can_run("the_daemon_has_what_it_needs_and_is_known_by_its_lock") {
        return;
    }
    let mut place = Place::new(&["--ttl", "60"]);
    place.kill();
    // The name of its program does not matter.
    let other = place.folder.path().join("renamed");
    std::os::unix::fs::symlink(PROGRAM, &other).expect("a link");
    let other = other.to_str().expect("a plain path");
    place.attached = attach_by(other, &place.server, &["--ttl", "60"]);
    place.warm("/small");
    let pid = place.attached.pid();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    // CAP_NET_ADMIN is 12, CAP_PERFMON 38, CAP_BPF 39.
    let kept = format!("{:016x}", 1u64 << 12 | 1 << 38 | 1 << 39);
    for line in [
        format!("CapEff:\t{kept}\n"),
        format!("CapBnd:\t{kept}\n"),
        "NoNewPrivs:\t1\n".into(),
    ] {
        assert!(status.contains(&line), "{line} in\n{status}");
    }
    let second = place.output(&["attach", "8080", "-i", DEVICE]);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    let expected = format!("process {pid} is attached there already");
    assert!(said.contains(&expected), "{said}");
    assert_eq!(place.say(&["detach", "8080"]), "detached\n");
    let end = place.attached.child().wait().expect("a child of ours");
    assert!(end.success(), "{end}");
}
