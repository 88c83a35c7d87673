//! The binary access log: records equal requests, through rotation, reload, SIGTERM, SIGKILL and a full disk; and the
//! commands that read it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use lowroad_testkit::{TempFolder, TestClient, TestServer, skip, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
/// The first bytes of a block of records: magic, version, kind (docs/logs.md).
const BLOCK_START: [u8; 6] = [0x8B, b'L', b'R', 0, 1, 3];

/// A site with a binary log and these keys of `[log]`.
fn logged(folder: &TempFolder, log: &Path, keys: &str) -> TestServer {
    // The server's user may create a new log here.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("a mode");
    folder.file("root/small", "hello");
    let (root, log) = (folder.path().display(), log.display());
    let config = format!(
        "[server]\nworkers = 2\n[log]\naccess = \"{log}\"\nformat = \"binary\"\n{keys}\n\
         [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{root}/root\"\n"
    );
    TestServer::run(PROGRAM, folder, &config)
}

fn log_path(folder: &TempFolder) -> PathBuf {
    folder.path().join("access.lrlog")
}

/// Runs `lowroad log` with a command, a log, and options.
fn log_command(command: &str, log: &Path, options: &[&str]) -> Output {
    let mut run = Command::new(PROGRAM);
    run.args(["log", command]).args(options).arg(log);
    run.output().expect("the program")
}

/// The exit status if records are missing (docs/logs.md).
const INCOMPLETE: i32 = 3;

