//! A reload with another `disk_cache_max`. A larger size is available immediately; a smaller one evicts the oldest
//! objects gradually.

use super::*;

/// Changes the configured size of the disk cache, and reloads.
fn resize(host: &Host, from: &str, to: &str) {
    let path = host.folder.path().join("lowroad.toml");
    let config = std::fs::read_to_string(&path).expect("the configuration");
    let line = |size| format!("disk_cache_max = {size:?}");
    assert!(config.contains(&line(from)), "{config}");
    std::fs::write(&path, config.replace(&line(from), &line(to))).expect("a file");
    let said = host.run_command(&["reload"]);
    assert!(!said.contains("error"), "{said}");
}

#[test]
fn reload_resizes_the_disk_cache() {
    const COUNT: u64 = 30;
    let host = Host::new(long("Cache-Control: max-age=600\r\n"));
    resize(&host, "64M", "256M");
    for number in 0..COUNT {
        host.get_until_stored(&format!("/{number}"), number + 1);
    }
    assert!(host.status().value("disk_bytes") > 64 << 20);
    resize(&host, "256M", "64M");
    wait_until("the oldest to be gone", || {
        (host.status().value("disk_bytes") <= 64 << 20).then_some(())
    });
    let left = host.status().value("disk_objects");
    assert!((12..COUNT).contains(&left), "{left}");
    host.get(&format!("/{}", COUNT - 1), "");
    assert_eq!(host.origin.count() as u64, COUNT, "the youngest stays");
    host.get("/0", "");
    assert_eq!(host.origin.count() as u64, COUNT + 1, "the oldest goes");
}
