//! The server under the restrictions of its systemd unit: few capabilities, or none, and few system calls.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lowroad_testkit::net::is_installed;
use lowroad_testkit::unit::UnitFile;
use lowroad_testkit::{TempFolder, TestServer, skip};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

const CONFIG: &str = r#"
[server]
admin = "DIR/state/admin.sock"
[[module]]
name = "wasm"
wasm = "DIR/hello.wasm"
[[database]]
name = "db"
url = "sqlite:DIR/state/db"
[[site]]
listen = [LISTEN]
root = "DIR/root"
[[site.rule]]
pattern = "/private/**"
auth = "DIR/users"
[[site.route]]
pattern = "/wasm"
module = "wasm"
[[site.route]]
pattern = "/cgi/**"
cgi = "DIR/cgi"
[[site.route]]
pattern = "*.lrp"
pages = "db"
"#;

/// A site with all kinds of handlers, in a folder that every user can read.
struct Site {
    folder: TempFolder,
    config: PathBuf,
}

impl Site {
    fn new(listen: &str) -> Site {
        let folder = TempFolder::new();
        let at = |name: &str| folder.path().join(name);
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("a mode");
        folder.file(
            "users",
            "ann:$2y$04$abcdefghijklmnopqrstuuJXCVvd1PB9P9kH2YVTeHmYtYPnKfhCe\n",
        );
        folder.file("root/index.html", "home");
        folder.file("root/page.lrp", "page {{ 6 * 7 }}");
        folder.file("state/db", "");
        for name in ["state", "state/db"] {
            fs::set_permissions(at(name), Permissions::from_mode(0o777)).expect("a mode");
        }
        let script = folder.file(
            "cgi/say",
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\nContent-Length: 3\\n\\ncgi'\n",
        );
        fs::set_permissions(script, Permissions::from_mode(0o755)).expect("a mode");
        let wasm = Path::new(REPOSITORY).join("examples/modules/hello-wasm-c.wasm");
        fs::copy(wasm, at("hello.wasm")).expect("a copy");
        // The unit's user may have no access to the build folder.
        fs::copy(PROGRAM, at("lowroad")).expect("a copy");
        let config = CONFIG
            .replace("DIR", &folder.path().display().to_string())
            .replace("LISTEN", listen);
        let config = folder.file("lowroad.toml", config);
        Site { folder, config }
    }

    /// Starts the server under the restrictions of a unit.
    fn start(&self, unit: &UnitFile) -> TestServer {
        unit.confine(|| {
            let mut command = Command::new(self.folder.path().join("lowroad"));
            command.args(["run", "-c"]).arg(&self.config);
            TestServer::spawn(command)
        })
    }

    /// Asks every handler, then reloads and stops the server.
    fn use_everything(&self, server: &TestServer) {
        for (path, text) in [("/", "home"), ("/page.lrp", "page 42"), ("/cgi/say", "cgi")] {
            let got = server.get(path);
            assert_eq!((got.status, got.text().as_str()), (200, text), "{path}");
        }
        assert_eq!(server.get("/wasm").status, 200);
        assert_eq!(server.get("/private/x").status, 401);
        for command in ["reload", "stop"] {
            let said = Command::new(PROGRAM)
                .args([command, "--admin"])
                .arg(self.folder.path().join("state/admin.sock"))
                .output();
            let said = said.expect("the command runs");
            assert!(said.status.success(), "{said:?}");
        }
    }
}

/// Asserts lines of `/proc/PID/status`, such as `NoNewPrivs: 1`.
fn assert_status(server: &TestServer, expected: &[&str]) {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("its status");
    for expected in expected {
        let is_expected = |line: &str| line.split_whitespace().eq(expected.split(' '));
        assert!(
            status.lines().any(is_expected),
            "{expected} is not in {status}"
        );
    }
}

