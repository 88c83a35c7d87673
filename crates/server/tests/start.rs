//! Starting the server: socket activation, readiness notification, dropping root privileges, and failures.
//!
//! sd_listen_fds(3), sd_notify(3).

use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use lowroad_testkit::{TEST_TIMEOUT, TempFolder, TestClient, TestServer, skip};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

fn site() -> TempFolder {
    let folder = TempFolder::new();
    folder.file("who", "served");
    folder
}

/// The command that serves the folder as the child of a supervisor: the socket becomes descriptor 3, and LISTEN_PID is
/// set to `pid`.
fn activated(folder: &TempFolder, socket: impl Into<OwnedFd>, pid: &str) -> Command {
    let script = format!("exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID={pid} exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command
        .args(["-c", &script, PROGRAM, "serve"])
        .arg(folder.path())
        .args(["--listen", "127.0.0.1:0", "--workers", "2"])
        .stdin(Stdio::from(socket.into()));
    command
}

#[test]
fn activated_socket_is_served_across_restarts() {
    let folder = site();
    let socket = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = socket.local_addr().expect("an address");
    // The socket stays open in this process, as in a supervisor, so restarts lose no connection.
    let start = || {
        let socket = socket.try_clone().expect("a descriptor");
        TestServer::spawn(activated(&folder, socket, "$$"))
    };
    let mut first = start();
    assert_eq!(first.addresses, [address]);
    assert_eq!(first.get("/who").text(), "served");
    first.signal("TERM");
    assert!(first.wait_for_end().success());
    // The supervisor's socket accepts connections before the server runs.
    let mut client = TestClient::connect(address);
    client.send("GET /who HTTP/1.1\r\nHost: a\r\n\r\n");
    let second = start();
    assert_eq!(client.response().text(), "served");
    assert_eq!(second.get("/who").text(), "served");
}

/// A supervisor: listens on each `NAME=ADDRESS`, passes the sockets with these names, and executes the program.
const SUPERVISOR: &str = r#"
import os, socket, sys
count = int(sys.argv[1])
given = [text.split("=", 1) for text in sys.argv[2:2 + count]]
sockets = []
for name, address in given:
    if address.startswith("/"):
        one = socket.socket(socket.AF_UNIX)
        one.bind(address)
    else:
        host, port = address.rsplit(":", 1)
        one = socket.socket()
        one.bind((host, int(port)))
    one.listen()
    sockets.append(os.dup2(one.fileno(), 60 + len(sockets)))
for at, one in enumerate(sockets):
    os.dup2(one, 3 + at)
os.environ["LISTEN_FDS"] = str(count)
os.environ["LISTEN_PID"] = str(os.getpid())
os.environ["LISTEN_FDNAMES"] = ":".join(name for name, _ in given)
os.execv(sys.argv[2 + count], sys.argv[2 + count:])
"#;

/// The command that runs a configuration with these sockets.
fn supervised(sockets: &[&str], config: &Path) -> Command {
    let mut command = Command::new("python3");
    command
        .args(["-c", SUPERVISOR, &sockets.len().to_string()])
        .args(sockets)
        .arg(PROGRAM)
        .args(["run", "-c"])
        .arg(config);
    command
}

/// A configuration with a TLS listener and a plain one; the sockets of the tests have other addresses.
fn two_schemes(folder: &TempFolder) -> std::path::PathBuf {
    let made = rcgen::generate_simple_self_signed(["s.test".to_owned()]).expect("a certificate");
    folder.file("cert.pem", made.cert.pem());
    folder.file("key.pem", made.signing_key.serialize_pem());
    let at = folder.path().display();
    folder.file(
        "lowroad.toml",
        format!(
            "[server]\nuser = \"root\"\nadmin = \"{at}/admin\"\n[[site]]\nlisten = \"*:80\"\nroot = \"{at}\"\n\
             [site.tls]\nlisten = \"*:443\"\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n"
        ),
    )
}

/// The content of a page, requested over TLS.
fn get_over_tls(folder: &TempFolder, address: std::net::SocketAddr) -> String {
    let (ip, port) = (address.ip(), address.port());
    let output = Command::new("curl")
        .args(["--silent", "--cacert"])
        .arg(folder.path().join("cert.pem"))
        .args(["--resolve", &format!("s.test:{port}:{ip}")])
        .arg(format!("https://s.test:{port}/who"))
        .output()
        .expect("curl");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn activated_socket_names_select_tls() {
    let folder = site();
    let config = two_schemes(&folder);
    let sockets = ["https=127.0.0.1:0", "http=127.0.0.2:0"];
    let server = TestServer::spawn(supervised(&sockets, &config));
    let [tls, plain] = server.addresses[..] else {
        panic!("{:?}", server.addresses);
    };
    assert_eq!(get_over_tls(&folder, tls), "served");
    assert_eq!(TestClient::connect(plain).get("/who", "").text(), "served");
}

#[test]
fn https_socket_never_serves_a_site_without_tls() {
    let folder = site();
    let at = folder.path().display();
    let config = format!(
        "[server]\nuser = \"root\"\nadmin = \"{at}/admin\"\n[[site]]\nlisten = \"*:80\"\nroot = \"{at}\"\n"
    );
    let config = folder.file("lowroad.toml", config);
    let sockets = ["http=127.0.0.2:0", "https=127.0.0.1:0"];
    let server = TestServer::spawn(supervised(&sockets, &config));
    assert_eq!(server.addresses.len(), 1, "{:?}", server.addresses);
    assert_eq!(server.get("/who").text(), "served");
    server.wait_for_error_line("a socket named https, but no site has TLS");
}

#[test]
fn activated_unix_socket_is_served() {
    use std::io::{Read, Write};
    let folder = site();
    let config = two_schemes(&folder);
    let path = folder.path().join("socket").display().to_string();
    let sockets = [&format!("http={path}"), "https=127.0.0.1:0"];
    let server = TestServer::spawn(supervised(&sockets, &config));
    let mut client = std::os::unix::net::UnixStream::connect(path).expect("it listens");
    let request = b"GET /who HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    client.write_all(request).expect("it reads");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("a response");
    assert!(response.ends_with("\r\n\r\nserved"), "{response}");
    assert_eq!(get_over_tls(&folder, server.address()), "served");
}

#[test]
fn activated_socket_for_another_pid_is_ignored() {
    let folder = site();
    let socket = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = socket.local_addr().expect("an address");
    let server = TestServer::spawn(activated(&folder, socket, "1"));
    assert_ne!(server.address(), address);
    assert_eq!(server.get("/who").text(), "served");
}

#[test]
fn activated_socket_that_does_not_listen_is_refused() {
    let folder = site();
    // Of the sockets for datagrams, UDP is for HTTP/3.
    let socket = UnixDatagram::unbound().expect("a socket");
    let said = fails(activated(&folder, socket, "$$"));
    assert!(said.contains("can't use the supervisor's socket"), "{said}");
}

#[test]
fn sd_notify_reports_ready_reloading_and_stopping() {
    let folder = site();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket
        .set_read_timeout(Some(TEST_TIMEOUT))
        .expect("a timeout");
    // Like systemd's socket, which the server's user may write to.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("a mode");
    let next_notification = || {
        let mut buffer = [0; 1024];
        let len = socket.recv(&mut buffer).expect("a notification");
        String::from_utf8_lossy(&buffer[..len]).trim().to_string()
    };
    let root = folder.path().display();
    let config = format!("[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{root}\"\n");
    let file = folder.file("lowroad.toml", config);
    let mut command = Command::new(PROGRAM);
    command
        .args(["run", "-c"])
        .arg(file)
        .env("NOTIFY_SOCKET", &path);
    let mut server = TestServer::spawn(command);
    assert_eq!(next_notification(), "READY=1");
    assert_eq!(server.get("/who").text(), "served");
    server.signal("HUP");
    let reloading = next_notification();
    assert!(reloading.starts_with("RELOADING=1"), "{reloading}");
    assert_eq!(next_notification(), "READY=1");
    server.signal("TERM");
    assert_eq!(next_notification(), "STOPPING=1");
    assert!(server.wait_for_end().success());
}

/// Whether the tests run as root; reports a skip if not.
fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().expect("id");
    let root = output.stdout == b"0\n";
    if !root {
        skip("starts as root", "not root");
    }
    root
}

fn id(user: &str, of: &str) -> String {
    let output = Command::new("id").args([of, user]).output().expect("id");
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// The values of a key in /proc/PID/status.
fn process_status(server: &TestServer, key: &str) -> Vec<String> {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let words = line.expect("the key").split_whitespace();
    words.map(str::to_string).collect()
}

#[test]
fn root_privileges_are_dropped() {
    if !is_root() {
        return;
    }
    let folder = site();
    let has_package = Command::new("id")
        .arg("lowroad")
        .output()
        .expect("id")
        .status
        .success();
    let default = if has_package { "lowroad" } else { "nobody" };
    for (options, user) in [(vec![], default), (vec!["--user", "daemon"], "daemon")] {
        let server = TestServer::serve(PROGRAM, &folder, &options);
        assert_eq!(server.get("/who").text(), "served", "{user}");
        server.wait_for_error_line(&format!("running as user {user}"));
        assert_eq!(
            process_status(&server, "Uid:"),
            vec![id(user, "-u"); 4],
            "{user}"
        );
        assert_eq!(
            process_status(&server, "Gid:"),
            vec![id(user, "-g"); 4],
            "{user}"
        );
        let groups = id(user, "-G");
        let groups: Vec<&str> = groups.split(' ').collect();
        assert_eq!(process_status(&server, "Groups:"), groups, "{user}");
        // CAP_NET_BIND_SERVICE is kept for ports that a reload adds.
        assert_eq!(
            process_status(&server, "CapEff:"),
            ["0000000000000400"],
            "{user}"
        );
        assert_eq!(
            process_status(&server, "CapPrm:"),
            ["0000000000000400"],
            "{user}"
        );
        // Programs that the server starts get no capabilities.
        assert_eq!(
            process_status(&server, "CapInh:"),
            ["0000000000000000"],
            "{user}"
        );
        assert_eq!(
            process_status(&server, "CapAmb:"),
            ["0000000000000000"],
            "{user}"
        );
    }
}

#[test]
fn root_is_kept_if_configured_or_needed() {
    if !is_root() {
        return;
    }
    let folder = site();
    let server = TestServer::serve(PROGRAM, &folder, &["--user", "root"]);
    assert_eq!(process_status(&server, "Uid:"), ["0"; 4]);
    drop(server);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("a mode");
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    server.wait_for_error_line(
        "the server keeps running as root, because only root can read the folder",
    );
    assert_eq!(server.get("/who").text(), "served");
}

/// Runs a command that must fail; returns standard error.
fn fails(mut command: Command) -> String {
    let output = command.output().expect("the program");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty(), "it says that it serves: {said}");
    said
}

fn serve_fails(dir: &Path, options: &[&str]) -> String {
    let mut command = Command::new(PROGRAM);
    command
        .arg("serve")
        .arg(dir)
        .args(options)
        .stdin(Stdio::null());
    fails(command)
}

#[test]
fn listen_failure_names_the_address() {
    let folder = site();
    let socket = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let other = TestServer::serve(PROGRAM, &folder, &[]);
    for address in [socket.local_addr().expect("an address"), other.address()] {
        let address = address.to_string();
        assert_eq!(
            serve_fails(
                folder.path(),
                &["--listen", "127.0.0.1:0", "--listen", &address]
            ),
            format!(
                "lowroad: can't listen at {address}: another program listens there \
                 (ss -ltnp shows which)\n"
            )
        );
    }
    assert_eq!(
        serve_fails(folder.path(), &["--listen", "192.0.2.1:8080"]),
        "lowroad: can't listen at 192.0.2.1:8080: this machine has no such address\n"
    );
    // The earlier server is unaffected.
    assert_eq!(other.get("/who").text(), "served");
}

#[test]
fn unusable_site_folder_is_named() {
    let folder = site();
    let listen = ["--listen", "127.0.0.1:0"];
    let missing = folder.path().join("missing");
    let said = serve_fails(&missing, &listen);
    let start = format!("the folder {} can't be served: ", missing.display());
    assert!(
        said.contains(&start) && said.contains("No such file"),
        "{said}"
    );
    let said = serve_fails(&folder.path().join("who"), &listen);
    assert!(said.contains("can't be served: not a folder"), "{said}");

    let closed = TempFolder::new();
    fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o000)).expect("a mode");
    let mut options = listen.to_vec();
    if is_root() {
        options.extend(["--user", "nobody"]);
    }
    let said = serve_fails(closed.path(), &options);
    assert!(
        said.contains("can't be served: Permission denied"),
        "{said}"
    );
}

