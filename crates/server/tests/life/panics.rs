//! Panics of workers: a panic costs a worker its connections, and nothing else. The programs of these tests are built
//! with `debug_assertions`, which makes a worker panic at a request for the path in `LOWROAD_PANIC_PATH`.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{TempFolder, TestClient, TestServer, wait_until};

use super::{PROGRAM, site};

/// Enough connections that each of two workers has at least three, except in one of 670 million runs.
const CLIENTS: usize = 40;
/// Responses of 100,000 bytes that fill the buffers of a connection.
const UNREAD: usize = 300;
const PANIC: &str = "GET /panic HTTP/1.1\r\nHost: a\r\n\r\n";

/// A server with a path, `/panic`, at which its workers panic.
struct Panicking {
    folder: TempFolder,
    server: TestServer,
}

impl Panicking {
    /// Starts a server with this many workers, and with `rest` in the site.
    fn start(workers: usize, rest: &str) -> Panicking {
        let folder = site();
        let at = folder.path().display();
        let config = format!(
            "[server]\nworkers = {workers}\nuser = \"root\"\nadmin = \"{at}/admin\"\n\
             [log]\naccess = \"{at}/log\"\nformat = '$connection $remote_port'\n\
             [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{at}\"\n{rest}\n"
        );
        let file = folder.file("lowroad.toml", config);
        let mut command = Command::new(PROGRAM);
        command.args(["run", "-c"]).arg(file);
        command
            .env("LOWROAD_PANIC_PATH", "/panic")
            .stdin(Stdio::null());
        Panicking {
            server: TestServer::spawn(command),
            folder,
        }
    }

    fn status(&self) -> StatusClient {
        StatusClient::new(PROGRAM, self.folder.path().join("admin"))
    }

    /// Makes a worker panic, and waits until it has recovered. Returns the line of the error log.
    fn panic(&self) -> String {
        self.panic_by(self.server.connect())
    }

    /// Makes the worker with this number panic.
    fn panic_of(&self, number: usize) -> String {
        let client = wait_until("a connection of the worker", || {
            let mut clients = self.clients().into_iter();
            clients.find(|(worker, _)| *worker == number)
        });
        self.panic_by(client.1)
    }

    fn panic_by(&self, mut client: TestClient) -> String {
        client.send(PANIC);
        assert!(client.wait_for_close());
        self.server
            .wait_for_error_line("has panicked and was replaced")
    }

    /// Connections of which each has had a response, with the number of its worker.
    fn clients(&self) -> Vec<(usize, TestClient)> {
        let mut clients: Vec<TestClient> = (0..CLIENTS).map(|_| self.server.connect()).collect();
        for client in &mut clients {
            assert_eq!(client.get("/small", "").text(), "hello");
        }
        let worker_of = |client: TestClient| {
            let port = client.stream().local_addr().expect("open").port();
            let connection = wait_until("the log's line", || {
                let text = fs::read_to_string(self.folder.path().join("log")).ok()?;
                let lines = text.lines().filter_map(|line| line.split_once(' '));
                let mut lines = lines.filter(|(_, of)| *of == port.to_string());
                lines.next_back()?.0.parse::<usize>().ok()
            });
            ((connection - 1) % 2, client)
        };
        clients.into_iter().map(worker_of).collect()
    }
}

