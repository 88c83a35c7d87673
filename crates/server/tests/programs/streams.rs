//! Streamed responses: slow readers, clients that disconnect, and programs that are killed.

use std::path::Path;

use lowroad_testkit::wait_until;

use crate::host::Host;
use crate::talk::{self, End, ask};

const PART: usize = 64 << 10;
const PARTS: usize = 800;
/// Maximum growth of the server's memory by a long response.
const MEMORY_MAX_KIB: u64 = 16 << 10;

/// Sends its parts one after the other, and records how many it has sent.
const LONG: &str = "echo $$ >DIR/state/pid\nprintf 'Content-Type: text/plain\\n\\n'\ni=0\n\
    while [ $i -lt 800 ]; do head -c 65536 /dev/zero || exit; i=$((i+1)); echo $i >DIR/state/sent; done\n";

const DIES: &str = "printf 'Content-Type: text/plain\\n\\nthe beginning'\n\
    while ! [ -e DIR/state/die ]; do sleep 0.01; done\nkill -9 $$\n";

/// The process number that a program recorded.
pub fn pid(host: &Host, name: &str) -> String {
    wait_until("the program", || {
        let noted = host.state(name);
        noted.ends_with('\n').then(|| noted.trim().to_string())
    })
}

/// Waits until a process has ended.
pub fn wait_for_end(pid: &str) {
    let path = format!("/proc/{pid}");
    wait_until("the program's end", || {
        (!Path::new(&path).exists()).then_some(())
    });
}

/// Waits until a program sends no more parts; returns their number.
fn wait_for_rest(host: &Host) -> usize {
    let (mut last, mut same) = (String::new(), 0);
    wait_until("the program to wait", || {
        let now = host.state("sent");
        same = if now == last && !now.is_empty() {
            same + 1
        } else {
            0
        };
        last = now;
        (same == 40).then_some(())
    });
    last.trim().parse().expect("a number")
}

#[test]
fn unbuffered_program_waits_for_a_slow_reader() {
    let route = "[[site.route]]\npattern = \"/cgi/**\"\ncgi = \"DIR/cgi\"\n\
                 response_buffering = false\n";
    let host = Host::with_routes(route, &[("long", LONG)]);
    ask(host.address(), "GET", "/cgi/say", "");
    let before_kib = host.memory_max_kib();
    let mut client = host.connect();
    client.send("GET /cgi/long HTTP/1.1\r\nHost: a\r\n\r\n");
    let sent = wait_for_rest(&host);
    assert!(sent < PARTS, "{sent}");
    let (got, end) = talk::answer(&mut client, "GET");
    assert_eq!(
        (got.status, got.body.len(), end),
        (200, PART * PARTS, End::Chunk)
    );
    let more_kib = host.memory_max_kib() - before_kib;
    assert!(more_kib < MEMORY_MAX_KIB, "{more_kib} KiB");
    // The connection persists.
    let (got, _) = talk::request_on(&mut client, "GET", "/cgi/say", "");
    assert_eq!(got.text(), "GET |");
    assert_eq!(host.status().value("spool_responses"), 0);
}

#[test]
fn disconnect_ends_the_program() {
    let silent =
        "echo $$ >DIR/state/pid\nprintf 'Content-Type: text/plain\\n\\nx'\nexec sleep 1000\n";
    let mute = "echo $$ >DIR/state/pid\nexec sleep 1000\n";
    for script in [LONG, silent, mute] {
        let host = Host::start(&[("script", script)]);
        let mut client = host.connect();
        client.send("GET /cgi/script HTTP/1.1\r\nHost: a\r\n\r\n");
        let pid = pid(&host, "pid");
        if script != mute {
            assert!(talk::head(&mut client).starts_with("HTTP/1.1 200 "));
        }
        // The server notices a close at its next write to the client, and a reset immediately.
        match script == LONG {
            true => drop(client),
            false => client.reset(),
        }
        wait_for_end(&pid);
    }
}

#[test]
fn response_of_a_killed_program_is_truncated() {
    for version in ["1.1", "1.0"] {
        let host = Host::start(&[("dies", DIES)]);
        let mut client = host.connect();
        client.send(format!("GET /cgi/dies HTTP/{version}\r\nHost: a\r\n\r\n"));
        let head = talk::head(&mut client);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        host.file("state/die", "");
        let is_orderly = client.wait_for_close();
        // For an HTTP/1.0 client, an orderly close would mark the end of the body.
        assert_eq!(is_orderly, version == "1.1");
        let received = String::from_utf8_lossy(&client.received).into_owned();
        assert!(received.contains("the beginning"), "{received}");
        assert!(!received.contains("\r\n0\r\n"), "{received}");
        wait_until("the log", || {
            let log = std::fs::read_to_string(host.path("access")).unwrap_or_default();
            log.contains("\"whole\":false").then_some(())
        });
    }
}

#[test]
fn http_1_0_response_of_unknown_length_ends_by_close() {
    let host = Host::start(&[("long", LONG)]);
    let mut client = host.connect();
    client.send("GET /cgi/long HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
    let (got, end) = talk::answer(&mut client, "GET");
    assert_eq!(
        (got.status, got.body.len(), end),
        (200, PART * PARTS, End::Close)
    );
    assert_eq!(got.field("transfer-encoding"), None);
    assert_ne!(got.field("connection"), Some("keep-alive"));
    // A response of known length has Content-Length, and its connection persists.
    let mut client = host.connect();
    for _ in 0..2 {
        client.send("GET /linked HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
        let (got, end) = talk::answer(&mut client, "GET");
        assert_eq!((got.text().as_str(), end), ("Hi, world!\n", End::Length));
    }
}

#[test]
fn head_response_of_a_long_stream_has_no_body() {
    let host = Host::start(&[("long", LONG)]);
    let mut client = host.connect();
    let (got, _) = talk::request_on(&mut client, "HEAD", "/cgi/long", "");
    assert_eq!(got.status, 200);
    wait_for_end(&pid(&host, "pid"));
    let (got, _) = talk::request_on(&mut client, "GET", "/linked", "");
    assert_eq!(got.text(), "Hi, world!\n");
}
