//! Upgrades of a server or to a server with few descriptors: they succeed with all sockets, or change nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use lowroad_testkit::TestServer;
use lowroad_testkit::status::StatusClient;

use super::http3_client::Http3Client;
use super::support::{PROGRAM, Place};

/// More descriptors than a server with two workers has.
const ENOUGH: u64 = 400;

/// A server with HTTP/3 and a replaceable program.
struct LimitedServer {
    place: Place,
    server: TestServer,
}

impl Drop for LimitedServer {
    fn drop(&mut self) {
        // The successor is not a child of this process.
        _ = StatusClient::new(PROGRAM, self.place.path("admin")).run(&["stop"]);
    }
}

impl LimitedServer {
    fn start() -> LimitedServer {
        let place = Place::new();
        place.certify("a", &["a.example"]);
        place.folder.file("site/a", "a");
        let admin = place.path("admin").display().to_string();
        let config = format!(
            "[server]\nuser = \"root\"\nworkers = 2\nadmin = \"{admin}\"\nhttp3 = true\n{}",
            place.site("a", "", "")
        );
        let program = place.path("lowroad").display().to_string();
        run(Command::new("cp").args([PROGRAM, &program]));
        let server = TestServer::run(&program, &place.folder, &config);
        LimitedServer { place, server }
    }

    /// Makes the successor start with this limit.
    fn limit_successor(&self, limit: u64) {
        let script = format!("#!/bin/sh\nulimit -n {limit}\nexec {PROGRAM} \"$@\"\n");
        let script = self.place.folder.file("script", script);
        fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("a mode");
        // The file of a running program can't be written to.
        let program = self.place.path("lowroad");
        run(Command::new("cp")
            .arg("--remove-destination")
            .args([script, program]));
    }

    /// Upgrades the server. Returns the reason of a failure.
    fn upgrade(&self) -> Result<(), String> {
        self.server.signal("USR2");
        loop {
            let line = self.server.wait_for_error_line(" upgrade ");
            if let Some((_, reason)) = line.split_once("this process goes on: ") {
                return Err(reason.to_owned());
            }
            if line.contains("has taken over") {
                return Ok(());
            }
        }
    }

    /// Requires new connections to reach the sockets of all workers.
    fn require_http3(&self) {
        for _ in 0..8 {
            let mut client = self.connect();
            assert_eq!(client.get("/a").body(), b"a");
            client.close();
        }
    }

    fn connect(&self) -> Http3Client {
        let client = Http3Client::connect(&self.place, self.server.addresses[0]);
        assert_eq!(client.end, None, "a new connection");
        client
    }
}

fn run(command: &mut Command) {
    assert!(command.status().expect("a program").success());
}

#[test]
fn successor_with_few_descriptors_changes_nothing_or_has_all_sockets() {
    let limited = LimitedServer::start();
    let mut client = limited.connect();
    assert_eq!(client.get("/a").body(), b"a");
    let mut failures = 0;
    for limit in (10..ENOUGH).step_by(3) {
        limited.limit_successor(limit);
        match limited.upgrade() {
            Ok(()) => break,
            Err(reason) => {
                failures += 1;
                assert!(names_descriptors(&reason), "{limit}: {reason}");
            }
        }
        assert_eq!(client.get("/a").body(), b"a");
        limited.require_http3();
    }
    assert!(failures > 0);
    limited.require_http3();
}

#[test]
fn upgrade_of_a_server_with_few_descriptors_changes_nothing_or_passes_all_sockets() {
    let limited = LimitedServer::start();
    let mut client = limited.connect();
    assert_eq!(client.get("/a").body(), b"a");
    let pid = limited.server.pid();
    let is_free = |number: &u64| !Path::new(&format!("/proc/{pid}/fd/{number}")).exists();
    let first_free = (0..ENOUGH).find(is_free).expect("a number");
    let mut failures = 0;
    for limit in first_free..ENOUGH {
        let soft_limit = format!("--nofile={limit}:");
        run(Command::new("prlimit").args(["--pid", &pid.to_string(), &soft_limit]));
        match limited.upgrade() {
            Ok(()) => break,
            Err(reason) => {
                failures += 1;
                assert!(names_descriptors(&reason), "{limit}: {reason}");
            }
        }
        assert_eq!(client.get("/a").body(), b"a");
        limited.require_http3();
    }
    assert!(failures > 0);
    limited.require_http3();
}

/// Whether the reason leads to the limit.
fn names_descriptors(reason: &str) -> bool {
    ["Too many open files", "limit of descriptors"]
        .iter()
        .any(|text| reason.contains(text))
}
