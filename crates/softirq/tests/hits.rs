//! Hit counters: they are kept per processor and separate from the responses.

mod common;

use common::bench::{Bench, FrameEffect, missing_bench_requirement};
use common::frames::{ACK, PSH};
use common::responses::{RESPONSES, TestPublisher};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use lowroad_softirq::level::publisher;
use lowroad_softirq::programs::loader::ProgramTier;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const HOUR_NS: u64 = 3_600_000_000_000;

/// Requests the first response on a new connection.
fn ask(bench: &Bench, port: u16) {
    let mut sent = bench.connect(false, port);
    assert_eq!(bench.run(&sent.frame()), FrameEffect::Drop);
    sent.flags = ACK | PSH;
    sent.payload = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n".to_vec();
    assert!(matches!(bench.run(&sent.frame()), FrameEffect::Reply(_)));
}

/// The hit counts of all published responses, in ascending order.
fn hits(bench: &Bench) -> Vec<u64> {
    let published = publisher::published(&bench.level);
    let mut hits: Vec<u64> = published.iter().map(|one| one.hits).collect();
    hits.sort_unstable();
    hits
}

/// The content of the map `responses`.
fn response_slots(bench: &Bench) -> Vec<Vec<u8>> {
    let path = bench.level.folder().join("responses");
    let map = MapHandle::from_pinned_path(path).expect("a map");
    let all = map.lookup_batch(map.max_entries(), MapFlags::ANY, MapFlags::ANY);
    all.expect("an array").map(|(_, bytes)| bytes).collect()
}

/// Runs the closure on each processor that the thread may use. Returns the number of processors.
fn on_each_processor(mut work: impl FnMut(u16)) -> u64 {
    let all = sched_getaffinity(None).expect("processors");
    let mut count = 0;
    for processor in (0..CpuSet::MAX_CPU).filter(|processor| all.is_set(*processor)) {
        let mut processors = CpuSet::new();
        processors.set(processor);
        sched_setaffinity(None, &processors).expect("a processor");
        work(count);
        count += 1;
    }
    u64::from(count)
}

fn hits_are_counted(test: &str, tier: ProgramTier) {
    if let Some(reason) = missing_bench_requirement() {
        return lowroad_testkit::skip(test, &reason);
    }
    let bench = Bench::new(tier);
    bench.namespace.enter(|| {
        bench.beat(0);
        let publish_all = || {
            let mut shelf = TestPublisher::new(&bench.level);
            let one = &RESPONSES[0];
            for key in one.keys() {
                shelf.publish(&bench.level, &key, &one.prepare(0), HOUR_NS);
            }
        };
        publish_all();
        assert_eq!(hits(&bench), [0, 0]);
        let before = response_slots(&bench);
        let count = on_each_processor(|number| {
            ask(&bench, 30_000 + 2 * number);
            ask(&bench, 30_001 + 2 * number);
        });
        // There is one response for each address family; all requests were sent over IPv4.
        assert_eq!(hits(&bench), [0, 2 * count]);
        assert!(
            response_slots(&bench) == before,
            "what all processors read changed"
        );
        // The new responses use the same slots.
        publish_all();
        assert_eq!(hits(&bench), [0, 0]);
    });
}

#[test]
fn xdp_program_counts_hits_per_processor() {
    hits_are_counted("xdp_program_counts_hits_per_processor", ProgramTier::Xdp);
}

#[test]
fn tc_program_counts_hits_per_processor() {
    hits_are_counted("tc_program_counts_hits_per_processor", ProgramTier::Tc);
}
