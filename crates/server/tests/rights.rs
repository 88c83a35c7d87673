//! A server that has given up root: files and ports that only root can open stay available, or at least in use. With
//! real processes, started as root.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use lowroad_testkit::{ClientResponse, TempFolder, TestClient, TestServer, skip, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
/// The user `nobody`.
const NOBODY: u32 = 65534;

/// A server that runs as `nobody`, with files that only root may read.
struct Setup {
    folder: TempFolder,
    server: Option<TestServer>,
}

/// Whether the tests run as root with curl; reports a skip if not.
fn can_run(test: &str) -> bool {
    let id = Command::new("id").arg("-u").output().expect("id");
    if id.stdout != b"0\n" {
        skip(test, "not root");
        return false;
    }
    if Command::new("curl").arg("--version").output().is_err() {
        skip(test, "curl is missing");
        return false;
    }
    true
}

impl Setup {
    /// A site with TLS and one without, with a private key, a user file and a folder of authorities that belong to
    /// root.
    fn new() -> Setup {
        let folder = TempFolder::new();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("a mode");
        folder.file("www/page", "served");
        fs::create_dir(folder.path().join("secret")).expect("a folder");
        let mut setup = Setup {
            folder,
            server: None,
        };
        setup.renew_certificate();
        setup.secret("users", USERS);
        setup.write_config("");
        let mut command = Command::new(PROGRAM);
        command.args(["run", "-c"]).arg(setup.config());
        setup.server = Some(TestServer::spawn(command));
        setup
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("lowroad.toml")
    }

    fn server(&self) -> &TestServer {
        self.server.as_ref().expect("it was started")
    }

    fn secret(&self, name: &str, content: impl AsRef<[u8]>) {
        let file = self.folder.file(format!("secret/{name}"), content);
        fs::set_permissions(file, Permissions::from_mode(0o600)).expect("a mode");
    }

    fn renew_certificate(&self) {
        let made =
            rcgen::generate_simple_self_signed(["s.test".to_owned()]).expect("a certificate");
        self.folder.file("cert.pem", made.cert.pem());
        self.secret("authorities.pem", made.cert.pem());
        self.secret("key.pem", made.signing_key.serialize_pem());
    }

    /// Makes root's files inaccessible to other users, including their names.
    fn close_secrets(&self) {
        let folder = self.folder.path().join("secret");
        fs::set_permissions(folder, Permissions::from_mode(0o700)).expect("a mode");
    }

    fn write_config(&self, more: &str) {
        let at = self.folder.path().display();
        let text = format!(
            "[server]\nadmin = \"{at}/admin\"\nuser = \"nobody\"\nworkers = 1\n\
             [log]\naccess = \"{at}/secret/access.log\"\n\
             [[site]]\nnames = \"plain.test\"\nlisten = \"127.0.0.1:0\"\nroot = \"{at}/www\"\n\
             [[site.rule]]\npattern = \"/private/**\"\nauth = \"{at}/secret/users\"\n\
             [[site]]\nnames = \"s.test\"\nlisten = []\nroot = \"{at}/www\"\n\
             [site.tls]\nlisten = \"127.0.0.2:0\"\ncertificate = \"{at}/cert.pem\"\nkey = \"{at}/secret/key.pem\"\n\
             client = \"request\"\nclient_ca = \"{at}/secret/authorities.pem\"\n{more}"
        );
        fs::write(self.config(), text).expect("a configuration");
    }

    /// Adds an independent site.
    fn add_site(&self) {
        let at = self.folder.path().display();
        self.write_config(&format!(
            "[[site]]\nnames = \"new.test\"\nlisten = \"127.0.0.1:0\"\nroot = \"{at}/www\"\n\
             [[site.rule]]\npattern = \"/other/**\"\nauth = \"{at}/secret/users\"\n"
        ));
    }

    /// Reloads the configuration; returns the command's success and output.
    fn reload(&self) -> (bool, String) {
        let admin = self.folder.path().join("admin");
        let mut command = Command::new(PROGRAM);
        let output = command.arg("reload").arg("--admin").arg(admin).output();
        let output = output.expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }

    fn plain(&self) -> SocketAddr {
        self.server().addresses[0]
    }

    fn get(&self, host: &str, path: &str, fields: &str) -> ClientResponse {
        let mut client = TestClient::connect(self.plain());
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"
        ));
        client.response()
    }

    /// Whether the server presents the certificate of the file.
    fn shows_certificate(&self) -> bool {
        let port = self.server().addresses[1].port();
        let output = Command::new("curl")
            .args(["--silent", "--cacert"])
            .arg(self.folder.path().join("cert.pem"))
            .arg("--resolve")
            .arg(format!("s.test:{port}:127.0.0.2"))
            .arg(format!("https://s.test:{port}/page"))
            .output()
            .expect("curl");
        output.stdout == b"served"
    }
}

