//! Tests of the files of a binary log: links, deleted files, and two writers of one file.

use lowroad_log::AccessEntry;

use super::*;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("lowroad-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path, file_len_max: u64) -> LogFiles {
    open_reported(path, file_len_max, Box::new(|event| panic!("{event:?}")))
}

fn open_reported(path: &Path, file_len_max: u64, on_event: OnFileEvent) -> LogFiles {
    let limits = FileLimits {
        file_len_max,
        file_age_max_ms: u64::MAX,
        total_len_max: 1 << 30,
    };
    let file = writer::open(&LogDestination::File(path.to_owned())).expect("a file");
    let files = LogFiles::new(path.to_owned(), file, limits, 1, on_event);
    files.expect("files")
}

fn write(files: &mut LogFiles) {
    let entry = AccessEntry {
        peer: [192, 0, 2, 7].into(),
        user: b"",
        unix_ms: 1,
        line: b"GET / HTTP/1.1",
        host: b"",
        status: 200,
        body_bytes: 0,
        whole: true,
        referer: b"",
        user_agent: b"",
        duration_us: 0,
        outcome: "hit",
        level: "worker",
        tls: "",
    };
    let mut batch = Vec::new();
    batch::append_record(&entry, &mut batch);
    assert_eq!(files.write(&batch) + files.end_round(), 0);
}

#[test]
fn rotation_renames_the_file_behind_a_link() {
    let folder = Folder::new("linked-log");
    let (link, target) = (folder.0.join("link"), folder.0.join("target/log"));
    std::fs::create_dir(folder.0.join("target")).expect("a folder");
    std::os::unix::fs::symlink(&target, &link).expect("a link");
    let mut files = open(&link, 1);
    write(&mut files);
    write(&mut files);
    assert!(link.is_symlink(), "the link is not renamed");
    let all = log_files(&link);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[0].starts_with(folder.0.join("target").canonicalize().expect("a folder")));
    assert!(target.metadata().expect("a file").len() > 0);
}

#[test]
fn deleted_log_is_created_again() {
    let folder = Folder::new("deleted-log");
    let path = folder.0.join("log");
    let mut files = open(&path, 1 << 20);
    write(&mut files);
    std::fs::remove_file(&path).expect("removed");
    write(&mut files);
    let content = std::fs::read(&path).expect("a new file");
    assert!(content.starts_with(&MAGIC));
}

#[test]
fn moved_log_begins_a_new_file_instead_of_a_rotation() {
    let folder = Folder::new("moved-log");
    let (path, moved) = (folder.0.join("log"), folder.0.join("moved"));
    let mut files = open(&path, 1);
    write(&mut files);
    std::fs::rename(&path, &moved).expect("renamed");
    let moved_len = moved.metadata().expect("a file").len();
    write(&mut files);
    assert_eq!(moved.metadata().expect("a file").len(), moved_len);
    let content = std::fs::read(&path).expect("a new file");
    assert!(content.starts_with(&MAGIC));
    assert_eq!(log_files(&path), [path]);
}

#[test]
fn reopened_log_is_rotated_without_a_pause() {
    let folder = Folder::new("reopened-log");
    let (inner, moved) = (folder.0.join("inner"), folder.0.join("moved"));
    std::fs::create_dir(&inner).expect("a folder");
    let path = inner.join("log");
    let (sender, events) = std::sync::mpsc::channel();
    let on_event = move |event| sender.send(event).expect("a receiver");
    let mut files = open_reported(&path, 1, Box::new(on_event));
    write(&mut files);
    std::fs::rename(&inner, &moved).expect("renamed");
    write(&mut files);
    let events: Vec<_> = events.try_iter().collect();
    assert!(
        matches!(&events[..], [FileEvent::NotRotated(error)] if error.kind() == ErrorKind::NotFound)
    );
    std::fs::rename(&moved, &inner).expect("renamed");
    files.reopen(|_, error| Err(error)).expect("opened");
    write(&mut files);
    assert_eq!(log_files(&path).len(), 2);
}

#[test]
fn failed_write_keeps_the_blocks_of_another_writer() {
    let folder = Folder::new("two-writers");
    let path = folder.0.join("log");
    let (mut first, mut second) = (open(&path, 1 << 20), open(&path, 1 << 20));
    write(&mut first);
    write(&mut second);
    let full = || io::Error::from(ErrorKind::StorageFull);
    // The first writer knows only its own length. Nothing of its block was written.
    let len = path.metadata().expect("a file").len();
    assert!(first.remove_part(0, full()).is_err());
    assert_eq!(path.metadata().expect("a file").len(), len);
    // A part of its block was written, and then a block of the second writer.
    first.len = len;
    first.file.write_all(b"part").expect("written");
    write(&mut second);
    let len = path.metadata().expect("a file").len();
    assert!(first.remove_part(4, full()).is_err());
    assert_eq!(path.metadata().expect("a file").len(), len);
    // Without the second writer the part is removed.
    first.file.write_all(b"part").expect("written");
    assert!(first.remove_part(4, full()).is_err());
    assert_eq!(path.metadata().expect("a file").len(), len);
}
