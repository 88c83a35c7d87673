//! Changes of operators that survive a restart: the file of `changes` in `[admin]`.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{TempFolder, TestClient, TestServer, skip};
use serde_json::Value;

use crate::support::PROGRAM;

/// A server with the origin `app`, which is started again and again in the same folder.
struct RestartedServer {
    folder: TempFolder,
    origins: [TestOrigin; 3],
    server: Option<TestServer>,
}

impl RestartedServer {
    fn start(admin: &str) -> RestartedServer {
        let folder = TempFolder::new();
        folder.file("root/index.html", "hello");
        let origins = [(); 3].map(|()| TestOrigin::with_response(|_| String::new()));
        let servers = [origins[0].url(), origins[1].url()];
        let config = format!(
            "[server]\nuser = \"root\"\nadmin = \"{}/admin.sock\"\n{admin}\n\
             [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n\
             [[site.route]]\npattern = \"/app/**\"\norigin = \"app\"\n\
             [[origin]]\nname = \"app\"\nservers = {servers:?}\n",
            folder.path().display()
        );
        let server = TestServer::run(PROGRAM, &folder, &config);
        RestartedServer {
            folder,
            origins,
            server: Some(server),
        }
    }

    fn commands(&self) -> StatusClient {
        StatusClient::new(PROGRAM, self.folder.path().join("admin.sock"))
    }

    fn command(&self, arguments: &[&str]) -> String {
        self.commands().command(arguments)
    }

