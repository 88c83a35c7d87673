//! Conditions of containers: no init process, names that can't be resolved, read-only folders; and the container image,
//! which is unpacked.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lowroad_testkit::net::is_installed;
use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::process::run;
use lowroad_testkit::{TempFolder, TestServer, skip, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

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

/// The strings of an array.
fn words(value: &serde_json::Value) -> Vec<String> {
    let list = value.as_array().expect("an array").iter();
    list.map(|word| word.as_str().expect("a string").to_owned())
        .collect()
}

/// Builds the container image of a stripped program quickly.
fn container_image(folder: &TempFolder, program: &Path, name: &str) -> PathBuf {
    let out = folder.path().join(name);
    let tool = Path::new(REPOSITORY).join("tools/oci_image.py");
    run(Command::new(tool)
        .env("COMPRESSION", "0")
        .args([program, &out]));
    out
}

/// Unpacks the layers of an image into `root`; returns the image's configuration.
fn unpack_image(archive: &Path, root: &Path) -> serde_json::Value {
    let parts = root.with_extension("parts");
    for path in [root, &parts] {
        fs::create_dir(path).expect("a folder");
    }
    run(Command::new("tar")
        .arg("-xf")
        .arg(archive)
        .arg("-C")
        .arg(&parts));
    let read = |name: &str| -> serde_json::Value {
        let text = fs::read(parts.join(name)).expect("a file");
        serde_json::from_slice(&text).expect("JSON")
    };
    let manifest = read("manifest.json").get(0).expect("an image").clone();
    for layer in manifest["Layers"].as_array().expect("layers") {
        let layer = parts.join(layer.as_str().expect("a name"));
        let digest = run(Command::new("sha256sum").arg(&layer));
        let named = layer.file_name().expect("a name").to_string_lossy();
        assert!(digest.starts_with(&*named), "{digest}");
        let mut tar = Command::new("tar");
        run(tar.args(["-xpzf"]).arg(&layer).arg("-C").arg(root));
    }
    read(manifest["Config"].as_str().expect("a name"))
}

#[test]
fn container_image_serves_as_another_user_with_a_read_only_root() {
    const TEST: &str = "container_image_serves_as_another_user_with_a_read_only_root";
    if !can_unshare(TEST) {
        return;
    }
    if !is_installed("python3") || !is_installed("strip") {
        return skip(TEST, "python3 or binutils is missing");
    }
    let folder = TempFolder::new();
    let program = folder.path().join("lowroad");
    run(Command::new("strip")
        .arg("-o")
        .args([&program, Path::new(PROGRAM)]));
    let archive = container_image(&folder, &program, "a.tar");
    let again = container_image(&folder, &program, "b.tar");
    run(Command::new("cmp").args([&archive, &again]));

    let root = folder.path().join("root");
    let config = unpack_image(&archive, &root);
    assert!(!root.join("bin").exists(), "there is no shell");
    // The user's configuration, mounted over the image's: the same at a free port.
    let own = fs::read_to_string(root.join("etc/lowroad/lowroad.toml")).expect("a configuration");
    let own = folder.file("own.toml", own.replace("*:8080", "127.0.0.1:0"));
    let volumes = config["config"]["Volumes"].as_object().expect("volumes");
    let volumes: Vec<&str> = volumes.keys().map(String::as_str).collect();
    // Like a container runtime: the root is read-only, volumes belong to the user, and the process can get no privileges.
    let script = format!(
        "set -e; mount --bind {root} {root}; cd {root}; mount --bind {own} etc/lowroad/lowroad.toml; mkdir proc; \
         mount -t proc none proc; mount -o remount,bind,ro .; \
         for volume in {volumes}; do mount -t tmpfs -o uid=65532,gid=65532,mode=755 none .$volume; done; \
         exec setpriv --no-new-privs chroot --userspec={user} . {program}",
        root = root.display(),
        own = own.display(),
        volumes = volumes.join(" "),
        user = config["config"]["User"].as_str().expect("a user"),
        program = [
            words(&config["config"]["Entrypoint"]),
            words(&config["config"]["Cmd"])
        ]
        .concat()
        .join(" "),
    );
    let mut command = Command::new("unshare");
    command.args(["--kill-child", "-mpf", "sh", "-c", &script]);
    let mut server = TestServer::spawn(command);
    assert!(server.get("/").text().contains("Lowroad serves this page"));

    let init = child_of(server.pid()).to_string();
    let health_check = |test: &[String]| {
        let mut command = Command::new("nsenter");
        command.args(["-t", &init, "-m", "-p", "-r", "-S", "65532", "-G", "65532"]);
        command.args(test).output().expect("nsenter")
    };
    let test = words(&config["config"]["Healthcheck"]["Test"])[1..].to_vec();
    let healthy = health_check(&test);
    assert!(healthy.status.success(), "{healthy:?}");
    let elsewhere = [&test[..3], &["/run/lowroad/absent".to_owned()]].concat();
    assert!(!health_check(&elsewhere).status.success());

    run(Command::new("kill").args(["-s", "TERM", &init]));
    assert_eq!(server.wait_for_end().code(), Some(0));
}
