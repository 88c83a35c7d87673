//! Applications that the server supervises.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use lowroad_testkit::{TempFolder, TestServer, wait_until};

use crate::front::PROGRAM;

/// An origin that exits at a request for /end.
const APPLICATION: &str = r#"
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/end":
            os._exit(3)
        body = str(os.getpid()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if self.path == "/kept":
            self.send_header("Cache-Control", "max-age=1")
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

/// A port without a listener. No other test gets the same port. It is below the kernel's ephemeral ports, so that it is
/// not assigned to a connection before the test listens on it.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id() % 320 * 64;
    let ports = (0..1000).map(|_| 10_000 + (first + NEXT.fetch_add(1, Relaxed)) % 20_480);
    let mut ports = ports.map(|port| port as u16);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.find(is_free).expect("a port")
}

#[test]
fn application_is_started_awaited_restarted_and_stopped() {
    let folder = TempFolder::new();
    let script = folder.file("app.py", APPLICATION);
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}");
    let arguments = [
        "accelerate",
        &url,
        "--listen",
        "127.0.0.1:0",
        "--",
        "python3",
        script.to_str().expect("a path"),
        &port.to_string(),
    ];
    let mut server = TestServer::start(PROGRAM, &arguments);
    let first = server.get("/kept");
    assert_eq!(first.status, 200, "the server waits until it is ready");
    assert_eq!(server.get("/end").status, 502);
    // While the application is down, the stored response answers, fresh or stale.
    assert_eq!(server.get("/kept").text(), first.text());
    server.wait_for_error_line("python3 ended (exit status: 3)");
    let second = wait_until("another process", || {
        let got = server.get("/");
        (got.status == 200 && got.text() != first.text()).then(|| got.text())
    });
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    assert!(!std::path::Path::new(&format!("/proc/{second}")).exists());
}

#[test]
fn application_ends_if_server_is_killed() {
    let folder = TempFolder::new();
    let script = folder.file("app.py", APPLICATION);
    let port = free_port().to_string();
    let url = format!("http://127.0.0.1:{port}");
    let path = script.to_str().expect("a path");
    let arguments = [
        "accelerate",
        &url,
        "--listen",
        "127.0.0.1:0",
        "--",
        "python3",
        path,
        &port,
    ];
    let server = TestServer::start(PROGRAM, &arguments);
    let process = server.get("/").text();
    server.signal("KILL");
    wait_until("its end", || {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"));
        let is_over = status.map_or(true, |status| status.contains("Z (zombie)"));
        is_over.then_some(())
    });
}

#[test]
fn sigterm_ends_server_that_waits_for_application() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let mut child = Command::new(PROGRAM)
        .args(["accelerate", &url, "--listen", "127.0.0.1:0", "--", "false"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let stderr = child.stderr.take().expect("piped");
    let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
    // Until this line, signals have their default action.
    assert!(lines.any(|line| line.contains("false ended")));
    let pid = child.id().to_string();
    let told = Command::new("kill").args(["-s", "TERM", &pid]).status();
    assert!(told.expect("kill").success());
    let rest: Vec<String> = lines.collect();
    assert!(child.wait().expect("a child of ours").success(), "{rest:?}");
    let has_waited = |line: &String| line.contains("continues without it");
    assert!(!rest.iter().any(has_waited), "{rest:?}");
}

#[test]
fn application_that_can_not_be_started_does_not_block_server() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let server = TestServer::start(
        PROGRAM,
        &[
            "accelerate",
            &url,
            "--listen",
            "127.0.0.1:0",
            "--",
            "/nonexistent/app",
        ],
    );
    server.wait_for_error_line("can't be started; the server continues without it");
}

/// An application that starts slowly.
const SLOW: &str = r#"
import http.server, os, sys, time
time.sleep(float(sys.argv[3]))
folder = os.path.dirname(sys.argv[0])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/slow":
            print("begun", flush=True)
            while not os.path.exists(folder + "/go"):
                time.sleep(0.01)
        body = sys.argv[2].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

/// A configuration with an application at this port. The application starts after some seconds, and answers with a
/// word.
fn slow(folder: &TempFolder, port: u16, word: &str, secs: &str) -> String {
    let script = folder.file("slow.py", SLOW);
    format!(
        "[server]\nworkers = 1\n[[application]]\nname = \"app\"\nready = \"http://127.0.0.1:{port}\"\n\
         command = [\"python3\", \"{}\", \"{port}\", \"{word}\", \"{secs}\"]\n\
         [[site]]\nlisten = \"127.0.0.1:0\"\n[[site.route]]\npattern = \"/**\"\norigin = \"http://127.0.0.1:{port}\"\n",
        script.display()
    )
}

#[test]
fn status_is_available_while_application_starts() {
    let folder = TempFolder::new();
    let config = slow(&folder, free_port(), "never", "1000");
    let file = folder.file("lowroad.toml", config);
    let mut child = Command::new(PROGRAM)
        .args(["run", "-c"])
        .arg(file)
        .env("RUNTIME_DIRECTORY", folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the server starts");
    let socket = folder.path().join(format!("{}.sock", child.id()));
    wait_until("an answer", || {
        let status = Command::new(PROGRAM)
            .args(["status", "--admin"])
            .arg(&socket)
            .output();
        let text = String::from_utf8_lossy(&status.expect("it starts").stdout).into_owned();
        text.contains("connections").then_some(())
    });
    assert!(child.try_wait().expect("a child of ours").is_none());
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn reload_waits_until_changed_application_is_ready() {
    let folder = TempFolder::new();
    let (old, new) = (free_port(), free_port());
    let server = TestServer::run(PROGRAM, &folder, &slow(&folder, old, "old", "0"));
    assert_eq!(server.get("/").text(), "old");
    folder.file("lowroad.toml", slow(&folder, new, "new", "0.7"));
    server.signal("HUP");
    // The switch to the new application causes no failed request.
    let last = wait_until("the new one", || {
        let got = server.get("/");
        assert_eq!(got.status, 200, "{}", got.text());
        (got.text() == "new").then_some(got)
    });
    assert_eq!(last.status, 200);
    server.wait_for_error_line("is in force");
    // At the same address, the old application ends before the new one starts.
    folder.file("lowroad.toml", slow(&folder, new, "newer", "0"));
    server.signal("HUP");
    server.wait_for_error_line("is in force");
    assert_eq!(server.get("/").text(), "newer");
}

#[test]
fn application_ends_after_its_requests_are_answered() {
    let folder = TempFolder::new();
    let (old, new) = (free_port(), free_port());
    let server = TestServer::run(PROGRAM, &folder, &slow(&folder, old, "old", "0"));
    let mut client = server.connect();
    client.send("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n");
    server.wait_for_error_line("app: begun");
    folder.file("lowroad.toml", slow(&folder, new, "new", "0"));
    server.signal("HUP");
    server.wait_for_error_line("is in force");
    assert_eq!(server.get("/").text(), "new");
    folder.file("go", "");
    assert_eq!(client.response().text(), "old", "it is not cut off");
    wait_until("its end", || {
        TcpStream::connect(("127.0.0.1", old))
            .is_err()
            .then_some(())
    });
}
