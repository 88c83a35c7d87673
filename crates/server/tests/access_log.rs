//! The access log has one line for each request, in the order of the responses, with the bytes that were sent.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use lowroad_testkit::{TempFolder, TestServer, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");

/// A site of small, medium and large files, with a log file of this format.
fn logged(format: &str) -> (TempFolder, TestServer) {
    let folder = TempFolder::new();
    // The server's user may create a new log here.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("a mode");
    folder.file("root/small", "hello");
    folder.file("root/medium", vec![b'm'; 100_000]);
    folder.file("root/large", vec![b'l'; 3 << 20]);
    folder.file("root/folder/file", "x");
    let root = folder.path().display();
    let config = format!(
        "[server]\nworkers = 1\n[log]\naccess = \"access\"\nformat = \"{format}\"\n\
         [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{root}/root\"\n"
    );
    let server = TestServer::run(PROGRAM, &folder, &config);
    (folder, server)
}

/// Requests, with the status and bytes that the log must have.
const REQUESTS: [(&str, &str, u16, u64); 12] = [
    ("GET /small HTTP/1.1", "", 200, 5),
    (
        "GET /small HTTP/1.1",
        "User-Agent: a\"b\\\u{e4}\r\nReferer: http://x/\r\n",
        200,
        5,
    ),
    ("HEAD /large HTTP/1.1", "", 200, 0),
    ("GET /large HTTP/1.1", "", 200, 3 << 20),
    ("GET /medium?q=\"x\" HTTP/1.1", "", 200, 100_000),
    ("GET /medium HTTP/1.1", "If-None-Match: *\r\n", 304, 0),
    (
        "GET /large HTTP/1.1",
        "Range: bytes=0-9999\r\n",
        206,
        10_000,
    ),
    (
        "GET /large HTTP/1.1",
        "Range: bytes=-100000\r\n",
        206,
        100_000,
    ),
    ("OPTIONS * HTTP/1.1", "", 204, 0),
    ("HEAD /missing HTTP/1.1", "", 404, 0),
    ("HEAD /folder HTTP/1.1", "", 301, 0),
    ("GET /small HTTP/1.1", "Connection: close\r\n", 200, 5),
];

/// Sends all of [`REQUESTS`] on one connection, and receives the responses.
fn ask_all(server: &TestServer, at_once: bool) {
    let mut client = server.connect();
    let text = |(line, fields, ..): &(&str, &str, u16, u64)| {
        format!("{line}\r\nHost: Test\r\n{fields}\r\n")
    };
    if at_once {
        client.send(REQUESTS.iter().map(text).collect::<String>());
    }
    for request in &REQUESTS {
        if !at_once {
            client.send(text(request));
        }
        let got = match request.0.starts_with("HEAD") {
            true => client.response_to_head(),
            false => client.response(),
        };
        let found = (got.status, got.body.len() as u64);
        assert_eq!(found, (request.2, request.3), "{}", request.0);
    }
    assert!(client.wait_for_close());
}

/// Stops the server, and returns the lines of its log.
fn lines(folder: &TempFolder, server: &mut TestServer) -> Vec<String> {
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    let log = fs::read_to_string(folder.path().join("access")).expect("a log");
    log.lines().map(str::to_string).collect()
}

/// A request line as the log contains it, with special characters escaped.
fn escaped(line: &str, quote: &str) -> String {
    line.replace('"', quote)
}

#[test]
fn combined_log_has_one_line_for_each_request() {
    for at_once in [false, true] {
        let (folder, mut server) = logged("combined");
        ask_all(&server, at_once);
        let lines = lines(&folder, &mut server);
        assert_eq!(lines.len(), REQUESTS.len(), "{lines:#?}");
        for (line, (request, fields, status, bytes)) in lines.iter().zip(REQUESTS) {
            let (peer, rest) = line.split_once('[').expect("a time");
            let (time, rest) = rest.split_once(']').expect("a time");
            assert_eq!((peer, time.len()), ("127.0.0.1 - - ", 26), "{line}");
            let request = escaped(request, "\\x22");
            let sender = match fields.contains("User-Agent") {
                true => "\"http://x/\" \"a\\x22b\\x5C\\xC3\\xA4\"",
                false => "\"-\" \"-\"",
            };
            assert_eq!(rest, format!(" \"{request}\" {status} {bytes} {sender}"));
        }
    }
}

#[test]
fn json_log_has_one_object_for_each_request() {
    for at_once in [false, true] {
        let (folder, mut server) = logged("json");
        ask_all(&server, at_once);
        let lines = lines(&folder, &mut server);
        assert_eq!(lines.len(), REQUESTS.len(), "{lines:#?}");
        for (line, (request, fields, status, bytes)) in lines.iter().zip(REQUESTS) {
            let (time, rest) = line.split_once(",\"peer\"").expect("a time");
            assert!(
                time.starts_with("{\"time\":\"20") && time.len() == 34,
                "{line}"
            );
            let (before, after) = rest.split_once(",\"duration_us\":").expect("a duration");
            let request = escaped(request, "\\\"");
            let (referer, agent) = match fields.contains("User-Agent") {
                true => ("http://x/", "a\\\"b\\\\\u{e4}"),
                false => ("", ""),
            };
            assert_eq!(
                before,
                format!(
                    ":\"127.0.0.1\",\"host\":\"Test\",\"request\":\"{request}\",\
                     \"status\":{status},\"bytes\":{bytes},\"whole\":true,\
                     \"referer\":\"{referer}\",\"user_agent\":\"{agent}\""
                )
            );
            assert!(after.ends_with(",\"level\":\"worker\"}"), "{line}");
        }
    }
}

