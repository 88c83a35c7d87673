use super::*;

/// Longer than any test: if lines with this delay are written, it is for another reason.
const NEVER: Duration = Duration::from_secs(3600);

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("lowroad-log-{name}-{}", std::process::id()))
}

fn read(path: &PathBuf) -> String {
    std::fs::read_to_string(path).expect("read")
}

fn wait_for(path: &PathBuf, text: &str) {
    while read(path) != text {
        std::thread::yield_now();
    }
}

fn remove(path: PathBuf) {
    std::fs::remove_file(path).expect("remove");
}

#[test]
fn lines_stay_in_order_across_reopen() {
    let (path, rotated) = (path("lines"), path("lines.1"));
    let writer = LogWriter::open(&LogDestination::File(path.clone())).expect("open");
    let sink = writer.sink();
    assert!(sink.push(b"one\n"));
    wait_for(&path, "one\n");
    std::fs::rename(&path, &rotated).expect("rotate");
    writer.reopen(|_, error| Err(error), |error| panic!("{error}"));
    while !path.exists() {
        std::thread::yield_now();
    }
    assert!(sink.push(b"two\n"));
    writer.close();
    assert_eq!(read(&rotated), "one\n");
    assert_eq!(read(&path), "two\n");
    remove(path);
    remove(rotated);
}

#[test]
fn line_is_written_after_its_delay() {
    let path = path("quiet");
    let delay = Duration::from_millis(1);
    let writer = LogWriter::open_delayed(&LogDestination::File(path.clone()), delay).expect("open");
    let sink = writer.sink();
    let mut want = String::new();
    for line in ["one\n", "two\n", "three\n"] {
        assert!(sink.push(line.as_bytes()));
        want += line;
        wait_for(&path, &want);
    }
    writer.close();
    remove(path);
}

#[test]
fn many_pending_bytes_are_written_before_the_delay() {
    // Both sinks count towards `WAKE_LEN`.
    let path = path("many");
    let writer = LogWriter::open_delayed(&LogDestination::File(path.clone()), NEVER).expect("open");
    let sinks = [writer.sink(), writer.sink()];
    let line = [&[b'x'; 1023][..], b"\n"].concat();
    let line_count = WAKE_LEN / line.len();
    for number in 0..line_count {
        assert_eq!(read(&path), "", "it is early for line {number}");
        assert!(sinks[number % 2].push(&line));
    }
    while read(&path).len() < WAKE_LEN {
        std::thread::yield_now();
    }
    writer.close();
    remove(path);
}

#[test]
fn pending_lines_are_written_before_reopening() {
    let (path, rotated) = (path("waiting"), path("waiting.1"));
    let writer = LogWriter::open_delayed(&LogDestination::File(path.clone()), NEVER).expect("open");
    let sinks = [writer.sink(), writer.sink()];
    assert!(sinks[0].push(b"one\n") && sinks[1].push(b"two\n"));
    std::fs::rename(&path, &rotated).expect("rotate");
    writer.reopen(|_, error| Err(error), |error| panic!("{error}"));
    while !path.exists() {
        std::thread::yield_now();
    }
    assert_eq!(read(&rotated), "one\ntwo\n");
    assert!(sinks[0].push(b"three\n"));
    writer.close();
    assert_eq!(read(&path), "three\n");
    remove(path);
    remove(rotated);
}

#[test]
fn lines_of_a_dropped_sink_are_written() {
    // A buffer without sinks is removed only after its lines were written.
    let path = path("gone");
    let writer = LogWriter::open_delayed(&LogDestination::File(path.clone()), NEVER).expect("open");
    assert!(writer.sink().push(b"one\n"));
    let shared = writer.shared.clone();
    writer.reopen(|_, error| Err(error), |error| panic!("{error}"));
    wait_for(&path, "one\n");
    writer.reopen(|_, error| Err(error), |error| panic!("{error}"));
    while !lock(&shared.control).buffers.is_empty() {
        std::thread::yield_now();
    }
    drop(writer);
    remove(path);
}

fn fifo(name: &str) -> PathBuf {
    let path = path(name);
    let made = std::process::Command::new("mkfifo")
        .arg(&path)
        .status()
        .expect("mkfifo");
    assert!(made.success());
    path
}

