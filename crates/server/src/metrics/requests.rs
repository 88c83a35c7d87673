//! Metrics of requests, by site, route and level.

use std::collections::BTreeMap;

use lowroad_metrics::scope_registry::ScopeLabels;
use lowroad_metrics::{LatencyDistribution, MetricKind, MetricScope, MetricSnapshot, SampleValue};
use lowroad_site::answering_rule::AnsweringRule;
use lowroad_site::request_metrics::{CODE_CLASSES, LEVELS, ResponseSource, ScopeTotals};

use super::refusals;
use crate::running_server::RunningServer;

/// A distribution of durations of each level of a scope, in the order of [`LEVELS`].
type LevelDistributions = [LatencyDistribution; LEVELS.len()];

/// Adds the metrics of requests.
pub fn add(running: &RunningServer, out: &mut MetricSnapshot) {
    let totals = totals(running);
    requests(&totals, out);
    bytes(&totals, out);
    refusals::add(running, &totals, out);
    rules(&totals, out);
    durations(&totals, out);
    first_bytes(&totals, out);
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

/// The answers of rules by site: a rule applies to paths, whether or not they have a route.
fn rules(totals: &[(ScopeLabels, ScopeTotals)], out: &mut MetricSnapshot) {
    let mut sums = BTreeMap::<(&str, &str), u64>::new();
    for (labels, totals) in totals {
        for (rule, count) in AnsweringRule::ALL.into_iter().zip(totals.rules) {
            // Counters that are still 0 are omitted, as above.
            if count > 0 {
                *sums.entry((&labels.site, rule.as_str())).or_default() += count;
            }
        }
    }
    let family = out.family(
        MetricKind::Counter,
        "lowroad_rule_answers",
        "Requests that a rule of the site answered: deny, respond, close, auth (credentials are missing or wrong), redirect, https.",
    );
    for ((site, action), sum) in sums {
        family.whole(&[("site", site), ("action", action)], sum);
    }
}

/// The durations by site, route and level.
fn durations(totals: &[(ScopeLabels, ScopeTotals)], out: &mut MetricSnapshot) {
    let family = out.family(
        MetricKind::Histogram,
        "lowroad_request_duration_seconds",
        "Time from a request's head to the end of its response.",
    );
    for (labels, totals) in totals {
        for (level, distribution) in filled(&totals.durations) {
            let labels = [
                ("site", &*labels.site),
                ("route", &*labels.route),
                ("level", level),
            ];
            family.sample(&labels, SampleValue::Durations(distribution.clone()));
        }
    }
}

/// The times to the first byte by site and level. A histogram has many series, so only one has the label of the route.
fn first_bytes(totals: &[(ScopeLabels, ScopeTotals)], out: &mut MetricSnapshot) {
    let mut sums = BTreeMap::<(&str, &str), LatencyDistribution>::new();
    for (labels, totals) in totals {
        for (level, distribution) in filled(&totals.first_byte) {
            let sum = sums.entry((&labels.site, level)).or_default();
            sum.add(distribution);
        }
    }
    let family = out.family(
        MetricKind::Histogram,
        "lowroad_time_to_first_byte_seconds",
        "Time from a request's head to the head of its response.",
    );
    for ((site, level), sum) in sums {
        family.sample(
            &[("site", site), ("level", level)],
            SampleValue::Durations(sum),
        );
    }
}

/// The levels with durations. With empty histograms, the number of series would multiply by the number of levels.
fn filled(
    distributions: &LevelDistributions,
) -> impl Iterator<Item = (&'static str, &LatencyDistribution)> {
    let levels = LEVELS.into_iter().zip(distributions);
    levels.filter(|(_, distribution)| distribution.count() > 0)
}
