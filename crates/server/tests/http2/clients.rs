//! Independent HTTP/2 clients: curl, h2load, nghttp. The tests of clients that are not installed are skipped.

use std::fs;
use std::process::Command;

use lowroad_testkit::{skip, wait_until};

use crate::place::{Http2Server, LARGE_LEN};

/// Whether a program is installed.
fn has(program: &str) -> bool {
    let asked = Command::new(program).arg("--version").output();
    let found = asked.is_ok_and(|it| it.status.success());
    if !found {
        skip("http2", &format!("there is no {program}"));
    }
    found
}

/// The output of curl over HTTP/2 with prior knowledge.
fn curl(arguments: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "120", "--http2-prior-knowledge"]);
    let output = command.args(arguments).output().expect("curl");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).replace('\r', "")
}

#[test]
fn curl_gets_files_and_errors() {
    if !has("curl") {
        return;
    }
    let place = Http2Server::start("");
    let good = place.url("/good.txt");
    let got = curl(&["-i", &good]);
    assert!(got.starts_with("HTTP/2 200 \n"), "{got}");
    assert!(got.ends_with("\n\ngood"), "{got}");
    let head = curl(&["-I", &good]);
    assert!(head.contains("content-length: 4\n"), "{head}");
    let part = curl(&["-i", "-r", "1-2", &good]);
    assert!(part.starts_with("HTTP/2 206 ") && part.ends_with("\n\noo"));
    let etag = head
        .lines()
        .find_map(|line| line.strip_prefix("etag: "))
        .expect("an ETag");
    let same = curl(&["-i", "-H", &format!("If-None-Match: {etag}"), &good]);
    assert!(same.starts_with("HTTP/2 304 "), "{same}");
    // A response to HEAD has no content even if it is an error; DATA frames would be a stream error.
    let refused = curl(&["-I", "-H", "Expect: x", &good]);
    assert!(refused.starts_with("HTTP/2 417 "), "{refused}");
    let long = curl(&["-I", &place.url(&format!("/{}", "a".repeat(12_000)))]);
    assert!(long.starts_with("HTTP/2 414 "), "{long}");
    let none = curl(&["-i", &place.url("/none")]);
    assert!(none.starts_with("HTTP/2 404 "), "{none}");
    let log = place.folder.path().join("access");
    wait_until("the log", || {
        let log = fs::read_to_string(&log).ok()?;
        log.contains("\"GET /none HTTP/2.0\" 404 ").then_some(())
    });
}

#[test]
fn curl_uploads_to_programs_and_origins() {
    if !has("curl") {
        return;
    }
    let place = Http2Server::start("body_len_max = \"16M\"");
    let (file, bytes) = place.large("upload", 5 << 20);
    let data = format!("@{}", file.display());
    let by_program = curl(&["--data-binary", &data, &place.url("/cgi/length")]);
    assert_eq!(by_program, format!("HTTP/2.0 {}\n", bytes.len()));
    let by_origin = curl(&["--data-binary", &data, &place.url("/origin/length")]);
    assert_eq!(by_origin, format!("{} ", bytes.len()));
    let asked = place.origin.requests();
    assert!(asked.last().is_some_and(|it| it.body == bytes));
    let put = curl(&["-T", &file.display().to_string(), &place.url("/origin/put")]);
    assert_eq!(put, format!("{} ", bytes.len()));
    let trailers = curl(&["-i", &place.url("/origin/trailers")]);
    assert!(trailers.contains("\n\nabc"), "{trailers}");
    assert!(trailers.ends_with("x-sum: 7\n"), "{trailers}");
    assert!(!trailers.contains("x-rem"), "{trailers}");
}

#[test]
fn head_limit_applies_to_field_blocks() {
    if !has("curl") {
        return;
    }
    let place = Http2Server::start("head_len_max = \"2K\"\nfields_max = 8");
    let status = |len: usize| {
        let field = format!("X-Long: {}", "x".repeat(len));
        let said = curl(&["-i", "-H", &field, &place.url("/good.txt")]);
        said.split(' ').nth(1).map(String::from)
    };
    assert_eq!(status(1000).as_deref(), Some("200"));
    assert_eq!(status(3000).as_deref(), Some("431"));
}

#[test]
fn curl_downloads_a_large_file() {
    if !has("curl") {
        return;
    }
    let place = Http2Server::start("");
    let (_, bytes) = place.large("large", LARGE_LEN);
    let to = place.folder.path().join("got");
    curl(&["-o", &to.display().to_string(), &place.url("/large")]);
    assert!(fs::read(to).expect("the file") == bytes, "other bytes");
}

#[test]
fn h2load_reports_no_failures() {
    if !has("h2load") {
        return;
    }
    let place = Http2Server::start("");
    let output = Command::new("h2load")
        .args(["-n", "100000", "-c", "8", "-m", "32"])
        .arg(place.url("/1k"))
        .output()
        .expect("h2load");
    let said = String::from_utf8_lossy(&output.stdout);
    let all = "100000 succeeded, 0 failed, 0 errored, 0 timeout";
    assert!(said.contains(all), "{said}");
    assert!(said.contains("status codes: 100000 2xx"), "{said}");
    assert_eq!(place.status.value("h2_ended"), 0);
}

#[test]
fn nghttp_requests_concurrently() {
    if !has("nghttp") {
        return;
    }
    let place = Http2Server::start("");
    place.large("some", 300_000);
    let output = Command::new("nghttp")
        .args(["-s", "-n", "-m", "20"])
        .args([place.url("/some"), place.url("/good.txt")])
        .output()
        .expect("nghttp");
    let said = String::from_utf8_lossy(&output.stdout);
    let answered = said.lines().filter(|line| line.contains(" 200 ")).count();
    assert_eq!(answered, 40, "{said}");
}
