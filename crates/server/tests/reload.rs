//! SIGHUP: a running server applies a new configuration completely or not at all, without losing a connection.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{TEST_TIMEOUT, TempFolder, TestClient, TestServer, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// A server with a configuration that changes.
struct Operator {
    folder: TempFolder,
    server: TestServer,
}

impl Operator {
    /// Starts a server with these `[[site]]` tables, in which `ROOT` stands for the folder of the files.
    fn start(sites: &str) -> Operator {
        let folder = TempFolder::new();
        for name in ["one", "two"] {
            folder.file(format!("{name}/who"), name);
        }
        folder.zeros("one/huge", 48 << 20);
        let server = TestServer::run(PROGRAM, &folder, &config(&folder, sites));
        Operator { folder, server }
    }

    fn write(&self, sites: &str) {
        self.folder
            .file("lowroad.toml", config(&self.folder, sites));
    }

    /// Requests a reload with these sites. The log reports each reload, but suppresses equal lines within a second.
    fn reload(&self, sites: &str) {
        self.write(sites);
        self.server.signal("HUP");
    }

    /// Tries a reload that must fail; returns the reason.
    fn fail_to_reload(&self, sites: &str) -> String {
        self.write(sites);
        self.server.signal("HUP");
        self.server
            .wait_for_error_line("the previous configuration stays in force")
    }

    /// Whether the server reports that this path is stored.
    fn stores(&self, path: &str) -> bool {
        let url = format!("http://{}{path}", self.server.address());
        let admin = admin(&self.folder).display().to_string();
        let output = Command::new(PROGRAM)
            .args(["explain", &url, "--admin", &admin])
            .output()
            .expect("the explain command");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let stored = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("stored"));
        stored.expect(&text).trim() == "yes"
    }

    /// The addresses that the server reports.
    fn listens(&self) -> Vec<SocketAddr> {
        let admin = admin(&self.folder).display().to_string();
        let output = Command::new(PROGRAM)
            .args(["status", "--admin", &admin])
            .output()
            .expect("the status command");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines()
            .filter_map(|line| line.trim().strip_prefix("listens"))
            .map(|address| address.trim().parse().expect("an address"))
            .collect()
    }
}

fn admin(folder: &TempFolder) -> PathBuf {
    folder.path().join("admin.sock")
}

fn config(folder: &TempFolder, sites: &str) -> String {
    let sites = sites.replace("ROOT", &folder.path().display().to_string());
    let admin = admin(folder);
    format!(
        "[server]\nworkers = 2\nadmin = \"{}\"\n{sites}",
        admin.display()
    )
}

const ONE: &str = "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"ROOT/one\"\n";
const TWO: &str = "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"ROOT/two\"\n";
const ONE_ELSEWHERE: &str = "[[site]]\nlisten = \"127.0.0.2:0\"\nroot = \"ROOT/one\"\n";

fn who(client: &mut TestClient) -> String {
    client.get("/who", "").text()
}

