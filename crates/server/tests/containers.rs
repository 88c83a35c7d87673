//! Conditions of containers: no init process, names that can't be resolved, read-only folders.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, TestServer, skip, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// Whether namespaces can be created here; reports a skip if not.
fn can_unshare(test: &str) -> bool {
    let tried = Command::new("unshare")
        .args(["-m", "-p", "-f", "true"])
        .status();
    let is_able = tried.is_ok_and(|status| status.success());
    if !is_able {
        skip(test, "namespaces take root and util-linux");
    }
    is_able
}

/// Creates a CGI program with this script.
fn cgi(folder: &TempFolder, name: &str, script: &str) {
    let file = folder.file(
        PathBuf::from("cgi").join(name),
        format!("#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\n{script}\n"),
    );
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("its mode");
}

/// The body of a program's response.
fn body(server: &TestServer, path: &str) -> String {
    let mut client = server.connect();
    client.send(format!("GET {path} HTTP/1.0\r\nHost: h\r\n\r\n"));
    // The end of the connection delimits the body, because the program sends no length.
    client.wait_for_close();
    let received = String::from_utf8_lossy(&client.received).into_owned();
    let end = received.find("\r\n\r\n").expect("a head");
    received[end + 4..].to_owned()
}

/// The only child of a process.
fn child_of(pid: u32) -> u32 {
    let found = Command::new("pgrep")
        .args(["-P", &pid.to_string()])
        .output();
    let found = String::from_utf8(found.expect("pgrep").stdout).expect("text");
    found.trim().parse().expect("one child")
}

#[test]
fn process_1_reaps_orphans_of_programs() {
    if !can_unshare("process_1_reaps_orphans_of_programs") {
        return;
    }
    const ORPHANS: usize = 10;
    let folder = TempFolder::new();
    let ended = folder.file("ended", "");
    // If root started the server, its programs run as nobody.
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode");
    };
    set_mode(folder.path(), 0o755);
    set_mode(&ended, 0o666);
    cgi(
        &folder,
        "leave",
        &format!(
            "(echo x >>{}) >/dev/null 2>&1 &\necho left",
            ended.display()
        ),
    );
    cgi(
        &folder,
        "zombies",
        "cat /proc/[0-9]*/status 2>/dev/null | grep -c '^State:.Z'",
    );
    cgi(&folder, "fail", "exit 7");
    folder.file("www/a.txt", "a");
    let config = folder.file(
        "lowroad.toml",
        format!(
            "[server]\nworkers = 1\nuser = \"root\"\nadmin = \"{0}/admin\"\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{0}/www\"\n\
             [[site.route]]\npattern = \"/c/**\"\ncgi = \"{0}/cgi\"\n",
            folder.path().display()
        ),
    );
    let mut command = Command::new("unshare");
    command
        .args(["--kill-child", "-pf", "--mount-proc", PROGRAM, "run", "-c"])
        .arg(config);
    let mut server = TestServer::spawn(command);
    for _ in 0..ORPHANS {
        assert_eq!(body(&server, "/c/leave"), "left\n");
    }
    wait_until("the orphans' last act", || {
        let text = fs::read_to_string(&ended).expect("a file");
        (text.lines().count() == ORPHANS).then_some(())
    });
    wait_until("no zombies", || {
        (body(&server, "/c/zombies") == "0\n").then_some(())
    });
    // The server itself still collects the exit states of its children.
    assert_eq!(server.get("/c/fail").status, 200);
    let init = child_of(server.pid());
    let signal = |name: &str| {
        let sent = Command::new("kill")
            .args(["-s", name, &init.to_string()])
            .status();
        assert!(sent.expect("kill").success());
    };
    folder.file("www/b.txt", "b");
    signal("HUP");
    server.wait_for_error_line("is in force");
    assert_eq!(server.get("/a.txt").text(), "a");
    signal("TERM");
    assert_eq!(server.wait_for_end().code(), Some(0));
}