#[test]
fn blocked_destination_does_not_block_sinks() {
    // The pipe has no reader: opening must not block, and the pipe accepts 64 KiB before a write blocks.
    let path = fifo("fifo");
    let writer = LogWriter::open(&LogDestination::File(path.clone())).expect("open");
    let sink = writer.sink();
    let line = [&[b'x'; 1023][..], b"\n"].concat();
    let mut taken = 0;
    while sink.push(&line) {
        taken += line.len();
        assert!(taken < 64 << 20, "the buffers are not bounded");
    }
    // Bytes of the pending write count, too; only the bytes that the pipe accepted have freed space.
    assert!(
        (PENDING_LEN_MAX..=PENDING_LEN_MAX + (128 << 10)).contains(&taken),
        "{taken}"
    );
    for _ in 0..1000 {
        let _ = sink.push(&[&line[..], b"second\n"].concat());
    }
    // Meanwhile the pipe may have accepted its 64 lines, which freed space for as many.
    assert!(writer.lost() > 2 * 900, "{}", writer.lost());
    drop(writer);
    remove(path);
}

#[test]
fn close_gives_up_after_its_timeout_and_closes_the_buffers() {
    // The pipe has no reader, so the megabyte is never written.
    let path = fifo("close");
    let writer = LogWriter::open(&LogDestination::File(path.clone())).expect("open");
    let sink = writer.sink();
    assert!(sink.push(&vec![b'x'; 1 << 20]));
    let started = Instant::now();
    writer.close();
    assert!(started.elapsed() >= CLOSE_TIMEOUT);
    assert!(!sink.push(b"late\n"), "it would never be written");
    assert_eq!(sink.shared.lost.load(Relaxed), 1);
    remove(path);
}

#[test]
fn lines_of_threads_are_whole_and_close_writes_all() {
    for delay in [Duration::ZERO, NEVER] {
        let path = path("threads");
        let writer =
            LogWriter::open_delayed(&LogDestination::File(path.clone()), delay).expect("open");
        let shared = writer.sink();
        std::thread::scope(|scope| {
            for digit in *b"1234" {
                let sinks = [writer.sink(), shared.clone()];
                scope.spawn(move || {
                    for number in 0..1000 {
                        assert!(sinks[number % 2].push(&[&[digit; 9][..], b"\n"].concat()));
                    }
                });
            }
        });
        assert_eq!(writer.lost(), 0);
        writer.close();
        let written = read(&path).into_bytes();
        assert_eq!(written.len(), 4 * 1000 * 10);
        let is_whole = |line: &[u8]| line[..9].iter().all(|byte| *byte == line[0]);
        assert!(written.chunks(10).all(is_whole));
        remove(path);
    }
}

#[test]
fn failed_writes_count_lost_lines() {
    // /dev/full fails each write with ENOSPC.
    let writer = LogWriter::open(&LogDestination::File("/dev/full".into())).expect("open");
    assert!(writer.sink().push(b"one\ntwo\n"));
    let shared = writer.shared.clone();
    writer.close();
    assert_eq!(shared.lost.load(Relaxed), 2);
    assert!(LogWriter::open(&LogDestination::File("/nonexistent/log".into())).is_err());
}

#[test]
fn failed_reopen_keeps_the_open_file() {
    // The failure is logged by the log itself.
    let folder = path("folder");
    std::fs::create_dir(&folder).expect("create");
    let (file, moved) = (folder.join("log"), path("moved"));
    let writer = LogWriter::open(&LogDestination::File(file.clone())).expect("open");
    std::fs::rename(&file, &moved)
        .and(std::fs::remove_dir(&folder))
        .expect("remove");
    let sink = writer.sink();
    writer.reopen(
        |_, error| Err(error),
        move |error| {
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            assert!(sink.push(b"told\n"));
        },
    );
    assert!(writer.sink().push(b"still\n"));
    while read(&moved).len() < 11 {
        std::thread::yield_now();
    }
    writer.close();
    let text = read(&moved);
    assert!(
        text.contains("still\n") && text.contains("told\n"),
        "{text}"
    );
    remove(moved);
}

#[test]
fn reopen_uses_open_otherwise_after_an_error() {
    let folder = path("otherwise");
    std::fs::create_dir(&folder).expect("create");
    let file = folder.join("log");
    let writer = LogWriter::open(&LogDestination::File(file.clone())).expect("open");
    std::fs::remove_file(&file)
        .and(std::fs::remove_dir(&folder))
        .expect("remove");
    writer.reopen(
        |path, error| {
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            std::fs::create_dir(path.parent().expect("a folder"))?;
            File::create(path)
        },
        |error| panic!("{error}"),
    );
    // Earlier lines go to the removed file.
    while !file.is_file() || read(&file).is_empty() {
        assert!(writer.sink().push(b"line\n"));
        std::thread::yield_now();
    }
    writer.close();
    std::fs::remove_dir_all(folder).expect("remove");
}
