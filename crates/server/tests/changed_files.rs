//! Long files that change while they are sent: the download ends early if its remaining bytes may have changed, and
//! only then.
//!
//! On file systems that do not report writes (see inotify(7)), `touch` may also end a download.

use std::fs::{self, File, FileTimes};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lowroad_testkit::{TempFolder, TestClient, TestServer, skip};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
/// Far more than the socket buffers and the first digests cover.
const LEN: usize = 80 << 20;
/// Number of bytes that the client has received when the file changes.
const START_LEN: usize = 1 << 20;
/// The server computes no digests of longer files, nor of files that have not changed for an hour.
const DIGESTED_LEN_MAX: u64 = 16 << 30;

/// Bytes in which no sequence of eight bytes repeats.
fn content() -> Vec<u8> {
    let numbers = 0..LEN as u64 / 8;
    numbers.flat_map(|number| number.to_le_bytes()).collect()
}

/// How the server proves that a file has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    Digests,
    Watch,
}

impl Proof {
    fn write_file(self, folder: &TempFolder, content: &[u8]) {
        let mut file = File::create(folder.path().join("file")).expect("a file");
        file.write_all(content).expect("written");
        if self == Proof::Watch {
            file.seek(SeekFrom::Start(DIGESTED_LEN_MAX))
                .expect("a place");
            file.write_all(b"end").expect("written");
        }
        let modified = SystemTime::now() - Duration::from_secs(7200);
        file.set_modified(modified).expect("a date");
    }
}

/// Requests the content, changes the file in the middle of the response, and receives the rest. If the result is
/// shorter than the file, the download ended early.
fn download(server: &TestServer, change: impl FnOnce()) -> Vec<u8> {
    let mut client: TestClient = server.connect();
    client.send(format!(
        "GET /file HTTP/1.1\r\nHost: test\r\nConnection: close\r\nRange: bytes=0-{}\r\n\r\n",
        LEN - 1
    ));
    while client.received.len() < START_LEN {
        assert!(client.receive_once(), "the connection ended");
    }
    change();
    client.wait_for_close();
    let head_end = client.received.windows(4).position(|at| at == b"\r\n\r\n");
    assert!(client.received.starts_with(b"HTTP/1.1 206 "));
    client.received.split_off(head_end.expect("a head") + 4)
}

fn reports_writes(folder: &TempFolder) -> bool {
    const REPORTING: [u32; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];
    let kind = rustix::fs::statfs(folder.path()).expect("a kind").f_type;
    let is_known = REPORTING.contains(&(kind as u32));
    if !is_known {
        skip("a touched file", "its file system does not report writes");
    }
    is_known
}

/// Sets both times, as touch(1) does.
fn touch(path: &Path, time: SystemTime) {
    let file = File::options().write(true).open(path).expect("open");
    let times = FileTimes::new().set_modified(time).set_accessed(time);
    file.set_times(times).expect("touched");
}

fn write_byte(path: &Path, at: usize) {
    let file = File::options().write(true).open(path).expect("open");
    file.write_all_at(&[0xff], at as u64).expect("written");
}

type Change = fn(&Path);

const METADATA_CHANGES: [(&str, Change); 7] = [
    ("touch", |path| touch(path, SystemTime::now())),
    ("touch to the past", |path| {
        touch(path, UNIX_EPOCH + Duration::from_secs(784_111_777))
    }),
    ("touch twice", |path| {
        touch(path, UNIX_EPOCH);
        touch(path, SystemTime::now());
    }),
    ("chmod", |path| {
        for mode in [0o600, 0o644] {
            fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a mode");
        }
    }),
    ("link", |path| {
        let link = path.with_extension("link");
        fs::hard_link(path, &link).expect("linked");
        fs::remove_file(link).expect("removed");
    }),
    ("rename", |path| {
        let name = path.with_extension("old");
        fs::rename(path, &name).expect("renamed");
        touch(&name, SystemTime::now());
        fs::rename(name, path).expect("renamed");
    }),
    ("all", |path| {
        touch(path, SystemTime::now());
        fs::set_permissions(path, PermissionsExt::from_mode(0o644)).expect("a mode");
        let link = path.with_extension("link");
        fs::rename(path, &link).expect("renamed");
        fs::hard_link(&link, path).expect("linked");
        fs::remove_file(link).expect("removed");
        touch(path, UNIX_EPOCH);
    }),
];

#[test]
fn changed_metadata_does_not_end_the_download() {
    let content = content();
    for proof in [Proof::Digests, Proof::Watch] {
        let folder = TempFolder::new();
        proof.write_file(&folder, &content);
        let server = TestServer::serve(PROGRAM, &folder, &[]);
        if !reports_writes(&folder) {
            return;
        }
        let path = folder.path().join("file");
        for (what, change) in METADATA_CHANGES {
            let got = download(&server, || change(&path));
            assert!(got == content, "{proof:?}, {what}: {} bytes", got.len());
        }
    }
}

/// The write follows a touch, precedes one, or is hidden by a reset modification time.
#[test]
fn changed_byte_ends_the_download_despite_equal_metadata() {
    let content = content();
    type Write = fn(&Path, usize);
    let writes: [(&str, Write); 3] = [
        ("touch, write", |path, at| {
            touch(path, SystemTime::now());
            write_byte(path, at);
        }),
        ("write, touch", |path, at| {
            write_byte(path, at);
            touch(path, SystemTime::now());
        }),
        ("write, restored time", |path, at| {
            let meta = fs::metadata(path).expect("metadata");
            write_byte(path, at);
            touch(path, meta.modified().expect("a time"));
        }),
    ];
    for proof in [Proof::Digests, Proof::Watch] {
        for (what, write) in writes {
            let folder = TempFolder::new();
            proof.write_file(&folder, &content);
            let server = TestServer::serve(PROGRAM, &folder, &[]);
            let path = folder.path().join("file");
            let got = download(&server, || write(&path, LEN - 40_000));
            assert!(got.len() < LEN, "{proof:?}, {what}: it is whole");
            let is_start = content.starts_with(&got);
            assert!(
                is_start || proof == Proof::Watch,
                "{proof:?}, {what}: mixed"
            );
        }
    }
}

#[test]
fn append_to_new_file_does_not_end_the_download() {
    let content = content();
    let folder = TempFolder::new();
    Proof::Digests.write_file(&folder, &content);
    let server = TestServer::serve(PROGRAM, &folder, &[]);
    let path = folder.path().join("file");
    let got = download(&server, || {
        let mut file = File::options().append(true).open(&path).expect("open");
        file.write_all(b"more").expect("written");
        touch(&path, SystemTime::now());
    });
    assert!(got == content, "{} bytes", got.len());
}
