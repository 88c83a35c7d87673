//! Formats the server's counters for `lowroad status`.

use std::sync::atomic::Ordering::Relaxed;

use lowroad_site::explain::line;
use lowroad_store::clock;

use crate::running_server::RunningServer;

/// The name of the number of processes that this one has replaced and that have not ended.
pub const DRAINING_PROCESSES: &str = "draining_processes";

/// The counters since the server's start.
pub fn status(running: &RunningServer) -> String {
    let mut out = format!("lowroad {}\n", env!("CARGO_PKG_VERSION"));
    line(
        &mut out,
        "process",
        &format!(
            "{}, up {} s",
            std::process::id(),
            running.started.elapsed().as_secs()
        ),
    );
    for (_, address) in &running.listeners.addresses {
        line(&mut out, "listens", &address.to_string());
    }
    for address in running.listeners.http3_addresses() {
        line(&mut out, "http3", &format!("{address} (UDP)"));
    }
    for (name, text) in running.tls.status() {
        line(&mut out, name, &text);
    }
    if let Some(health) = &running.softirq {
        line(&mut out, "softirq", &health.text());
    }
    line(&mut out, "workers", &running.workers.len().to_string());
    line(
        &mut out,
        "open",
        &format!("{} connections", running.admission.open()),
    );
    let draining = running.draining_processes();
    line(&mut out, DRAINING_PROCESSES, &draining.to_string());
    let entries = running.deny.len(clock::unix_s());
    line(&mut out, "deny_list_entries", &entries.to_string());
    add_up(
        &mut out,
        running.counters.iter().map(|counters| counters.list()),
    );
    let lost: u64 = running.sinks.iter().map(lowroad_log::LineSink::lost).sum();
    line(&mut out, "log_lines_lost", &lost.to_string());
    let rotations_failed = running.log_rotations_failed.load(Relaxed);
    line(
        &mut out,
        "log_rotations_failed",
        &rotations_failed.to_string(),
    );
    if let Some(queue) = &running.traces {
        for (name, value) in queue.counters().list() {
            line(&mut out, name, &value.to_string());
        }
    }
    let (shards, arena_used) = running.store.counters();
    let sum = |field: fn(&lowroad_cache::StoreCounters) -> u64| {
        shards.iter().map(field).sum::<u64>().to_string()
    };
    add_up(
        &mut out,
        running
            .cache_counters
            .iter()
            .map(|counters| counters.list()),
    );
    line(&mut out, "cache_inserted", &sum(|c| c.inserted));
    line(&mut out, "cache_evicted", &sum(|c| c.evicted));
    line(&mut out, "cache_refused", &sum(|c| c.refused));
    line(&mut out, "cache_objects", &sum(|c| c.objects));
    line(&mut out, "cache_bytes", &sum(|c| c.bytes));
    for (name, value) in [
        ("cache_no_room", running.store.unplaced()),
        ("cache_outdated", running.store.outdated()),
    ] {
        line(&mut out, name, &value.to_string());
    }
    let variants = running.store.variants_evicted();
    line(&mut out, "cache_variants_evicted", &variants.to_string());
    let purges = running.store.purge_counters();
    line(&mut out, "purges", &purges.purges.to_string());
    line(&mut out, "purges_kept", &purges.rules.to_string());
    line(&mut out, "purges_dropped", &purges.dropped.to_string());
    line(&mut out, "purged_found", &purges.deleted.to_string());
    line(&mut out, "purged_stale", &purges.stale.to_string());
    line(&mut out, "arena_bytes", &arena_used.to_string());
    disk_cache(running, &mut out);
    line(
        &mut out,
        "folders_watched",
        &running.fetcher.loader().folders_watched().to_string(),
    );
    let watches = lowroad_engine::file::watch_counters();
    line(&mut out, "files_watched", &watches.watched.to_string());
    line(
        &mut out,
        "file_watches_refused",
        &watches.refused.to_string(),
    );
    write_route_counters(running, &mut out);
    out
}

/// Prints the sums of the workers' counters. The workers' lists have the same counters in the same order.
fn add_up(
    out: &mut String,
    lists: impl Iterator<Item = impl IntoIterator<Item = (&'static str, u64)>>,
) {
    let mut sums: Vec<(&str, u64)> = Vec::new();
    for (worker, list) in lists.enumerate() {
        for (index, (name, value)) in list.into_iter().enumerate() {
            // Names and order come from the first worker's list.
            if worker == 0 {
                sums.push((name, value));
            } else {
                sums[index].1 += value;
            }
        }
    }
    sums.iter()
        .for_each(|(name, value)| line(out, name, &value.to_string()));
}

/// Prints the disk cache's counters.
fn disk_cache(running: &RunningServer, out: &mut String) {
    let Some(tier) = running.store.tier() else {
        return;
    };
    let (counters, errors) = tier.counters();
    let (late_readers, late_refused) = tier.late_readers();
    let (refused, skipped) = tier.unwritten();
    for (name, value) in [
        ("disk_hits", counters.hits),
        ("disk_misses", counters.misses),
        ("disk_stored", counters.stored),
        ("disk_refused", refused),
        ("disk_skipped", skipped),
        ("disk_abandoned", counters.abandoned),
        ("disk_evicted", counters.evicted),
        ("disk_rewritten", counters.rewritten),
        ("disk_removed", counters.removed),
        ("disk_corrupt", counters.corrupt),
        ("disk_read_errors", counters.read_errors),
        ("disk_write_errors", counters.write_errors),
        ("disk_full", counters.disk_full),
        ("disk_errors", errors),
        ("disk_late_readers", late_readers),
        ("disk_late_readers_refused", late_refused),
        ("disk_objects", counters.objects),
        ("disk_bytes", counters.segment_bytes),
        ("disk_index_bytes", counters.index_bytes),
    ] {
        line(out, name, &value.to_string());
    }
}

/// Prints the counters of traffic classes, access rules, routes, origins and modules.
fn write_route_counters(running: &RunningServer, out: &mut String) {
    let classes = running.sites.classes.iter();
    for (name, value) in classes.flat_map(|classes| classes.counts()) {
        line(out, &format!("class.{name}"), &value.to_string());
    }
    for site in &running.sites.all {
        for text in site.access_policy.iter().flat_map(|policy| policy.status()) {
            line(out, "rule", &format!("{} {text}", site.rules.label));
        }
        for route in site.routes.iter() {
            let mut text = format!(
                "{} {}: {}",
                site.rules.label,
                route.name(),
                route.counts.text()
            );
            if let Some(handler_status) = route.handler.status() {
                text.push_str(&format!(", {handler_status}"));
            }
            line(out, "route", &text);
        }
    }
    for text in running.handler_runtime.origins().lines() {
        line(out, "origin", &text);
    }
    for (module, counts) in running.handlers.counts() {
        for (name, value) in counts {
            line(out, &format!("module.{module}.{name}"), &value.to_string());
        }
    }
    for (name, value) in running.handler_runtime.counts() {
        line(out, name, &value.to_string());
    }
}
