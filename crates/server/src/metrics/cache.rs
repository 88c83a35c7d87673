//! Metrics of stored responses, in memory and on disk. Hits and misses are outcomes of `lowroad_requests`.

use lowroad_cache::StoreCounters;
use lowroad_metrics::MetricSnapshot;

use crate::running_server::RunningServer;

/// Adds the metrics of the cache.
pub fn add(running: &RunningServer, out: &mut MetricSnapshot) {
    memory(running, out);
    watches(running, out);
    purges(running, out);
    disk(running, out);
}

fn memory(running: &RunningServer, out: &mut MetricSnapshot) {
    let (shards, arena_bytes) = running.store.counters();
    let sum = |counter: fn(&StoreCounters) -> u64| shards.iter().map(counter).sum::<u64>();
    let coalesced = running.cache_counters.iter();
    let coalesced = coalesced.map(|worker| worker.coalesced.value()).sum();
    out.gauge(
        "lowroad_cache_objects",
        "Responses stored in memory.",
        sum(|it| it.objects),
    );
    out.gauge(
        "lowroad_cache_bytes",
        "Memory of stored responses.",
        sum(|it| it.bytes),
    );
    out.gauge(
        "lowroad_cache_max_bytes",
        "The limit of lowroad_cache_bytes (cache in [server]).",
        running.config.server.cache_len_max,
    );
    out.gauge(
        "lowroad_cache_arena_bytes",
        "Memory of the arena that bodies are stored in.",
        arena_bytes,
    );
    for (name, help, value) in [
        (
            "coalesced",
            "Misses that were answered by the response to an equal, concurrent request.",
            coalesced,
        ),
        ("inserted", "Responses stored.", sum(|it| it.inserted)),
        (
            "evicted",
            "Responses evicted for space.",
            sum(|it| it.evicted),
        ),
        (
            "refused",
            "Responses not stored because they were too large.",
            sum(|it| it.refused),
        ),
        (
            "no_room",
            "Responses not stored because the arena had no room.",
            running.store.unplaced(),
        ),
        (
            "outdated",
            "Responses not stored because they were purged meanwhile.",
            running.store.outdated(),
        ),
        (
            "variants_evicted",
            "Variants evicted because a URL had too many.",
            running.store.variants_evicted(),
        ),
    ] {
        out.counter(format!("lowroad_cache_{name}"), help, value);
    }
}

fn watches(running: &RunningServer, out: &mut MetricSnapshot) {
    out.gauge(
        "lowroad_folders_watched",
        "Folders that are watched for changes of stored files.",
        running.fetcher.loader().folders_watched() as u64,
    );
    let watches = lowroad_engine::file::watch_counters();
    out.gauge(
        "lowroad_files_watched",
        "Long files that are watched for changes while they are sent.",
        watches.watched,
    );
    out.counter(
        "lowroad_file_watches_refused",
        "Long files sent without being watched, at the limit of watches.",
        watches.refused,
    );
}

fn purges(running: &RunningServer, out: &mut MetricSnapshot) {
    let purges = running.store.purge_counters();
    out.counter("lowroad_purges", "Purges.", purges.purges);
    out.gauge(
        "lowroad_purge_rules",
        "Rules and names of purges that are remembered.",
        purges.rules,
    );
    out.counter(
        "lowroad_purge_rules_dropped",
        "Rules and names of purges forgotten because there were too many.",
        purges.dropped,
    );
    out.counter(
        "lowroad_purged_responses",
        "Responses found to be purged.",
        purges.deleted,
    );
    out.counter(
        "lowroad_purged_stale_responses",
        "Responses found to be stale by a soft purge.",
        purges.stale,
    );
}

fn disk(running: &RunningServer, out: &mut MetricSnapshot) {
    // Without a disk cache its families would be zeros that look like a cache that is never used.
    let Some(tier) = running.store.tier() else {
        return;
    };
    let (counters, errors) = tier.counters();
    let (late_readers, late_refused) = tier.late_readers();
    let (refused, skipped) = tier.unwritten();
    for (name, help, value) in [
        ("hits", "Responses read from the disk.", counters.hits),
        (
            "misses",
            "Look-ups without a response on disk.",
            counters.misses,
        ),
        ("stored", "Responses written to the disk.", counters.stored),
        (
            "refused",
            "Responses that the disk cache does not take.",
            refused,
        ),
        (
            "skipped",
            "Responses not written because they expire too soon.",
            skipped,
        ),
        (
            "abandoned",
            "Responses whose writing was given up.",
            counters.abandoned,
        ),
        (
            "evicted",
            "Responses evicted from the disk.",
            counters.evicted,
        ),
        (
            "rewritten",
            "Responses moved to another segment.",
            counters.rewritten,
        ),
        (
            "removed",
            "Responses removed from the disk.",
            counters.removed,
        ),
        (
            "corrupt",
            "Responses with a wrong checksum.",
            counters.corrupt,
        ),
        ("read_errors", "Failed reads.", counters.read_errors),
        ("write_errors", "Failed writes.", counters.write_errors),
        (
            "full",
            "Writes that failed because the disk was full.",
            counters.disk_full,
        ),
        ("errors", "Other errors of the disk cache.", errors),
        (
            "late_readers",
            "Requests that joined an unfinished fetch and read its first part from the disk.",
            late_readers,
        ),
        (
            "late_readers_refused",
            "Late readers beyond their limit.",
            late_refused,
        ),
    ] {
        out.counter(format!("lowroad_disk_cache_{name}"), help, value);
    }
    for (name, help, value) in [
        ("objects", "Responses on disk.", counters.objects),
        ("bytes", "Bytes of the segments.", counters.segment_bytes),
        ("index_bytes", "Memory of the index.", counters.index_bytes),
    ] {
        out.gauge(format!("lowroad_disk_cache_{name}"), help, value);
    }
}