/// A user and the hash of the password `right`, at bcrypt's minimum cost.
const USERS: &str = "ann:$2y$04$rnvvtkQTn0QK0hD36HlXz.7jb3.t.w9xxaLpDfoLRzk5B7SJQu/Je\n";
/// `ann:right` in base64.
const CREDENTIALS: &str = "Authorization: Basic YW5uOnJpZ2h0\r\n";

fn assert_serves(setup: &Setup) {
    assert_eq!(setup.get("new.test", "/page", "").text(), "served");
    assert!(setup.shows_certificate());
    for (host, path) in [("plain.test", "/private/x"), ("new.test", "/other/x")] {
        assert_eq!(setup.get(host, path, "").status, 401);
        assert_eq!(setup.get(host, path, CREDENTIALS).status, 404, "{path}");
    }
}

#[test]
fn unreadable_files_stay_in_use_after_reload() {
    if !can_run("unreadable_files_stay_in_use_after_reload") {
        return;
    }
    let setup = Setup::new();
    assert!(setup.shows_certificate());
    // The server's user could have changed the configuration, so root opens no file that this configuration names.
    chown(setup.config(), Some(NOBODY), None).expect("an owner");
    setup.add_site();
    for close in [false, true] {
        if close {
            setup.close_secrets();
        }
        let (done, said) = setup.reload();
        assert!(done, "{said}");
        assert_serves(&setup);
        // The log suppresses equal lines within a second.
        if !close {
            for name in ["key.pem", "authorities.pem", "users"] {
                setup
                    .server()
                    .wait_for_error_line(&format!("secret/{name}"));
            }
        }
    }
}

#[test]
fn reload_fails_if_a_new_file_is_unreadable() {
    if !can_run("reload_fails_if_a_new_file_is_unreadable") {
        return;
    }
    let setup = Setup::new();
    chown(setup.config(), Some(NOBODY), None).expect("an owner");
    let at = setup.folder.path().display();
    setup.secret("others", "ann:x\n");
    setup.write_config(&format!(
        "[[site]]\nnames = \"new.test\"\nlisten = \"127.0.0.1:0\"\nroot = \"{at}/www\"\n\
         [[site.rule]]\npattern = \"/other/**\"\nauth = \"{at}/secret/others\"\n"
    ));
    let (done, said) = setup.reload();
    assert!(
        !done && said.contains("secret/others: Permission denied"),
        "{said}"
    );
    assert_eq!(setup.get("plain.test", "/page", "").text(), "served");
}

#[test]
fn reload_adds_a_port_below_1024() {
    if !can_run("reload_adds_a_port_below_1024") {
        return;
    }
    let setup = Setup::new();
    let at = setup.folder.path().display();
    // A loopback address that other servers do not use.
    let address = "127.94.31.20:443";
    setup.write_config(&format!(
        "[[site]]\nnames = \"new.test\"\nlisten = \"{address}\"\nroot = \"{at}/www\"\n"
    ));
    let (done, said) = setup.reload();
    assert!(done, "{said}");
    let mut client = TestClient::connect(address.parse().expect("an address"));
    client.send("GET /page HTTP/1.1\r\nHost: new.test\r\n\r\n");
    assert_eq!(client.response().text(), "served");
}

#[test]
fn helper_opens_files_readable_only_by_root() {
    if !can_run("helper_opens_files_readable_only_by_root") {
        return;
    }
    let setup = Setup::new();
    setup.close_secrets();
    fs::set_permissions(setup.config(), Permissions::from_mode(0o600)).expect("a mode");
    assert!(setup.shows_certificate());
    assert_eq!(
        setup.get("plain.test", "/private/x", CREDENTIALS).status,
        404
    );
    setup.add_site();
    setup.renew_certificate();
    assert!(
        !setup.shows_certificate(),
        "another one than that in the file"
    );
    let (done, said) = setup.reload();
    assert!(done, "{said}");
    // Also if the key is in a folder that the server's user can't enter.
    assert_serves(&setup);
    // Checks are at least a second apart.
    setup.secret("users", USERS.replace("ann", "bob"));
    wait_until("the new users", || {
        let status = setup.get("new.test", "/other/x", CREDENTIALS).status;
        (status == 401).then_some(())
    });
}

