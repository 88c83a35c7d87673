//! Attaching while an earlier level is ending: the new process reports that and waits, and clients of the old level
//! lose no response.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use lowroad_softirq::layout::MODE_DRAIN;
use lowroad_softirq::level::SoftirqLevel;
use lowroad_testkit::net::servers::{UPLOAD, receipt};
use lowroad_testkit::net::{
    DEVICE, LinkMangling, NamespaceProgram, NetNamespace, TestPath, TestSite, WebServer,
};
use lowroad_testkit::{TestClient, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use crate::attached::{Attached, get, pin_folder, server_v4};
use crate::skipped;
use crate::worker::{ALONE, PROGRAM, ServerLink, Workers};

/// The message of a process that waits.
const WAITS: &str = "is detaching there; waiting for its end";

fn interrupt(child: &Child) {
    let pid = Pid::from_child(child);
    kill_process(pid, Signal::INT).expect("a child of ours");
}

/// Attaches, and returns when the process waits for the end of another one.
fn attach_and_wait(namespace: &NetNamespace, options: &[&str]) -> NamespaceProgram {
    let mut command = Command::new(PROGRAM);
    command.args(["attach", "80", "--netns", &namespace.path()]);
    command.args(options).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut program = namespace.spawn(command).expect("it starts");
    let mut said = BufReader::new(program.child().stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.contains(WAITS) {
        line.clear();
        let len = said.read_line(&mut line).expect("a line");
        assert!(len > 0, "it ended, and did not wait");
    }
    // The process prints more later, and must not block.
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    program
}

#[test]
fn attach_waits_for_the_end_of_a_level() {
    if skipped("attach_waits_for_the_end_of_a_level", &["nginx"]) {
        return;
    }
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let site = TestSite::new(31, &[500]);
    let _nginx = WebServer::nginx(&path.server, &site, 80, "expires 10m;").expect("nginx");
    // The drain timeout is long enough for a loaded machine; the process ends when its connection does.
    let mut old = Attached::start(&path.server, 80, &["--drain", "300"]);
    let page = get(&site.pages[0].path);
    old.warm(&path.client, server_v4(80), &page);
    let mut client = path.client.enter(|| TestClient::connect(server_v4(80)));
    client.send(&page);
    assert_eq!(client.response().status, 200);
    interrupt(old.program());
    wait_until("the drain", || {
        (old.level.control().mode == MODE_DRAIN).then_some(())
    });
    let mut new = attach_and_wait(&path.server, &["--interface", DEVICE]);
    drop(client);
    let pid = new.child().id();
    wait_until("the new level", || {
        let ended = new.child().try_wait().expect("a child of ours");
        assert_eq!(ended, None, "it ended");
        let level = SoftirqLevel::open(&pin_folder(&path.server, 80)).ok()?;
        (level.control().pid == pid).then_some(())
    });
    let detach = ["detach", "80", "--netns", &path.server.path()];
    path.server.run(PROGRAM, &detach).expect("detached");
}

#[test]
fn attach_waits_for_the_end_of_workers() {
    if skipped("attach_waits_for_the_end_of_workers", &["nginx"]) {
        return;
    }
    let line = ServerLink::nginx(&[2_000], "");
    let server = &line.path.server;
    let mut old = Workers::start(server, &[ALONE, &["--drain", "300"]].concat());
    let mut client = line
        .path
        .client
        .enter(|| TestClient::connect(server_v4(80)));
    client.send(format!(
        "POST {UPLOAD} HTTP/1.1\r\nHost: test\r\nContent-Length: 6\r\nExpect: 100-continue\r\n\r\n"
    ));
    // The workers now have a request in progress.
    assert_eq!(client.response().status, 100);
    interrupt(old.program());
    wait_until("the port", || (!old.has_port()).then_some(()));
    let mut new = attach_and_wait(server, &[&["--worker"], ALONE].concat());
    client.send("abcdef");
    assert_eq!(client.response().text(), receipt(b"abcdef"));
    drop(client);
    wait_until("the new workers", || {
        let ended = new.child().try_wait().expect("a child of ours");
        assert_eq!(ended, None, "it ended");
        old.has_port().then_some(())
    });
    let detach = ["detach", "80", "--netns", &server.path()];
    server.run(PROGRAM, &detach).expect("detached");
}