#[test]
fn invalid_options_are_explained() {
    let folder = site();
    let listen = ["--listen", "127.0.0.1:0"];
    for (options, wanted) in [
        (vec!["--cache", "lots"], "--cache lots: invalid (allowed: "),
        (
            vec!["--accept", "none"],
            "--accept none: invalid (allowed: ",
        ),
        (
            vec!["--listen", "here:80"],
            "--listen here:80: invalid (allowed: ",
        ),
    ] {
        let said = serve_fails(folder.path(), &options);
        assert!(said.contains(wanted), "{said}");
    }
    let root = folder.path().display();
    let site = format!("[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{root}\"\n");
    for (config, wanted) in [
        (
            format!("[log]\naccess = \"missing/log\"\n{site}"),
            "can't write the log",
        ),
        (
            format!("{site}colour = 1\n"),
            "lowroad.toml:4:1: site[0].colour: ",
        ),
    ] {
        let file = folder.file("lowroad.toml", config);
        let mut command = Command::new(PROGRAM);
        command.args(["run", "-c"]).arg(file);
        let said = fails(command);
        assert!(said.contains(wanted), "{said}");
    }
    if is_root() {
        let said = serve_fails(
            folder.path(),
            &[&listen[..], &["--user", "no-such-user"]].concat(),
        );
        assert_eq!(said, "lowroad: user no-such-user does not exist\n");
    }
}