#[test]
fn reload_keeps_connections_and_applies_to_their_next_request() {
    let operator = Operator::start(ONE);
    let mut client = operator.server.connect();
    assert_eq!(who(&mut client), "one");
    let mut halfway = operator.server.connect();
    halfway.send("GET /who HTTP/1.1\r\nHos");
    let mut slow = operator.server.connect();
    slow.send("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(slow.receive_once());

    operator.reload(&format!(
        "{TWO}[[site.header]]\nset = {{ X-New = \"yes\" }}\n"
    ));
    let line = operator.server.wait_for_error_line(" is in force");
    assert!(line.ends_with("lowroad.toml is in force"), "{line}");
    // The workers have received the message, but may not have switched to the new site yet.
    wait_until("the new site", || (who(&mut client) == "two").then_some(()));
    assert_eq!(client.get("/who", "").field("x-new"), Some("yes"));
    halfway.send("t: a\r\n\r\n");
    assert_eq!(halfway.response().text(), "two");
    assert_eq!(slow.response().body.len(), 48 << 20);
    assert_eq!(client.get("/huge", "").status, 404);
    operator.reload(ONE);
    wait_until("the old site", || (who(&mut client) == "one").then_some(()));
    assert_eq!(client.get("/who", "").field("x-new"), None);
}

#[test]
fn reload_keeps_stored_responses_of_unchanged_sites() {
    let operator = Operator::start(ONE);
    let mut client = operator.server.connect();
    assert_eq!(who(&mut client), "one");
    assert!(operator.stores("/who"));

    let redirect = "[[site.redirect]]\nfrom = \"/mark\"\nto = \"/who\"\n";
    let second = TWO.replace("[[site]]", "[[site]]\nnames = \"two\"");
    operator.reload(&format!("{second}{ONE}{redirect}"));
    operator.server.wait_for_error_line("reload 1:");
    assert!(operator.stores("/who"));
    wait_until("the redirect", || {
        (client.get("/mark", "").status == 301).then_some(())
    });
    assert_eq!(who(&mut client), "one");

    operator.reload(&format!(
        "{ONE}[[site.header]]\nset = {{ X-New = \"yes\" }}\n"
    ));
    operator.server.wait_for_error_line("reload 2:");
    assert!(!operator.stores("/who"));
    wait_until("the new field", || {
        client.get("/who", "").field("x-new").map(drop)
    });
    // Responses stored for the previous site are gone.
    let admin = admin(&operator.folder);
    let status = StatusClient::new(PROGRAM, admin);
    assert!(operator.stores("/who"));
    status.wait_for("cache_objects", 1);
}

#[test]
fn invalid_configuration_changes_nothing() {
    let operator = Operator::start(ONE);
    let mut client = operator.server.connect();
    let busy = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = busy.local_addr().expect("an address");
    for (sites, why) in [
        (
            TWO.replace("listen", "lisen"),
            "lowroad.toml:5:1: site[0].lisen: ",
        ),
        (
            TWO.replace("ROOT/two", "ROOT/three"),
            "three cannot be used",
        ),
        (TWO.replace("[[site]]", "[[site]"), "lowroad.toml:4:"),
        (
            TWO.replace("127.0.0.1:0", &taken.to_string()),
            "another program listens there",
        ),
        // All tables but the last are valid.
        (
            format!("{TWO}[[site]]\nlisten = \"127.0.0.2:0\"\nroot = \"ROOT/one/who\"\n"),
            "is not a folder",
        ),
    ] {
        let line = operator.fail_to_reload(&sites);
        assert!(line.contains(why), "{line}");
        assert_eq!(who(&mut client), "one", "{why}");
        assert_eq!(operator.server.get("/who").text(), "one", "{why}");
        assert_eq!(operator.listens(), [operator.server.address()], "{why}");
    }
    operator.reload(TWO);
    wait_until("the new site", || (who(&mut client) == "two").then_some(()));
}

#[test]
fn reload_adds_and_removes_listeners() {
    let operator = Operator::start(TWO);
    let first = operator.server.address();
    let mut client = operator.server.connect();
    assert_eq!(who(&mut client), "two");

    operator.reload(&format!("{TWO}{ONE_ELSEWHERE}"));
    let second = wait_until("another listener", || operator.listens().get(1).copied());
    assert_eq!(operator.listens()[0], first);
    assert!(second.ip().to_string() == "127.0.0.2" && second.port() != 0);
    // A new listener knows its site from the start.
    let mut other = TestClient::connect(second);
    assert_eq!(
        (who(&mut other), who(&mut client)),
        ("one".into(), "two".into())
    );

    operator.reload(ONE_ELSEWHERE);
    wait_until("one listener less", || {
        (operator.listens() == [second]).then_some(())
    });
    wait_until("the first listener's end", || {
        TcpStream::connect(first).err()
    });
    // An existing connection gets 421 (the site is gone), and stays open.
    wait_until("the news", || {
        (client.get("/who", "").status == 421).then_some(())
    });
    assert_eq!(client.get("/who", "").status, 421);
    assert_eq!(who(&mut other), "one");
}

#[test]
fn reload_can_add_a_just_removed_address() {
    let operator = Operator::start(TWO);
    operator.reload(&format!("{TWO}{ONE_ELSEWHERE}"));
    operator.server.wait_for_error_line("reload 1:");
    let address = operator.listens()[1];
    let again = ONE_ELSEWHERE.replace("127.0.0.2:0", &address.to_string());
    for number in 1..4 {
        operator.reload(TWO);
        let line = format!("reload {}:", 2 * number);
        operator.server.wait_for_error_line(&line);
        // The workers are about to accept the last connections at this address.
        operator.reload(&format!("{TWO}{again}"));
        let line = format!("reload {}:", 2 * number + 1);
        let line = operator.server.wait_for_error_line(&line);
        assert!(line.contains("is in force"), "{line}");
        let mut client = TestClient::connect(address);
        assert_eq!(who(&mut client), "one");
    }
}

#[test]
fn no_request_fails_during_reloads() {
    let operator = Operator::start(ONE);
    let address = operator.server.address();
    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for keep_alive in [true, true, false, false] {
            let (stop, answered) = (&stop, &answered);
            scope.spawn(move || {
                let mut client = TestClient::connect(address);
                let start = Instant::now();
                while start.elapsed() < TEST_TIMEOUT && !stop.load(Relaxed) {
                    let said = who(&mut client);
                    assert!(said == "one" || said == "two", "{said}");
                    answered.fetch_add(1, Relaxed);
                    if !keep_alive {
                        client = TestClient::connect(address);
                    }
                }
            });
        }
        for round in 0..10 {
            let before = answered.load(Relaxed);
            wait_until("some load", || {
                (answered.load(Relaxed) > before + 100).then_some(())
            });
            let (site, name) = if round % 2 == 0 {
                (TWO, "two")
            } else {
                (ONE, "one")
            };
            operator.reload(site);
            wait_until("the new answer", || {
                (operator.server.get("/who").text() == name).then_some(())
            });
        }
        stop.store(true, Relaxed);
    });
}