#[test]
fn process_1_stays_while_servers_are_upgraded() {
    if !can_unshare("process_1_stays_while_servers_are_upgraded") {
        return;
    }
    let folder = TempFolder::new();
    folder.file("www/a.txt", "a");
    let at = folder.path().display();
    let config = folder.file(
        "lowroad.toml",
        format!(
            "[server]\nworkers = 1\nuser = \"root\"\nadmin = \"{at}/admin\"\n\
             [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{at}/www\"\n"
        ),
    );
    let mut command = Command::new("unshare");
    command
        .args(["--kill-child", "-pf", "--mount-proc", PROGRAM, "run", "-c"])
        .arg(config);
    let mut server = TestServer::spawn(command);
    let init = child_of(server.pid());
    for _ in 0..3 {
        let upgraded = Command::new(PROGRAM)
            .args(["upgrade", "--admin"])
            .arg(folder.path().join("admin"))
            .output()
            .expect("the program");
        assert!(upgraded.status.success(), "{upgraded:?}");
        assert_eq!(server.get("/a.txt").text(), "a");
        server.wait_for_error_line("info ended");
    }
    // Process 1 passes signals on to the last server, and ends with it.
    let sent = Command::new("kill")
        .args(["-s", "TERM", &init.to_string()])
        .status();
    assert!(sent.expect("kill").success());
    assert_eq!(server.wait_for_end().code(), Some(0));
}

#[test]
fn server_starts_if_an_origin_name_can_not_be_resolved() {
    if !can_unshare("server_starts_if_an_origin_name_can_not_be_resolved") {
        return;
    }
    let folder = TempFolder::new();
    let hosts = folder.file("hosts", "127.0.0.1 localhost\n");
    let switch = folder.file("nsswitch.conf", "hosts: files\n");
    folder.file("www/a.txt", "a");
    let origin = TestOrigin::with_response(|_| {
        "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 2\r\n\r\nhi".into()
    });
    let port = origin.url().rsplit(':').next().expect("a port").to_owned();
    let config = folder.file(
        "lowroad.toml",
        format!(
            "[server]\nworkers = 1\nuser = \"root\"\nadmin = \"{0}/admin\"\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{0}/www\"\n\
             [[site.route]]\npattern = \"/o/**\"\norigin = \"http://app.example:{port}\"\n\
             [[site.route]]\npattern = \"/f/**\"\nfastcgi = \"fpm.example:9000\"\nscript = \"/index.php\"\n",
            folder.path().display()
        ),
    );
    let script = format!(
        "mount --bind {} /etc/hosts && mount --bind {} /etc/nsswitch.conf && exec {PROGRAM} run -c {}",
        hosts.display(),
        switch.display(),
        config.display()
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]);
    let server = TestServer::spawn(command);
    assert_eq!(server.get("/a.txt").text(), "a");
    for (path, line) in [
        ("/o/x", "origin http://app.example"),
        ("/f/x", "FastCGI server fpm.example:9000"),
    ] {
        assert_eq!(server.get(path).status, 503, "{path}");
        let line = server.wait_for_error_line(line);
        assert!(line.contains("can't be resolved"), "{line}");
    }
    fs::write(hosts, "127.0.0.1 localhost\n127.0.0.1 app.example\n").expect("a file");
    wait_until("the origin's answer", || {
        let response = server.get("/o/x");
        (response.status == 200).then(|| response.text())
    });
    server.wait_for_error_line("the name is resolved again");
}

#[test]
fn missing_admin_socket_is_logged() {
    let folder = TempFolder::new();
    folder.file("www/a.txt", "a");
    let config = format!(
        "[server]\nworkers = 1\nadmin = \"{0}/absent/admin\"\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{0}/www\"\n",
        folder.path().display()
    );
    let server = TestServer::run(PROGRAM, &folder, &config);
    let line = server.wait_for_error_line("no admin socket");
    for part in ["/absent/admin", "server.admin", "warn"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert_eq!(server.get("/a.txt").text(), "a");
}
