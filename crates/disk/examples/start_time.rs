//! How long a store of a million objects takes to open, and the first hit after it.
//!
//! `cargo run --release -p lowroad-disk --example start_time -- FOLDER [OBJECTS]`; the folder is made if it is empty. To
//! measure with a cold cache, run it twice and drop the system's caches between.

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
    // All in the journal is the worst case: a checkpoint is not written anew for each start.
    if args.next().as_deref() == Some("checkpoint") {
        store.checkpoint()?;
        println!("checkpoint after {:?}", started.elapsed());
    }
    Ok(())
}

fn key(n: u64) -> Vec<u8> {
    format!("https://example.org/path/of/object/{n}").into_bytes()
}