/// Runs a command for a folder's server; returns its success and output.
fn command(folder: &TempFolder, name: &str) -> (bool, String) {
    let output = Command::new(PROGRAM)
        .args([name, "--admin"])
        .arg(admin(folder))
        .output()
        .expect("the command runs");
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&said).into(),
    )
}

#[test]
fn reload_and_stop_commands_wait_for_completion() {
    let mut operator = Operator::start(ONE);
    assert_eq!(operator.server.get("/who").text(), "one");
    operator.write(&ONE.replace("ROOT/one", "ROOT/two"));
    let (done, said) = command(&operator.folder, "reload");
    assert!(done && said.contains("is in force"), "{said}");
    assert_eq!(operator.server.get("/who").text(), "two");
    operator.write("[[site]]\nnonsense = 1\n");
    let (done, said) = command(&operator.folder, "reload");
    assert!(
        !done && said.contains("stays in force") && said.contains("nonsense"),
        "{said}"
    );
    assert_eq!(operator.server.get("/who").text(), "two");
    let (done, said) = command(&operator.folder, "stop");
    assert!(done && said.contains("has ended"), "{said}");
    assert!(operator.server.wait_for_end().success());
    let (done, said) = command(&operator.folder, "stop");
    assert!(!done, "{said}");
}

#[test]
fn sighup_without_configuration_file_is_reported() {
    let folder = TempFolder::new();
    folder.file("who", "serve");
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    server.signal("HUP");
    server.wait_for_error_line("there is no configuration file to reload");
    assert_eq!(server.get("/who").text(), "serve");
}

