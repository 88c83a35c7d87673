//! A complete response contains a single version of a file, even if the file changes while it is sent. A response from
//! a file may end early instead; a response from memory never does.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use lowroad_testkit::{TEST_TIMEOUT, TempFolder, TestClient, TestServer};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
/// The server regards a file as settled if it has not changed for 20 ms. If the scheduler delays the writer for longer
/// in the middle of a write, the file itself is a mixture.
const HELD_UP: Duration = Duration::from_millis(10);
/// Complete responses that each client waits for.
const ANSWERS: usize = 12;

/// Rewrites a file in place until stopped.
struct Writer {
    path: PathBuf,
    /// The lengths of the two versions, one of As and one of Bs.
    lens: [usize; 2],
    /// Periods in which the file was a mixture for too long. Locked during a rewrite.
    held_up: Mutex<Vec<(Instant, Instant)>>,
    stop: AtomicBool,
}

impl Writer {
    fn work(&self) {
        // The shortest pause lets the file never settle, the longest is enough to send a large file.
        let pauses_ms = [0, 1, 30, 0, 15, 60, 3, 200];
        for round in 0.. {
            if self.stop.load(Relaxed) {
                return;
            }
            let mut held_up = self.held_up.lock().expect("no panic");
            let start = Instant::now();
            self.rewrite(b"AB"[round % 2], self.lens[round % 2], round / 2 % 3);
            // The scheduler delayed this thread, so the server may have regarded a mixture as settled.
            if start.elapsed() > HELD_UP {
                held_up.push((start, Instant::now()));
            }
            drop(held_up);
            thread::sleep(Duration::from_millis(
                pauses_ms[round / 3 % pauses_ms.len()],
            ));
        }
    }

    /// Rewrites the file in one write, in several writes with pauses, or after a truncation.
    fn rewrite(&self, byte: u8, len: usize, way: usize) {
        let file = File::options().write(true).open(&self.path).expect("open");
        if way == 2 {
            file.set_len(0).expect("cut");
        }
        let piece_len = if way == 1 { len / 6 } else { len };
        for at in (0..len).step_by(piece_len) {
            if at > 0 {
                thread::sleep(Duration::from_micros(300));
            }
            let piece = vec![byte; piece_len.min(len - at)];
            file.write_all_at(&piece, at as u64).expect("written");
        }
        file.set_len(len as u64).expect("cut");
    }

    /// Whether the file may itself have been a mixture for too long since then.
    fn excuses(&self, since: Instant) -> bool {
        let held_up = self.held_up.lock().expect("no panic");
        held_up.iter().any(|(_, end)| *end >= since)
    }

    /// The version of a body; 2 for an empty file after a truncation.
    fn version(&self, body: &[u8]) -> Option<usize> {
        let is = |byte: u8, len: usize| body.len() == len && body.iter().all(|b| *b == byte);
        match body {
            [] => Some(2),
            _ if is(b'A', self.lens[0]) => Some(0),
            _ if is(b'B', self.lens[1]) => Some(1),
            _ => None,
        }
    }
}

/// The file's versions, and the requests.
struct Case {
    lens: [usize; 2],
    /// Whether a response may end early, because it is sent from the file.
    cut: bool,
    options: &'static [&'static str],
    file: &'static str,
    path: &'static str,
    status: u16,
}

impl Case {
    fn file(lens: [usize; 2], cut: bool) -> Case {
        Case {
            lens,
            cut,
            options: &[],
            file: "file.bin",
            path: "/file.bin",
            status: 200,
        }
    }
}

/// Sends requests until both versions have occurred and enough responses have arrived.
fn fetch(server: SocketAddr, writer: &Writer, case: &Case, fields: &str) {
    let start = Instant::now();
    let mut client = TestClient::connect(server);
    let (mut seen, mut whole) = ([0; 3], 0);
    while whole < ANSWERS || seen[0] == 0 || seen[1] == 0 {
        assert!(start.elapsed() < TEST_TIMEOUT, "seen only {seen:?}");
        let asked = Instant::now();
        let path = case.path;
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        match client.whole_response() {
            Some(got) if got.status == case.status => {
                match writer.version(&got.body) {
                    Some(version) => seen[version] += 1,
                    // A mixed response is excused only if the file itself was a mixture.
                    None => assert!(writer.excuses(asked), "a mixture: {}", got.head),
                }
                whole += 1;
            }
            // The file did not settle while the server waited for it.
            Some(got) => assert_eq!(got.status, 503),
            None => {
                assert!(case.cut, "an answer from memory was cut");
                // An incomplete response ends the connection.
                client = TestClient::connect(server);
            }
        }
    }
}