/// A file that the server first opens after the start.
#[test]
fn client_certificate_for_an_origin_may_be_readable_only_by_root() {
    if !can_run("client_certificate_for_an_origin_may_be_readable_only_by_root") {
        return;
    }
    let setup = Setup::new();
    setup.close_secrets();
    let at = setup.folder.path().display();
    setup.write_config(&format!(
        "[[site]]\nnames = \"new.test\"\nlisten = \"127.0.0.1:0\"\n\
         [[site.route]]\npattern = \"/**\"\norigin = \"other\"\n\
         [[origin]]\nname = \"other\"\nservers = [\"https://127.0.0.1:9\"]\n\
         [origin.tls]\nca = \"{at}/secret/authorities.pem\"\ncertificate = \"{at}/cert.pem\"\nkey = \"{at}/secret/key.pem\"\n"
    ));
    let (done, said) = setup.reload();
    assert!(done, "{said}");
    // No server listens there. 502 shows that the client certificate was opened and the connection refused.
    assert_eq!(setup.get("new.test", "/", "").status, 502);
}

#[test]
fn logs_in_a_folder_of_root_are_rotated() {
    if !can_run("logs_in_a_folder_of_root_are_rotated") {
        return;
    }
    let setup = Setup::new();
    setup.close_secrets();
    let log = setup.folder.path().join("secret/access.log");
    // Both signals reopen logs; HUP also reloads the configuration.
    for signal in ["USR1", "HUP"] {
        fs::rename(&log, log.with_extension("1")).expect("a log");
        setup.server().signal(signal);
        wait_until("a new log", || log.is_file().then_some(()));
        // Lines written before the reopen are in the other file.
        wait_until("a line", || {
            assert_eq!(setup.get("plain.test", "/page", "").text(), "served");
            (fs::metadata(&log).ok()?.len() > 0).then_some(())
        });
    }
}

/// Root does not follow a link that another user may have created.
#[test]
fn root_does_not_write_logs_through_a_users_symlink() {
    if !can_run("root_does_not_write_logs_through_a_users_symlink") {
        return;
    }
    let folder = TempFolder::new();
    let target = folder.file("target", "root's");
    fs::set_permissions(&target, Permissions::from_mode(0o600)).expect("a mode");
    folder.file("logs/x", "");
    let logs = folder.path().join("logs");
    chown(&logs, Some(NOBODY), None).expect("an owner");
    // The attack: the configured user owns the folder, and the link names a file of root.
    symlink(&target, logs.join("error.log")).expect("a link");
    let at = folder.path().display();
    let config = format!(
        "[server]\nadmin = \"{at}/admin\"\nuser = \"nobody\"\n[log]\nerror = \"{at}/logs/error.log\"\n\
         [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{at}\"\n"
    );
    let config = folder.file("lowroad.toml", config);
    let output = Command::new(PROGRAM)
        .args(["run", "-c"])
        .arg(config)
        .output();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("can't write the log") && said.contains("Permission denied"),
        "{said}"
    );
    assert_eq!(fs::read(&target).expect("a file"), b"root's");
    // Nor did the file get another owner.
    assert_eq!(target.metadata().expect("a file").uid(), 0);
}

#[test]
fn server_keeps_open_files_after_its_helper_died() {
    if !can_run("server_keeps_open_files_after_its_helper_died") {
        return;
    }
    let setup = Setup::new();
    let helper = helper_of(setup.server());
    let status = fs::read_to_string(format!("/proc/{helper}/status")).expect("/proc");
    // CAP_CHOWN, CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
    assert!(status.contains("CapEff:\t0000000000000007\n"), "{status}");
    // Without its helper, the server continues with the open files.
    let killed = Command::new("kill").args(["-KILL", &helper]).status();
    assert!(killed.expect("it runs").success());
    setup.add_site();
    let (done, said) = setup.reload();
    assert!(done, "{said}");
    setup
        .server()
        .wait_for_error_line("the helper process with root's rights has ended");
    assert_serves(&setup);
}

/// The process number of a server's helper.
fn helper_of(server: &TestServer) -> String {
    let children = format!("/proc/{0}/task/{0}/children", server.pid());
    let children = fs::read_to_string(children).expect("/proc");
    let is_helper = |pid: &&str| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains("rights-helper")
    };
    let helper = children.split_whitespace().find(is_helper);
    helper.expect("a helper").to_owned()
}

#[test]
fn helper_exits_when_the_server_is_killed() {
    if !can_run("helper_exits_when_the_server_is_killed") {
        return;
    }
    let setup = Setup::new();
    let helper = helper_of(setup.server());
    // A killed server can't end its helper, which must detect the server's end itself.
    setup.server().signal("KILL");
    wait_until("the helper's end", || {
        let status = fs::read_to_string(format!("/proc/{helper}/status"));
        status
            // A zombie counts as ended: its new parent may reap it late.
            .map_or(true, |it| it.contains("State:\tZ"))
            .then_some(())
    });
}

