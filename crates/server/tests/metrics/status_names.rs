//! The names of counters in `lowroad status`, and the metrics with the same values.

use std::collections::BTreeMap;

use crate::support::{FULL, ObservedServer};
use crate::text_format::Scrape;

/// Counters with another metric name than [`derived`] makes.
const RENAMED: [(&str, &str); 31] = [
    ("tls.REASON", "lowroad_tls_client_errors_total"),
    ("open", "lowroad_open_connections"),
    ("connections", "lowroad_connections_accepted_total"),
    ("requests", "lowroad_request_heads_received_total"),
    ("refused", "lowroad_requests_malformed_total"),
    ("deferred", "lowroad_requests_deferred_total"),
    ("handshakes", "lowroad_tls_handshakes_total"),
    ("handshake_timeouts", "lowroad_tls_handshake_timeouts_total"),
    ("handshake_failures", "lowroad_tls_handshake_failures_total"),
    ("clear_text", "lowroad_tls_clear_text_connections_total"),
    ("kernel_tls", "lowroad_tls_kernel_connections_total"),
    ("rate_too_low", "lowroad_connections_closed_rate_min_total"),
    (
        "over_connections_max",
        "lowroad_connections_refused_server_limit_total",
    ),
    (
        "over_address_max",
        "lowroad_connections_refused_address_limit_total",
    ),
    ("passed_through", "lowroad_connections_passed_through_total"),
    ("broken", "lowroad_connections_broken_total"),
    ("purges_kept", "lowroad_purge_rules"),
    ("purges_dropped", "lowroad_purge_rules_dropped_total"),
    ("purged_found", "lowroad_purged_responses_total"),
    ("purged_stale", "lowroad_purged_stale_responses_total"),
    ("arena_bytes", "lowroad_cache_arena_bytes"),
    ("spool_failed", "lowroad_spool_failures_total"),
    ("compressed", "lowroad_compressed_responses_total"),
    ("compress_refused", "lowroad_uncompressed_responses_total"),
    ("wasm.instances", "lowroad_wasm_instances_created_total"),
    ("wasm.reused", "lowroad_wasm_instances_reused_total"),
    ("wasm.now_instances", "lowroad_wasm_instances"),
    ("wasm.now_memory_bytes", "lowroad_wasm_memory_bytes"),
    ("class.NAME.under_way", "lowroad_class_calls_in_progress"),
    ("class.NAME.waiting", "lowroad_class_waiting_requests"),
    ("wasm.now_resting", "lowroad_wasm_instances_idle"),
];

/// Outcomes of requests (docs/operation.md), which metrics have as a label.
const OUTCOMES: [&str; 5] = [
    "cache_hits",
    "cache_stale",
    "cache_misses",
    "cache_revalidated",
    "cache_passes",
];

/// A counter's name in `lowroad status`, with `NAME` for the name of a class and `REASON` for that of a TLS error, which
/// metrics have as labels.
fn general(name: &str) -> String {
    if name.starts_with("tls.") {
        return "tls.REASON".to_owned();
    }
    match name
        .strip_prefix("class.")
        .and_then(|rest| rest.split_once('.'))
    {
        Some((_, counter)) => format!("class.NAME.{counter}"),
        None => name.to_owned(),
    }
}

/// The metric of a counter, without `_total`, if the counter is not in [`RENAMED`].
fn derived(name: &str) -> String {
    let name = name.replace("class.NAME.", "class_").replace('.', "_");
    match name.strip_prefix("disk_") {
        Some(rest) => format!("lowroad_disk_cache_{rest}"),
        None => format!("lowroad_{name}"),
    }
}

/// The metric with the value of a counter in `lowroad status`.
fn metric_of(name: &str, scrape: &Scrape) -> Option<String> {
    if let Some((_, metric)) = RENAMED.iter().find(|(known, _)| *known == name) {
        return Some((*metric).to_owned());
    }
    let base = derived(name);
    let names = [format!("{base}_total"), base];
    names
        .into_iter()
        .find(|name| scrape.families.contains_key(name))
}

/// The counters in a text of `lowroad status`.
fn counters(text: &str) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(value)) = (words.next(), words.next()) else {
            continue;
        };
        // Other lines are texts, such as those of routes, or `open 3 connections`.
        let is_counter = words.next().is_none() || name == "open";
        if let (true, Ok(value)) = (is_counter, value.parse::<u64>()) {
            *counters.entry(general(name)).or_default() += value;
        }
    }
    counters
}

/// The names in `lowroad status` by metric.
pub fn status_names(observed: &ObservedServer, scrape: &Scrape) -> BTreeMap<String, Vec<String>> {
    let text = observed.call("GET", "/v1/status", FULL).text();
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in counters(&text).into_keys() {
        let metric = match OUTCOMES.contains(&&*name) {
            true => "lowroad_requests_total".to_owned(),
            false => metric_of(&name, scrape).unwrap_or_else(|| panic!("{name} has no metric")),
        };
        names.entry(metric).or_default().push(name);
    }
    names
}

#[test]
fn each_counter_of_status_is_a_metric_with_the_same_value() {
    let observed = ObservedServer::start();
    observed.make_requests();
    let status = || counters(&observed.call("GET", "/v1/status", FULL).text());
    // Read again until nothing changed meanwhile, such as connections that are being closed.
    let mut compared = None;
    lowroad_testkit::wait_until("equal counters", || {
        let before = status();
        let scrape = observed.scrape();
        compared = Some((before, scrape));
        let (before, _) = compared.as_ref().expect("both");
        (*before == status()).then_some(())
    });
    let (status, scrape) = compared.expect("both");
    assert!(status.len() > 70, "{status:?}");
    assert!(status["connections"] > 0 && status["class.NAME.requests"] > 0);
    for (name, value) in status {
        if OUTCOMES.contains(&&*name) {
            continue;
        }
        let metric = metric_of(&name, &scrape).unwrap_or_else(|| panic!("{name} has no metric"));
        assert_eq!(scrape.sum(&metric, &[]), value as f64, "{name}: {metric}");
    }
}