fn assert_no_mixed_responses(case: Case) {
    let folder = TempFolder::in_memory();
    let lens = case.lens;
    let path = folder.file(case.file, vec![b'A'; lens[0]]);
    let server = TestServer::serve(PROGRAM, &folder, case.options);
    let writer = Writer {
        path,
        lens,
        held_up: Mutex::default(),
        stop: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let writing = scope.spawn(|| writer.work());
        let (address, writer, case) = (server.address(), &writer, &case);
        let fetching: Vec<_> = [
            "",
            "Connection: keep-alive\r\n",
            "Accept-Encoding: gzip\r\n",
        ]
        .into_iter()
        .map(|fields| scope.spawn(move || fetch(address, writer, case, fields)))
        .collect();
        // A panic is propagated only after the writer has stopped, otherwise the scope would never end.
        let done: Vec<_> = fetching.into_iter().map(|client| client.join()).collect();
        writer.stop.store(true, Relaxed);
        writing.join().expect("the writer");
        done.into_iter().for_each(|done| done.expect("a client"));
    });
}

#[test]
fn small_file_of_constant_length_is_not_mixed() {
    assert_no_mixed_responses(Case::file([2_000, 2_000], false));
}

#[test]
fn small_file_of_changing_length_is_not_mixed() {
    assert_no_mixed_responses(Case::file([2_000, 1_500], false));
}

#[test]
fn medium_file_of_constant_length_is_not_mixed() {
    assert_no_mixed_responses(Case::file([100_000, 100_000], false));
}

#[test]
fn medium_file_of_changing_length_is_not_mixed() {
    assert_no_mixed_responses(Case::file([100_000, 70_000], false));
}

#[test]
fn large_file_of_constant_length_is_not_mixed() {
    assert_no_mixed_responses(Case::file([3 << 20, 3 << 20], true));
}

#[test]
fn large_file_of_changing_length_is_not_mixed() {
    assert_no_mixed_responses(Case::file([3 << 20, 2 << 20], true));
}

#[test]
fn file_without_cache_is_not_mixed() {
    assert_no_mixed_responses(Case {
        options: &["--cache", "0"],
        ..Case::file([100_000, 70_000], true)
    });
}

#[test]
fn error_page_is_not_mixed() {
    assert_no_mixed_responses(Case {
        file: "404.html",
        path: "/missing",
        status: 404,
        ..Case::file([200_000, 150_000], false)
    });
}

/// More than the socket buffers between a server and a client that does not read.
const LARGE: usize = 48 << 20;

/// A server, and a client that has received the start of a large response and has stopped reading.
fn half_sent() -> (TempFolder, PathBuf, TestServer, TestClient) {
    let folder = TempFolder::new();
    let path = folder.zeros("file.bin", LARGE as u64);
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    let mut client = server.connect();
    client.send("GET /file.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.receive_once());
    (folder, path, server, client)
}

/// Asserts that the response ends early and the server still works.
fn expect_cut(server: &TestServer, client: &mut TestClient, new: &[u8]) {
    assert_eq!(client.whole_response(), None);
    // The file may have changed before a byte of the body was sent.
    let start = &client.received[..client.received.len().min(300)];
    let head = String::from_utf8_lossy(start).into_owned();
    assert!(
        head.contains(&format!("Content-Length: {LARGE}\r\n")),
        "{head}"
    );
    assert!(client.received.len() < LARGE);
    assert!(server.get("/file.bin").body == new);
}

#[test]
fn shrinking_file_ends_the_response() {
    let (_folder, path, server, mut client) = half_sent();
    let file = File::options().write(true).open(path).expect("open");
    file.set_len(1 << 20).expect("cut");
    expect_cut(&server, &mut client, &[0; 1 << 20]);
}

#[test]
fn rewrite_in_place_ends_the_response() {
    let (_folder, path, server, mut client) = half_sent();
    let file = File::options().write(true).open(path).expect("open");
    // Changes the last byte, which the client has not received yet.
    file.write_all_at(b"B", LARGE as u64 - 1).expect("written");
    let mut new = vec![0; LARGE];
    new[LARGE - 1] = b'B';
    expect_cut(&server, &mut client, &new);
}

/// A change of the file at a path.
type Change = fn(&std::path::Path);

#[test]
fn response_completes_if_its_bytes_do_not_change() {
    let changes: [(&str, Change); 5] = [
        ("append", |path| {
            let file = File::options().append(true).open(path).expect("open");
            std::io::Write::write_all(&mut &file, b"B").expect("written");
        }),
        ("link", |path| {
            fs::hard_link(path, path.with_extension("link")).expect("linked")
        }),
        ("mode", |path| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            fs::set_permissions(path, mode).expect("mode set");
        }),
        ("touch", |path| {
            let file = File::options().write(true).open(path).expect("open");
            file.set_modified(std::time::SystemTime::now())
                .expect("touched");
        }),
        ("rename", |path| {
            fs::rename(path, path.with_extension("old")).expect("renamed")
        }),
    ];
    for (what, change) in changes {
        let (_folder, path, _server, mut client) = half_sent();
        // By then the server knows the digest of the whole file.
        while client.received.len() < 2 << 20 {
            assert!(client.receive_once(), "{what}");
        }
        change(&path);
        let got = client.whole_response().expect(what);
        assert!(
            got.body.len() == LARGE && got.body.iter().all(|b| *b == 0),
            "{what}"
        );
    }
}