/// If the helper remained, a supervisor would have to kill it. Operators find the helper by the program's name.
#[test]
fn helper_exits_before_the_server() {
    if !can_run("helper_exits_before_the_server") {
        return;
    }
    let mut setup = Setup::new();
    let helper = PathBuf::from(format!("/proc/{}", helper_of(setup.server())));
    let name = fs::read_to_string(helper.join("comm")).expect("a process");
    assert_eq!(name, "lowroad\n");
    let mut server = setup.server.take().expect("it was started");
    server.signal("TERM");
    server.wait_for_end();
    assert!(!helper.exists(), "the server has reaped it");
}

#[test]
fn invalid_configuration_keeps_the_helpers_allowed_files() {
    if !can_run("invalid_configuration_keeps_the_helpers_allowed_files") {
        return;
    }
    let folder = TempFolder::new();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("a mode");
    let (at, log) = (
        folder.path().display(),
        folder.file("secret/access.log", ""),
    );
    // At the start, the helper opens no file that the configuration names.
    let config = folder.file(
        "lowroad.toml",
        format!(
            "[server]\nadmin = \"{at}/admin\"\nuser = \"nobody\"\n[log]\naccess = \"{at}/secret/access.log\"\n\
             [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{at}/secret\"\n"
        ),
    );
    let mut command = Command::new(PROGRAM);
    command.args(["run", "-c"]).arg(&config);
    let server = TestServer::spawn(command);
    fs::write(&config, "colour = 'red'").expect("a configuration");
    let secret = folder.path().join("secret");
    fs::set_permissions(secret, Permissions::from_mode(0o700)).expect("a mode");
    fs::rename(&log, log.with_extension("1")).expect("a log");
    server.signal("USR1");
    wait_until("a new log", || log.is_file().then_some(()));
}

/// For files that only root can see, the server asks the helper once a minute, also after a reload.
#[test]
fn files_visible_only_to_the_helper_are_checked_once_a_minute() {
    if !can_run("files_visible_only_to_the_helper_are_checked_once_a_minute") {
        return;
    }
    let mut setup = Setup::new();
    setup.server = None;
    setup.close_secrets();
    let at = setup.folder.path().display().to_string();
    // The log suppresses equal lines within a second, so each certificate has a different expiry year.
    let certify = |year| {
        let mut params = rcgen::CertificateParams::new(["seen.test".to_owned()]).expect("names");
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        setup.folder.file("seen.key", key.serialize_pem());
        setup.folder.file("seen.pem", certificate.pem());
    };
    certify(2100);
    setup.write_config(&format!(
        "[[site]]\nnames = \"seen.test\"\nroot = \"{at}/www\"\n[site.tls]\nlisten = \"127.0.0.2:0\"\n\
         client = \"request\"\nclient_ca = \"{at}/secret/authorities.pem\"\n\
         certificate = \"{at}/seen.pem\"\nkey = \"{at}/seen.key\"\n"
    ));
    let mut command = Command::new(PROGRAM);
    command.args(["run", "-c"]).arg(setup.config());
    let server = TestServer::spawn(command);
    let status = format!("/proc/{}/status", helper_of(&server));
    let context_switches = || {
        let text = fs::read_to_string(&status).expect("a process");
        let line = text
            .lines()
            .find_map(|it| it.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|it| it.trim().parse::<u64>().ok())
            .expect("a count")
    };
    // Files that the server itself can see are checked every half second, together with those of all sites.
    let renew = |year| {
        certify(year);
        server.wait_for_error_line(&format!("seen.pem: reloaded, valid until {year}"));
    };
    renew(2101);
    let before = context_switches();
    (2102..2107).for_each(renew);
    // Each request to the helper is a voluntary context switch; five renewals must cause almost none.
    assert!(
        context_switches() - before < 5,
        "{} questions",
        context_switches() - before
    );
}

/// The output of `check` as root, with its exit code.
fn check(setup: &Setup) -> (i32, String) {
    let mut command = Command::new(PROGRAM);
    let output = command.args(["check", "-c"]).arg(setup.config()).output();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("a code"), said)
}