/// Runs the program; returns the exit code and all output.
fn run(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("the program runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.code(), said)
}

#[test]
fn included_files_are_compared_and_reloaded() {
    let folder = TempFolder::new();
    for name in ["one", "two"] {
        folder.file(format!("{name}/who"), name);
    }
    let site = |root: &str| {
        let text = format!("[[site]]\nuse = \"local\"\nroot = \"../{root}\"\n");
        folder.file("sites/a.toml", text);
    };
    site("one");
    let template = "[template.local]\nlisten = \"127.0.0.1:0\"\n";
    let main = format!("include = \"sites/*.toml\"\n{}", config(&folder, template));
    let server = TestServer::run(PROGRAM, &folder, &main);
    assert_eq!(server.get("/who").text(), "one");

    let file = folder.path().join("lowroad.toml");
    let diff = || {
        let mut diff = Command::new(PROGRAM);
        diff.args(["config", "diff"]).arg(&file);
        run(diff.arg("--admin").arg(admin(&folder)))
    };
    assert_eq!(diff(), (Some(0), String::new()));
    site("two");
    let (code, said) = diff();
    // Without a file, that of the running server is compared.
    let mut own = Command::new(PROGRAM);
    own.args(["config", "diff", "--admin"]).arg(admin(&folder));
    assert_eq!(run(&mut own), (code, said.clone()));
    assert_eq!((code, said.lines().count()), (Some(3), 2), "{said}");
    assert!(
        said.contains("+ site[#1].root = ") && said.contains("sites/a.toml:3"),
        "{said}"
    );

    // Something that is no file is refused before it is read.
    let fifo = folder.path().join("sites/b.toml");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo").success());
    let (done, said) = command(&folder, "reload");
    assert!(
        !done && said.contains("sites/b.toml cannot be read: not a regular file"),
        "{said}"
    );
    std::fs::remove_file(&fifo).expect("a FIFO");
    std::fs::create_dir(&fifo).expect("a folder");
    let (done, said) = command(&folder, "reload");
    assert!(
        !done && said.contains("sites/b.toml cannot be read"),
        "{said}"
    );
    std::fs::remove_dir(&fifo).expect("a folder");
    assert_eq!(server.get("/who").text(), "one");

    let (done, said) = command(&folder, "reload");
    assert!(done, "{said}");
    assert_eq!(server.get("/who").text(), "two");
    assert_eq!(diff(), (Some(0), String::new()));
    let (code, said) = run(Command::new(PROGRAM).args(["config", "show"]).arg(&file));
    assert!(code == Some(0) && said.contains("used at"), "{said}");
}

#[test]
fn unusable_secrets_are_found_by_check() {
    let folder = TempFolder::new();
    folder.file("www/index.html", "x");
    let token = folder.file("token", "0123456789abcdef\n");
    folder.file("empty", "\n");
    folder.file("long", "x".repeat(4097));
    let made = Command::new("mkfifo")
        .arg(folder.path().join("fifo"))
        .status();
    assert!(made.expect("mkfifo").success());
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&token, private).expect("a mode");
    let check = |secret: &str| {
        let text = format!(
            "[admin]\nlisten = \"127.0.0.1:1\"\ntoken = {secret}\n[[site]]\nroot = \"www\"\nlisten = \"127.0.0.1:2\"\n"
        );
        let file = folder.file("lowroad.toml", text);
        let mut check = Command::new(PROGRAM);
        check.arg("check").arg("-c").arg(&file);
        check.env("TOKEN", "0123456789abcdef").env("SHORT", "x");
        run(check.env("CREDENTIALS_DIRECTORY", folder.path()))
    };
    for secret in [
        "{ file = \"token\" }",
        "{ env = \"TOKEN\" }",
        "{ credential = \"token\" }",
    ] {
        let (code, said) = check(secret);
        assert_eq!(code, Some(0), "{secret}: {said}");
    }
    for (secret, expected) in [
        ("{ file = \"none\" }", "none can't be used: No such file"),
        ("{ file = \"empty\" }", "empty can't be used: empty"),
        ("{ file = \"long\" }", "longer than 4096 bytes"),
        ("{ file = \"fifo\" }", "not a regular file"),
        ("{ file = \".\" }", "can't be used: "),
        (
            "{ env = \"NONE_SUCH\" }",
            "the variable NONE_SUCH can't be used: not set",
        ),
        ("{ env = \"SHORT\" }", "at least 16 printable characters"),
        (
            "{ credential = \"none\" }",
            "the credential none can't be used: No such file",
        ),
    ] {
        let (code, said) = check(secret);
        assert!(
            code == Some(1) && said.contains(expected),
            "{secret}: {said}"
        );
    }
    // A secret that other users can read is a warning.
    let public = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&token, public).expect("a mode");
    let (code, said) = check("{ file = \"token\" }");
    assert!(
        code == Some(3) && said.contains("other users can read or replace this secret"),
        "{said}"
    );
}

#[test]
fn reload_warns_of_secrets_that_others_can_read() {
    let sites = "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"ROOT/one\"\n";
    let operator = Operator::start(sites);
    let key = operator.folder.file("key", "hunter2\n");
    let public = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&key, public).expect("a mode");
    operator.write(&format!(
        "{sites}[[site.route]]\npattern = \"/api/**\"\norigin = \"http://127.0.0.1:1\"\n\
         request = {{ set = {{ X-Key = {{ file = {key:?} }} }} }}\n"
    ));
    let (done, said) = command(&operator.folder, "reload");
    let warning = "key: other users can read or replace this secret";
    assert!(done && said.contains(warning), "{said}");
    assert!(
        operator
            .server
            .wait_for_error_line(warning)
            .contains(" warn ")
    );
}