#[test]
fn growing_file_is_sent_up_to_its_announced_length() {
    let folder = TempFolder::in_memory();
    for len in [0, 20_000, 3 << 20] {
        let path = folder.file("app.log", vec![b'x'; len]);
        let server = TestServer::serve(PROGRAM, &folder, &[]);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut file = File::options().append(true).open(&path).expect("open");
                while !stop.load(Relaxed) {
                    std::io::Write::write_all(&mut file, b"y").expect("written");
                    thread::sleep(Duration::from_millis(2));
                }
            });
            let mut client = server.connect();
            let fields = ["", "Range: bytes=0-99\r\n", "Accept-Encoding: gzip\r\n"];
            let got = fields.map(|fields| {
                client.send(format!("GET /app.log HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
                client.whole_response()
            });
            stop.store(true, Relaxed);
            for (got, fields) in got.iter().zip(fields) {
                let got = got.as_ref().expect("a whole answer");
                let is_part = fields.starts_with("Range") && got.status == 206;
                assert!(got.status == 200 || is_part, "{fields}: {}", got.head);
                if got.field("content-encoding").is_none() {
                    assert!(is_part || got.body.len() >= len, "{fields}");
                    let (old, new) = got.body.split_at(len.min(got.body.len()));
                    assert!(old.iter().all(|b| *b == b'x') && new.iter().all(|b| *b == b'y'));
                }
            }
        });
    }
}

#[test]
fn replaced_or_removed_file_is_sent_completely() {
    for replaced in [true, false] {
        let (folder, path, server, mut client) = half_sent();
        if replaced {
            let new = folder.file("new", "new");
            fs::rename(new, path).expect("renamed");
        } else {
            fs::remove_file(path).expect("removed");
        }
        let got = client.whole_response().expect("a whole answer");
        assert!(got.body.len() == LARGE && got.body.iter().all(|b| *b == 0));
        let then = server.get("/file.bin");
        let expected = if replaced {
            (200, 3)
        } else {
            (404, then.body.len())
        };
        assert_eq!((then.status, then.body.len()), expected);
    }
}

#[test]
fn responses_from_memory_complete_after_file_change() {
    const COUNT: usize = 400;
    let folder = TempFolder::new();
    let path = folder.file("file.bin", vec![b'A'; 100_000]);
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    assert_eq!(server.get("/file.bin").status, 200);
    let mut client = server.connect();
    // More responses than the socket buffers hold, so that the file changes between two of them.
    client.send("GET /file.bin HTTP/1.1\r\nHost: a\r\n\r\n".repeat(COUNT));
    assert!(client.receive_once());
    fs::write(path, vec![b'B'; 50_000]).expect("written");
    // Other clients get the new version while the old one is still sent to the first client.
    lowroad_testkit::wait_until("the new version", || {
        (server.get("/file.bin").body == [b'B'; 50_000]).then_some(())
    });
    let mut changes = 0;
    let mut last = b'A';
    for at in 0..COUNT {
        let got = client.response();
        let byte = got.body[0];
        let len = if byte == b'A' { 100_000 } else { 50_000 };
        assert!(
            got.body.len() == len && got.body.iter().all(|b| *b == byte),
            "answer {at}"
        );
        changes += usize::from(byte != last);
        last = byte;
    }
    assert_eq!(
        (changes, last),
        (1, b'B'),
        "first the old version, then the new one"
    );
}
