//! Disk failures: the server continues without the disk, and never sends damaged bytes.

use std::os::unix::fs::FileExt;

use super::{Host, LEN, body, long};

#[test]
fn what_was_damaged_is_asked_for_again() {
    let mut host = Host::of(long("Cache-Control: max-age=600\r\n"));
    host.stores("/a", 1);
    host.server = None;
    let mut damaged = 0;
    for entry in std::fs::read_dir(host.folder.path().join("cache")).expect("read") {
        let entry = entry.expect("read");
        let len = entry.metadata().expect("stat").len();
        if len > LEN as u64 {
            let file = std::fs::File::options().write(true).open(entry.path());
            file.expect("open")
                .write_all_at(b"?", len / 2)
                .expect("write");
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1, "one segment has the body");
    host.start();
    assert!(host.get("/a", "").body == body("/a", 1, LEN));
    assert_eq!(host.status().value("disk_corrupt"), 1);
    host.server()
        .wait_for_error_line("disk cache: 1 stored responses were damaged");
}

#[test]
fn without_a_folder_that_can_be_used_the_server_goes_on() {
    let mut host = Host::of(long("Cache-Control: max-age=600\r\n"));
    host.server = None;
    std::fs::remove_dir_all(host.folder.path().join("cache")).expect("remove");
    std::fs::write(host.folder.path().join("cache"), "a file").expect("write");
    host.start();
    host.server()
        .wait_for_error_line("continues without disk_cache");
    assert!(host.get("/a", "").body == body("/a", 0, LEN));
}

#[test]
fn a_folder_that_goes_meanwhile_stops_nobody() {
    let host = Host::of(long("Cache-Control: max-age=600\r\n"));
    host.stores("/a", 1);
    std::fs::remove_dir_all(host.folder.path().join("cache")).expect("remove");
    // Open files stay readable; new objects find no space.
    assert!(host.get("/a", "").body == body("/a", 0, LEN));
    for number in 1..8 {
        let path = format!("/{number}");
        assert!(host.get(&path, "").body == body(&path, number, LEN));
    }
}

#[test]
fn what_is_purged_without_the_folder_does_not_come_back() {
    for breaks in ["purges.new", "lock"] {
        let site = "purge_from = \"127.0.0.0/8\"";
        let mut host = Host::with(long("Cache-Control: max-age=600\r\n"), "1M", site);
        host.stores("/a", 1);
        host.server = None;
        let broken = host.folder.path().join("cache").join(breaks);
        let _ = std::fs::remove_file(&broken); // not all are there
        std::fs::create_dir(&broken).expect("make");
        host.start();
        host.server()
            .wait_for_error_line("continues without disk_cache");
        assert_eq!(host.ask("PURGE", "/a", "").status, 200);
        host.server = None;
        std::fs::remove_dir(&broken).expect("remove");
        host.start();
        assert!(host.get("/a", "").body == body("/a", 1, LEN), "{breaks}");
    }
}
