//! A virtual machine in QEMU with two processors and a queue for each. Exactly one core answers each connection,
//! whichever core receives its frames.

use std::process::Command;

use lowroad_testkit::net::NetNamespace;
use lowroad_testkit::{TempFolder, TestClient};

use crate::hosted::{self, IMAGE, IP};
use crate::machine;
use crate::place::{PROGRAM, RunningCommand};

const CONNECTIONS: usize = 100;
const ROUNDS: usize = 3;

/// The value of a counter of the image.
fn count(status: &str, name: &str) -> usize {
    let line = status
        .lines()
        .find(|line| line.split_whitespace().next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in {status}"));
    let number = line
        .split_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn two_processors_answer_all_connections() {
    let test = "two_processors_answer_all_connections";
    if !machine::can_run(test) || !hosted::can_run(test) {
        return;
    }
    let site = TempFolder::new();
    let short: Vec<String> = (0..7).map(|n| format!("file {n}").repeat(20 + n)).collect();
    for (n, text) in short.iter().enumerate() {
        site.file(format!("{n}.txt"), text);
    }
    let long: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    site.file("long.bin", &long);
    let namespace = NetNamespace::new("cores").expect("root may");
    let mut command = Command::new(PROGRAM);
    command.args(["image", "run", "--tap", "tap0", "--ip", IP, "--cores", "2"]);
    command.args(["--accel", "tcg", "--status-from", "198.18.0.1"]);
    command.arg(site.path());
    namespace.prepare(&mut command);
    let running = RunningCommand::start(command);
    running.wait_for("lowroad: 2 cores");
    // The command prints the URL first, the image prints it when it is ready.
    running.wait_for("http://198.18.0.2/");
    namespace.enter(|| {
        let mut clients: Vec<TestClient> = (0..CONNECTIONS)
            .map(|_| TestClient::connect(IMAGE))
            .collect();
        for round in 0..ROUNDS {
            for (n, client) in clients.iter_mut().enumerate() {
                let file = (n + round) % short.len();
                client.send(format!("GET /{file}.txt HTTP/1.1\r\nHost: test\r\n\r\n"));
            }
            for (n, client) in clients.iter_mut().enumerate() {
                let response = client.response();
                let file = (n + round) % short.len();
                assert_eq!(response.status, 200);
                assert_eq!(response.text(), short[file]);
            }
        }
        for client in clients.iter_mut().take(20) {
            assert!(client.get("/long.bin", "").body == long);
        }
        // The other core publishes its counters with a delay.
        let wanted = CONNECTIONS * ROUNDS + 20;
        let status = lowroad_testkit::wait_until("the sum of both cores' requests", || {
            let status = clients[0].get("/.lowroad/status", "").text();
            (count(&status, "http_requests") >= wanted).then_some(status)
        });
        assert_eq!(count(&status, "cores"), 2);
        assert_eq!(count(&status, "opened_passive"), CONNECTIONS, "{status}");
        // Before the first response, the device can't know which core has a connection.
        assert!(count(&status, "cores_frames_forwarded") > 0, "{status}");
        for name in ["resets_sent", "input_dropped"] {
            assert_eq!(count(&status, name), 0, "{name}: {status}");
        }
    });
    assert!(running.stop().success());
}