/// The output of `check` for a configuration, with its exit code.
fn check(file: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(PROGRAM);
    let output = command.args(["check", "-c"]).arg(file).output();
    let output = output.expect("the program");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn configuration_file_is_also_an_argument() {
    let folder = TempFolder::new();
    let file = folder.file("mistake.toml", "[[site]]\nport = 1\n");
    let with = |args: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(args).arg(&file);
        fails(command)
    };
    for command in ["run", "check"] {
        let said = with(&[command]);
        assert!(said.contains("mistake.toml:2"), "{said}");
        assert_eq!(said, with(&[command, "-c"]));
        // One of two files would be ignored.
        let mut both = Command::new(PROGRAM);
        let output = both.args([command, "-c", "other.toml"]).arg(&file).output();
        let output = output.expect("the program");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("cannot be used with"), "{said}");
    }
}

#[test]
fn check_warns_of_unusable_optional_resources() {
    let folder = site();
    let file = folder.file("file", "no folder, and no program");
    let root = folder.path().display();
    let site = format!("[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{root}\"\n");
    let admin = |path: &str| format!("[server]\nadmin = \"{path}\"\n{site}");
    let disk_cache = |path: &str| format!("[server]\ndisk_cache = \"{path}\"\n{site}");
    let application = |program: &str, more: &str| {
        format!("{site}[[application]]\nname = \"app\"\ncommand = [\"{program}\"]\n{more}\n")
    };
    for (config, wanted) in [
        (admin("missing/a"), "/missing/a: No such file"),
        (admin("file/a"), "/file/a: Not a directory"),
        (admin("file"), "/file: Address already in use"),
        (admin(&"x".repeat(120)), "xx: File name too long"),
        (
            disk_cache("file"),
            "continues without disk_cache: the store in",
        ),
        (
            disk_cache("file/a/b"),
            "continues without disk_cache: the store in",
        ),
        (
            application("/missing/program", ""),
            "/missing/program can't be started: No such file",
        ),
        (
            application("no-such-program", "env = { PATH = \"/usr/bin:/bin\" }"),
            "no-such-program can't be started: No such file",
        ),
        (
            application(&file.display().to_string(), ""),
            "/file can't be started: Permission denied",
        ),
        (
            application("true", "folder = \"missing\""),
            "true can't be started: No such file",
        ),
        (
            application("true", "env = { PATH = \"/missing\" }"),
            "true can't be started: No such file",
        ),
    ] {
        let file = folder.file("lowroad.toml", &config);
        let (code, said) = check(&file);
        assert_eq!(code, Some(3), "{wanted}: {said}");
        assert!(said.contains(wanted), "{wanted}: {said}");
        let server = TestServer::run(PROGRAM, &folder, &config);
        server.wait_for_error_line(wanted);
    }
    let names = || fs::read_dir(folder.path()).expect("a folder").count();
    let before = names();
    for config in [
        admin("a"),
        disk_cache("new/cache"),
        application("true", ""),
        application("./true", "folder = \"/bin\""),
        application("true", "env = { PATH = \"/missing:/bin\" }"),
    ] {
        let file = folder.file("lowroad.toml", &config);
        assert_eq!(check(&file), (Some(0), String::new()), "{config}");
    }
    assert_eq!(names(), before, "a check makes nothing");
}

#[test]
fn several_listen_addresses_are_served() {
    let folder = site();
    let server = TestServer::serve(PROGRAM, &folder, &["--listen", "127.0.0.2:0"]);
    let ips: Vec<String> = server
        .addresses
        .iter()
        .map(|a| a.ip().to_string())
        .collect();
    assert_eq!(ips, ["127.0.0.1", "127.0.0.2"]);
    for address in &server.addresses {
        assert_eq!(
            TestClient::connect(*address).get("/who", "").text(),
            "served"
        );
    }
}