#[test]
fn panic_costs_a_worker_its_connections_and_nothing_else() {
    let (release, gate) = channel::<()>();
    let gate = Mutex::new(gate);
    let origin = Arc::new(TestOrigin::start(move |_, stream| {
        let _ = gate.lock().expect("no panic").recv();
        let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 4\r\n\r\n";
        stream.write_all(format!("{head}held").as_bytes()).is_ok()
    }));
    let origin_url = origin.url();
    let route = format!(
        "[[site.route]]\npattern = \"/held\"\norigin = \"{origin_url}\"\n[site.route.cache]\n"
    );
    let mut setup = Panicking::start(2, &route);
    let (mut lost, mut kept): (Vec<_>, Vec<_>) = setup
        .clients()
        .into_iter()
        .partition(|(worker, _)| *worker == 0);
    assert!(
        lost.len() > 2 && kept.len() > 2,
        "{} and {}",
        lost.len(),
        kept.len()
    );

    assert_eq!(setup.server.get("/medium").body.len(), 100_000);
    let arena_bytes = setup.status().value("arena_bytes");

    // The worker that will panic has called the origin, for clients of both workers, and sends a block of the arena.
    let held = "GET /held HTTP/1.1\r\nHost: a\r\n\r\n";
    lost[0].1.send(held);
    wait_until("the call of the origin", || {
        (origin.count() == 1).then_some(())
    });
    lost[1]
        .1
        .send("GET /medium HTTP/1.1\r\nHost: a\r\n\r\n".repeat(UNREAD));
    let deferred = setup.status().value("deferred");
    kept.iter_mut().for_each(|(_, client)| client.send(held));
    let waiting = deferred + kept.len() as u64;
    wait_until("the followers", || {
        (setup.status().value("deferred") >= waiting).then_some(())
    });

    lost[2].1.send(PANIC);
    let line = setup
        .server
        .wait_for_error_line("has panicked and was replaced");
    assert!(
        line.contains("panic_path.rs") && line.contains("LOWROAD_PANIC_PATH"),
        "{line}"
    );
    assert!(
        line.contains(&format!("{} connections were closed", lost.len())),
        "{line}"
    );
    let trace = setup.server.wait_for_error_line("worker 0 was in: ");
    assert!(
        trace.contains("panic_path") && trace.contains("Worker"),
        "{trace}"
    );
    for (number, (_, client)) in lost.iter_mut().enumerate() {
        // The second client may have received the head.
        assert!(number == 1 || client.wait_for_close(), "client {number}");
    }
    setup.status().wait_for("open", kept.len() as u64);
    release.send(()).expect("the origin runs");
    for (_, client) in &mut kept {
        assert_eq!(client.response().text(), "held");
        assert_eq!(client.get("/small", "").text(), "hello");
    }
    assert_eq!(origin.count(), 1);

    let after = setup.clients();
    assert!((0..2).all(|number| after.iter().any(|(worker, _)| *worker == number)));
    drop((lost, kept, after));
    let status = setup.status();
    status.wait_for("open", 0);
    assert_eq!(
        (
            status.value("worker_panics"),
            status.value("worker_panic_pauses")
        ),
        (1, 0)
    );
    // The block of the arena that a lost response used becomes free when its file changes.
    setup.status().command(&["purge", "all"]);
    setup.folder.file("medium", vec![b'n'; 100_000]);
    wait_until("the new content", || {
        (setup.server.get("/medium").body[0] == b'n').then_some(())
    });
    status.wait_for("arena_bytes", arena_bytes);
    setup.server.signal("TERM");
    assert!(setup.server.wait_for_end().success());
}

#[test]
fn repeated_panics_pause_a_worker_which_reloads_and_drains_meanwhile() {
    let mut setup = Panicking::start(2, "");
    assert!(setup.panic_of(0).ends_with("it accepts connections"));
    assert!(setup.panic_of(0).contains("connections again in 1000 ms"));
    // The kernel gives new connections to the other worker.
    assert_eq!(setup.server.get("/small").text(), "hello");
    setup.status().command(&["reload"]);
    assert_eq!(setup.status().value("worker_panic_pauses"), 1);
    // `panic_of` waits for the end of the pause, as it connects until that worker accepts.
    assert!(setup.panic_of(0).contains("connections again in 2000 ms"));
    setup.server.signal("TERM");
    assert!(setup.server.wait_for_end().success());
}

#[test]
fn only_worker_accepts_connections_after_repeated_panics() {
    let setup = Panicking::start(1, "");
    assert!(setup.panic().ends_with("it accepts connections"));
    assert!(
        setup
            .panic()
            .ends_with("no pause, as no other worker accepts connections")
    );
    // The log omits equal lines.
    for count in 3..6 {
        setup.server.connect().send(PANIC);
        setup.status().wait_for("worker_panics", count);
        assert_eq!(setup.server.get("/small").text(), "hello");
    }
    assert_eq!(setup.status().value("worker_panic_pauses"), 0);
}
