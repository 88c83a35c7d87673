//! Failing programs: the client's response, the log, and the isolation of other requests.

use std::fs::File;
use std::process::Command;

use lowroad_testkit::{TestClient, wait_until};

use crate::host::Host;
use crate::talk::{self, ask};

/// The fault number on an error page.
fn number_on(page: &str) -> String {
    let (_, rest) = page.split_once("fault number ").expect("a number");
    let digits = rest.chars().take_while(char::is_ascii_hexdigit);
    digits.collect()
}

#[test]
fn fault_number_of_error_page_is_logged() {
    let scripts = [
        ("mute", "exit 1\n"),
        ("garbage", "echo this is no head\n"),
        ("secret", "echo a secret word >&2\nexit 3\n"),
    ];
    let host = Host::start(&scripts);
    host.file(
        "root/wrong.lrp",
        "{{ row('SELECT nothing FROM nowhere').n }}",
    );
    for path in ["/cgi/mute", "/cgi/garbage", "/cgi/secret", "/wrong.lrp"] {
        let (got, _) = ask(host.address(), "GET", path, "");
        assert!(matches!(got.status, 500 | 502), "{path}: {got:?}");
        let text = got.text();
        assert!(
            !text.contains("secret") && !text.contains("nowhere"),
            "{text}"
        );
        let line = format!("fault {}: {} at {path}: ", number_on(&text), got.status);
        let line = host.server.wait_for_error_line(&line);
        let (_, label) = line.rsplit_once(", client: ").expect("a label");
        let (client, id) = label.split_once(", request_id: ").expect("an identifier");
        assert_eq!(client, "127.0.0.1, host: \"test\"", "{line}");
        assert!(id.trim_end().len() == 32 && id != "0".repeat(32), "{line}");
    }
}

#[test]
fn missing_programs_get_404() {
    let host = Host::start(&[]);
    for path in ["/cgi/none", "/cgi/", "/none.lrp", "/none.php"] {
        if path.ends_with(".php") && !host.has_php() {
            continue;
        }
        let (got, _) = ask(host.address(), "GET", path, "");
        assert_eq!(got.status, 404, "{path}");
    }
}

#[test]
fn missing_fastcgi_server_gets_502_or_503() {
    let route = "[[site.route]]\npattern = \"*.php\"\nfastcgi = \"unix:DIR/nobody.sock\"\n";
    let host = Host::with_routes(route, &[]);
    let (got, _) = ask(host.address(), "GET", "/say.php", "");
    assert!(matches!(got.status, 502 | 503), "{got:?}");
    assert!(!got.text().contains("SOURCE"));
    let line = format!("fault {}: ", number_on(&got.text()));
    host.server.wait_for_error_line(&line);
    let (got, _) = ask(host.address(), "GET", "/file.txt", "");
    assert_eq!(got.text(), "a file\n");
}

/// A program that responds when the gate, a FIFO, is opened.
const GATE: &str = "echo x >>DIR/state/waiting\nread line <DIR/state/gate\n\
                    printf 'Content-Type: text/plain\\n\\n%s' \"$line\"\n";

#[test]
fn requests_beyond_concurrency_get_503_with_retry_after() {
    let route = "[[site.route]]\npattern = \"/cgi/**\"\ncgi = \"DIR/cgi\"\nconcurrency = 2\n";
    let host = Host::with_routes(route, &[("gate", GATE)]);
    let gate = host.path("state/gate");
    let made = Command::new("mkfifo")
        .args(["-m", "666"])
        .arg(&gate)
        .status();
    assert!(made.expect("mkfifo runs").success());
    let mut waiting: Vec<TestClient> = Vec::new();
    for _ in 0..2 {
        let mut client = host.connect();
        client.send("GET /cgi/gate HTTP/1.1\r\nHost: a\r\n\r\n");
        waiting.push(client);
    }
    wait_until("both to wait", || {
        (host.state("waiting") == "x\nx\n").then_some(())
    });
    let (got, _) = ask(host.address(), "GET", "/cgi/gate", "");
    assert_eq!((got.status, got.field("retry-after")), (503, Some("1")));
    // Files are not affected by the limit.
    let (got, _) = ask(host.address(), "GET", "/file.txt", "");
    assert_eq!(got.status, 200);
    // Opened for reading and writing, so that opening does not block and neither end sees an end of file.
    let opened = File::options().read(true).write(true).open(&gate);
    let opened = opened.expect("a gate");
    std::io::Write::write_all(&mut &opened, b"in\nin\n").expect("room");
    for client in &mut waiting {
        let (got, _) = talk::answer(client, "GET");
        assert_eq!(got.status, 200);
    }
    wait_until("a free place", || {
        let (got, _) = ask(host.address(), "GET", "/cgi/say", "");
        (got.status == 200).then_some(())
    });
}

#[test]
fn timed_out_program_is_killed() {
    let route = "[[site.route]]\npattern = \"/cgi/**\"\ncgi = \"DIR/cgi\"\ntimeout = \"300ms\"\n";
    let host = Host::with_routes(
        route,
        &[("late", "echo $$ >DIR/state/pid\nexec sleep 1000\n")],
    );
    let mut client = host.connect();
    let (got, _) = talk::request_on(&mut client, "GET", "/cgi/late", "");
    assert_eq!(got.status, 504);
    let line = format!("fault {}: 504 at /cgi/late", number_on(&got.text()));
    host.server.wait_for_error_line(&line);
    crate::streams::wait_for_end(&crate::streams::pid(&host, "pid"));
    let (got, _) = talk::request_on(&mut client, "GET", "/file.txt", "");
    assert_eq!(got.text(), "a file\n");
}

#[test]
fn site_error_page_applies_to_programs() {
    let route = "[site.error_pages]\n404 = \"/file.txt\"\n\
                 [[site.route]]\npattern = \"/cgi/**\"\ncgi = \"DIR/cgi\"\n";
    let host = Host::with_routes(route, &[]);
    let (got, _) = ask(host.address(), "GET", "/cgi/none", "");
    assert_eq!((got.status, got.text()), (404, "a file\n".into()));
}