/// Asserts that the workers have restricted themselves beyond the unit.
fn assert_hardened_workers(server: &TestServer) {
    let filters = |status: String| -> u32 {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("Seccomp_filters:"));
        line.expect("a count").trim().parse().expect("a number")
    };
    let read = |path: PathBuf| fs::read_to_string(path).expect("a live thread");
    let tasks = Path::new("/proc")
        .join(server.pid().to_string())
        .join("task");
    let main = filters(read(tasks.join(server.pid().to_string()).join("status")));
    let worker_filters = || -> Vec<u32> {
        let threads = fs::read_dir(&tasks).expect("threads");
        let workers = threads
            .map(|thread| thread.expect("a thread").path())
            .filter(|thread| {
                // Other threads may end meanwhile.
                let name = fs::read_to_string(thread.join("comm"));
                name.is_ok_and(|name| name.starts_with("worker-"))
            });
        workers
            .map(|worker| filters(read(worker.join("status"))))
            .collect()
    };
    // The server accepts connections before its last thread has its name and filter.
    lowroad_testkit::wait_until("filters of workers beyond those of the main thread", || {
        let counts = worker_filters();
        (!counts.is_empty() && counts.iter().all(|count| *count > main)).then_some(())
    });
}

#[test]
fn all_features_work_in_the_systemd_unit() {
    if !UnitFile::can_be_applied() {
        return skip(
            "all_features_work_in_the_systemd_unit",
            "no root, or no systemd-analyze",
        );
    }
    let site = Site::new(r#""127.0.0.1:0", "127.0.0.77:81""#);
    // The privileged helper opens this file after the start.
    let users = site.folder.path().join("users");
    fs::set_permissions(users, Permissions::from_mode(0o600)).expect("a mode");
    let server = site.start(&UnitFile::read(
        &Path::new(REPOSITORY).join("dist/lowroad.service"),
    ));
    assert_status(
        &server,
        &["CapEff: 0000000000000400", "NoNewPrivs: 1", "Seccomp: 2"],
    );
    assert!(server.addresses.contains(&([127, 0, 0, 77], 81).into()));
    assert_hardened_workers(&server);
    site.use_everything(&server);
}

/// The unit with the drop-in that gives up root, for this user.
fn unprivileged_unit(folder: &TempFolder, user: &str) -> PathBuf {
    let read = |name: &str| fs::read_to_string(Path::new(REPOSITORY).join(name)).expect("a file");
    let text = read("dist/lowroad.service") + &read("dist/lowroad-unprivileged.conf");
    folder.file(
        "lowroad.service",
        text.replace("User=lowroad", &format!("User={user}")),
    )
}

#[test]
fn all_features_work_without_privileges() {
    let name = "all_features_work_without_privileges";
    if !UnitFile::can_be_applied() {
        return skip(name, "no root, or no systemd-analyze");
    }
    let site = Site::new(r#""127.0.0.1:0""#);
    let server = site.start(&UnitFile::read(&unprivileged_unit(&site.folder, "daemon")));
    assert_status(
        &server,
        &["CapEff: 0000000000000000", "CapBnd: 0000000000000000"],
    );
    assert_hardened_workers(&server);
    site.use_everything(&server);
}

#[test]
fn exposure_of_the_unprivileged_unit_is_at_most_1_3() {
    let name = "exposure_of_the_unprivileged_unit_is_at_most_1_3";
    if !is_installed("systemd-analyze") {
        return skip(name, "no systemd-analyze");
    }
    let folder = TempFolder::new();
    // The threshold is in tenths.
    let analysis = Command::new("systemd-analyze")
        .args(["security", "--no-pager", "--offline=true", "--threshold=13"])
        .arg(unprivileged_unit(&folder, "lowroad"))
        .output();
    let analysis = analysis.expect("it runs");
    assert!(analysis.status.success(), "{analysis:?}");
}

#[test]
fn wildcard_listener_is_ipv4_without_ipv6() {
    if !UnitFile::can_be_applied() {
        return skip(
            "wildcard_listener_is_ipv4_without_ipv6",
            "no root, or no systemd-analyze",
        );
    }
    let folder = TempFolder::new();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("a mode");
    folder.file("root/page", "served");
    fs::copy(PROGRAM, folder.path().join("lowroad")).expect("a copy");
    let at = folder.path().display();
    let config = format!(
        "[server]\nadmin = \"{at}/admin\"\n[[site]]\nlisten = \"*:0\"\nroot = \"{at}/root\"\n"
    );
    let config = folder.file("lowroad.toml", config);
    let text = fs::read_to_string(Path::new(REPOSITORY).join("dist/lowroad.service"));
    let text = text.expect("the unit").replace(" AF_INET6", "");
    let server = UnitFile::read(&folder.file("lowroad.service", text)).confine(|| {
        let mut command = Command::new(folder.path().join("lowroad"));
        command.args(["run", "-c"]).arg(config);
        TestServer::spawn(command)
    });
    assert_eq!(server.get("/page").text(), "served");
}