    /// Runs a command that must fail; returns the message.
    fn failure(&self, arguments: &[&str]) -> String {
        let output = self.commands().run(arguments);
        assert!(!output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn restart(&mut self) {
        self.command(&["stop"]);
        drop(self.server.take());
        let file = self.folder.path().join("lowroad.toml");
        let arguments = ["run", "-c", &file.display().to_string()];
        self.server = Some(TestServer::start(PROGRAM, &arguments));
    }

    fn server(&self) -> &TestServer {
        self.server.as_ref().expect("it runs")
    }

    fn address(&self, index: usize) -> String {
        let url = self.origins[index].url();
        url.trim_start_matches("http://").to_owned()
    }

    fn saved(&self) -> Value {
        let text = std::fs::read(self.folder.path().join("changes.json"));
        serde_json::from_slice(&text.expect("a file")).expect("JSON")
    }
}

#[test]
fn persistent_changes_survive_a_restart_and_others_do_not() {
    let mut restarted = RestartedServer::start("[admin]\nchanges = \"changes.json\"");
    let [a, b, c] = [0, 1, 2].map(|index| restarted.address(index));
    restarted.command(&["origin", "down", "app", &a, "--persist"]);
    restarted.command(&["origin", "weight", "app", &b, "7"]);
    // Saved in the form in which it is listed.
    let unspecified = c.replace("127.0.0.1", "0.0.0.0");
    restarted.command(&[
        "origin",
        "add",
        "app",
        &unspecified,
        "--weight",
        "3",
        "--persist",
    ]);
    restarted.command(&["deny", "add", "127.0.0.9", "--for", "1h", "--persist"]);
    restarted.command(&["deny", "add", "127.0.0.10"]);
    let level = Command::new("curl")
        .args(["-sS", "-X", "PATCH", "--unix-socket"])
        .arg(restarted.folder.path().join("admin.sock"))
        .args(["-d", "{\"level\":\"debug\",\"persist\":true}"])
        .args([
            "-H",
            "Content-Type: application/json",
            "http://admin/v1/log",
        ])
        .output();
    assert!(level.expect("curl").status.success());
    restarted.restart();
    let list = restarted.command(&["origin", "list"]);
    assert!(list.contains(&format!("app {a}: state down")), "{list}");
    assert!(
        list.contains(&format!("app {b}: state ready, health up, weight 1,")),
        "{list}"
    );
    assert!(
        list.contains(&format!(
            "app {c}: state ready, health up, added, weight 3,"
        )),
        "{list}"
    );
    let denied = restarted.command(&["deny", "list"]);
    assert!(
        denied.starts_with("127.0.0.9 until ") && denied.lines().count() == 1,
        "{denied}"
    );
    let from = IpAddr::from([127, 0, 0, 9]);
    let mut client = TestClient::connect_from(from, restarted.server().address());
    client.wait_for_close();
    assert!(client.received.is_empty());
    assert_eq!(restarted.saved()["log_level"], "debug");
    // Without --persist, the file is left alone.
    restarted.command(&["origin", "ready", "app", &a]);
    restarted.restart();
    let list = restarted.command(&["origin", "show", "app"]);
    assert!(list.contains(&format!("app {a}: state down")), "{list}");
    restarted.command(&["origin", "ready", "app", &a, "--persist"]);
    restarted.command(&["origin", "remove", "app", &c, "--persist"]);
    restarted.command(&["deny", "remove", "127.0.0.9", "--persist"]);
    let saved = restarted.saved();
    assert_eq!(saved["servers"], serde_json::json!([]));
    assert_eq!(saved["deny"], serde_json::json!([]));
}

#[test]
fn damaged_and_stale_entries_are_named_and_skipped() {
    let mut restarted = RestartedServer::start("[admin]\nchanges = \"changes.json\"");
    let a = restarted.address(0);
    let stale = format!(
        "{{\"servers\": [\
         {{\"origin\": \"gone\", \"address\": \"{a}\", \"state\": \"down\", \"weight\": null, \"added\": null}},\
         {{\"origin\": \"app\", \"address\": \"{a}\", \"state\": \"drain\", \"weight\": null, \"added\": null}}],\
         \"deny\": [{{\"address\": \"somewhere\", \"until_s\": null}}]}}"
    );
    restarted.folder.file("changes.json", stale);
    restarted.restart();
    let server = restarted.server();
    server.wait_for_error_line("an entry is skipped: deny: ");
    server.wait_for_error_line(&format!("the change of gone {a} has no effect now"));
    let list = restarted.command(&["origin", "list"]);
    assert!(list.contains(&format!("app {a}: state drain")), "{list}");
    // The entry would be lost.
    let refused = restarted.failure(&["deny", "add", "10.0.0.1", "--persist"]);
    assert!(
        refused.contains("has an entry that can't be used"),
        "{refused}"
    );
    restarted.folder.file("changes.json", "{\"servers\": [");
    restarted.restart();
    restarted
        .server()
        .wait_for_error_line("changes.json is damaged");
    let refused = restarted.failure(&["origin", "down", "app", &a, "--persist"]);
    assert!(
        refused.contains("is damaged") && refused.contains("nothing was changed"),
        "{refused}"
    );
    let list = restarted.command(&["origin", "list"]);
    assert!(list.contains(&format!("app {a}: state ready")), "{list}");
    // A folder in place of the temporary file: the write fails.
    restarted.folder.file("changes.json", "{}");
    restarted.folder.file("changes.json.new/x", "");
    let failed = restarted.failure(&["deny", "add", "10.0.0.1", "--persist"]);
    assert!(
        failed.contains("the change is in force, but ends with a restart"),
        "{failed}"
    );
    assert_eq!(restarted.command(&["deny", "list"]), "10.0.0.1\n");
    let audited = restarted
        .server()
        .wait_for_error_line("\"result\":\"not saved\"");
    assert!(
        audited.contains("\"after\":{\"entries\":[{\"address\":\"10.0.0.1\""),
        "{audited}"
    );
}

#[test]
fn second_server_with_the_same_file_saves_nothing() {
    let mut first = RestartedServer::start("[admin]\nchanges = \"changes.json\"");
    let config = std::fs::read_to_string(first.folder.path().join("lowroad.toml"));
    let other = config.expect("a file").replace("admin.sock", "other.sock");
    let other = first.folder.file("other.toml", other);
    let second = TestServer::start(PROGRAM, &["run", "-c", &other.display().to_string()]);
    second.wait_for_error_line("another server uses");
    let commands = StatusClient::new(PROGRAM, first.folder.path().join("other.sock"));
    let refused = commands.run(&["deny", "add", "192.0.2.2", "--persist"]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        text.contains("another server uses") && text.contains("nothing was changed"),
        "{text}"
    );
    assert_eq!(commands.command(&["deny", "list"]), "");
    first.command(&["deny", "add", "192.0.2.1", "--persist"]);
    // The lock ends with the first server.
    first.command(&["stop"]);
    drop(first.server.take());
    commands.command(&["deny", "add", "192.0.2.2", "--persist"]);
    let saved = first.saved().to_string();
    assert_eq!(saved.matches("192.0.2.").count(), 2, "{saved}");
}

#[test]
fn persist_needs_a_file() {
    let restarted = RestartedServer::start("");
    let refused = restarted.failure(&["deny", "add", "10.0.0.1", "--persist"]);
    assert!(refused.contains("set changes in [admin]"), "{refused}");
    assert_eq!(restarted.command(&["deny", "list"]), "");
    // The warnings of a new configuration are printed.
    let file = restarted.folder.path().join("lowroad.toml");
    let config = std::fs::read_to_string(file).expect("a file");
    let doubtful = config.replace(
        "root = \"root\"\n",
        "root = \"root\"\ntrusted_proxies = \"::/0\"\n",
    );
    restarted.folder.file("lowroad.toml", doubtful);
    let text = restarted.command(&["reload"]);
    assert!(
        text.contains("\nwarning: ") && text.contains("::/0 trusts every client"),
        "{text}"
    );
}

#[test]
fn stop_removes_the_socket_of_a_server_that_has_given_up_root() {
    let folder = TempFolder::new();
    // Owned by this process; the server's user can't remove files of its folder.
    folder.file("root/index.html", "hello");
    let socket = folder.path().join("admin.sock");
    if std::fs::metadata("/proc/self").map_or(1, |it| it.uid()) != 0 {
        return skip(
            "stop_removes_the_socket_of_a_server_that_has_given_up_root",
            "not root",
        );
    }
    let config = format!(
        "[server]\nuser = \"nobody\"\nadmin = \"{}\"\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"root\"\n",
        socket.display()
    );
    let _server = TestServer::run(PROGRAM, &folder, &config);
    assert!(socket.exists());
    StatusClient::new(PROGRAM, &socket).command(&["stop"]);
    assert!(!socket.exists());
}