#[test]
fn check_tests_access_as_the_configured_user() {
    if !can_run("check_tests_access_as_the_configured_user") {
        return;
    }
    let setup = Setup::new();
    setup.close_secrets();
    assert_eq!(
        check(&setup),
        (0, String::new()),
        "root's files are the helper's"
    );
    let at = |name: &str| setup.folder.path().join(name);
    // A file that the helper would refuse to open after a reload.
    fs::create_dir(at("other")).expect("a folder");
    fs::copy(at("secret/key.pem"), at("other/key.pem")).expect("a copy");
    fs::set_permissions(at("other/key.pem"), Permissions::from_mode(0o600)).expect("a mode");
    chown(at("other"), Some(NOBODY), None).expect("an owner");
    let text = fs::read_to_string(setup.config()).expect("a configuration");
    let write = |from: &str, to: &str| {
        fs::write(setup.config(), text.replace(from, to)).expect("a configuration");
    };
    write("secret/key.pem", "other/key.pem");
    let (code, said) = check(&setup);
    assert!(
        code == 3 && said.contains("after the start") && said.contains("other/key.pem"),
        "{code} {said}"
    );
    // A log in a folder that only another user can write.
    fs::create_dir(at("daemon")).expect("a folder");
    chown(at("daemon"), Some(1), None).expect("an owner");
    write("secret/access.log", "daemon/access.log");
    let (code, said) = check(&setup);
    assert!(
        code == 1 && said.contains("can't write") && said.contains("daemon/access.log"),
        "{code} {said}"
    );
    fs::write(setup.config(), &text).expect("a configuration");
    fs::set_permissions(at("www"), Permissions::from_mode(0o700)).expect("a mode");
    let (code, said) = check(&setup);
    assert!(
        code == 1 && said.contains("www can't be served: Permission denied"),
        "{code} {said}"
    );
}

/// The disk cache and applications are used by the server's configured user.
#[test]
fn check_warns_if_configured_user_lacks_access() {
    if !can_run("check_warns_if_configured_user_lacks_access") {
        return;
    }
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
    };
    let folder = TempFolder::new();
    mode(folder.path(), 0o755);
    let program = folder.file("program", "#!/bin/sh\n");
    mode(&program, 0o700);
    fs::create_dir(folder.path().join("secret")).expect("a folder");
    mode(&folder.path().join("secret"), 0o700);
    let at = folder.path().display();
    let site = format!("[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{at}\"\n");
    for (config, wanted) in [
        (
            format!("[server]\nuser = \"nobody\"\ndisk_cache = \"{at}/secret/cache\"\n{site}"),
            "secret/cache can't be opened: Permission denied",
        ),
        (
            format!(
                "[server]\nuser = \"nobody\"\n{site}\
                 [[application]]\nname = \"app\"\ncommand = [\"{at}/program\"]\n"
            ),
            "program can't be started: Permission denied (os error 13); is the server's user allowed to execute it?",
        ),
    ] {
        let file = folder.file("lowroad.toml", &config);
        let mut command = Command::new(PROGRAM);
        let output = command.args(["check", "-c"]).arg(file).output();
        let output = output.expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains(wanted), "{said}");
        let server = TestServer::run(PROGRAM, &folder, &config);
        server.wait_for_error_line(wanted);
    }
}

/// The server reads and writes ticket keys, so a user's link could make root write into any file.
#[test]
fn root_does_not_open_ticket_keys_through_a_users_symlink() {
    if !can_run("root_does_not_open_ticket_keys_through_a_users_symlink") {
        return;
    }
    let folder = TempFolder::new();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("a mode");
    let target = folder.file("target", "");
    fs::set_permissions(&target, Permissions::from_mode(0o600)).expect("a mode");
    folder.file("state/x", "");
    let state = folder.path().join("state");
    let keys = state.join("tickets");
    chown(&state, Some(NOBODY), None).expect("an owner");
    // The attack: the configured user owns the folder, and the link names a file of root.
    symlink(&target, &keys).expect("a link");
    let at = folder.path().display();
    let config = format!(
        "[server]\nadmin = \"{at}/admin\"\nuser = \"nobody\"\nticket_keys = \"{at}/state/tickets\"\n\
         [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{at}\"\n"
    );
    let config = folder.file("lowroad.toml", config);
    let command = || {
        let mut command = Command::new(PROGRAM);
        command.args(["run", "-c"]).arg(&config);
        command
    };
    let output = command().output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        errors.contains("ticket_keys") && errors.contains("as user nobody"),
        "{errors}"
    );
    assert_eq!(fs::read(&target).expect("a file"), b"");
    // The user's own file is created with the user's rights.
    fs::remove_file(&keys).expect("a link");
    let _server = TestServer::spawn(command());
    let made = fs::metadata(&keys).expect("keys");
    assert_eq!((made.uid(), made.mode() & 0o777), (NOBODY, 0o600));
}
