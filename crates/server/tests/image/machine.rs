//! A site as a virtual machine in QEMU.

use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use lowroad_testkit::net::is_installed;
use lowroad_testkit::{TempFolder, TestClient, skip};

use crate::place::{PROGRAM, RunningCommand, image};

/// The address that QEMU's user network assigns.
pub const IP: &str = "10.0.2.15/24,10.0.2.2";

/// Whether QEMU is installed; if not, reports a skip.
pub fn can_run(test: &str) -> bool {
    let can_run = cfg!(target_arch = "x86_64") && is_installed("qemu-system-x86_64");
    if !can_run {
        skip(test, "there is no qemu-system-x86_64, or no kernel for it");
    }
    can_run
}

/// A port without a listener.
pub fn free_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("it has one")
}

fn serves_and_stops(machine: &str, ip: &str) {
    let site = TempFolder::new();
    site.file("index.html", "a machine of its own");
    let port = free_port();
    let mut command = Command::new(PROGRAM);
    command.args(["image", "run", "--ip", ip, "--machine", machine]);
    command.args(["--port", &port.to_string()]).arg(site.path());
    let running = RunningCommand::start(command);
    running.wait_for(&format!("http://{port}/"));
    running.wait_for("http://10.0.2.15/");
    let mut client = TestClient::connect(port);
    assert_eq!(client.get("/", "").text(), "a machine of its own");
    assert_eq!(client.get("/none", "").status, 404);
    drop(client);
    assert!(running.stop().success());
}

#[test]
fn pc_serves_and_stops_at_power_button() {
    if can_run("pc_serves_and_stops_at_power_button") {
        serves_and_stops("q35", "dhcp");
    }
}

#[test]
fn microvm_serves_and_is_ended() {
    if can_run("microvm_serves_and_is_ended") {
        serves_and_stops("microvm", IP);
    }
}

/// Between two attempts to connect to the database, the image waits for seconds. In the meantime, a page fails
/// immediately instead of after its timeout of 15 s (504).
#[test]
fn page_fails_immediately_while_database_is_unreachable() {
    if !can_run("page_fails_immediately_while_database_is_unreachable") {
        return;
    }
    let site = TempFolder::new();
    site.file(
        "page.lrp",
        "{% for x in query('SELECT 1') %}{{ x }}{% endfor %}",
    );
    let (port, nobody) = (free_port(), free_port().port());
    let url = format!("mysql://user:word@10.0.2.2:{nobody}/name");
    let mut command = Command::new(PROGRAM);
    command.args(["image", "run", "--accel", "tcg", "--ip", IP]);
    command.args(["--database", &url, "--port", &port.to_string()]);
    let running = RunningCommand::start({
        command.arg(site.path());
        command
    });
    running.wait_for("http://10.0.2.15/");
    // The wait doubles with each attempt.
    for _ in 0..7 {
        running.wait_for("the connection was refused or lost");
    }
    let mut client = TestClient::connect(port);
    assert_eq!(client.get("/page.lrp", "").status, 503);
    drop(client);
    assert!(running.stop().success());
}

#[test]
fn file_that_is_not_an_image_is_refused() {
    for (more, said) in [
        (&["/etc/passwd"][..], "not an image of a site"),
        (&["/nowhere"], "No such file"),
        (
            &["/etc/passwd", "--status-from", "10.0.0.0/8"],
            "are only for a folder",
        ),
    ] {
        let refused = image(&[&["run"], more].concat()).expect_err("it is none");
        assert!(refused.contains(said), "{refused}");
    }
}
