//! Fault injection: full and failing disks, damaged files, and full stores. No wrong object is found, and the store can
//! still be used afterwards.

mod memory;

use lowroad_disk::{
    DiskFolder, DiskOptions, DiskStore, FolderError, SegmentFiles, WalkCursor, WriteError,
};
use memory::{Faults, Memory};

const OPTIONS: DiskOptions = DiskOptions {
    capacity_bytes: 1 << 20,
    segment_bytes: 128 * 1024,
};

fn store(store: &DiskStore<Memory>, key: &[u8], body: &[u8]) -> Result<(), WriteError> {
    let mut writer = store.begin(key, b"meta", 5000, Some(body.len() as u64))?;
    writer.append(body)?;
    writer.commit()
}

fn open() -> (Memory, DiskStore<Memory>) {
    let memory = Memory::default();
    let opened = DiskStore::open(memory.clone(), OPTIONS).expect("opens");
    (memory, opened)
}

fn reopen(memory: &Memory) -> (Memory, DiskStore<Memory>) {
    let memory = Memory::of(memory.folder());
    let opened = DiskStore::open(memory.clone(), OPTIONS).expect("opens");
    (memory, opened)
}

#[test]
fn short_writes_are_continued() {
    let (memory, disk) = open();
    memory.fail(Faults {
        write_len_max: Some(7),
        ..Faults::default()
    });
    store(&disk, b"a", &[b'x'; 1000]).expect("is stored");
    let (memory, disk) = reopen(&memory);
    let found = disk.find(b"a", 0).expect("there").body;
    assert_eq!(
        memory.bytes(*found.file, found.offset, found.len),
        [b'x'; 1000]
    );
}

#[test]
fn disk_full_at_any_byte_loses_only_the_new_object() {
    for room in 0..1200 {
        let (memory, disk) = open();
        store(&disk, b"old", b"first").expect("is stored");
        memory.fail(Faults {
            room: Some(room),
            ..Faults::default()
        });
        let stored = store(&disk, b"old", &[b'x'; 1000]);
        memory.fail(Faults::default());
        let len = disk.find(b"old", 0).expect("there").body.len;
        assert_eq!(len, if stored.is_ok() { 1000 } else { 5 }, "{room}");
        assert_eq!(disk.counters().disk_full > 0, stored.is_err(), "{room}");
        store(&disk, b"new", b"after").expect("there is room again");
        let (_, disk) = reopen(&memory);
        assert_eq!(disk.find(b"old", 0).expect("there").body.len, len, "{room}");
        assert!(disk.find(b"new", 0).is_some(), "{room}");
    }
}

#[test]
fn failed_removal_is_written_with_the_next_entry() {
    let (memory, disk) = open();
    store(&disk, b"a", b"x").expect("is stored");
    memory.fail(Faults {
        room: Some(3),
        ..Faults::default()
    });
    disk.remove(b"a").expect_err("the disk is full");
    assert!(disk.find(b"a", 0).is_none(), "gone at once");
    memory.fail(Faults::default());
    store(&disk, b"b", b"y").expect("is stored");
    let (_, disk) = reopen(&memory);
    assert!(disk.find(b"a", 0).is_none() && disk.find(b"b", 0).is_some());
}

#[test]
fn read_errors_are_counted() {
    let (memory, disk) = open();
    store(&disk, b"a", b"x").expect("is stored");
    memory.fail(Faults {
        reads_fail: true,
        ..Faults::default()
    });
    assert!(disk.find(b"a", 0).is_none());
    assert_eq!(disk.counters().read_errors, 1);
}

#[test]
fn damaged_byte_of_a_record_is_detected_after_a_restart() {
    let (memory, disk) = open();
    store(&disk, b"a", b"a body of some bytes").expect("is stored");
    let len = memory.folder().contents(".segment")[0].len();
    for at in 0..len {
        let mut folder = memory.folder();
        folder.contents(".segment")[0][at] ^= 1;
        let disk = DiskStore::open(Memory::of(folder), OPTIONS).expect("opens");
        assert!(disk.find(b"a", 0).is_none(), "{at}");
        assert_eq!(
            (disk.counters().corrupt, disk.counters().objects),
            (1, 0),
            "{at}"
        );
    }
}

#[test]
fn verify_removes_damaged_objects() {
    let (memory, disk) = open();
    (0..10_u8).for_each(|n| store(&disk, &[n], &[n; 100]).expect("is stored"));
    let mut folder = memory.folder();
    folder.contents(".segment")[0][100] ^= 1;
    let disk = DiskStore::open(Memory::of(folder), OPTIONS).expect("opens");
    let mut cursor = WalkCursor::default();
    while disk.verify(&mut cursor, 3) {}
    assert_eq!((disk.counters().corrupt, disk.counters().objects), (1, 9));
}

