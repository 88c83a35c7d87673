//! Changes by operators before, during and after an upgrade: none is lost between the two processes.

use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;

use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{TestClient, wait_until};

use super::upgrade::Upgradable;
use super::{LARGE, PROGRAM, site};

const ORIGIN: &str = "[[site.route]]\npattern = \"/app/**\"\norigin = \"app\"\n\
    [[origin]]\nname = \"app\"\nservers = [\"http://127.0.0.1:1\", \"http://127.0.0.1:2\"]\n";

fn commands(upgradable: &Upgradable) -> StatusClient {
    StatusClient::new(PROGRAM, upgradable.path("admin"))
}

#[test]
fn changes_are_refused_while_a_successor_starts() {
    let upgradable = Upgradable::start(site(), "", ORIGIN);
    let (started, end) = (upgradable.path("started"), upgradable.path("end"));
    upgradable.replace_program(&format!(
        "touch {}; while [ ! -e {} ]; do sleep 0.01; done",
        started.display(),
        end.display()
    ));
    let commands = commands(&upgradable);
    let changes: [&[&str]; 6] = [
        &["deny", "add", "192.0.2.7"],
        &["origin", "down", "app", "127.0.0.1:1"],
        &["origin", "add", "app", "127.0.0.1:3"],
        &["origin", "remove", "app", "127.0.0.1:2"],
        &["maintenance", "on"],
        &["reload"],
    ];
    thread::scope(|scope| {
        let upgrade = scope.spawn(|| commands.run(&["upgrade"]));
        wait_until("the successor", || started.exists().then_some(()));
        for change in changes {
            let refused = commands.run(change);
            let text = String::from_utf8_lossy(&refused.stderr);
            assert!(!refused.status.success(), "{change:?}");
            assert!(
                text.contains("an upgrade is in progress"),
                "{change:?}: {text}"
            );
        }
        let level = Command::new("curl")
            .args(["-sS", "-X", "PATCH", "--unix-socket"])
            .arg(upgradable.path("admin"))
            .args(["-d", "{\"level\":\"debug\"}", "http://admin/v1/log"])
            .args(["-H", "Content-Type: application/json"])
            .output();
        let level = String::from_utf8(level.expect("curl").stdout).expect("text");
        assert!(level.contains("\"status\":409"), "{level}");
        // These requests change nothing that the successor receives.
        assert_eq!(commands.command(&["deny", "list"]), "");
        assert!(commands.run(&["purge", "http://a/*"]).status.success());
        std::fs::write(&end, "").expect("a file");
        assert!(!upgrade.join().expect("its end").status.success());
    });
    let list = commands.command(&["origin", "show", "app"]);
    assert_eq!(list.matches("state ready").count(), 2, "{list}");
    // The upgrade has failed, so that changes are possible again.
    assert_eq!(
        commands.command(&["deny", "add", "192.0.2.7"]),
        "192.0.2.7\n"
    );
}

#[test]
fn denied_clients_lose_their_connections_to_draining_processes() {
    let folder = site();
    folder.zeros("huge", LARGE as u64);
    let upgradable = Upgradable::start(folder, "", "");
    let mut downloads = [7, 8].map(|last| {
        let source = IpAddr::from([127, 0, 0, last]);
        let mut client = TestClient::connect_from(source, upgradable.server.address());
        client.send("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.receive_once());
        client
    });
    // The second successor reaches the first process by the one between them.
    for _ in 0..2 {
        upgradable.upgrade();
    }
    let denied = commands(&upgradable).command(&["deny", "add", "127.0.0.7", "--for", "1h"]);
    assert!(denied.starts_with("127.0.0.7 until "), "{denied}");
    let [refused, accepted] = &mut downloads;
    refused.wait_for_close();
    assert!(refused.received.len() < LARGE);
    let response = accepted.whole_response().expect("the whole response");
    assert_eq!(response.body.len(), LARGE);
}

#[test]
fn no_admin_socket_remains_with_a_process_that_drains() {
    let folder = site();
    folder.zeros("huge", LARGE as u64);
    let upgradable = Upgradable::start(folder, "", "");
    let mut client = upgradable.server.connect();
    client.send("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.receive_once());
    upgradable.upgrade();
    let commands = commands(&upgradable);
    assert!(commands.run(&["stop"]).status.success());
    let socket = upgradable.path("admin");
    wait_until("the end of the successor", || {
        UnixStream::connect(&socket).is_err().then_some(())
    });
    let (code, text) = outcome(&commands, &["status"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("no running server"), "{text}");
    let response = client.whole_response().expect("the whole response");
    assert_eq!(response.body.len(), LARGE);
}

/// The command's exit status and its last message.
fn outcome(commands: &StatusClient, arguments: &[&str]) -> (Option<i32>, String) {
    let output = commands.run(arguments);
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    (output.status.code(), text)
}

/// Requests of a process that drains may be at servers of origins, too.
#[test]
fn waits_end_with_the_processes_that_drain() {
    let folder = site();
    folder.zeros("huge", LARGE as u64);
    let upgradable = Upgradable::start(folder, "", ORIGIN);
    let commands = commands(&upgradable);
    assert_eq!(outcome(&commands, &["upgrade", "--wait"]).0, Some(0));
    let mut client = upgradable.server.connect();
    client.send("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.receive_once());
    let (code, text) = outcome(&commands, &["upgrade", "--wait=1ms"]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("1 process from before an upgrade"), "{text}");
    assert_eq!(commands.value("draining_processes"), 1);
    let down = ["origin", "down", "app", "--all"];
    let (code, text) = outcome(&commands, &[&down[..], &["--wait=1ms"]].concat());
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("may still have requests"), "{text}");
    let response = client.whole_response().expect("the whole response");
    assert_eq!(response.body.len(), LARGE);
    drop(client);
    assert_eq!(
        outcome(&commands, &[&down[..], &["--wait"]].concat()).0,
        Some(0)
    );
    assert_eq!(commands.value("draining_processes"), 0);
}

#[test]
fn successor_saves_changes_in_the_file_of_its_predecessor() {
    let folder = site();
    let changes = folder.path().join("changes.json");
    let table = format!("[admin]\nchanges = \"{}\"\n", changes.display());
    // A download keeps the predecessor alive.
    folder.zeros("huge", LARGE as u64);
    let upgradable = Upgradable::start(folder, "", &table);
    let mut client = upgradable.server.connect();
    client.send("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.receive_once());
    let commands = commands(&upgradable);
    for (number, address) in ["192.0.2.1", "192.0.2.2", "192.0.2.3"].iter().enumerate() {
        commands.command(&["deny", "add", address, "--persist"]);
        let saved = std::fs::read_to_string(&changes).expect("a file");
        assert_eq!(saved.matches("192.0.2.").count(), number + 1, "{saved}");
        upgradable.upgrade();
    }
    let response = client.whole_response().expect("the whole response");
    assert_eq!(response.body.len(), LARGE);
}
