//! Tests how much memory stored responses take in addition to their bytes.

use lowroad_cache::freshness::LifetimeSource;
use lowroad_cache::lifetime::ReuseDeadlines as Times;
use lowroad_handler::allocator::MimallocAllocator;
use lowroad_handler::memory::{self, CountingAllocator};
use lowroad_http::status::StatusCode;
use lowroad_http::stored_head::HeadEncoder;
use lowroad_store::{VariantSet, key};

use super::*;

/// The server's allocator, with counters.
#[global_allocator]
static MEMORY: CountingAllocator<MimallocAllocator> = CountingAllocator(MimallocAllocator);

const BODY_LEN: usize = 1024;

/// A lifetime that starts at 0.
fn lifetime_until(until_ms: u64) -> StoredExpiry {
    let times = Times {
        generated_ms: 0,
        fresh_until_ms: until_ms,
        swr_until_ms: until_ms,
        sie_until_ms: until_ms,
        no_cache: false,
        must_revalidate: false,
        was_reusable_on_arrival: true,
    };
    StoredExpiry::new(&times, LifetimeSource::MaxAge)
}

/// Stores a response with a small head; returns the head's length.
fn store_one(store: &SharedStore, number: u64) -> usize {
    let target = format!("/objects/{number}");
    let mut key = Vec::new();
    let site = key::SiteScope {
        site_id: 1,
        is_https: false,
    };
    key::write_handler_key(&mut key, site, b"127.0.0.1:8080", target.as_bytes(), None);
    let hash = store.hash(&key);
    let mut head = HeadEncoder::start(StatusCode::OK);
    head.set_date(&date::format(784_111_777));
    head.field("Cache-Control", b"max-age=3600");
    head.begin_content();
    head.field("Content-Type", b"text/plain");
    let head = PendingHead {
        encoded: head.finish_open(),
        details: HeadDetails {
            modified_s: Some(784_111_777),
            lifetime: lifetime_until(3_600_000),
            selecting: SelectingFields::default(),
        },
    };
    let body = Bytes::from(vec![b'x'; BODY_LEN]);
    let object =
        build_whole(store, HashedKey { hash, bytes: &key }, head, &[body]).expect("there is room");
    let len = object
        .representation()
        .map_or(0, |whole| whole.head.h1_len());
    assert!(store.insert_selected(hash, &key, ObjectArc::new(object)));
    len
}

#[test]
fn stored_response_has_small_memory_overhead() {
    const COUNT: u64 = 1000;
    let store = SharedStore::new(16 << 20).expect("memory");
    let before = memory::allocated_bytes();
    let head_len = (0..COUNT).map(|number| store_one(&store, number)).max();
    // The memory that this thread holds: objects, keys, and the store's tables with spare capacity.
    let each = (memory::allocated_bytes() - before).cast_unsigned() as u64 / COUNT;
    assert!((1..=180).contains(&each), "{each}");
    // The longest key has 34 bytes.
    let bytes = head_len.unwrap_or(0) + b"\r\n".len() + BODY_LEN + 34;
    let in_arena = store.counters().1 / COUNT;
    assert!(in_arena <= (bytes as u64).next_multiple_of(8), "{in_arena}");
    // A shared object has a reference count in front.
    assert!(size_of::<StoredObject>() + 8 <= 96 && size_of::<VariantSet>() <= 16);
}

/// The figure of `docs/performance.md`: `cargo test --release … a_million -- --ignored --nocapture`.
#[test]
#[ignore = "takes 2 GB; by hand"]
fn memory_of_a_million_stored_responses() {
    const COUNT: u64 = 1_000_000;
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
        let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
        pages.map_or(0, |pages: u64| pages * 4096)
    };
    let store = SharedStore::new(2 << 30).expect("memory");
    let (before, held_bytes) = (resident(), memory::allocated_bytes());
    let head_len = (0..COUNT).map(|number| store_one(&store, number)).max();
    let stored: u64 = store.counters().0.iter().map(|shard| shard.objects).sum();
    let each = (resident() - before) / COUNT;
    let held_bytes = (memory::allocated_bytes() - held_bytes).cast_unsigned() as u64 / COUNT;
    println!(
        "{stored} stored, {each} bytes each: head {head_len:?}, in the arena {}, beside it {held_bytes}",
        store.counters().1 / COUNT
    );
}
