//! Request bodies: long ones, and ones that programs ignore.

use std::io::Write;

use crate::host::Host;
use crate::talk::{self, post};

/// 50 MiB.
const LONG: usize = 50 << 20;
/// Maximum growth of the server's memory by a long body, in addition to the body itself. The threads that write the
/// body to a file use this memory, in huge pages; their number depends on the disk.
const MEMORY_MAX_KIB: u64 = 40 << 10;

/// A route that calls its programs before the whole body has arrived.
const STREAMED: &str = "[[site.route]]\npattern = \"/cgi/**\"\ncgi = \"DIR/cgi\"\n\
                        request_buffering = false\n";

const COUNT: &str = "printf 'Content-Type: text/plain\\n\\n'\nwc -c\n";
const IGNORE: &str = "printf 'Content-Type: text/plain\\n\\nno, thanks\\n'\n";

#[test]
fn long_upload_uses_bounded_memory() {
    let host = Host::start(&[("count", COUNT)]);
    let (got, _) = post(&mut host.connect(), "/cgi/count", "12345");
    assert_eq!(got.text().trim(), "5");
    let before_kib = host.memory_max_kib();
    let mut client = host.connect();
    client.send(format!(
        "PUT /cgi/count HTTP/1.1\r\nHost: a\r\nContent-Length: {LONG}\r\n\r\n"
    ));
    let part = vec![b'x'; 1 << 20];
    for _ in 0..LONG / part.len() {
        client.stream().write_all(&part).expect("it is taken");
    }
    let (got, _) = talk::answer(&mut client, "PUT");
    assert_eq!(got.text().trim(), LONG.to_string());
    let more_kib = host.memory_max_kib() - before_kib;
    assert!(more_kib < MEMORY_MAX_KIB, "{more_kib} KiB");
}

#[test]
fn short_body_ignored_by_program_keeps_the_connection() {
    let host = Host::start(&[("ignore", IGNORE)]);
    let mut client = host.connect();
    for path in ["/cgi/ignore", "/linked", "/library", "/separate", "/wasm"] {
        for body in ["", "short", &"x".repeat(3000)] {
            let (got, _) = post(&mut client, path, body);
            assert_eq!(got.status, 200, "{path}");
            assert!(!got.body.is_empty(), "{path}");
        }
    }
}

/// The response arrives, even if the connection is closed after it. The server must not parse the rest of the body as
/// the next request.
#[test]
fn long_body_ignored_by_program_is_not_parsed_as_request() {
    let host = Host::start(&[("ignore", IGNORE)]);
    let before_kib = host.memory_max_kib();
    for path in ["/cgi/ignore", "/linked", "/library", "/separate", "/wasm"] {
        let mut client = host.connect();
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {LONG}\r\n\r\n"
        ));
        // The server may not accept all of this body.
        let part = "GET /cgi/ignore HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
        let mut stream = client.stream();
        for _ in 0..LONG / part.len() {
            if stream.write_all(part.as_bytes()).is_err() {
                break;
            }
        }
        let rest = "x".repeat(LONG % part.len());
        client.send(rest);
        let (got, _) = talk::answer(&mut client, "POST");
        assert_eq!(got.status, 200, "{path}");
        client.finish();
        client.wait_for_close();
        let others = String::from_utf8_lossy(&client.received);
        assert_eq!(others, "", "{path}");
    }
    let more_kib = host.memory_max_kib() - before_kib;
    assert!(more_kib < MEMORY_MAX_KIB, "{more_kib} KiB");
}

#[test]
fn body_over_the_limit_gets_413() {
    let host = Host::start(&[("note", "echo x >>DIR/state/noted\nprintf '\\n'\n")]);
    let mut client = host.connect();
    client.send("POST /cgi/note HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n");
    let (got, _) = talk::answer(&mut client, "POST");
    assert_eq!(got.status, 413);
    assert_eq!(host.state("noted"), "");
}

#[test]
fn body_is_streamed_without_request_buffering() {
    let host = Host::with_routes(STREAMED, &[]);
    let mut client = host.connect();
    client.send("POST /cgi/say HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    client.send("a".repeat(100_000));
    assert!(talk::head(&mut client).starts_with("HTTP/1.1 200 "));
    while !client.received.windows(100).any(|part| part == [b'a'; 100]) {
        assert!(
            client.receive_once(),
            "the program answers while the body comes"
        );
    }
    client.send("b".repeat(100_000));
    while !client.received.ends_with(b"\r\n0\r\n\r\n") {
        assert!(client.receive_once(), "the rest comes too");
    }
    let ends = client.received.iter().filter(|byte| **byte == b'b');
    // The lengths of the chunks count, too.
    assert!(ends.count() >= 100_000);
    assert_eq!(host.status().value("spool_requests"), 0);
}

#[test]
fn disconnect_during_streamed_body_ends_the_program() {
    let script = "echo $$ >DIR/state/pid\nexec cat\n";
    let host = Host::with_routes(STREAMED, &[("wait", script)]);
    let mut client = host.connect();
    // A streamed program starts when 64 KiB, or all of the body, can be read.
    client.send("POST /cgi/wait HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    client.send("a".repeat(100_000));
    let pid = crate::streams::pid(&host, "pid");
    drop(client);
    crate::streams::wait_for_end(&pid);
}