/// The number after a name in a JSON line.
fn number_of(line: &str, name: &str) -> u64 {
    let (_, rest) = line.split_once(name).expect("the name");
    let end = rest.find(|c: char| !c.is_ascii_digit()).expect("an end");
    rest[..end].parse().expect("a number")
}

#[test]
fn json_log_has_times_and_durations() {
    let (folder, mut server) = logged("json");
    for _ in 0..8 {
        ask_all(&server, false);
    }
    let lines = lines(&folder, &mut server);
    // The fraction of a second follows the only dot in the time.
    let millis = |line: &String| number_of(line, ".");
    let all_even = |numbers: &[u64], step: u64| numbers.iter().all(|number| number % step == 0);
    let millis: Vec<u64> = lines.iter().map(millis).collect();
    let durations: Vec<u64> = lines
        .iter()
        .map(|line| number_of(line, "\"duration_us\":"))
        .collect();
    assert!(!all_even(&millis, 1000), "{millis:?}");
    assert!(!all_even(&durations, 1000), "{durations:?}");
}

#[test]
fn malformed_requests_and_incomplete_responses_are_logged() {
    let (folder, mut server) = logged("json");
    let mut client = server.connect();
    client.send("GET /small\x01 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 400);
    drop(client);
    // More than the sockets' buffers hold.
    folder.zeros("root/huge", 64 << 20);
    let mut client = server.connect();
    client.send("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.receive_once());
    drop(client);
    let lines = lines(&folder, &mut server);
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].contains("\"request\":\"GET /small\\u0001 HTTP/1.1\",\"status\":400,"));
    assert!(lines[0].contains("\"outcome\":\"made\""), "{}", lines[0]);
    assert!(lines[1].contains("\"status\":200") && lines[1].contains("\"whole\":false"));
    let bytes = lines[1]
        .split("\"bytes\":")
        .nth(1)
        .and_then(|rest| rest.split(',').next());
    let bytes: u64 = bytes.and_then(|text| text.parse().ok()).expect("a number");
    assert!(bytes > 0 && bytes < 64 << 20, "{bytes}");
}

#[test]
fn rotated_log_is_not_written_after_reopen() {
    let (folder, server) = logged("combined");
    let path = |name: &str| folder.path().join(name);
    let content = |name: &str| fs::read_to_string(path(name)).unwrap_or_default();
    assert_eq!(server.get("/small").status, 200);
    wait_until("the first line", || {
        content("access").ends_with('\n').then_some(())
    });
    for (signal, rotated) in [("USR1", "access.1"), ("HUP", "access.2")] {
        fs::rename(path("access"), path(rotated)).expect("renamed");
        server.signal(signal);
        wait_until("the new log", || path("access").exists().then_some(()));
        assert_eq!(server.get("/small").status, 200);
        wait_until("the next line", || {
            content("access").ends_with('\n').then_some(())
        });
        assert_eq!(content(rotated).lines().count(), 1);
        assert_eq!(content("access").lines().count(), 1);
    }
}

#[test]
fn rotation_keeps_all_lines_complete() {
    let (folder, mut server) = logged("combined");
    let path = |name: &str| folder.path().join(name);
    let (rotations, requests) = (20, 30);
    let mut client = server.connect();
    for number in 0..rotations {
        for request in 0..requests {
            client.send(format!(
                "GET /small?{number}-{request}. HTTP/1.1\r\nHost: a\r\n\r\n"
            ));
            assert_eq!(client.response().status, 200);
        }
        fs::rename(path("access"), path(&format!("access.{number}"))).expect("renamed");
        server.signal("USR1");
        wait_until("the new log", || path("access").exists().then_some(()));
    }
    drop(client);
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    let names = (0..rotations).map(|number| format!("access.{number}"));
    let text: String = names
        .chain(["access".into()])
        .map(|name| fs::read_to_string(path(&name)).expect("a log"))
        .inspect(|text| assert!(text.is_empty() || text.ends_with("\"\n"), "{text}"))
        .collect();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), rotations * requests);
    for (line, number) in lines.iter().zip(0..) {
        let query = format!("?{}-{}. ", number / requests, number % requests);
        assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
        assert!(line.contains(&query), "{query}: {line}");
        assert!(line.ends_with(" 200 5 \"-\" \"-\""), "{line}");
    }
}

#[test]
fn serve_logs_only_with_the_option() {
    let folder = TempFolder::new();
    folder.file("a", "hello");
    let server = TestServer::serve(PROGRAM, &folder, &["--log"]);
    assert_eq!(server.get("/a").status, 200);
    let line = server.wait_for_line("GET");
    assert!(
        line.ends_with("] \"GET /a HTTP/1.1\" 200 5 \"-\" \"-\""),
        "{line}"
    );
    let mut quiet = TestServer::serve(PROGRAM, &folder, &[]);
    assert_eq!(quiet.get("/a").status, 200);
    quiet.signal("TERM");
    quiet.wait_for_end();
    assert_eq!(quiet.rest_of_output(), Vec::<String>::new());
}
