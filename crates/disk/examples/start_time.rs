//! Measures how long it takes to open a store with a million objects, and the first hit after that.
//!
//! `cargo run --release -p lowroad-disk --example start_time -- FOLDER [OBJECTS]`; if the folder is empty, the store is
//! created first. To measure with a cold page cache, run it twice and drop the kernel's caches in between.

use std::time::Instant;

use lowroad_disk::{DiskFolder, DiskOptions, DiskStore, WalkCursor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("a folder is missing")?;
    let objects: u64 = args.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let started = Instant::now();
    let store = DiskStore::open(
        DiskFolder::take(path.as_ref())?,
        DiskOptions::with_capacity(8 << 30),
    )?;
    println!(
        "opened after {:?}: {:?}",
        started.elapsed(),
        store.counters()
    );
    if store.counters().objects > 0 {
        let found = store.find(&key(objects / 2), 0);
        println!(
            "first hit after {:?}: {}",
            started.elapsed(),
            found.is_some()
        );
        let mut cursor = WalkCursor::default();
        while store.verify(&mut cursor, 4096) {}
        let elapsed = started.elapsed();
        println!("all verified after {elapsed:?}: {:?}", store.counters());
        return Ok(());
    }
    let body = [b'x'; 1024];
    for n in 0..objects {
        let mut writer = store.begin(&key(n), &[b'm'; 200], u64::MAX, Some(body.len() as u64))?;
        writer.append(&body)?;
        writer.commit()?;
    }
    println!("written after {:?}", started.elapsed());
    // No checkpoint is written: all objects are in the journal, which is the worst case.
    if args.next().as_deref() == Some("checkpoint") {
        store.checkpoint()?;
        println!("checkpoint after {:?}", started.elapsed());
    }
    Ok(())
}

fn key(n: u64) -> Vec<u8> {
    format!("https://example.org/path/of/object/{n}").into_bytes()
}
