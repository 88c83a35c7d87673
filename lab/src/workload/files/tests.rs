//! Tests: file sets are reproducible, continued after an interruption, and checked.

use std::fs;

use super::*;

/// A temporary folder, deleted on drop.
struct ScratchFolder(std::path::PathBuf);

impl ScratchFolder {
    fn new(name: &str) -> ScratchFolder {
        let name = format!("lowroad-lab-files-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        drop(fs::remove_dir_all(&path));
        ScratchFolder(path)
    }

    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.0.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path
                        .strip_prefix(&self.0)
                        .expect("below")
                        .display()
                        .to_string();
                    found.insert(name, fs::read(&path).expect("a file"));
                }
            }
        }
        found
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

fn made(workload: &str, settings: &BTreeMap<String, String>, dir: &Path) -> FileSetOutcome {
    let plan = plan(workload, settings).expect("a plan");
    make_until(&plan, dir, &AtomicBool::new(false), &mut |_| {}).expect("made")
}

#[test]
fn equal_settings_give_equal_files() {
    let (one, other) = (ScratchFolder::new("one"), ScratchFolder::new("other"));
    let settings = settings(&[("dirs", "1")]);
    let mut shares = Vec::new();
    make("specweb99", &settings, &one.0, &mut |share| {
        shares.push(share)
    })
    .expect("made");
    assert!(shares.is_sorted() && shares.first() == Some(&0.0) && shares.last() == Some(&1.0));
    make("specweb99", &settings, &other.0, &mut |_| {}).expect("made");
    let files = one.files();
    assert_eq!(files, other.files());
    assert_eq!(
        files.len(),
        36 + 3 + 2,
        "files, data, manifest and lock: {:?}",
        files.keys()
    );
    assert_eq!(files["specweb99-data/post.log"], b"         0\n");
    assert_eq!(files["site/file_set/dir00000/class3_8"].len(), 921_600);

    let again = made("specweb99", &settings, &one.0);
    assert_eq!(
        again,
        FileSetOutcome {
            unchanged: 36,
            ..FileSetOutcome::default()
        }
    );
    assert_eq!(one.files(), files);
}

#[test]
fn interrupted_creation_is_continued() {
    let folder = ScratchFolder::new("left");
    let plan = plan("webstone", &BTreeMap::new()).expect("a plan");
    let stop = AtomicBool::new(false);
    let mut calls = 0;
    let first = make_until(&plan, &folder.0, &stop, &mut |_| {
        calls += 1;
        stop.store(calls == 3, Ordering::Relaxed);
    });
    assert_eq!(
        first,
        Ok(FileSetOutcome {
            written: 3,
            stopped: true,
            ..FileSetOutcome::default()
        })
    );
    assert!(
        FileManifest::load(&folder.0).is_err(),
        "an unfinished set has no manifest"
    );

    // A file with a changed length or date is created again.
    fs::write(folder.0.join("site/file5k.html"), vec![b'x'; 5125]).expect("written");
    assert_eq!(
        made("webstone", &BTreeMap::new(), &folder.0),
        FileSetOutcome {
            unchanged: 2,
            written: 18,
            stopped: false
        }
    );
    assert_eq!(check(&plan, &folder.0, &mut |_| {}), Ok(20));

    let whole = ScratchFolder::new("whole");
    made("webstone", &BTreeMap::new(), &whole.0);
    assert_eq!(folder.files(), whole.files());
}

#[test]
fn a_bigger_set_adds_to_a_smaller_one() {
    let folder = ScratchFolder::new("bigger");
    made("specweb99", &settings(&[("dirs", "1")]), &folder.0);
    let more = made("specweb96", &settings(&[("dirs", "2")]), &folder.0);
    assert_eq!((more.unchanged, more.written), (36, 36));
    let with_files =
        |dirs: &str| settings(&[("dirs", dirs), ("files", &folder.0.to_string_lossy())]);
    assert!(super::super::named("specweb99", &with_files("2"), "h").is_ok());
    let error = super::super::named("specweb99", &with_files("3"), "h")
        .err()
        .expect("refused");
    assert!(error.contains("same settings"), "{error}");
}

#[test]
fn check_detects_a_changed_file() {
    let folder = ScratchFolder::new("changes");
    let plan = plan("bare", &BTreeMap::new()).expect("a plan");
    made("bare", &BTreeMap::new(), &folder.0);
    assert_eq!(check(&plan, &folder.0, &mut |_| {}), Ok(1));
    fs::write(folder.0.join("site/page.html"), vec![b'x'; 3593]).expect("written");
    let error = check(&plan, &folder.0, &mut |_| {}).expect_err("changed");
    assert!(error.contains("page.html"), "{error}");
}

#[test]
fn concurrent_creation_in_one_folder_is_refused() {
    let folder = ScratchFolder::new("lock");
    let held = FolderWriter::open(&folder.0).expect("free");
    let error = make("bare", &BTreeMap::new(), &folder.0, &mut |_| {}).expect_err("taken");
    assert!(error.contains("another lowroad-lab"), "{error}");
    drop(held);
    assert!(make("bare", &BTreeMap::new(), &folder.0, &mut |_| {}).is_ok());
}

#[test]
fn every_workload_has_settings_and_a_plan() {
    for (name, _) in super::super::NAMES {
        assert!(!super::super::settings(name).is_empty());
        assert!(plan(name, &BTreeMap::new()).is_ok());
        assert!(super::super::named(name, &BTreeMap::new(), "h").is_ok());
    }
    let error = plan("nothing", &BTreeMap::new()).expect_err("unknown");
    assert!(
        error.contains("specweb99, specweb96, webstone, webbench, bare"),
        "{error}"
    );
}
