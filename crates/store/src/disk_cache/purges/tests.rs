//! Tests of the purge log in a temporary folder.

use lowroad_disk::DiskFolder;

use super::*;

const NOW: ClockReading = ClockReading {
    unix_ms: 1_700_000_000_000,
    monotonic_ms: 5_000,
};

fn folder(name: &str) -> PathBuf {
    let name = format!("lowroad-purges-{name}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&path); // of an earlier run
    fs::create_dir(&path).expect("a folder");
    path
}

fn tag(name: &[u8]) -> PurgeRequest<'_> {
    PurgeRequest::Tag(name)
}

fn open_log(path: &Path) -> PurgeLog {
    let folder = DiskFolder::take(path).expect("no other process");
    PurgeLog::open(path, folder.lease(), NOW).expect("open")
}

#[test]
fn purge_rules_survive_encoding() {
    let patterns = [
        "all",
        "host:a.example",
        "http://a:8080/x%20y?z*",
        "http://[::1]:81/%2A",
    ];
    let patterns = patterns.map(|text| RequestPattern::parse(text).expect(text));
    let purges = patterns.iter().map(PurgeRequest::Urls);
    let named = [
        tag(b"a b\n%\xff"),
        PurgeRequest::Group(b"", b"front, page"),
        PurgeRequest::Group(b"a:80", b"g"),
    ];
    for purge in purges.chain(named) {
        for kind in [PurgeMode::Hard, PurgeMode::Soft { at_ms: 4_000 }] {
            let rule = PurgeRule::new(7, &purge, kind, NOW);
            assert_eq!(PurgeRule::parse(&rule.line()), Some(rule.clone()));
            assert_eq!(rule.kind(NOW), kind);
        }
    }
    for wrong in [
        "",
        "7",
        "7 hard",
        "7 hard tag",
        "7 hard tag %",
        "x hard tag a",
        "7 hard x a",
    ] {
        assert_eq!(PurgeRule::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn missing_or_invalid_log_purges_everything() {
    let path = folder("none");
    let log = open_log(&path);
    let first = log.first_generation();
    let rules = log.rules();
    assert_eq!(rules, [PurgeRule::purge_all(rules[0].generation)]);
    assert!(first > rules[0].generation);
    log.drop_finished(first).expect("written");
    drop(log);
    let log = open_log(&path);
    assert_eq!(log.rules(), []);
    assert_eq!(log.scanned(), first);
    drop(log);
    fs::write(path.join(FILE_NAME), "something else\n").expect("write");
    let log = open_log(&path);
    assert_eq!(log.rules().len(), 1);
    fs::remove_dir_all(path).expect("remove");
}

#[test]
fn saved_purges_survive_a_restart_and_generations_increase() {
    let path = folder("saved");
    let first = {
        let log = open_log(&path);
        let first = log.first_generation();
        log.drop_finished(first).expect("written");
        log.record_purge(first + 1, &tag(b"a"), PurgeMode::Hard);
        log.save().expect("written");
        log.record_purge(first + 2, &tag(b"b"), PurgeMode::Hard);
        log.record_purge(first + 3, &tag(b"c"), PurgeMode::Hard);
        log.save().expect("written");
        log.drop_finished(first + 2).expect("written");
        log.record_purge(first + 4, &tag(b"not saved"), PurgeMode::Hard);
        first
    };
    let log = open_log(&path);
    assert_eq!(
        log.rules(),
        [PurgeRule::new(first + 3, &tag(b"c"), PurgeMode::Hard, NOW)]
    );
    assert_eq!(log.scanned(), first + 2);
    assert!(log.first_generation() > first + 4);
    fs::remove_dir_all(path).expect("remove");
}

#[test]
fn truncated_last_line_is_ignored() {
    let path = folder("cut");
    fs::write(
        path.join(FILE_NAME),
        format!("{TITLE} 3 9\n10 hard tag a\n11 hard ta"),
    )
    .expect("write");
    let log = open_log(&path);
    assert_eq!(
        log.rules(),
        [PurgeRule::new(10, &tag(b"a"), PurgeMode::Hard, NOW)]
    );
    assert_eq!(log.first_generation(), 4 << RUN_BITS);
    fs::remove_dir_all(path).expect("remove");
}

#[test]
fn failed_write_purges_everything_at_the_next_start() {
    let path = folder("full");
    let log = open_log(&path);
    // Makes the rewrite fail: a folder has the name of the new file.
    fs::create_dir(path.join(FILE_NAME_NEW)).expect("a folder");
    *lock(&log.file) = None;
    log.record_purge(log.first_generation() + 1, &tag(b"a"), PurgeMode::Hard);
    log.save().expect("it is removed");
    assert!(!path.join(FILE_NAME).exists());
    // The next successful write includes the purges since the failure.
    fs::remove_dir(path.join(FILE_NAME_NEW)).expect("remove");
    log.save().expect("written");
    let read = parse(&fs::read(path.join(FILE_NAME)).expect("read")).expect("it is whole");
    assert_eq!(read.2, log.rules());
    fs::remove_dir_all(path).expect("remove");
}

#[test]
fn lost_deletion_purges_everything_at_the_next_start() {
    let path = folder("lost");
    let log = open_log(&path);
    let first = log.first_generation();
    log.drop_finished(first).expect("written");
    log.record_lost_deletion().expect("it is removed");
    // Later writes do not change that.
    log.record_purge(first + 1, &tag(b"a"), PurgeMode::Hard);
    log.save().expect("it is kept: all is purged");
    log.drop_finished(first + 1).expect("nothing is written");
    assert!(!path.join(FILE_NAME).exists());
    drop(log);
    let rules = open_log(&path).rules();
    assert_eq!(rules, [PurgeRule::purge_all(rules[0].generation)]);
    fs::remove_dir_all(path).expect("remove");
}
