//! Collects the metrics of the running server from its threads when a scrape or a dashboard requests them.
//!
//! Each part of the server has a file that turns its state into metric families. Names follow the conventions of
//! Prometheus: the prefix `lowroad_`, base units, `_total` for counters (added by the exposition).

mod cache;
pub mod certificates;
mod handlers;
pub mod hot_urls;
mod named_counters;
mod process;
mod refusals;
mod requests;
pub mod snapshot_json;
pub mod snapshot_notes;
mod softirq;
mod traces;
mod upstreams;
mod workers;

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use lowroad_metrics::{MetricKind, MetricSnapshot, SampleValue};

use crate::admin::AdminCounters;
use crate::features;
use crate::running_server::{RunningServer, lock};

/// Collects all metrics. `admin_refused` is the number of requests that the admin service refused for their token.
pub fn snapshot(
    running: &Mutex<RunningServer>,
    admin_refused: u64,
    admin: &AdminCounters,
) -> MetricSnapshot {
    let mut snapshot = MetricSnapshot::default();
    let out = &mut snapshot;
    {
        // One lock for all families, so that the values of a snapshot belong to one configuration.
        let running = lock(running);
        build_info(out);
        requests::add(&running, out);
        workers::add(&running, out);
        cache::add(&running, out);
        handlers::add(&running, out);
        upstreams::add(&running, out);
        named_counters::add(&running, out);
        certificates::add(&running, out);
        softirq::add(&running, out);
        logs(&running, out);
        traces::add(&running, out);
        out.counter(
            "lowroad_config_reloads",
            "Configurations applied since the start.",
            running.reloads.applied,
        );
        out.counter(
            "lowroad_config_reloads_rejected",
            "Reloads with an invalid configuration, which changed nothing.",
            running.reloads.rejected,
        );
        out.counter(
            "lowroad_upgrades_failed",
            "Failed upgrades, after which this process continued.",
            running.upgrades_failed,
        );
        out.counter(
            "lowroad_map_files_applied",
            "Changed map files that were put in force.",
            running.map_counts.applied.load(Relaxed),
        );
        out.counter(
            "lowroad_map_files_rejected",
            "Changed map files with a mistake; the previous entries stay in force.",
            running.map_counts.rejected.load(Relaxed),
        );
        out.gauge(
            "lowroad_config_last_reload_successful",
            "Whether the latest reload was applied; 1 before the first.",
            u64::from(!running.reloads.is_latest_rejected),
        );
    }
    out.counter(
        "lowroad_admin_requests_refused",
        "Requests to the admin service that were refused for their token.",
        admin_refused,
    );
    admin.add(out);
    // Reads files of the kernel, for which the lock is not needed.
    process::add(out);
    snapshot
}

fn build_info(out: &mut MetricSnapshot) {
    let family = out.family(
        MetricKind::Info,
        "lowroad_build",
        "The version of the program and the features that it was built with.",
    );
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("features", &features::built_in().join(",")),
    ];
    family.sample(&labels, SampleValue::Labels);
}

fn logs(running: &RunningServer, out: &mut MetricSnapshot) {
    let lost: u64 = running.sinks.iter().map(lowroad_log::LineSink::lost).sum();
    out.counter(
        "lowroad_log_lines_lost",
        "Log lines dropped because the disk or receiver was full, slow or unreachable.",
        lost,
    );
    out.counter(
        "lowroad_log_rotations_failed",
        "Failed tries to rotate a binary access log.",
        running.log_rotations_failed.load(Relaxed),
    );
}