#[test]
fn purge_removes_matching_objects_permanently() {
    let (memory, disk) = open();
    (0..10_u8).for_each(|n| store(&disk, &[n], &[n; 100]).expect("is stored"));
    let mut cursor = WalkCursor::default();
    while disk.purge(&mut cursor, 3, |key, meta| {
        key[0] % 2 == 0 && meta == b"meta"
    }) {}
    assert_eq!(disk.counters().removed, 5);
    let (_, disk) = reopen(&memory);
    let is_stored = |n: &u8| disk.find(&[*n], 0).is_some();
    assert_eq!(
        (0..10).filter(is_stored).collect::<Vec<u8>>(),
        [1, 3, 5, 7, 9]
    );
}

#[test]
fn expired_object_is_not_found() {
    let (_, disk) = open();
    store(&disk, b"a", b"x").expect("is stored");
    assert!(disk.find(b"a", 4999).is_some());
    assert!(disk.find(b"a", 5000).is_none());
    assert_eq!(disk.counters().objects, 0);
}

#[test]
fn capacity_is_not_exceeded_and_used_objects_are_retained() {
    let (memory, disk) = open();
    store(&disk, b"hot", &[b'h'; 1000]).expect("is stored");
    for n in 0..4000_u32 {
        store(&disk, &n.to_le_bytes(), &[0; 1000]).expect("is stored");
        assert!(disk.counters().segment_bytes <= OPTIONS.capacity_bytes);
        if n % 100 == 0 {
            assert!(disk.find(b"hot", 0).is_some(), "{n}");
        }
    }
    let counters = disk.counters();
    assert!(
        counters.rewritten > 0 && counters.evicted > 3000,
        "{counters:?}"
    );
    assert!(counters.segments <= 9, "{counters:?}");
    let (_, again) = reopen(&memory);
    assert_eq!(again.counters().objects, counters.objects);
    assert!(again.find(b"hot", 0).is_some());
}

#[test]
fn body_with_another_length_than_announced_is_not_stored() {
    let (_, disk) = open();
    let mut writer = disk.begin(b"a", b"", 9, Some(4)).expect("begins");
    assert!(matches!(writer.append(b"12345"), Err(WriteError::Length)));
    assert!(matches!(writer.commit(), Err(WriteError::Length)));
    let mut writer = disk.begin(b"a", b"", 9, Some(4)).expect("begins");
    writer.append(b"123").expect("appends");
    assert!(matches!(writer.commit(), Err(WriteError::Length)));
    assert!(matches!(
        disk.begin(b"a", b"", 9, Some(1 << 20)),
        Err(WriteError::TooLong)
    ));
    assert_eq!(disk.counters().abandoned, 2);
}

#[test]
fn older_object_does_not_reappear_after_eviction_of_the_newer() {
    let (memory, disk) = open();
    store(&disk, b"a", b"older, in the segment that is written to").expect("is stored");
    store(&disk, b"a", &[b'n'; 200_000]).expect("is stored in a segment of its own");
    for n in 0..6_u8 {
        store(&disk, &[n], &[0; 200_000]).expect("is stored");
    }
    assert!(disk.find(b"a", 0).is_none(), "evicted");
    let (_, disk) = reopen(&memory);
    assert!(disk.find(b"a", 0).is_none());
}

#[test]
fn used_large_object_is_retained() {
    let (_, disk) = open();
    store(&disk, b"hot", &[b'h'; 200_000]).expect("is stored");
    for n in 0..20_u8 {
        store(&disk, &[n], &[0; 200_000]).expect("is stored");
        assert!(disk.find(b"hot", 0).is_some(), "{n}");
    }
}

/// Alternately stores cold objects and looks up hot ones; returns the number of misses of hot objects.
fn misses_of_hot_objects(disk: &DiskStore<Memory>, hot: u32, rounds: u32) -> usize {
    let key = |n: u32| format!("hot {n}").into_bytes();
    // Stored together, so that they are adjacent.
    for n in 0..hot {
        store(disk, &key(n), &[b'h'; 1000]).expect("is stored");
    }
    let mut misses = 0;
    for round in 0..rounds {
        let is_missed = |n: &u32| disk.find(&key(*n), 0).is_none();
        misses += (0..hot).filter(is_missed).count();
        for n in 0..100 {
            store(disk, format!("cold {round} {n}").as_bytes(), &[0; 1000]).expect("is stored");
            assert!(disk.counters().segment_bytes <= OPTIONS.capacity_bytes);
        }
    }
    misses
}

