//! Metrics of requests, by site, route and level.

use std::collections::BTreeMap;

use lowroad_metrics::scope_registry::ScopeLabels;
use lowroad_metrics::{LatencyDistribution, MetricKind, MetricScope, MetricSnapshot, SampleValue};
use lowroad_site::request_metrics::{CODE_CLASSES, LEVELS, ResponseSource, ScopeTotals};

use crate::running_server::RunningServer;

/// Distribution of durations by site and level.
type DurationsBySite = BTreeMap<(String, &'static str), LatencyDistribution>;

/// Adds the metrics of requests.
pub fn add(running: &RunningServer, out: &mut MetricSnapshot) {
    let totals = totals(running);
    requests(&totals, out);
    bytes(&totals, out);
    let by_site = |durations: fn(&ScopeTotals) -> &[LatencyDistribution; LEVELS.len()]| {
        let mut sums = DurationsBySite::new();
        for (labels, totals) in &totals {
            for (level, distribution) in LEVELS.into_iter().zip(durations(totals)) {
                // With empty histograms, the number of series would multiply by the number of levels.
                if distribution.count() > 0 {
                    let sum = sums.entry((labels.site.clone(), level)).or_default();
                    sum.add(distribution);
                }
            }
        }
        sums
    };
    histogram(
        "lowroad_request_duration_seconds",
        "Time from a request's head to the end of its response.",
        &by_site(|totals| &totals.durations),
        out,
    );
    histogram(
        "lowroad_time_to_first_byte_seconds",
        "Time from a request's head to the head of its response.",
        &by_site(|totals| &totals.first_byte),
        out,
    );
}

/// Sums the workers' metrics of each scope that has had requests.
fn totals(running: &RunningServer) -> Vec<(ScopeLabels, ScopeTotals)> {
    let labels = running.sites.scopes.labels();
    let all = labels.into_iter().zip(0u16..).map(|(labels, number)| {
        let mut totals = ScopeTotals::default();
        for worker in &running.request_metrics {
            worker.add_to(MetricScope::from_number(number), &mut totals);
        }
        (labels, totals)
    });
    all.collect()
}

fn requests(totals: &[(ScopeLabels, ScopeTotals)], out: &mut MetricSnapshot) {
    let family = out.family(
        MetricKind::Counter,
        "lowroad_requests",
        "Requests that were answered.",
    );
    for (labels, totals) in totals {
        for (source, counts) in ResponseSource::all().zip(&totals.requests) {
            for (class, count) in CODE_CLASSES.into_iter().zip(counts) {
                // Counters that are still 0 are omitted: there may be hundreds.
                if *count > 0 {
                    let labels = [
                        ("site", &*labels.site),
                        ("route", &*labels.route),
                        ("level", source.level()),
                        ("outcome", source.outcome()),
                        ("code_class", class),
                    ];
                    family.whole(&labels, *count);
                }
            }
        }
    }
}

fn bytes(totals: &[(ScopeLabels, ScopeTotals)], out: &mut MetricSnapshot) {
    let family = out.family(
        MetricKind::Counter,
        "lowroad_response_body_bytes",
        "Bytes of response bodies that were sent.",
    );
    for (labels, totals) in totals.iter().filter(|(_, totals)| totals.body_bytes > 0) {
        let labels = [("site", &*labels.site), ("route", &*labels.route)];
        family.whole(&labels, totals.body_bytes);
    }
    let family = out.family(
        MetricKind::Counter,
        "lowroad_responses_cut",
        "Responses that were not sent completely, mostly because the client left.",
    );
    for (labels, totals) in totals.iter().filter(|(_, totals)| totals.truncated > 0) {
        let labels = [("site", &*labels.site), ("route", &*labels.route)];
        family.whole(&labels, totals.truncated);
    }
}

fn histogram(
    name: &'static str,
    help: &'static str,
    sums: &DurationsBySite,
    out: &mut MetricSnapshot,
) {
    let family = out.family(MetricKind::Histogram, name, help);
    for ((site, level), sum) in sums {
        let labels = [("site", site.as_str()), ("level", *level)];
        family.sample(&labels, SampleValue::Durations(sum.clone()));
    }
}
