//! Filters of system calls: which threads of a server have them, and that programs don't inherit them.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use lowroad_testkit::{TempFolder, TestServer, wait_until};

use super::{PROGRAM, site};

const CGI: &str = "#!/bin/sh\nstatus=$(cat /proc/self/status)\n\
                   printf 'Content-Type: text/plain\\r\\nContent-Length: %d\\r\\n\\r\\n' ${#status}\n\
                   printf %s \"$status\"\n";
/// The beginnings of the names of threads with filters.
const FILTERED: [&str; 3] = ["worker-", "helper-", "programs"];

/// The values of a status file of proc(5) that describe rights: `NoNewPrivs`, `Seccomp`, `Seccomp_filters`.
fn rights(status: &str) -> Vec<String> {
    let keys = ["NoNewPrivs:", "Seccomp"];
    let lines = status.lines();
    lines
        .filter(|line| keys.iter().any(|key| line.starts_with(key)))
        .map(str::to_owned)
        .collect()
}

/// Starts a server with this value of `hardening`.
fn start(folder: &TempFolder, hardening: bool) -> TestServer {
    let at = folder.path().display();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("a mode");
    let program = folder.file("cgi/status", CGI);
    fs::set_permissions(program, Permissions::from_mode(0o755)).expect("a mode");
    let config = format!(
        "[server]\nworkers = 1\nuser = \"root\"\nhardening = {hardening}\n\
         [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{at}\"\n\
         [[site.route]]\npattern = \"/cgi/**\"\ncgi = \"{at}/cgi\"\n"
    );
    let file = folder.file("lowroad.toml", config);
    let mut command = Command::new(PROGRAM);
    command.args(["run", "-c"]).arg(file).stdin(Stdio::null());
    command.env("LOWROAD_PANIC_PATH", "/panic");
    TestServer::spawn(command)
}

/// The rights of the server's threads, by name.
fn threads(server: &TestServer) -> BTreeMap<String, Vec<String>> {
    let folder = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("a process");
    let read = |thread: fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        let name = status.lines().next()?.strip_prefix("Name:")?.trim();
        Some((name.to_owned(), rights(&status)))
    };
    folder.flatten().filter_map(read).collect()
}

#[test]
fn threads_that_serve_have_filters_and_programs_have_none() {
    let folder = site();
    let server = start(&folder, true);
    let unfiltered = rights(&fs::read_to_string("/proc/self/status").expect("proc(5)"));
    assert!(
        unfiltered[0].ends_with('0'),
        "these tests run without restrictions"
    );
    // The launcher starts the process that starts the program.
    let program = server.get("/cgi/status");
    assert_eq!(rights(&program.text()), unfiltered, "{}", program.head);

    let before = threads(&server);
    for name in ["lowroad", "launcher"] {
        assert_eq!(before[name], unfiltered, "{name}");
    }
    let worker = &before["worker-0"];
    assert!(
        worker[0].ends_with('1') && worker[1].ends_with('2'),
        "{worker:?}"
    );
    for prefix in FILTERED {
        let mut those = before.iter().filter(|(name, _)| name.starts_with(prefix));
        assert!(those.clone().next().is_some(), "{prefix}: {before:?}");
        assert!(
            those.all(|(_, rights)| rights == worker),
            "{prefix}: {before:?}"
        );
    }

    // The thread that replaces a worker has the same filters, not more.
    let mut client = server.connect();
    client.send("GET /panic HTTP/1.1\r\nHost: a\r\n\r\n");
    server.wait_for_error_line("has panicked and was replaced");
    wait_until("the new thread", || {
        (threads(&server).get("worker-0") == Some(worker)).then_some(())
    });
    assert_eq!(server.get("/small").text(), "hello");
}

#[test]
fn hardening_can_be_turned_off() {
    let server = start(&site(), false);
    let unfiltered = rights(&fs::read_to_string("/proc/self/status").expect("proc(5)"));
    assert_eq!(threads(&server)["worker-0"], unfiltered);
}