#[test]
fn objects_used_since_the_last_pass_are_retained() {
    // The hot objects take a part of a segment of 128 KiB, all of it, or several segments.
    for hot in [30, 60, 100, 120, 250, 400] {
        let (_, disk) = open();
        assert_eq!(misses_of_hot_objects(&disk, hot, 100), 0, "{hot}");
        assert!(disk.counters().evicted > 5000, "{hot}");
    }
}

#[test]
fn touched_objects_are_retained() {
    let (_, disk) = open();
    store(&disk, b"hot", &[b'h'; 1000]).expect("is stored");
    for n in 0..4000_u32 {
        store(&disk, &n.to_le_bytes(), &[0; 1000]).expect("is stored");
        if n % 100 == 0 {
            disk.touch(b"hot");
        }
    }
    assert!(disk.find(b"hot", 0).is_some());
}

#[test]
fn shrinking_evicts_the_least_used_objects() {
    // The new segments are smaller than the old ones; the smallest new capacity is less than an old segment.
    for part in [2, 4, 8, 16] {
        let (_, disk) = open();
        for n in 0..900_u32 {
            store(&disk, &n.to_le_bytes(), &[0; 1000]).expect("is stored");
        }
        let is_there = |n: u32| disk.find(&n.to_le_bytes(), 0).is_some();
        assert!(is_there(1));
        let smaller = DiskOptions {
            capacity_bytes: OPTIONS.capacity_bytes / part,
            segment_bytes: OPTIONS.segment_bytes / part,
        };
        disk.resize(smaller);
        let mut steps = 0;
        while disk.shrink().expect("shrinks") {
            steps += 1;
        }
        let counters = disk.counters();
        assert!(
            counters.segment_bytes <= smaller.capacity_bytes,
            "{counters:?}"
        );
        let objects = counters.objects * part;
        assert!((450..1000).contains(&objects), "{part}: {counters:?}");
        assert!(steps > 1, "gradually");
        assert!(
            is_there(1) && is_there(899),
            "the hottest and the youngest stay"
        );
        assert!(!is_there(2), "the coldest goes");
        store(&disk, b"new", &[0; 1000]).expect("is stored");
        assert!(disk.counters().objects >= counters.objects / 2);
    }
}

#[test]
fn store_opened_with_a_smaller_capacity_shrinks() {
    let (memory, disk) = open();
    for n in 0..900_u32 {
        store(&disk, &n.to_le_bytes(), &[0; 1000]).expect("is stored");
    }
    let smaller = DiskOptions {
        capacity_bytes: OPTIONS.capacity_bytes / 16,
        segment_bytes: OPTIONS.segment_bytes / 16,
    };
    let disk = DiskStore::open(Memory::of(memory.folder()), smaller).expect("opens");
    while disk.shrink().expect("shrinks") {}
    let counters = disk.counters();
    assert!(
        counters.segment_bytes <= smaller.capacity_bytes,
        "{counters:?}"
    );
    assert!(counters.objects > 20, "{counters:?}");
    assert!(disk.find(&899_u32.to_le_bytes(), 0).is_some());
}

#[test]
fn evicted_object_is_readable_by_an_existing_reader() {
    let path = std::env::temp_dir().join(format!("lowroad-disk-reader-{}", std::process::id()));
    let disk = DiskStore::open(DiskFolder::take(&path).expect("is free"), OPTIONS).expect("opens");
    let store = |key: &[u8], body: &[u8]| {
        let mut writer = disk.begin(key, b"", 9, None).expect("begins");
        writer.append(body).expect("appends");
        writer.commit().expect("commits");
    };
    store(b"a", b"still here");
    let body = disk.find(b"a", 0).expect("there").body;
    disk.find(b"a", 0).expect("there");
    for n in 0..4000_u32 {
        store(&n.to_le_bytes(), &[0; 1000]);
    }
    assert!(
        disk.find(b"a", 0).is_none(),
        "asked for once, and evicted at last"
    );
    let mut bytes = vec![0; body.len as usize];
    std::os::unix::fs::FileExt::read_exact_at(&*body.file, &mut bytes, body.offset).expect("read");
    assert_eq!(bytes, b"still here");
    std::fs::remove_dir_all(path).expect("remove");
}