/// The lines of a command that can read the log. Records may be missing.
fn lines(command: &str, log: &Path, options: &[&str]) -> Vec<String> {
    let output = log_command(command, log, options);
    let errors = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    assert!(matches!(code, Some(0 | INCOMPLETE)), "{errors}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(str::to_owned).collect()
}

/// Sends numbered requests over several connections.
fn ask(server: &TestServer, numbers: std::ops::Range<u32>) {
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for number in numbers {
        let client = &mut clients[number as usize % 4];
        client.send(format!(
            "GET /small?{number}. HTTP/1.1\r\nHost: Example.com\r\nUser-Agent: test/{}\r\n\r\n",
            number % 3
        ));
        assert_eq!(client.response().status, 200);
    }
}

/// Generates texts that hardly compress: 4 random bits for each byte.
struct RandomText(u64);

impl RandomText {
    fn next(&mut self, len: usize) -> String {
        let mut text = String::new();
        while text.len() < len {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            text += &format!("{:x}", self.0 >> 20);
        }
        text
    }
}

/// Checks that each request has one record.
fn assert_all_logged(log: &Path, numbers: std::ops::Range<u32>) {
    let lines = lines("cat", log, &[]);
    assert_eq!(lines.len(), numbers.len());
    for number in numbers {
        let target = format!("\"GET /small?{number}. HTTP/1.1\" 200 5 ");
        let count = lines.iter().filter(|line| line.contains(&target)).count();
        assert_eq!(count, 1, "{target}");
    }
}

#[test]
fn records_equal_requests_through_reload_and_both_rotations() {
    let folder = TempFolder::new();
    let log = log_path(&folder);
    let mut server = logged(&folder, &log, "block_age = \"100ms\"");
    ask(&server, 0..100);
    server.signal("HUP");
    server.wait_for_error_line("is in force");
    // The second round of the log's thread begins after it has opened the path again.
    for (start, end) in [(100, 150), (150, 200)] {
        ask(&server, start..end);
        wait_until("the records", || {
            (lines("cat", &log, &[]).len() as u32 == end).then_some(())
        });
    }
    // Rotates the log like logrotate. Earlier records are in the old file.
    let moved = folder.path().join("access.lrlog.20000101T000000000Z");
    fs::rename(&log, &moved).expect("renamed");
    server.signal("USR1");
    wait_until("the new log", || log.exists().then_some(()));
    ask(&server, 200..300);
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    assert_all_logged(&log, 0..300);
    assert_eq!(lines("cat", &moved, &["--only"]).len(), 200);
}

#[test]
fn rotated_files_are_bounded_and_read_as_one_log() {
    let folder = TempFolder::new();
    let log = log_path(&folder);
    let keys = "block_age = \"100ms\"\nrotate_len = \"64K\"\ntotal_len_max = \"256K\"";
    let mut server = logged(&folder, &log, keys);
    let files = || {
        let entries = fs::read_dir(folder.path()).expect("a folder").flatten();
        let logs =
            entries.filter(|it| it.file_name().to_string_lossy().starts_with("access.lrlog"));
        // A rotated file may be deleted meanwhile.
        logs.filter_map(|it| Some(it.metadata().ok()?.len()))
            .collect::<Vec<_>>()
    };
    let current = || {
        let it = fs::metadata(&log).ok()?;
        Some((it.ino(), it.len()))
    };
    let mut client = server.connect();
    let mut random = RandomText(1);
    let mut is_rotated = false;
    // Blocks of at most 200 requests, with texts that can't be compressed: 10 KB or so.
    for _ in 0..50 {
        let before = current();
        for _ in 0..200 {
            client.get("/small", &format!("Referer: {}\r\n", random.next(100)));
        }
        wait_until("the block", || (current() != before).then_some(()));
        is_rotated |= files().len() > 1;
    }
    drop(client);
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    assert!(is_rotated);
    // A file exceeds its length by two blocks at most.
    let total: u64 = files().iter().sum();
    let files = files();
    assert!(files.len() >= 3 && total <= 6 * (64 << 10), "{files:?}");
    assert!(!lines("cat", &log, &[]).is_empty());
}

#[test]
fn blocks_fit_into_small_files() {
    let folder = TempFolder::new();
    let log = log_path(&folder);
    // All requests are in one round of the log's thread, and their texts are longer than all files.
    let keys = "block_age = \"60s\"\nrotate_len = \"64K\"\ntotal_len_max = \"256K\"";
    let mut server = logged(&folder, &log, keys);
    let mut client = server.connect();
    let mut random = RandomText(1);
    for number in 0..150 {
        let fields = format!("User-Agent: {}\r\n", random.next(6000));
        client.get(&format!("/small?{number}."), &fields);
    }
    drop(client);
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    let lines = lines("cat", &log, &[]);
    for number in 145..150 {
        let target = format!("/small?{number}.");
        assert!(lines.iter().any(|line| line.contains(&target)), "{target}");
    }
}

#[test]
fn sigkill_loses_the_last_block_only() {
    let folder = TempFolder::new();
    let log = log_path(&folder);
    let mut next = 0;
    for _ in 0..4 {
        let mut server = logged(&folder, &log, "block_age = \"100ms\"");
        ask(&server, next..next + 50);
        next += 50;
        wait_until("the blocks", || {
            (lines("cat", &log, &[]).len() as u32 == next).then_some(())
        });
        server.signal("KILL");
        server.wait_for_end();
    }
    assert_all_logged(&log, 0..next);
    // Simulates a kill during a write: a part of a block, followed by another block.
    let whole = fs::read(&log).expect("a log");
    let last_records = (0..whole.len() - BLOCK_START.len())
        .rev()
        .find(|at| whole[*at..].starts_with(&BLOCK_START))
        .expect("a block of records");
    for len in [1, 50, 70] {
        let torn = folder.path().join("torn.lrlog");
        fs::write(&torn, [&whole[..last_records + len], &whole].concat()).expect("written");
        let output = log_command("cat", &torn, &[]);
        assert_eq!(output.status.code(), Some(INCOMPLETE));
        let count = String::from_utf8_lossy(&output.stdout).lines().count() as u32;
        assert!((2 * next - 50..2 * next).contains(&count), "{count}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("torn.lrlog: offset "), "{errors}");
    }
}

#[test]
fn sigkill_under_load_keeps_all_written_blocks() {
    let folder = TempFolder::new();
    let log = log_path(&folder);
    let mut server = logged(&folder, &log, "block_age = \"100ms\"");
    let (address, is_killed) = (server.address(), AtomicBool::new(false));
    let (written, sent) = std::thread::scope(|scope| {
        let senders = (0..3).map(|client| {
            let is_killed = &is_killed;
            scope.spawn(move || {
                let mut connection = TestClient::connect(address);
                let mut number = 0;
                while !is_killed.load(SeqCst) {
                    number += 1;
                    connection.send(format!(
                        "GET /small?{client}.{number}. HTTP/1.1\r\nHost: a\r\n\r\n"
                    ));
                    if connection.whole_response().is_none() {
                        break;
                    }
                }
                number
            })
        });
        let senders: Vec<_> = senders.collect();
        let written = wait_until("blocks", || {
            let written = lines("cat", &log, &[]);
            (written.len() > 500).then_some(written)
        });
        server.signal("KILL");
        server.wait_for_end();
        is_killed.store(true, SeqCst);
        let sent = senders
            .into_iter()
            .map(|sender| sender.join().expect("no panic"));
        (written, sent.collect::<Vec<u32>>())
    });
    let after = lines("cat", &log, &[]);
    // Blocks that were read before the kill are unchanged, and later ones only add to them.
    assert_eq!(after[..written.len()], written);
    let mut targets: Vec<&str> = after
        .iter()
        .filter_map(|line| line.split(' ').find(|word| word.starts_with("/small?")))
        .collect();
    assert_eq!(targets.len(), after.len());
    targets.sort_unstable();
    targets.dedup();
    assert_eq!(targets.len(), after.len(), "a request has one record");
    assert!(after.len() as u32 <= sent.iter().sum());
    for target in targets {
        let mut numbers = target["/small?".len()..].split('.');
        let mut number = || numbers.next().and_then(|it| it.parse::<u32>().ok());
        let (client, number) = (number().expect(target), number().expect(target));
        assert!((1..=sent[client as usize]).contains(&number), "{target}");
    }
}

#[test]
fn full_disk_drops_records_and_delays_no_request() {
    let test = "full_disk_drops_records_and_delays_no_request";
    let folder = TempFolder::new();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).expect("a folder");
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k,mode=777", "tmpfs"])
        .arg(&disk)
        .output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        return skip(test, "no tmpfs can be mounted: not root");
    }
    let log = disk.join("access.lrlog");
    let mut server = logged(&folder, &log, "block_age = \"100ms\"");
    ask(&server, 0..10);
    wait_until("a block", || {
        (lines("cat", &log, &[]).len() == 10).then_some(())
    });
    let filler = disk.join("filler");
    // Fills the disk. Only the log's last page has room, which is too small for these requests.
    let _ = fs::write(&filler, vec![b'x'; 64 << 10]);
    let mut client = server.connect();
    let mut random = RandomText(1);
    for _ in 0..10 {
        client.get(&format!("/small?{}", random.next(4000)), "");
    }
    server.wait_for_error_line("can't be written, its records are dropped");
    ask(&server, 20..30);
    fs::remove_file(&filler).expect("removed");
    // These records are in a block that fits.
    wait_until("the end of the drops", || {
        ask(&server, 30..31);
        (lines("cat", &log, &[]).len() > 10).then_some(())
    });
    server.wait_for_error_line("is written again; ");
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    let output = log_command("cat", &log, &[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    let unmounted = Command::new("umount").arg(&disk).status();
    // The reader reports the gap and its length.
    assert!(errors.contains("records before are missing"), "{errors}");
    assert!(unmounted.expect("umount").success());
}

#[test]
fn commands_filter_export_and_count() {
    let folder = TempFolder::new();
    let log = log_path(&folder);
    let mut server = logged(&folder, &log, "");
    ask(&server, 0..30);
    let mut client = server.connect();
    client.send("GET /missing HTTP/1.1\r\nHost: b\r\nUser-Agent: \u{9b}31m\"\r\n\r\n");
    assert_eq!(client.response().status, 404);
    drop(client);
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    let count = |options: &[&str]| lines("cat", &log, options).len();
    for (options, expected) in [
        (&["--status", "4xx"][..], 1),
        (&["--status", "404", "--status", "200"], 31),
        (&["--site", "example.com"], 30),
        (&["--level", "worker", "--outcome", "hit"], 29),
        (&["--client", "127.0.0.0/8"], 31),
        (&["--client", "::1"], 0),
        (&["--url", "/small"], 30),
        (&["--url", "/small?1*"], 11),
        (&["--since", "1h"], 31),
        (&["--until", "2020-01-01"], 0),
        (&["--min-duration", "100s"], 0),
        (&["--max-duration", "100s"], 31),
    ] {
        assert_eq!(count(options), expected, "{options:?}");
    }
    assert_eq!(lines("tail", &log, &["-n", "3"]).len(), 3);
    assert_eq!(lines("grep", &log, &["small\\?[12]\\."]).len(), 2);
    assert_eq!(lines("grep", &log, &["-v", "small"]).len(), 1);
    assert_eq!(lines("grep", &log, &["--count", "small"]), ["30"]);
    for (arguments, code) in [
        (&["small"][..], 0),
        (&["nowhere"], 1),
        (&["--count", "nowhere"], 1),
        (&["-v", "."], 1),
        (&["("], 2),
    ] {
        let status = log_command("grep", &log, arguments).status;
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
    let csv = lines("export", &log, &[]);
    assert!(csv.len() == 32 && csv[0].starts_with("time,peer,"));
    let w3c = lines("export", &log, &["--format", "w3c"]);
    assert!(w3c.len() == 34 && w3c[2].starts_with("#Fields: date time c-ip"));
    let json = lines("cat", &log, &["--format", "json", "--status", "404"]);
    assert!(
        json[0].contains("\"host\":\"b\"") && json[0].contains("\"outcome\":\"miss\""),
        "{json:?}"
    );
    assert!(!json[0].contains('\u{9b}'));
    let stats = lines("stats", &log, &[]).join("\n");
    assert!(
        stats.contains("requests          31") && stats.contains("  /small"),
        "{stats}"
    );
    let top = lines("top", &log, &["--by", "user-agent", "-n", "1"]).join("\n");
    assert!(top.contains("10") && top.contains("test/0"), "{top}");
}

#[test]
fn damaged_and_foreign_files_are_reported_with_the_offset() {
    let folder = TempFolder::new();
    let log = log_path(&folder);
    let mut server = logged(&folder, &log, "block_age = \"100ms\"");
    for block in 0..3 {
        ask(&server, 10 * block..10 * block + 10);
        let expected = 10 * (block as usize + 1);
        wait_until("a block", || {
            (lines("cat", &log, &[]).len() == expected).then_some(())
        });
    }
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    let mut bytes = fs::read(&log).expect("a log");
    let middle = bytes.len() / 2;
    bytes[middle..middle + 4].fill(0xFF);
    let damaged = folder.path().join("damaged.lrlog");
    fs::write(&damaged, &bytes).expect("written");
    let output = log_command("cat", &damaged, &[]);
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert_eq!(output.status.code(), Some(INCOMPLETE), "{errors}");
    for command in ["stats", "top", "export", "tail", "grep"] {
        let pattern: &[&str] = if command == "grep" { &["GET"] } else { &[] };
        let output = log_command(command, &damaged, pattern);
        assert_eq!(output.status.code(), Some(INCOMPLETE), "{command}");
    }
    assert_eq!(log_command("cat", &log, &[]).status.code(), Some(0));
    assert!(
        text.contains("small?0.") && text.contains("small?29."),
        "{errors}"
    );
    assert!(
        errors.contains("damaged.lrlog: offset ") && errors.contains("are missing"),
        "{errors}"
    );
    let foreign = folder.file("foreign", "192.0.2.1 - - \"GET / HTTP/1.1\" 200 5\n");
    let output = log_command("cat", &foreign, &[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        errors.contains("is no binary access log: offset 0: 37 bytes"),
        "{errors}"
    );
}

#[test]
fn conditions_that_no_record_can_meet_are_refused() {
    for (options, allowed) in [
        (
            &["--level", "bogus"][..],
            "softirq, worker, handler, origin",
        ),
        (
            &["--outcome", "bogus"],
            "hit, miss, stale, revalidated, pass, made",
        ),
        (&["--status", "6xx"], "a class from 1xx to 5xx"),
        (&["--status", "500-400"], "a range like 200-399"),
        (&["--since", "2026-02-31"], "in UTC"),
        (
            &["--since", "2026-02-02", "--until", "2026-02-01"],
            "earlier than --until",
        ),
        (
            &["--min-duration", "2s", "--max-duration", "1s"],
            "at most --max-duration",
        ),
    ] {
        let output = log_command("cat", Path::new("/nonexistent"), options);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(allowed), "{errors}");
    }
}

#[test]
fn export_replaces_no_file_by_mistake() {
    let folder = TempFolder::new();
    let log = log_path(&folder);
    let output = folder.path().join("out.csv");
    let export = |options: &[&str], output: &Path| {
        let file = output.display().to_string();
        let done = log_command("export", &log, &[options, &["-o", &file]].concat());
        let errors = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.code(), errors)
    };
    let (code, errors) = export(&[], &output);
    assert!(
        code == Some(1) && errors.contains("there is no such log"),
        "{errors}"
    );
    assert!(!output.exists());
    let mut server = logged(&folder, &log, "");
    ask(&server, 0..3);
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    assert_eq!(export(&[], &output).0, Some(0));
    let (code, errors) = export(&[], &output);
    assert!(
        code == Some(1) && errors.contains("--force replaces it"),
        "{errors}"
    );
    fs::write(&output, "x".repeat(10_000)).expect("written");
    assert_eq!(export(&["--force"], &output).0, Some(0));
    let text = fs::read_to_string(&output).expect("a file");
    assert_eq!(text.lines().count(), 4, "{text}");
    let (code, errors) = export(&["--force"], &log);
    assert!(
        code == Some(1) && errors.contains("a file of the log"),
        "{errors}"
    );
    let done = log_command("cat", folder.path(), &[]);
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(errors.contains("this is a folder"), "{errors}");
}

#[test]
fn text_log_at_the_path_is_rotated_away() {
    let folder = TempFolder::new();
    let log = log_path(&folder);
    fs::write(&log, "a line\n").expect("written");
    fs::set_permissions(&log, fs::Permissions::from_mode(0o666)).expect("a mode");
    let mut server = logged(&folder, &log, "");
    ask(&server, 0..5);
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    assert_eq!(lines("cat", &log, &["--only"]).len(), 5);
    // The renamed file of lines does not keep `tail` from printing the records.
    assert_eq!(lines("tail", &log, &[]).len(), 5);
}
