//! Metrics of connections and workers.

use lowroad_engine::counters::WorkerCounters;
use lowroad_metrics::{LatencyDistribution, MetricKind, MetricSnapshot, SampleValue};
use lowroad_site::request_metrics::RequestMetrics;
use lowroad_store::clock;

use crate::running_server::RunningServer;

/// Adds the metrics of connections and workers.
pub fn add(running: &RunningServer, out: &mut MetricSnapshot) {
    out.gauge(
        "lowroad_open_connections",
        "Open connections of clients.",
        running.admission.open() as u64,
    );
    out.gauge(
        "lowroad_workers",
        "Event loops that answer clients.",
        running.workers.len() as u64,
    );
    out.gauge(
        "lowroad_deny_list_entries",
        "Addresses and prefixes that operators deny.",
        running.deny.len(clock::unix_s()) as u64,
    );
    out.gauge(
        "lowroad_draining_processes",
        "Processes that upgrades have replaced and that have not ended.",
        running.draining_processes() as u64,
    );
    counters(running, out);
    histogram(
        running,
        "lowroad_worker_turn_duration_seconds",
        "Time that a worker took for one turn of its event loop, in turns with requests.",
        RequestMetrics::add_turns_to,
        out,
    );
    histogram(
        running,
        "lowroad_worker_lag_seconds",
        "Lag of a worker's event loop: time from the moment at which a timer was due, or unread bytes were left, until \
         they were handled.",
        RequestMetrics::add_lags_to,
        out,
    );
}

/// Adds a histogram of each worker.
fn histogram(
    running: &RunningServer,
    name: &'static str,
    help: &'static str,
    add_to: fn(&RequestMetrics, &mut LatencyDistribution),
    out: &mut MetricSnapshot,
) {
    let family = out.family(MetricKind::Histogram, name, help);
    for (number, worker) in running.request_metrics.iter().enumerate() {
        let mut sum = LatencyDistribution::default();
        add_to(worker, &mut sum);
        let number = number.to_string();
        family.sample(&[("worker", &number)], SampleValue::Durations(sum));
    }
}

/// Adds up the workers' counters. The engine defines their names and descriptions.
fn counters(running: &RunningServer, out: &mut MetricSnapshot) {
    let lists: Vec<_> = running
        .counters
        .iter()
        .map(|worker| worker.list())
        .collect();
    for (index, help) in WorkerCounters::DESCRIPTIONS.iter().enumerate() {
        // The workers' lists have the same counters in the same order.
        let values = lists.iter().filter_map(|list| list.get(index));
        let sum = values.clone().map(|(_, value)| value).sum();
        if let Some((name, _)) = values.clone().next() {
            out.counter(metric_name(name), help.trim(), sum);
        }
    }
}

/// The metric name of a worker's counter. Names that would be unclear outside of `lowroad status` are replaced.
fn metric_name(name: &str) -> String {
    let name = match name {
        "connections" => "connections_accepted",
        "requests" => "request_heads_received",
        "sent_bytes" => "sent_bytes",
        "refused" => "requests_malformed",
        "deferred" => "requests_deferred",
        "handshakes" => "tls_handshakes",
        "handshake_timeouts" => "tls_handshake_timeouts",
        "handshake_failures" => "tls_handshake_failures",
        "clear_text" => "tls_clear_text_connections",
        "kernel_tls" => "tls_kernel_connections",
        "over_connections_max" => "connections_refused_server_limit",
        "over_address_max" => "connections_refused_address_limit",
        "rate_too_low" => "connections_closed_rate_min",
        "broken" => "connections_broken",
        "passed_through" => "connections_passed_through",
        other => other,
    };
    format!("lowroad_{name}")
}