#[test]
fn concurrent_writers_store_consistent_objects() {
    let (memory, disk) = open();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let disk = &disk;
            scope.spawn(move || {
                for n in 0..200_u8 {
                    store(disk, &[thread, n % 50], &[thread; 3000]).expect("is stored");
                    let _ = disk.find(&[thread ^ 1, n % 50], 0);
                }
            });
        }
    });
    let (memory, disk) = reopen(&memory);
    let mut found_count = 0;
    for (thread, n) in (0..4_u8).flat_map(|thread| (0..50_u8).map(move |n| (thread, n))) {
        if let Some(found) = disk.find(&[thread, n], 0) {
            let body = memory.bytes(*found.body.file, found.body.offset, found.body.len);
            assert_eq!(body, [thread; 3000]);
            found_count += 1;
        }
    }
    assert!(
        found_count > 100 && disk.counters().corrupt == 0,
        "{found_count}"
    );
}

#[test]
fn failed_writer_rejects_further_appends() {
    let (memory, disk) = open();
    memory.fail(Faults {
        room: Some(0),
        ..Faults::default()
    });
    let mut writer = disk.begin(b"a", b"", 9, None).expect("begins");
    let failed = writer.append(&[0; 262_144]);
    assert!(matches!(failed, Err(WriteError::Disk(_))));
    memory.fail(Faults::default());
    for _ in 0..3 {
        writer.append(&[0; 262_144]).expect_err("it failed before");
    }
    writer.commit().expect_err("it failed before");
    assert_eq!((disk.counters().objects, disk.counters().segments), (0, 0));
}

#[test]
fn folder_can_be_opened_only_once() {
    let path = std::env::temp_dir().join(format!("lowroad-disk-{}", std::process::id()));
    let folder = DiskFolder::take(&path).expect("is free");
    let second = DiskFolder::take(&path).expect_err("is taken");
    assert!(matches!(second, FolderError::InUse(_)));
    assert!(second.to_string().contains("in use by another process"));
    let disk = DiskStore::open(folder, OPTIONS).expect("opens");
    let mut writer = disk.begin(b"a", b"meta", 9, None).expect("begins");
    writer.append(b"body").expect("appends");
    writer.commit().expect("commits");
    disk.checkpoint().expect("is written");
    drop(disk);
    let folder = DiskFolder::take(&path).expect("is free again");
    let disk = DiskStore::open(folder, OPTIONS).expect("opens");
    let found = disk.find(b"a", 0).expect("there");
    assert_eq!((&*found.meta, found.body.len), (&b"meta"[..], 4));
    std::fs::remove_dir_all(path).expect("remove");
}

#[test]
fn symbolic_links_in_the_folder_are_not_followed() {
    let path = std::env::temp_dir().join(format!("lowroad-links-{}", std::process::id()));
    let elsewhere = path.with_extension("elsewhere");
    std::fs::create_dir_all(&path).expect("make");
    let link = |name: &str| std::os::unix::fs::symlink(&elsewhere, path.join(name)).expect("link");
    link("lock");
    let refused = DiskFolder::take(&path).expect_err("the lock is a link");
    assert!(matches!(refused, FolderError::System(..)));
    std::fs::remove_file(path.join("lock")).expect("remove");
    link("0000000000000000.journal");
    let taken = DiskFolder::take(&path).expect("is free");
    assert!(DiskStore::open(taken, OPTIONS).is_err());
    assert!(!elsewhere.exists());
    std::fs::remove_dir_all(path).expect("remove");
}

/// The space of an abandoned object is reused, unless its location is retained for a reader.
#[test]
fn retained_bytes_of_an_abandoned_object_are_not_overwritten() {
    let options = DiskOptions {
        capacity_bytes: 64 << 20,
        segment_bytes: 8 << 20,
    };
    for is_read in [false, true] {
        let memory = Memory::default();
        let disk = DiskStore::open(memory.clone(), options).expect("opens");
        let mut writer = disk.begin(b"a", b"", 9, Some(400_000)).expect("begins");
        assert!(writer.written().is_none());
        writer.append(&[b'a'; 300_000]).expect("appends");
        let body = writer
            .written()
            .expect("it is longer than what is gathered");
        assert_eq!(body.len, 300_000);
        if is_read {
            writer.retain_location();
        }
        drop(writer);
        store(&disk, b"b", &[b'b'; 300_000]).expect("is stored");
        let mut bytes = vec![0; 300_000];
        memory
            .read_all(&body.file, &mut bytes, body.offset)
            .expect("is there");
        assert_eq!(bytes.iter().all(|byte| *byte == b'a'), is_read);
    }
}
