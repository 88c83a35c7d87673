//! Disk failures: the server continues without the disk, and never sends damaged bytes.

use std::os::unix::fs::FileExt;

use super::{Host, LEN, body, long};

#[test]
fn damaged_copy_is_fetched_again() {
    let mut host = Host::new(long("Cache-Control: max-age=600\r\n"));
    host.get_until_stored("/a", 1);
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
fn server_runs_without_usable_folder() {
    let mut host = Host::new(long("Cache-Control: max-age=600\r\n"));
    host.server = None;
    std::fs::remove_dir_all(host.folder.path().join("cache")).expect("remove");
    std::fs::write(host.folder.path().join("cache"), "a file").expect("write");
    host.start();
    host.server()
        .wait_for_error_line("continues without disk_cache");
    assert!(host.get("/a", "").body == body("/a", 0, LEN));
}

#[test]
fn server_continues_if_folder_is_removed() {
    let host = Host::new(long("Cache-Control: max-age=600\r\n"));
    host.get_until_stored("/a", 1);
    std::fs::remove_dir_all(host.folder.path().join("cache")).expect("remove");
    // Files that are open remain readable; new objects can't be written.
    assert!(host.get("/a", "").body == body("/a", 0, LEN));
    for number in 1..8 {
        let path = format!("/{number}");
        assert!(host.get(&path, "").body == body(&path, number, LEN));
    }
}

#[test]
fn purge_without_usable_folder_survives_restart() {
    for breaks in ["purges.new", "lock"] {
        let site = "purge_from = \"127.0.0.0/8\"";
        let mut host = Host::with(long("Cache-Control: max-age=600\r\n"), "1M", site);
        host.get_until_stored("/a", 1);
        host.server = None;
        let broken = host.folder.path().join("cache").join(breaks);
        let _ = std::fs::remove_file(&broken); // not all are there
        std::fs::create_dir(&broken).expect("make");
        host.start();
        host.server()
            .wait_for_error_line("continues without disk_cache");
        assert_eq!(host.request("PURGE", "/a", "").status, 200);
        host.server = None;
        std::fs::remove_dir(&broken).expect("remove");
        host.start();
        assert!(host.get("/a", "").body == body("/a", 1, LEN), "{breaks}");
    }
}
